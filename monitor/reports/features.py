"""Broken features and the rates of features, in the form that reports and exporters use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from monitor.stats.features.drift import Drift
from monitor.stats.features.health import FaultKind


class BrokenFeature(msgspec.Struct, frozen=True):
    """A fault of a feature in a window, as an entry of the window's line.

    Parameters
    ----------
    feature : str
    fault : {"missing", "unseen", "out_of_range", "constant"}
        Rows lack the feature; have a text that the reference lacks, or a number beyond its range; or all rows
        have the same value.
    ratio : float
        The share of the window's rows concerned, 0 to 1.
    expected : float
        That share according to the reference; for a constant, the share of the most frequent value.
    """

    feature: str
    fault: FaultKind
    ratio: float
    expected: float


@dataclass(frozen=True, slots=True)
class FeatureRates:
    """The rates of a feature in the last closed window, and its distance from the reference.

    Parameters
    ----------
    missing : float
        The share of rows without the feature, 0 to 1.
    unseen : float or None
        The share of texts that the reference lacks or of numbers beyond its range, 0 to 1; None while nothing
        is known of the reference.
    drift : Drift or None
        The distance from the distribution in the reference; None while nothing is known of it.
    drifted : bool
        Whether the distance exceeds its threshold, and the feature is among the window's `discoveries`.
    """

    missing: float
    unseen: float | None
    drift: Drift | None = None
    drifted: bool = False


_FAULTS = {
    "missing": "missing in {} of rows, {} in the reference",
    "unseen": "not among the reference's values in {} of rows, {} is normal",
    "out_of_range": "beyond the reference's range in {} of rows, {} is normal",
    "constant": "constant in {} of rows; the most frequent value of the reference has {}",
}


def sentence(broken: Sequence[BrokenFeature]) -> str:
    """Describe the faults of features in words.

    Examples
    --------
    >>> sentence([BrokenFeature("hour", "missing", 0.412, 0.002)])
    'feature hour is missing in 41 % of rows, 0.2 % in the reference'
    >>> sentence([BrokenFeature("carrier", "unseen", 0.3, 0.0)])
    "feature carrier is not among the reference's values in 30 % of rows, 0 % is normal"
    """
    return "; ".join(
        f"feature {each.feature} is "
        + _FAULTS[each.fault].format(_percent(each.ratio), _percent(each.expected))
        for each in broken
    )


def _percent(ratio: float) -> str:
    percent = 100 * ratio
    return f"{percent:.1f} %" if 0.05 <= percent < 3 else f"{percent:.0f} %"

"""Broken features and the rates of features, for reports and exporters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import msgspec
import numpy as np

from monitor.base.records import FeatureKind, Ints
from monitor.stats.features.drift import Drift, discoveries, drift
from monitor.stats.features.health import FaultKind
from monitor.stats.features.tables import MISSING, OUTSIDE, FeatureBin, FeatureTable


class BrokenFeature(msgspec.Struct, frozen=True):
    """A fault of a feature in a window, in the form of the window's JSON line.

    Parameters
    ----------
    feature : str
    fault : {"missing", "unseen", "out_of_range", "constant"}
        ``"missing"``: rows lack the feature. ``"unseen"``: texts do not occur in the reference.
        ``"out_of_range"``: numbers are beyond the reference's range. ``"constant"``: all rows have the same
        value.
    ratio : float
        The share of the window's rows with the fault, 0 to 1.
    expected : float
        The share of such rows in the reference. For ``"constant"``, the share of the most frequent value.
    """

    feature: str
    fault: FaultKind
    ratio: float
    expected: float


@dataclass(frozen=True, slots=True)
class FeatureRates:
    """The rates of a feature in the last closed window, and the distance of its values from the reference.

    Parameters
    ----------
    missing : float
        The share of rows without the feature, 0 to 1.
    unseen : float or None
        The share of rows with a text that the reference lacks, or a number beyond the reference's range, 0 to
        1. None if there are no data of the reference.
    drift : Drift or None
        The distance from the distribution in the reference. None if there are no data of the reference.
    drifted : bool
        Whether the distance exceeds its threshold, and the difference is significant after the correction for
        several features (`monitor.stats.features.drift.discoveries`).
    alarm : bool
        Whether the drift raises an alarm, unless the feature is broken. This requires the key
        `chart.features`.
    """

    missing: float
    unseen: float | None
    drift: Drift | None = None
    drifted: bool = False
    alarm: bool = False

    @property
    def excess(self) -> float:
        """The distance divided by its threshold; 0 if there are no data of the reference."""
        return self.drift.distance / self.drift.distance_threshold if self.drift else 0.0


@dataclass(frozen=True, eq=False)
class FeatureCounts:
    """The counts of the values of a model's features, in its last closed window and in the reference.

    Rates and distances are computed when they are first read, because most views are never shown.

    Parameters
    ----------
    kinds : mapping of str to {"number", "text"}
        The names of the features, each with its type.
    rows : int
        The number of the window's rows; 0 before the first closed window.
    missing : tuple of int
        The number of the window's rows that lack each feature.
    tables : tuple of FeatureTable
        The bins of each feature with the counts of the reference; empty if there are no data of the
        reference.
    counts : (F, WIDTH) int64 or None
        The window's counts in these bins; None without `tables`.
    alarm_level : float
        The p-value below which the drift of a feature raises an alarm; 0 if drift never raises an alarm.
    """

    kinds: Mapping[str, FeatureKind]
    rows: int = 0
    missing: tuple[int, ...] = ()
    tables: tuple[FeatureTable, ...] = ()
    counts: Ints | None = None
    alarm_level: float = 0.0

    @classmethod
    def from_tables(
        cls,
        kinds: Mapping[str, FeatureKind],
        tables: tuple[FeatureTable, ...],
        counts: Ints,
        alarm_level: float = 0.0,
    ) -> FeatureCounts:
        """Return the counts of a window from its numbers of rows in the bins of F tables, (F, WIDTH)."""
        missing = tuple(counts[:, MISSING].tolist())
        return cls(kinds, int(counts[0].sum()), missing, tables, counts, alarm_level)

    @cached_property
    def rates(self) -> Mapping[str, FeatureRates]:
        """The rates of each feature; empty before the first closed window."""
        if not self.rows:
            return {}
        missing = [count / self.rows for count in self.missing]
        if self.counts is None:
            return {name: FeatureRates(share, None) for name, share in zip(self.kinds, missing, strict=True)}
        distances = [
            drift(table.unbiased(table.counts), table.unbiased(own))
            for table, own in zip(self.tables, self.counts, strict=True)
        ]
        discovered = discoveries(np.array([each.p_value for each in distances])).tolist()
        unseen = (self.counts[:, OUTSIDE] / self.rows).tolist()
        parts = zip(self.kinds, missing, unseen, distances, discovered, strict=True)
        return {
            name: FeatureRates(
                lacking,
                new,
                own,
                differs and own.distance > own.distance_threshold,
                alarm=own.p_value < self.alarm_level,
            )
            for name, lacking, new, own, differs in parts
        }

    def bins(self, name: str) -> list[tuple[FeatureBin, int, int]]:
        """Return the bins of a feature, each with its numbers of rows in the reference and in the window.

        The list is empty if there are no data of the reference.
        """
        if self.counts is None:
            return []
        place = list(self.kinds).index(name)
        table, own = self.tables[place], self.counts[place]
        return [(each, int(table.counts[each.column]), int(own[each.column])) for each in table.bins()]


_FAULTS = {
    "missing": "missing in {} of rows, {} in the reference",
    "unseen": "not among the reference's values in {} of rows, {} is normal",
    "out_of_range": "beyond the reference's range in {} of rows, {} is normal",
    "constant": "constant in {} of rows; the most frequent value of the reference has {}",
}


def sentence(broken: Sequence[BrokenFeature]) -> str:
    """Return a clause that describes the faults of features.

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

"""What the two Shewhart charts share: their settings, and how a baseline becomes a centre and limits."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from monitor.charts.base import Baseline, Chart, ChartLogic
from monitor.charts.latch import LatchedLogic
from monitor.charts.limits import DEFAULT_ARL0, check_settings, chosen_limits


@dataclass(frozen=True)
class LimitsAndRules(Chart):
    """Settings of a chart with limits and run rules.

    Parameters
    ----------
    arl0 : float, optional
        One false alarm in so many windows, all rules together: 10 to 1,000,000. 370 where neither
        this nor `sigmas` is given.
    sigmas : float, optional
        Half width of the limits instead, above 0 and up to 10.
    rules : tuple of str
        `we1` to `we4`.

    Raises
    ------
    ConfigError
        Settings that cannot be: see `monitor.charts.limits.check_settings`.
    """

    arl0: float | None = None
    sigmas: float | None = None
    rules: tuple[str, ...] = ("we1",)

    def __post_init__(self) -> None:
        check_settings(self.arl0, self.sigmas, self.rules)
        if self.sigmas is None and self.arl0 is None:
            object.__setattr__(self, "arl0", DEFAULT_ARL0)

    def build(self, baseline: Baseline, resume: Mapping[str, Any] | None = None) -> ChartLogic:
        """The logic around a baseline, from the start or from where a snapshot left it.

        To rebaseline, build anew without `resume`: the latch and the rules' memory start afresh.

        Raises
        ------
        ConfigError
            Fewer than five reference windows, or an `arl0` that the rules cannot reach with so few.
        ValueError
            A baseline that is none: shapes that differ, numbers that are not finite or out of range.
        """
        check_baseline(baseline)
        chosen = chosen_limits(self, len(baseline.values))
        center = _center(baseline)
        variance = self._row_variance(baseline, center, chosen.inflation)
        return LatchedLogic(center, variance, chosen.multiplier, self.rules, resume)

    @abstractmethod
    def _row_variance(self, baseline: Baseline, center: float, inflation: float) -> float:
        """Variance that one row adds to a window's estimate."""


def check_baseline(baseline: Baseline) -> None:
    """Refuse a baseline whose parts do not fit, with a sentence that names the part."""
    values, sizes = np.asarray(baseline.values), np.asarray(baseline.sizes)
    if values.ndim != 1 or values.shape != sizes.shape:
        raise ValueError(
            f"baseline: values and sizes must be (m,) alike, got shapes {values.shape} and {sizes.shape}"
        )
    wrong = ~((values >= 0) & (values <= 1))
    if wrong.any():
        at = int(np.argmax(wrong))
        raise ValueError(
            f"baseline.values[{at}]: got {values[at]}; allowed is 0 to 1, leave unknown windows out"
        )
    wrong = ~((sizes >= 1) & np.isfinite(sizes))
    if wrong.any():
        at = int(np.argmax(wrong))
        raise ValueError(f"baseline.sizes[{at}]: got {sizes[at]}; a window has at least 1 row")
    if not 0 <= baseline.row_sd < np.inf:
        raise ValueError(f"baseline.row_sd: got {baseline.row_sd}; allowed is a finite number of at least 0")


def _center(baseline: Baseline) -> float:
    """Mean of the reference rows: of the windows, weighted by size."""
    mean = np.average(baseline.values, weights=baseline.sizes)
    # rounding must not put the centre of equal values beside them
    return float(np.clip(mean, baseline.values.min(), baseline.values.max()))

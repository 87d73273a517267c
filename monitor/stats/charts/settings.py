"""The settings that charts have in common, and a chart's centre and limits from a baseline."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from monitor.base.errors import ConfigError
from monitor.stats.charts.base import DEFAULT_ARL0, RATIO, Baseline, ChartState
from monitor.stats.charts.detectors import Detector, RunRules, Spread
from monitor.stats.charts.latch import ChartLogic, RelevantChange
from monitor.stats.charts.limits import check_settings, chosen_limits


@dataclass(frozen=True)
class Chart(ABC):
    """The settings of a control chart, whose limits follow from an ARL0 or from a number of sigmas.

    The ARL0 is the promised mean number of windows between false alarms. `build` takes a baseline, the
    estimates of windows from a time when the model was known to be good.

    Parameters
    ----------
    arl0 : float, optional
        The mean number of windows between false alarms, 10 to 1,000,000. The default is 370 unless `sigmas`
        is set.
    sigmas : float, optional
        The half width of the limits in sigmas, above 0 and up to 10. It replaces `arl0`.
    min_change : float
        The smallest distance from the centre that may raise an alarm, in the unit of the estimates, 0 to 1.
        Run rules compare each window with it, `ewma` the moving average, and `cusum` the mean of the windows
        in its sum.
    better : {1, -1, 0}
        The direction that raises no alarm: 1 if larger values are better, -1 if smaller ones are better. With
        0, changes in both directions raise alarms.
    bounds : tuple of float
        The least and the greatest possible estimate, which may be infinite. The default is 0 to 1.

    Raises
    ------
    ConfigError
        The settings are impossible: see `monitor.stats.charts.limits.check_settings`.
    """

    kind: ClassVar[str]
    spread: ClassVar[Spread] = Spread.REFERENCE
    of_counts: ClassVar[bool] = False
    """True if the chart assumes the variation of a share of successes. Such a chart suits only the
    accuracy."""

    arl0: float | None = None
    sigmas: float | None = None
    min_change: float = field(default=0.0, kw_only=True)
    better: int = field(default=0, kw_only=True)
    bounds: tuple[float, float] = field(default=RATIO, kw_only=True, repr=False)

    def __post_init__(self) -> None:
        check_settings(self.arl0, self.sigmas, self.detector)
        if not 0 <= self.min_change <= 1:
            raise ConfigError(f"min_change: got {self.min_change:g}; allowed is 0 to 1")
        if self.better not in (-1, 0, 1):
            raise ConfigError(f"better: got {self.better}; allowed are 1, -1 and 0")
        if self.sigmas is None and self.arl0 is None:
            object.__setattr__(self, "arl0", DEFAULT_ARL0)

    @property
    @abstractmethod
    def detector(self) -> Detector:
        """The detector of the patterns that raise an alarm."""

    def build(self, baseline: Baseline, resume: ChartState | None = None) -> ChartLogic:
        """Return a chart for this baseline, which starts without past windows or from the state `resume`.

        To change the baseline of a running chart, build another chart without `resume`.

        Raises
        ------
        ConfigError
            The baseline has fewer than five windows, or too few for this `arl0`.
        ValueError
            The baseline is invalid: shapes differ, or numbers are not finite or out of range.
        """
        check_baseline(baseline, self.bounds)
        chosen = chosen_limits(self, len(baseline.values))
        center = _center(baseline)
        variance = self._row_variance(baseline, center, chosen.inflation)
        relevant = RelevantChange(self.min_change, self.better)
        return ChartLogic(center, variance, chosen.multiplier, self.detector, resume, relevant, self.bounds)

    def row_variance(self, baseline: Baseline) -> float:
        """Return the variance that one row contributes to an estimate, from this baseline.

        The estimate of a window of n rows has this variance divided by n.
        """
        return self._row_variance(baseline, _center(baseline), 1.0)

    def _row_variance(self, baseline: Baseline, center: float, inflation: float) -> float:
        """Return the variance of one row, ``v = v0 + κ²·max(0, v_ref - v0)``: see `Shewhart`."""
        rows = baseline.row_sd**2
        seen = np.sum(baseline.sizes * (baseline.values - center) ** 2) / (len(baseline.values) - 1)
        return float(rows + inflation**2 * max(0.0, seen - rows))


@dataclass(frozen=True)
class LimitsAndRules(Chart):
    """The settings of a chart with limits and run rules.

    Parameters
    ----------
    arl0, sigmas : float, optional
        See `Chart`. `arl0` is for the alarms of all rules together.
    rules : tuple of str
        `we1` to `we4`, `nelson1` to `nelson8`.
    """

    rules: tuple[str, ...] = ("we1",)

    @property
    def detector(self) -> RunRules:
        """The detector of the rules in `rules`."""
        return RunRules(self.rules)


def check_baseline(baseline: Baseline, bounds: tuple[float, float] = RATIO) -> None:
    """Raise a ValueError if a baseline is invalid. The message names the invalid part."""
    values, sizes = np.asarray(baseline.values), np.asarray(baseline.sizes)
    if values.ndim != 1 or values.shape != sizes.shape:
        raise ValueError(
            f"baseline: values and sizes must be (m,) alike, got shapes {values.shape} and {sizes.shape}"
        )
    least, greatest = bounds
    wrong = ~((values >= least) & (values <= greatest) & np.isfinite(values))
    if wrong.any():
        at = int(np.argmax(wrong))
        raise ValueError(
            f"baseline.values[{at}]: got {values[at]}; allowed is {least:g} to {greatest:g}, leave unknown "
            "windows out"
        )
    wrong = ~((sizes >= 1) & np.isfinite(sizes))
    if wrong.any():
        at = int(np.argmax(wrong))
        raise ValueError(f"baseline.sizes[{at}]: got {sizes[at]}; a window has at least 1 row")
    if not 0 <= baseline.row_sd < np.inf:
        raise ValueError(f"baseline.row_sd: got {baseline.row_sd}; allowed is a finite number of at least 0")


def _center(baseline: Baseline) -> float:
    """Return the mean of the reference windows, weighted by size."""
    mean = np.average(baseline.values, weights=baseline.sizes)
    # Rounding must not move the centre of equal values.
    return float(np.clip(mean, baseline.values.min(), baseline.values.max()))

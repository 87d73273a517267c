"""Detectors: the patterns of standardised windows that raise an alarm, and their rates of false alarms.

A detector computes its rate of false alarms for a chart whose centre and sigma have known errors.
`monitor.stats.charts.limits` averages that rate over the errors that a reference of m windows can cause, and
solves for the threshold.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from monitor.base.errors import ConfigError
from monitor.base.records import Floats
from monitor.stats.charts.rules import Memory, RuleMemory, check_rules, in_order
from monitor.stats.charts.runlength import NARROWEST, WIDEST, alarm_rate, widens
from monitor.stats.charts.smoothed import cusum_rate, ewma_rate
from monitor.stats.charts.sums import CusumMemory, EwmaMemory


class Spread(StrEnum):
    """The ways in which a chart can estimate its sigma (standard deviation); each has its own error."""

    KNOWN = "known"
    """The binomial formula. It is exact if the windows are binomial."""
    REFERENCE = "reference"
    """The larger of the rows' variance and the reference windows' variance (`Limits.inflation`)."""
    MOVING_RANGE = "moving range"
    """The mean distance between neighbouring reference windows, as in Laney's chart."""


class Detector(ABC):
    """A kind of pattern in standardised windows that raises an alarm.

    The standardised value of a window is the distance of its estimate from the centre, in sigmas. So a
    detector needs neither the centre nor the sigma of a chart.

    Attributes
    ----------
    rules : tuple of str
        The rules that a verdict may name.
    narrowest, widest : float
        The allowed range of the threshold. The threshold is the half width of the limits in sigmas, or the
        decision interval of a CUSUM.
    """

    rules: tuple[str, ...]
    narrowest: float = NARROWEST
    widest: float = WIDEST

    @abstractmethod
    def rate(self, threshold: float, error: Floats, ratio: Floats, least: float = 0.0) -> Floats:
        """Return the mean number of false alarms per window for each of g baselines, (g,) float64.

        The process is in control. Each baseline determines the centre and sigma of a chart, both with errors.
        The detector starts again after each alarm.

        Parameters
        ----------
        threshold : float
        error : (g,) float64
            Error of the chart's centre, in the process's standard deviations.
        ratio : (g,) float64
            The chart's sigma divided by the process's standard deviation.
        least : float
            The smallest change that raises an alarm, in the process's standard deviations.
        """

    @abstractmethod
    def memory(self, threshold: float, state: list[float] | None) -> Memory:
        """Return an object that reports, for one window after another, the rules that the window breaks.

        Parameters
        ----------
        threshold : float
        state : list of float or None
            The result of `Memory.snapshot`; None for a new series.
        """

    @property
    def fixed(self) -> float | None:
        """The threshold to use if the rate of alarms does not depend on the threshold, otherwise None."""
        return None

    @property
    def newest_weight(self) -> float:
        """The weight λ of the newest window in what the detector judges, above 0; 1 for windows alone."""
        return 1.0


@dataclass(frozen=True)
class RunRules(Detector):
    """The detector of Western Electric and Nelson rules, whose zones are fractions of the limits.

    Parameters
    ----------
    rules : tuple of str
        The names of the rules to apply, such as ``"we1"``.
    """

    rules: tuple[str, ...]

    def __post_init__(self) -> None:
        check_rules(self.rules)
        object.__setattr__(self, "rules", in_order(self.rules))

    def rate(self, threshold: float, error: Floats, ratio: Floats, least: float = 0.0) -> Floats:
        """Return the mean number of false alarms per window, as `Detector.rate` does.

        If `least` is above 0, the rates are exact for `we1` and upper bounds for other rules.
        """
        rate = alarm_rate(self.rules, error, threshold * ratio)
        return (
            rate if least == 0 else np.minimum(rate, alarm_rate(("we1",), error, np.full_like(rate, least)))
        )

    def memory(self, threshold: float, state: list[float] | None) -> RuleMemory:
        """Return the memory of these rules. `threshold` is the half width of the limits in sigmas."""
        return RuleMemory(self.rules, threshold, state or ())

    @property
    def fixed(self) -> float | None:
        """The textbook's 3 sigma if no rule would break less often with wider limits, otherwise None."""
        return None if widens(self.rules) else 3.0


@dataclass(frozen=True)
class EwmaDetector(Detector):
    """The detector that alarms if an exponentially weighted moving average (EWMA) leaves its limits.

    Parameters
    ----------
    weight : float
        The weight λ of the newest window in the average, 0.05 to 1.
    rules : tuple of str
        The name that verdicts give the broken rule.
    """

    weight: float
    rules: tuple[str, ...] = ("ewma",)

    def __post_init__(self) -> None:
        if not LIGHTEST <= self.weight <= 1:
            raise ConfigError(f"weight: got {self.weight:g}; allowed is {LIGHTEST:g} to 1")

    def rate(self, threshold: float, error: Floats, ratio: Floats, least: float = 0.0) -> Floats:
        """Return the mean number of false alarms per window, as `Detector.rate` does."""
        own = math.sqrt(self.weight / (2 - self.weight))  # the average's standard deviation
        return ewma_rate(self.weight, error, np.maximum(threshold * ratio, least / own))

    def memory(self, threshold: float, state: list[float] | None) -> EwmaMemory:
        """Return the memory of the average. `threshold` is the half width of its limits in sigmas."""
        return EwmaMemory(self.weight, threshold, state)

    @property
    def newest_weight(self) -> float:
        """The weight λ."""
        return self.weight


@dataclass(frozen=True)
class CusumDetector(Detector):
    """The detector that alarms if a cumulative sum, for a rise or for a fall, exceeds the decision interval.

    The allowance k is half of `shift`. Distances from the centre below k do not increase the sums.

    Parameters
    ----------
    shift : float
        The shift to detect soonest, in standard deviations of one window: 0.25 to 5.
    rules : tuple of str
        The name that verdicts give the broken rule.
    widest : float
        As in `Detector`.
    """

    shift: float
    rules: tuple[str, ...] = ("cusum",)
    widest: float = 25.0  # with a wider one, a chart needs more than 25/k windows to detect a shift of 2k

    def __post_init__(self) -> None:
        check_shift(self.shift)

    def rate(self, threshold: float, error: Floats, ratio: Floats, least: float = 0.0) -> Floats:
        """Return the mean number of false alarms per window, as `Detector.rate` does."""
        return cusum_rate(np.maximum(self.shift / 2 * ratio, least), error, threshold * ratio)

    def memory(self, threshold: float, state: list[float] | None) -> CusumMemory:
        """Return the memory of both sums. `threshold` is the decision interval in sigmas."""
        return CusumMemory(self.shift / 2, threshold, state)

    @property
    def newest_weight(self) -> float:
        """The λ of the EWMA chart that detects the same shift soonest, which looks back about as far."""
        return best_weight(self.shift)


LIGHTEST = 0.05
LEAST_SHIFT, LARGEST_SHIFT = 0.25, 5.0

_BEST_SHIFTS = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0)
_BEST_WEIGHTS = (0.05, 0.05, 0.09, 0.14, 0.25, 0.38, 0.54, 0.7, 0.9, 0.98)


def best_weight(shift: float) -> float:
    """Return the λ of the EWMA chart that detects a shift soonest, for an ARL0 of 370 and known limits.

    `shift` is in standard deviations of one window. λ is interpolated in a table of the minima of
    `ewma_arls`; `tests/stats/charts/test_smoothed.py` recomputes the table. The minima are flat, so this λ is
    nearly the best one for other values of ARL0 too.

    Examples
    --------
    >>> best_weight(1.0), best_weight(2.0)
    (0.14, 0.38)
    """
    check_shift(shift)
    return round(float(np.interp(shift, _BEST_SHIFTS, _BEST_WEIGHTS)), 3)


def check_shift(shift: float) -> None:
    """Raise a ConfigError if `shift` is not within 0.25 to 5 standard deviations of a window."""
    if not LEAST_SHIFT <= shift <= LARGEST_SHIFT:
        raise ConfigError(
            f"shift: got {shift:g}; allowed is {LEAST_SHIFT:g} to {LARGEST_SHIFT:g} standard deviations of "
            "one window"
        )

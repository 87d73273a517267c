"""The patterns that a chart looks for in the standardised windows, and the knowledge of its sigma.

A detector says how often it alarms in control, given how far the chart's centre and sigma are off.
`monitor.stats.charts.limits` averages that over what a reference of m windows leaves unknown, and inverts it.
"""

from __future__ import annotations

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
    """Where a chart's sigma comes from, which decides by how much a short reference mistakes it."""

    KNOWN = "known"
    """From a formula, the binomial's: not mistaken, where the formula holds."""
    REFERENCE = "reference"
    """The larger of what the rows give and what the reference windows show (`Limits.inflation`)."""
    MOVING_RANGE = "moving range"
    """From the mean distance of neighbouring reference windows alone, as Laney's."""


class Detector(ABC):
    """How windows are judged, apart from the centre and the sigma.

    Attributes
    ----------
    rules : tuple of str
        What a verdict may name.
    narrowest, widest : float
        Ends of the threshold: half width of the limits in sigmas, or the CUSUM's decision interval.
    """

    rules: tuple[str, ...]
    narrowest: float = NARROWEST
    widest: float = WIDEST

    @abstractmethod
    def rate(self, threshold: float, error: Floats, ratio: Floats) -> Floats:
        """Alarms a window in control, each starting afresh, for many baselines at once.

        Parameters
        ----------
        threshold : float
        error : (g,) float64
            By how much the chart's centre is off, in the process's standard deviations.
        ratio : (g,) float64
            The chart's sigma over the process's standard deviation.
        """

    @abstractmethod
    def memory(self, threshold: float, state: list[float] | None) -> Memory:
        """The judge of one series of standardised windows, fresh or from a `Memory.snapshot`."""

    @property
    def fixed(self) -> float | None:
        """The threshold where none changes the rate of alarms; None where one does."""
        return None


@dataclass(frozen=True)
class RunRules(Detector):
    """Western Electric and Nelson rules, the zones scaled with the limits."""

    rules: tuple[str, ...]

    def __post_init__(self) -> None:
        check_rules(self.rules)
        object.__setattr__(self, "rules", in_order(self.rules))

    def rate(self, threshold: float, error: Floats, ratio: Floats) -> Floats:
        return alarm_rate(self.rules, error, threshold * ratio)

    def memory(self, threshold: float, state: list[float] | None) -> RuleMemory:
        return RuleMemory(self.rules, threshold, state or ())

    @property
    def fixed(self) -> float | None:
        """Patterns that no wider limits make rarer; the limits drawn are the textbook's."""
        return None if widens(self.rules) else 3.0


@dataclass(frozen=True)
class EwmaDetector(Detector):
    """The exponentially weighted moving average leaves its limits.

    Parameters
    ----------
    weight : float
        λ of the newest window, 0.05 to 1.

    Raises
    ------
    ConfigError
    """

    weight: float
    rules: tuple[str, ...] = ("ewma",)

    def __post_init__(self) -> None:
        if not LIGHTEST <= self.weight <= 1:
            raise ConfigError(f"weight: got {self.weight:g}; allowed is {LIGHTEST:g} to 1")

    def rate(self, threshold: float, error: Floats, ratio: Floats) -> Floats:
        return ewma_rate(self.weight, error, threshold * ratio)

    def memory(self, threshold: float, state: list[float] | None) -> EwmaMemory:
        return EwmaMemory(self.weight, threshold, state)


@dataclass(frozen=True)
class CusumDetector(Detector):
    """One of the two cumulative sums exceeds the decision interval.

    Parameters
    ----------
    shift : float
        What it is tuned to, in sigmas: the reference value k is half of it. 0.25 to 5.

    Raises
    ------
    ConfigError
    """

    shift: float
    rules: tuple[str, ...] = ("cusum",)
    widest: float = 25.0  # past it a shift of twice k takes 25/k windows: no chart to wait for

    def __post_init__(self) -> None:
        check_shift(self.shift)

    def rate(self, threshold: float, error: Floats, ratio: Floats) -> Floats:
        return cusum_rate(self.shift / 2 * ratio, error, threshold * ratio)

    def memory(self, threshold: float, state: list[float] | None) -> CusumMemory:
        return CusumMemory(self.shift / 2, threshold, state)


LIGHTEST = 0.05
LEAST_SHIFT, LARGEST_SHIFT = 0.25, 5.0

_BEST_SHIFTS = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0)
_BEST_WEIGHTS = (0.05, 0.05, 0.09, 0.14, 0.25, 0.38, 0.54, 0.7, 0.9, 0.98)


def best_weight(shift: float) -> float:
    """The λ of the EWMA chart that sees a shift soonest, at an ARL0 of 370 with known limits.

    Read from a table of minima of `ewma_arls`, which `tests/stats/charts/test_smoothed.py` computes anew; the
    optimum is flat, so that other ARL0 lose little by it.

    Examples
    --------
    >>> best_weight(1.0), best_weight(2.0)
    (0.14, 0.38)
    """
    check_shift(shift)
    return round(float(np.interp(shift, _BEST_SHIFTS, _BEST_WEIGHTS)), 3)


def check_shift(shift: float) -> None:
    """Refuse a shift that no chart is tuned to.

    Raises
    ------
    ConfigError
    """
    if not LEAST_SHIFT <= shift <= LARGEST_SHIFT:
        raise ConfigError(
            f"shift: got {shift:g}; allowed is {LEAST_SHIFT:g} to {LARGEST_SHIFT:g} standard deviations of "
            "one window"
        )

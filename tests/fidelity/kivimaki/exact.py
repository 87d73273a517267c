"""Exact figures without a sample: the best classifier by integration, and the mean error of an estimator.

The plane is cut into squares with sides of 0.05; their sum is off the integral by less than 0.001 points.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import pi, sqrt

import numpy as np
from scipy.special import ndtr

from monitor.base.records import Floats
from tests.fidelity.kivimaki.data import HARD, OTHER_ROWS, Scenario

WINDOW = 500
_SIDE = 0.05
_REACH = 15.0
_BINS = 20


@dataclass(frozen=True)
class Best:
    """The Bayes optimal classifier of one scenario at one degree of shift; all are shares.

    Parameters
    ----------
    accuracy, positives : float
    sampling_error : float
        Calibration error that 25,000 rows show on average, though the scores are the true chances.
    average_confidence_error : float
        Mean absolute error of Average Confidence over windows of 500 rows, from the true chances: no
        estimator that knows no labels has less where confidences are calibrated.
    """

    accuracy: float
    positives: float
    sampling_error: float
    average_confidence_error: float


def plane(scenario: Scenario) -> tuple[Floats, Floats, Floats]:
    """Return weights of the squares under easy and hard modes, each with the sum 1, and chances of label
    1.
    """
    at = np.arange(-_REACH, _REACH, _SIDE) + _SIDE / 2
    points = np.stack(np.meshgrid(at, at, indexing="ij"), axis=-1).reshape(-1, 2)
    easy, hard = (modes.density(points) * _SIDE**2 for modes in (scenario.easy, scenario.hard))
    return easy, hard, scenario.chance(points)


@cache
def best(scenario: Scenario) -> tuple[Best, ...]:
    """Return the best classifiers by degree of shift."""
    easy, hard, chance = plane(scenario)
    return tuple(_best((1 - share) * easy + share * hard, chance) for share in HARD)


def _best(weight: Floats, chance: Floats) -> Best:
    confidence = np.maximum(chance, 1 - chance)
    variance = confidence * (1 - confidence)
    return Best(
        float(weight @ confidence),
        float(weight @ chance),
        _sampling_error(weight, confidence, variance),
        folded_normal(0.0, sqrt(float(weight @ variance) / WINDOW)),
    )


def _sampling_error(weight: Floats, confidence: Floats, variance: Floats) -> float:
    """Return mean over bins of equal mass of √(2/π) standard errors of the share right in it."""
    order = np.argsort(confidence)
    mass, total = np.cumsum(weight[order]), np.cumsum((weight * variance)[order])
    edges = np.interp(np.arange(1, _BINS) / _BINS, mass, total)
    within = np.diff(np.concatenate([[0.0], edges, [total[-1]]])) * _BINS
    return float(np.sqrt(2 / pi * np.maximum(within, 0.0) / (OTHER_ROWS / _BINS)).mean())


def folded_normal(mean: float, sd: float) -> float:
    """Return the mean of |N(mean, sd²)|: what the mean absolute error tends to with ever more windows."""
    if sd <= 0:
        return abs(mean)
    z = mean / sd
    return float(sd * sqrt(2 / pi) * np.exp(-z * z / 2) + mean * (2 * ndtr(z) - 1))

"""Data of the covariate-shift experiment: two mixtures of Gaussians, and the chance of a label at a point.

Kivimäki et al., Appendix A and Table 3. The circle of A2 is printed as x² + y² = 5; its hard modes, 5 from
the origin, lie between the two circles of the best decision and the easy ones off them: its radius is 5.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log, sqrt

import numpy as np
from scipy.special import expit

from monitor.base.records import Floats, Ints

SHIFTS = (0, 1, 2, 3)
HARD = (0.2, 0.4, 0.5, 0.6)
"""Share of hard rows by degree of shift: Table 3."""

TRAIN_ROWS = 100_000
OTHER_ROWS = 25_000


@dataclass(frozen=True, eq=False)
class Modes:
    """Gaussians of equal weight: means (k, 2) and covariance matrices (k, 2, 2)."""

    mean: Floats
    covariance: Floats

    def draw(self, rng: np.random.Generator, rows: int) -> Floats:
        """Return points (rows, 2)."""
        mode = rng.integers(len(self.mean), size=rows)
        root = np.linalg.cholesky(self.covariance)[mode]
        points: Floats = self.mean[mode] + np.einsum("nij,nj->ni", root, rng.normal(size=(rows, 2)))
        return points

    def density(self, points: Floats) -> Floats:
        """Return density (n,) at points (n, 2)."""
        total = np.zeros(len(points))
        for mean, covariance in zip(self.mean, self.covariance, strict=True):
            gap = points - mean
            far = np.einsum("ni,ij,nj->n", gap, np.linalg.inv(covariance), gap)
            total += np.exp(-0.5 * far) / (2 * np.pi * sqrt(np.linalg.det(covariance)))
        return total / len(self.mean)


@dataclass(frozen=True, eq=False)
class Scenario:
    """One of the two: where rows lie, and how labels follow from it.

    Parameters
    ----------
    name : str
    easy, hard : Modes
    radius : float or None
        Of the circle on which the label is always 1; None for the line y = x, below which 1 is likelier.
    """

    name: str
    easy: Modes
    hard: Modes
    radius: float | None

    def chance(self, points: Floats) -> Floats:
        """Return chance of label 1 (n,) at points (n, 2): γ = √2 by the line, log √2 by the circle."""
        if self.radius is None:
            probability: Floats = expit(sqrt(2) * (points[:, 0] - points[:, 1]) / sqrt(2))
            return probability
        return np.exp(-log(sqrt(2)) * (np.hypot(points[:, 0], points[:, 1]) - self.radius) ** 2)

    def draw(self, rng: np.random.Generator, rows: int, shift: int) -> Sample:
        """Return rows with just the shares of Table 3, in random order."""
        many = round(HARD[shift] * rows)
        points = np.concatenate([self.easy.draw(rng, rows - many), self.hard.draw(rng, many)])
        points = points[rng.permutation(rows)]
        chance = self.chance(points)
        return Sample(points, chance, (rng.random(rows) < chance).astype(np.int64))


@dataclass(frozen=True, eq=False)
class Sample:
    """Points (n, 2), their chance of label 1 (n,), and labels (n,)."""

    points: Floats
    chance: Floats
    label: Ints


def _covariances(*matrices: list[list[float]]) -> Floats:
    return np.array(matrices, dtype=np.float64)


_ROUND: list[list[float]] = [[1, 0], [0, 1]]
_FALLING: list[list[float]] = [[2, -1], [-1, 2]]
_RISING: list[list[float]] = [[2, 1], [1, 2]]
_TALL: list[list[float]] = [[1, 0], [0, 2]]
_WIDE: list[list[float]] = [[2, 0], [0, 1]]

LINEAR = Scenario(
    "linear",
    Modes(np.array([[4.0, 0.0], [0.0, -4.0], [-4.0, 0.0], [0.0, 4.0]]), _covariances(*[_ROUND] * 4)),
    Modes(np.array([[1.0, -1.0], [-1.0, 1.0]]), _covariances(*[_ROUND] * 2)),
    None,
)
_CIRCLE_EASY = Modes(
    np.array([[0.0, 0.0], [6.0, 6.0], [-6.0, -6.0], [-6.0, 6.0], [6.0, -6.0]]),
    _covariances(_ROUND, _FALLING, _FALLING, _RISING, _RISING),
)
_CIRCLE_HARD = Modes(
    np.array([[5.0, 0.0], [-5.0, 0.0], [0.0, 5.0], [0.0, -5.0]]), _covariances(_TALL, _TALL, _WIDE, _WIDE)
)
CIRCLE = Scenario("circle", _CIRCLE_EASY, _CIRCLE_HARD, 5.0)
CIRCLE_AS_PRINTED = Scenario("circle", _CIRCLE_EASY, _CIRCLE_HARD, sqrt(5))
SCENARIOS = (LINEAR, CIRCLE)

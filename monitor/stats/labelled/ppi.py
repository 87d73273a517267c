"""Prediction-powered means: an annotator's predictions on many rows, corrected by labels on few rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy
from numpy.typing import ArrayLike

from monitor.base.records import Floats
from monitor.stats.estimate.poisson_binomial import checked_level

Tuning = Literal["each", "together"]


@dataclass(frozen=True, slots=True, eq=False)
class PredictionPowered:
    """Prediction-powered means of a function φ of prediction and label, for M models.

    Parameters
    ----------
    value : (M,) float64
        The estimated means μ̂, in the unit of φ; they may lie outside the range of φ.
    covariance : (M, M) float64
        Covariance of `value`, the paper's V/n.
    classical : (M,) float64
        Variance of the mean over labelled rows alone, for comparison.
    lam : (M,) float64
        Weight of the annotator: with 0 the annotator is ignored, and 1 is plain PPI.
    n, unlabelled : int
        Numbers of labelled and unlabelled rows.
    """

    value: Floats
    covariance: Floats
    classical: Floats
    lam: Floats
    n: int
    unlabelled: int

    @property
    def error(self) -> Floats:
        """The standard error of each of the M means, (M,)."""
        return np.asarray(np.sqrt(np.diagonal(self.covariance)))

    @property
    def effective_labels(self) -> Floats:
        """The numbers of labels for which the mean of labels alone would have the same variance, (M,).

        If the variance is 0, the number is infinite, or the number of labels if the mean of labels has the
        variance 0 too.
        """
        variance = np.diagonal(self.covariance)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(variance > 0, self.classical / variance, np.inf)
        return np.asarray(np.where(self.classical == variance, 1.0, ratio) * self.n)

    def interval(self, level: float = 0.95) -> Floats:
        """Return the (M, 2) ends of a normal interval for each mean.

        The level, above 0 and below 1, is valid for each interval separately. In the paper's equation (5),
        the square root of V/n is missing. With few labels, or if φ is the same on all labelled rows, the
        interval is too narrow.
        """
        half = scipy.special.ndtri(0.5 + checked_level(level) / 2) * self.error
        return np.stack([self.value - half, self.value + half], axis=1)


def prediction_powered(
    phi: ArrayLike,
    expected: ArrayLike,
    expected_unlabelled: ArrayLike,
    *,
    lam: float | None = None,
    tune: Tuning = "each",
    weights: ArrayLike | None = None,
) -> PredictionPowered:
    """Estimate the mean of a function φ of prediction and label by PPI++, PPI or the classical mean.

    By default, PPI++ tunes λ; PPI has `lam=1`, and the classical mean `lam=0`. The estimate is μ̂ = λ/N Σ Êᵤ
    + Σ w(φ − λÊ) / Σw, where Ê is the annotator's expectation of φ, and the first sum is over unlabelled
    rows. The tuned λ, from 0 to 1, gives the least variance. With any fixed λ and any annotator, the mean is
    unbiased.

    The labelled rows must be a random sample of the population of the unlabelled rows. Otherwise pass
    `weights` w = dP/dQ, the density of the rows of interest over the density of the labelled rows, up to a
    factor. The weight multiplies φ and λÊ; in the paper's (7) and (8) it multiplies only φ, which gives a
    biased estimate.

    Parameters
    ----------
    phi : (n,) or (n, M) array of float
        φ on the labelled rows, from their labels; n ≥ 1.
    expected : same shape
        The annotator's expectation of φ on the same rows; it must not depend on their labels.
    expected_unlabelled : (N,) or (N, M) array of float
        The expectation on the unlabelled rows; without unlabelled rows, λ is 0.
    lam : float, optional
        λ, from 0 to 1; tuned by default.
    tune : {"each", "together"}
        Tune a λ for each model, or one λ for all models, which minimises the sum of variances.
    weights : (n,) array of float, optional
        Positive.

    Returns
    -------
    PredictionPowered
        As in `ppi-python`, variances have the denominators n and N, not n − 1. With weights they are
        linearised around the weighted mean.

    Raises
    ------
    ValueError
        A shape, a weight or `lam` is not allowed, or there is no labelled row.

    References
    ----------
    Boyeau et al., *AutoEval Done Right*, equations (2) to (5) and (7). Angelopoulos, Duchi, Zrnic, *PPI++:
    Efficient Prediction-Powered Inference*, arXiv 2311.01453, for λ.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> chance = rng.uniform(0.5, 1.0, 5000)
    >>> right = rng.random(5000) < chance
    >>> mean = prediction_powered(right[:100], chance[:100], chance[100:])
    >>> bool(mean.effective_labels[0] > 100), mean.interval(0.95).shape
    (True, (1, 2))
    """
    y, y_hat, y_new = (_columns(values, name) for values, name in _named(phi, expected, expected_unlabelled))
    _checked(y, y_hat, y_new, lam)
    w = _normalised(weights, len(y))
    chosen = _tuned(y, y_hat, y_new, w, tune) if lam is None else np.full(y.shape[1], float(lam))
    if not len(y_new):
        chosen = np.zeros(y.shape[1])
    delta = y - chosen * y_hat
    corrected = (w * delta).mean(axis=0)
    guess = chosen * y_new
    value = corrected + (guess.mean(axis=0) if len(y_new) else 0.0)
    covariance = _covariance(w * (delta - corrected)) / len(y)
    if len(y_new):
        covariance = covariance + _covariance(guess) / len(y_new)
    plain = w * (y - (w * y).mean(axis=0))
    return PredictionPowered(value, covariance, plain.var(axis=0) / len(y), chosen, len(y), len(y_new))


def _named(*values: ArrayLike) -> list[tuple[ArrayLike, str]]:
    return list(zip(values, ("phi", "expected", "expected_unlabelled"), strict=True))


def _columns(values: ArrayLike, name: str) -> Floats:
    table = np.asarray(values, dtype=np.float64)
    if table.ndim not in (1, 2):
        raise ValueError(f"{name} must have the shape (rows,) or (rows, models), got {table.shape}")
    if not np.isfinite(table).all():
        raise ValueError(f"{name} must be finite; leave out rows that a model did not answer")
    return table[:, None] if table.ndim == 1 else table


def _checked(y: Floats, y_hat: Floats, y_new: Floats, lam: float | None) -> None:
    if not len(y):
        raise ValueError("phi must have at least one labelled row, got none")
    if y_hat.shape != y.shape:
        raise ValueError(f"expected must have the shape of phi, {y.shape}, got {y_hat.shape}")
    if y_new.shape[1] != y.shape[1]:
        raise ValueError(f"expected_unlabelled must have {y.shape[1]} models, like phi, got {y_new.shape[1]}")
    if lam is not None and not 0.0 <= lam <= 1.0:
        raise ValueError(f"lam must lie from 0 (labels alone) to 1 (plain PPI), got {lam}")


def _normalised(weights: ArrayLike | None, n: int) -> Floats:
    """Return (n, 1) weights with mean 1."""
    if weights is None:
        return np.ones((n, 1))
    w = np.asarray(weights, dtype=np.float64)
    if w.shape != (n,) or not np.isfinite(w).all() or (w <= 0).any():
        raise ValueError(f"weights must be {n} positive numbers, one for each labelled row")
    normalised: Floats = (w / w.mean())[:, None]
    return normalised


def _tuned(y: Floats, y_hat: Floats, y_new: Floats, w: Floats, tune: Tuning) -> Floats:
    """Return the (M,) λ of least variance, with the variance of Ê over all rows as in `ppi-python`."""
    if tune not in ("each", "together"):
        raise ValueError(f"tune must be 'each' or 'together', got {tune!r}")
    n, fresh = len(y), len(y_new)
    if not fresh:
        return np.zeros(y.shape[1])
    center = (w * (y - y_hat)).mean(axis=0) + y_new.mean(axis=0)
    true, guess = w * (y - center), w * (y_hat - center)
    together = ((true - true.mean(axis=0)) * (guess - guess.mean(axis=0))).mean(axis=0)
    spread = np.concatenate([guess, y_new - center]).var(axis=0, ddof=1) * (1.0 + n / fresh)
    if tune == "together":
        together, spread = np.full_like(together, together.sum()), np.full_like(spread, spread.sum())
    lam = np.divide(together, spread, out=np.zeros_like(together), where=spread > 0)
    clipped: Floats = np.clip(lam, 0.0, 1.0)
    return clipped


def _covariance(rows: Floats) -> Floats:
    centred = rows - rows.mean(axis=0)
    covariance: Floats = centred.T @ centred / len(rows)
    return covariance

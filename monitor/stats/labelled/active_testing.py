"""Active testing: label the rows that tell most, and weigh them so that the estimate stays unbiased."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from monitor.base.records import Floats, Ints
from monitor.base.results import Estimate, Reason, Result, Unknown
from monitor.stats.estimate.proportion import wilson_interval
from monitor.stats.labelled.base import Fitted, LabelEstimator
from monitor.stats.labelled.inputs import Bools, LabelledScores, mean_of_models


def lure_weights(draw_probabilities: ArrayLike, rows: int, numbers: ArrayLike | None = None) -> Floats:
    """Weights of labelled rows, in the order of their draws, that make Σvφ/M unbiased for the pool's mean.

    v_m = 1 + (N − M)/(N − m) · (1/((N − m + 1) q_m) − 1): the levelled unbiased risk estimator (LURE).
    They are all 1 for uniform draws.

    Parameters
    ----------
    draw_probabilities : (M,) array of float
        q_m: the chance, at the draw m, with which that row was taken out of those left. Above 0, up to 1;
        every row of the pool must have had a chance.
    rows : int
        N, rows of the pool before the first draw, at least M.
    numbers : (M,) array of int, optional
        m of each, rising from 1; without gaps where left out. With gaps M is the largest: the weights are
        those that these draws have among all that were made.

    Raises
    ------
    ValueError
        A probability, a number or the number of rows is not allowed.

    References
    ----------
    J. Kossen, S. Farquhar, Y. Gal, T. Rainforth, *Active Testing: Sample-Efficient Model Evaluation*,
    ICML 2021, equation (7); S. Farquhar, Y. Gal, T. Rainforth, ICLR 2021, theorem 3.

    Examples
    --------
    >>> lure_weights([1 / 4, 1 / 3], rows=4).round(6).tolist()
    [1.0, 1.0]
    """
    q = np.asarray(draw_probabilities, dtype=np.float64)
    if q.ndim != 1 or not ((q > 0) & (q <= 1)).all():
        raise ValueError("draw_probabilities must be a list of numbers above 0 and up to 1, one a draw")
    m = np.arange(1, len(q) + 1) if numbers is None else np.asarray(numbers)
    if m.shape != q.shape or (np.diff(m, prepend=0) < 1).any():
        raise ValueError(
            f"numbers must rise from 1 or more, one for each of {len(q)} draws, got {m.tolist()}"
        )
    taken = int(m[-1]) if len(m) else 0
    if rows < taken:
        raise ValueError(f"rows must be at least the number of draws, {taken}, got {rows}")
    if rows == taken:
        return np.ones(len(q))
    found: Floats = 1.0 + (rows - taken) / (rows - m) * (1.0 / ((rows - m + 1) * q) - 1.0)
    return found


def expected_error(posterior: ArrayLike, predicted: ArrayLike, *, uniform: float = 0.1) -> Floats:
    """Chances of each row to be drawn next: in proportion to the expected error under a surrogate (2021).

    Parameters
    ----------
    posterior : (n, K) array of float
        The surrogate's class probabilities.
    predicted : (n,) array of int
        Class that the model acted on.
    uniform : float
        Share spread evenly over the rows, so that none that the surrogate is sure of is never drawn.

    Returns
    -------
    (n,) float64
        Sums to 1.

    Examples
    --------
    >>> expected_error([[0.9, 0.1], [0.6, 0.4]], [0, 0], uniform=0.0).round(3).tolist()
    [0.2, 0.8]
    """
    chance = np.asarray(posterior, dtype=np.float64)
    wrong = 1.0 - chance[np.arange(len(chance)), np.asarray(predicted)]
    return _mixed(wrong, uniform)


def _mixed(score: Floats, uniform: float) -> Floats:
    if not 0.0 <= uniform <= 1.0:
        raise ValueError(f"uniform must be a share from 0 to 1, got {uniform}")
    total = score.sum()
    own = score / total if total > 0 else np.full(len(score), 1.0 / len(score))
    mixed: Floats = (1.0 - uniform) * own + uniform / len(score)
    return mixed


class ActiveTesting(LabelEstimator):
    """Accuracy from labels drawn one after another, each with its own probability (LURE).

    It needs `acquisition`, the number of each draw, and `weights`, 1 over the chance with which the row
    was taken out of those left then. Unbiased where those chances are right and none was 0. The weighted mean
    is that of the errors, as in the paper, and the accuracy what is left: rows that are drawn where errors
    are expected scatter far less so than as a mean over the right ones, whose weights would vary for nothing.
    A subgroup's accuracy is the ratio of its weighted sums. So is that of all rows where draws are missing
    below the last one: rows whose label never comes are a subgroup that nothing is known of, and the ratio is
    the accuracy of the others, as long as whether a label comes does not hang on the answer being right.
    The interval is Wilson's at the number of labels that the scatter of vφ amounts to; it misleads where few
    draws carry most of the weight.

    Parameters
    ----------
    seed, positive
        As in `LabelEstimator`; nothing here is random.
    pool : int, optional
        N, rows before the first draw; those fitted on where left out. With it, the rows drawn may be fitted
        on alone.

    References
    ----------
    Kossen et al., 2021; see `lure_weights`.

    Examples
    --------
    >>> scores = np.tile([[[0.1, 0.9]], [[0.6, 0.4]]], (50, 1, 1))
    >>> drawn = np.where(np.arange(100) < 20, np.arange(100), -1)
    >>> left = 1.0 / np.maximum(100.0 - drawn, 1.0)  # uniform draws
    >>> fit = ActiveTesting().fit(scores, np.where(drawn < 0, -1, 1), weights=1 / left, acquisition=drawn)
    >>> round(fit.estimate("accuracy").value, 6)
    0.5
    """

    tag = "active_testing"
    metrics = frozenset({"accuracy"})
    needs = frozenset({"weights", "acquisition"})

    def __init__(self, *, seed: int = 0, positive: int | None = None, pool: int | None = None) -> None:
        super().__init__(seed=seed, positive=positive)
        if pool is not None and pool < 1:
            raise ValueError(f"pool must be a number of rows, at least 1, got {pool}")
        self.pool = pool
        self._forget()

    def _forget(self) -> None:
        self._weight: Floats = np.empty(0)
        self._missing = False  # draws below the last one

    def _fit(self, data: LabelledScores) -> Fitted:
        known = np.flatnonzero(data.labelled)
        if not len(known):
            return Fitted(data.mean_of_models(), refused=Reason.NO_LABELS)
        if data.acquisition is None or data.weights is None:
            return Fitted(data.clamp(data.mean_of_models()), refused=Reason.NO_DRAWS)
        drawn: Ints = known[np.argsort(data.acquisition[known], kind="stable")]
        numbers = data.acquisition[drawn] + int(data.acquisition[drawn[0]] == 0)  # from 0, or from 1
        self._missing = bool(numbers[-1] > len(numbers))
        chances = 1.0 / np.maximum(data.weights[drawn], 1.0)
        self._weight = np.zeros(data.rows)
        self._weight[drawn] = lure_weights(chances, self.pool or data.rows, numbers)
        return Fitted(data.clamp(data.mean_of_models()))

    @property
    def effective_labels(self) -> float:
        """Labels drawn uniformly that would weigh as much: (Σv)² / Σv² (L. Kish)."""
        square = float(self._weight @ self._weight)
        return float(self._weight.sum()) ** 2 / square if square > 0 else 0.0

    def _predict(self, scores: Floats) -> Floats:
        return mean_of_models(scores)

    def _estimate(self, metric: str, model: int, where: Bools, level: float) -> Result:
        data, _ = self._done()
        mask = self._rows(model, where)
        rows = np.flatnonzero(mask & data.labelled)
        if not len(rows):
            return Unknown(Reason.NO_LABELS)
        wrong = (data.predicted[rows, model] != data.labels[rows]).astype(np.float64)
        weight = self._weight[rows]
        if self._missing or not mask.all():
            weight = weight * len(rows) / weight.sum()
        value = float(np.clip(1.0 - (weight * wrong).mean(), 0.0, 1.0))
        lower, upper = wilson_interval(value, _effective(weight, wrong), level)
        return Estimate(value, lower, upper, level, len(rows))


def _effective(weight: Floats, wrong: Floats) -> float:
    """Labels of equal weight whose mean varies as that of vφ does, one right and one wrong more."""
    middle = weight.mean()
    scattered = np.r_[weight * wrong, middle, 0.0]
    share = np.clip(scattered.mean(), 1e-9, 1.0 - 1.0 / (len(wrong) + 2))
    return float(share * (1.0 - share) / scattered.var() * len(wrong))

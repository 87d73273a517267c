"""Active testing: label the most informative rows, and weight them so that the estimate stays unbiased."""

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

    v_m = 1 + (N − M)/(N − m) · (1/((N − m + 1) q_m) − 1): the levelled unbiased risk estimator (LURE). They
    are all 1 for uniform draws. Raises a ValueError for an argument out of range.

    Parameters
    ----------
    draw_probabilities : (M,) array of float
        q_m: the probability, at draw m, of this row among those left. Above 0, up to 1; every row of the pool
        must have had a probability above 0.
    rows : int
        N, rows of the pool before the first draw, at least M.
    numbers : (M,) array of int, optional
        m of each, rising from 1; by default without gaps. With gaps M is the largest: the weights are those
        of these draws among all.

    References
    ----------
    J. Kossen, S. Farquhar, Y. Gal, T. Rainforth, *Active Testing: Sample-Efficient Model Evaluation*, ICML
    2021, equation (7); S. Farquhar, Y. Gal, T. Rainforth, ICLR 2021, theorem 3.

    Examples
    --------
    >>> lure_weights([1 / 4, 1 / 3], rows=4).round(6).tolist()
    [1.0, 1.0]
    """
    q = np.asarray(draw_probabilities, dtype=np.float64)
    if q.ndim != 1 or not ((q > 0) & (q <= 1)).all():
        raise ValueError("draw_probabilities must be numbers above 0 and up to 1, one for each draw")
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
    """(n,) probabilities of the next draw, proportional to the expected error under a surrogate (2021).

    Parameters
    ----------
    posterior : (n, K) array of float
        The surrogate's class probabilities.
    predicted : (n,) array of int
        The model's class.
    uniform : float
        Share spread evenly over the rows, so that rows certain for the surrogate are drawn too.

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

    It needs `acquisition`, the number of each draw, and `weights`, 1 over the row's probability among those
    left at its draw. It is unbiased if these probabilities are right and above 0. As in the paper, the
    accuracy is 1 minus the weighted mean error: draws go where errors are expected, so the mean error
    scatters far less than a mean over right rows. A subgroup's accuracy is the ratio of its weighted sums.
    The same ratio serves all rows if draws below the last one have no label. It is then the accuracy of the
    labelled part, as long as the arrival of a label does not depend on whether the answer is right. The
    interval is Wilson's at the effective number of labels, from the scatter of vφ; it misleads if few draws
    have most of the weight.

    Parameters
    ----------
    seed, positive
        As in `LabelEstimator`; this estimator is not random.
    pool : int, optional
        N, rows before the first draw; by default those of the fit. With it, a fit on the drawn rows alone is
        possible.

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
        """The number of uniformly drawn labels with the same information: (Σv)² / Σv² (L. Kish)."""
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
    """Labels of equal weight whose mean varies like vφ, with one more right and one more wrong row."""
    middle = weight.mean()
    scattered = np.r_[weight * wrong, middle, 0.0]
    share = np.clip(scattered.mean(), 1e-9, 1.0 - 1.0 / (len(wrong) + 2))
    return float(share * (1.0 - share) / scattered.var() * len(wrong))

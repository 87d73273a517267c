"""Active testing: the most informative rows are labelled, and weights keep the estimate unbiased."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from monitor.base.records import Floats, Ints
from monitor.base.results import Estimate, Reason, Result, Unknown
from monitor.stats.estimate.proportion import wilson_interval
from monitor.stats.labelled.base import Fitted, LabelEstimator
from monitor.stats.labelled.inputs import Bools, LabelledScores, mean_of_models


def lure_weights(draw_probabilities: ArrayLike, rows: int, numbers: ArrayLike | None = None) -> Floats:
    """Return weights v of M labelled rows, with which Σvφ/M estimates the mean of φ over all N rows.

    The estimate is unbiased. The weights are those of the levelled unbiased risk estimator (LURE): v_m = 1 +
    (N − M)/(N − m) · (1/((N − m + 1) q_m) − 1). All weights are 1 for uniform draws.

    Parameters
    ----------
    draw_probabilities : (M,) array of float
        q_m, the probability with which draw m selected its row among the remaining rows: above 0, up to 1.
        Every row must have had a probability above 0.
    rows : int
        N, the number of rows before the first draw, at least M.
    numbers : (M,) array of int, optional
        The number m of each draw, ascending; by default 1 to M. If some numbers are missing, M is the largest
        number, and the result has the weights of the listed draws only.

    Raises
    ------
    ValueError
        An argument is out of range.

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
    last = int(m[-1]) if len(m) else 0
    if rows < last:
        raise ValueError(f"rows must be at least the number of draws, {last}, got {rows}")
    if rows == last:
        return np.ones(len(q))
    weights: Floats = 1.0 + (rows - last) / (rows - m) * (1.0 / ((rows - m + 1) * q) - 1.0)
    return weights


def expected_error(posterior: ArrayLike, predicted: ArrayLike, *, uniform: float = 0.1) -> Floats:
    """Return the (n,) probabilities with which the next draw should select each row; their sum is 1.

    Except for the share `uniform`, they are proportional to the probability that the prediction is wrong.

    Parameters
    ----------
    posterior : (n, K) array of float
        Class probabilities by a surrogate, another model of the labels. They give the probability that the
        prediction is wrong.
    predicted : (n,) array of int
        The model's class.
    uniform : float
        The share of the probability that is divided evenly among the rows. With a share above 0, rows about
        which the surrogate is certain can be drawn too.

    References
    ----------
    Kossen et al., 2021; see `lure_weights`.

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
    """The accuracy from labels of rows that were drawn one after another with known probabilities (LURE).

    The fit needs `acquisition`, the number of each row's draw, and `weights`, the inverse of the probability
    with which the draw selected the row among the remaining rows. If these probabilities are right and above
    0, the estimate is unbiased. As in the paper, the accuracy is 1 minus the weighted mean error. Draws
    prefer rows with expected errors, so the mean error has far less variance than the mean of right answers.

    The accuracy of a subgroup is the ratio of its weighted sums. The same ratio is used for all rows if some
    earlier draws have no label. It then assumes that the arrival of a label does not depend on whether the
    answer is right. The interval is Wilson's interval for the effective number of labels, which follows from
    the variance of vφ. The interval misleads if a few draws have most of the weight.

    Parameters
    ----------
    seed, positive
        See `LabelEstimator`; this estimator is not random.
    pool : int, optional
        N, the number of rows before the first draw; by default the number of rows of the fit. If `pool` is
        set, the fit may receive only the drawn rows.

    References
    ----------
    Kossen et al., 2021; see `lure_weights`.

    Examples
    --------
    >>> scores = np.tile([[[0.1, 0.9]], [[0.6, 0.4]]], (50, 1, 1))
    >>> draw = np.where(np.arange(100) < 20, np.arange(100), -1)
    >>> chance = 1.0 / np.maximum(100.0 - draw, 1.0)  # uniform draws
    >>> fit = ActiveTesting().fit(scores, np.where(draw < 0, -1, 1), weights=1 / chance, acquisition=draw)
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
        self._missing = False  # whether draws before the last one have no label

    def _fit(self, data: LabelledScores) -> Fitted:
        known = np.flatnonzero(data.labelled)
        if not len(known):
            return Fitted(data.mean_of_models(), refused=Reason.NO_LABELS)
        if data.acquisition is None or data.weights is None:
            return Fitted(data.clamp(data.mean_of_models()), refused=Reason.NO_DRAWS)
        in_order: Ints = known[np.argsort(data.acquisition[known], kind="stable")]
        numbers = data.acquisition[in_order] + int(data.acquisition[in_order[0]] == 0)  # from 0, or from 1
        self._missing = bool(numbers[-1] > len(numbers))
        chances = 1.0 / np.maximum(data.weights[in_order], 1.0)
        self._weight = np.zeros(data.rows)
        self._weight[in_order] = lure_weights(chances, self.pool or data.rows, numbers)
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
    """Return the number of equally weighted labels whose mean has the variance of the mean of vφ.

    The variance counts one more right and one more wrong row.
    """
    middle = weight.mean()
    scattered = np.r_[weight * wrong, middle, 0.0]
    share = np.clip(scattered.mean(), 1e-9, 1.0 - 1.0 / (len(wrong) + 2))
    return float(share * (1.0 - share) / scattered.var() * len(wrong))

"""Metrics of a model from class probabilities instead of true classes: expectations in closed form.

Row i has the class probabilities p_i under a posterior, independent of the other rows' given the fit; a
labelled row has p_i = 1 for its class. Counts (a confusion matrix) have exact expectations. For ratios of
random counts, the ratio of expectations differs from the expectation of the ratio by O(1/n); its products
keep the terms of a row with itself:

* AUROC: Σ_{i≠j} p_i (1 − p_j) [s_i > s_j] + ½ [s_i = s_j], over Σ_{i≠j} p_i (1 − p_j);
* average precision: Σ_i p_i (1 + Σ_{j≠i, s_j ≥ s_i} p_j) / #{j: s_j ≥ s_i}, over Σ_i p_i;
* calibration errors: Σ_b |Σ_{i in b} (s_i − p_i)| / n over bins of equal count. Posteriors have no label
  noise, so only the noise of the labelled rows is subtracted: with all rows labelled this is the corrected
  value of `monitor.stats.estimate.labelled_calibration_error`.

With hard labels the others are scikit-learn's values. Shanmugam et al., appendix E.2, average over 500 draws
of labels instead, which adds noise, and some points of bias to a calibration error at n = 1,000.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from monitor.base.records import Floats, Ints
from monitor.base.results import Reason
from monitor.stats.estimate.calibration_error import CLASS_ECE_BINS, ECE_BINS
from monitor.stats.estimate.equal_count import EqualCountBins, equal_count_bins, label_noise_bias
from monitor.stats.labelled.inputs import UNLABELLED, LabelledScores

METRICS = (
    "accuracy",
    "ece",
    "class_ece",
    "auroc",
    "average_precision",
    "precision",
    "recall",
    "f1",
    "specificity",
)
"""The metrics of `estimate`; an estimator may define fewer."""

_RANKED = ("auroc", "average_precision")
_COUNTED = ("accuracy", "precision", "recall", "f1", "specificity")

_TINY = 1e-9
"""A class with fewer expected rows counts as absent."""


def undefined(metric: str, rows: int) -> Reason:
    """The reason why a metric of at least one row is NaN.

    Examples
    --------
    >>> undefined("ece", 12).value, undefined("auroc", 500).value, undefined("precision", 500).value
    ('too few rows', 'one class only', 'class never predicted')
    """
    if metric in ("ece", "class_ece"):
        return Reason.TOO_FEW_ROWS
    return Reason.NONE_PREDICTED if metric == "precision" else Reason.ONE_CLASS


@dataclass(frozen=True, slots=True, eq=False)
class _Ranking:
    """The (n,) `order` of rows by rising score, and the `starts` of the groups of ties: the same for every
    draw.
    """

    order: Ints
    starts: Ints

    @classmethod
    def of(cls, score: Floats) -> _Ranking:
        order = np.argsort(score, kind="stable")
        ordered = score[order]
        return cls(order, np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]]))

    def values(self, chance: Floats, weights: Floats | None) -> Floats:
        """(2, draws) AUROC and average precision, from (draws, n) probabilities of being positive."""
        share = chance[:, self.order]
        weight = np.ones((1, share.shape[1])) if weights is None else weights[:, self.order]
        positive = weight * share
        self_products = weight * (positive - positive * share)
        positive, everyone = self._groups(positive), self._groups(weight)
        negative = everyone - positive
        positives, negatives = positive.sum(axis=1), negative.sum(axis=1)
        below = np.cumsum(negative, axis=1) - 0.5 * negative
        with np.errstate(invalid="ignore", divide="ignore"):
            pairs = np.einsum("dg,dg->d", positive, below) - 0.5 * self_products.sum(axis=1)
            auroc = pairs / (positives * negatives - self_products.sum(axis=1))
            reached = _from_the_top(positive)
            precise = (positive * reached + self._groups(self_products)) / _from_the_top(everyone)
            precision = precise.sum(axis=1) / positives
        one_class = (positives <= _TINY) | (negatives <= _TINY)
        return np.where(one_class, np.nan, np.clip(np.stack([auroc, precision]), 0.0, 1.0))

    def _groups(self, values: Floats) -> Floats:
        """Sums (draws, groups) over tied rows."""
        if len(self.starts) == values.shape[1]:
            return values
        sums: Floats = np.add.reduceat(values, self.starts, axis=1)
        return sums


def _from_the_top(values: Floats) -> Floats:
    """Sums of each column and all columns after it."""
    summed: Floats = np.cumsum(values[:, ::-1], axis=1)[:, ::-1]
    return summed


@dataclass(frozen=True, slots=True, eq=False)
class _CalibrationGap:
    """Rows in the order of a score, its bins, and the variance of their gaps by label noise: the same for
    every draw.
    """

    order: Ints
    score: Floats
    answer: Ints
    bins: EqualCountBins
    noise: Floats

    @classmethod
    def of(cls, score: Floats, answer: Ints, labels: Ints, bins: int) -> _CalibrationGap | None:
        """The bins; None if there are fewer rows than bins."""
        if len(score) < bins:
            return None
        known = labels != UNLABELLED
        gap = np.where(known, score - (labels == answer), 0.0)
        cut, order = equal_count_bins(score, gap, bins)
        noise = _label_noise(cut, gap[order], score[order], known[order])
        return cls(order, score[order], answer[order], cut, noise)

    def values(self, posterior: Floats, weights: Floats | None) -> Floats:
        """(draws,) calibration error of posteriors (draws, n, K)."""
        chance = _of_class(posterior[:, self.order], self.answer)
        gap = self.score - chance
        rows: Floats | float = float(len(self.score))
        if weights is not None:
            weight = weights[:, self.order]
            gap *= weight
            rows = weight.sum(axis=1)[:, None]
        share = self.bins.rows / len(self.score)
        summed = self.bins.sums(np.add.reduceat(gap, self.bins.starts, axis=1)) / rows
        error = np.abs(summed).sum(axis=1)
        if self.noise.any():
            # A resampled gap has the noise twice: from the labels and from the resampling.
            error -= label_noise_bias(summed / share, self.noise * (1 if weights is None else 2), share)
        clipped: Floats = np.clip(error, 0.0, 1.0)
        return clipped


def _label_noise(bins: EqualCountBins, gap: Floats, score: Floats, known: np.ndarray) -> Floats:
    """(bins,) variance of each mean gap by label noise; arrays in the bins' order, gap 0 if unknown.

    As in `labelled_calibration_error`: the shape Σ s(1 − s)/n_b² over the labelled rows of a bin, scaled over
    all bins to the labels' scatter within bins of at least two.
    """
    labelled = bins.of(known.astype(np.float64))
    shape = bins.of(np.where(known, score * (1.0 - score), 0.0)) / bins.rows**2
    enough = labelled >= 2.0
    if not enough.any():
        return shape
    count = np.maximum(labelled, 2.0)
    scatter = np.maximum(bins.of(gap * gap) - bins.of(gap) ** 2 / count, 0.0) * count / (count - 1.0)
    total = float(shape[enough].sum())
    seen = float((scatter[enough] / bins.rows[enough] ** 2).sum())
    return shape * (seen / total) if total > 0 else shape


def _of_class(posterior: Floats, answer: Ints) -> Floats:
    """(draws, n) probability of each row's class in `answer` (n,)."""
    chosen: Floats = np.take_along_axis(posterior, answer[None, :, None], axis=2)[:, :, 0]
    return chosen


@dataclass(frozen=True, slots=True, eq=False)
class ModelRows:
    """The (r,) `rows` of one model in a subgroup, prepared for fast metrics of many posteriors."""

    rows: Ints
    predicted: Ints
    classes: tuple[int, ...]
    rankings: tuple[_Ranking, ...]
    confidence: _CalibrationGap | None
    top: _CalibrationGap | None

    @classmethod
    def of(cls, data: LabelledScores, model: int, rows: Ints, positive: int) -> ModelRows:
        """Prepare the (r,) rows that a model has answered; of two classes, metrics are for `positive`."""
        scores, predicted, labels = data.scores[rows, model], data.predicted[rows, model], data.labels[rows]
        two = data.classes == 2
        claimed = np.full(len(rows), positive) if two else np.argmax(scores, axis=1)
        classes = (positive,) if two else tuple(range(data.classes))
        at = np.arange(len(rows))
        return cls(
            rows,
            predicted,
            classes,
            tuple(_Ranking.of(scores[:, k]) for k in classes),
            _CalibrationGap.of(scores[at, predicted], predicted, labels, ECE_BINS),
            _CalibrationGap.of(scores[at, claimed], claimed, labels, CLASS_ECE_BINS),
        )

    def values(
        self, posterior: Floats, weights: Floats | None = None, metrics: Sequence[str] = METRICS
    ) -> Floats:
        """(len(metrics), draws) these metrics of all draws; NaN if undefined.

        With more than two classes AUROC, average precision, precision, recall, F1 and specificity are means
        over the classes that define them.

        Parameters
        ----------
        posterior : (draws, n, K) float64
            Of all rows of the fit.
        weights : (draws, n) float64, optional
            Weights of the rows, by default 1.
        metrics : sequence of str
            By default all of them. One alone is several times faster.
        """
        if not len(self.rows):
            return np.full((len(metrics), len(posterior)), np.nan)
        inside = posterior[:, self.rows]
        weight = None if weights is None else weights[:, self.rows]
        found: dict[str, Floats] = {}
        for metric in metrics:
            if metric not in found:
                found |= self._with_its_like(metric, inside, weight)
        return np.stack([found[metric] for metric in metrics])

    def _with_its_like(self, metric: str, inside: Floats, weight: Floats | None) -> dict[str, Floats]:
        """(draws,) values of a metric, and of those that come from the same sums."""
        if metric in ("ece", "class_ece"):
            gap = self.confidence if metric == "ece" else self.top
            return {metric: np.full(len(inside), np.nan) if gap is None else gap.values(inside, weight)}
        if metric in _RANKED:
            each = zip(self.rankings, self.classes, strict=True)
            ranked = np.stack([ranking.values(inside[:, :, k], weight) for ranking, k in each])
            return dict(zip(_RANKED, _mean_of_defined(ranked), strict=True))
        return dict(zip(_COUNTED, counted_metrics(self.confusion(inside, weight), self.classes), strict=True))

    def confusion(self, inside: Floats, weight: Floats | None = None) -> Floats:
        """(draws, K, K) expected confusion matrices in shares of all rows, true class by predicted class.

        Parameters
        ----------
        inside : (draws, r, K) float64
            Posterior of these rows.
        weight : (draws, r) float64, optional
        """
        acted = np.eye(inside.shape[2])[self.predicted]
        mass = inside if weight is None else inside * weight[:, :, None]
        counts = np.swapaxes(mass, 1, 2) @ acted
        shares: Floats = counts / counts.sum(axis=(1, 2), keepdims=True)
        return shares


def counted_metrics(confusion: Floats, classes: tuple[int, ...]) -> Floats:
    """(5, draws) accuracy, precision, recall, F1 and specificity of confusion matrices (in any unit).

    All but the accuracy are averaged over `classes`. NaN if, in all of them, no row is predicted (precision),
    no row is of the class (recall, F1) or every row is (specificity).

    Examples
    --------
    >>> counted_metrics(np.array([[[50.0, 10.0], [5.0, 35.0]]]), (1,)).round(3).ravel().tolist()
    [0.85, 0.778, 0.875, 0.824, 0.833]
    """
    total = confusion.sum(axis=(1, 2))
    right = np.diagonal(confusion, axis1=1, axis2=2)[:, list(classes)]
    true, acted = confusion.sum(axis=2)[:, list(classes)], confusion.sum(axis=1)[:, list(classes)]
    small = _TINY * total[:, None]
    with np.errstate(invalid="ignore", divide="ignore"):
        precision = np.where(acted > small, right / acted, np.nan)
        recall = np.where(true > small, right / true, np.nan)
        f1 = np.where(true > small, 2 * right / (true + acted), np.nan)
        others = total[:, None] - true
        specificity = np.where(others > small, 1.0 - (acted - right) / others, np.nan)
    accuracy = np.trace(confusion, axis1=1, axis2=2) / total
    by_class = np.stack([precision, recall, f1, specificity])
    return np.concatenate([accuracy[None], _mean_of_defined(np.moveaxis(by_class, 2, 0))])


def _mean_of_defined(values: Floats) -> Floats:
    """Mean over the first axis without NaN; NaN if all are NaN."""
    known = ~np.isnan(values)
    count = known.sum(axis=0)
    summed = np.where(known, values, 0.0).sum(axis=0)
    mean: Floats = np.divide(summed, count, out=np.full(summed.shape, np.nan), where=count > 0)
    return mean

"""Expected metrics of a model, in closed form, from class probabilities instead of true classes.

Row i has the class probabilities p_i, which are its posterior. Given the fit, the rows are independent. A
labelled row has p_i = 1 for its class. The expectations of counts (a confusion matrix) are exact. The
expectation of a ratio of counts is replaced by the ratio of expectations. The difference is O(1/n). In sums
over pairs of rows, a row paired with itself is treated exactly:

* AUROC: Σ_{i≠j} p_i (1 − p_j) [s_i > s_j] + ½ [s_i = s_j], over Σ_{i≠j} p_i (1 − p_j);
* average precision: Σ_i p_i (1 + Σ_{j≠i, s_j ≥ s_i} p_j) / #{j: s_j ≥ s_i}, over Σ_i p_i;
* calibration errors: Σ_b |Σ_{i in b} (s_i − p_i)| / n over bins of equal count. Probabilities have no label
  noise, so only the bias from noise of the labelled rows is subtracted. If all rows are labelled, the result
  is the corrected value of `monitor.stats.estimate.labelled_calibration_error`.

If all rows are labelled, the other metrics have scikit-learn's values. Shanmugam et al., appendix E.2,
average over 500 draws of labels instead. This adds noise, and a bias of some percentage points to a
calibration error at n = 1,000.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import scipy

from monitor.base.records import Floats, Ints
from monitor.base.results import Reason
from monitor.stats.estimate.calibration_error import CLASS_ECE_BINS, ECE_BINS
from monitor.stats.estimate.equal_count import EqualCountBins, equal_count_bins, label_noise_bias
from monitor.stats.labelled.inputs import UNLABELLED, Bools, LabelledScores

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
"""The metrics of `LabelEstimator.estimate`; an estimator may support fewer."""

_RANKED = ("auroc", "average_precision")
_COUNTED = ("accuracy", "precision", "recall", "f1", "specificity")

_RANKED_BYTES = 1 << 17
"""Size of an array of ranked draws: the few arrays in use together fit into the cache of one core."""

_TINY = 1e-9
"""Expected number of rows below which a class counts as absent."""


def undefined(metric: str, rows: int) -> Reason:
    """Return the reason why a metric is NaN on `rows` rows. `rows` is at least 1.

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
    """The ranking of a model's rows by score, which all draws share."""

    order: Ints  # (r,) the rows by descending score
    starts: Ints  # the starts of the groups of ties

    @classmethod
    def from_scores(cls, score: Floats, rows: Ints) -> _Ranking:
        """Return the ranking of `rows` by their scores, (r,) each."""
        order = np.argsort(-score, kind="stable")
        ordered = score[order]
        return cls(rows[order], np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]]))

    def values(self, positive: Floats, everyone: Floats) -> Floats:
        """Return the (2, draws) AUROC and average precision.

        Parameters
        ----------
        positive : (draws, n) float64
            Weight of each row times its probability of being positive.
        everyone : (draws, n) or (1, n) float64
            Weight of each row.
        """
        together = max(1, _RANKED_BYTES // (8 * len(self.order)))
        blocks = (slice(first, first + together) for first in range(0, len(positive), together))
        shared = len(everyone) == 1
        parts = [self._block_values(positive[at], everyone if shared else everyone[at]) for at in blocks]
        return np.concatenate(parts, axis=1)

    def _block_values(self, positive: Floats, everyone: Floats) -> Floats:
        # The terms of a pair of positive rows cancel, because each is once the higher one. So it suffices to
        # sum the weights in order: the AUROC is ½ + Σ aᵢ (weight below i − weight above i) / 2.
        mass, weight = (values.take(self.order, axis=1) for values in (positive, everyone))
        own = mass * (weight - mass)
        if len(self.starts) < len(self.order):
            mass, weight, own = (
                np.add.reduceat(values, self.starts, axis=1) for values in (mass, weight, own)
            )
        above, total = np.cumsum(weight, axis=1), weight.sum(axis=1)
        reached, positives = np.cumsum(mass, axis=1), mass.sum(axis=1)
        negatives = total - positives
        pairs = positives * negatives - own.sum(axis=1)
        reached *= mass
        reached += own
        reached /= above
        weight *= 0.5
        weight += 0.5 * total[:, None] - above
        with np.errstate(invalid="ignore", divide="ignore"):
            auroc = 0.5 + np.einsum("dg,dg->d", mass, np.broadcast_to(weight, mass.shape)) / pairs
            precision = reached.sum(axis=1) / positives
        one_class = (positives <= _TINY) | (negatives <= _TINY)
        return np.where(one_class, np.nan, np.clip(np.stack([auroc, precision]), 0.0, 1.0))


@dataclass(frozen=True, slots=True, eq=False)
class _Entries:
    """Entries of a sparse matrix whose columns are all rows' masses of each class, then their weights."""

    row: Ints
    column: Ints
    value: Floats


@dataclass(frozen=True, slots=True, eq=False)
class _CalibrationGap:
    """The bins of a score, and the variance of their gaps from label noise, which all draws share."""

    bins: EqualCountBins
    noise: Floats

    @classmethod
    def from_rows(
        cls, data: LabelledScores, rows: Ints, score: Floats, answer: Ints, bins: int, first: int
    ) -> tuple[Self, _Entries]:
        """Return the bins of (r,) rows by the score of their `answer`, and the matrix entries of their gaps.

        The gaps are the lines of the matrix from `first` on.
        """
        known = data.labels[rows] != UNLABELLED
        gap = np.where(known, score - (data.labels[rows] == answer), 0.0)
        cut, order = equal_count_bins(score, gap, bins)
        noise = _label_noise(cut, gap[order], score[order], known[order])
        run = first + np.repeat(np.arange(len(cut.starts)), np.diff(cut.starts, append=len(score)))
        place = rows[order]
        entries = _Entries(
            np.concatenate([run, run]),
            np.concatenate([answer[order] * data.rows + place, data.classes * data.rows + place]),
            np.concatenate([np.full(len(run), -1.0), score[order]]),
        )
        return cls(cut, noise), entries

    def values(self, gaps: Floats, total: Floats, resampled: bool) -> Floats:
        """Return the (draws,) calibration errors for (draws, runs) gaps and (draws,) sums of weights."""
        share = self.bins.rows / self.bins.rows.sum()
        summed = self.bins.sums(gaps) / total[:, None]
        error = np.abs(summed).sum(axis=1)
        if self.noise.any():
            # A resampled gap contains the noise twice: from the labels and from the resampling.
            error -= label_noise_bias(summed / share, self.noise * (2 if resampled else 1), share)
        clipped: Floats = np.clip(error, 0.0, 1.0)
        return clipped


def _label_noise(bins: EqualCountBins, gap: Floats, score: Floats, known: np.ndarray) -> Floats:
    """Return the (bins,) variance of each mean gap from label noise.

    The arrays are in the order of the bins, with a gap of 0 for unlabelled rows. As in
    `labelled_calibration_error`, the variance is proportional to Σ s(1 − s)/n_b² over the labelled rows of a
    bin, scaled to the variance of the labels within bins of at least two labels.
    """
    labelled = bins.bin_sums(known.astype(np.float64))
    shape = bins.bin_sums(np.where(known, score * (1.0 - score), 0.0)) / bins.rows**2
    enough = labelled >= 2.0
    if not enough.any():
        return shape
    count = np.maximum(labelled, 2.0)
    scatter = (
        np.maximum(bins.bin_sums(gap * gap) - bins.bin_sums(gap) ** 2 / count, 0.0) * count / (count - 1.0)
    )
    total = float(shape[enough].sum())
    seen = float((scatter[enough] / bins.rows[enough] ** 2).sum())
    return shape * (seen / total) if total > 0 else shape


@dataclass(frozen=True, slots=True, eq=False)
class _OneModel:
    """The rankings of one model, and its calibration errors with the matrix lines of their gaps."""

    rankings: tuple[_Ranking, ...]
    gaps: tuple[tuple[str, _CalibrationGap, slice], ...]


@dataclass(frozen=True, slots=True, eq=False)
class ModelRows:
    """The rows of some models in a subgroup, prepared to compute metrics of many posteriors fast.

    A posterior has class probabilities for each row. Confusion matrices and the gaps of calibration bins are
    linear in it, so one product with a sparse matrix gives them for all models and posteriors.

    Parameters
    ----------
    metrics : tuple of str
    classes : tuple of int
        The classes over which metrics are averaged.
    width : int
        The number of classes, K.
    models : tuple
        The rankings and bins of each model.
    inside : (n, M) float64
        1 if the row is in the subgroup and the model has answered it, else 0.
    sums : (lines, (K + 1) · n) sparse array
        The sparse matrix. It is multiplied by the weighted probabilities of all classes, followed by the
        weights. Its first lines give the cells of all confusion matrices.
    """

    metrics: tuple[str, ...]
    classes: tuple[int, ...]
    width: int
    models: tuple[_OneModel, ...]
    inside: Floats
    sums: scipy.sparse.csc_array

    @classmethod
    def from_data(
        cls,
        data: LabelledScores,
        models: Sequence[int],
        where: Bools,
        positive: int,
        metrics: Sequence[str] = METRICS,
    ) -> ModelRows:
        """Return, for each model, the rows in the mask `where` (n,) that the model has answered.

        With two classes, metrics describe the class `positive`. Computing fewer `metrics` takes less time.
        """
        two, width = data.classes == 2, data.classes
        classes = (positive,) if two else tuple(range(width))
        ranked = classes if set(metrics) & set(_RANKED) else ()
        inside = data.present[:, models] & where[:, None]
        entries, prepared = list[_Entries](), []
        lines = len(models) * width**2
        for number, model in enumerate(models):
            rows = np.flatnonzero(inside[:, number])
            scores, predicted = data.scores[rows, model], data.predicted[rows, model]
            if set(metrics) & set(_COUNTED):
                entries.append(_confusion_entries(data, rows, predicted, number * width**2))
            claimed = np.full(len(rows), positive) if two else np.argmax(scores, axis=1)
            gaps = []
            for metric, answer, bins in (
                ("ece", predicted, ECE_BINS),
                ("class_ece", claimed, CLASS_ECE_BINS),
            ):
                if metric in metrics and len(rows) >= bins:
                    score = scores[np.arange(len(rows)), answer]
                    gap, cells = _CalibrationGap.from_rows(data, rows, score, answer, bins, lines)
                    gaps.append((metric, gap, slice(lines, lines + len(gap.bins.starts))))
                    lines += len(gap.bins.starts)
                    entries.append(cells)
            rankings = (_Ranking.from_scores(scores[:, k], rows) for k in ranked if len(rows))
            prepared.append(_OneModel(tuple(rankings), tuple(gaps)))
        sums = _matrix(entries, (lines, (width + 1) * data.rows))
        return cls(tuple(metrics), classes, width, tuple(prepared), inside.astype(np.float64), sums)

    def values(self, posterior: Floats, weights: Floats | None = None) -> Floats:
        """Return the (M, metrics, draws) metrics for each model and each posterior; NaN if undefined.

        With more than two classes, AUROC, average precision, precision, recall, F1 and specificity are means
        over the classes for which they are defined.

        Parameters
        ----------
        posterior : (draws, n, K) float64
            Class probabilities of all fitted rows.
        weights : (draws, n) float64, optional
            Weights of the rows, by default 1.
        """
        masses, draws = _masses(posterior, weights), len(posterior)
        weight = masses[:1, self.width] if weights is None else masses[:, self.width]
        total = weight @ self.inside
        results = {metric: np.full((len(self.models), draws), np.nan) for metric in METRICS}
        summed = self._summed(masses) if self.sums.nnz else np.zeros((draws, self.sums.shape[0]))
        if set(self.metrics) & set(_COUNTED):
            counted = counted_metrics(
                self._confusion(summed).reshape(-1, self.width, self.width), self.classes
            )
            results |= zip(_COUNTED, counted.reshape(len(counted), -1, draws), strict=True)
        for at, model in enumerate(self.models):
            for metric, gap, lines in model.gaps:
                results[metric][at] = gap.values(summed[:, lines], total[:, at], weights is not None)
            if model.rankings:
                each = zip(model.rankings, self.classes, strict=True)
                ranked = np.stack([ranking.values(masses[:, k], weight) for ranking, k in each])
                for metric, values in zip(_RANKED, _mean_of_defined(ranked), strict=True):
                    results[metric][at] = values
        return np.stack([results[metric] for metric in self.metrics], axis=1)

    def confusion(self, posterior: Floats, weights: Floats | None = None) -> Floats:
        """Return the (M, draws, K, K) expected confusion matrices: true class by predicted class.

        The cells are shares of all rows. The parameters are those of `values`. The object's `metrics` must
        include one that is computed from a confusion matrix, such as accuracy.
        """
        return self._confusion(self._summed(_masses(posterior, weights)))

    def _summed(self, masses: Floats) -> Floats:
        """Return the (draws, lines) products with the sparse matrix."""
        summed: Floats = (self.sums @ np.ascontiguousarray(masses.reshape(len(masses), -1).T)).T
        return summed

    def _confusion(self, summed: Floats) -> Floats:
        """Return the (M, draws, K, K) matrices from the products; NaN for a model without rows."""
        cells = summed[:, : len(self.models) * self.width**2]
        counts = cells.reshape(len(summed), len(self.models), self.width, self.width).swapaxes(0, 1)
        total = counts.sum(axis=(2, 3), keepdims=True)
        shares: Floats = np.divide(counts, total, out=np.full(counts.shape, np.nan), where=total > 0.0)
        return shares


def _masses(posterior: Floats, weights: Floats | None) -> Floats:
    """Return (draws, K + 1, n) masses: weight times probability of each class, then the weights."""
    draws, n, classes = posterior.shape
    masses = np.empty((draws, classes + 1, n))
    masses[:, classes] = 1.0 if weights is None else weights
    np.multiply(posterior.swapaxes(1, 2), masses[:, classes:], out=masses[:, :classes])
    return masses


def _matrix(entries: Sequence[_Entries], shape: tuple[int, int]) -> scipy.sparse.csc_array:
    if not entries:
        return scipy.sparse.csc_array(shape)
    row, column, value = (
        np.concatenate([getattr(one, name) for one in entries]) for name in ("row", "column", "value")
    )
    return scipy.sparse.coo_array((value, (row, column)), shape=shape).tocsc()


def _confusion_entries(data: LabelledScores, rows: Ints, predicted: Ints, first: int) -> _Entries:
    """Return the matrix entries of one model's confusion matrix, true class by predicted class."""
    k = np.arange(data.classes)[:, None]
    line = first + k * data.classes + predicted
    return _Entries(line.ravel(), (k * data.rows + rows).ravel(), np.ones(line.size))


def counted_metrics(confusion: Floats, classes: tuple[int, ...]) -> Floats:
    """Return the (5, draws) accuracy, precision, recall, F1 and specificity from confusion matrices.

    The cells may be counts or shares. All metrics but the accuracy are means over those of the `classes` for
    which they are defined. Precision is undefined for a class that is never predicted, recall and F1 for a
    class without rows, and specificity for a class with all rows. A metric that is undefined for every class
    is NaN.

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
    """Return the mean over the first axis without NaN; NaN if all are NaN."""
    known = ~np.isnan(values)
    count = known.sum(axis=0)
    summed = np.where(known, values, 0.0).sum(axis=0)
    mean: Floats = np.divide(summed, count, out=np.full(summed.shape, np.nan), where=count > 0)
    return mean

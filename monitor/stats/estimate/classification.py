"""Precision, recall, specificity, F1, AUROC and average precision of a window, without labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from monitor.base.records import Floats, Ints
from monitor.base.results import Estimate, Reason, Result, Unknown
from monitor.stats.estimate._label_draws import drawn_values
from monitor.stats.estimate._one_class import COUNTED, OneClass, whole_accuracy
from monitor.stats.estimate.confusion import checked_rows
from monitor.stats.estimate.count_ratio import MOSTLY_UNDEFINED, CountRatio
from monitor.stats.estimate.poisson_binomial import checked_level, checked_probabilities
from monitor.stats.estimate.shared_error import by_confidence

CLASSIFICATION_METRICS = (*COUNTED, "auroc", "average_precision")
"""The metrics of `classification_estimates`."""

RANKED = ("auroc", "average_precision")

Average = Literal["macro", "micro", "class"]


@dataclass(frozen=True, slots=True, eq=False)
class ClassificationEstimate:
    """A metric's estimate with the data for pooling over windows and for charts.

    Parameters
    ----------
    result : Estimate or Unknown
    undefined : float
        Probability that labels would leave the metric undefined, 0 to 1; exact for one class, a share of the
        draws for a macro average.
    row_sd : float or None
        The estimate's standard error as rows change, times √n; None if unknown.
    counts : CountRatio or None
        The exact distribution, if there is one.
    draws : (1000,) float64 or None
        Otherwise the values in the draws of labels. Other draws replace the undefined ones, so windows can be
        averaged draw by draw.
    slope : (n,) float64 or None
        First-order derivative of the estimate by each row's confidence; None if unknown, and for the accuracy
        (1/n each).
    weight : float
        The window's weight in pooling: the expected denominator, or the rows.
    """

    result: Result
    undefined: float = 0.0
    row_sd: float | None = None
    counts: CountRatio | None = None
    draws: Floats | None = None
    slope: Floats | None = None
    weight: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class _Window:
    """The checked arguments, with the rows in an order that does not depend on their arrival."""

    scores: Floats
    predicted: Ints
    ranking: Floats
    level: float
    seed: int
    order: Ints

    def by_confidence(self, column: int, slope: Floats) -> Floats:
        """(n,) derivatives by each row's confidence, in the order of arrival, from those by a class's
        probability.
        """
        found = np.empty(len(slope))
        found[self.order] = by_confidence(self.scores, self.predicted, column, slope)
        return found


def classification_estimates(
    scores: ArrayLike,
    predicted: ArrayLike,
    metrics: Sequence[str],
    level: float = 0.95,
    *,
    positive: int | None = None,
    average: Average = "macro",
    ranking: ArrayLike | None = None,
    seed: int = 0,
) -> dict[str, Result]:
    """Estimate metrics of the predictions in one window, without labels, each with an interval.

    The value is CBPE's: the metric of the expected confusion matrix; for AUROC and average precision, the
    ratio of expectations. The interval is for the metric **of these very rows**, if they were labelled:

    * accuracy, precision: central quantiles of a Poisson binomial over a denominator that is known;
    * recall, specificity, F1: central quantiles of the exact distribution of a ratio of two independent
      Poisson binomials (`CountRatio`), given that it is defined;
    * AUROC, average precision, and macro averages of three classes or more: central quantiles over
      1,000 seeded draws of labels; their ends scatter by about a tenth of a standard deviation.

    It misleads if the confidences are wrong: the intervals ignore the error from concept drift or from
    calibration on little data. With a few expected positives the value and the centre of the interval differ,
    because a ratio of expectations is no expected ratio; the interval is then widened to contain the value.

    Parameters
    ----------
    scores : (n, K) array of float
        Calibrated class probabilities; rows should sum to 1. With K = 1, a confidence, only the accuracy is
        known.
    predicted : (n,) array of int
        Predicted classes, 0 to K − 1.
    metrics : sequence of str
        Some of `CLASSIFICATION_METRICS`.
    level : float
        Level of the intervals, above 0 and below 1.
    positive : int, optional
        The metrics' class, against all others. By default the last of two; three or more are averaged.
    average : {"macro", "micro", "class"}
        For three classes or more without `positive`: the mean over the classes that define a metric; the
        metric of all (row, class) pairs at once (precision, recall and F1 then equal the accuracy); or each
        class separately, under ``recall[0]``, ``recall[1]``, ….
    ranking : (n, K) array of float, optional
        The ranking for AUROC and average precision: the model's raw scores, if calibration joins some of
        them. By default the calibrated ones.
    seed : int
        Seed of the draws; give pooled windows different ones.

    Returns
    -------
    dict of str to Estimate or Unknown
        Each from 0 to 1. `Unknown` for no rows, and if labels would leave the metric undefined with a
        probability above 0.5: no positive, or none predicted.

    Raises
    ------
    ValueError
        An argument is out of range; the message names it, what it got and what is allowed.

    References
    ----------
    Kivimäki et al., *Confidence-based Estimators for Predictive Performance in Model Monitoring*,
    section 4.3, for the matrix; the intervals are ours (`CountRatio`).

    Examples
    --------
    >>> scores = np.array([[0.1, 0.9]] * 60 + [[0.8, 0.2]] * 140)
    >>> found = classification_estimates(scores, scores[:, 1] > 0.5, ["precision", "recall"])
    >>> {metric: (round(e.value, 3), round(e.lower, 3), round(e.upper, 3)) for metric, e in found.items()}
    {'precision': (0.9, 0.817, 0.967), 'recall': (0.659, 0.586, 0.74)}
    >>> classification_estimates(scores, np.zeros(200, dtype=int), ["precision"])
    {'precision': Unknown(reason=<Reason.NONE_PREDICTED: 'class never predicted'>)}
    """
    found = classification_details(
        scores, predicted, metrics, level, positive=positive, average=average, ranking=ranking, seed=seed
    )
    return {metric: each.result for metric, each in found.items()}


def classification_details(
    scores: ArrayLike,
    predicted: ArrayLike,
    metrics: Sequence[str],
    level: float = 0.95,
    *,
    positive: int | None = None,
    average: Average = "macro",
    ranking: ArrayLike | None = None,
    seed: int = 0,
) -> dict[str, ClassificationEstimate]:
    """`classification_estimates` with the distributions for pooling and the spread for charts.

    Examples
    --------
    >>> found = classification_details([[0.5, 0.5]] * 3, [1, 1, 0], ["recall"])["recall"]
    >>> found.undefined, round(found.counts.value, 3)
    (0.125, 0.667)
    """
    window = _checked(scores, predicted, ranking, level, seed)
    width = window.scores.shape[1]
    _check_choices(metrics, positive, average, width)
    classes = _classes(positive, width)
    if not len(window.predicted):
        return _nothing(metrics, classes, average)
    if width == 1:
        unknown = ClassificationEstimate(Unknown(Reason.NOT_DEFINED))
        return {m: _accuracy(window) if m == "accuracy" else unknown for m in metrics}
    if len(classes) > 1 and average == "class":
        answers = {k: _of_class(window, metrics, k) for k in classes}
        return {name: answers[k][m] for m in metrics for name, k in _names(m, classes)}
    if len(classes) > 1:
        return _averaged(window, metrics, average)
    return _of_class(window, metrics, classes[0])


def _checked(
    scores: ArrayLike, predicted: ArrayLike, ranking: ArrayLike | None, level: float, seed: int
) -> _Window:
    acted = np.asarray(predicted)
    chances, acted = checked_rows(scores, acted.astype(np.int64) if acted.dtype == np.bool_ else acted)
    by = chances if ranking is None else checked_probabilities(ranking, 2, "ranking")
    if by.shape != chances.shape:
        raise ValueError(f"ranking must have the shape of scores, {chances.shape}, got {by.shape}")
    checked_level(level)
    order = np.lexsort((acted, *by.T, *chances.T))
    return _Window(chances[order], acted[order], by[order], level, seed, order)


def _check_choices(metrics: Sequence[str], positive: int | None, average: str, width: int) -> None:
    for metric in metrics:
        if metric not in CLASSIFICATION_METRICS:
            known = ", ".join(CLASSIFICATION_METRICS)
            raise ValueError(f"metrics must be of {known}, got {metric!r}")
    if average not in ("macro", "micro", "class"):
        raise ValueError(f"average must be macro, micro or class, got {average!r}")
    if positive is not None and not 0 <= positive < width:
        raise ValueError(f"positive must be a class index from 0 to {width - 1}, got {positive}")


def _classes(positive: int | None, width: int) -> tuple[int, ...]:
    if positive is not None:
        return (positive,)
    return (width - 1,) if width <= 2 else tuple(range(width))


def _names(metric: str, classes: Sequence[int]) -> list[tuple[str, int]]:
    if metric == "accuracy":
        return [(metric, classes[0])]
    return [(f"{metric}[{k}]", k) for k in classes]


def _nothing(
    metrics: Sequence[str], classes: Sequence[int], average: str
) -> dict[str, ClassificationEstimate]:
    unknown = ClassificationEstimate(Unknown(Reason.NO_ROWS), undefined=1.0)
    if len(classes) > 1 and average == "class":
        return {name: unknown for metric in metrics for name, _ in _names(metric, classes)}
    return dict.fromkeys(metrics, unknown)


def _accuracy(window: _Window) -> ClassificationEstimate:
    counts, influence = whole_accuracy(window.scores, window.predicted)
    return _counted("accuracy", counts, influence, window)


def _counted(metric: str, counts: CountRatio, influence: Floats, window: _Window) -> ClassificationEstimate:
    undefined = counts.undefined
    if undefined > MOSTLY_UNDEFINED:
        reason = Reason.NONE_PREDICTED if metric == "precision" else Reason.ONE_CLASS
        return ClassificationEstimate(Unknown(reason), undefined, counts=counts)
    result = _estimate(counts.value, counts.interval(window.level), window)
    return ClassificationEstimate(result, undefined, float(influence.std()), counts)


def _estimate(value: float, ends: tuple[float, float], window: _Window) -> Estimate:
    lower, upper = ends
    return Estimate(value, min(lower, value), max(upper, value), window.level, len(window.predicted))


def _drawn(value: float, influence: Floats, values: Floats, window: _Window) -> ClassificationEstimate:
    """An estimate from draws; NaN stands for an undefined metric."""
    known = values[~np.isnan(values)]
    undefined = 1.0 - len(known) / len(values)
    if undefined > MOSTLY_UNDEFINED or np.isnan(value):
        return ClassificationEstimate(Unknown(Reason.ONE_CLASS), undefined)
    tail = (1.0 - window.level) / 2.0
    lower, upper = np.quantile(known, [tail, 1.0 - tail]).tolist()
    result = _estimate(value, (lower, upper), window)
    return ClassificationEstimate(
        result, undefined, float(influence.std()), draws=np.resize(known, values.shape)
    )


def _of_class(window: _Window, metrics: Sequence[str], k: int) -> dict[str, ClassificationEstimate]:
    """The metrics of one class against all others."""
    one = OneClass(window.scores[:, k], window.predicted == k, window.ranking[:, k])
    ranked = [m for m in metrics if m in RANKED]
    draws = drawn_values(window.scores, [one], [k], ranked, window.seed) if ranked else {}
    found = {}
    for metric in metrics:
        if metric == "accuracy":
            found[metric] = _accuracy(window)
        elif metric in RANKED:
            found[metric] = _drawn(*one.expected(metric), draws[metric][0], window)
        else:
            found[metric] = _counted(metric, one.counts(metric), one.expected(metric)[1], window)
        if metric != "accuracy" and isinstance(found[metric].result, Estimate):
            slope = window.by_confidence(k, one.slope(metric))
            found[metric] = replace(found[metric], slope=slope, weight=one.total(metric))
    return found


def _averaged(window: _Window, metrics: Sequence[str], average: str) -> dict[str, ClassificationEstimate]:
    """The average over three classes or more."""
    width = window.scores.shape[1]
    if average == "micro":
        return {metric: _micro(window, metric) for metric in metrics}
    classes = [
        OneClass(window.scores[:, k], window.predicted == k, window.ranking[:, k]) for k in range(width)
    ]
    drawn = drawn_values(
        window.scores, classes, range(width), [m for m in metrics if m != "accuracy"], window.seed
    )
    found = {}
    for metric in metrics:
        if metric == "accuracy":
            found[metric] = _accuracy(window)
            continue
        used = _defined(drawn[metric])
        value, influence = _macro([classes[k].expected(metric) for k in used])
        found[metric] = _drawn(value, influence, _mean_of_defined(drawn[metric]), window)
        if used:
            slopes = [window.by_confidence(k, classes[k].slope(metric)) for k in used]
            slope: Floats = np.mean(slopes, axis=0)
            found[metric] = replace(found[metric], slope=slope, weight=float(len(window.predicted)))
    return found


def _defined(drawn: Floats) -> list[int]:
    """The classes for which most draws define the metric."""
    found: list[int] = np.flatnonzero(np.isnan(drawn).mean(axis=1) <= MOSTLY_UNDEFINED).tolist()
    return found


def _macro(expected: Sequence[tuple[float, Floats]]) -> tuple[float, Floats]:
    """The mean over classes; NaN if there is none."""
    if not expected:
        return float("nan"), np.zeros(0)
    values, influences = zip(*expected, strict=True)
    return float(np.mean(values)), np.mean(influences, axis=0)


def _mean_of_defined(values: Floats) -> Floats:
    """(draws,) means over classes (classes, draws) without NaN; NaN if all are NaN."""
    known = ~np.isnan(values)
    with np.errstate(invalid="ignore"):
        means: Floats = np.where(known, values, 0.0).sum(axis=0) / known.sum(axis=0)
    return means


def _micro(window: _Window, metric: str) -> ClassificationEstimate:
    """The metric of all (row, class) pairs at once."""
    counts, influence = whole_accuracy(window.scores, window.predicted)
    n, width = window.scores.shape
    if metric == "specificity":
        # Each wrong answer is one false positive among n(K − 1) pairs that are negative.
        shifted = counts.shifted(n * (width - 2), n * (width - 1))
        found = _counted(metric, shifted, influence / (width - 1), window)
        return replace(found, slope=np.full(n, 1.0 / (n * (width - 1))), weight=float(n))
    if metric not in RANKED:
        found = _counted(metric, counts, influence, window)
        return replace(found, slope=np.full(n, 1.0 / n), weight=float(n))
    pairs = OneClass(window.scores.ravel(), np.zeros(n * width, dtype=bool), window.ranking.ravel())
    value, each = pairs.expected(metric)
    drawn = drawn_values(window.scores, [pairs], None, [metric], window.seed)[metric][0]
    slopes = pairs.slope(metric).reshape(n, width).T
    slope: Floats = np.sum([window.by_confidence(k, of) for k, of in enumerate(slopes)], axis=0)
    found = _drawn(value, each.reshape(n, width).sum(axis=1) / width, drawn, window)
    return replace(found, slope=slope, weight=float(n)) if isinstance(found.result, Estimate) else found

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
from monitor.stats.estimate.count_ratio import MOSTLY_UNDEFINED, CountRatio, ratio_intervals
from monitor.stats.estimate.label_cumulants import Cumulants, Expansion, label_cumulants
from monitor.stats.estimate.poisson_binomial import checked_level, checked_probabilities
from monitor.stats.estimate.shared_error import by_confidence

CLASSIFICATION_METRICS = (*COUNTED, "auroc", "average_precision")
"""The metrics of `classification_estimates`."""

RANKED = ("auroc", "average_precision")

Average = Literal["macro", "micro", "class"]

_BATCH_ROWS = 1 << 14  # rows at a time: a column of them takes 128 KiB


@dataclass(frozen=True, slots=True, eq=False)
class ClassificationEstimate:
    """The estimate of a classification metric, with data for pooling windows and for charts.

    Parameters
    ----------
    result : Estimate or Unknown
    undefined : float
        The probability that the unknown labels leave the metric undefined, 0 to 1. With `counts` it is exact.
        With `cumulants` it is set to 0, because it is below 1e-6. With `draws` it is a share of the draws.
    row_sd : float or None
        √n times the standard error of the estimate over random windows of n rows; None if unknown.
    counts : CountRatio or None
        The exact distribution of the metric, if there is one.
    cumulants : Cumulants or None
        The approximate distribution, if `counts` is None and the approximation is accurate enough.
    draws : (1000,) float64 or None
        The values of the metric for random labels, if `counts` and `cumulants` are None. Undefined values are
        replaced by values of other draws, so windows can be pooled by averaging draw by draw.
    slope : (n,) float64 or None
        Derivative of the estimate with respect to each row's confidence. None if unknown, and for the
        accuracy, where it is 1/n for every row.
    weight : float
        The window's weight in pooling: the expected denominator, or the number of rows.
    """

    result: Result
    undefined: float = 0.0
    row_sd: float | None = None
    counts: CountRatio | None = None
    cumulants: Cumulants | None = None
    draws: Floats | None = None
    slope: Floats | None = None
    weight: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class _Windows:
    """The checked arguments of m windows of n rows, in an order that does not depend on their arrival."""

    scores: Floats
    predicted: Ints
    ranking: Floats
    level: float
    seeds: Sequence[int]
    order: Ints

    def by_confidence(self, column: int) -> Floats:
        """Return the (m, n) derivative of each row's probability of a class by the row's confidence."""
        return by_confidence(self.scores, self.predicted, column)

    def arrived(self, slope: Floats) -> Floats:
        """Return (m, n) values in the order of arrival."""
        values = np.empty(slope.shape)
        np.put_along_axis(values, self.order, slope, axis=1)
        return values

    def one_class(self, k: int) -> OneClass:
        """Return one class against all others."""
        return OneClass(np.ascontiguousarray(self.scores[..., k]), self.predicted == k, self.ranking[..., k])


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
    """Estimate metrics of one window without labels, each with an interval.

    The value is the one of CBPE (confidence-based performance estimation): the metric of the expected
    confusion matrix, or a ratio of expectations for AUROC and average precision. The interval is for the
    metric that labels would give **for these rows**:

    * accuracy, precision: central quantiles of a Poisson binomial, divided by a known number of rows;
    * recall, specificity, F1: central quantiles of the exact distribution of a ratio of independent Poisson
      binomials (`CountRatio`), given that the ratio is defined;
    * AUROC, average precision, and macro averages of three classes or more: quantiles from the first three
      cumulants (`label_cumulants`). Three cases use central quantiles over 1,000 seeded draws of labels
      instead, with a random error of about a tenth of a standard deviation: the expected denominator of the
      metric for some class is below 15 rows (for AUROC: the expected number of positives or of negatives);
      one label changes the metric by a large part of its standard deviation; or the metric is a micro average
      of AUROC or average precision.

    The estimate misleads if the confidences are wrong: the intervals ignore errors from concept drift or from
    calibration on little data. With few expected positives, the value differs from the centre of the
    interval, because a ratio of expectations is not an expected ratio. In this case, the interval is widened
    to contain the value.

    Parameters
    ----------
    scores : (n, K) array of float
        Calibrated class probabilities; rows should sum to 1. With K = 1, a confidence, only the accuracy can
        be estimated.
    predicted : (n,) array of int
        Predicted classes, 0 to K − 1.
    metrics : sequence of str
        Some of `CLASSIFICATION_METRICS`.
    level : float
        Level of the intervals, above 0 and below 1.
    positive : int, optional
        The class that the metrics describe, against all others. By default it is the second of two classes;
        with three or more classes, metrics are averaged as `average` says.
    average : {"macro", "micro", "class"}
        Used for three classes or more without `positive`. ``"macro"`` is the mean over the classes for which
        the metric is defined. ``"micro"`` is the metric of all (row, class) pairs together; precision, recall
        and F1 then equal the accuracy. ``"class"`` gives each class separately, under ``recall[0]``,
        ``recall[1]``, ….
    ranking : (n, K) array of float, optional
        The scores that rank rows for AUROC and average precision; by default `scores`. Pass raw scores if the
        calibration maps several of them to one value.
    seed : int
        Seed of the draws. Windows that are pooled need different seeds.

    Returns
    -------
    dict of str to Estimate or Unknown
        Each estimate is from 0 to 1. It is `Unknown` if there are no rows, if K = 1 and the metric is not the
        accuracy, or if the metric is undefined with a probability above 0.5. A metric may be undefined
        without positive rows, without negative rows (specificity, AUROC), or without predicted positives
        (precision).

    Raises
    ------
    ValueError
        An argument is out of range; the message names it, its value and the allowed range.

    References
    ----------
    Kivimäki et al., *Confidence-based Estimators for Predictive Performance in Model Monitoring*,
    section 4.3, for the matrix; the intervals are ours (`CountRatio`).

    Examples
    --------
    >>> scores = np.array([[0.1, 0.9]] * 60 + [[0.8, 0.2]] * 140)
    >>> result = classification_estimates(scores, scores[:, 1] > 0.5, ["precision", "recall"])
    >>> {metric: (round(e.value, 3), round(e.lower, 3), round(e.upper, 3)) for metric, e in result.items()}
    {'precision': (0.9, 0.817, 0.967), 'recall': (0.659, 0.586, 0.74)}
    >>> classification_estimates(scores, np.zeros(200, dtype=int), ["precision"])
    {'precision': Unknown(reason=<Reason.NONE_PREDICTED: 'class never predicted'>)}
    """
    details = classification_details(
        scores, predicted, metrics, level, positive=positive, average=average, ranking=ranking, seed=seed
    )
    return {metric: each.result for metric, each in details.items()}


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
    """Return the estimates of `classification_estimates` with data for pooling windows and for charts.

    Examples
    --------
    >>> result = classification_details([[0.5, 0.5]] * 3, [1, 1, 0], ["recall"])["recall"]
    >>> result.undefined, round(result.counts.value, 3)
    (0.125, 0.667)
    """
    rankings = None if ranking is None else [ranking]
    [details] = classification_details_many(
        [scores],
        [predicted],
        metrics,
        level,
        positive=positive,
        average=average,
        rankings=rankings,
        seeds=[seed],
    )
    return details


def classification_details_many(
    scores: Sequence[ArrayLike],
    predicted: Sequence[ArrayLike],
    metrics: Sequence[str],
    level: float = 0.95,
    *,
    positive: int | None = None,
    average: Average = "macro",
    rankings: Sequence[ArrayLike] | None = None,
    seeds: Sequence[int] | None = None,
) -> list[dict[str, ClassificationEstimate]]:
    """Return the result of `classification_details` for each of many windows.

    Windows of equal size are computed together.

    Parameters
    ----------
    scores, predicted, rankings, seeds : sequence
        One entry for each window. The default seed of a window is its index.
    metrics, level, positive, average
        As in `classification_estimates`.

    Examples
    --------
    >>> result = classification_details_many([[[0.5, 0.5]] * 3] * 2, [[1, 1, 0]] * 2, ["recall"])
    >>> [round(each["recall"].result.value, 3) for each in result]
    [0.667, 0.667]
    """
    rankings_or_scores = scores if rankings is None else rankings
    checked = [_checked(*each) for each in zip(scores, predicted, rankings_or_scores, strict=True)]
    checked_level(level)
    named = range(len(checked)) if seeds is None else seeds
    results: list[dict[str, ClassificationEstimate]] = [{} for _ in checked]
    for shape in dict.fromkeys(chances.shape for chances, _, _ in checked):
        _check_choices(metrics, positive, average, shape[1])
        classes = _classes(positive, shape[1])
        alike = [i for i, (chances, _, _) in enumerate(checked) if chances.shape == shape]
        step = max(_BATCH_ROWS // max(shape[0], 1), 1)
        for places in (alike[first : first + step] for first in range(0, len(alike), step)):
            stacked, acted, by = (
                np.stack(column) for column in zip(*(checked[i] for i in places), strict=True)
            )
            windows = _ordered(stacked, acted, by, classes, level, [named[i] for i in places])
            for i, each in zip(places, _of_windows(windows, metrics, classes, average), strict=True):
                results[i] = each
    return results


def _of_windows(
    windows: _Windows, metrics: Sequence[str], classes: Sequence[int], average: str
) -> list[dict[str, ClassificationEstimate]]:
    many, n, width = windows.scores.shape
    if not n:
        return [_nothing(metrics, classes, average) for _ in range(many)]
    if width == 1:
        unknown = ClassificationEstimate(Unknown(Reason.NOT_DEFINED))
        right = _accuracy(windows)
        return [{m: one if m == "accuracy" else unknown for m in metrics} for one in right]
    if len(classes) > 1 and average == "class":
        answers = {k: _of_class(windows, metrics, k) for k in classes}
        return [
            {name: answers[k][i][m] for m in metrics for name, k in _names(m, classes)} for i in range(many)
        ]
    if len(classes) > 1:
        return _averaged(windows, metrics, average)
    return _of_class(windows, metrics, classes[0])


def _checked(scores: ArrayLike, predicted: ArrayLike, ranking: ArrayLike) -> tuple[Floats, Ints, Floats]:
    acted = np.asarray(predicted)
    chances, acted = checked_rows(scores, acted.astype(np.int64) if acted.dtype == np.bool_ else acted)
    by = chances if ranking is scores else checked_probabilities(ranking, 2, "ranking")
    if by.shape != chances.shape:
        raise ValueError(f"ranking must have the shape of scores, {chances.shape}, got {by.shape}")
    return chances, acted, by


def _ordered(
    scores: Floats,
    predicted: Ints,
    ranking: Floats,
    classes: Sequence[int],
    level: float,
    seeds: Sequence[int],
) -> _Windows:
    """Return the windows with rows in an order that depends only on their values."""
    if len(classes) == 1 and scores.shape[1]:
        [k] = classes
        order = np.argsort(-ranking[..., k], axis=1, kind="stable")
        by, chance, acted = (
            np.take_along_axis(each, order, axis=1) for each in (ranking[..., k], scores[..., k], predicted)
        )
        # Few rows are tied with rows that differ from them otherwise.
        tied = (by[:, 1:] == by[:, :-1]) & (
            (chance[:, 1:] != chance[:, :-1]) | (acted[:, 1:] != acted[:, :-1])
        )
        for i in np.flatnonzero(tied.any(axis=1)).tolist():
            order[i] = np.lexsort((predicted[i], scores[i, :, k], -ranking[i, :, k]))
    else:
        order = np.stack(
            [np.lexsort((a, *r.T, *s.T)) for s, a, r in zip(scores, predicted, ranking, strict=True)]
        )
    return _Windows(
        np.take_along_axis(scores, order[..., None], axis=1),
        np.take_along_axis(predicted, order, axis=1),
        np.take_along_axis(ranking, order[..., None], axis=1),
        level,
        seeds,
        order,
    )


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


def _accuracy(windows: _Windows) -> list[ClassificationEstimate]:
    counts, influence = whole_accuracy(windows.scores, windows.predicted)
    return _counted("accuracy", counts, influence.std(axis=1).tolist(), windows)


def _counted(
    metric: str, counts: Sequence[CountRatio], row_sds: Sequence[float], windows: _Windows
) -> list[ClassificationEstimate]:
    """Return estimates with exact distributions."""
    known = [each for each in counts if each.undefined <= MOSTLY_UNDEFINED]
    ends = iter(ratio_intervals(known, windows.level))
    estimates = []
    for each, row_sd in zip(counts, row_sds, strict=True):
        if each.undefined > MOSTLY_UNDEFINED:
            reason = Reason.NONE_PREDICTED if metric == "precision" else Reason.ONE_CLASS
            estimates.append(ClassificationEstimate(Unknown(reason), each.undefined, counts=each))
            continue
        result = _estimate(each.value, next(ends), windows)
        estimates.append(ClassificationEstimate(result, each.undefined, row_sd, each))
    return estimates


def _estimate(value: float, ends: tuple[float, float], windows: _Windows) -> Estimate:
    lower, upper = ends
    return Estimate(value, min(lower, value), max(upper, value), windows.level, windows.predicted.shape[1])


def _from_draws(value: float, row_sd: float, values: Floats, windows: _Windows) -> ClassificationEstimate:
    """Return an estimate from draws; NaN stands for an undefined metric."""
    known = values[~np.isnan(values)]
    undefined = 1.0 - len(known) / len(values)
    if undefined > MOSTLY_UNDEFINED or np.isnan(value):
        return ClassificationEstimate(Unknown(Reason.ONE_CLASS), undefined)
    tail = (1.0 - windows.level) / 2.0
    lower, upper = np.quantile(known, [tail, 1.0 - tail]).tolist()
    result = _estimate(value, (lower, upper), windows)
    return ClassificationEstimate(result, undefined, row_sd, draws=np.resize(known, values.shape))


def _by_theory(cumulants: Cumulants, row_sd: float, windows: _Windows) -> ClassificationEstimate:
    result = _estimate(cumulants.value, cumulants.interval(windows.level), windows)
    return ClassificationEstimate(result, 0.0, row_sd, cumulants=cumulants)


def _of_class(windows: _Windows, metrics: Sequence[str], k: int) -> list[dict[str, ClassificationEstimate]]:
    """Return the metrics of one class against all others."""
    one = windows.one_class(k)
    estimates: dict[str, list[ClassificationEstimate]] = {}
    ranked = [m for m in metrics if m in RANKED]
    expansions = {m: Expansion(one, m) for m in ranked}
    cumulants = {m: label_cumulants([each]) for m, each in expansions.items()}
    draws = [
        drawn_values(scores, [one.window(i)], [k], [m for m in ranked if cumulants[m][i] is None], seed)
        for i, (scores, seed) in enumerate(zip(windows.scores, windows.seeds, strict=True))
    ]
    by_confidence = windows.by_confidence(k)
    for metric in metrics:
        if metric == "accuracy":
            estimates[metric] = _accuracy(windows)
            continue
        values, influence = one.expected(metric)
        row_sds = influence.std(axis=1).tolist()
        if metric in RANKED:
            estimates[metric] = [
                _from_draws(value, row_sd, draws[i][metric][0], windows)
                if known is None
                else _by_theory(known, row_sd, windows)
                for i, (value, row_sd, known) in enumerate(
                    zip(values.tolist(), row_sds, cumulants[metric], strict=True)
                )
            ]
            slope = expansions[metric].slope
        else:
            estimates[metric] = _counted(metric, one.counts(metric), row_sds, windows)
            slope = one.slope(metric)
        slopes, weights = windows.arrived(slope * by_confidence), one.total(metric).tolist()
        estimates[metric] = [
            replace(each, slope=own, weight=weight) if isinstance(each.result, Estimate) else each
            for each, own, weight in zip(estimates[metric], slopes, weights, strict=True)
        ]
    return [dict(zip(estimates, each, strict=True)) for each in zip(*estimates.values(), strict=True)]


def _averaged(
    windows: _Windows, metrics: Sequence[str], average: str
) -> list[dict[str, ClassificationEstimate]]:
    """Return the average over three or more classes."""
    if average == "micro":
        every = [_micro(windows, metric) for metric in metrics]
        return [dict(zip(metrics, each, strict=True)) for each in zip(*every, strict=True)]
    classes = [windows.one_class(k) for k in range(windows.scores.shape[2])]
    by_confidence = [windows.by_confidence(k) for k in range(len(classes))]
    macros = {m: _Macro(classes, by_confidence, m) for m in metrics if m != "accuracy"}
    right = _accuracy(windows) if "accuracy" in metrics else []
    estimates = []
    for i, (scores, seed) in enumerate(zip(windows.scores, windows.seeds, strict=True)):
        without = [m for m, macro in macros.items() if macro.by_theory[i][1] is None]
        alone = [each.window(i) for each in classes] if without else classes
        draws = drawn_values(scores, alone, range(len(classes)), without, seed)
        estimates.append(
            {
                m: right[i] if m == "accuracy" else macros[m].estimate(i, windows, draws.get(m))
                for m in metrics
            }
        )
    return estimates


class _Macro:
    """The mean of a metric over the classes that define it in most draws of labels."""

    def __init__(self, classes: Sequence[OneClass], by_confidence: Sequence[Floats], metric: str) -> None:
        self.expansions = [Expansion(each, metric) for each in classes]
        self.expected = [each.expected(metric) for each in classes]
        self.by_confidence = by_confidence
        undefined = np.stack([each.expected <= 0.0 for each in self.expansions], axis=1)
        self.by_theory: list[tuple[tuple[int, ...], Cumulants | None]] = [((), None)] * len(undefined)
        for never in dict.fromkeys(map(tuple, undefined.tolist())):
            used = tuple(k for k, no in enumerate(never) if not no)
            rows = np.flatnonzero((undefined == never).all(axis=1))
            every = label_cumulants([self.expansions[k].select(rows) for k in used]) if used else []
            for i, one in zip(rows.tolist(), every, strict=bool(used)):
                self.by_theory[i] = used, one

    def estimate(self, i: int, windows: _Windows, draws: Floats | None) -> ClassificationEstimate:
        """Return a window's estimate by theory, or from the values (classes, draws) in draws of labels."""
        used, cumulants = self.by_theory[i]
        if draws is not None:
            used = _defined(draws)
        value, row_sd, slope = float("nan"), 0.0, None
        if used:
            value = float(np.mean([self.expected[k][0][i] for k in used]))
            row_sd = float(np.mean([self.expected[k][1][i] for k in used], axis=0).std())
            slope = np.empty(windows.order.shape[1])
            slopes = [self.expansions[k].slope[i] * self.by_confidence[k][i] for k in used]
            slope[windows.order[i]] = np.mean(slopes, axis=0)
        if cumulants is not None:
            each = _by_theory(cumulants, row_sd, windows)
        else:
            assert draws is not None
            each = _from_draws(value, row_sd, _mean_of_defined(draws), windows)
        return each if slope is None else replace(each, slope=slope, weight=float(len(slope)))


def _defined(values: Floats) -> tuple[int, ...]:
    """Return the classes for which most draws define the metric."""
    return tuple(np.flatnonzero(np.isnan(values).mean(axis=1) <= MOSTLY_UNDEFINED).tolist())


def _mean_of_defined(values: Floats) -> Floats:
    """Return (draws,) means over classes (classes, draws) without NaN; NaN if all are NaN."""
    known = ~np.isnan(values)
    with np.errstate(invalid="ignore"):
        means: Floats = np.where(known, values, 0.0).sum(axis=0) / known.sum(axis=0)
    return means


def _micro(windows: _Windows, metric: str) -> list[ClassificationEstimate]:
    """Return the metric of all (row, class) pairs at once."""
    if metric in RANKED:
        return _micro_ranked(windows, metric)
    _, n, width = windows.scores.shape
    counts, influence = whole_accuracy(windows.scores, windows.predicted)
    sds = influence.std(axis=1).tolist()
    per_row = 1.0
    if metric == "specificity":
        # Each wrong answer is one false positive among n(K − 1) pairs that are negative.
        counts = [each.shifted(n * (width - 2), n * (width - 1)) for each in counts]
        per_row = 1.0 / (width - 1)
    slope = np.full(n, per_row / n)
    sds = [sd * per_row for sd in sds]
    return [replace(each, slope=slope, weight=float(n)) for each in _counted(metric, counts, sds, windows)]


def _micro_ranked(windows: _Windows, metric: str) -> list[ClassificationEstimate]:
    """Return the metric of all (row, class) pairs from draws: the pairs of a row depend on each other."""
    many, n, width = windows.scores.shape
    no_pair = np.zeros(n * width, dtype=np.bool_)
    by_confidence = [windows.by_confidence(k) for k in range(width)]
    estimates = []
    for i in range(many):
        pairs = OneClass(windows.scores[i].ravel(), no_pair, windows.ranking[i].ravel())
        value, each = pairs.expected(metric)
        draws = drawn_values(windows.scores[i], [pairs], None, [metric], windows.seeds[i])[metric][0]
        row_sd = float((each.reshape(n, width).sum(axis=1) / width).std())
        one = _from_draws(float(value), row_sd, draws, windows)
        if isinstance(one.result, Estimate):
            slopes = pairs.slope(metric).reshape(n, width)
            slope = np.empty(n)
            slope[windows.order[i]] = sum(slopes[:, k] * by_confidence[k][i] for k in range(width))
            one = replace(one, slope=slope, weight=float(n))
        estimates.append(one)
    return estimates

"""Splits the change of a closed window's metric over the features of the window's rows, without labels.

A split compares the rows of the window with the rows of the model's reference. It takes some tens of
milliseconds, so it is computed only for windows in which a chart alarms. Only the result is stored.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cached_property
from itertools import islice

import msgspec
import numpy as np
from scipy.special import ndtri

from monitor.base.records import Floats
from monitor.base.results import Estimate, Reason, Unknown
from monitor.config.task import CALIBRATION_ERRORS, MOST_COVARIATES, Task
from monitor.engine.attribution import BaselineParts, PartRows
from monitor.engine.calibration import ActiveCalibration
from monitor.engine.evaluate import EstimationRequest, Evaluation, evaluate
from monitor.engine.labels.correcting import Correcting
from monitor.engine.reference import Reference
from monitor.engine.windows import ClosedWindow
from monitor.reports.attribution import FEATURE, Attribution, ConceptDrift, FeatureChanges, FeaturePart
from monitor.reports.views import MetricEstimate
from monitor.stats.estimate.corrected import shifted
from monitor.stats.features.ratio import evenly
from monitor.stats.features.split import MOST_ROWS, FeatureSplit, SplitReference, WindowSplit

REFERENCE_LACKS_FEATURES = "too few rows of the reference have all features"

LEAST_CHANGE = 0.005
"""The smallest change that is worth a cause: of a metric whose chart breaks no rule, or by concept drift."""

ERROR_TERMS: Mapping[str, Callable[[Floats], Floats]] = {
    "mae": np.abs,
    "rmse": np.square,
    "bias": np.asarray,
}
"""The metrics of errors that can be split: the loss of an error whose mean is the metric, or its square."""

_GROWN = 1.1
_STALE_WINDOWS = 100
_DECIMALS = 6


class FeatureSplitter:
    """Splits the changes of one window's metrics over features.

    For the first metric, the splitter prepares the reference and fits the density ratio of the window to the
    reference. It uses both for all metrics of the window, but does not keep them for later windows: with
    10,000 rows and 16 features they take some megabytes, and many models may alarm at the same time.

    Parameters
    ----------
    task : Task
        The task's section of the configuration, with at least one feature. Only the first 16 features are
        used.
    reference : Reference or None
    active : ActiveCalibration
        The calibration of the window, which is also applied to the reference.
    window : ClosedWindow
    rows : PartRows
        The rows of the window.
    """

    def __init__(
        self,
        task: Task,
        reference: Reference | None,
        active: ActiveCalibration,
        window: ClosedWindow,
        rows: PartRows,
    ) -> None:
        self._task, self._reference, self._active = task, reference, active
        self._window, self._rows = window, rows
        self._features = dict(islice(task.features.items(), MOST_COVARIATES))

    def split(
        self,
        metric: str,
        evaluation: Evaluation,
        baseline: BaselineParts,
        change: float,
        known: FeatureChanges | None = None,
    ) -> FeatureChanges:
        """Return the split of the change of a metric that is approximately a mean over rows.

        If `known` is the split of an earlier window of the same alarm, the method returns it without
        computing, so that a long alarm takes little time. In three cases it computes a new split: the change
        is a tenth larger than in that window, it has the opposite sign, or a hundred windows have passed. In
        the first window of an alarm, the cause may concern only some of the rows. A later window then
        replaces its split.

        Parameters
        ----------
        metric : str
        evaluation : Evaluation
            The estimates of the window.
        baseline : BaselineParts
        change : float
            The difference of the charted value and the chart's centre.
        known : FeatureChanges, optional
            The split of an earlier window.
        """
        if known is not None and self._still_holds(known, change):
            return known
        return rounded(self.exact(metric, evaluation, baseline, change))

    def _still_holds(self, known: FeatureChanges, change: float) -> bool:
        larger = change * math.copysign(1.0, known.change) >= _GROWN * abs(known.change)
        turned = change * known.change < 0
        return not (larger or turned or self._window.number - known.window >= _STALE_WINDOWS)

    def attribution_of_error(
        self, estimate: MetricEstimate, known: FeatureChanges | None = None
    ) -> Attribution | None:
        """Return the split of the change of a metric of errors from its value in the reference.

        The parts are those of the observed losses of the reference. The remainder is the change at unchanged
        features, such as that of other predictions for the same features.

        The result is None if the metric has not clearly changed, that is, if the interval of the estimate
        includes the reference's value; or if the metric is not `mae`, `rmse` or `bias`.

        Parameters
        ----------
        estimate : MetricEstimate
            The estimate of the window without labels.
        known : FeatureChanges, optional
            The split of an earlier window; see `split`.
        """
        metric, now, unit = estimate.metric, estimate.result, estimate.unit or ""
        if self._reference is None or metric not in ERROR_TERMS or not isinstance(now, Estimate):
            return None
        before = float(ERROR_TERMS[metric](self._errors).mean())
        before = math.sqrt(before) if metric == "rmse" else before
        if now.lower <= before <= now.upper:
            return None
        change = now.value - before
        if known is None or not self._still_holds(known, change):
            known = rounded(self._split_of_error(metric, before, now.value), _decimals(change))
        return Attribution(metric, round(change, _decimals(change)), FEATURE, (), features=known, unit=unit)

    @cached_property
    def _errors(self) -> Floats:
        """The prediction minus the label of each row of the reference."""
        assert self._reference is not None
        errors: Floats = self._reference.numbers[:, 0] - self._reference.numbers[:, 1]
        return errors

    def _split_of_error(self, metric: str, before: float, now: float) -> FeatureChanges:
        """Return the split of the change of a metric of errors between two values.

        The split is computed in units of the reference's error, which decides how large a named part is. The
        change of a root is that of the mean square over the sum of both roots.
        """
        assert self._reference is not None
        number, fitted, change = self._window.number, self._fitted, now - before
        losses = self._reference.losses(self._task.features)
        if isinstance(losses, Unknown):
            return FeatureChanges(number, change, reason=losses.reason)
        if isinstance(fitted, str):
            return FeatureChanges(number, change, reason=fitted)
        errors = self._errors[evenly(len(self._reference.labels), MOST_ROWS)]
        size = before if metric == "rmse" else float(np.abs(errors).mean())
        size = size or abs(change)
        expected, mean = losses.expected(self._window.features)[metric], now
        scale = size
        if metric == "rmse":
            mean, scale = now**2, size * (now + before)
        # The correction by residuals is the same for all rows. A row without an expected loss has the mean.
        expected = np.where(np.isnan(expected), mean, expected - np.nanmean(expected) + mean)
        split = fitted.split(ERROR_TERMS[metric](errors) / scale, expected / scale)
        return self._described(split, change, size)

    def exact(
        self, metric: str, evaluation: Evaluation, baseline: BaselineParts, change: float
    ) -> FeatureChanges:
        """Return the split of this window with numbers that are not rounded.

        The parameters are those of `split`.
        """
        number, fitted = self._window.number, self._fitted
        if not isinstance(fitted, WindowSplit):
            return FeatureChanges(number, change, reason=fitted)
        now, _ = self._rows.terms(metric, evaluation, baseline.counts)
        before = self._terms_before(metric, baseline)
        if now is None or before is None:
            return FeatureChanges(number, change, reason=Reason.NOT_DEFINED)
        return self._described(fitted.split(before, now), change)

    @cached_property
    def _fitted(self) -> WindowSplit | str:
        """The fitted density ratio of the window to the reference, or the reason why there is none."""
        reference, width = self._reference, len(self._features)
        if reference is None:
            return Reason.NO_REFERENCE
        rows = evenly(len(reference.labels), MOST_ROWS)
        try:
            prepared = SplitReference.from_rows(
                reference.features[rows, :width], tuple(self._features.values()), tuple(self._features)
            )
        except ValueError:
            return REFERENCE_LACKS_FEATURES
        return prepared.fit(self._window.features[:, :width])

    def _terms_before(self, metric: str, baseline: BaselineParts) -> Floats | None:
        """Return the contribution of each row of the reference in use to the metric."""
        reference, task = self._reference, self._task
        assert reference is not None
        chosen = evenly(len(reference.labels), MOST_ROWS)
        scores, predicted = reference.scores[chosen], reference.predicted[chosen]
        request = EstimationRequest(
            scores=scores,
            predicted=predicted,
            calibrated=self._active.calibrated(scores),
            metrics=(metric,) if metric in CALIBRATION_ERRORS else (),
            positive=task.positive_index,
            level=task.level,
            seed=self._window.number,
            average=task.charted_average,
            charted=self._active.charted(scores),
        )
        [evaluation] = evaluate([request], accuracy_interval=False)
        groups = np.zeros((len(chosen), 0), dtype=np.int64)
        rows = PartRows(evaluation.confidence, predicted, groups, str, task)
        terms, _ = rows.terms(metric, evaluation.for_charts(), baseline.counts)
        return terms

    def _described(self, split: FeatureSplit, change: float, scale: float = 1.0) -> FeatureChanges:
        """Return the named parts of a split, whose numbers are multiples of `scale`."""
        named = [j for j in split.named if j < len(self._features)]
        names = tuple(self._features)
        parts = tuple(
            FeaturePart(
                names[j],
                scale * float(split.parts[j]),
                scale * float(split.errors[j]),
                float(split.missing[j]),
                float(split.unseen[j]),
            )
            for j in named
        )
        return FeatureChanges(
            window=self._window.number,
            change=change,
            parts=parts,
            others=scale * float(np.delete(split.parts, named).sum()),
            step=change - scale * split.change,
            remainder=scale * split.remainder,
            remainder_error=scale * split.remainder_error,
            remainder_named=len(self._features) in split.named,
            reason=split.reason or "",
        )


def concept_drift(correction: Correcting, confidence: Floats, level: float) -> ConceptDrift | None:
    """Return the change of the accuracy at unchanged features and confidences, according to labels.

    The change is the present bias of the confidences, which `monitor.stats.estimate.corrected` estimates from
    the newest labels.

    Parameters
    ----------
    correction : Correcting
        The correction of the series, with the window.
    confidence : (n,) float64
        The calibrated confidences of the window.
    level : float

    Returns
    -------
    ConceptDrift or None
        None without labels, if the interval includes 0, or if the change is less than half a percentage
        point.
    """
    if not correction.labelled:
        return None
    bias, stretch = correction.logic.forecast(), correction.stretch
    half = float(ndtri((1 + level) / 2)) * bias.deviation
    change, lower, upper = (
        _rounded(float((shifted(confidence, stretch, at) - shifted(confidence, stretch, 0.0)).mean()))
        for at in (bias.mean, bias.mean - half, bias.mean + half)
    )
    if abs(change) < LEAST_CHANGE or lower <= 0 <= upper:
        return None
    return ConceptDrift(change, lower, upper, correction.labelled)


def rounded(split: FeatureChanges, decimals: int = _DECIMALS) -> FeatureChanges:
    """Return the split of a change with rounded numbers, for the window's report.

    Ratios of rows have six decimals.
    """
    return msgspec.structs.replace(
        split,
        change=_rounded(split.change, decimals),
        parts=tuple(
            FeaturePart(
                each.feature,
                _rounded(each.change, decimals),
                _rounded(each.standard_error, decimals),
                _rounded(each.missing),
                _rounded(each.unseen),
            )
            for each in split.parts
        ),
        # The default is exactly 0, which reports leave out.
        others=_rounded(split.others, decimals) or 0,
        step=_rounded(split.step, decimals) or 0,
        remainder=_rounded(split.remainder, decimals) or 0,
        remainder_error=_rounded(split.remainder_error, decimals) or 0,
    )


def _decimals(change: float) -> int:
    """Return the decimals of a number in the unit of the target: those that leave it six digits."""
    return _DECIMALS - 1 - math.floor(math.log10(abs(change)))


def _rounded(x: float, decimals: int = _DECIMALS) -> float:
    return round(x, decimals) + 0.0

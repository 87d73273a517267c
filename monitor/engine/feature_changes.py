"""Splits the change of a closed window's metric over the features of the window's rows, without labels.

A split compares the rows of the window with the rows of the model's reference. It takes some tens of
milliseconds, so it is computed only for windows in which a chart alarms. Only the result is stored.
"""

from __future__ import annotations

import math
from functools import cached_property
from itertools import islice

import msgspec
import numpy as np
from scipy.special import ndtri

from monitor.base.records import Floats
from monitor.base.results import Reason
from monitor.config.task import CALIBRATION_ERRORS, MOST_COVARIATES, Task
from monitor.engine.attribution import BaselineParts, PartRows
from monitor.engine.calibration import ActiveCalibration
from monitor.engine.evaluate import EstimationRequest, Evaluation, evaluate
from monitor.engine.labels.correcting import Correcting
from monitor.engine.reference import Reference
from monitor.engine.windows import ClosedWindow
from monitor.reports.attribution import ConceptDrift, FeatureChanges, FeaturePart
from monitor.stats.estimate.corrected import shifted
from monitor.stats.features.ratio import evenly
from monitor.stats.features.split import MOST_ROWS, FeatureSplit, SplitReference, WindowSplit

REFERENCE_LACKS_FEATURES = "too few rows of the reference have all features"

LEAST_CHANGE = 0.005
"""The smallest change that is worth a cause: of a metric whose chart breaks no rule, or by concept drift."""

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
        if known is not None:
            larger = change * math.copysign(1.0, known.change) >= _GROWN * abs(known.change)
            turned = change * known.change < 0
            if not (larger or turned or self._window.number - known.window >= _STALE_WINDOWS):
                return known
        return rounded(self.exact(metric, evaluation, baseline, change))

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

    def _described(self, split: FeatureSplit, change: float) -> FeatureChanges:
        named = [j for j in split.named if j < len(self._features)]
        names = tuple(self._features)
        parts = tuple(
            FeaturePart(
                names[j],
                *(float(column[j]) for column in (split.parts, split.errors, split.missing, split.unseen)),
            )
            for j in named
        )
        return FeatureChanges(
            window=self._window.number,
            change=change,
            parts=parts,
            others=float(np.delete(split.parts, named).sum()),
            step=change - split.change,
            remainder=split.remainder,
            remainder_error=split.remainder_error,
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


def rounded(split: FeatureChanges) -> FeatureChanges:
    """Return the split of a change with its numbers rounded to six decimals, for the window's report."""
    return msgspec.structs.replace(
        split,
        change=_rounded(split.change),
        parts=tuple(
            FeaturePart(each.feature, *map(_rounded, msgspec.structs.astuple(each)[1:]))
            for each in split.parts
        ),
        # The default is exactly 0, which reports leave out.
        others=_rounded(split.others) or 0,
        step=_rounded(split.step) or 0,
        remainder=_rounded(split.remainder) or 0,
        remainder_error=_rounded(split.remainder_error) or 0,
    )


def _rounded(x: float) -> float:
    return round(x, _DECIMALS) + 0.0

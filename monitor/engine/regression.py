"""The engine of a regression task: its answers are numbers, which are right within a tolerance.

The engine gives each answer a confidence, the probability that its error is within the tolerance, and each
label the class right or wrong. From then on, the task is a classification task without classes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from hashlib import sha256
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from monitor.base.errors import ConfigError
from monitor.base.records import Batch, FeatureKind, Floats, Ints, LabelBatch
from monitor.base.results import Reason, Result, Unknown
from monitor.config.regression import Regression
from monitor.engine.chunks import TimedBatch
from monitor.engine.labels.join import LabelJoin
from monitor.engine.labels.matching import is_inside, right_or_wrong
from monitor.engine.reference import Reference, split_by_model
from monitor.engine.task import TaskEngine, TaskState
from monitor.engine.task_logic import TaskOutput, TaskSettings
from monitor.stats.regression.losses import FEWEST_ROWS, LossReference, RowLosses
from monitor.stats.regression.metrics import (
    CAPPED,
    DEFAULT_METRICS,
    NO_SUMS,
    added_terms,
    error_terms,
    losses_of,
    realised_metric,
)
from monitor.stats.regression.tolerance import (
    FEWEST_ERRORS,
    ErrorSpread,
    Tolerance,
    chance_by_deviation,
    chance_by_quantiles,
)

LARGEST_IN_REFERENCE = 1e50
"""The largest size of a number in a reference: the sixth power of an error, a third cumulant, is finite."""

_CAPPED_SHARE = 0.995


@dataclass(frozen=True, slots=True, eq=False)
class Spreads:
    """Two models of the spread of a model's errors: by prediction and features, and by prediction alone.

    Parameters
    ----------
    by_prediction : ErrorSpread
    by_features : ErrorSpread or None
        None without features, or if too few rows of the reference have all of them.
    stated : (1 + Q,) bool
        Whether the reference has the standard deviation, and each quantile, that the model states. One that
        the reference lacks is not used, because no calibration has seen it.
    """

    by_prediction: ErrorSpread
    by_features: ErrorSpread | None
    stated: NDArray[np.bool_]

    @classmethod
    def from_rows(
        cls, columns: Floats, kinds: tuple[FeatureKind, ...], errors: Floats, scores: Floats
    ) -> Spreads:
        """Return the spreads of the errors of labelled rows.

        Parameters
        ----------
        columns : (n, 1 + F) float64
            The prediction, then the features; NaN for a missing feature.
        kinds : tuple of {"number", "text"}
            The kind of each column.
        errors : (n,) float64
            The prediction minus the label of each row.
        scores : (n, 1 + Q) float64
            The spread that the model states: see `Batch`.
        """
        by_prediction = ErrorSpread.from_rows(columns[:, :1], kinds[:1], errors)
        whole = np.isfinite(columns).all(axis=1)
        by_features = None
        if len(kinds) > 1 and whole.sum() >= FEWEST_ERRORS:
            by_features = ErrorSpread.from_rows(columns[whole], kinds, errors[whole])
        return cls(by_prediction, by_features, np.isfinite(scores).any(axis=0))

    def chance(self, columns: Floats, limits: Floats) -> Floats:
        """Return the probability that the error of each row is at most the row's limit, (n,)."""
        chance = self.by_prediction.chance(columns[:, :1], limits)
        if self.by_features is not None:
            reached = np.flatnonzero(self.by_features.reaches(columns))
            chance[reached] = self.by_features.chance(columns[reached], limits[reached])
        return chance

    def own_chance(self, columns: Floats, limits: Floats) -> Floats:
        """Return the result of `chance` for the rows of `from_rows`, each left out of its own fit."""
        chance = self.by_prediction.chance_at(self.by_prediction.own, limits)
        if self.by_features is not None:
            whole = np.isfinite(columns).all(axis=1)
            chance[whole] = self.by_features.chance_at(self.by_features.own, limits[whole])
        return chance


@dataclass(frozen=True, slots=True, eq=False)
class NumberRule:
    """The rule that turns a task's predicted numbers into confidences, and its labels into right or wrong.

    Parameters
    ----------
    tolerance : Tolerance
    levels : tuple of float
        The levels of the quantiles that the records state.
    spreads : mapping of str to Spreads
        The spread of each model's errors in the reference. The key ``""`` has the spread of all models'
        errors together, for models that the reference lacks.
    fingerprint : str
        A short hash of the reference's rows; ``""`` without a reference.
    """

    tolerance: Tolerance
    levels: tuple[float, ...]
    spreads: Mapping[str, Spreads]
    fingerprint: str = ""

    @classmethod
    def from_reference(cls, batch: Batch, task: Regression) -> tuple[NumberRule, Batch]:
        """Return the rule fitted on a task's reference, and the reference converted by this rule.

        Parameters
        ----------
        batch : Batch
            Answers with labels.
        task : Regression

        Raises
        ------
        ValueError
            A model has too few rows, a row has a number beyond `LARGEST_IN_REFERENCE`, or the tolerance would
            be 0.
        """
        _refuse_large(batch)
        errors = batch.numbers[:, 0] - batch.numbers[:, 1]
        tolerance = _tolerance(task, errors)
        kinds: tuple[FeatureKind, ...] = ("number", *task.features.values())
        columns = np.column_stack((batch.numbers[:, :1], batch.features))
        spreads = {"": Spreads.from_rows(columns, kinds, errors, batch.scores)}
        limits = tolerance.limits(batch.numbers[:, 0])
        chance = np.empty(len(batch))
        for code in np.unique(batch.model).tolist():
            rows, model = np.flatnonzero(batch.model == code), batch.models[code]
            try:
                own = Spreads.from_rows(columns[rows], kinds, errors[rows], batch.scores[rows])
            except ValueError as error:
                raise ValueError(f"model {model}: {error}") from error
            chance[rows] = own.own_chance(columns[rows], limits[rows])
            spreads[model] = own
        rule = cls(tolerance, task.quantiles, spreads, _fingerprint(batch))
        return rule, rule._converted(batch, batch.scores, chance)

    def converted(self, batch: Batch) -> Batch:
        """Return the answers with confidences as scores, and labels 0 (right), 1 (wrong) or -1 (none).

        The prediction is added as the last column of the features, because windows have these columns.
        """
        limits = self.tolerance.limits(batch.numbers[:, 0])
        columns = np.column_stack((batch.numbers[:, :1], batch.features))
        chance, scores = np.empty(len(batch)), np.empty_like(batch.scores)
        for code in np.unique(batch.model).tolist():
            rows = np.flatnonzero(batch.model == code)
            spreads = self.spreads.get(batch.models[code], self.spreads[""])
            chance[rows] = spreads.chance(columns[rows], limits[rows])
            scores[rows] = np.where(spreads.stated, batch.scores[rows], np.nan)
        columns = np.column_stack((batch.features, batch.numbers[:, 0]))
        return replace(self._converted(batch, scores, chance), features=columns)

    def _converted(self, batch: Batch, scores: Floats, chance: Floats) -> Batch:
        """Return the answers with these confidences, in rows for which the model states no spread itself."""
        predictions, truths = batch.numbers[:, :2].T
        limits = self.tolerance.limits(predictions)
        own = np.flatnonzero(np.isfinite(scores[:, 0]))
        chance[own] = chance_by_deviation(scores[own, 0], limits[own])
        if self.levels:
            spread = np.isfinite(scores[:, 1:]).all(axis=1)
            own = np.flatnonzero(spread & ~np.isfinite(scores[:, 0]))
            chance[own] = chance_by_quantiles(self.levels, scores[own, 1:], predictions[own], limits[own])
        labels = right_or_wrong(self.tolerance.holds(predictions, truths))
        numbers = np.column_stack((batch.numbers[:, :2], batch.scores[:, [1, -1] if self.levels else []]))
        labels = np.where(batch.label < 0, -1, labels)
        return replace(batch, scores=chance[:, None], label=labels, numbers=numbers)


def _refuse_large(batch: Batch) -> None:
    """Raise ValueError if a row of a reference has a number beyond `LARGEST_IN_REFERENCE`."""
    beyond = np.flatnonzero((np.abs(batch.numbers) > LARGEST_IN_REFERENCE).any(axis=1))
    if len(beyond):
        row = int(beyond[0])
        prediction, label = batch.numbers[row].tolist()
        raise ValueError(
            f"labelled answer {row + 1:,} in the order of time, of model {batch.models[batch.model[row]]}: "
            "expected a prediction and a label "
            f"from -{LARGEST_IN_REFERENCE:g} to {LARGEST_IN_REFERENCE:g}, got prediction {prediction:g} and "
            f"label {label:g}; correct or remove the row"
        )


def _refuse_relative(batch: Batch) -> None:
    """Raise ValueError if a label is 0 or tiny, or if labels have both signs, because `mape` needs others."""
    predictions, labels = batch.numbers[:, :2].T
    lowest, highest = labels.min(), labels.max()
    if lowest <= 0.0 <= highest:
        raise ValueError(
            "the metric mape needs labels that are all above 0 or all below 0, got labels from "
            f"{lowest:g} to {highest:g}; write wape in place of mape in error_metrics"
        )
    with np.errstate(over="ignore"):
        beyond = np.flatnonzero(np.abs((predictions - labels) / labels) > LARGEST_IN_REFERENCE)
    if len(beyond):
        prediction, label = predictions[beyond[0]], labels[beyond[0]]
        raise ValueError(
            f"the metric mape needs errors of up to {LARGEST_IN_REFERENCE:g} times the label, got prediction "
            f"{prediction:g} and label {label:g}; correct or remove the row, or write wape in place of mape "
            "in error_metrics"
        )


def _fingerprint(batch: Batch) -> str:
    columns = batch.model, batch.numbers, batch.features, batch.scores
    return sha256(
        "\n".join(batch.models).encode() + b"".join(each.tobytes() for each in columns)
    ).hexdigest()[:16]


def _tolerance(task: Regression, errors: Floats) -> Tolerance:
    if task.tolerance is not None:
        return Tolerance(task.tolerance)
    if task.relative_tolerance is not None:
        return Tolerance(task.relative_tolerance, relative=True)
    try:
        return Tolerance.from_errors(errors)
    except ValueError as error:
        raise ValueError(
            "80 % of the reference's errors are 0, so no tolerance follows from them; give tolerance"
        ) from error


@dataclass(frozen=True, eq=False)
class NumberReference(Reference):
    """The labelled reference of one model of a regression task, with the rule of the task."""

    rule: NumberRule | None = field(default=None, repr=False)

    def scored(self, batch: Batch) -> Batch:
        """Return answers whose scores are confidences; see `NumberRule.converted`."""
        return batch if self.rule is None else self.rule.converted(batch)

    def losses(
        self,
        features: Mapping[str, FeatureKind],
        group: str = "",
        metrics: Iterable[str] = DEFAULT_METRICS,
    ) -> LossReference | Unknown:
        """Return the losses of a model's or a group's rows, or the reason why they are unknown.

        The columns of the result are those of `NumberRule.converted`: the features, then the prediction. The
        result is computed once. With the metric `coverage`, rows without quantiles are left out; if too few
        are left, the result lacks this loss instead.
        """
        rows = self._rows_of(group)
        columns = np.column_stack((self.features[rows], self.numbers[rows, 0]))
        if np.isfinite(columns).all(axis=1).sum() < FEWEST_ROWS:
            return Unknown(Reason.REFERENCE_TOO_SHORT)
        truths, errors, inside = self.numbers[rows, 1], self._errors[rows], self._inside[rows]
        if (np.isfinite(columns).all(axis=1) & np.isfinite(inside)).sum() < FEWEST_ROWS:
            metrics = [metric for metric in metrics if metric != "coverage"]
        losses = losses_of(errors, metrics, truths, inside)
        cap = self.error_cap(group)
        losses[CAPPED["mae"]] = RowLosses(np.minimum(np.abs(errors), cap), 1)
        if "bias" in losses:
            losses[CAPPED["bias"]] = RowLosses(np.clip(errors, -cap, cap), 1, signed=True)
        kinds: tuple[FeatureKind, ...] = (*features.values(), "number")
        return self._once(
            f"losses {group} {' '.join(losses)}",
            lambda: LossReference.from_rows(columns, kinds, errors, losses),
        )

    def error_cap(self, group: str = "") -> float:
        """Return the absolute error that 99.5 % of a model's or a group's rows do not exceed."""
        errors = np.abs(self._errors[self._rows_of(group)])
        return float(np.quantile(errors, _CAPPED_SHARE, method="inverted_cdf"))

    def error_metric(self, metric: str, level: float) -> Result:
        """Return a metric of the errors of all rows, as `realised_metric` gives it for a window's labels."""
        none = np.full(len(self.labels), np.nan)
        truths, inside = (np.column_stack((each, none)) for each in (self.numbers[:, 1], self._inside))
        terms = error_terms(self._errors, none, np.ones(len(none)), truths, inside)
        return realised_metric(metric, added_terms(NO_SUMS, terms), level)

    @property
    def _errors(self) -> Floats:
        """The prediction minus the label of each row."""
        errors: Floats = self.numbers[:, 0] - self.numbers[:, 1]
        return errors

    @property
    def _inside(self) -> Floats:
        """The result of `is_inside` for each row's label, NaN for a row without an interval."""
        if self.numbers.shape[1] < 4:
            return np.full(len(self.labels), np.nan)
        return is_inside(self.numbers[:, 1:2], self.numbers[:, 2:4])[:, 0]

    def _rows_of(self, group: str) -> Ints:
        if not group:
            return np.arange(len(self.labels))
        return self.groups.get(group, np.zeros(0, dtype=np.int64))


def references_of_numbers(batch: Batch, task: Regression) -> dict[str, Reference]:
    """Return the reference of each model of a regression task; see `TaskKind.references`.

    Raises
    ------
    ValueError
        A model has too few rows, the tolerance would be 0, or `mape` is configured and labels have both
        signs, or one is 0 or tiny.
    """
    if "mape" in task.error_metrics and len(batch):
        _refuse_relative(batch)
    rule, converted = NumberRule.from_reference(batch, task)
    references: dict[str, Reference] = {}
    for model, one in split_by_model(converted).items():
        own: dict[str, Any] = {each.name: getattr(one, each.name) for each in fields(one) if each.init}
        references[model] = NumberReference(**own, rule=rule)
    return references


def rule_of(name: str, references: Mapping[str, Reference]) -> NumberRule:
    """Return the rule that the references of a regression task share.

    Raises
    ------
    ConfigError
        There is no reference.
    """
    for reference in references.values():
        if isinstance(reference, NumberReference) and reference.rule is not None:
            return reference.rule
    raise ConfigError(
        f"tasks.{name}.reference: expected labelled answers, which show how large the errors are, got none; "
        "give reference.path"
    )


class RegressionEngine(TaskEngine):
    """The running engine of one regression task.

    Without references it can be resumed, but not absorb answers: `blindsight forget` needs none.

    Raises
    ------
    ConfigError
        There is no reference, or the labels in `resume` were compared with another tolerance.
    """

    def __init__(self, settings: TaskSettings[Regression], resume: TaskState | None = None) -> None:
        before = Tolerance(*resume.join.tolerance) if resume and resume.join.tolerance else None
        if before is not None and not settings.references:
            self._rule = NumberRule(before, settings.task.quantiles, {})
        else:
            self._rule = rule_of(settings.name, settings.references)
        if before is not None and before != self._rule.tolerance:
            raise ConfigError(
                f"tasks.{settings.name}.reference: expected {before}, with which labels were compared, got "
                f"{self._rule.tolerance} from its errors; restart the agent with `{before}` to keep the "
                "task's state, or without to begin without it"
            )
        self._fingerprint = self._rule.fingerprint or (resume.rule if resume else "")
        super().__init__(settings, resume)  # type: ignore[arg-type]

    def _counts(self, rings: bool = False) -> TaskState:
        """Return the snapshot without revisions and series, and with or without rings."""
        return msgspec.structs.replace(super()._counts(rings), rule=self._fingerprint)

    def label_join(self, settings: TaskSettings[Any]) -> LabelJoin:
        """Return the settings of the task's label join, which compares labels with predictions."""
        metrics = set(settings.task.error_metrics)
        return replace(
            super().label_join(settings),
            tolerance=self._rule.tolerance,
            truths=not metrics <= set(DEFAULT_METRICS),
            stated="coverage" in metrics,
        )

    def absorb(
        self,
        answers: TimedBatch | None,
        labels: LabelBatch | None,
        partitions: tuple[str, ...],
        sequence: Ints,
    ) -> TaskOutput:
        """Process the task's answers and labels of a chunk, in order of arrival."""
        if answers is not None:
            answers = replace(answers, batch=self._rule.converted(answers.batch))
        return super().absorb(answers, labels, partitions, sequence)

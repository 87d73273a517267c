"""The configuration of one task: its windows, reference, calibration, estimators and objectives.

The module also computes the expected number of windows, and the ARL0 (the average number of windows between
two false alarms of a chart) that follows from a budget of false alarms.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, field_validator, model_validator

from monitor.base import registry
from monitor.base.names import AVERAGE_CONFIDENCE, DOUBLY_ROBUST
from monitor.base.records import FeatureKind, TaskLayout
from monitor.config.chart import (
    ChartConfig,
    FalseAlarmBudget,
    budget_problems,
    feature_alarm_level,
    feature_alarm_problems,
)
from monitor.config.labels import LabelsConfig, Ssme, WeightedLabels, unread_weights
from monitor.config.mapping import is_placeholder
from monitor.config.section import OneOf, Problem, Section, demand, describe_tags, sane, unique

_DAY = 86_400.0


def window_rows(task: Task, answers_per_day: float) -> float:
    """Return the expected number of predictions in a window of a model, if its traffic is constant.

    Examples
    --------
    >>> from monitor.config.root import Task
    >>> window_rows(Task(), 24_000), window_rows(Task(), 96_000), window_rows(Task(), 100)
    (250.0, 500.0, 50.0)
    """
    by_age = answers_per_day * task.window.max_age_seconds / _DAY
    return float(min(task.window.size, max(task.window.min_size, by_age)))


CALIBRATION_ERRORS = ("ece", "class_ece")
"""The metrics that are unknown without a calibration."""


def charted_metrics(task: Task) -> tuple[str, ...]:
    """Return the metrics that have a control chart.

    Calibration errors have a chart only if the task has a calibration and a labelled reference.
    """
    calibrated = task.calibration.method != "none" and task.reference.path is not None
    return tuple(metric for metric in task.judged_metrics if metric not in CALIBRATION_ERRORS or calibrated)


def windows_per_day(task: Task, assumed: float = 0.0) -> float:
    """Return the expected number of windows per day of all models of a task.

    Parameters
    ----------
    task : Task
    assumed : float
        The number for a model without `answers_per_day`, and for a task that names no model.

    Examples
    --------
    >>> from monitor.config.root import Task
    >>> models = {"erm": {"answers_per_day": 100_000}, "irm": {}}
    >>> windows_per_day(Task(models=models)), windows_per_day(Task(models=models), assumed=100)
    (200.0, 300.0)
    """
    traffic = [known.answers_per_day for known in task.models.values()] or [None]
    return sum(assumed if each is None else each / window_rows(task, each) for each in traffic)


def charted_windows_per_week(task: Task) -> float:
    """Return the number of windows per week that all charts of a task judge together.

    Each answer is in one window of its model, and in one window for each name in `groups`. Therefore each
    name in `groups` adds as many windows as the model has. The actual number may be larger, at most by the
    factor `window.size` / `window.min_size`, because windows of a group value with few answers close by age.
    Models without `answers_per_day` do not count.

    Examples
    --------
    >>> from monitor.config.root import Task
    >>> models = {"erm": {"answers_per_day": 50_000}}
    >>> task = Task(models=models, metrics=("accuracy",), groups=("region",))
    >>> charted_windows_per_week(task)
    1400.0
    """
    return 7 * windows_per_day(task) * len(charted_metrics(task)) * (1 + len(task.groups))


def shared_arl0(task: Task, false_alarms_per_week: float) -> float:
    """Return the ARL0, in windows, with which all charts of a task together have this rate of false alarms.

    All charts get the same ARL0, so a chart with more windows has more false alarms. The budget is not
    divided equally among the charts, because charts with few windows would then have narrow limits and charts
    with many windows wide limits, although a shift that stays undetected for a window affects the same number
    of answers in every chart.

    Examples
    --------
    >>> from monitor.config.root import Task
    >>> models = {"erm": {"answers_per_day": 50_000}, "irm": {"answers_per_day": 150_000}}
    >>> shared_arl0(Task(models=models, metrics=("accuracy",)), 2.0)
    1400.0
    """
    return charted_windows_per_week(task) / false_alarms_per_week


Metric = Literal[
    "accuracy",
    "ece",
    "class_ece",
    "precision",
    "recall",
    "specificity",
    "f1",
    "auroc",
    "average_precision",
]
COVARIATES = "covariates"
"""The calibration method that uses the records' features."""

SILENT_AFTER_AGES = 3
"""The time without answers after which a model is silent, as a multiple of `window.max_age_seconds`."""

MOST_FEATURES = 64
"""The largest number of features of a task."""

MOST_COVARIATES = 16
"""The largest number of features with which a calibration is fitted when a window closes. The first features
are used."""

WITHOUT_CLASSES = ("accuracy", "ece")
"""The metrics of models that give only a confidence."""
EstimatorTag = Annotated[str, OneOf(registry.ESTIMATORS)]
CalibrationTag = Annotated[str, OneOf(registry.CALIBRATIONS)]


class Window(Section):
    """The size of a window, and the age at which it closes early."""

    size: int = Field(
        default=500, ge=10, le=1_000_000, description="Number of predictions in a window.", examples=[1000]
    )
    min_size: int = Field(
        default=50,
        ge=1,
        le=1_000_000,
        description="The smallest number of predictions with which a window closes early. If absent, 50, "
        "or size if size is smaller.",
        examples=[100],
    )
    max_age_seconds: float = Field(
        default=900,
        gt=0,
        description="A window closes early when its first prediction is older than this. The age is "
        "measured from the arrival of the prediction, or in a replay by the times of the "
        "records.",
        examples=[3600],
    )

    @model_validator(mode="before")
    @classmethod
    def _default_fits_size(cls, value: Any) -> Any:
        """Set an absent `min_size` to `size`, if `size` is less than 50, the default of `min_size`."""
        if isinstance(value, dict) and "min_size" not in value:
            size = value.get("size")
            if isinstance(size, int | float) and 10 <= size < 50:
                return {**value, "min_size": size}
        return value

    @model_validator(mode="after")
    def _min_fits(self) -> Window:
        if self.min_size > self.size:
            demand([("min_size", f"expected at most size ({self.size}), got {self.min_size}")])
        return self


class ReferenceConfig(Section):
    """Labelled data from a time when the models were known to be good, or the stream's first windows."""

    files = ("path",)

    model_config = ConfigDict(
        json_schema_extra={"oneOf": [{"required": ["path"]}, {"required": ["first_windows"]}]}
    )

    path: str | None = Field(
        default=None,
        min_length=1,
        description="A labelled file: NDJSON (plain, .gz, .zst), CSV or Parquet.",
        examples=["reference.ndjson"],
    )
    first_windows: int | None = Field(
        default=None,
        ge=5,
        le=10_000,
        description="The number of first windows of the stream that are the reference, instead of a file.",
        examples=[20],
    )

    @model_validator(mode="after")
    def _one_of_both(self) -> ReferenceConfig:
        if (self.path is None) == (self.first_windows is None):
            got = "neither" if self.path is None else "both"
            demand([("", f"expected either path or first_windows, got {got}")])
        if self.path is not None and is_placeholder(self.path):
            demand([("path", f"expected a file, got the placeholder {self.path!r}: write its path here")])
        return self


class CalibrationConfig(Section):
    """The calibration of raw scores to probabilities that the answer is right."""

    method: CalibrationTag = Field(
        default="isotonic",
        description="The calibration method, fitted on the labels of the reference. Without labels, there "
        "is no calibration, and reports say so.",
        json_schema_extra=describe_tags(registry.CALIBRATIONS),
        examples=["beta"],
    )
    refit_labels: int | None = Field(
        default=50,
        ge=10,
        le=1_000_000,
        description="Number of new labels of a model after which its calibration is refitted. If a "
        "quarter of the labels in the last fit is more, that number counts. When labels "
        "contradict the confidences, the agent refits at once. It uses the new fit if labels "
        "favour it. Not for none, ssme and covariates. With null, never.",
        examples=[100],
    )

    @property
    def reference_method(self) -> str:
        """The calibration method that is fitted on the reference.

        For `ssme` and `covariates`, it is isotonic.
        """
        return "isotonic" if self.method in ("ssme", COVARIATES) else self.method


class Bound(Section):
    """The bound of an objective: a floor or a ceiling for a metric."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [{"required": ["min"]}, {"required": ["max"]}]})

    min: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="A floor. It is breached if the whole interval is below.",
        examples=[0.9],
    )
    max: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="A ceiling. It is breached if the whole interval is above.",
        examples=[0.05],
    )

    @model_validator(mode="after")
    def _one_of_both(self) -> Bound:
        if (self.min is None) == (self.max is None):
            demand([("", f"expected either min or max, got {'neither' if self.min is None else 'both'}")])
        return self


class ObjectiveConfig(Section):
    """The objectives: a floor or a ceiling for each metric, which the last windows together must respect."""

    accuracy: Bound | None = Field(
        default=None, description="Bound of the accuracy, usually a floor: {min: 0.90}."
    )
    ece: Bound | None = Field(
        default=None, description="Bound of the calibration error, usually a ceiling: {max: 0.05}."
    )
    class_ece: Bound | None = Field(
        default=None,
        description="Bound of the positive class's calibration error, usually a ceiling: {max: 0.05}.",
    )
    precision: Bound | None = Field(default=None, description="Bound of the positive class's precision.")
    recall: Bound | None = Field(default=None, description="Bound of the positive class's recall.")
    specificity: Bound | None = Field(default=None, description="Bound of the recall of the other class.")
    f1: Bound | None = Field(default=None, description="Bound of the positive class's F1.")
    auroc: Bound | None = Field(default=None, description="Bound of the AUROC, as the mean over the windows.")
    average_precision: Bound | None = Field(
        default=None, description="Bound of the average precision, as the mean over the windows."
    )
    windows: int = Field(
        default=5, ge=1, le=1000, description="Number of windows that are pooled.", examples=[10]
    )

    def bounds(self) -> dict[str, Bound]:
        """Return the configured bounds by metric."""
        return {metric: bound for metric, bound in self if isinstance(bound, Bound)}


class ModelConfig(Section):
    """The expected traffic of a model."""

    answers_per_day: float | None = Field(
        default=None,
        gt=0,
        le=1e12,
        description="Expected traffic, for `blindsight check` and for the durations of alert rules.",
        examples=[50_000],
    )


def _or_names(node: dict[str, Any]) -> None:
    """Allow a list of names in the JSON Schema as an alternative to a mapping by name."""
    by_name = {key: node.pop(key) for key in ("additionalProperties", "type")}
    names = {"items": {"type": "string"}, "type": "array"}
    node["anyOf"] = [by_name, names]


class TaskSection(Section):
    """Base class of the sections of tasks, one for each kind in `monitor.base.registry.TASK_KINDS`."""

    if TYPE_CHECKING:  # each section declares these fields in the order of the docs
        kind: str
        window: Window
        level: float
        labels: LabelsConfig

    @property
    def layout(self) -> TaskLayout:
        """The layout of the task's records, without its name."""
        raise NotImplementedError

    @property
    def together(self) -> str:
        """The reason why all models must be computed in one process; empty if they need not be."""
        raise NotImplementedError

    @property
    def shares(self) -> tuple[str, ...]:
        """The names of the parts into which the task's records are divided for several processes.

        The parts are the configured models, or a single part ``""`` if a record may concern several models.
        """
        raise NotImplementedError

    @property
    def most_series(self) -> int:
        """The largest number of models, and the largest number of groups, with separate windows."""
        return 0

    def with_models(self, own: Collection[str]) -> Self:
        """Return the task with only the configured models in `own`, for a process that computes them."""
        return self


class Task(TaskSection):
    """A classification task that several models answer."""

    kind: Literal["classification"] = Field(
        default="classification",
        description="classification, regression for numbers, or arena for models compared in pairs.",
    )
    classes: tuple[str, ...] = Field(
        default=(),
        description="The classes, in the order of the scores. If absent, the models give only a confidence.",
        examples=[["ok", "toxic"]],
    )
    positive: str | None = Field(
        default=None, description="The positive class of two. If absent, the last.", examples=["toxic"]
    )
    window: Window = Field(default=Window(), description="The rules for closing a window.")
    reference: ReferenceConfig = Field(
        default=ReferenceConfig(first_windows=20),
        description="The models' answers from a time when they were known to be good.",
    )
    calibration: CalibrationConfig = Field(
        default=CalibrationConfig(), description="The calibration of raw scores to probabilities."
    )
    metrics: tuple[Metric, ...] = Field(
        default=("accuracy", "ece"),
        min_length=1,
        description="The estimated metrics. With two classes, precision, recall, specificity, f1, auroc "
        "and average_precision refer to the positive class; with more classes, they are means over the "
        "classes.",
        examples=[["accuracy", "ece", "f1"]],
    )
    average: Literal["macro", "micro", "per_class"] = Field(
        default="macro",
        description="The average of the metrics of one class, such as recall, over three classes or more. "
        "macro: the mean over the classes. micro: over all pairs of a row and a class. per_class: macro, "
        "and also each class separately. Refitted estimators always use macro.",
        examples=["micro"],
    )
    estimators: tuple[EstimatorTag, ...] = Field(
        default=("average_confidence", "realised"),
        min_length=1,
        description="The estimators. Some use only the confidences. Some use labels when they arrive. The "
        "others are refitted on the scores of several models and the labels so far; see the "
        "section ssme.",
        json_schema_extra=describe_tags(registry.ESTIMATORS),
        examples=[["average_confidence", "realised", "ssme"]],
    )
    level: float = Field(default=0.95, gt=0.5, lt=1, description="Level of every interval.", examples=[0.99])
    interval: Literal["predictive", "poisson_binomial"] = Field(
        default="predictive",
        description="The sources of error in the intervals of average_confidence. predictive: chance, the "
        "calibration error, and the variation between windows in a labelled reference. poisson_binomial: "
        "only chance.",
        examples=["poisson_binomial"],
    )
    chart: ChartConfig = Field(default=ChartConfig(), description="The control charts.")
    objective: ObjectiveConfig = Field(
        default=ObjectiveConfig(), description="Bounds that the models must keep. If absent, there are none."
    )
    labels: WeightedLabels = Field(
        default=WeightedLabels(), description="The join and the weights of labels."
    )
    ssme: Ssme = Field(default=Ssme(), description="The refits of estimators that use labels.")
    groups: tuple[str, ...] = Field(
        default=(),
        description="Names in the records' `groups`. Each value has separate windows and charts.",
        examples=[["region"]],
    )
    features: dict[str, FeatureKind] = Field(
        default={},
        description="Names in the records' `features`, each with its kind, number or text; at most 64. "
        "The report of a window says which features are broken. With calibration.method: "
        "covariates, a window may differ from the reference in the first 16 features.",
        examples=[{"hour": "number", "carrier": "text"}],
    )
    models: dict[str, ModelConfig] = Field(
        default={},
        description="Optional: the models of the task, with their expected traffic; or a list of names.",
        json_schema_extra=_or_names,
    )
    max_series: int = Field(
        default=1000,
        ge=1,
        le=1_000_000,
        description="Maximum number of models and groups of this task. Further ones are only counted.",
        examples=[200],
    )

    @field_validator("models", mode="before")
    @classmethod
    def _names_alone(cls, value: Any) -> Any:
        """Convert a list of names of models to a mapping of names to models without traffic."""
        names = value if isinstance(value, list | tuple) else ()
        if not names or not all(isinstance(name, str) for name in names):
            return value
        demand([unique("", names)])
        return {name: {} for name in names}

    @property
    def layout(self) -> TaskLayout:
        """The layout of the task's records, without its name."""
        return TaskLayout(
            name="",
            classes=self.classes,
            positive=self.positive_index,
            models=tuple(self.models),
            groups=self.groups,
            kind=self.kind,
            features=tuple(self.features.items()),
        )

    @property
    def together(self) -> str:
        """The reason why all models must be computed in one process; empty if they need not be."""
        by = " and ".join(self.refit_estimators) or "ssme"
        return f"{by} estimates its models together" if self.refits else ""

    @property
    def shares(self) -> tuple[str, ...]:
        """The parts into which the task's records are divided: the names of the configured models."""
        return tuple(self.models)

    @property
    def most_series(self) -> int:
        """The largest number of models, and the largest number of groups, with separate windows."""
        return self.max_series

    def with_models(self, own: Collection[str]) -> Self:
        """Return the task with only the configured models in `own`."""
        return self.model_copy(update={"models": {k: v for k, v in self.models.items() if k in own}})

    @property
    def error_units(self) -> Mapping[str, str]:
        """The unit of each metric of the errors, by metric; empty if predictions are no numbers."""
        return {}

    @property
    def judged_metrics(self) -> tuple[str, ...]:
        """The metrics that have a chart and may have an objective: ratios, then metrics of errors."""
        return (*self.metrics, *(metric for metric in self.error_units if metric in registry.METRICS))

    @property
    def share(self) -> str:
        """The name of the metric that is the share of right answers."""
        return "accuracy"

    @property
    def positive_index(self) -> int:
        """The index of the positive class of a task with two classes."""
        return self.classes.index(self.positive) if self.positive else max(len(self.classes) - 1, 0)

    @property
    def refit_models(self) -> tuple[str, ...]:
        """The names of the models that refits estimate together: those in `ssme.models`, or else all."""
        return self.ssme.models or tuple(self.models)

    @property
    def refit_estimators(self) -> tuple[str, ...]:
        """The estimators that refits fit on labels, including estimators that are added for comparison."""
        return registry.estimators_by_input(self.estimators, "refit")

    @property
    def realised_estimators(self) -> tuple[str, ...]:
        """The estimators that use the labels of a window, including those that other estimators need."""
        return registry.estimators_by_input(self.estimators, "labels")

    @property
    def refits(self) -> bool:
        """True if an estimator or the calibration is refitted on the scores of several models."""
        return bool(self.refit_estimators) or self.calibration.method == "ssme"

    @property
    def relabelled_every(self) -> int | None:
        """The number of labels between refits of calibrations; None if calibrations are not refitted."""
        unfitted = self.calibration.method in ("none", "ssme", COVARIATES)
        return None if unfitted else self.calibration.refit_labels

    @property
    def adapts(self) -> bool:
        """True if each window gets its own calibration, fitted to the features of its answers."""
        return self.calibration.method == COVARIATES

    @property
    def covariates(self) -> dict[str, FeatureKind]:
        """The features that a separate calibration for each window uses; empty for other calibrations."""
        return dict(islice(self.features.items(), MOST_COVARIATES)) if self.adapts else {}

    @property
    def recalibrates(self) -> bool:
        """True if calibrations are refitted on labels."""
        return self.relabelled_every is not None

    @property
    def scored(self) -> int:
        """The number of scores of each answer that are kept in memory for refits; 0 without refits."""
        return max(len(self.classes), 1) if self.refits or self.recalibrates else 0

    @model_validator(mode="after")
    def _fits(self) -> Task:
        demand([*self._class_problems(), *self._name_problems(), *self._metric_problems()])
        windows = charted_windows_per_week(self)
        traffic = {name: known.answers_per_day for name, known in self.models.items()}
        demand(
            [
                *self._feature_problems(),
                *self._refit_problems(),
                *budget_problems(self.chart, traffic, windows),
                *feature_alarm_problems(self.chart, traffic, 7 * windows_per_day(self), len(self.features)),
            ]
        )
        return self

    @property
    def feature_alarm_level(self) -> float:
        """The p-value below which the drift of a feature raises an alarm; 0 if drift raises no alarms."""
        alarms = self.chart.features
        if alarms is None:
            return 0.0
        return feature_alarm_level(alarms, 7 * windows_per_day(self) * len(self.features))

    @property
    def charting(self) -> ChartConfig:
        """The section `chart`, with a budget of false alarms converted to an ARL0 in windows."""
        if not isinstance(self.chart.arl0, FalseAlarmBudget):
            return self.chart
        arl0 = shared_arl0(self, self.chart.arl0.false_alarms_per_week)
        return self.chart.model_copy(update={"arl0": arl0})

    @property
    def silent_after_seconds(self) -> float:
        """The time without answers after which a model is silent."""
        return SILENT_AFTER_AGES * self.window.max_age_seconds

    @property
    def shared_seconds(self) -> float:
        """The largest age of a window that is compared with other models; 0 without `chart.shared`."""
        return self.silent_after_seconds if self.chart.shared else 0.0

    @property
    def charted_average(self) -> Literal["macro", "micro"]:
        """The average over the classes, macro or micro, that charts and objectives judge."""
        return "micro" if self.average == "micro" else "macro"

    def judged_estimator(self, metric: str) -> str:
        """Return the estimator whose estimates of a metric the chart and the objective judge."""
        if metric in self.error_units:
            return DOUBLY_ROBUST
        return self.chart.estimator if metric == self.share else AVERAGE_CONFIDENCE

    def _judged_problems(self) -> Iterable[Problem]:
        """Yield a problem for each judged estimator that is not in `estimators`."""
        listed, chosen = ", ".join(self.estimators), self.chart.estimator
        judged = {self.judged_estimator(metric): metric for metric in reversed(self.metrics)}
        for tag, metric in judged.items():
            if tag in self.estimators:
                continue
            if tag == chosen and "estimator" in self.chart.model_fields_set:
                yield "chart.estimator", f"expected one of estimators ({listed}), got {tag!r}: add it there"
                continue
            why = f"as charts and objectives judge {metric} by it"
            yield "estimators", f"expected a list with {tag}, {why}, got {listed}: add it"
        if chosen != "average_confidence" and self.reference.path is None:
            yield (
                "chart.estimator",
                f"expected average_confidence without a labelled reference, got {chosen!r}, which needs one: "
                "give reference.path",
            )

    def _refit_problems(self) -> Iterable[Problem | None]:
        yield unique("ssme.models", self.ssme.models)
        yield sane("ssme.models", self.ssme.models)
        strangers = [name for name in self.ssme.models if self.models and name not in self.models]
        if strangers:
            listed = ", ".join(self.models)
            yield "ssme.models", f"expected some of models ({listed}), got {strangers[0]!r}"
        yield unread_weights(self.labels, self.refit_estimators)
        if not self.refits:
            return
        tags = [tag for tag in self.refit_estimators if tag in self.estimators]
        key, got = ("estimators", tags[0]) if tags else ("calibration.method", "ssme")
        if not self.classes:
            yield key, f"expected classes to be given with {got}, got none: list classes, or leave {got} out"
        if not self.refit_models:
            yield (
                "ssme.models",
                f"expected the models whose scores {got} joins, got none: list them here, or in models",
            )

    def _feature_problems(self) -> Iterable[Problem | None]:
        yield sane("features", self.features)
        if len(self.features) > MOST_FEATURES:
            yield "features", f"expected at most {MOST_FEATURES}, got {len(self.features)}: leave some out"
        if not self.adapts:
            return
        if not self.features:
            yield (
                "features",
                f"missing; calibration.method: {COVARIATES} needs them: name the records' features by which "
                "answers may come to differ from the reference's, such as {hour: number, carrier: text}",
            )
        if self.reference.path is None:
            yield (
                "reference",
                f"expected path with calibration.method: {COVARIATES}, got first_windows: give a file of "
                "labelled answers with these features",
            )
        for tag in registry.estimators_by_input(self.estimators, "reference"):
            yield (
                "estimators",
                f"expected none that is fitted on confidences of the reference with calibration.method: "
                f"{COVARIATES}, whose confidences change with each window, got {tag}: leave it out",
            )

    def _class_problems(self) -> Iterable[Problem | None]:
        classes = ", ".join(self.classes)
        if len(self.classes) == 1:
            yield "classes", f"expected at least two classes, or none, got {self.classes[0]!r} only"
        for k, name in enumerate(self.classes):
            if is_placeholder(name):
                yield (
                    f"classes[{k}]",
                    (f"expected the name of a class, got the placeholder {name!r}: write its name here"),
                )
        yield unique("classes", self.classes)
        yield sane("classes", self.classes)
        if self.positive is not None and len(self.classes) != 2:
            yield "positive", f"expected two classes for this key, got {len(self.classes)}: leave it out"
        elif self.positive is not None and self.positive not in self.classes:
            yield "positive", f"expected one of the classes ({classes}), got {self.positive!r}"

    def _name_problems(self) -> Iterable[Problem | None]:
        yield unique("groups", self.groups)
        yield sane("groups", self.groups, forbidden="=")  # reports and metrics show a group as name=value
        yield sane("models", self.models)

    def _metric_problems(self) -> Iterable[Problem | None]:
        yield unique("metrics", self.metrics)
        yield unique("estimators", self.estimators)
        for listed_metric in self.metrics:
            if listed_metric not in (self.share, *WITHOUT_CLASSES) and not self.classes:
                instead = "ece" if listed_metric == "class_ece" else "accuracy"
                problem = f"expected classes to be given with {listed_metric}, got none"
                yield "metrics", f"{problem}: list classes, or use {instead}"
        if self.average != "macro" and len(self.classes) < 3:
            yield (
                "average",
                f"expected three classes or more for {self.average}, got {len(self.classes)}: leave it out",
            )
        yield from self._judged_problems()
        for metric in self.objective.bounds():
            if metric in self.judged_metrics:
                continue
            key, listed = "metrics", ", ".join(self.metrics)
            if registry.METRICS[metric].scale != "ratio":
                key, listed = "error_metrics", ", ".join(self.error_units) or "nothing"
            problem = f"expected a metric that {key} lists ({listed}): add it there"
            yield f"objective.{metric}", problem


def scored(tasks: Mapping[str, TaskSection]) -> dict[str, Task]:
    """Return the tasks whose models give scores."""
    return {name: task for name, task in tasks.items() if isinstance(task, Task)}

"""The configuration of a regression task: its models predict a number."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Annotated, Any, Literal, get_args

from pydantic import ConfigDict, Field, model_validator

from monitor.base.names import RATIO
from monitor.base.records import TaskLayout
from monitor.base.registry import ESTIMATORS
from monitor.config.section import Problem, demand, describe_tags, unique
from monitor.config.task import Bound, EstimatorTag, Metric, ObjectiveConfig, ReferenceConfig, Task

_OF_CLASSES = ("classes", "positive", "average", "ssme")
"""The keys of a classification task that a regression task does not have."""

_RATIOS = ("mape", "wape", "coverage", "r2")
"""The metrics of errors without a unit."""


def _without_classes(node: dict[str, Any]) -> None:
    """Remove the keys that need classes from the JSON Schema."""
    for key in _OF_CLASSES:
        del node["properties"][key]


def _without_metrics_of_classes(node: dict[str, Any]) -> None:
    """Remove the metrics that a task of predicted numbers does not have from the JSON Schema."""
    for metric in {*get_args(Metric)} - {"ece"}:
        del node["properties"][metric]


class BoundInUnit(Bound):
    """The bound of an objective in the unit of the metric."""

    min: float | None = Field(
        default=None,
        ge=-1e100,
        le=1e100,
        description="A floor. It is breached if the whole interval is below.",
        examples=[-2],
    )
    max: float | None = Field(
        default=None,
        ge=-1e100,
        le=1e100,
        description="A ceiling. It is breached if the whole interval is above.",
        examples=[12],
    )


class ObjectiveOfNumbers(ObjectiveConfig):
    """The objectives of a task of predicted numbers: those of its ratios, and bounds of its errors."""

    model_config = ConfigDict(json_schema_extra=_without_metrics_of_classes)

    within_tolerance: Bound | None = Field(
        default=None, description="Bound of the share within the tolerance, usually a floor: {min: 0.75}."
    )
    mae: BoundInUnit | None = Field(
        default=None, description="Bound of the mean absolute error, usually a ceiling: {max: 12}."
    )
    rmse: BoundInUnit | None = Field(
        default=None, description="Bound of the root of the mean squared error, usually a ceiling."
    )
    bias: BoundInUnit | None = Field(
        default=None, description="Bound of the mean error, a floor (min) or a ceiling (max)."
    )
    mape: BoundInUnit | None = Field(
        default=None, description="Bound of the mean share of the label that the error is: {max: 0.2}."
    )
    wape: BoundInUnit | None = Field(
        default=None, description="Bound of the mean absolute error over the mean absolute label."
    )
    coverage: Bound | None = Field(
        default=None, description="Bound of the share of labels within the quantiles, usually {min: 0.85}."
    )
    r2: BoundInUnit | None = Field(default=None, description="Bound of R², usually a floor: {min: 0.6}.")


class Regression(Task):
    """A task whose models predict a number, such as a delay in minutes.

    An answer is right if its error is within the tolerance. The other keys are those of a classification task
    without classes.

    Examples
    --------
    >>> task = Regression(kind="regression", tolerance=15, reference={"path": "ref.csv"})
    >>> task.metrics, task.share
    (('within_tolerance', 'ece'), 'within_tolerance')
    """

    model_config = ConfigDict(json_schema_extra=_without_classes)

    kind: Literal["regression"] = Field(  # type: ignore[assignment]
        description="A task whose models predict a number."
    )
    tolerance: float | None = Field(
        default=None,
        gt=0,
        le=1e300,
        description="The largest error of a right answer, in the unit of the target. If neither this nor "
        "relative_tolerance is given, the error that 80 % of the reference's answers do not exceed.",
        examples=[15],
    )
    relative_tolerance: float | None = Field(
        default=None,
        gt=0,
        le=100,
        description="Instead of tolerance: the largest error as a share of the absolute prediction.",
        examples=[0.1],
    )
    quantiles: tuple[Annotated[float, Field(gt=0, lt=1)], ...] = Field(
        default=(),
        description="The levels of the records' quantiles, between 0 and 1 and increasing; two or more.",
        examples=[[0.05, 0.95]],
    )
    unit: str = Field(
        default="",
        max_length=40,
        description="The name of the target's unit, in the plural, as in 12.3 minutes.",
        examples=["minutes"],
    )
    error_metrics: tuple[Literal["mae", "rmse", "bias", "mape", "wape", "coverage", "r2"], ...] = Field(
        default=("mae", "rmse", "bias"),
        description="The metrics of the errors. bias is the mean of prediction minus label. mape needs "
        "labels of one sign, never 0; wape, Σ|error| / Σ|label|, does not. coverage, the share of labels "
        "from the lowest to the highest quantile, needs quantiles.",
        examples=[["mae", "wape"]],
    )
    reference: ReferenceConfig = Field(
        description="The models' answers with labels from a time when they were known to be good."
    )
    metrics: tuple[Literal["within_tolerance", "ece"], ...] = Field(  # type: ignore[assignment]
        default=("within_tolerance", "ece"),
        min_length=1,
        description="The estimated metrics. within_tolerance is the share of answers within the tolerance.",
        examples=[["within_tolerance", "ece"]],
    )

    objective: ObjectiveOfNumbers = Field(
        default=ObjectiveOfNumbers(),
        description="Bounds that the models must keep. If absent, there are none.",
    )
    estimators: tuple[EstimatorTag, ...] = Field(
        default=("average_confidence", "realised"),
        min_length=1,
        description="The estimators. Some use only the confidences, some the labels as they come. Those that "
        "are refitted on the scores of several models need classes.",
        json_schema_extra=describe_tags(ESTIMATORS),
        examples=[["average_confidence", "realised", "realised_cohort"]],
    )

    @property
    def share(self) -> str:
        """The name of the metric that is the share of right answers."""
        return "within_tolerance"

    @property
    def error_units(self) -> Mapping[str, str]:
        """The unit of each metric of the errors; see `Task.error_units`."""
        return {metric: RATIO if metric in _RATIOS else self.unit for metric in self.error_metrics}

    @property
    def layout(self) -> TaskLayout:
        """The layout of the task's records, without its name."""
        return TaskLayout(
            name="",
            classes=(),
            models=tuple(self.models),
            groups=self.groups,
            kind=self.kind,
            features=tuple(self.features.items()),
            numeric=True,
            quantiles=self.quantiles,
        )

    @model_validator(mode="after")
    def _is_numeric(self) -> Regression:
        demand(self._numeric_problems())
        return self

    def _numeric_problems(self) -> Iterable[Problem | None]:
        for key in _OF_CLASSES:
            if getattr(self, key) != type(self).model_fields[key].default:  # the store saves defaults, too
                yield key, "expected none in a task whose models predict numbers: leave it out"
        if self.reference.path is None:
            yield (
                "reference",
                "expected path, because labelled answers show how large the errors are, got first_windows: "
                "give a file of labelled answers",
            )
        if self.tolerance is not None and self.relative_tolerance is not None:
            yield "relative_tolerance", "expected tolerance or relative_tolerance, got both: leave one out"
        if self.share not in self.metrics:
            listed = ", ".join(self.metrics)
            yield "metrics", f"expected a list with {self.share}, got {listed}: add it"
        if self.unit != self.unit.strip() or not self.unit.isprintable():
            yield (
                "unit",
                "expected one line of text without spaces at its ends, such as minutes, got "
                f"{self.unit!r}: remove the spaces and line breaks",
            )
        if self.unit == RATIO:
            yield (
                "unit",
                f"expected the name of the target's unit, got {RATIO!r}, which marks metrics without a unit: "
                "leave it out, or write another name",
            )
        yield unique("error_metrics", self.error_metrics)
        if "coverage" in self.error_metrics and not self.quantiles:
            yield (
                "error_metrics",
                "expected metrics other than coverage in a task without quantiles, got coverage: give "
                "quantiles, the levels that the records state, or leave coverage out",
            )
        levels = ", ".join(map(str, self.quantiles))
        if len(self.quantiles) == 1:
            yield "quantiles", f"expected at least two levels, or none, got {levels} only"
        if any(low >= high for low, high in pairwise(self.quantiles)):
            yield "quantiles", f"expected increasing levels, got {levels}: sort them"

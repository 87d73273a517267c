"""The chart section of a task: kinds, rules, and the rate of false alarms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, ConfigDict, Discriminator, Field, Tag, WithJsonSchema, model_validator

from monitor.base import registry
from monitor.base.errors import ConfigError
from monitor.base.zones import time_zone
from monitor.config.section import OneOf, Problem, Section, demand, describe_tags, unique

RuleTag = Literal[
    "we1", "we2", "we3", "we4",
    "nelson1", "nelson2", "nelson3", "nelson4", "nelson5", "nelson6", "nelson7", "nelson8",
]  # fmt: skip
RULES: tuple[str, ...] = get_args(RuleTag)

_MORE_THAN_NOMINAL = 4.0  # false alarms of a feature's test, in multiples of its level: tests/measured.md
_LEAST_LEVEL, _MOST_LEVEL = 1e-9, 0.01


def _bare_rule(value: Any) -> Any:
    if isinstance(value, int | float) and not isinstance(value, bool) and value in range(1, 5):
        return RULES[int(value) - 1]
    return value


Rule = Annotated[RuleTag, BeforeValidator(_bare_rule), WithJsonSchema({"enum": [*RULES, 1, 2, 3, 4]})]


class FalseAlarmBudget(Section):
    """A budget of false alarms for all charts of a task together, instead of an ARL0 for each chart."""

    false_alarms_per_week: float = Field(
        gt=0,
        le=1000,
        description="False alarms a week of all models, groups and metrics of the task together, while all "
        "are in control. They share the budget by their number of windows. Needs "
        "answers_per_day of every model.",
        examples=[1],
    )


class FeatureAlarms(Section):
    """A budget of false alarms for the drift of all features of a task together."""

    false_alarms_per_week: float = Field(
        gt=0,
        le=1000,
        description="False alarms a week of all models and features of the task together, while no feature "
        "drifts. Needs answers_per_day of every model.",
        examples=[0.2],
    )


def _arl0_form(value: Any) -> str:
    return "budget" if isinstance(value, dict | FalseAlarmBudget) else "windows"


Arl0 = Annotated[
    Annotated[Annotated[float, Field(ge=10, le=1_000_000)], Tag("windows")]
    | Annotated[FalseAlarmBudget, Tag("budget")],
    Discriminator(_arl0_form),
]


def _least(metric: str, name: str) -> Any:
    return Field(
        default=registry.METRICS[metric].min_change,
        ge=0,
        le=1,
        description=f"The least change of the {name} that raises an alarm.",
        examples=[0.02],
    )


class MinChange(Section):
    """The smallest change from the baseline that raises an alarm, for each metric."""

    accuracy: float = _least("accuracy", "accuracy")
    within_tolerance: float = _least("within_tolerance", "share within the tolerance")
    ece: float = _least("ece", "calibration error")
    class_ece: float = _least("class_ece", "positive class's calibration error")
    precision: float = _least("precision", "precision")
    recall: float = _least("recall", "recall")
    specificity: float = _least("specificity", "specificity")
    f1: float = _least("f1", "F1")
    auroc: float = _least("auroc", "AUROC")
    average_precision: float = _least("average_precision", "average precision")


def _change_form(value: Any) -> str:
    return "metrics" if isinstance(value, dict | MinChange) else "all"


Change = Annotated[
    Annotated[Annotated[float, Field(ge=0, le=1)], Tag("all")] | Annotated[MinChange, Tag("metrics")],
    Discriminator(_change_form),
]


class ChartConfig(Section):
    """The control charts of all metrics."""

    model_config = ConfigDict(json_schema_extra={"not": {"required": ["arl0", "sigmas"]}})

    estimator: Annotated[str, OneOf(registry.CHARTED)] = Field(
        default="average_confidence",
        description="The estimator that the charts and the objectives judge. Any other than "
        "average_confidence judges the accuracy alone and needs a labelled reference; "
        "average_confidence then judges the other metrics.",
        examples=["doc"],
    )
    kind: Annotated[str, OneOf(registry.CHARTS)] = Field(
        default="shewhart",
        description="The kind of chart.",
        json_schema_extra=describe_tags(registry.CHARTS),
        examples=["ewma"],
    )
    arl0: Arl0 | None = Field(
        default=None,
        description="Mean number of windows between two false alarms (ARL0), for all rules of a chart "
        "together. Or {false_alarms_per_week: 1}, for all charts of the task together. If "
        "neither this nor sigmas is set, 370.",
        examples=[1000],
    )
    sigmas: float | None = Field(
        default=None,
        gt=0,
        le=10,
        description="The half width of the limits in standard deviations, instead of arl0. For cusum, the "
        "decision interval.",
        examples=[3],
    )
    rules: tuple[Rule, ...] = Field(
        default=("we1",),
        min_length=1,
        description="Rules that raise an alarm: Western Electric we1 to we4 (or just 1 to 4), Nelson "
        "nelson1 to nelson8. ewma and cusum have no rules.",
        examples=[["we1", "we2"]],
    )
    shift: float | None = Field(
        default=None,
        ge=0.25,
        le=5,
        description="The shift that ewma and cusum detect soonest, in standard deviations of one window. "
        "If absent, 1.",
        examples=[0.5],
    )
    weight: float | None = Field(
        default=None,
        ge=0.05,
        le=1,
        description="Weight of the newest window in ewma. If absent, the best value for shift.",
        examples=[0.1],
    )
    min_change: Change = Field(
        default=MinChange(),
        description="The smallest change from the baseline that raises an alarm. It is a number for all "
        "ratios, or a section with a number for each metric. If absent, 0.01 for the "
        "accuracy and 0 for the other metrics.",
        examples=[0.02],
    )
    season: Literal["hour_of_week"] | None = Field(
        default=None,
        description="hour_of_week: a separate centre and limits for each hour of the week. They begin with "
        "four weeks of reference, or of windows in control. A window belongs to the hour of its middle "
        "record. If absent, all hours have the same centre and limits.",
        examples=["hour_of_week"],
    )
    time_zone: str = Field(
        default="UTC",
        description="The time zone of season: an IANA name. Needs season.",
        examples=["Europe/Berlin"],
    )

    features: FeatureAlarms | None = Field(
        default=None,
        description="The budget of alarms for features that drift. Without a budget, drift is shown, but "
        "raises no alarm. Requires features.",
        examples=[{"false_alarms_per_week": 0.2}],
    )

    shared: bool = Field(
        default=True,
        description="Whether one alarm of the task says that most of its models fell together. Needs 3 "
        "models or more.",
        examples=[False],
    )

    @model_validator(mode="after")
    def _fits(self) -> ChartConfig:
        demand([self._both(), unique("rules", self.rules), *self._out_of_place(), self._zone_problem()])
        return self

    def _zone_problem(self) -> Problem | None:
        """Return a problem if there is no such time zone, or no season that needs it."""
        if self.season is None and self.time_zone != "UTC":
            return "time_zone", (
                f"expected season beside it, got {self.time_zone!r} alone: add season: hour_of_week, or "
                "leave time_zone out"
            )
        try:
            time_zone(self.time_zone)
        except ConfigError as error:
            return "time_zone", str(error)
        return None

    def _both(self) -> Problem | None:
        """Return a problem if both `arl0` and `sigmas` are set."""
        if self.arl0 is None or self.sigmas is None:
            return None
        if isinstance(self.arl0, FalseAlarmBudget):
            got = f"false_alarms_per_week {self.arl0.false_alarms_per_week:g}"
        else:
            got = f"{self.arl0:g}"
        return "", f"expected arl0 or sigmas, got both ({got} and {self.sigmas:g})"

    def _out_of_place(self) -> Iterable[Problem]:
        """Yield the problems of keys that this kind of chart does not have."""
        own = registry.CHARTS[self.kind].keys
        if self.rules != ("we1",) and "rules" not in own:
            yield (
                "rules",
                f"expected no rules with kind {self.kind}, got {', '.join(self.rules)}: leave it out",
            )
        for key in ("shift", "weight"):
            if getattr(self, key) is not None and key not in own:
                kinds = " or ".join(kind for kind, entry in registry.CHARTS.items() if key in entry.keys)
                yield key, f"expected kind {kinds} for this key, got {self.kind}: leave it out"

    def least_change(self, metric: str) -> float:
        """Return the smallest change of a metric that raises an alarm; 0 for a metric with a unit."""
        if isinstance(self.min_change, MinChange):
            return float(getattr(self.min_change, metric, 0.0))
        return self.min_change if metric in MinChange.model_fields else 0.0

    @property
    def windows(self) -> float | None:
        """The average number of windows between two false alarms of a chart (ARL0).

        None if `arl0` is not set or is a budget of false alarms. `Task.charting` converts a budget to an
        ARL0.
        """
        return None if isinstance(self.arl0, FalseAlarmBudget) else self.arl0


def budget_problems(
    chart: ChartConfig, traffic: Mapping[str, float | None], windows_per_week: float
) -> Iterable[Problem]:
    """Yield a problem if the budget of false alarms cannot be divided among the charts.

    Parameters
    ----------
    chart : ChartConfig
    traffic : mapping of str to float or None
        The answers per day of each model, None if unknown.
    windows_per_week : float
        The number of windows per week of all charts of the task together.
    """
    if not isinstance(chart.arl0, FalseAlarmBudget):
        return
    key, budget = "chart.arl0.false_alarms_per_week", chart.arl0.false_alarms_per_week
    if unknown := _traffic_problem(traffic, "give arl0 in windows"):
        yield key, unknown
        return
    arl0 = windows_per_week / budget
    if arl0 and not 10 <= arl0 <= 1_000_000:
        yield (
            key,
            f"expected a budget with an ARL0 of 10 to 1000000 windows for each chart, got {budget:g} "
            f"for {windows_per_week:,.4g} windows a week, an ARL0 of {arl0:,.4g}: "
            f"give {windows_per_week / 1e6:.3g} to {windows_per_week / 10:.3g}",
        )


def feature_alarm_level(alarms: FeatureAlarms, tests_per_week: float) -> float:
    """Return the level for each test of a feature, with which all tests together keep their budget.

    By the union bound, the budget divided by the number of tests is a sufficient level, however the features
    depend on each other. The result is a quarter of this level, because the distribution of the test is exact
    only for large counts (`monitor.stats.features.drift`).

    Examples
    --------
    >>> feature_alarm_level(FeatureAlarms(false_alarms_per_week=0.2), 10_000)
    5e-06
    """
    return alarms.false_alarms_per_week / tests_per_week / _MORE_THAN_NOMINAL


def feature_alarm_problems(
    chart: ChartConfig, traffic: Mapping[str, float | None], windows_per_week: float, features: int
) -> Iterable[Problem]:
    """Yield a problem if the budget of false alarms cannot be divided among the tests of features.

    A budget without any features is a problem too.

    Parameters
    ----------
    chart : ChartConfig
    traffic : mapping of str to float or None
        The answers per day of each model, None if unknown.
    windows_per_week : float
        The number of windows per week of all models of the task.
    features : int
        The number of the task's features.
    """
    if chart.features is None:
        return
    key, budget = "chart.features.false_alarms_per_week", chart.features.false_alarms_per_week
    tests_per_week = windows_per_week * features
    if not features:
        yield (
            "chart.features",
            "expected features beside it, got none: name the records' features in features, such as "
            "{hour: number, carrier: text}, or leave chart.features out",
        )
    elif unknown := _traffic_problem(traffic, "leave chart.features out"):
        yield key, unknown
    elif not _LEAST_LEVEL <= (level := feature_alarm_level(chart.features, tests_per_week)) <= _MOST_LEVEL:
        least, most = (bound * _MORE_THAN_NOMINAL * tests_per_week for bound in (_LEAST_LEVEL, _MOST_LEVEL))
        yield (
            key,
            f"expected a budget with a level of {_LEAST_LEVEL:g} to {_MOST_LEVEL:g} for each test, got "
            f"{budget:g} for {tests_per_week:,.4g} tests a week (windows times features), a level of "
            f"{level:.3g}: give {least:.3g} to {most:.3g}",
        )


def _traffic_problem(traffic: Mapping[str, float | None], otherwise: str) -> str:
    """Return the reason why a budget cannot be divided by the models' traffic; ``""`` if it can."""
    unknown = [name for name, known in traffic.items() if known is None]
    if traffic and not unknown:
        return ""
    got = f"none for {unknown[0]!r}" if unknown else "no models"
    name = unknown[0] if unknown else "NAME"
    return (
        f"expected answers_per_day of every model, which divide the budget, got {got}: "
        f"add models: {{{name}: {{answers_per_day: 40000}}}} with the right number, or {otherwise}"
    )

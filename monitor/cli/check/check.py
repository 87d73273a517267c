"""The prediction for a valid configuration: false alarms of its charts, and warnings.

Pure: no file is read. Everything is a figure for models in control.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from monitor.base.errors import ConfigError
from monitor.base.registry import COMPARISON_ESTIMATORS
from monitor.cli.check.warnings import (
    data_warnings,
    judgement_warnings,
    key_warnings,
    model_warnings,
    shared_models,
    traffic_warnings,
)
from monitor.config.root import Config, FalseAlarmBudget, Task
from monitor.config.task import charted_metrics, charted_windows_per_week, window_rows
from monitor.engine.charting import STREAM_BASELINE_WINDOWS, chart_for
from monitor.stats.charts.limits import DEFAULT_ARL0, checked_arl0, false_alarm_rate


@dataclass(frozen=True, slots=True)
class ChartRate:
    """How often one chart alarms without cause.

    Parameters
    ----------
    task : str
    model : str or None
        None stands for each model, where the configuration names none.
    metric : str
    false_alarms_per_window : float
        0 to 1.
    windows_per_day : float or None
        None where the traffic is not known.
    """

    task: str
    model: str | None
    metric: str
    false_alarms_per_window: float
    windows_per_day: float | None

    @property
    def false_alarms_per_week(self) -> float | None:
        """None where the traffic is not known."""
        if self.windows_per_day is None:
            return None
        return 7 * self.windows_per_day * self.false_alarms_per_window


@dataclass(frozen=True, slots=True)
class SharedBudget:
    """A budget of false alarms, shared out over the charts of a task.

    Parameters
    ----------
    task : str
    false_alarms_per_week : float
        What all of its charts, those of groups included, may raise together.
    windows_per_week : float
        That they judge, all together.
    arl0 : float
        Windows: what each chart got.
    """

    task: str
    false_alarms_per_week: float
    windows_per_week: float
    arl0: float


@dataclass(frozen=True, slots=True)
class CheckReport:
    """What `check` found.

    Parameters
    ----------
    charts : tuple of ChartRate
        Of models; those of groups come on top, one a value of the group.
    groups : mapping of str to tuple of str
        For each task with groups, their names.
    warnings : tuple of str
        Each begins with the path of a key.
    shared : tuple of SharedBudget
        Budgets of false alarms a week, and what they came to.
    """

    charts: tuple[ChartRate, ...]
    groups: Mapping[str, tuple[str, ...]]
    warnings: tuple[str, ...]
    shared: tuple[SharedBudget, ...] = ()

    @property
    def false_alarms_per_week(self) -> float | None:
        """Of all charts of models of known traffic together; None where there is none.

        Expectations add up whether or not the charts move together, as those of one model do.
        """
        known = [chart.false_alarms_per_week for chart in self.charts]
        return sum(rate for rate in known if rate is not None) if any(r is not None for r in known) else None

    @property
    def false_alarms_of_groups(self) -> float | None:
        """Of the charts of groups, which come on top: each name of a group has as many windows again.

        However many values it has, they share the model's answers; see `charted_windows_per_week`, also for
        what windows that close by age add to it.
        """
        known = [
            len(self.groups.get(chart.task, ())) * chart.false_alarms_per_week
            for chart in self.charts
            if chart.false_alarms_per_week is not None
        ]
        return sum(known) if known else None


Windows = Mapping[str, Mapping[str, int]]
"""Windows in a task's reference file, by task and model."""


Spreads = Mapping[str, Mapping[str, Mapping[str, float]]]
"""The standard deviation of windows in control, by task, model and metric."""


def check(
    config: Config, reference_windows: Windows | None = None, window_sds: Spreads | None = None
) -> CheckReport:
    """Count the false alarms that a configuration will raise, and warn of what cannot work as meant.

    A chart is there for the accuracy and for each calibration error that `metrics` lists, the latter
    only where a calibration can be fitted. The windows a day are ``answers_per_day`` over the rows of a
    window: `size`, or fewer where `max_age_seconds` passes first. False alarms a window come from
    `monitor.stats.charts.limits.false_alarm_rate`; its assumptions (independent windows, nearly normal
    estimates) hold here too, and where they fail there are more.

    Parameters
    ----------
    config : Config
    reference_windows : mapping of str to mapping of str to int, optional
        By task and model, windows in the task's reference file, where it has been read. A file that has
        not been read is taken to be long, and to hold every model.
    window_sds : mapping, optional
        From the reference files; with it the changes that are too small to matter (`chart.min_change`) are
        no alarms.

    Raises
    ------
    ConfigError
        A chart cannot keep its promise: an `arl0` out of reach of its rules.

    Examples
    --------
    >>> models = {"erm": {"answers_per_day": 50_000}}
    >>> report = check(Config(tasks={"toxicity": {"models": models}}))
    >>> [(chart.model, chart.metric, chart.windows_per_day) for chart in report.charts]
    [('erm', 'accuracy', 100.0)]
    >>> round(report.false_alarms_per_week, 2)  # 700 windows a week, one false alarm in 370
    1.89
    """
    known = reference_windows or {}
    charts: list[ChartRate] = []
    warnings = [] if config.sources else ["sources: there are none; `run` needs one, `replay` does not"]
    for name, task in config.scored_tasks.items():
        windows = known.get(name)
        charts += _charts(name, task, windows, (window_sds or {}).get(name, {}))
        found = [
            *data_warnings(task, windows),
            *model_warnings(task, windows),
            *judgement_warnings(task),
            *traffic_warnings(task),
        ]
        warnings += [f"tasks.{name}.{warning}" for warning in found]
    warnings += [*shared_models(config), *key_warnings(config)]
    groups = {name: task.groups for name, task in config.scored_tasks.items() if task.groups}
    return CheckReport(tuple(charts), groups, tuple(warnings), tuple(_shared(config)))


def _shared(config: Config) -> Iterator[SharedBudget]:
    for name, task in config.scored_tasks.items():
        if isinstance(task.chart.arl0, FalseAlarmBudget):
            windows = charted_windows_per_week(task)
            yield SharedBudget(
                name, task.chart.arl0.false_alarms_per_week, windows, float(task.charting.windows or 0.0)
            )


def unmatched_models(config: Config, reference_windows: Windows) -> list[str]:
    """Models that the configuration names and the reference lacks, and the reverse, a sentence each.

    Parameters
    ----------
    config : Config
    reference_windows : mapping of str to mapping of str to int
        As for `check`.

    Examples
    --------
    >>> task = {"models": {"erm": {}, "shadow": {}}, "reference": {"path": "r.csv"}, "metrics": ["accuracy"]}
    >>> unmatched_models(Config(tasks={"toxicity": task}), {"toxicity": {"erm": 40}})
    ['tasks.toxicity.models.shadow: the reference has no rows of this model: ...
    """
    return [
        f"tasks.{name}.{warning}"
        for name, task in config.scored_tasks.items()
        for warning in model_warnings(task, reference_windows.get(name))
    ]


def _charts(
    name: str, task: Task, windows: Mapping[str, int] | None, sds: Mapping[str, Mapping[str, float]]
) -> Iterator[ChartRate]:
    models: list[tuple[str | None, float | None]] = [
        (model, known.answers_per_day) for model, known in task.models.items()
    ]
    for metric in charted_metrics(task):
        for model, traffic in models or [(None, None)]:
            by_labels = metric != "accuracy" or task.chart.estimator in COMPARISON_ESTIMATORS
            if by_labels and _lacks(windows, model):
                continue
            of_models = sds.values() if model is None else [sds.get(model, {})]
            sd = max((known[metric] for known in of_models if metric in known), default=None)
            rate = _rate(name, task, metric, _baseline_windows(task, windows, model), sd)
            per_day = None if traffic is None else traffic / window_rows(task, traffic)
            yield ChartRate(name, model, metric, rate, per_day)


def _lacks(windows: Mapping[str, int] | None, model: str | None) -> bool:
    """Whether the reference has been read and holds no row of a model."""
    return windows is not None and model is not None and model not in windows


def _baseline_windows(task: Task, windows: Mapping[str, int] | None, model: str | None) -> float:
    """What a model's charts are drawn from; without a name, that of the model that has fewest."""
    if task.reference.first_windows is not None:
        return task.reference.first_windows
    if windows is None:
        return math.inf
    if model is None:
        return min(windows.values())
    return windows.get(model, STREAM_BASELINE_WINDOWS)


def _rate(name: str, task: Task, metric: str, reference_windows: float, window_sd: float | None) -> float:
    config = task.charting
    try:
        if config.sigmas is None:  # refused with the reference that there is, not with an endless one
            asked = chart_for(config.model_copy(update={"arl0": None, "sigmas": 3.0}), metric)
            checked_arl0(config.windows or DEFAULT_ARL0, asked.detector, reference_windows, asked.spread)
        return false_alarm_rate(chart_for(config, metric), reference_windows, window_sd)
    except ConfigError as error:
        raise ConfigError(f"tasks.{name}.chart: {error}") from error

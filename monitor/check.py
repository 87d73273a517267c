"""What a valid configuration will do: false alarms of its charts, and what in it cannot work as meant.

Pure: no file is read. Everything is a figure for models in control.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from monitor.charts import CHARTS, chart_for, false_alarm_rate
from monitor.charts.limits import DEFAULT_ARL0, limits
from monitor.config import Bound, Config, FalseAlarmBudget, Task
from monitor.errors import ConfigError
from monitor.judge import STREAM_BASELINE_WINDOWS
from monitor.traffic import CALIBRATION_ERRORS, charted_metrics, charted_windows_per_week, window_rows

_DAY = 86_400.0
GOOD_REFERENCE_WINDOWS = 20
"""Fewer make single models alarm far more, or less, often than the average that is promised."""


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
        """Of all charts of known traffic together; None where there is none.

        Expectations add up whether or not the charts move together, as those of one model do.
        """
        known = [chart.false_alarms_per_week for chart in self.charts]
        return sum(rate for rate in known if rate is not None) if any(r is not None for r in known) else None


Windows = Mapping[str, Mapping[str, int]]
"""Windows in a task's reference file, by task and model."""


def check(config: Config, reference_windows: Windows | None = None) -> CheckReport:
    """Count the false alarms that a configuration will raise, and warn of what cannot work as meant.

    A chart is there for the accuracy and for each calibration error that `metrics` lists, the latter
    only where a calibration can be fitted. The windows a day are ``answers_per_day`` over the rows of a
    window: `size`, or fewer where `max_age_seconds` passes first. False alarms a window come from
    `monitor.charts.limits.false_alarm_rate`; its assumptions (independent windows, nearly normal
    estimates) hold here too, and where they fail there are more.

    Parameters
    ----------
    config : Config
    reference_windows : mapping of str to mapping of str to int, optional
        By task and model, windows in the task's reference file, where it has been read. A file that has
        not been read is taken to be long, and to hold every model.

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
    for name, task in config.tasks.items():
        windows = known.get(name)
        charts += _charts(name, task, windows)
        found = [
            *_data_warnings(task, windows),
            *_model_warnings(task, windows),
            *_judgement_warnings(task),
            *_traffic_warnings(task),
        ]
        warnings += [f"tasks.{name}.{warning}" for warning in found]
    warnings += _shared_models(config)
    groups = {name: task.groups for name, task in config.tasks.items() if task.groups}
    return CheckReport(tuple(charts), groups, tuple(warnings), tuple(_shared(config)))


def _shared(config: Config) -> Iterator[SharedBudget]:
    for name, task in config.tasks.items():
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
    ['tasks.toxicity.models.shadow: the reference has no rows of it: it will not be calibrated; give it some']
    """
    return [
        f"tasks.{name}.{warning}"
        for name, task in config.tasks.items()
        for warning in _model_warnings(task, reference_windows.get(name))
    ]


def _calibrated(task: Task) -> bool:
    return task.calibration.method != "none" and task.reference.path is not None


def _charts(name: str, task: Task, windows: Mapping[str, int] | None) -> Iterator[ChartRate]:
    models: list[tuple[str | None, float | None]] = [
        (model, known.answers_per_day) for model, known in task.models.items()
    ]
    for metric in charted_metrics(task):
        for model, traffic in models or [(None, None)]:
            if metric != "accuracy" and _lacks(windows, model):
                continue
            rate = _rate(name, task, metric, _baseline_windows(task, windows, model))
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


def _rate(name: str, task: Task, metric: str, reference_windows: float) -> float:
    config = task.charting
    try:
        if config.sigmas is None:  # refused with the reference that there is, not with an endless one
            asked = chart_for(config.model_copy(update={"arl0": None, "sigmas": 3.0}), metric)
            limits(config.windows or DEFAULT_ARL0, asked.detector, reference_windows, asked.spread)
        return false_alarm_rate(chart_for(config, metric), reference_windows)
    except ConfigError as error:
        raise ConfigError(f"tasks.{name}.chart: {error}") from error


def _errors_unknown(task: Task) -> str:
    errors = [metric for metric in task.metrics if metric in CALIBRATION_ERRORS]
    return f"{' and '.join(errors)} {'stays' if len(errors) == 1 else 'stay'} unknown" if errors else ""


def _model_warnings(task: Task, windows: Mapping[str, int] | None) -> Iterator[str]:
    """Of models that only one of the configuration and the reference knows."""
    if windows is None or not task.models:
        return
    for model in task.models:
        if model not in windows:
            found = [
                "it will not be calibrated" if task.calibration.method != "none" else "",
                _errors_unknown(task) and f"its {_errors_unknown(task)}",
            ]
            what = ", ".join(filter(None, found)) or "its charts are drawn from the stream's first windows"
            yield f"models.{model}: the reference has no rows of it: {what}; give it some"
    for model in windows:
        if model not in task.models:
            yield f"models: the reference has rows of {model}, which is not listed; list it if it answers"


def _data_warnings(task: Task, by_model: Mapping[str, int] | None) -> Iterator[str]:
    """Of the reference and the calibration."""
    windows = min(by_model.values()) if by_model else task.reference.first_windows
    unknown = f"; {_errors_unknown(task)}" if _errors_unknown(task) else ""
    errors = bool(unknown)
    if task.calibration.method == "none":
        if errors:
            yield f"calibration.method: none{unknown}; take isotonic, and give reference.path"
    elif task.calibration.method == "ssme" and task.reference.path is None:
        yield (
            f"calibration.method: none until the first refit{unknown and f'{unknown} until then'}; its "
            "curves begin a new baseline; give reference.path to be calibrated from the start"
        )
    elif task.reference.path is None:
        yield (
            "calibration.method: stays none, as reference.first_windows brings no labels to fit "
            f"{task.calibration.method} on; the scores are taken as they are{unknown}; give reference.path"
        )
    if windows is not None and windows < GOOD_REFERENCE_WINDOWS:
        yield (
            f"reference: {windows} windows say little of the variation between windows, so that some models "
            f"alarm far more often than stated and some less; give {GOOD_REFERENCE_WINDOWS} or more"
        )
    if windows is None:
        rows = GOOD_REFERENCE_WINDOWS * task.window.size
        yield (
            f"reference.path: not read; the charts want {GOOD_REFERENCE_WINDOWS} windows or more, "
            f"so {rows:,} labelled rows a model"
        )


def _judgement_warnings(task: Task) -> Iterator[str]:
    """Of charts and objectives."""
    if not charted_metrics(task):
        yield "metrics: nothing is charted; add accuracy"
    kind = task.chart.kind
    if kind in ("shewhart_p", "shewhart_np"):
        yield (
            f"chart.kind: {kind} expects the variation of labels; an estimate without labels varies less, "
            "so that there are fewer false alarms than stated, and shifts are seen late; shewhart fits it"
        )
    others = [metric for metric in charted_metrics(task) if metric != "accuracy"]
    if CHARTS[kind].of_counts and others:
        keep = f"{', '.join(others)} {'keeps' if len(others) == 1 else 'keep'} shewhart"
        yield f"chart.kind: {kind} is of shares of successes, so of accuracy only; {keep}"
    for metric, bound in task.objective.bounds().items():
        if metric != "accuracy" and not _calibrated(task):
            yield f"objective.{metric}: cannot be judged, as {metric} stays unknown without a calibration"
        else:
            yield from _bound_warnings(f"objective.{metric}", metric, bound)


def _bound_warnings(key: str, metric: str, bound: Bound) -> Iterator[str]:
    floor = bound.max is None
    value = bound.min if floor else bound.max
    if floor != (metric == "accuracy"):
        side, other = ("floor", "max") if floor else ("ceiling", "min")
        verdict = "well calibrated" if floor else "good"
        yield f"{key}: a {side} is breached by a model that is too {verdict}; is {other} meant?"
    if value == (0 if floor else 1):
        yield f"{key}: {value:g} can never be breached; leave the objective out, or move the bound"
    if value == (1 if floor else 0):
        yield f"{key}: {value:g} can hardly ever be met, as an interval reaches past it; move the bound"


def _traffic_warnings(task: Task) -> Iterator[str]:
    """Of windows and of the join, at the expected traffic."""
    if len(task.models) > task.max_series:
        yield f"max_series: {task.max_series} is less than the {len(task.models)} models; raise it"
    total = 0.0
    for model, known in task.models.items():
        if known.answers_per_day is not None:
            total += known.answers_per_day
            yield from _window_warnings(task, model, known.answers_per_day)
    held = total * task.labels.horizon_days
    if held > task.labels.max_answers:
        days = figure(task.labels.max_answers / total)
        yield (
            f"labels.max_answers: {task.labels.max_answers:,} answers are {days} days of traffic, less than "
            f"horizon_days ({task.labels.horizon_days:g}): later labels find nothing; "
            f"raise it to {math.ceil(held):,}"
        )


def _window_warnings(task: Task, model: str, answers_per_day: float) -> Iterator[str]:
    rows = window_rows(task, answers_per_day)
    if rows < task.window.size:
        seconds = math.ceil(task.window.size * _DAY / answers_per_day)
        yield (
            f"window.max_age_seconds: at {answers_per_day:,.10g} answers a day the windows of {model} close "
            f"early, with about {rows:,.0f} of {task.window.size:,} predictions; "
            f"raise it to {seconds:,}, or lower size"
        )
    days = (task.reference.first_windows or 0) * rows / answers_per_day
    if days > 1:
        yield (
            f"reference.first_windows: {task.reference.first_windows} windows of {model} take "
            f"{figure(days)} days; until then it is warming up, and nothing alarms"
        )


def _shared_models(config: Config) -> Iterator[str]:
    owner: dict[str, str] = {}
    for name, task in config.tasks.items():
        for model in task.models:
            first = owner.setdefault(model, name)
            if first != name:
                yield f"tasks.{name}.models.{model}: {first} has it too; its records must name their task"


def figure(value: float | None) -> str:
    """A figure of a forecast: two digits are as much as it is worth.

    Examples
    --------
    >>> figure(3.7819), figure(12345.6), figure(None)
    ('3.8', '12,346', 'unknown')
    """
    if value is None:
        return "unknown"
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"

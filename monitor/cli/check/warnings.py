"""The warnings of `check`: settings of a valid configuration that cannot work as intended.

Each warning is a sentence that begins with the path of a key within its task.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from monitor.base.registry import COMPARISON_ESTIMATORS, ESTIMATORS, METRICS, SHARES
from monitor.config.root import Bound, Config, Task
from monitor.config.task import CALIBRATION_ERRORS, charted_metrics, window_rows
from monitor.stats.charts import CHARTS

_DAY = 86_400.0
GOOD_REFERENCE_WINDOWS = 20
"""The smallest number of windows of a reference without a warning.

With fewer windows, the false alarms of single models differ widely from the predicted average.
"""


def _calibrated(task: Task) -> bool:
    return task.calibration.method != "none" and task.reference.path is not None


def _errors_unknown(task: Task) -> str:
    errors = [metric for metric in task.metrics if metric in CALIBRATION_ERRORS]
    return f"{' and '.join(errors)} {'stays' if len(errors) == 1 else 'stay'} unknown" if errors else ""


def _rivals_unknown(task: Task) -> str:
    rivals = [tag for tag in COMPARISON_ESTIMATORS if tag in task.estimators]
    if not rivals:
        return ""
    judged = ", so that its accuracy is not charted" if task.chart.estimator in COMPARISON_ESTIMATORS else ""
    return f"{' and '.join(rivals)} {'stays' if len(rivals) == 1 else 'stay'} unknown{judged}"


def model_warnings(task: Task, windows: Mapping[str, int] | None) -> Iterator[str]:
    """Warn of models that are missing from the reference or from the configuration."""
    if windows is None or not task.models:
        return
    for model in task.models:
        if model not in windows:
            effects = [
                "it will not be calibrated" if task.calibration.method != "none" else "",
                _errors_unknown(task) and f"its {_errors_unknown(task)}",
                _rivals_unknown(task) and f"its {_rivals_unknown(task)}",
            ]
            effect = (
                ", ".join(filter(None, effects)) or "its charts are drawn from the stream's first windows"
            )
            yield f"models.{model}: the reference has no rows of this model: {effect}; add rows"
    for model in windows:
        if model not in task.models:
            yield f"models: the reference has rows of {model}, which is not listed; list it if it answers"


def data_warnings(task: Task, by_model: Mapping[str, int] | None) -> Iterator[str]:
    """Warn of a missing or short reference, and of a calibration that cannot be fitted."""
    windows = min(by_model.values()) if by_model else task.reference.first_windows
    unknown = f"; {_errors_unknown(task)}" if _errors_unknown(task) else ""
    errors = bool(unknown)
    if task.calibration.method == "none":
        if errors:
            yield f"calibration.method: none{unknown}; take isotonic, and give reference.path"
    elif task.calibration.method == "ssme" and task.reference.path is None:
        yield (
            f"calibration.method: none until the first refit{unknown and f'{unknown} until then'}; its "
            "curves begin a new baseline; give reference.path for a calibration from the start"
        )
    elif task.reference.path is None:
        yield (
            "calibration.method: stays none, because reference.first_windows has no labels to fit "
            f"{task.calibration.method} on; the agent uses the raw scores{unknown}; give reference.path"
        )
    if _rivals_unknown(task) and task.reference.path is None:
        yield (
            f"estimators: {_rivals_unknown(task)}, because reference.first_windows has no labels to fit "
            "on; give reference.path"
        )
    if windows is not None and windows < GOOD_REFERENCE_WINDOWS:
        yield (
            f"reference: {windows} windows are few to estimate the variation between windows, so some "
            f"models alarm far more often than predicted and some less; give {GOOD_REFERENCE_WINDOWS} or more"
        )
    if windows is None:
        rows = GOOD_REFERENCE_WINDOWS * task.window.size
        yield (
            f"reference.path: not read; the charts want {GOOD_REFERENCE_WINDOWS} windows or more, "
            f"so {rows:,} labelled rows a model"
        )


def judgement_warnings(task: Task) -> Iterator[str]:
    """Warn of charts and objectives that cannot work as intended."""
    if not charted_metrics(task):
        yield f"metrics: no metric has a chart; add {task.share}"
    kind = task.chart.kind
    if kind in ("shewhart_p", "shewhart_np"):
        yield (
            f"chart.kind: {kind} expects the variation of labels; an estimate without labels varies less, "
            "so there are fewer false alarms than predicted, and the chart finds shifts late; use shewhart"
        )
    others = [metric for metric in charted_metrics(task) if metric not in SHARES]
    if CHARTS[kind].of_counts and others:
        keep = f"{', '.join(others)} {'keeps' if len(others) == 1 else 'keep'} shewhart"
        yield f"chart.kind: {kind} is for shares of successes, so for {task.share} only; {keep}"
    for metric, bound in task.objective.bounds().items():
        if metric in CALIBRATION_ERRORS and not _calibrated(task):
            yield f"objective.{metric}: cannot be judged, because {metric} is unknown without a calibration"
        else:
            yield from _bound_warnings(f"objective.{metric}", metric, bound)


def _bound_warnings(key: str, metric: str, bound: Bound) -> Iterator[str]:
    floor = bound.max is None
    value, known = bound.min if floor else bound.max, METRICS[metric]
    if known.better == (-1 if floor else 1):
        side, other = ("floor", "max") if floor else ("ceiling", "min")
        verdict = "well calibrated" if metric in CALIBRATION_ERRORS else "good"
        yield f"{key}: a {side} is breached by a model that is too {verdict}; is {other} meant?"
    ends = {"ratio": (0, 1), "logarithm": (0, None), "identity": (None, None)}[known.scale]
    if value is not None and value == ends[0 if floor else 1]:
        yield f"{key}: {value:g} can never be breached; leave the objective out, or move the bound"
    if value is not None and value == ends[1 if floor else 0]:
        yield f"{key}: {value:g} can hardly ever be met, because intervals reach beyond it; move the bound"


def traffic_warnings(task: Task) -> Iterator[str]:
    """Warn of windows and limits that do not suit the traffic.

    The limits are those on models and on the answers that labels can join.
    """
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
            f"horizon_days ({task.labels.horizon_days:g}), so later labels find no prediction; "
            f"raise it to {math.ceil(held):,}"
        )


def _window_warnings(task: Task, model: str, answers_per_day: float) -> Iterator[str]:
    rows = window_rows(task, answers_per_day)
    if rows < task.window.size:
        seconds = math.ceil(task.window.size * _DAY / answers_per_day)
        wider = ""
        if task.reference.path is not None:
            times = figure(math.sqrt(task.window.size / max(rows, 1.0)))
            wider = f"the reference's hold {task.window.size:,}, so limits are {times} times as wide; "
        yield (
            f"window.max_age_seconds: at {answers_per_day:,.10g} answers a day the windows of {model} close "
            f"early, with about {rows:,.0f} of {task.window.size:,} predictions; {wider}"
            f"raise it to {seconds:,}, or lower size"
        )
    days = (task.reference.first_windows or 0) * rows / answers_per_day
    if days > 1:
        yield (
            f"reference.first_windows: {task.reference.first_windows} windows of {model} take "
            f"{figure(days)} days; until then the model is warming up, and raises no alarm"
        )


def shared_models(config: Config) -> Iterator[str]:
    """Warn of models that several tasks name."""
    owner: dict[str, str] = {}
    for name, task in config.scored_tasks.items():
        for model in task.models:
            first = owner.setdefault(model, name)
            if first != name:
                yield f"tasks.{name}.models.{model}: {first} has it too; its records must name the task"


def key_warnings(config: Config) -> Iterator[str]:
    """Warn that messages need suitable keys if the state belongs to partitions (`store.by_partition`)."""
    if config.store is None or not config.store.by_partition:
        return
    yield (
        "store.by_partition: give each message its model as key, each label the key of its prediction, and "
        "all topics equally many partitions; without keys each partition makes its own windows of a model"
    )
    joined = [name for name, task in config.scored_tasks.items() if _joins_models(task)]
    for name in (*joined, *(name for name in config.tasks if name not in config.scored_tasks)):
        yield (
            f"tasks.{name}: it compares the answers of several models, so with store.by_partition the key of "
            "its messages must be the task"
        )


def _joins_models(task: Task) -> bool:
    return any(ESTIMATORS[tag].needs == "refit" for tag in task.estimators)


def figure(value: float | None) -> str:
    """Format a number of the forecast. Numbers below 100 get two significant digits.

    Examples
    --------
    >>> figure(3.7819), figure(12345.6), figure(None)
    ('3.8', '12,346', 'unknown')
    """
    if value is None:
        return "unknown"
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"

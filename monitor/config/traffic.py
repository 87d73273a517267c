"""The expected traffic in windows a day, and a budget of false alarms divided among charts."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from monitor.config.task import Task

_DAY = 86_400.0


def window_rows(task: Task, answers_per_day: float) -> float:
    """Predictions in a typical window of a model, at an even traffic.

    Examples
    --------
    >>> from monitor.config.root import Task
    >>> window_rows(Task(), 24_000), window_rows(Task(), 96_000), window_rows(Task(), 100)
    (250.0, 500.0, 50.0)
    """
    by_age = answers_per_day * task.window.max_age_seconds / _DAY
    return float(min(task.window.size, max(task.window.min_size, by_age)))


CALIBRATION_ERRORS = ("ece", "class_ece")
"""Metrics that are unknown without a calibration."""


def charted_metrics(task: Task) -> tuple[str, ...]:
    """Metrics that get a control chart: calibration errors only where there are labels to calibrate on."""
    calibrated = task.calibration.method != "none" and task.reference.path is not None
    return tuple(metric for metric in task.metrics if metric not in CALIBRATION_ERRORS or calibrated)


def charted_windows_per_week(task: Task) -> float:
    """Windows a week that the charts of a task judge, all models, groups and metrics together.

    Each answer lies in one window of its model and in one of each of its groups, however many values a
    group has, so that groups count as many windows again as the model, at windows of the same size. A
    value with so few answers that its windows close by age has more of them: at most `window.size` over
    `window.min_size` times as many. Models without `answers_per_day` count nothing.

    Examples
    --------
    >>> from monitor.config.root import Task
    >>> models = {"erm": {"answers_per_day": 50_000}}
    >>> task = Task(models=models, metrics=("accuracy",), groups=("region",))
    >>> charted_windows_per_week(task)
    1400.0
    """
    days = [known.answers_per_day for known in task.models.values() if known.answers_per_day is not None]
    windows = 7 * sum(each / window_rows(task, each) for each in days)
    return windows * len(charted_metrics(task)) * (1 + len(task.groups))


def shared_arl0(task: Task, false_alarms_per_week: float) -> float:
    """The ARL0, in windows, with which all charts of a task together raise so many false alarms a week.

    Each chart gets the same ARL0, and so a share of the budget in proportion to its windows. An equal
    share each would make a chart of few windows narrow and one of many wide, though a shift costs answers
    alike in both.

    Examples
    --------
    >>> from monitor.config.root import Task
    >>> models = {"erm": {"answers_per_day": 50_000}, "irm": {"answers_per_day": 150_000}}
    >>> shared_arl0(Task(models=models, metrics=("accuracy",)), 2.0)
    1400.0
    """
    return charted_windows_per_week(task) / false_alarms_per_week

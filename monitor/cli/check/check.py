"""The forecast of `check` for a valid configuration: false alarms of its charts, and warnings.

The functions do not read files. All figures are for models in control.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from monitor.base.errors import ConfigError
from monitor.base.registry import COMPARISON_ESTIMATORS, SHARES
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
from monitor.stats.charts.base import DEFAULT_ARL0
from monitor.stats.charts.limits import checked_arl0, false_alarm_rate


@dataclass(frozen=True, slots=True)
class ChartRate:
    """The rate of false alarms of one chart.

    Parameters
    ----------
    task : str
    model : str or None
        The name of the model. None if the configuration names no models; then the rate is that of every
        model.
    metric : str
    false_alarms_per_window : float
        The probability of a false alarm in a window, 0 to 1.
    windows_per_day : float or None
        The expected number of windows in a day; None if the traffic is unknown.
    """

    task: str
    model: str | None
    metric: str
    false_alarms_per_window: float
    windows_per_day: float | None

    @property
    def false_alarms_per_week(self) -> float | None:
        """The expected number of false alarms of the chart in a week; None if the traffic is unknown."""
        if self.windows_per_day is None:
            return None
        return 7 * self.windows_per_day * self.false_alarms_per_window


@dataclass(frozen=True, slots=True)
class SharedBudget:
    """A budget of false alarms that the charts of a task share.

    Parameters
    ----------
    task : str
    false_alarms_per_week : float
        The budget of all charts of the task together, including the charts of groups.
    windows_per_week : float
        The number of windows that all charts of the task judge together.
    arl0 : float
        The resulting average number of windows between two false alarms of one chart.
    """

    task: str
    false_alarms_per_week: float
    windows_per_week: float
    arl0: float


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The result of `check`.

    Parameters
    ----------
    charts : tuple of ChartRate
        The charts of models. For each value of a group, there are further charts with the same rates.
    groups : mapping of str to tuple of str
        The names of the groups, for each task that has any.
    warnings : tuple of str
        Sentences, each of which begins with the path of a key.
    shared : tuple of SharedBudget
        The budgets of false alarms that the charts of a task share.
    unmatched : tuple of str
        The part of `warnings` about models that are missing from the reference or from the configuration.
    features : mapping of str to float
        For each task with `chart.features`, the promised number of false alarms per week about the drift of
        features. They are not included in the false alarms of charts.
    calibrations : tuple of str
        A sentence for each model with the calibration method `auto` or `covariates`.
    """

    charts: tuple[ChartRate, ...]
    groups: Mapping[str, tuple[str, ...]]
    warnings: tuple[str, ...]
    shared: tuple[SharedBudget, ...] = ()
    unmatched: tuple[str, ...] = ()
    features: Mapping[str, float] = field(default_factory=dict)
    calibrations: tuple[str, ...] = ()

    @property
    def rates(self) -> dict[tuple[str, str | None], float]:
        """The false alarms per window of all charts of a model together, by task and `ChartRate.model`."""
        rates: dict[tuple[str, str | None], float] = {}
        for chart in self.charts:
            place = chart.task, chart.model
            rates[place] = rates.get(place, 0.0) + chart.false_alarms_per_window
        return rates

    @property
    def false_alarms_per_week(self) -> float | None:
        """The expected number of false alarms per week, summed over the charts of models with known traffic.

        None if no model's traffic is known. The charts of one model are not independent, but the expectation
        of the sum is still the sum of the expectations.
        """
        known = [chart.false_alarms_per_week for chart in self.charts]
        return sum(rate for rate in known if rate is not None) if any(r is not None for r in known) else None

    @property
    def false_alarms_of_groups(self) -> float | None:
        """The expected number of false alarms per week, summed over the charts of all groups.

        None if no chart's traffic is known. For a field in `groups`, each answer belongs to one of the
        field's values. So the values together have as many windows as the model, and the charts of one field
        together have as many false alarms as the model's own chart. Windows that close by age add more: see
        `charted_windows_per_week`.
        """
        known = [
            len(self.groups.get(chart.task, ())) * chart.false_alarms_per_week
            for chart in self.charts
            if chart.false_alarms_per_week is not None
        ]
        return sum(known) if known else None


Windows = Mapping[str, Mapping[str, int]]
"""The number of windows in the reference file of each task, by task and model."""


Spreads = Mapping[str, Mapping[str, Mapping[str, float]]]
"""The standard deviation over windows in control, by task, model and metric."""


def check(
    config: Config, reference_windows: Windows | None = None, window_sds: Spreads | None = None
) -> CheckReport:
    """Predict the false alarms of a configuration, and warn of settings that cannot work as intended.

    Each metric in `metrics` has a chart for each model, with two exceptions. Calibration errors have no chart
    without a calibration and a labelled reference. If a reference file has no row of a model, only the share
    of right answers has a chart, and only if the chart judges an estimator that needs no reference.

    The number of windows per day is ``answers_per_day`` divided by the number of rows of a window. A window
    has `size` rows, or fewer if `max_age_seconds` passes first. The rate of false alarms comes from
    `monitor.stats.charts.limits.false_alarm_rate`, which assumes independent windows and nearly normal
    estimates. If these assumptions do not hold, there are more false alarms: at an ARL0 of 370, windows of
    100 rows have a quarter more (``python -m tests.fidelity.backtest quiet``).

    Parameters
    ----------
    config : Config
    reference_windows : mapping of str to mapping of str to int, optional
        The number of windows in each reference file that has been read, by task and model. Any other
        reference file is assumed to be long and to have rows of every model.
    window_sds : mapping, optional
        Standard deviations from the reference files. With them, changes below `chart.min_change` do not
        count as alarms.

    Raises
    ------
    ConfigError
        The rules of a chart cannot reach its `arl0`.

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
    unmatched: list[str] = []
    warnings = [] if config.sources else ["sources: there are none; `run` needs one, `replay` does not"]
    for name, task in config.scored_tasks.items():
        windows = known.get(name)
        charts += _charts(name, task, windows, (window_sds or {}).get(name, {}))
        of_models = [f"tasks.{name}.{warning}" for warning in model_warnings(task, windows)]
        unmatched += of_models
        warnings += [f"tasks.{name}.{warning}" for warning in data_warnings(task, windows)]
        warnings += of_models
        others = *judgement_warnings(task), *traffic_warnings(task)
        warnings += [f"tasks.{name}.{warning}" for warning in others]
    warnings += [*shared_models(config), *key_warnings(config)]
    groups = {name: task.groups for name, task in config.scored_tasks.items() if task.groups}
    features = {
        name: task.chart.features.false_alarms_per_week
        for name, task in config.scored_tasks.items()
        if task.chart.features is not None
    }
    shared = tuple(_shared(config))
    return CheckReport(tuple(charts), groups, tuple(warnings), shared, tuple(unmatched), features)


def _shared(config: Config) -> Iterator[SharedBudget]:
    for name, task in config.scored_tasks.items():
        if isinstance(task.chart.arl0, FalseAlarmBudget):
            windows = charted_windows_per_week(task)
            yield SharedBudget(
                name, task.chart.arl0.false_alarms_per_week, windows, float(task.charting.windows or 0.0)
            )


def _charts(
    name: str, task: Task, windows: Mapping[str, int] | None, sds: Mapping[str, Mapping[str, float]]
) -> Iterator[ChartRate]:
    models: list[tuple[str | None, float | None]] = [
        (model, known.answers_per_day) for model, known in task.models.items()
    ]
    for metric in charted_metrics(task):
        for model, traffic in models or [(None, None)]:
            by_labels = metric not in SHARES or task.chart.estimator in COMPARISON_ESTIMATORS
            if by_labels and _lacks(windows, model):
                continue
            of_models = sds.values() if model is None else [sds.get(model, {})]
            sd = max((known[metric] for known in of_models if metric in known), default=None)
            rate = _rate(name, task, metric, _baseline_windows(task, windows, model), sd)
            per_day = None if traffic is None else traffic / window_rows(task, traffic)
            yield ChartRate(name, model, metric, rate, per_day)


def _lacks(windows: Mapping[str, int] | None, model: str | None) -> bool:
    """Return whether the reference has been read and has no row of the model."""
    return windows is not None and model is not None and model not in windows


def _baseline_windows(task: Task, windows: Mapping[str, int] | None, model: str | None) -> float:
    """Return the number of windows from which a model's charts take their baseline.

    Without a name, return the smallest number of any model.
    """
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
        if config.sigmas is None:  # judge the ARL0 by the reference's real length, not by an endless one
            chart = chart_for(config.model_copy(update={"arl0": None, "sigmas": 3.0}), metric)
            checked_arl0(config.windows or DEFAULT_ARL0, chart.detector, reference_windows, chart.spread)
        return false_alarm_rate(chart_for(config, metric), reference_windows, window_sd)
    except ConfigError as error:
        raise ConfigError(f"tasks.{name}.chart: {error}") from error

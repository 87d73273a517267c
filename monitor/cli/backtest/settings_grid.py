"""The settings that a backtest tries on an incident, and the replay of the history with each of them."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from monitor.base.errors import ConfigError
from monitor.base.registry import CHARTS
from monitor.cli.backtest.injecting import Model, with_share_of_labels
from monitor.cli.backtest.signals import signals_of, statement_of
from monitor.cli.check.calibrations import References
from monitor.cli.replay import chunks_of
from monitor.cli.trial import ReferenceTrial
from monitor.config.chart import FalseAlarmBudget
from monitor.config.file import config_from
from monitor.config.root import Config
from monitor.config.task import Task
from monitor.reports.attribution import FEATURE, Attribution, sentence
from monitor.reports.window_report import WindowReport
from monitor.stats.charts.base import DEFAULT_ARL0
from monitor.stats.charts.limits import HIGHEST_ARL0, LOWEST_ARL0

_FACTORS = (1.0, 0.5, 2.0)
_KINDS = ("shewhart", "ewma", "cusum")
_LABEL_SHARES = (1.0, 0.25, 0.0)
_CHANGED = "The changed configuration"

Series = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Setting:
    """A change of the configuration and of the labels.

    Parameters
    ----------
    factor : float
        The size of windows, as a multiple of today's.
    kind : str or None
        The kind of chart; None for today's kind.
    share : float
        The share of the files' labels that the agent gets, 0 to 1.
    season : bool or None
        Whether there are limits by hour of the week; None for today's choice.
    """

    factor: float = 1.0
    kind: str | None = None
    share: float = 1.0
    season: bool | None = None

    @property
    def changes(self) -> int:
        """The number of changes of the configuration."""
        return (self.factor != 1) + (self.kind is not None) + (self.season is not None)


def settings_of(config: Config, labelled: bool, seasonal: bool = False) -> list[Setting]:
    """Return the settings to try, of which the first is today's.

    A season is tried with today's kind of chart, as the promised ARL0 holds best for it.

    Parameters
    ----------
    config : Config
    labelled : bool
        Whether the files have labels.
    seasonal : bool
        Whether charts with limits by hour of the week, or without if today's have them, are tried.
    """
    present = {task.chart.kind for task in config.scored_tasks.values() if task.chart.sigmas is None}
    only = next(iter(present)) if len(present) == 1 else None
    kinds = [None, *(kind for kind in _KINDS if present and kind != only)]
    shares = _LABEL_SHARES if labelled else _LABEL_SHARES[:1]
    other = not all(task.chart.season for task in config.scored_tasks.values())
    charts = [(kind, None) for kind in kinds] + [(None, other)] * seasonal
    return [
        Setting(factor, kind, share, season)
        for share in shares
        for factor in _FACTORS
        for kind, season in charts
    ]


def changed_task(task: Task, setting: Setting) -> dict[str, Any]:
    """Return the sections `window` and `chart` of a task with a setting.

    Windows of twice the size last twice as long before they close early, and the charts have half the ARL0 in
    windows, so that they promise as many false alarms a month as today's. With `sigmas`, the kind of chart
    stays, as limits of another kind in standard deviations promise something else.
    """
    window, chart = (
        section.model_dump(mode="json", exclude_unset=True) for section in (task.window, task.chart)
    )
    if setting.factor != 1:
        size = round(task.window.size * setting.factor)
        age = task.window.max_age_seconds * setting.factor
        least = max(round(task.window.min_size * setting.factor), 1)
        window = {"size": size, "min_size": min(least, size), "max_age_seconds": age}
    if setting.season is not None and setting.season != (task.chart.season is not None):
        chart.pop("time_zone", None)
        chart["season"] = "hour_of_week" if setting.season else None
    if task.chart.sigmas is not None:
        return {"window": window, "chart": chart}
    if setting.factor != 1 and not isinstance(task.chart.arl0, FalseAlarmBudget):
        arl0 = (task.chart.arl0 or DEFAULT_ARL0) / setting.factor
        chart["arl0"] = round(min(max(arl0, LOWEST_ARL0), HIGHEST_ARL0), 1)
    if setting.kind is not None and setting.kind != task.chart.kind:
        foreign = {key for entry in CHARTS.values() for key in entry.keys} - {*CHARTS[setting.kind].keys}
        chart = {key: value for key, value in chart.items() if key not in foreign} | {"kind": setting.kind}
    return {"window": window, "chart": chart}


def changed_config(config: Config, setting: Setting, names: Collection[str]) -> Config:
    """Return the configuration with a setting in these tasks.

    Raises
    ------
    ConfigError
        A value is out of range.
    """
    tasks: dict[str, object] = dict(config.tasks)
    for name in names:
        task = config.scored_tasks[name]
        tasks[name] = {**task.model_dump(exclude_unset=True), **changed_task(task, setting)}
    sections = {key: getattr(config, key) for key in config.model_fields_set}
    return config_from({**sections, "tasks": tasks}, _CHANGED)


@dataclass(frozen=True, slots=True)
class IncidentAlarm:
    """An alarm of a model or group.

    Parameters
    ----------
    model : Model
    group : str
    signals : frozenset of str
        The signals that are on in this window and were off in the one before.
    windows : int
        The number of windows of the series that closed from the start of the incident to this one.
    begins, time : float
        The start and the end of the window, seconds since the epoch.
    fact : str
    """

    model: Model
    group: str
    signals: frozenset[str]
    windows: int
    begins: float
    time: float
    fact: str


@dataclass(slots=True)
class _SeriesLog:
    """The alarms of one series."""

    on: frozenset[str] = frozenset()
    on_before: frozenset[str] = frozenset()  # at the end of the last window before the incident
    windows: int = 0  # from the start of the incident until its labels have come
    inside: int = 0  # in the incident
    judged: int = 0  # outside of the incident
    judged_inside: int = 0
    based: bool = False  # whether a window before the incident was judged
    others: int = 0
    change: Attribution | None = None  # the largest in the incident


@dataclass(slots=True)
class IncidentLog:
    """The alarms of a replay, inside of a period and outside of it.

    A window lies in the period if a part of it does, and an alarm if it begins in such a window. An alarm
    also belongs to the period if it begins when the labels of the period's answers come.

    Parameters
    ----------
    start, end : float
        Seconds since the epoch.
    delays : mapping of str to float
        The time from an answer to the alarm by its label, by task, in seconds; 0 for other tasks.

    Attributes
    ----------
    alarms : list of IncidentAlarm
        The alarms in the period, in the order of time.
    """

    start: float
    end: float
    delays: Mapping[str, float] = field(default_factory=dict)
    alarms: list[IncidentAlarm] = field(default_factory=list)
    _series: dict[Series, _SeriesLog] = field(default_factory=dict)
    _spans: dict[str, tuple[float, float]] = field(default_factory=dict)

    def add(self, reports: Sequence[WindowReport]) -> None:
        """Add closed windows and revisions, of which only the former count."""
        for report in reports:
            if not report.revision:
                self._add(report)

    def _add(self, report: WindowReport) -> None:
        log = self._series.setdefault((report.task, report.model, report.group), _SeriesLog())
        now = frozenset([*signals_of(report), *_broken(report)])
        new, log.on = now - log.on, now
        if report.charts:
            first, last = self._spans.get(report.task, (report.end_time, report.end_time))
            self._spans[report.task] = min(first, report.end_time), max(last, report.end_time)
        if not (report.end_time > self.start and report.start_time < self.end_of_labels(report.task)):
            log.judged += bool(report.charts)
            log.others += bool(new)
            if report.end_time <= self.start:
                log.on_before = now
                log.based |= bool(report.charts)
            return
        log.windows += 1
        if report.start_time < self.end:
            log.inside += 1
            log.judged_inside += bool(report.charts)
        for each in report.attributions:
            if each.by == FEATURE:
                continue  # its change is no ratio
            if log.change is None or abs(each.change) > abs(log.change.change):
                log.change = each
        if new:
            model, fact = Model(report.task, report.model), statement_of(report).fact
            at = log.windows, report.start_time, report.end_time
            self.alarms.append(IncidentAlarm(model, report.group, new, *at, fact))

    def _log(self, model: Model) -> _SeriesLog:
        return self._series.get((*model, ""), _SeriesLog())

    def end_of_labels(self, task: str) -> float:
        """Return the time when the labels of the period's last answers come; the end if they do at once."""
        return self.end + self.delays.get(task, 0.0)

    def models(self, task: str) -> list[Model]:
        """Return the models of a task with windows in the period or outside of it."""
        return sorted({Model(*series[:2]) for series in self._series if series[0] == task})

    def judged_inside(self, model: Model) -> int:
        """Return the number of the model's windows in the period that charts judged."""
        return self._log(model).judged_inside

    def answered_inside(self, model: Model) -> bool:
        """Return whether the model has a window in the period."""
        return self._log(model).inside > 0

    def based(self, model: Model) -> bool:
        """Return whether a chart judged a window of the model before the period."""
        return self._log(model).based

    def cause(self, model: Model) -> str:
        """Return a sentence on the parts and features of the largest change in the period; ``""`` if none."""
        change = self._log(model).change
        return "" if change is None else sentence(change)

    def on_before(self, model: Model) -> frozenset[str]:
        """Return the signals that were on when the period began."""
        return self._log(model).on_before

    def others(self, task: str) -> int:
        """Return the number of alarms of a task's models and groups that began outside of the period."""
        return sum(log.others for series, log in self._series.items() if series[0] == task)

    def judged(self, task: str) -> Mapping[Series, int]:
        """Return the number of judged windows outside of the period, by series of a task."""
        return {series: log.judged for series, log in self._series.items() if series[0] == task}

    def seconds_outside(self, task: str) -> float:
        """Return the time from the first to the last judged window of a task, without the period."""
        first, last = self._spans.get(task, (0.0, 0.0))
        inside = max(min(last, self.end_of_labels(task)) - max(first, self.start), 0.0)
        return last - first - inside


def _broken(report: WindowReport) -> Iterator[str]:
    for each in report.broken_features:
        yield f"feature {each.feature} broken"


@dataclass(frozen=True, slots=True)
class GridJob:
    """One replay of the history with a setting.

    Parameters
    ----------
    config : Config
    references : References
    files : tuple of Path
    setting : Setting
    start, end : float
        The incident, seconds since the epoch.
    seed : int
    delays : mapping of str to float
        The time from an answer to the alarm by its label, by task, in seconds.
    """

    config: Config
    references: References
    files: tuple[Path, ...]
    setting: Setting
    start: float
    end: float
    seed: int
    delays: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TriedSetting:
    """The outcome of a replay with a setting.

    Parameters
    ----------
    setting : Setting
    log : IncidentLog
    rates : mapping of (task, model or None) to float
        The false alarms per window that `check` predicts.
    refused : mapping of str to str
        The reasons why tasks cannot have the setting, by task. In the replay, these tasks have today's.
    """

    setting: Setting
    log: IncidentLog
    rates: Mapping[tuple[str, str | None], float]
    refused: Mapping[str, str] = field(default_factory=dict)


def replay_setting(job: GridJob) -> TriedSetting:
    """Replay the files with a setting."""
    with _quiet():  # a setting that lacks a baseline shows in its row
        return _replay(job)


def _replay(job: GridJob) -> TriedSetting:
    log = IncidentLog(job.start, job.end, job.delays if job.setting.share else {})
    trial, refused = _try_setting(job)
    if trial is None:
        return TriedSetting(job.setting, log, {}, refused)
    engine = trial.engine_settings(event_time=True).build()
    record = 0
    for path in job.files:
        for chunk, _ in chunks_of(job.config, path):
            log.add(engine.absorb(with_share_of_labels(chunk, record, job.setting.share, job.seed), 0.0))
            record += chunk.answers + chunk.labels_received
    log.add(engine.finish())
    return TriedSetting(job.setting, log, trial.report.rates, refused)


def _try_setting(job: GridJob) -> tuple[ReferenceTrial | None, dict[str, str]]:
    """Return the trial with the setting in each task that allows it, and the other tasks with the reason.

    The trial is None if no task allows the setting.
    """
    names = list(job.config.scored_tasks)
    whole = _trial_of(job, names)
    if isinstance(whole, ReferenceTrial):
        return whole, {}
    refused = {
        name: alone for name in names if isinstance(alone := _trial_of(job, [name]), str)
    } or dict.fromkeys(names, whole)
    rest = _trial_of(job, [name for name in names if name not in refused])
    if len(refused) == len(names) or isinstance(rest, str):
        return None, dict.fromkeys(names, whole) | refused
    return rest, refused


def _trial_of(job: GridJob, names: Collection[str]) -> ReferenceTrial | str:
    """Return the trial with the setting in these tasks, or the reason why they cannot have it."""
    try:
        config = changed_config(job.config, job.setting, names)
        return ReferenceTrial(config, references=job.references)
    except ConfigError as error:
        return str(error).removeprefix(f"{_CHANGED} cannot be used:").strip()


@contextmanager
def _quiet() -> Iterator[None]:
    logger = logging.getLogger("blindsight")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)

"""The backtest of an incident: whether an alarm began in it, and which settings would have seen it sooner."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import yaml

from monitor.base.errors import ConfigError
from monitor.cli.backtest.backtest import (
    DEFAULT_DROPS,
    DEFAULT_STARTS,
    Backtest,
    BacktestOptions,
    check_inputs,
    history_outcomes,
)
from monitor.cli.backtest.history import HistoryReplay
from monitor.cli.backtest.incident_text import duration_words
from monitor.cli.backtest.pool import processes_for, run_jobs
from monitor.cli.backtest.results import (
    MONTH_SECONDS,
    BacktestDocument,
    IncidentOutcome,
    Recommendation,
    SettingOutcome,
    Sighting,
    false_alarms_predicted,
)
from monitor.cli.backtest.settings_grid import (
    GridJob,
    IncidentAlarm,
    IncidentLog,
    TriedSetting,
    changed_task,
    replay_setting,
    settings_of,
)
from monitor.cli.trial import ReferenceTrial
from monitor.config.file import load_config
from monitor.config.root import Config, Task
from monitor.export.page.period import parse_time
from monitor.reports.statements import count
from monitor.reports.window_report import rfc3339
from monitor.stats.charts.season import WEEKS

_DAY, _HOUR = 86_400.0, 3600.0
_DELAY_NOTED = 60.0
_CHANCE_NOTED = 0.5  # alarms that would begin in a period of this length without an incident


def backtest_incident(options: BacktestOptions, announce: Callable[[str], None]) -> Backtest:
    """Replay files as they were, and with other settings; compare the alarms of a period.

    Parameters
    ----------
    options : BacktestOptions
        With `incident`.
    announce : callable
        Takes a sentence on the number and the time of the replays, before they begin.

    Raises
    ------
    ConfigError
        An option is out of range, or no window of the files lies in the period.
    SourceError
        A file is damaged.
    """
    start, end = _checked_period(options)
    check_inputs(options)
    processes = processes_for(options.files, options.processes)
    config = load_config(options.config)
    if not config.scored_tasks:
        raise ConfigError(
            f"--incident: {options.config}: no task has charts of models; add a task with scores"
        )
    trial = ReferenceTrial(config)
    settings, began = trial.engine_settings(event_time=True), time.monotonic()
    history = HistoryReplay(config, settings, options.files, [], config.scored_tasks, Path())
    history.run()
    _refuse_outside(options, history, start, end)
    short = _too_short_for_a_season(config, trial, history, start)
    tried = settings_of(config, history.labels > 0, not short)
    announce(_cost(len(tried), processes, time.monotonic() - began))
    delays = {name: history.time_to_alarm(name) for name in config.scored_tasks}
    common = start, end, options.seed, delays
    jobs = [GridJob(config, trial.references, tuple(options.files), each, *common) for each in tried]
    today = replay_setting(jobs[0])
    _refuse_empty(config, options, today.log)
    results = [today, *run_jobs(replay_setting, jobs[1:], processes)]
    outcome = _outcome(config, history, results, not short)
    document = BacktestDocument(
        starts=[],
        history=history_outcomes(history, trial.report.rates),
        delays=[],
        detections=[],
        incident=outcome,
        picture=None,
        page=None,
        notes=[*_notes(outcome, history, today.log), *short],
    )
    return Backtest(document, history.runs[history.labels > 0])


def _checked_period(options: BacktestOptions) -> tuple[float, float]:
    assert options.incident is not None
    if options.drops is not DEFAULT_DROPS or options.starts is not DEFAULT_STARTS:
        option = "--at" if options.drops is DEFAULT_DROPS else "--drop"
        raise ConfigError(
            f"--incident: expected neither --drop nor --at beside it, got {option}; run the two one after "
            "the other"
        )
    times = []
    for text in options.incident:
        try:
            times.append(parse_time(text))
        except ValueError as error:
            raise ConfigError(
                "--incident: expected two dates or times, such as 2026-11-20 2026-11-20T18:00Z, "
                f"got {text!r}; without an offset, a time is in UTC"
            ) from error
    start, end = times
    if start >= end:
        raise ConfigError(
            f"--incident: expected a start before the end, got {options.incident[0]} and "
            f"{options.incident[1]}; give the earlier time first"
        )
    return start, end


def _refuse_outside(options: BacktestOptions, history: HistoryReplay, start: float, end: float) -> None:
    """Raise ConfigError if the period does not begin between the first and the last answer of the files."""
    first, last = history.times
    assert options.incident is not None
    if math.isnan(first):
        raise ConfigError("--incident: the answers of the files have no time; add `time` to the records")
    if not first <= start < last:
        where = "after the end" if start >= last else "before the beginning"
        raise ConfigError(
            f"--incident: {options.incident[0]} lies {where} of the files, whose answers have times from "
            f"{rfc3339(first)[:19]} to {rfc3339(last)[:19]}; give a start between them, or more files"
        )


def _refuse_empty(config: Config, options: BacktestOptions, log: IncidentLog) -> None:
    """Raise ConfigError if charts judge no window in the period."""
    assert options.incident is not None
    models = [model for name in config.scored_tasks for model in log.models(name)]
    if any(log.judged_inside(model) for model in models):
        return
    period = f"--incident: from {options.incident[0]} to {options.incident[1]}"
    first = next((n for n, task in config.scored_tasks.items() if task.reference.first_windows), None)
    if first is not None and any(map(log.answered_inside, models)):
        raise ConfigError(
            f"{period}, all windows belong to reference.first_windows of tasks.{first}, the baseline; give a "
            "later period, or files that begin earlier"
        )
    raise ConfigError(f"{period}, no window closed that a chart judges; give a longer period, or other files")


def _too_short_for_a_season(
    config: Config, trial: ReferenceTrial, history: HistoryReplay, start: float
) -> list[str]:
    """Return the reason why no season can begin before the incident; empty if one may begin."""
    before = (start - history.times[0]) / _DAY
    references = [rows for models in trial.references.values() for rows in models.values()]
    spans = [float(rows.time[-1] - rows.time[0]) / _DAY for rows in references if rows.timed]
    if max([before, *spans]) >= 7 * WEEKS:
        return []
    what = "chart.season is not tried: it needs four weeks before the incident"
    if any(task.chart.season for task in config.scored_tasks.values()):
        what = "No limits by hour of the week had begun before the incident: they need four weeks"
    also = f", the longest reference has {max(spans):.1f} days" if spans else ""
    if len(spans) < len(references):
        also += "; rows of a reference have no time: add `time` to them"
    return [f"{what}, and the files begin {before:.1f} days before it{also}."]


def _cost(settings: int, processes: int, seconds: float) -> str:
    turns = 1 + math.ceil((settings - 1) / processes)
    return (
        f"Next: {count(settings, 'replay')} of the files, one for each setting, {processes} at a time; at "
        f"most about {_duration(turns * seconds)}."
    )


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _outcome(
    config: Config, history: HistoryReplay, results: Sequence[TriedSetting], seasonal: bool
) -> IncidentOutcome:
    """Return the outcome; `seasonal` says whether a season can begin before the incident."""
    log, tasks = results[0].log, config.scored_tasks
    first, last = history.times
    labels_a_day = history.labels / max((last - first) / _DAY, 1e-9)
    rows: list[SettingOutcome] = []
    recommendations = []
    for name, task in tasks.items():
        of_task: dict[tuple[object, ...], tuple[SettingOutcome, TriedSetting]] = {}
        for each in results:
            row = _setting_outcome(name, task, each, labels_a_day)
            row = msgspec.structs.replace(row, season=row.season and seasonal)
            of_task.setdefault((row.window_size, row.chart, row.season, row.label_share), (row, each))
        rows += (row for row, _ in of_task.values())
        recommendations.append(_recommendation(name, task, list(of_task.values())))
    return IncidentOutcome(
        start=rfc3339(log.start),
        end=rfc3339(log.end),
        sightings=[_sighting(tasks[name], log, model) for name in tasks for model in log.models(name)],
        settings=rows,
        recommendations=recommendations,
    )


def _sighting(task: Task, log: IncidentLog, model: Any) -> Sighting:
    alarms = [each for each in log.alarms if each.model == model]
    first = alarms[0] if alarms else None
    outcome: Any = "seen"
    if first is not None and first.begins >= log.end:
        outcome = "seen_after_end"
    if first is None:
        outcome = "alarm_before" if log.on_before(model) else "missed"
        if not log.answered_inside(model):
            outcome = "no_answers"
        elif task.reference.first_windows and not log.based(model):
            outcome = "no_baseline"
    later = dict.fromkeys(signal for each in alarms[1:] for signal in _signals(each))
    signals = [] if first is None else _signals(first)
    return Sighting(
        task=model.task,
        model=model.model,
        outcome=outcome,
        time=None if first is None else rfc3339(first.time),
        windows=None if first is None else first.windows,
        hours=None if first is None else _hours_after(log, first),
        signals=signals,
        later=[signal for signal in later if signal not in signals],
        fact="" if first is None else first.fact,
        cause=log.cause(model),
    )


def _signals(alarm: IncidentAlarm) -> list[str]:
    """Return the signals of an alarm, with its group."""
    group = f" in {alarm.group}" if alarm.group else ""
    return [f"{signal}{group}" for signal in sorted(alarm.signals)]


def _hours_after(log: IncidentLog, alarm: IncidentAlarm) -> float:
    return max(alarm.time - log.start, 0.0) / _HOUR


def _setting_outcome(name: str, task: Task, tried: TriedSetting, labels_a_day: float) -> SettingOutcome:
    log, setting, refused = tried.log, tried.setting, tried.refused.get(name, "")
    if refused:
        log = IncidentLog(log.start, log.end)
    sections = changed_task(task, setting)
    alarms = [each for each in log.alarms if each.model.task == name]
    months = log.seconds_outside(name) / MONTH_SECONDS
    predicted = [
        false_alarms_predicted(tried.rates, name, model, windows)
        for (_, model, _), windows in log.judged(name).items()
    ]
    return SettingOutcome(
        task=name,
        today=not setting.changes and setting.share == 1,
        window_size=sections["window"].get("size", task.window.size),
        chart=sections["chart"].get("kind", task.chart.kind),
        season=sections["chart"].get("season") is not None,
        label_share=setting.share,
        labels_a_day=labels_a_day * setting.share,
        changes=setting.changes,
        refused=refused,
        models=sum(map(log.answered_inside, log.models(name))),
        seen=len({each.model for each in alarms}),
        hours=_hours_after(log, alarms[0]) if alarms else None,
        windows=alarms[0].windows if alarms else None,
        signals=_signals(alarms[0]) if alarms else [],
        other_alarms=log.others(name),
        other_alarms_a_month=log.others(name) / months if months > 0 else None,
        predicted=sum(each or 0.0 for each in predicted) if tried.rates and not refused else None,
    )


def recommended(rows: Sequence[SettingOutcome]) -> SettingOutcome | None:
    """Return the settings to recommend for a task; None if none sees the incident sooner than today's.

    Only rows with today's labels count, whose alarms outside of the incident are no more than today's, or
    than `check` predicts for them, and which see the incident in as many models as today's. Among these, the
    soonest is the best; among equally soon ones, that with the fewest changes.

    Parameters
    ----------
    rows : sequence of SettingOutcome
        The rows of one task. One of them has `today`.
    """
    (today,) = (row for row in rows if row.today)
    better = [
        row
        for row in rows
        if _is_sooner(row, today)
        and row.label_share == 1
        and row.seen >= today.seen
        and row.other_alarms <= max(today.other_alarms, row.predicted or 0.0)
    ]
    return min(better, key=lambda row: (row.hours, row.changes), default=None)


def _recommendation(
    name: str, task: Task, rows: Sequence[tuple[SettingOutcome, TriedSetting]]
) -> Recommendation:
    (today,) = (row for row, _ in rows if row.today)
    best = recommended([row for row, _ in rows])
    if best is None:
        sooner = [row for row, _ in rows if row.label_share == 1 and _is_sooner(row, today)]
        reason = "none of the tried settings would have seen the incident sooner"
        if sooner:
            reason += ", except some with more alarms outside of the incident, or in fewer models"
        return Recommendation(task=name, reason=f"{reason}.", configuration=None)
    (setting,) = (tried.setting for row, tried in rows if row is best)
    before = "missed" if today.hours is None else f"after {duration_words(today.hours)}"
    reason = (
        f"windows of {best.window_size} answers and kind {best.chart}"
        f"{' with limits by hour of the week' if best.season else ''} would have seen the incident after "
        f"{duration_words(best.hours or 0.0)} (today: {before}), with {count(best.other_alarms, 'alarm')} "
        f"outside of it (today: {today.other_alarms})."
    )
    sections = {key: value for key, value in changed_task(task, setting).items() if value}
    lines = yaml.safe_dump({"tasks": {name: sections}}, sort_keys=False, default_flow_style=None, width=200)
    return Recommendation(task=name, reason=reason, configuration=lines)


def _is_sooner(row: SettingOutcome, today: SettingOutcome) -> bool:
    return row.hours is not None and (today.hours is None or row.hours < today.hours)


def _notes(outcome: IncidentOutcome, history: HistoryReplay, log: IncidentLog) -> Iterator[str]:
    if not history.labels:
        yield "The files have no labels, so each row is without labels."
    for task, delay in log.delays.items():
        if delay >= _DELAY_NOTED:
            yield (
                f"{task}: labels come late. In rows with labels, alarms that begin up to "
                f"{duration_words(delay / _HOUR)} after the end count as the incident's: 90 % of the labels "
                "come by then, and a window closes."
            )
    for row in outcome.settings:
        if row.today and row.other_alarms_a_month is not None:
            length = log.end_of_labels(row.task) - log.start
            chance = row.other_alarms_a_month * length / MONTH_SECONDS
            if chance >= _CHANCE_NOTED:
                yield (
                    f"{row.task}: alarms outside of the incident are so many that about {chance:.1f} would "
                    "begin in a period of this length by themselves, so one in it says little."
                )
    refused = Counter((row.task, row.refused) for row in outcome.settings if row.refused)
    for (task, reason), rows in refused.items():
        yield f"{task}: {count(rows, 'setting')} cannot be used: {reason}"
    if any(each.configuration for each in outcome.recommendations):
        yield "One incident is one example: run `blindsight backtest` with the new sections first."

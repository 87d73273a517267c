"""The backtest: the history, the injected replays on all cores, and the comparison of both."""

from __future__ import annotations

import math
import pickle
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from connectors.files import is_pipe
from monitor.base.errors import ConfigError
from monitor.cli.backtest.history import HistoryReplay, HistoryRun, SavedStart, WantedStart
from monitor.cli.backtest.injecting import InjectedReplay, Model, classes_of
from monitor.cli.backtest.pool import processes_for, run_jobs
from monitor.cli.backtest.results import (
    ACCURACY,
    MONTH_SECONDS,
    WAYS,
    BacktestDocument,
    Detection,
    DropStart,
    HistoricAlarm,
    HistoryOutcome,
    Injection,
    delays_of,
    false_alarms_predicted,
)
from monitor.cli.backtest.scratch import scratch_folder
from monitor.cli.backtest.signals import SignalLog
from monitor.cli.replay import check_files, chunks_of, unused_of
from monitor.cli.trial import ReferenceTrial
from monitor.config.file import load_config
from monitor.config.root import Config, Task
from monitor.engine.chunks import split
from monitor.engine.engine import EngineSettings
from monitor.export.page.period import parse_time
from monitor.parallel.planning import notes_of_order
from monitor.reports.window_report import rfc3339
from monitor.stats.drops import chance, replaced_share

FEWEST_WINDOWS = 20
"""The least number of windows after the reference: five for each quarter, at whose ends drops begin."""

DEFAULT_DROPS = (1.0, 3.0, 5.0)
DEFAULT_STARTS = ("25%", "50%", "75%")
_MOST_SEED = (1 << 32) - 1
_MODELS_NAMED = 4  # in a note
_PER_CENT = re.compile(r"(\d+(?:\.\d+)?) ?%")


@dataclass(frozen=True, slots=True)
class BacktestOptions:
    """The options of a backtest.

    Parameters
    ----------
    config : str
        The path of the configuration.
    files : sequence of Path
    drops : sequence of float
        Percentage points.
    starts : sequence of str
        Starting points: shares of the files after the reference (``25%``), or times.
    seed : int
        0 to 4,294,967,295.
    processes : int or None
        The number of processes; by default the number of cores, or one for small files.
    incident : tuple of str or None
        The start and the end of an incident: see `backtest_incident`.
    """

    config: str
    files: Sequence[Path]
    drops: Sequence[float] = DEFAULT_DROPS
    starts: Sequence[str] = DEFAULT_STARTS
    seed: int = 0
    processes: int | None = None
    incident: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Backtest:
    """The result of a backtest.

    Parameters
    ----------
    document : BacktestDocument
    history : HistoryRun
        The replay of the history as it was, for the report.
    """

    document: BacktestDocument
    history: HistoryRun


def backtest(options: BacktestOptions) -> Backtest:
    """Replay files as they were, and again with injected drops.

    Raises
    ------
    ConfigError
        An option is out of range, or the files are too short.
    SourceError
        A file is damaged.
    """
    drops = _checked_drops(options.drops)
    wanted = _checked_starts(options.starts)
    config = load_config(options.config)
    tasks = _tasks_with_accuracy(config)
    if not tasks:
        without = [name for name, task in config.scored_tasks.items() if task.share == ACCURACY]
        numeric = (
            " (drops of kind: regression are not supported yet; --incident works)"
            if any(task.layout.numeric for task in config.scored_tasks.values())
            else ""
        )
        add = f"accuracy to tasks.{without[0]}.metrics" if without else "a task with scores or confidences"
        raise ConfigError(
            f"{options.config}: no task has an accuracy, which a backtest lowers{numeric}; add {add}"
        )
    check_inputs(options)
    trial = ReferenceTrial(config)
    settings = trial.engine_settings(event_time=True)
    with scratch_folder() as folder:
        history = HistoryReplay(config, settings, options.files, wanted, tasks, folder)
        history.run()
        _refuse_short(tasks, history)
        _refuse_early(tasks, history, wanted)
        jobs = _jobs(options, config, settings, history, drops)
        detections = _injected(jobs, processes_for(options.files, options.processes))
    run = history.runs[history.labels > 0]
    return Backtest(_document(config, history, detections, trial.report.rates), run)


def check_inputs(options: BacktestOptions) -> None:
    """Raise ConfigError if the files cannot be read several times, or if the seed is out of range."""
    if not 0 <= options.seed <= _MOST_SEED:
        raise ConfigError(f"--seed: expected 0 to {_MOST_SEED}, got {options.seed}; give another number")
    if pipe := next(filter(is_pipe, options.files), None):
        raise ConfigError(f"{pipe} is a pipe, which can be read only once; give files, which are read again")
    check_files(options.files, Path())


def _checked_drops(drops: Sequence[float]) -> list[float]:
    for points in drops:
        if not 0.1 <= points <= 50:
            raise ConfigError(
                f"--drop: expected 0.1 to 50 percentage points, got {points:g}; give another size"
            )
    return sorted({points / 100 for points in drops})


def _tasks_with_accuracy(config: Config) -> dict[str, Task]:
    """Return the tasks whose accuracy is estimated."""
    tasks = config.scored_tasks
    return {n: task for n, task in tasks.items() if task.share == ACCURACY and ACCURACY in task.metrics}


def _checked_starts(texts: Sequence[str]) -> list[WantedStart]:
    """Return the starting points that the options state, each once."""
    starts = map(_wanted, texts)
    by_place = {each.name if each.time is None else each.time: each for each in starts}
    return list(by_place.values())


def _wanted(text: str) -> WantedStart:
    """Return the starting point that an option states."""
    if share := _PER_CENT.fullmatch(text.strip()):
        value = float(share[1])
        if not 0 <= value < 100:
            raise ConfigError(f"--at: expected 0 % to 99 % of the files after the reference, got {text!r}")
        return WantedStart(f"{value:g} %", share=value / 100)
    try:
        return WantedStart(text, time=parse_time(text))
    except ValueError as error:
        raise ConfigError(
            f"--at: expected a date, a time or a share of the files, such as 2026-11-20 or 25%, got {text!r}"
        ) from error


def _refuse_short(tasks: Mapping[str, Task], history: HistoryReplay) -> None:
    """Raise ConfigError if the files have too few windows after the reference, or lack a starting point."""
    logs = history.runs[history.labels > 0].signals
    model, windows = max(
        ((m, log.windows) for m, log in logs.items() if m.task in tasks),
        key=lambda each: each[1],
        default=(None, 0),
    )
    if model is None or windows < FEWEST_WINDOWS:
        name, task = next(iter(tasks.items())) if model is None else (model.task, tasks[model.task])
        about = f"tasks.{name}" if model is None else f"{model.task}/{model.model}"
        first = task.reference.first_windows
        reference = f", after the {first} of reference.first_windows" if first else ""
        raise ConfigError(
            f"{about}: the files have {windows} windows of {task.window.size} answers that a chart judges, "
            f"and a backtest needs {FEWEST_WINDOWS} or more{reference}; give longer files, or a smaller "
            "window.size"
        )
    for missing in history.missing_starts():
        first_time, last_time = (
            "no time" if math.isnan(time) else rfc3339(time)[:16] for time in history.times
        )
        raise ConfigError(
            f"--at: {missing.name} is outside of the files, whose answers have times from {first_time} to "
            f"{last_time}; give a time between them, or a share such as 50%"
        )


def _refuse_early(tasks: Mapping[str, Task], history: HistoryReplay, wanted: Sequence[WantedStart]) -> None:
    """Raise ConfigError if no model has a baseline at a requested time, so that the drop would be in it."""
    times = {each.name for each in wanted if each.time is not None}
    for start in history.starts:
        based = {model for models in start.models.values() for model in models if model.task in tasks}
        if start.point.name not in times or based:
            continue
        logs = history.runs[history.labels > 0].signals
        first = min(log.first_time for model, log in logs.items() if model.task in tasks and log.windows)
        later = f"give a time after {rfc3339(first)[:19]}"
        name = next((name for name, task in tasks.items() if task.reference.first_windows), None)
        if name is None:
            raise ConfigError(f"--at: no model has a baseline at {start.point.name}; {later}")
        raise ConfigError(
            f"--at: {start.point.name} lies in reference.first_windows of tasks.{name}, so the drop would be "
            f"part of the baseline; {later}"
        )


@dataclass(frozen=True, slots=True)
class InjectionJob:
    """One injected replay, from a starting point on.

    Parameters
    ----------
    config : Config
    settings : EngineSettings
    files : tuple of Path
    start : SavedStart
    injection : Injection
    shares : mapping of str to float
        The share of the labels to replace, by task.
    history : mapping of Model to SignalLog
        The signals without the drop.
    seed : int
    """

    config: Config
    settings: EngineSettings
    files: tuple[Path, ...]
    start: SavedStart
    injection: Injection
    shares: Mapping[str, float]
    history: Mapping[Model, SignalLog]
    seed: int


def _jobs(
    options: BacktestOptions,
    config: Config,
    settings: EngineSettings,
    history: HistoryReplay,
    drops: Sequence[float],
) -> list[InjectionJob]:
    """Return the injected replays; those that take longest are first, so that all cores end together."""
    ways = [way for way in WAYS if history.labels or not way[1]]
    shares = {drop: _shares(config, history.runs[history.labels > 0].signals, drop) for drop in drops}
    common = config, settings, tuple(options.files)
    jobs = [
        InjectionJob(
            *common, start, Injection(drop, *way), shares[drop], history.runs[way[1]].signals, options.seed
        )
        for start in history.starts
        for drop in drops
        for way in ways
    ]
    return sorted(
        jobs, key=lambda job: (not job.injection.labelled, job.injection.drop, job.start.point.record)
    )


def _shares(config: Config, logs: Mapping[Model, SignalLog], drop: float) -> dict[str, float]:
    """Return the share of the labels to replace in each task, so that its models lose `drop` on average."""
    shares = {}
    for name, task in _tasks_with_accuracy(config).items():
        known = [
            log.accuracy for model, log in logs.items() if model.task == name and log.accuracy is not None
        ]
        if not known:
            continue
        accuracy, classes = sum(known) / len(known), classes_of(task)
        most = accuracy - chance(classes)
        if drop >= most:
            raise ConfigError(
                f"--drop: expected less than {100 * most:.1f} percentage points for the task {name}, whose "
                f"accuracy of {100 * accuracy:.1f} % would be that of chance, got {100 * drop:g}; give a "
                "smaller drop"
            )
        shares[name] = replaced_share(accuracy, drop, classes)
    return shares


def _injected(jobs: Sequence[InjectionJob], processes: int) -> list[Detection]:
    """Run the jobs, and return their outcomes in a fixed order."""
    number = {job.start.point.name: job.start.point.number for job in jobs}
    detections = [each for several in run_jobs(replay_injected, jobs, processes) for each in several]
    return sorted(
        detections,
        key=lambda each: (
            each.task,
            each.model,
            not each.known,
            each.labelled,
            each.drop,
            number[each.start],
        ),
    )


def replay_injected(job: InjectionJob) -> list[Detection]:
    """Replay the files from a starting point with a drop, until each model's alarm; return the outcomes."""
    replay = InjectedReplay(
        job.settings,
        pickle.loads(job.start.states[job.injection.labelled].read_bytes()),
        job.injection,
        job.start.point,
        job.shares,
        job.history,
        job.seed,
    )
    positions, skipped = job.start.positions, job.start.records
    for path in job.files[job.start.file :]:
        for whole, _ in chunks_of(job.config, path, positions):
            replay.absorb(split(whole, skipped)[1] if skipped else whole)
            skipped = 0
            if replay.ended:
                return replay.detections
        positions = {}
    replay.finish()
    return replay.detections


def _document(
    config: Config,
    history: HistoryReplay,
    detections: Sequence[Detection],
    rates: Mapping[tuple[str, str | None], float],
) -> BacktestDocument:
    counted = {each.start for each in detections}
    return BacktestDocument(
        starts=[
            DropStart(
                name=start.point.name,
                time=rfc3339(start.point.time) if start.point.timed else None,
                record=start.point.record,
            )
            for start in sorted(history.starts, key=lambda each: each.point.record)
            if start.point.name in counted
        ],
        history=history_outcomes(history, rates),
        delays=delays_of(detections),
        detections=list(detections),
        incident=None,
        picture=None,
        page=None,
        notes=list(_notes(config, history, detections)),
    )


def _notes(config: Config, history: HistoryReplay, detections: Sequence[Detection]) -> Iterator[str]:
    """Yield a sentence for each part of the backtest that is missing, with the reason."""
    if not history.labels:
        yield "The files have no labels, so only drops that the model knows were injected."
    logs, tasks = history.runs[history.labels > 0].signals, _tasks_with_accuracy(config)
    known = {model.task for model, log in logs.items() if log.accuracy is not None}
    for name, task in config.scored_tasks.items():
        others = "so drops were injected into the other tasks only"
        if name in tasks and name not in known:
            yield f"tasks.{name} has no window whose accuracy a chart judges, {others}."
        elif name not in tasks and task.share == ACCURACY:
            yield f"tasks.{name} has no accuracy in its metrics, {others}."
        elif name not in tasks:
            yield f"tasks.{name} has no accuracy, {others}."
    yield from _notes_of_starts([model for model in logs if model.task in known], history, detections)
    if history.labels and (order := notes_of_order([history.facts])):
        yield from order
        yield (
            "A drop that only labels show cannot be detected before they come, and counts as missed if no "
            "window closes after them."
        )
    unused = unused_of([history.facts])
    if rejected := unused.answers.total() + unused.labels.total():
        yield (
            f"{rejected:,} of {unused.received:,} answers and labels could not be used: `blindsight replay` "
            "lists the first."
        )


def _notes_of_starts(
    models: Sequence[Model], history: HistoryReplay, detections: Sequence[Detection]
) -> Iterator[str]:
    """Yield a sentence for the starting points of each model at which no drop counts, with the reason."""
    counted = {(Model(each.task, each.model), each.start) for each in detections}
    before: dict[tuple[str, ...], list[Model]] = {}
    after: dict[tuple[str, ...], list[Model]] = {}
    for model in sorted(models):
        unbased, unanswered = list[str](), list[str]()
        for start in history.starts:
            if (model, start.point.name) not in counted:
                based = any(model in each for each in start.models.values())
                (unanswered if based else unbased).append(start.point.name)
        before.setdefault(tuple(unbased), []).append(model)
        after.setdefault(tuple(unanswered), []).append(model)
    for starts, several in before.items():
        if starts:
            yield f"{_named(several)}: no baseline yet at {', '.join(starts)}, so no drop was injected there."
    for starts, several in after.items():
        if starts:
            yield f"{_named(several)}: no answers after {', '.join(starts)}, so drops there do not count."


def _named(models: Sequence[Model]) -> str:
    """Return the names of the first models, and the number of the others."""
    names = ", ".join(f"{task}/{model}" for task, model in models[:_MODELS_NAMED])
    return f"{names} and {more:,} more" if (more := len(models) - _MODELS_NAMED) > 0 else names


def history_outcomes(
    history: HistoryReplay, rates: Mapping[tuple[str, str | None], float]
) -> list[HistoryOutcome]:
    """Return the alarms of each model with judged windows; `rates` are those of `check`."""
    run, bare = history.runs[history.labels > 0], history.runs[False]
    return [
        _history_outcome(model, log, run, bare, rates)
        for model, log in sorted(run.signals.items())
        if log.windows
    ]


def _history_outcome(
    model: Model,
    log: SignalLog,
    run: HistoryRun,
    bare: HistoryRun,
    rates: Mapping[tuple[str, str | None], float],
) -> HistoryOutcome:
    by_series = run.period.histories.alarms()
    alarms = [
        HistoricAlarm(metric=metric, window=alarm.window, time=rfc3339(alarm.time))
        for metric, raised in by_series.get((*model, ""), {}).items()
        for alarm in raised
    ]
    months = (log.last_time - log.first_time) / MONTH_SECONDS if log.timed else None
    return HistoryOutcome(
        task=model.task,
        model=model.model,
        windows=log.windows,
        accuracy=log.accuracy,
        months=months,
        alarms=sorted(alarms, key=lambda each: each.window),
        per_month=len(alarms) / months if months else None,
        predicted=false_alarms_predicted(rates, *model, log.windows),
        improvements=log.improvements,
        alarms_without_labels=_count(bare.period.histories.alarms().get((*model, ""), {})),
        groups_alarms=sum(
            _count(metrics)
            for (task, name, group), metrics in by_series.items()
            if group and (task, name) == model
        ),
    )


def _count(metrics: Mapping[str, Sequence[object]]) -> int:
    return sum(map(len, metrics.values()))

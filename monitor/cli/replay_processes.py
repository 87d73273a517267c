"""The command `blindsight replay --processes N`, which writes the output of `replay` with several cores.

This process gives orders and writes the results (`monitor.parallel.scheduling`); worker processes
(`replay_worker`) carry out one order after another.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from connectors.files import is_pipe
from connectors.splits import read_split, splits_of
from monitor.base.errors import ConfigError, SinkError
from monitor.cli.accounts import accounts_of
from monitor.cli.process import processes_for, start_fork_server
from monitor.cli.replay import (
    REJECTS,
    Progress,
    Replayed,
    Written,
    check_files,
    draw,
    order_notes,
    replay,
    series_of,
    unused_of,
    views_of_tasks,
)
from monitor.cli.replay_worker import PIECE_BYTES, WorkerJob, decoder_of, serve
from monitor.cli.trial import ReferenceTrial
from monitor.config.file import load_config
from monitor.config.root import Config
from monitor.parallel.computing import used
from monitor.parallel.orders import EndedStream
from monitor.parallel.owners import Owners, Together
from monitor.parallel.partitioning import StreamPartitioner
from monitor.parallel.planning import Facts, most_groups, note_share, notes_of, units_of, why_whole
from monitor.parallel.scheduling import Scheduler, started
from monitor.reports.views import EngineView

_MOST_PROCESSES = 1024
_SAMPLED = 16  # files whose first MiB is read to distribute the models


def replay_on_cores(
    config_path: str, files: Sequence[Path], out: Path, progress: Progress, processes: int | None = None
) -> Replayed:
    """Compute the windows of files with several processes.

    The files in `out` have the same bytes as the files of `monitor.cli.replay.replay`, which does the work if
    a single process is enough, or if a file is a pipe.

    Parameters
    ----------
    config_path : str
    files : sequence of Path
    out : Path
    progress : callable
    processes : int, optional
        The number of worker processes. The default is the number of cores, but at most one worker for each
        `monitor.cli.process.BYTES_A_PROCESS` of the input.

    Raises
    ------
    ConfigError, SourceError, SinkError
        The same as for `replay`; also a ConfigError if `processes` is too small or too large.
    ClusterError
        A worker was killed, or died.
    """
    if processes is not None and not 1 <= processes <= _MOST_PROCESSES:
        raise ConfigError(
            f"--processes: expected 1 to {_MOST_PROCESSES}, got {processes}; leave it out for as many as "
            "there are cores"
        )
    config = load_config(config_path)
    number = processes_for(files, processes)
    reason = why_alone(files) if number > 1 else None
    if number == 1 or reason:
        done = replay(config_path, files, out, progress)
        return done if reason is None else replace(done, notes=(*done.notes, reason))
    start_fork_server()
    settings = ReferenceTrial(config).engine_settings(event_time=True)
    check_files(files, out)
    splits = tuple(split for path in files for split in splits_of(path, PIECE_BYTES))
    whole: dict[str, str] = {}
    while True:
        with tempfile.TemporaryDirectory(prefix="blindsight-replay-") as folder:
            job = WorkerJob(config, settings, splits, Path(folder))
            outcome = _attempt(job, files, out, progress, number, whole)
        if isinstance(outcome, Replayed):
            return outcome
        whole = outcome


def why_alone(files: Sequence[Path]) -> str | None:
    """Return a sentence with the reason why only one process can be used, or None if several can be used."""
    for path in files:
        if is_pipe(path):
            return f"One process computed everything: {path} is a pipe, which only one process can read."
    return None


def _attempt(
    job: WorkerJob, files: Sequence[Path], out: Path, progress: Progress, number: int, whole: dict[str, str]
) -> Replayed | dict[str, str]:
    """Return the replay, or the tasks that must be kept whole if separated models are not independent."""
    owners = Owners(job.settings, number, _sampled(job, files), whole)
    written = Written(job.config, out)
    reported: Counter[Path] = Counter()

    def progressed(path: Path, size: int) -> None:
        reported[path] += size
        progress(path, size)

    try:
        with started(serve, job, owners) as workers:
            paths = [Path(split.path) for split in job.splits]
            run = Scheduler(paths, job.folder, workers, owners, written.lines, written.rejected, progressed)
            ended = run.run()
    except Together as error:
        for path, size in reported.items():
            progress(path, -size)
        return owners.whole | error.tasks
    finally:
        complete = written.close()
    if not complete:
        raise SinkError(f"{out}: the disk did not take every line; make room and run it again")
    return _result(job.config, out, owners, run, ended, written)


def _result(
    config: Config, out: Path, owners: Owners, run: Scheduler, ended: Sequence[EndedStream], written: Written
) -> Replayed:
    labelled = {series: rows for one in ended for series, rows in one.labelled.items()}
    written.period.join([one.period for one in ended], run.series)
    views = [view for one in ended for view in one.views]
    waiting = [each for one in ended for each in one.waiting]
    accounts = accounts_of(config, views, waiting, [run.facts])
    units = units_of([run.facts], owners.whole)
    reasons = owners.whole | why_whole(owners.settings, [run.facts])
    most = max(one.resident for one in ended), used()[0]
    memory = (
        f"{len(ended)} processes read and computed, each with at most {most[0] / 1e6:,.0f} MB of memory; "
        f"the one that wrote had {most[1] / 1e6:,.0f} MB."
    )
    series = series_of(config, views, owners.order)
    return Replayed(
        EngineView(series=series, tasks=views_of_tasks(config, views)),
        written.windows,
        draw(labelled, written.period, out, views),
        written.period.histories.alarms(),
        unused_of([run.facts]),
        out / REJECTS if config.rejects else None,
        (*notes_of(units, reasons, len(ended)), *order_notes([run.facts], accounts), memory),
        accounts,
        tuple(one.seconds for one in ended),
        written.period.faults(),
        written.period.shared(series),
    )


def _sampled(job: WorkerJob, files: Sequence[Path]) -> list[Facts]:
    """Return facts about the input from the first MiB of each file: the models' answers, and labels."""
    facts_of_files = []
    caps = most_groups(job.settings)
    first = {split.path: split for split in reversed(job.splits)}
    for path in list(dict.fromkeys(files))[:_SAMPLED]:
        source, decoder = decoder_of(job.config, first[str(path)])
        raws = next(read_split(source, first[str(path)], 1), ())
        read = sum(len(getattr(raw, "data", b"")) for raw in raws)
        times = max(1.0, path.stat().st_size / read) if read else 1.0
        facts = Facts()
        for share in StreamPartitioner().share(decoder.decode(raws)):
            note_share(facts, share, 0, caps[share.task])
        models = {name: [place, int(rows * times)] for name, (place, rows) in facts.models.items()}
        labels = Counter({name: int(count * times) for name, count in facts.labels.items()})
        facts_of_files.append(replace(facts, models=models, labels=labels))
    return facts_of_files

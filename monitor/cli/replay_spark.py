"""The command `blindsight replay --engine spark`. Its output files are either complete or absent."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from connectors.formats.wires.choice import wire_for
from monitor.base.errors import ConfigError, SinkError
from monitor.cli.accounts import accounts_of
from monitor.cli.replay import (
    OURS,
    REJECTS,
    Replayed,
    Written,
    draw,
    order_notes,
    series_of,
    unused_of,
    views_of_tasks,
)
from monitor.cli.trial import ReferenceTrial
from monitor.config.file import load_config
from monitor.config.root import Config
from monitor.export.page.period import Period
from monitor.export.sinks.line_file import cannot_write
from monitor.parallel.planning import rows_of
from monitor.reports.reader import from_json
from monitor.reports.views import EngineView

if TYPE_CHECKING:
    from connectors.spark.replaying import SparkReplay

TABLE = "windows.parquet"
DONE = "_SUCCESS"
_ASIDE = ".unfinished"


@dataclass(frozen=True, slots=True)
class OnSpark:
    """The settings of a replay on Spark.

    Parameters
    ----------
    master : str
        The address of the cluster; ``local[*]`` means every core of this machine.
    settings : sequence of str
        Settings of Spark, as ``key=value``.
    split_bytes : int or None
        Size of the part of a file that one Spark task reads; by default `connectors.splits.SPLIT_BYTES`.
    """

    master: str = "local[*]"
    settings: Sequence[str] = ()
    split_bytes: int | None = None


def replay_on_spark(config_path: str, paths: Sequence[Path], out: Path, where: OnSpark) -> Replayed:
    """Compute the windows of files, and of all files in folders, on Spark.

    The files in `out` have the same bytes as the files of a replay in one process. In addition, there is a
    table with the windows. The files are written to a temporary folder next to `out`, and moved at the end.
    The file `_SUCCESS` is written last. As long as it is absent, the files may be incomplete.

    Raises
    ------
    ConfigError, MissingExtraError
        The configuration, a file, the folder, Spark or Java cannot be used. Nothing was written.
    SourceError
        A file is damaged.
    SinkError
        The disk did not accept all lines.
    ClusterError
        Spark could not be reached, or failed.
    """
    from connectors.spark.session import check_ready, settings_from, started

    check_ready()

    from connectors.spark.inputs import files_of, mounted
    from connectors.spark.job import Job
    from connectors.spark.replaying import replayed
    from connectors.spark.tables import refuse_types
    from connectors.splits import SPLIT_BYTES, splits_of

    spark_settings = settings_from(where.settings)
    config = load_config(config_path)
    settings = ReferenceTrial(config).engine_settings(event_time=True)
    files = files_of(paths)
    for file in files:
        refuse_types(file, wire_for(config, str(file)).columns)
    size = where.split_bytes or SPLIT_BYTES
    job = Job(config, settings, tuple(split for file in files for split in splits_of(file, size)))
    out = mounted(out)
    aside = _begin(out, files)
    try:
        with started(where.master, spark_settings, "blindsight replay", is_replay=True) as session:
            done = replayed(session, job)
            period, windows = _write(config, done, aside)
        labelled = {series: rows for unit in done.ended for series, rows in unit.labelled.items()}
        pictures = draw(labelled, period, aside, [unit.view for unit in done.ended])
        _put_in_place(aside, out)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return _replayed(config, out, done, period, windows, tuple(out / picture.name for picture in pictures))


def _replayed(
    config: Config, out: Path, done: SparkReplay, period: Period, windows: int, pictures: tuple[Path, ...]
) -> Replayed:
    views = [unit.view for unit in done.ended]
    accounts = accounts_of(config, views, [unit.waiting for unit in done.ended], done.facts)
    series = series_of(config, views, rows_of(done.facts))
    return Replayed(
        EngineView(series=series, tasks=views_of_tasks(config, views)),
        windows,
        pictures,
        period.histories.alarms(),
        unused_of(done.facts),
        out / REJECTS if config.rejects else None,
        (*done.notes, *order_notes(done.facts, accounts)),
        accounts,
        faults=period.faults(),
        shared=period.shared(series),
    )


def _begin(out: Path, files: Sequence[Path]) -> Path:
    """Create a folder for incomplete files, remove the files of an earlier replay, and return the folder."""
    if out.exists() and not out.is_dir():
        raise ConfigError(f"--out: {str(out)!r} is not a folder; give another path")
    for name in (*OURS, TABLE):
        if (out / name).exists() and any(path.samefile(out / name) for path in files):
            raise ConfigError(f"--out: {name} would replace a file that is to be read; give another folder")
    aside = out / _ASIDE
    try:
        shutil.rmtree(aside, ignore_errors=True)  # left by a replay that was killed
        aside.mkdir(parents=True)
        for name in (DONE, *OURS, TABLE):
            (out / name).unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(f"--out: {cannot_write(str(aside), error)}") from error
    return aside


def _write(config: Config, done: SparkReplay, aside: Path) -> tuple[Period, int]:
    """Write lines, table and rejects, and return their period and the number of windows."""
    from connectors.spark.tables import WindowTable

    written = Written(config, aside)
    complete = False
    try:
        with WindowTable(aside / TABLE) as table:
            for line in done.lines():
                written.closed([from_json(line)])
                table.add(line)
        if config.rejects:
            written.rejected(done.rejects())
    finally:
        complete = written.close()
    if not complete:
        raise SinkError(f"{aside.parent}: the disk did not take every line; make room and run it again")
    return written.period, written.windows


def _put_in_place(aside: Path, out: Path) -> None:
    try:
        for path in sorted(aside.iterdir()):
            path.replace(out / path.name)
        (out / DONE).touch()
    except OSError as error:
        raise SinkError(cannot_write(str(out), error)) from error

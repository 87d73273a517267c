"""`blindsight replay`: the daemon's computation over files, as fast as it goes, in one thread."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from connectors.base import EndOfSource, Raw, RawBlock
from connectors.files import FileSource
from connectors.formats.decoder import Decoder
from monitor.commands.daemon import engine_settings
from monitor.config import Config
from monitor.configfile import load_config
from monitor.engine import Engine, layouts
from monitor.errors import ConfigError, SinkError, SourceError
from monitor.export.reports import ReportWriter, cannot_write
from monitor.export.svg import stacked_svg
from monitor.pictures import Histories
from monitor.records import Chunk
from monitor.report import WindowReport, to_json
from monitor.view import EngineView

REPORTS = "windows.ndjson"
_MESSAGES_KEPT = 5
_NAME_BYTES = 150  # file systems allow 255; the ending and a number come on top
_WRITE_SECONDS = 60.0  # a replay waits for its disk: a missing line would be worse than a late one

Progress = Callable[[Path, int], None]
"""Told the file that is being read, and how many bytes of it have been, where that is known."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a replay did.

    Parameters
    ----------
    view : EngineView
        The engine at the end.
    windows : int
        Closed windows written.
    pictures : tuple of Path
    rejects : tuple of str
        The first messages of what could not be used.
    """

    view: EngineView
    windows: int
    pictures: tuple[Path, ...]
    rejects: tuple[str, ...]


def replay(config_path: str, files: Sequence[Path], out: Path, progress: Progress) -> Replayed:
    """Compute the windows of files, one file after the other in the order given.

    Windows age by the records' own times, so that the same files give the same bytes.

    Raises
    ------
    ConfigError
        The configuration, a file or the folder cannot be used; nothing was written.
    SourceError
        A file turned out to be damaged.
    SinkError
        The disk did not take everything.
    """
    config = load_config(config_path)
    engine = engine_settings(config, event_time=True).build()
    _check(files, out)
    writer = _open_reports(out)
    histories = Histories()
    messages: list[str] = []
    windows = 0

    def write(reports: list[WindowReport]) -> None:
        nonlocal windows
        for report in reports:
            writer.write(to_json(report), wait_seconds=_WRITE_SECONDS)
        histories.add(reports)
        windows += len(reports)

    try:
        for chunk in _chunks(config, files, progress):
            write(engine.absorb(chunk, 0.0))
            few = chunk.rejects[: _MESSAGES_KEPT - len(messages)]
            messages += [f"{r.partition}: {r.position}: {r.message}" for r in few]
        write(engine.finish())
    finally:
        complete = writer.close(_WRITE_SECONDS)
    if not complete or writer.lost:
        raise SinkError(f"{out / REPORTS}: the disk did not take every window; make room and run it again")
    return Replayed(engine.view(), windows, _draw(engine, histories, out), tuple(messages))


def _check(files: Sequence[Path], out: Path) -> None:
    """Look at every file before the first is read: the last may be hours away."""
    for path in files:
        source = FileSource(path)
        try:
            source.open({})
        except SourceError as error:
            raise ConfigError(
                str(error) if path.is_file() else f"There is no file {path}; correct the path"
            ) from error
        finally:
            source.close()
        if (out / REPORTS).exists() and path.samefile(out / REPORTS):
            raise ConfigError(
                f"--out: the reports would replace {path}, which is to be read; give another folder"
            )


def _open_reports(out: Path) -> ReportWriter:
    """Begin the reports file anew."""
    if out.exists() and not out.is_dir():
        raise ConfigError(f"--out: {str(out)!r} is not a folder; give another path")
    writer = ReportWriter(str(out / REPORTS))
    try:
        out.mkdir(parents=True, exist_ok=True)
        (out / REPORTS).unlink(missing_ok=True)
        writer.start()
    except OSError as error:
        raise ConfigError(f"--out: {cannot_write(str(out / REPORTS), error)}") from error
    except SinkError as error:
        raise ConfigError(str(error).replace("reports.path", "--out", 1)) from error
    return writer


def _chunks(config: Config, files: Sequence[Path], progress: Progress) -> Iterator[Chunk]:
    known = layouts(config.tasks)
    for path in files:
        source = FileSource(path)
        decoder = Decoder(known, source.name)
        source.open({})
        try:
            while True:
                raws = source.read(0.0)
                yield decoder.decode(raws)
                progress(path, _bytes_read(raws))
        except EndOfSource:
            continue
        finally:
            source.close()


def _bytes_read(raws: Sequence[Raw]) -> int:
    return sum(len(raw.data) for raw in raws if isinstance(raw, RawBlock))


def _draw(engine: Engine, histories: Histories, out: Path) -> tuple[Path, ...]:
    """A picture a model, and one a group, beside the reports."""
    paths: list[Path] = []
    for series, charts in histories.charts(engine.labelled()).items():
        path = out / f"{file_name(*series)}.svg"
        if path in paths:  # two names that differ only in what a file's name may not hold
            path = path.with_name(f"{path.stem}-{len(paths)}.svg")
        try:
            path.write_text(stacked_svg(charts), encoding="utf-8")
        except OSError as error:
            raise SinkError(cannot_write(str(path), error)) from error
        paths.append(path)
    return tuple(paths)


def file_name(task: str, model: str, group: str) -> str:
    """A file's name for a series: no separators, nothing hidden, at most 150 bytes in UTF-8.

    Examples
    --------
    >>> file_name("toxicity", "erm/v2", "region=eu")
    'toxicity-erm_v2-region=eu'
    """
    parts = [re.sub(r"[^\w.=+-]", "_", part) for part in (task, model, group) if part]
    name = "-".join(parts).lstrip(".").encode("utf-8", "replace")
    return name[:_NAME_BYTES].decode("utf-8", "ignore")

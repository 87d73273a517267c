"""Input files in splits that can be read side by side, in the order in which one process would read them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO
from urllib.parse import unquote

from connectors.files import is_pipe, why_not_a_file
from connectors.formats.decode.structs import MAX_LINE_BYTES
from connectors.formats.files.tables import open_parquet
from monitor.base.errors import ConfigError

SPLIT_BYTES = 32 << 20
"""Of NDJSON some 200,000 records: seconds of work, so that what is lost with an executor is soon made up."""

_WHOLE = (".csv", ".gz", ".zst")
_HIDDEN = ("_", ".")
_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/+(.+)")  # of two letters or more: `C:/` is a disk


@dataclass(frozen=True, slots=True)
class Split:
    """A part of a file, from one record's start to another's.

    Parameters
    ----------
    path : str
        As it is named in reports.
    start : int
        Byte offset, or row of a table.
    stop : int or None
        Where the next split begins; None at the file's end.
    """

    path: str
    start: int
    stop: int | None


def files_of(paths: Sequence[Path]) -> list[Path]:
    """The files, and those in the folders, which are in the order of their names.

    Names that begin with ``_`` or ``.`` are passed over, as Spark and Hadoop do: they are marks of a job,
    not its output.

    Raises
    ------
    ConfigError
        Something is no file, nothing is in a folder, or a path is of a file system that is not mounted.
    """
    found: list[Path] = []
    for path in map(mounted, paths):
        if path.is_dir():
            inside = sorted(p for p in path.rglob("*") if p.is_file() and not _hidden(p.relative_to(path)))
            if not inside:
                raise ConfigError(f"{path} is a folder without a file in it; correct the path")
            found += inside
            continue
        problem = why_not_a_file(path)
        if problem is None and is_pipe(path):
            problem = f"{path} is a pipe, which only one process can read; write it to a file first"
        if problem is not None:
            raise ConfigError(problem)
        found.append(path)
    return found


def mounted(path: Path) -> Path:
    """A path as Python opens it: of a URI ``file:///…`` its path, of what has no scheme itself.

    Driver and executors open files themselves, not by Hadoop's file systems: these give lines without their
    places in the file, by which the reports tell which records a window used.

    Raises
    ------
    ConfigError
        It is a URI of another file system.

    Examples
    --------
    >>> mounted(Path("file:///data/a%20month")).as_posix()
    '/data/a month'
    >>> mounted(Path("s3a://logs/november"))
    Traceback (most recent call last):
    ...
    monitor.base.errors.ConfigError: s3a://logs/november: Spark's file systems are not read; mount s3a://logs on the driver and on every executor, by one path, and give that path
    """  # noqa: E501 - the line is the thing shown
    # `Path` makes one slash of two; a file of this name, where there is one, is meant.
    found = _URI.match(path.as_posix())
    if found is None or path.exists():
        return path
    scheme, rest = found.groups()
    if scheme.lower() == "file":
        return Path("/" + unquote(rest))
    root = f"{scheme}://{rest.partition('/')[0]}"
    raise ConfigError(
        f"{scheme}://{rest}: Spark's file systems are not read; mount {root} on the driver and on every "
        "executor, by one path, and give that path"
    )


def _hidden(path: Path) -> bool:
    return any(part.startswith(_HIDDEN) for part in path.parts)


def splits_of(path: Path, size: int = SPLIT_BYTES) -> list[Split]:
    """A file in splits of about so many bytes.

    NDJSON is cut where a line begins, Parquet between row groups. CSV, whose quotes may span lines, and what
    is compressed as a whole are one split.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "p.ndjson"
    >>> _ = path.write_bytes(b'{"id": 1}\\n' * 5)
    >>> [(split.start, split.stop) for split in splits_of(path, size=24)]
    [(0, 30), (30, None)]
    """
    starts = _starts(path, size)
    return [Split(str(path), a, b) for a, b in zip(starts, [*starts[1:], None], strict=True)]


def _starts(path: Path, size: int) -> list[int]:
    kind = path.suffix.lower()
    if kind == ".parquet":
        return _row_groups(path, size)
    return [0] if kind in _WHOLE else _lines(path, size)


def _lines(path: Path, size: int) -> list[int]:
    total = path.stat().st_size
    starts = [0]
    with path.open("rb") as file:
        while starts[-1] + size < total:
            start = _next_line(file, starts[-1] + size)
            if start >= total:
                break
            starts.append(start)
    return starts


def _next_line(file: BinaryIO, start: int) -> int:
    """Where the first line begins that does not begin before a place."""
    file.seek(start - 1)
    while piece := file.readline(MAX_LINE_BYTES):
        start += len(piece)
        if piece.endswith(b"\n"):
            break
    return start - 1


def _row_groups(path: Path, size: int) -> list[int]:
    starts, rows, held = [0], 0, 0
    with open_parquet(path) as file:
        for number in range(file.metadata.num_row_groups):
            group = file.metadata.row_group(number)
            if held and held + group.total_byte_size > size:
                starts.append(rows)
                held = 0
            rows += group.num_rows
            held += group.total_byte_size
    return starts

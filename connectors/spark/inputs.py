"""The input files of a job on Spark, which the driver and the executors open themselves."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote

from connectors.files import is_pipe, why_not_a_file
from monitor.base.errors import ConfigError

_HIDDEN = ("_", ".")
_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/+(.+)")  # a scheme has two letters or more: `C:/` is a disk


def files_of(paths: Sequence[Path]) -> list[Path]:
    """Return the paths, with each folder replaced by the files in it and in its subfolders, sorted by name.

    In a folder, names that begin with ``_`` or ``.`` are ignored, as in Spark and Hadoop: they mark the state
    of a job.

    Raises
    ------
    ConfigError
        A path cannot be read or is a pipe, a folder has no file, or a file system is not mounted.
    """
    files: list[Path] = []
    for path in map(mounted, paths):
        if path.is_dir():
            inside = sorted(p for p in path.rglob("*") if p.is_file() and not _hidden(p.relative_to(path)))
            if not inside:
                raise ConfigError(f"{path} is a folder without a file in it; correct the path")
            files += inside
            continue
        problem = why_not_a_file(path)
        if problem is None and is_pipe(path):
            problem = f"{path} is a pipe, which only one process can read; write it to a file first"
        if problem is not None:
            raise ConfigError(problem)
        files.append(path)
    return files


def mounted(path: Path) -> Path:
    """Return the local path of a URI ``file:///…``; return a path without a scheme unchanged.

    Driver and executors open files without Hadoop's file systems, because these return lines without
    positions. Reports identify the records of a window by position.

    Raises
    ------
    ConfigError
        The path is a URI of another file system.

    Examples
    --------
    >>> mounted(Path("file:///data/a%20month")).as_posix()
    '/data/a month'
    >>> mounted(Path("s3a://logs/november"))
    Traceback (most recent call last):
    ...
    monitor.base.errors.ConfigError: s3a://logs/november: Spark's file systems are not read; mount s3a://logs on the driver and on every executor, by one path, and give that path
    """  # noqa: E501 - the example shows a long line
    # `Path` makes one slash of two. An existing file of this name comes first.
    match = _URI.match(path.as_posix())
    if match is None or path.exists():
        return path
    scheme, rest = match.groups()
    if scheme.lower() == "file":
        return Path("/" + unquote(rest))
    root = f"{scheme}://{rest.partition('/')[0]}"
    raise ConfigError(
        f"{scheme}://{rest}: Spark's file systems are not read; mount {root} on the driver and on every "
        "executor, by one path, and give that path"
    )


def _hidden(path: Path) -> bool:
    return any(part.startswith(_HIDDEN) for part in path.parts)

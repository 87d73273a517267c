"""The files of a job on Spark: named one by one or by their folders, as driver and executors open them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote

from connectors.files import is_pipe, why_not_a_file
from monitor.base.errors import ConfigError

_HIDDEN = ("_", ".")
_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/+(.+)")  # of two letters or more: `C:/` is a disk


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

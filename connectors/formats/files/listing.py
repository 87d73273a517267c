"""Lists the files that match a shell pattern; a folder is listed once, even if links lead back to it."""

from __future__ import annotations

import glob
import os
import re
import stat
from collections.abc import Iterator, Sequence
from fnmatch import translate

_ANY_FOLDERS = "**"


def listed(pattern: str) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the plain files that match a pattern, each with its `os.stat` result.

    The names are the same as from `glob.glob`; ``**`` matches any number of folders. Below ``**`` each folder
    is visited once, under its own name rather than the name of a link, so that circular links do no harm.
    Folders without permission are skipped.

    Raises
    ------
    OSError
        An existing folder cannot be read.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> (folder / "loop").symlink_to(folder)
    >>> _ = (folder / "a.csv").write_text("id")
    >>> [os.path.relpath(name, folder) for name, _ in listed(f"{folder}/**/*.csv")]
    ['a.csv']
    """
    parts = pattern.split(os.sep)
    plain = next((i for i, part in enumerate(parts) if glob.has_magic(part)), len(parts) - 1)
    folder = os.sep.join(parts[:plain])
    root = os.sep if plain and not folder else folder
    return _below(root, [part for part in parts[plain:] if part])


def _below(folder: str, parts: Sequence[str]) -> Iterator[tuple[str, os.stat_result]]:
    part, *rest = parts
    if part == _ANY_FOLDERS and rest:
        for each in _folders(folder):
            yield from _below(each, rest)
    elif not glob.has_magic(part) and rest:
        yield from _below(os.path.join(folder, part), rest)
    else:
        fits, hidden = re.compile(translate(part)).match, part.startswith(".")
        for name, entry in _entries(folder):
            if not fits(entry.name) or (entry.name.startswith(".") and not hidden):
                continue
            if rest:
                if _is_folder(entry):
                    yield from _below(name, rest)
            elif (now := _plain(entry)) is not None:
                yield name, now


def _folders(root: str) -> Iterator[str]:
    """Yield a folder and all folders below it except hidden ones, once each, those behind links last."""
    visited: set[tuple[int, int]] = set()
    waiting, links = [root], list[str]()
    while waiting or links:
        folder = waiting.pop() if waiting else links.pop(0)
        try:
            now = os.stat(folder or os.curdir)
        except OSError:  # it was removed, or is a link to itself
            continue
        if (now.st_dev, now.st_ino) in visited:
            continue
        visited.add((now.st_dev, now.st_ino))
        yield folder
        inside = sorted(
            (name, entry.is_symlink())
            for name, entry in _entries(folder)
            if not entry.name.startswith(".") and _is_folder(entry)
        )
        links += [name for name, is_link in inside if is_link]
        waiting += [name for name, is_link in reversed(inside) if not is_link]


def _entries(folder: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Yield the entries of a folder, each with its name in the form of the pattern."""
    before = os.path.join(folder, "")
    try:
        with os.scandir(folder or os.curdir) as entries:
            for entry in entries:
                yield before + entry.name, entry
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def _plain(entry: os.DirEntry[str]) -> os.stat_result | None:
    try:
        now = entry.stat()
    except OSError:  # it was renamed or removed, or is a link to itself
        return None
    return now if stat.S_ISREG(now.st_mode) else None

"""The rejects file and its predecessor as a whole: lines taken out by id, and nothing kept for too long.

Who appends to the file and who takes lines out are two processes. Both hold the same lock on it while
they do, so that no line is lost between a reading and a renaming.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from monitor.errors import SinkError
from monitor.export.linefile import cannot_write, is_in_place


class _Line(msgspec.Struct):
    """What is read of a line; one of another program has neither."""

    raw: str = ""


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the rejects file of this name, so that nobody appends to it; at once where there is none."""
    while True:
        try:
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            yield
            return
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            if is_in_place(path, file):
                yield
                return
        finally:
            os.close(file)


def previous(path: Path) -> Path:
    """The name that a full file takes."""
    return path.with_name(f"{path.name}.1")


def remove_lines(path: Path, is_gone: Callable[[bytes], bool]) -> int:
    """Take out lines by the record that they hold; how many. An agent may be appending meanwhile.

    Each file is written anew beside the old one and then takes its name: a kill leaves either.

    Parameters
    ----------
    path : Path
        `rejects.path`.
    is_gone : callable
        Whether a record must go.

    Raises
    ------
    SinkError
        A file cannot be written.
    """
    try:
        with locked(path):
            return sum(_remove_from(each, is_gone) for each in (path, previous(path)) if each.is_file())
    except OSError as error:
        raise SinkError(f"rejects.path: {cannot_write(str(path), error)}") from error


def _remove_from(path: Path, is_gone: Callable[[bytes], bool]) -> int:
    draft = path.with_name(f".{path.name}.forgetting")
    removed = 0
    try:
        with path.open("rb") as old, draft.open("wb") as new:
            os.fchmod(new.fileno(), os.fstat(old.fileno()).st_mode & 0o777)
            for line in old:
                if is_gone(_record_of(line)):
                    removed += 1
                else:
                    new.write(line)
            new.flush()
            os.fsync(new.fileno())
        if removed:
            draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    return removed


def _record_of(line: bytes) -> bytes:
    """The record in a line; the line itself where it is none of ours, or was cut off."""
    with suppress(msgspec.MsgspecError, UnicodeDecodeError):
        return msgspec.json.decode(line, type=_Line).raw.encode()
    return line

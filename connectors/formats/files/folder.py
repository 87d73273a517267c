"""Folders that fill with tables (CSV, Parquet), here or in an object store: each file once it is complete."""

from __future__ import annotations

import glob
import logging
import os
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

from connectors.formats.files.compressed import DamagedFileError
from monitor.base.errors import MissingExtraError, SourceError
from monitor.base.registry import Extra
from monitor.base.source import Raw, RawDamaged, RawPosition, RawTable

log = logging.getLogger(__name__)

LOOK_SECONDS, REMOTE_LOOK_SECONDS, DAMAGED_SECONDS = 1.0, 10.0, 60.0
ENDS = (".csv", ".csv.gz", ".csv.zst", ".parquet")
_EXTRAS = {
    **dict.fromkeys(("s3", "s3a"), Extra("s3", ("fsspec", "s3fs"))),
    **dict.fromkeys(("gs", "gcs"), Extra("gs", ("fsspec", "gcsfs"))),
}
_CHANGED = "%s has changed after it was read; it is read on after row %d: write each file once"
MakeTables = Callable[[Path, str, int], Iterator[RawTable]]


def is_address(path: str) -> bool:
    """Whether a path is one of another file system: ``s3://bucket/labels/*.parquet``."""
    return "://" in path


def is_folder(path: str) -> bool:
    """Whether a path is a pattern of tables.

    Examples
    --------
    >>> is_folder("labels/*.parquet"), is_folder("labels/*.log"), is_folder("labels.csv")
    (True, False, False)
    """
    return path.lower().endswith(ENDS) and (is_address(path) or glob.has_magic(path))


class Files(Protocol):
    """The files of a pattern."""

    look_seconds: float

    def marks(self) -> dict[str, str]:
        """By name, what changes where the file does; raises `SourceError` where nobody can tell."""
        ...

    def get(self, name: str) -> Path:
        """A file to be read; raises `SourceError`."""
        ...

    def close(self) -> None:
        """Remove what was fetched."""
        ...


class LocalFiles:
    """Files of this machine."""

    look_seconds = LOOK_SECONDS

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern

    def marks(self) -> dict[str, str]:
        found = {}
        for name in glob.glob(self._pattern, recursive=True):
            try:
                now = os.stat(name)
            except OSError:  # it was renamed, or has gone
                continue
            if stat.S_ISREG(now.st_mode):
                found[name] = f"{now.st_size} {now.st_mtime_ns}"
        return found

    def get(self, name: str) -> Path:
        path = Path(name)
        try:
            path.open("rb").close()
        except OSError as error:
            raise SourceError(f"{name} cannot be read: {error.strerror or error}") from error
        return path

    def close(self) -> None:
        """Nothing was fetched."""


class RemoteFiles:
    """Files by fsspec, fetched into a temporary folder: so a fault of the network is none of the file.

    Raises
    ------
    MissingExtraError
        The package of this kind of address is not installed.
    SourceError
        fsspec knows no such address, or not these options.
    """

    look_seconds = REMOTE_LOOK_SECONDS

    def __init__(self, pattern: str, options: Mapping[str, Any]) -> None:
        protocol = pattern.partition("://")[0]
        if protocol in _EXTRAS:
            _EXTRAS[protocol].require(f"Reading {protocol}://")
        try:
            from fsspec.core import url_to_fs
        except ImportError as error:
            raise MissingExtraError(f"Reading {protocol}://", "s3") from error
        try:
            self._fs, self._root = url_to_fs(pattern, **options)
        except (ImportError, ValueError, TypeError) as error:
            raise SourceError(f"{pattern}: {error}; correct path or options") from error
        self._pattern, self._fetched = pattern, tempfile.TemporaryDirectory(prefix="blindsight-")

    def marks(self) -> dict[str, str]:
        try:
            self._fs.invalidate_cache()
            found = self._fs.glob(self._root, detail=True)
        except Exception as error:
            raise SourceError(f"{self._pattern} cannot be listed: {_told(error)}") from error
        files = {name: info for name, info in found.items() if info.get("type") == "file"}
        return {self._fs.unstrip_protocol(name): _mark(info) for name, info in files.items()}

    def get(self, name: str) -> Path:
        here = Path(self._fetched.name) / PurePosixPath(name).name
        for old in Path(self._fetched.name).iterdir():
            old.unlink()
        try:
            self._fs.get_file(self._fs._strip_protocol(name), str(here))
        except Exception as error:
            raise SourceError(f"{name} cannot be fetched: {_told(error)}") from error
        return here

    def close(self) -> None:
        self._fetched.cleanup()


def _told(error: Exception) -> str:
    return str(error).rstrip(".") or type(error).__name__


def _mark(info: Mapping[str, Any]) -> str:
    """The size of a file, and its tag or the time of its last change."""
    known = (info.get(key) for key in ("ETag", "etag", "mtime", "LastModified", "updated", "created"))
    return f"{info.get('size')} {next((each for each in known if each), '')}"


class Folder:
    """All tables of a pattern, each a partition, in the order of their names.

    A file is complete once it has not changed for `settle_seconds`. One that is damaged is tried
    again for a minute, as it may be written slowly, and then counted.

    Parameters
    ----------
    pattern : str
    files : Files
    make : callable
        From a file, its partition and the first row to its tables.
    positions : mapping of str to object
        By name.
    settle_seconds, missing_seconds, late_seconds : float
        So long a file is left alone after a change; there may be no file before that is an error; the
        position of a file that has gone is kept.
    """

    gaps = 0

    def __init__(
        self,
        pattern: str,
        files: Files,
        make: MakeTables,
        positions: Mapping[str, Any],
        settle_seconds: float,
        missing_seconds: float,
        late_seconds: float,
    ) -> None:
        self._pattern, self._files, self._make = pattern, files, make
        self._settle_seconds, self._missing_seconds = settle_seconds, missing_seconds
        self._late_seconds = late_seconds
        self._places = {name: _place(at) for name, at in positions.items()}
        self._seen: dict[str, tuple[str, float]] = {}
        self._gone: dict[str, float] = {}
        self._not_before: dict[str, float] = {}
        self._open: tuple[str, Path, Iterator[RawTable]] | None = None
        self._next_look = 0.0
        self._missing_since: float | None = None
        self.up = False

    def read(self, timeout_seconds: float) -> list[Raw]:
        """Some thousand rows of one file, or positions alone; [] if nothing came in time.

        Raises
        ------
        SourceError
            Files cannot be listed or read, or there has been none for `missing_seconds`.
        """
        deadline = time.monotonic() + timeout_seconds
        while True:
            found = self._next() if self._open else self._look()
            now = time.monotonic()
            if found or now >= deadline:
                return found
            if self._open is None:
                time.sleep(max(min(deadline, self._next_look) - now, 0.0))

    def _look(self) -> list[Raw]:
        """See what has come and gone, and open the next file that is complete."""
        now = time.monotonic()
        if now < self._next_look:
            return []
        try:
            found = self._files.marks()
        except SourceError:
            self.up = False
            raise
        # Spark moves what it has written out of there, under another name.
        marks = {n: m for n, m in found.items() if n.lower().endswith(ENDS) and "/_temporary/" not in n}
        if not marks:
            self._note_missing(now)
        seen = self._seen
        self._seen = {n: seen[n] if n in seen and seen[n][0] == m else (m, now) for n, m in marks.items()}
        ready = [name for name in marks if self._is_ready(name, now)]
        # What could not be read comes behind what was not tried yet.
        name = min(ready, key=lambda name: (self._not_before.get(name, 0.0), name), default=None)
        self._next_look = now + (0.0 if name else min(self._files.look_seconds, self._settle_seconds or 1.0))
        self.up = True
        if marks:
            self._missing_since = None
        if name is not None:
            self._begin(name)
        return self._let_go(now) if marks else []

    def _note_missing(self, now: float) -> None:
        self._missing_since = now if self._missing_since is None else self._missing_since
        if now - self._missing_since >= self._missing_seconds:
            self.up = False
            raise SourceError(f"There is no file {self._pattern}; it is waited for.")

    def _is_ready(self, name: str, now: float) -> bool:
        mark, since = self._seen[name]
        place = self._places.get(name)
        if place is not None and place["done"] and place["mark"] == mark:
            return False
        return now - since >= self._settle_seconds and now >= self._not_before.get(name, 0.0)

    def _begin(self, name: str) -> None:
        place = self._places.setdefault(name, _place(0))
        mark = self._seen[name][0]
        if place["done"]:
            log.warning(_CHANGED, name, place["at"])
        self._places[name] = {**place, "mark": mark, "done": False}
        try:
            path = self._files.get(name)
        except SourceError:
            self._not_before[name] = time.monotonic() + self._files.look_seconds
            self.up = False
            raise
        self._open = name, path, self._make(path, name, place["at"])

    def _next(self) -> list[Raw]:
        """What comes next of the file that is open."""
        assert self._open is not None
        name, path, tables = self._open
        place = self._places[name]
        try:
            table = next(tables, None)
        except MissingExtraError:
            self._open = None
            raise
        except SourceError as error:
            return self._damaged(name, str(error).replace(str(path), name), error)
        except OSError as error:
            self._open, self.up = None, False
            raise SourceError(f"{name} cannot be read: {error.strerror or error}") from error
        if table is None:
            self._open = None
            place = {**place, "done": True}
        else:
            place = {**place, "at": table.after}
        self._places[name] = place
        return [RawPosition(name, place) if table is None else replace(table, position=place)]

    def _damaged(self, name: str, why: str, error: SourceError) -> list[Raw]:
        """Leave a file that its writer may not have finished; after a minute it is counted."""
        self._open = None
        now, place = time.monotonic(), self._places[name]
        if now - self._seen[name][1] < DAMAGED_SECONDS:
            self._not_before[name] = now + self._files.look_seconds
            return []
        log.warning("%s", why)
        self._places[name] = {**place, "done": True}
        head = error.head if isinstance(error, DamagedFileError) else b""
        return [RawDamaged(why, head, name, place["at"]), RawPosition(name, self._places[name])]

    def _let_go(self, now: float) -> list[Raw]:
        """Forget files that have gone for long: not where all have, as of a folder that is not mounted."""
        away = self._places.keys() - self._seen.keys()
        self._gone = {name: self._gone.get(name, now) for name in away}
        ended = [name for name, since in self._gone.items() if now - since >= self._late_seconds]
        for name in ended:
            del self._places[name]
            self._not_before.pop(name, None)
        return [RawPosition(name, None) for name in ended]

    def lag(self) -> None:
        """Unknown: rows are not counted beforehand."""
        return

    def close(self) -> None:
        """Let go of the file, and of what was fetched."""
        opened, self._open, self.up = self._open, None, False
        if opened is not None:
            end = getattr(opened[2], "close", None)
            if end is not None:
                end()
        self._files.close()


def _place(saved: Any) -> dict[str, Any]:
    """Where reading of a file goes on; a number is that of a file that was read alone before."""
    at = saved if isinstance(saved, Mapping) else {"at": saved}
    return {"at": at["at"], "mark": at.get("mark", ""), "done": at.get("done", False)}

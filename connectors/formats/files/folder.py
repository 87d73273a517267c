"""Folders that fill with tables (CSV, Parquet), here or in an object store: each file once it is complete."""

from __future__ import annotations

import glob
import logging
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

from connectors.formats.files.compressed import DamagedFileError
from connectors.formats.files.listing import listed
from connectors.formats.files.remote import FILES_AT_ONCE, is_address
from connectors.formats.files.tables import ROWS, TABLE_BYTES
from monitor.base.errors import MissingExtraError, SourceError
from monitor.base.source import Raw, RawDamaged, RawPosition, RawTable, bytes_in, records_in

log = logging.getLogger(__name__)

LOOK_SECONDS, DAMAGED_SECONDS, AGAIN_SECONDS = 1.0, 60.0, 300.0
ENDS = (".csv", ".csv.gz", ".csv.zst", ".parquet")
_MOST_FILES = 1000  # handed out at once
_LOOKING = 20  # a listing that takes long is made again after so many times as long
_WAIT_SECONDS, _WAIT_LONGEST = 0.02, 10.0
_CHANGED = "%s has changed after it was read; it is read on after row %d: write each file once"
_SHORTER = "%s was replaced by a shorter file after row %d; it is read from its start: write each file once"
_GONE = "%s has gone before its last row was read: this counts as one gap"
_FAILED = "%s: reading fails after row %d, and is tried again from there: %s"
MakeTables = Callable[[Path, str, int], Iterator[RawTable]]


def is_folder(path: str) -> bool:
    """Whether a path is a pattern of tables.

    Examples
    --------
    >>> is_folder("labels/*.parquet"), is_folder("labels/*.log"), is_folder("labels.csv")
    (True, False, False)
    """
    return path.lower().endswith(ENDS) and (is_address(path) or glob.has_magic(path))


class Files(Protocol):
    """The files of a pattern; each method waits at most as long as its argument says."""

    look_seconds: float
    looks_again: bool
    """Whether `mark` looks at the file, so that one that does not change need not be listed again."""

    @property
    def trouble(self) -> str | None:
        """Return why no file comes, as a sentence without its full stop."""
        ...

    def marks(self, timeout_seconds: float) -> Mapping[str, str] | None:
        """Return by name a mark that changes when the file does; None if the marks are not known yet.

        Raises
        ------
        SourceError
            Nobody can tell.
        """
        ...

    def mark(self, name: str) -> str | None:
        """Return the mark of one file now, as far as that costs nothing."""
        ...

    def get(self, names: Sequence[str], timeout_seconds: float) -> Path | None:
        """Return the first of these files for reading, None if it is not there yet; fetch the others next.

        Raises
        ------
        SourceError
            It cannot be had.
        """
        ...

    def release(self, name: str) -> None:
        """Release a file that was read."""
        ...

    def close(self) -> None:
        """Remove what was fetched."""
        ...


class LocalFiles:
    """Files of this machine."""

    look_seconds = LOOK_SECONDS
    looks_again = True
    trouble = None

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern

    def marks(self, timeout_seconds: float) -> Mapping[str, str]:
        try:
            return {name: _mark(now) for name, now in listed(self._pattern)}
        except Exception as error:
            raise SourceError(f"{self._pattern} cannot be listed: {error}") from error

    def mark(self, name: str) -> str | None:
        try:
            return _mark(os.stat(name))
        except OSError:
            return None

    def get(self, names: Sequence[str], timeout_seconds: float) -> Path:
        path = Path(names[0])
        try:
            os.close(os.open(path, os.O_RDONLY))
        except OSError as error:
            raise SourceError(f"{path} cannot be read: {error.strerror or error}") from error
        return path

    def release(self, name: str) -> None:
        """Nothing was fetched."""

    def close(self) -> None:
        """Do nothing: no file was fetched."""


def _mark(now: os.stat_result) -> str:
    return f"{now.st_size} {now.st_mtime_ns}"


@dataclass(slots=True)
class _Failing:
    """A file that could not be read: since when, and how often it was tried."""

    since: float
    tries: int = 0
    told: str = ""


class Folder:
    """All tables of a pattern, each a partition, in the order of their names.

    A file is complete once it has not changed for `settle_seconds`. One that is damaged is tried again for a
    minute, as it may be written slowly, and then counted. One with which a reader fails otherwise is counted
    too, and tried again for as long as it is there.

    Folders are listed once in a while, and what a listing finds is read until the next one.

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
    most_bytes : int
        About so many are handed out at once, unpacked.
    """

    def __init__(
        self,
        pattern: str,
        files: Files,
        make: MakeTables,
        positions: Mapping[str, Any],
        settle_seconds: float,
        missing_seconds: float,
        late_seconds: float,
        most_bytes: int = TABLE_BYTES,
    ) -> None:
        self._pattern, self._files, self._make = pattern, files, make
        self._settle_seconds, self._missing_seconds = settle_seconds, missing_seconds
        self._late_seconds, self._most_bytes = late_seconds, most_bytes
        self._places = {name: _place(at) for name, at in positions.items()}
        self._seen: dict[str, tuple[str, float]] = {}
        self._ready: deque[str] = deque()
        self._later: deque[tuple[float, str]] = deque()  # those that may not have changed until then
        self._gone: dict[str, float] = {}
        self._not_before: dict[str, float] = {}
        self._failing: dict[str, _Failing] = {}
        self._unreadable: dict[str, str] = {}
        self._open: tuple[str, Path, Iterator[RawTable]] | None = None
        self._former: dict[str, Any] | None = None  # place of a changed file of which no row has come since
        self._error: SourceError | None = None
        self.gaps = 0
        self._next_look = 0.0
        self._missing_since: float | None = None
        self._is_listed = False

    @property
    def up(self) -> bool:
        """Return whether the files are known, and those that are complete can be read."""
        return self._is_listed and self.trouble is None

    @property
    def trouble(self) -> str | None:
        """Return why a file is not read, as a sentence without its full stop."""
        return self._files.trouble or next(iter([*self._unreadable.values()]), None)

    def read(self, timeout_seconds: float) -> list[Raw]:
        """Return some thousand rows of one or more files, or positions alone; [] if nothing came in time.

        One file that cannot be had holds up no other.

        Raises
        ------
        SourceError
            Nothing came, and files cannot be listed or read, or there has been none for `missing_seconds`.
        """
        deadline = time.monotonic() + timeout_seconds
        found: list[Raw] = []
        rows = size = 0
        while rows < ROWS and size < self._most_bytes and len(found) < _MOST_FILES:
            try:
                some = self._step(0.0 if found else max(deadline - time.monotonic(), 0.0))
            except SourceError as problem:
                self._error = problem
                break
            found += some or []
            rows, size = rows + sum(map(records_in, some or ())), size + sum(map(bytes_in, some or ()))
            left = deadline - time.monotonic()
            if left <= 0 or (found and some is None):
                break
            if some is None:
                time.sleep(max(min(left, _WAIT_SECONDS, self._next_look - time.monotonic()), 0.001))
        if not found and self._error is not None:
            error, self._error = self._error, None
            raise error
        return found

    def _step(self, timeout_seconds: float) -> list[Raw] | None:
        """Return what comes next; None if nothing can be done now."""
        if self._open is not None:
            return self._next()
        now = time.monotonic()
        if now >= self._next_look and (changed := self._look(now, timeout_seconds)) is not None:
            return changed
        while self._later and self._later[0][0] <= now:
            self._ready.append(self._later.popleft()[1])
        return self._begin(timeout_seconds) if self._ready else None

    def _look(self, now: float, timeout_seconds: float) -> list[Raw] | None:
        """List the files, and see which came and went; return None if there is nothing to report."""
        try:
            found = self._files.marks(timeout_seconds)
        except SourceError:
            self._is_listed = False
            raise
        if found is None:
            return None
        self._is_listed = True
        often = min(self._files.look_seconds, self._settle_seconds or 1.0)
        self._next_look = time.monotonic() + max(often, _LOOKING * (time.monotonic() - now))
        # Spark moves what it has written out of there, under another name.
        marks = {n: m for n, m in found.items() if n.lower().endswith(ENDS) and "/_temporary/" not in n}
        if not marks:
            self._note_missing(now)
        seen = self._seen
        self._seen = {n: seen[n] if n in seen and seen[n][0] == m else (m, now) for n, m in marks.items()}
        self._line_up(now)
        if marks:
            self._missing_since = None
        return (self._let_go(now) if marks else None) or None

    def _note_missing(self, now: float) -> None:
        self._missing_since = now if self._missing_since is None else self._missing_since
        if now - self._missing_since >= self._missing_seconds:
            self._is_listed = False
            raise SourceError(f"There is no file {self._pattern}; it is waited for.")

    def _line_up(self, now: float) -> None:
        """Put what is to be read into its order: files that could not be read come after untried ones."""
        ready: list[tuple[float, str]] = []
        later: list[tuple[float, str]] = []
        for name, (mark, since) in self._seen.items():
            place = self._places.get(name)
            if place is not None and place["done"] and place["mark"] == mark:
                continue
            put_off = self._not_before.get(name, 0.0)
            if now >= (due := max(since + self._settle_seconds, put_off)):
                ready.append((put_off, name))
            elif self._files.looks_again:
                later.append((due, name))
        self._ready, self._later = deque(name for _, name in sorted(ready)), deque(sorted(later))

    def _begin(self, timeout_seconds: float) -> list[Raw] | None:
        """Open the next file that is complete; return None if it is not there yet."""
        name = self._ready[0]
        mark = self._seen[name][0]
        if self._files.mark(name) != mark:  # it changes, or has gone: the next look will say
            self._ready.popleft()
            return []
        try:
            path = self._files.get([*islice(self._ready, FILES_AT_ONCE)], timeout_seconds)
        except SourceError as error:
            self._ready.popleft()
            self._unreadable[name] = str(error)
            self._error = error
            self._try_again(name, _WAIT_LONGEST)
            return []
        if path is None:
            return None
        self._ready.popleft()
        self._unreadable.pop(name, None)
        place = self._places.setdefault(name, _place(0))
        self._former = place if place["at"] and place["mark"] != mark else None
        if place["done"]:
            log.warning(_CHANGED, name, place["at"])
        if place["mark"] != mark:
            self._failing.pop(name, None)
            place = {"at": place["at"], "mark": mark, "done": False}
        self._places[name] = place
        self._open = name, path, self._make(path, name, place["at"])
        return self._next()

    def _next(self) -> list[Raw]:
        """What comes next of the file that is open."""
        assert self._open is not None
        name, path, tables = self._open
        place = self._places[name]
        try:
            table = next(tables, None)
            if table is None and self._former is not None and self._rows_up_to(place["at"]) < place["at"]:
                log.warning(_SHORTER, name, place["at"])
                self.gaps += not self._former["done"]
                self._places[name] = place = {**place, "at": 0}
                self._open = name, path, self._make(path, name, 0)
                table = next(self._open[2], None)
            self._former = None
        except MissingExtraError:
            self._leave()
            raise
        except SourceError as error:
            return self._damaged(name, str(error).replace(str(path), name), error)
        except Exception as error:  # noqa: BLE001 - whatever a library raises, no row of the file may be lost
            return self._failed(name, error)
        if table is None:
            self._leave()
            self._failing.pop(name, None)
            self._places[name] = {**place, "done": True}
            return [RawPosition(name, self._places[name])]
        self._places[name] = {**place, "at": table.after}
        return [replace(table, position=self._places[name])]

    def _rows_up_to(self, most: int) -> int:
        """Count the rows of the open file, up to so many or a few more."""
        assert self._open is not None
        name, path, _ = self._open
        rows = 0
        for table in self._make(path, name, 0):
            rows += len(table)
            if rows >= most:
                break
        return rows

    def _leave(self) -> None:
        """Close the open file."""
        opened, self._open = self._open, None
        if opened is not None:
            end = getattr(opened[2], "close", None)
            if end is not None:
                end()
            self._files.release(opened[0])

    def _try_again(self, name: str, longest: float) -> _Failing:
        """Postpone a file, each time for twice as long."""
        now = time.monotonic()
        failing = self._failing.setdefault(name, _Failing(now))
        pause = min(self._files.look_seconds * 2.0 ** min(failing.tries, 20), longest)
        self._not_before[name] = now + pause
        failing.tries += 1
        return failing

    def _damaged(self, name: str, why: str, error: SourceError) -> list[Raw]:
        """Leave a file that its writer may not have finished; after a minute it is counted."""
        self._leave()
        failing = self._try_again(name, _WAIT_LONGEST)
        if time.monotonic() - failing.since < DAMAGED_SECONDS:
            return []
        log.warning("%s", why)
        place = self._places[name] = {**self._places[name], "done": True}
        head = error.head if isinstance(error, DamagedFileError) else b""
        return [RawDamaged(why, head, name, place["at"]), RawPosition(name, place)]

    def _failed(self, name: str, error: Exception) -> list[Raw]:
        """Close a file whose reader failed unexpectedly, and read it again later.

        After a minute what was not read is counted, once, as one record.
        """
        self._leave()
        failing, place = self._try_again(name, AGAIN_SECONDS), self._places[name]
        why = f"{type(error).__name__}: {error}"
        if why != failing.told:
            log.error(_FAILED, name, place["at"], why)
            failing.told = why
        if place.get("told") or time.monotonic() - failing.since < DAMAGED_SECONDS:
            return []
        place = self._places[name] = {**place, "told": True}
        why = f"the rows from number {place['at']} on were not read, and are tried again: {why}"
        return [RawDamaged(why, b"", name, place["at"]), RawPosition(name, place)]

    def _let_go(self, now: float) -> list[Raw]:
        """Forget files that have gone for long: not where all have, as of a folder that is not mounted."""
        away = self._places.keys() - self._seen.keys()
        self._gone = {name: self._gone.get(name, now) for name in away}
        ended = [name for name, since in self._gone.items() if now - since >= self._late_seconds]
        for name in ended:
            if not self._places.pop(name)["done"]:
                self.gaps += 1
                log.warning(_GONE, name)
        for kept in (self._not_before, self._failing, self._unreadable):
            for name in [name for name in kept if name not in self._seen]:
                kept.pop(name)
        return [RawPosition(name, None) for name in ended]

    def lag(self) -> None:
        """Unknown: rows are not counted beforehand."""
        return

    def close(self) -> None:
        """Let go of the file, and of what was fetched."""
        self._leave()
        self._is_listed = False
        self._files.close()


def _place(saved: Any) -> dict[str, Any]:
    """Where reading of a file goes on; a number is that of a file that was read alone before."""
    at = saved if isinstance(saved, Mapping) else {"at": saved}
    return {"mark": "", "done": False, **at}

"""The reader of folders of tables (CSV, Parquet), local or in an object store."""

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
_MOST_FILES = 1000  # in one result
_LOOKING = 20  # the pause after a listing, in multiples of its duration
_WAIT_SECONDS, _WAIT_LONGEST = 0.02, 10.0
_CHANGED = "%s has changed after it was read; it is read on after row %d: write each file once"
_SHORTER = "%s was replaced by a shorter file after row %d; it is read from its start: write each file once"
_GONE = "%s has gone before its last row was read: this counts as one gap"
_FAILED = "%s: reading fails after row %d, and is tried again from there: %s"
MakeTables = Callable[[Path, str, int], Iterator[RawTable]]


def is_folder(path: str) -> bool:
    """Return whether a path is a shell pattern or an address for CSV or Parquet files.

    Examples
    --------
    >>> is_folder("labels/*.parquet"), is_folder("labels/*.log"), is_folder("labels.csv")
    (True, False, False)
    """
    return path.lower().endswith(ENDS) and (is_address(path) or glob.has_magic(path))


class Files(Protocol):
    """The interface by which a `Folder` lists and opens files, on this machine or in an object store.

    No method waits longer than its `timeout_seconds`. A mark is a text that changes when the file changes,
    such as its size and time of change.

    Attributes
    ----------
    look_seconds : float
        The shortest time between two listings.
    looks_again : bool
        True if `mark` examines the file itself; False if it uses the last listing.
    """

    look_seconds: float
    looks_again: bool
    """True if `mark` examines the file itself. Then an unchanged file can be read without a new listing."""

    @property
    def trouble(self) -> str | None:
        """The reason why no file can be read, a sentence without a full stop; None if files can be read."""
        ...

    def marks(self, timeout_seconds: float) -> Mapping[str, str] | None:
        """List the files, and return the mark of each file by the file's name.

        Return None if the listing has not ended within the time limit.

        Raises
        ------
        SourceError
            The files cannot be listed.
        """
        ...

    def mark(self, name: str) -> str | None:
        """Return the mark of one file, or None if there is no such file.

        A mark is a text that changes when the file changes. If examining the file is expensive, the mark
        comes from the last listing.
        """
        ...

    def get(self, names: Sequence[str], timeout_seconds: float) -> Path | None:
        """Make the first of these files readable, and return its path, or None if the time was too short.

        A remote file is downloaded. The call may also download some of the other files, which are needed
        next.

        Parameters
        ----------
        names : sequence of str
            Names of files, in the order in which they are wanted.
        timeout_seconds : float

        Raises
        ------
        SourceError
            The file cannot be downloaded or read.
        """
        ...

    def release(self, name: str) -> None:
        """Release a file that has been read: remove its downloaded copy, if there is one."""
        ...

    def close(self) -> None:
        """Remove the downloaded files."""
        ...


class LocalFiles:
    """The files on this machine whose paths match a shell pattern."""

    look_seconds = LOOK_SECONDS
    looks_again = True
    trouble = None

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern

    def marks(self, timeout_seconds: float) -> Mapping[str, str]:
        """Return the size and time of change of each file by name."""
        try:
            return {name: _mark(now) for name, now in listed(self._pattern)}
        except Exception as error:
            raise SourceError(f"{self._pattern} cannot be listed: {error}") from error

    def mark(self, name: str) -> str | None:
        """Return the size and time of change of a file, or None if there is no such file."""
        try:
            return _mark(os.stat(name))
        except OSError:
            return None

    def get(self, names: Sequence[str], timeout_seconds: float) -> Path:
        """Return the path of the first file, or raise a SourceError if it cannot be read."""
        path = Path(names[0])
        try:
            os.close(os.open(path, os.O_RDONLY))
        except OSError as error:
            raise SourceError(f"{path} cannot be read: {error.strerror or error}") from error
        return path

    def release(self, name: str) -> None:
        """Do nothing: no file was downloaded."""

    def close(self) -> None:
        """Do nothing: no file was downloaded."""


def _mark(now: os.stat_result) -> str:
    return f"{now.st_size} {now.st_mtime_ns}"


@dataclass(slots=True)
class _Failing:
    """The failures of a file: the time of the first, the number of tries, and the last error in the log."""

    since: float
    tries: int = 0
    logged: str = ""


class Folder:
    """A reader of all tables that match a pattern, in the order of their names; each table is a partition.

    A table is read once it has not changed for `settle_seconds`, because its writer may not have finished. A
    damaged table is tried again for a minute, and is then counted as rejected. If reading a table fails for
    another reason, the table is counted as rejected too, and is tried again as long as it exists. The folders
    are listed from time to time. Between two listings, the tables of the last listing are read.

    Parameters
    ----------
    pattern : str
    files : Files
        An object that lists and opens the files.
    make : callable
        A function that takes the path of a file, its partition and the number of the first row to read, and
        yields tables.
    positions : mapping of str to object
        The positions at which to continue, by the name of the partition.
    settle_seconds : float
        A file is read when it has not changed for this time.
    missing_seconds : float
        `read` raises an error when there has been no file for this time.
    late_seconds : float
        The time for which the position of a removed file is kept.
    most_bytes : int
        The approximate largest size of one result in uncompressed bytes.

    Attributes
    ----------
    gaps : int
        The number of files that were removed or replaced before their last row was read.
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
        self._later: deque[tuple[float, str]] = deque()  # end of the time to settle, and name
        self._gone: dict[str, float] = {}
        self._not_before: dict[str, float] = {}
        self._failing: dict[str, _Failing] = {}
        self._unreadable: dict[str, str] = {}
        self._open: tuple[str, Path, Iterator[RawTable]] | None = None
        self._former: dict[str, Any] | None = None  # the place in a changed file before its next row
        self._error: SourceError | None = None
        self.gaps = 0
        self._next_look = 0.0
        self._missing_since: float | None = None
        self._is_listed = False

    @property
    def up(self) -> bool:
        """True if the last listing succeeded, and no attempt to read a file failed."""
        return self._is_listed and self.trouble is None

    @property
    def trouble(self) -> str | None:
        """The reason why a file is not read, without a full stop; None if every file can be read."""
        return self._files.trouble or next(iter([*self._unreadable.values()]), None)

    def read(self, timeout_seconds: float) -> list[Raw]:
        """Return the next rows of the tables, or an empty list if there were none within the time limit.

        A result has some thousand rows of one or more tables. A result may also have positions without rows,
        if a table has ended or was removed. A table that cannot be read does not delay the others, because
        its error is raised only if there are no other rows.

        Parameters
        ----------
        timeout_seconds : float
            The longest time to wait for rows.

        Raises
        ------
        SourceError
            No row can be returned, and files cannot be listed or read, or there has been no file for
            `missing_seconds`.
        """
        deadline = time.monotonic() + timeout_seconds
        raws: list[Raw] = []
        rows = size = 0
        while rows < ROWS and size < self._most_bytes and len(raws) < _MOST_FILES:
            try:
                some = self._step(0.0 if raws else max(deadline - time.monotonic(), 0.0))
            except SourceError as problem:
                self._error = problem
                break
            raws += some or []
            rows, size = rows + sum(map(records_in, some or ())), size + sum(map(bytes_in, some or ()))
            left = deadline - time.monotonic()
            if left <= 0 or (raws and some is None):
                break
            if some is None:
                time.sleep(max(min(left, _WAIT_SECONDS, self._next_look - time.monotonic()), 0.001))
        if not raws and self._error is not None:
            error, self._error = self._error, None
            raise error
        return raws

    def _step(self, timeout_seconds: float) -> list[Raw] | None:
        """Return the next input, or None if nothing can be done now."""
        if self._open is not None:
            return self._next()
        now = time.monotonic()
        if now >= self._next_look and (changed := self._look(now, timeout_seconds)) is not None:
            return changed
        while self._later and self._later[0][0] <= now:
            self._ready.append(self._later.popleft()[1])
        return self._begin(timeout_seconds) if self._ready else None

    def _look(self, now: float, timeout_seconds: float) -> list[Raw] | None:
        """List the files, and find new and removed ones; return None if there is nothing to report."""
        try:
            listing = self._files.marks(timeout_seconds)
        except SourceError:
            self._is_listed = False
            raise
        if listing is None:
            return None
        self._is_listed = True
        often = min(self._files.look_seconds, self._settle_seconds or 1.0)
        self._next_look = time.monotonic() + max(often, _LOOKING * (time.monotonic() - now))
        # Spark writes files in this folder, and moves finished ones out of it.
        marks = {n: m for n, m in listing.items() if n.lower().endswith(ENDS) and "/_temporary/" not in n}
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
        """Sort the files to read: those that failed before come after the others."""
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
        """Open the next complete file; return None if it is not downloaded yet."""
        name = self._ready[0]
        mark = self._seen[name][0]
        if self._files.mark(name) != mark:  # it was changed or removed, which the next listing shows
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
        """Return the next table of the open file, or its final position."""
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
        except Exception as error:  # noqa: BLE001 - no error of a library may lose a row
            return self._failed(name, error)
        if table is None:
            self._leave()
            self._failing.pop(name, None)
            # A file that was changed while it was read may have lost rows, and is looked at again.
            self._places[name] = {**place, "done": self._files.mark(name) in (None, place["mark"])}
            return [RawPosition(name, self._places[name])]
        self._places[name] = {**place, "at": table.after}
        return [replace(table, position=self._places[name])]

    def _rows_up_to(self, most: int) -> int:
        """Return the number of rows of the open file, counted only up to about `most`."""
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
        """Postpone a file, each time for twice as long, and return its failures."""
        now = time.monotonic()
        failing = self._failing.setdefault(name, _Failing(now))
        pause = min(self._files.look_seconds * 2.0 ** min(failing.tries, 20), longest)
        self._not_before[name] = now + pause
        failing.tries += 1
        return failing

    def _damaged(self, name: str, why: str, error: SourceError) -> list[Raw]:
        """Close a file whose writer may not have finished; after a minute, count it as rejected."""
        self._leave()
        failing = self._try_again(name, _WAIT_LONGEST)
        if time.monotonic() - failing.since < DAMAGED_SECONDS:
            return []
        log.warning("%s", why)
        place = self._places[name] = {**self._places[name], "done": True}
        head = error.head if isinstance(error, DamagedFileError) else b""
        return [RawDamaged(why, head, name, place["at"]), RawPosition(name, place)]

    def _failed(self, name: str, error: Exception) -> list[Raw]:
        """Close a file on which the reader failed unexpectedly, and postpone it.

        After a minute the unread rows are counted once, as one rejected record.
        """
        self._leave()
        failing, place = self._try_again(name, AGAIN_SECONDS), self._places[name]
        why = f"{type(error).__name__}: {error}"
        if why != failing.logged:
            log.error(_FAILED, name, place["at"], why)
            failing.logged = why
        if place.get("told") or time.monotonic() - failing.since < DAMAGED_SECONDS:
            return []
        place = self._places[name] = {**place, "told": True}
        why = f"the rows from number {place['at']} on were not read, and are tried again: {why}"
        return [RawDamaged(why, b"", name, place["at"]), RawPosition(name, place)]

    def _let_go(self, now: float) -> list[Raw]:
        """Drop files that were removed long ago, unless all were, because a folder may not be mounted."""
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
        """Return None, because the number of waiting rows is not known in advance."""
        return

    def close(self) -> None:
        """Close the open file, and remove the downloaded files."""
        self._leave()
        self._is_listed = False
        self._files.close()


def _place(saved: Any) -> dict[str, Any]:
    """Return a saved position in full; a number is the position of a file that was once configured alone."""
    at = saved if isinstance(saved, Mapping) else {"at": saved}
    return {"mark": "", "done": False, **at}

"""The readers of plain files that grow and are rotated: one file, or all files that match a pattern.

Rotation gives a file another name, or copies and truncates it, and a new file begins under the old name.
Terms of this module:

* The late file is the file that was read before a rotation. Its writer may still add lines for some time.
* A place is a byte of a file together with the marks of the file: its inode and a part of its text.
* A gap is lost text, which neither the file nor a rotated file in the same folder holds.
"""

from __future__ import annotations

import glob
import logging
import os
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from itertools import takewhile
from pathlib import Path
from typing import Any

from connectors.formats.files.line_cutter import BLOCK_BYTES
from connectors.formats.files.rotated import (
    DAMAGED,
    MakeCutter,
    OpenFile,
    Place,
    Rotated,
    find_again,
    opened,
    rotated_beside,
    rotation_bases,
)
from monitor.base.errors import SourceError
from monitor.base.source import Raw, RawBlock, RawPosition, RawSkipped, bytes_in

log = logging.getLogger("blindsight")

LATE_SECONDS = 300.0
"""The time for which a rotated file is still watched: its writer may not have noticed the rotation."""
MOST_OPEN = 64
"""The largest number of open files of a pattern. If there are more, the files that changed least recently are
closed."""

_POLL_SECONDS = 0.1
_LOOK_SECONDS = 1.0
_POLLS_A_SECOND = 5_000  # limit for all files of a pattern
_LOOKING, _MOST_RAWS = 10, 1000
_TRIES = 5

_GAP = (
    "%s: the text after byte %d, where reading should continue, is neither in the file nor in a rotated file "
    "beside it: this counts as one gap. Reading goes on at the start of %s; repeated records count once if "
    "they have an id."
)
_GONE = (
    "%s: the file has gone, and nothing beside it holds the text after byte %d, up to which it was read: "
    "this counts as one gap."
)
_UNREADABLE = "%s: the rotated file %s cannot be read (%s): this counts as one gap."


class Following:
    """A reader of one plain file that grows and is rotated; see `connectors.files.FileSource`.

    After a rotation, the file that was read before (the late file) stays open for `late_seconds`, because its
    writer may still add lines.

    Parameters
    ----------
    path : Path
    partition : str
        The name of the partition.
    make_cutter : callable
        See `MakeCutter`.
    position : object, optional
        The position at which to continue: a position that `read` returned, or a byte offset. By default, the
        start of the file.
    settle_seconds : float
        The new file is read when nothing has been added to the renamed file for this time.
    missing_seconds : float
        `read` raises an error when no file has had this name for this time.
    late_seconds : float
        Additions to a rotated file are read for this time.

    Attributes
    ----------
    gaps : int
        The number of times that text was lost.
    """

    def __init__(
        self,
        path: Path,
        partition: str,
        make_cutter: MakeCutter,
        position: Any,
        settle_seconds: float,
        missing_seconds: float,
        late_seconds: float = LATE_SECONDS,
    ) -> None:
        self.path, self.partition = path, partition
        self._make_cutter = make_cutter
        self._settle_seconds, self._missing_seconds = settle_seconds, missing_seconds
        self._late_seconds = late_seconds
        self._place = None if position is None else Place.from_position(position)
        late = position.get("late") if isinstance(position, Mapping) else None
        self._late_place = None if late is None else Place.from_position(late)
        self._main: OpenFile | None = None
        self._late: OpenFile | None = None
        self._late_since = 0.0
        self._renamed_at: float | None = None
        self._missing_since: float | None = None
        self._behind = 0
        self._seen: tuple[int, ...] | None = None
        self._complete = False
        self.gaps = 0

    @property
    def up(self) -> bool:
        """True if a file is open, so that new lines can be read."""
        return self._main is not None

    def read(self, timeout_seconds: float) -> list[Raw]:
        """Return about 1 MiB of whole lines, or an empty list if there was none within the time limit.

        When the reader goes over from a rotated file to the next file, the result may have a position without
        lines (`RawPosition`).

        Parameters
        ----------
        timeout_seconds : float

        Raises
        ------
        SourceError
            A file cannot be read. Or no line can be returned, and no file has had this name for
            `missing_seconds`.
        """
        deadline = time.monotonic() + timeout_seconds
        while True:
            raws = self.poll()
            if raws:
                return raws
            if self._is_missing(self._missing_seconds):
                was = "There is no file" if self._main is None else "There is no longer a file"
                raise SourceError(f"{was} {self.path}; it is waited for.")
            left = deadline - time.monotonic()
            if left <= 0:
                return []
            time.sleep(min(_POLL_SECONDS, left))

    def _is_missing(self, seconds: float) -> bool:
        """Return whether no file has had this name for at least `seconds`."""
        if os.path.exists(self.path):
            self._missing_since = None
            return False
        now = time.monotonic()
        self._missing_since = now if self._missing_since is None else self._missing_since
        return now - self._missing_since >= seconds

    def poll(self) -> list[Raw]:
        """Return the lines that can be read now, without waiting.

        A result never has records of two files, because the positions in a result must increase.
        """
        if self._seen is not None and self._seen == self._look():
            return []
        if not self.begin():
            return []
        assert self._main is not None
        return self._read_on(self._main) or self._read_late()

    def begin(self) -> bool:
        """Open the file at the current position if no file is open. Return whether a file is open now.

        Raises
        ------
        SourceError
            The file cannot be read.
        """
        if self._main is not None:
            return True
        if self._late_place is not None:
            self._late = find_again(self.path, self._late_place, self._make_cutter)
            self._late_place, self._late_since = None, time.monotonic()
        place = self._place
        if place is None:
            self._main = self._file_itself()
        else:
            self._main = find_again(self.path, place, self._make_cutter)
            if self._main is None and os.path.exists(self.path):
                self._main = self._after_late(place) or self._after_gap(place)
        if self._main is not None and self._late is not None and self._late.id == self._main.id:
            self._drop_late()
        self._count_behind()
        return self._main is not None

    def _file_itself(self) -> OpenFile | None:
        """Return the file from its start; rotated files that exist now count as read."""
        past = max((each.modified for each in rotated_beside(self.path)), default=0)
        try:
            file = OpenFile(self.path, self._make_cutter)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise SourceError(f"{self.path} cannot be read: {error.strerror or error}") from error
        return file.begin(0, max(file.modified, past))

    def _after_late(self, place: Place) -> OpenFile | None:
        """Return the file after the late one, for a position before any text."""
        if place.at or place.head_bytes or self._late is None:
            return None
        left = self._late.place()
        if self._index(self._beside(left), left) is None:
            return None
        return self._next_file(lambda: self._newer(left))

    def _after_gap(self, place: Place) -> OpenFile | None:
        following = self._next_file(lambda: self._newer(place))
        if following is not None:
            self.gaps += 1
            log.warning(_GAP, self.path, place.at, following.path)
        return following

    def _beside(self, place: Place) -> list[Rotated]:
        """Return the certain rotated files and the file of a place under any name, the oldest first."""
        late = None if self._late is None else self._late.id
        ours = (place.device, place.inode)
        rotated = rotated_beside(self.path)
        return [each for each in rotated if each.id == ours or (each.sure and each.id != late)]

    def _index(self, beside: Sequence[Rotated], place: Place) -> int | None:
        """Return the index of the file with the text of a place, by its inode or else by its beginning.

        An inode without any read text is not enough, because a newer file may have it now.
        """
        ours = (place.device, place.inode)
        for i in sorted(range(len(beside)), key=lambda i: (beside[i].id != ours, -i)):
            if not place.head_bytes:
                return i if beside[i].id == ours else None
            try:
                file = opened(beside[i], self._make_cutter)
            except DAMAGED:
                continue
            if file is not None:
                same = file.is_at(place)
                file.close()
                if same:
                    return i
        return None

    def _newer(self, place: Place) -> list[Rotated]:
        """Return the rotated files after the file of a place, the oldest first."""
        beside = self._beside(place)
        index = self._index(beside, place)
        if index is None:
            return _changed_after(beside, place)
        # If numbers rise with time, the files after ours in this order are older, and were read.
        return [each for each in beside[index + 1 :] if each.modified >= beside[index].modified]

    def _unread(self, main: OpenFile, modified: int) -> list[Rotated]:
        """Return the rotated files with unread text before a file of which nothing was used.

        The file may have been copied, truncated and written again since; `modified` is its time of change at
        opening.
        """
        place = replace(main.place_of_all(), modified=modified)
        beside = self._beside(place)
        index = len(beside) if self._is_there(main) else self._index(beside, place)
        return _changed_after(beside[:index], place) if index else []

    def _next_file(self, newer: Callable[[], list[Rotated]]) -> OpenFile | None:
        """Return the next rotated file or the file itself, at its start; None if names change too fast."""
        unreadable: set[tuple[int, int]] = set()
        for _ in range(_TRIES):
            waiting = [each for each in newer() if each.id not in unreadable]
            if not waiting:
                file = self._file_itself()
                if file is None or {each.id for each in newer()} <= {file.id, *unreadable}:
                    return file
                file.close()  # another file was rotated before this one was opened
                continue
            try:
                file = opened(waiting[0], self._make_cutter)
            except DAMAGED as error:
                unreadable.add(waiting[0].id)
                self.gaps += 1
                log.warning(_UNREADABLE, self.path, waiting[0].path, error)
                continue
            if file is not None:  # else it was renamed after the listing of the folder
                return file.begin(0)
        return None

    def _read_on(self, main: OpenFile) -> list[Raw]:
        modified = None if main.cutter.fed else main.modified
        if modified is not None and main.left and self._unread(main, modified):
            return self._go_before(main, modified)
        while True:
            try:
                data = main.take()
            except DAMAGED as error:
                return self._damaged(main, error)
            if data is None:
                return self._replaced(main)
            if not data:
                return self._at_end(main)
            # Nothing identified the text until now, so it may have been replaced since the check above.
            if modified is not None and not main.packed and self._unread(main, modified):
                return self._go_before(main, modified)
            modified, self._renamed_at = None, None
            raws = main.cutter.feed(data)
            if raws:
                return self._with_positions(raws, main)

    def _go_before(self, main: OpenFile, modified: int) -> list[Raw]:
        """Read text that was copied and truncated before any of it was used."""
        following = self._next_file(lambda: self._unread(main, modified))
        if following is not None:
            return self._go_over(following)
        main.begin(0, modified)  # names change too fast: try again later
        return []

    def _is_there(self, file: OpenFile) -> bool:
        try:
            now = os.stat(self.path)
        except FileNotFoundError:
            return False
        return (now.st_dev, now.st_ino) == file.id

    def _replaced(self, main: OpenFile) -> list[Raw]:
        """Continue in the copy of a truncated file, or count a gap."""
        place = main.place()
        following = find_again(self.path, place, self._make_cutter)
        if following is not None:
            log.info("%s was cut: reading goes on in %s.", self.path, following.path)
            return self._go_over(following)
        following = self._after_gap(place)
        return [] if following is None else self._go_over(following)  # None while it is being replaced

    def _damaged(self, main: OpenFile, error: Exception) -> list[Raw]:
        if not main.packed:
            raise SourceError(f"{main.path} cannot be read: {error}") from error
        self.gaps += 1
        log.warning(_UNREADABLE, self.path, main.path, error)
        place = main.place()
        following = self._next_file(lambda: self._newer(place))
        return [] if following is None else self._go_over(following)

    def _at_end(self, main: OpenFile) -> list[Raw]:
        """Continue in the next file if this one was rotated and has ended."""
        if self._is_there(main):
            self._renamed_at = None
            return []
        place = main.place()
        if not self._newer(place) and not self._has_settled():
            return []
        if main.left:  # text that was added before the renaming
            return []
        if self._late is not None and self._late.left:
            return self._read_late()
        following = self._next_file(lambda: self._newer(place))
        if following is None:
            return []
        raws = self._with_positions(main.cutter.finish(), main)
        self._drop_late()
        self._late, self._late_since, self._main = main, time.monotonic(), None
        return self._go_over(following, raws)

    def _has_settled(self) -> bool:
        """Return whether another file has had the name, and this one has not grown, for long enough."""
        if not os.path.exists(self.path):
            return False
        now = time.monotonic()
        self._renamed_at = now if self._renamed_at is None else self._renamed_at
        return now - self._renamed_at >= self._settle_seconds

    def _go_over(self, following: OpenFile, before: Sequence[Raw] = ()) -> list[Raw]:
        """Continue in another file.

        If there are raws `before`, the other file is read in the next result.
        """
        left, self._main = self._main, following  # set first: another thread may call `lag`
        self._renamed_at = None
        self._count_behind()
        if left is not None:
            left.close()
        raws = [] if before else self._read_on(following)
        # The position tells a restart not to look for the former file.
        return raws or [*before, RawPosition(self.partition, self.position())]

    def _read_late(self) -> list[Raw]:
        """Return the text added to the late file, and close the file after `late_seconds`."""
        late = self._late
        if late is None:
            return []
        data: bytes | None = b""
        if late.left:
            try:
                data = late.take()
            except DAMAGED:
                data = None
        if data:
            self._late_since = time.monotonic()
            return self._with_positions(late.cutter.feed(data), late)
        if data is not None and time.monotonic() - self._late_since < self._late_seconds:
            return []
        raws = self._with_positions(late.cutter.finish(), late)
        self._drop_late()
        return raws

    def _drop_late(self) -> None:
        late, self._late, self._late_place = self._late, None, None
        if late is not None:
            late.close()

    def _with_positions(self, raws: Sequence[Raw], file: OpenFile) -> list[Raw]:
        positioned: list[Raw] = []
        for raw in raws:
            assert isinstance(raw, RawBlock | RawSkipped)
            positioned.append(replace(raw, position=self.position(raw.after if file is self._main else None)))
        return positioned

    def position(self, at: int | None = None) -> dict[str, Any]:
        """Return the position at which to continue after a restart.

        Parameters
        ----------
        at : int, optional
            A byte of the open file; by default the end of the last whole line that was read.
        """
        place = self._place if self._main is None else self._main.place(at)
        late = self._late_place if self._late is None else self._late.place()
        position = {} if place is None else place.position()
        return position if late is None else {**position, "late": late.position()}

    def _count_behind(self) -> None:
        """Update the number of bytes in the files after the open one."""
        self._behind = 0
        if self._main is not None and not self._is_there(self._main):
            newer = [each.path for each in self._newer(self._main.place())]
            self._behind = sum(map(_size, (*newer, self.path)))

    def lag(self) -> int | None:
        """Return the approximate number of waiting records; None before the first line was read."""
        main = self._main
        return None if main is None else main.lag(self._behind)

    def _look(self) -> tuple[int, ...]:
        """Return the attributes that change with the file, or () if there is none."""
        try:
            now = os.stat(self.path)
        except OSError:
            return ()
        return now.st_dev, now.st_ino, now.st_size, now.st_mtime_ns

    def rest(self) -> None:
        """Close the open files. They are opened again when the file changes.

        `FollowingPattern` calls this method to limit the number of open files.
        """
        main, seen = self._main, self._look()  # read first: later additions change it
        if main is None:
            return
        self._complete = self._is_there(main) and not main.left and not main.cutter.head.strip()
        self._place = main.place()
        self._late_place = None if self._late is None else self._late.place()
        self._seen = seen if self._complete and self._late is None else None
        late, self._main, self._late = self._late, None, None
        for each in filter(None, (main, late)):
            each.close()

    @property
    def inodes(self) -> list[tuple[int, int]]:
        """The device and inode numbers of the files that this reader reads.

        A renamed file is recognised by these numbers, because it keeps them. The list has the numbers of the
        current file and of the late file, which was read before a rotation. A file that is not known yet has
        no entry.
        """
        pairs = ((self._main, self._place), (self._late, self._late_place))
        return [inode for file, place in pairs if (inode := _inode_of(file, place)) is not None]

    def has_ended(self, is_there: bool = False) -> bool:
        """Return whether the file has been missing for `late_seconds` and no text is left to read.

        The reader can then be dropped. If the end of the file was never read, `gaps` is increased.

        Parameters
        ----------
        is_there : bool, default False
            True if the latest listing contains the name of the file.
        """
        if is_there:
            self._missing_since = None
            return False
        if not self._is_missing(self._late_seconds) or (self._main is not None and self._main.left):
            return False
        if self._main is None and self._place is not None and not self._complete:
            self.gaps += 1
            log.warning(_GONE, self.path, self._place.at)
        return True

    def finish(self) -> list[Raw]:
        """Return the last line of a removed file if it has no newline at its end."""
        return [] if self._main is None else self._with_positions(self._main.cutter.finish(), self._main)

    def hand_over(self, path: Path, inode: tuple[int, int]) -> dict[str, Any] | None:
        """Return the position of a renamed file, from which a reader of its new name continues.

        Return None if this reader does not read the renamed file. After the call, this reader no longer reads
        the renamed file, and continues with the next file of its own name. If the renamed file is closed, its
        text is checked first, because the inode may belong to another file by now.

        Parameters
        ----------
        path : Path
            The new name.
        inode : (int, int)
            The device and inode numbers of the file with the new name.
        """
        if self._look()[:2] == inode:
            return None
        is_main = _inode_of(self._main, self._place) == inode
        file, place = (self._main, self._place) if is_main else (self._late, self._late_place)
        if _inode_of(file, place) != inode:
            return None
        place = place if file is None else file.place()
        assert place is not None
        if file is None and not self._holds(path, place):
            return None
        if is_main:
            self.close()
            self._place, self._seen = None, None
        else:
            self._drop_late()
        return place.position()

    def _holds(self, path: Path, place: Place) -> bool:
        """Return whether a file holds the text of a place."""
        try:
            file = OpenFile(path, self._make_cutter)
        except DAMAGED:
            return False
        try:
            return file.is_at(place)
        finally:
            file.close()

    def close(self) -> None:
        """Close the files."""
        main, self._main = self._main, None
        if main is not None:
            main.close()
        self._drop_late()


def _inode_of(file: OpenFile | None, place: Place | None) -> tuple[int, int] | None:
    if file is not None:
        return file.id
    return None if place is None else (place.device, place.inode)


def _inode_now(name: str) -> tuple[int, int] | None:
    """Return the device and inode that a name has now, or None."""
    try:
        now = os.stat(name)
    except OSError:
        return None
    return now.st_dev, now.st_ino


def _size(path: Path) -> int:
    """Return the bytes of a file, or 0 if it was renamed."""
    try:
        return os.path.getsize(path)
    except OSError:
        return 0


def _changed_after(files: Sequence[Rotated], place: Place) -> list[Rotated]:
    """Return the last files that changed after a place was recorded."""
    if not place.known:
        return []
    changed = takewhile(lambda each: each.modified > place.modified, reversed(files))
    return [*changed][::-1]


class FollowingPattern:
    """A reader of all plain files that match a pattern; each file is a partition.

    Files may be added and removed during reading.

    Parameters
    ----------
    pattern : Path
        A shell pattern for the names of files and folders.
    make : callable
        A function from a path and a position to a `Following`.
    positions : mapping of str to object
        The positions by path, including the positions of removed files.
    missing_seconds : float
        `read` raises an error when no file has matched the pattern for this time.
    ends : collection of str
        Files with these extensions are ignored.
    """

    def __init__(
        self,
        pattern: Path,
        make: Callable[[Path, Any], Following],
        positions: Mapping[str, Any],
        missing_seconds: float,
        ends: Collection[str],
    ) -> None:
        self._pattern, self._make, self._missing_seconds = str(pattern), make, missing_seconds
        self._ends = tuple(ends)
        mine = {name: at for name, at in positions.items() if fnmatchcase(name, self._pattern)}
        self._files = {name: make(Path(name), position) for name, position in mine.items()}
        self._open: dict[str, None] = {}  # the longest unchanged one first
        self._waiting: deque[str] = deque()  # the files still to be polled in this round
        self._next_look = self._next_turn = 0.0
        self._missing_since: float | None = None
        self._none_is_there = False
        self._gaps = 0

    @property
    def up(self) -> bool:
        """True if at least one file matches the pattern, or did so recently (`Following.has_ended`)."""
        return bool(self._files)

    @property
    def gaps(self) -> int:
        """The number of times that text was lost, in all files together."""
        return self._gaps + sum(each.gaps for each in [*self._files.values()])

    def read(self, timeout_seconds: float) -> list[Raw]:
        """Return about 1 MiB of whole lines of some files, or an empty list if no line arrived in time.

        If a file was removed, renamed or rotated, the result may also have positions without lines
        (`RawPosition`), or nothing else.

        Parameters
        ----------
        timeout_seconds : float

        Raises
        ------
        SourceError
            No line can be returned, and a file cannot be read, or no file has matched the pattern for
            `missing_seconds`.
        """
        deadline = time.monotonic() + timeout_seconds
        while True:
            raws = self._poll(deadline)
            left = deadline - time.monotonic()
            if raws or left <= 0:
                return raws
            time.sleep(min(_POLL_SECONDS, left))

    def _poll(self, deadline: float) -> list[Raw]:
        now = time.monotonic()
        if now >= self._next_look:
            changed = self._look()
            # The next listing is after several times as long as this one took.
            self._next_look = now + max(_LOOK_SECONDS, _LOOKING * (time.monotonic() - now))
            if changed:
                return changed
        if not self._waiting and now >= self._next_turn:
            self._waiting.extend(self._files)
            self._next_turn = now + max(_POLL_SECONDS, len(self._files) / _POLLS_A_SECOND)
        raws, error = self._turn(deadline)
        if error is not None and not raws:
            raise error
        if not raws and self._none_is_there:
            self._note_missing(now)
        return raws

    def _turn(self, deadline: float) -> tuple[list[Raw], SourceError | None]:
        """Return the input of waiting files, about 1 MiB, and the error of a file that cannot be read."""
        raws: list[Raw] = []
        size, error = 0, None
        while self._waiting and size < BLOCK_BYTES and len(raws) < _MOST_RAWS:
            name = self._waiting.popleft()
            if name not in self._files:  # it was dropped meanwhile
                continue
            try:
                some = self._files[name].poll()
            except SourceError as problem:
                error = problem
                continue
            self._keep_few_open(name, bool(some))
            if some:
                raws += some
                size += sum(map(bytes_in, some))
                self._waiting.append(name)  # after the others, because it may have more
            if time.monotonic() >= deadline and raws:
                break
        return raws, error

    def _note_missing(self, now: float) -> None:
        self._missing_since = now if self._missing_since is None else self._missing_since
        if now - self._missing_since >= self._missing_seconds:
            raise SourceError(f"There is no file {self._pattern}; it is waited for.")

    def _keep_few_open(self, name: str, used: bool) -> None:
        if used:
            self._open.pop(name, None)
        if self._files[name].up:
            self._open[name] = None
        while len(self._open) > MOST_OPEN:
            quiet = next(iter(self._open))
            del self._open[quiet]
            self._files[quiet].rest()

    def _look(self) -> list[Raw]:
        """Add new files, and drop removed ones."""
        names = matching(self._pattern, self._ends, self._files)
        changed = self._take_up([name for name in names if name not in self._files])
        self._none_is_there = not names
        if not names:  # the folder may not be mounted: keep its positions
            return changed
        self._missing_since = None
        there = set(names)
        for name in [name for name, file in self._files.items() if file.has_ended(name in there)]:
            file = self._files.pop(name)
            self._open.pop(name, None)
            changed += file.finish()
            self._gaps += file.gaps
            file.close()
            changed.append(RawPosition(name, None))
        return changed

    def _take_up(self, names: Sequence[str]) -> list[Raw]:
        """Open new files, and continue files that had another name of the pattern.

        A file with two names, because of a link, is read under the first one that is no symbolic link.
        """
        changed: list[Raw] = []
        inodes = {each: name for name, file in self._files.items() for each in file.inodes} if names else {}
        for name in sorted(names, key=os.path.islink):
            try:
                now = os.stat(name)
            except OSError:
                continue
            inode = now.st_dev, now.st_ino
            former = inodes.get(inode)
            if former is not None and _inode_now(former) == inode:
                continue
            position = None if former is None else self._files[former].hand_over(Path(name), inode)
            if former is not None and position is not None:
                left = self._files[former].position() or None
                changed += [RawPosition(former, left), RawPosition(name, position)]
            self._files[name] = self._make(Path(name), position)
            inodes[inode] = name
        self._waiting.extendleft(reversed([name for name in names if name in self._files]))
        return changed

    def lag(self) -> int | None:
        """Return the sum of the lags of the open files; None before the first line was read."""
        known = [lag for each in [*self._files.values()] if (lag := each.lag()) is not None]
        return sum(known) if known else None

    def close(self) -> None:
        """Close the files."""
        for file in self._files.values():
            file.close()
        self._files = {}


def matching(pattern: str, ends: Collection[str], known: Iterable[str] = ()) -> list[str]:
    """Return the plain files that match a pattern, except rotated files and files with the extensions `ends`.

    Parameters
    ----------
    pattern : str
    ends : collection of str
        Extensions of files to leave out.
    known : iterable of str
        Names of further files. Their rotated files are left out too.
    """
    names = [name for name in sorted(glob.glob(pattern)) if not name.lower().endswith(tuple(ends))]
    bases = {*names, *known}

    def is_own(name: str) -> bool:
        folder, last = os.path.split(name)
        return not any(os.path.join(folder, base) in bases for base in rotation_bases(last))

    return [name for name in names if is_own(name) and os.path.isfile(name)]

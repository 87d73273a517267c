"""Follows plain files as they grow and through their rotation: one file, or all that match a pattern."""

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
    found_again,
    opened,
    rotated_beside,
    rotation_bases,
)
from monitor.base.errors import SourceError
from monitor.base.source import Raw, RawBlock, RawPosition, RawSkipped, bytes_in

log = logging.getLogger("blindsight")

LATE_SECONDS = 300.0
"""So long a file that was left is looked at: a writer may add to it that has not noticed the rotation."""
MOST_OPEN = 64
"""Of the files of a pattern, those that have been quiet for longest are closed beyond so many."""

_POLL_SECONDS = 0.1
_LOOK_SECONDS = 1.0
_POLLS_A_SECOND = 5_000  # of files of a pattern, at most
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
    """A plain file that grows and is rotated; `connectors.files.FileSource` says how.

    Parameters
    ----------
    path : Path
    partition : str
    make_cutter : callable
        See `MakeCutter`.
    position : object, optional
        Where reading goes on: what `read` gave, or a byte offset. From the start of the file where left out.
    settle_seconds : float
        So long nothing may have been added to a renamed file before the new one is begun.
    missing_seconds : float
        So long there may be no file of this name before that is an error.
    late_seconds : float
        So long a file that was left is looked at.
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
        self._place = None if position is None else Place.of(position)
        late = position.get("late") if isinstance(position, Mapping) else None
        self._late_place = None if late is None else Place.of(late)
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
        """Whether there is a file."""
        return self._main is not None

    def read(self, timeout_seconds: float) -> list[Raw]:
        """About 1 MiB of whole lines, or a position alone; [] if nothing came in time.

        Raises
        ------
        SourceError
            Nothing came, and there has been no file of this name for `missing_seconds`.
        """
        deadline = time.monotonic() + timeout_seconds
        while True:
            found = self.poll()
            if found:
                return found
            if self._is_missing(self._missing_seconds):
                was = "There is no file" if self._main is None else "There is no longer a file"
                raise SourceError(f"{was} {self.path}; it is waited for.")
            left = deadline - time.monotonic()
            if left <= 0:
                return []
            time.sleep(min(_POLL_SECONDS, left))

    def _is_missing(self, seconds: float) -> bool:
        """Whether there has been no file of this name for so long."""
        if os.path.exists(self.path):
            self._missing_since = None
            return False
        now = time.monotonic()
        self._missing_since = now if self._missing_since is None else self._missing_since
        return now - self._missing_since >= seconds

    def poll(self) -> list[Raw]:
        """What can be had now.

        Never records of two files in one answer: places within an answer rise.
        """
        if self._seen is not None and self._seen == self._look():
            return []
        if not self.begin():
            return []
        assert self._main is not None
        return self._read_on(self._main) or self._read_late()

    def begin(self) -> bool:
        """Open the file where reading goes on, if none is open; whether one is.

        Raises
        ------
        SourceError
            The file cannot be read.
        """
        if self._main is not None:
            return True
        if self._late_place is not None:
            self._late = found_again(self.path, self._late_place, self._make_cutter)
            self._late_place, self._late_since = None, time.monotonic()
        place = self._place
        if place is None:
            self._main = self._file_itself()
        else:
            self._main = found_again(self.path, place, self._make_cutter)
            if self._main is None and os.path.exists(self.path):
                self._main = self._after_late(place) or self._after_gap(place)
        if self._main is not None and self._late is not None and self._late.id == self._main.id:
            self._drop_late()
        self._count_behind()
        return self._main is not None

    def _file_itself(self) -> OpenFile | None:
        """The file from its start: rotated files that are beside it now belong to the past."""
        past = max((each.modified for each in rotated_beside(self.path)), default=0)
        try:
            found = OpenFile(self.path, self._make_cutter)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise SourceError(f"{self.path} cannot be read: {error.strerror or error}") from error
        return found.begin(0, max(found.modified, past))

    def _after_late(self, place: Place) -> OpenFile | None:
        """The file after the one that was left, for a place before whose text nothing was there."""
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
        """The rotated files that count, and that of a place whatever its name is; the oldest first."""
        late = None if self._late is None else self._late.id
        ours = (place.device, place.inode)
        found = rotated_beside(self.path)
        return [each for each in found if each.id == ours or (each.sure and each.id != late)]

    def _index(self, beside: Sequence[Rotated], place: Place) -> int | None:
        """Which of them holds the text of a place: that with its inode, or else one with its beginning.

        An inode alone is sure only where nothing was read: it may have gone to a newer file since.
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
        """Rotated files that come after that of a place, the oldest first."""
        beside = self._beside(place)
        index = self._index(beside, place)
        if index is None:
            return _changed_after(beside, place)
        # Where numbers rise with time, the names after ours are the older files, which were read.
        return [each for each in beside[index + 1 :] if each.modified >= beside[index].modified]

    def _unread(self, main: OpenFile, modified: int) -> list[Rotated]:
        """Rotated files before a file of which nothing was used: copied, cut and begun again meanwhile.

        `modified` is when the file had last changed as it was opened.
        """
        place = replace(main.place_of_all(), modified=modified)
        beside = self._beside(place)
        index = len(beside) if self._is_there(main) else self._index(beside, place)
        return _changed_after(beside[:index], place) if index else []

    def _next_file(self, newer: Callable[[], list[Rotated]]) -> OpenFile | None:
        """The next rotated file, at its start, or else the file itself; None while names change too fast."""
        unreadable: set[tuple[int, int]] = set()
        for _ in range(_TRIES):
            waiting = [each for each in newer() if each.id not in unreadable]
            if not waiting:
                file = self._file_itself()
                if file is None or {each.id for each in newer()} <= {file.id, *unreadable}:
                    return file
                file.close()  # another one was rotated before this one was opened
                continue
            try:
                found = opened(waiting[0], self._make_cutter)
            except DAMAGED as error:
                unreadable.add(waiting[0].id)
                self.gaps += 1
                log.warning(_UNREADABLE, self.path, waiting[0].path, error)
                continue
            if found is not None:  # else it was renamed since the folder was listed
                return found.begin(0)
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
            # The text is known by nothing before this: it may be another one than that of a moment ago.
            if modified is not None and not main.packed and self._unread(main, modified):
                return self._go_before(main, modified)
            modified, self._renamed_at = None, None
            found = main.cutter.feed(data)
            if found:
                return self._handed_out(found, main)

    def _go_before(self, main: OpenFile, modified: int) -> list[Raw]:
        """Read what was copied and cut before anything of it was used."""
        following = self._next_file(lambda: self._unread(main, modified))
        if following is not None:
            return self._go_over(following)
        main.begin(0, modified)  # names change too fast: it is looked at again
        return []

    def _is_there(self, file: OpenFile) -> bool:
        try:
            now = os.stat(self.path)
        except FileNotFoundError:
            return False
        return (now.st_dev, now.st_ino) == file.id

    def _replaced(self, main: OpenFile) -> list[Raw]:
        """Go on in the copy of a file that was cut, or count what cannot be found."""
        place = main.place()
        following = found_again(self.path, place, self._make_cutter)
        if following is not None:
            log.info("%s was cut: reading goes on in %s.", self.path, following.path)
            return self._go_over(following)
        following = self._after_gap(place)
        return [] if following is None else self._go_over(following)  # none while it is being replaced

    def _damaged(self, main: OpenFile, error: Exception) -> list[Raw]:
        if not main.packed:
            raise SourceError(f"{main.path} cannot be read: {error}") from error
        self.gaps += 1
        log.warning(_UNREADABLE, self.path, main.path, error)
        place = main.place()
        following = self._next_file(lambda: self._newer(place))
        return [] if following is None else self._go_over(following)

    def _at_end(self, main: OpenFile) -> list[Raw]:
        """Go over to the next file where this one was rotated and has ended."""
        if self._is_there(main):
            self._renamed_at = None
            return []
        place = main.place()
        if not self._newer(place) and not self._has_settled():
            return []
        if main.left:  # added before it was renamed
            return []
        if self._late is not None and self._late.left:
            return self._read_late()
        following = self._next_file(lambda: self._newer(place))
        if following is None:
            return []
        found = self._handed_out(main.cutter.finish(), main)
        self._drop_late()
        self._late, self._late_since, self._main = main, time.monotonic(), None
        return self._go_over(following, found)

    def _has_settled(self) -> bool:
        """Whether another file has been there, and this one quiet, for long enough."""
        if not os.path.exists(self.path):
            return False
        now = time.monotonic()
        self._renamed_at = now if self._renamed_at is None else self._renamed_at
        return now - self._renamed_at >= self._settle_seconds

    def _go_over(self, following: OpenFile, before: Sequence[Raw] = ()) -> list[Raw]:
        """Read on in another file, in an answer of its own where there are records `before`."""
        left, self._main = self._main, following  # the name first: another thread may ask for `lag`
        self._renamed_at = None
        self._count_behind()
        if left is not None:
            left.close()
        found = [] if before else self._read_on(following)
        # So that a restart does not look for the file that was left.
        return found or [*before, RawPosition(self.partition, self.position())]

    def _read_late(self) -> list[Raw]:
        """What was added to the file that was left."""
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
            return self._handed_out(late.cutter.feed(data), late)
        if data is not None and time.monotonic() - self._late_since < self._late_seconds:
            return []
        found = self._handed_out(late.cutter.finish(), late)
        self._drop_late()
        return found

    def _drop_late(self) -> None:
        late, self._late, self._late_place = self._late, None, None
        if late is not None:
            late.close()

    def _handed_out(self, found: Sequence[Raw], file: OpenFile) -> list[Raw]:
        handed: list[Raw] = []
        for raw in found:
            assert isinstance(raw, RawBlock | RawSkipped)
            handed.append(replace(raw, position=self.position(raw.after if file is self._main else None)))
        return handed

    def position(self, at: int | None = None) -> dict[str, Any]:
        """Where reading goes on; `at` is a byte of the file that is read."""
        place = self._place if self._main is None else self._main.place(at)
        late = self._late_place if self._late is None else self._late.place()
        position = {} if place is None else place.position()
        return position if late is None else {**position, "late": late.position()}

    def _count_behind(self) -> None:
        """Bytes of the files after the one that is read."""
        self._behind = 0
        if self._main is not None and not self._is_there(self._main):
            newer = [each.path for each in self._newer(self._main.place())]
            self._behind = sum(map(_size, (*newer, self.path)))

    def lag(self) -> int | None:
        """About how many records wait; None before the first line of a file."""
        main = self._main
        return None if main is None else main.lag(self._behind)

    def _look(self) -> tuple[int, ...]:
        """What tells whether the file has changed; empty where there is none."""
        try:
            now = os.stat(self.path)
        except OSError:
            return ()
        return now.st_dev, now.st_ino, now.st_size, now.st_mtime_ns

    def rest(self) -> None:
        """Close what is open, until the file changes."""
        main, seen = self._main, self._look()  # looked at first: what is added from now on changes it
        if main is None:
            return
        self._complete = self._is_there(main) and not main.left
        self._place = main.place()
        self._late_place = None if self._late is None else self._late.place()
        self._seen = seen if self._complete and self._late is None else None
        late, self._main, self._late = self._late, None, None
        for each in filter(None, (main, late)):
            each.close()

    @property
    def inodes(self) -> list[tuple[int, int]]:
        """Return device and inode of the file that is read, and of the one that was left last."""
        pairs = ((self._main, self._place), (self._late, self._late_place))
        return [inode for file, place in pairs if (inode := _inode_of(file, place)) is not None]

    def has_ended(self, is_there: bool = False) -> bool:
        """Return whether the file is gone and was read to its end.

        Parameters
        ----------
        is_there : bool, default False
            Whether its name was seen just now.
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

    def hand_over(self, path: Path, inode: tuple[int, int]) -> dict[str, Any] | None:
        """Where reading of a file goes on under another name; None where it is not the one that is read here.

        Its own name begins anew. The inode of a file that is not open may be that of a new file by now.
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
        """Whether a file holds the text of a place."""
        try:
            file = OpenFile(path, self._make_cutter)
        except DAMAGED:
            return False
        try:
            return file.is_at(place)
        finally:
            file.close()

    def close(self) -> None:
        """Let go of the files."""
        main, self._main = self._main, None
        if main is not None:
            main.close()
        self._drop_late()


def _inode_of(file: OpenFile | None, place: Place | None) -> tuple[int, int] | None:
    if file is not None:
        return file.id
    return None if place is None else (place.device, place.inode)


def _inode_now(name: str) -> tuple[int, int] | None:
    """Device and inode of what has a name now; None where there is nothing."""
    try:
        now = os.stat(name)
    except OSError:
        return None
    return now.st_dev, now.st_ino


def _size(path: Path) -> int:
    """Bytes of a file; 0 of one that has another name by now."""
    try:
        return os.path.getsize(path)
    except OSError:
        return 0


def _changed_after(files: Sequence[Rotated], place: Place) -> list[Rotated]:
    """The last of them that have changed since a place was taken."""
    if not place.known:
        return []
    changed = takewhile(lambda each: each.modified > place.modified, reversed(files))
    return [*changed][::-1]


class FollowingPattern:
    """All plain files that match a pattern, each a partition; new ones are taken up, and those gone let go.

    Parameters
    ----------
    pattern : Path
        As the shell's, in names and in folders.
    make : callable
        From a path and a position to its `Following`.
    positions : mapping of str to object
        By path, those of files that have gone too.
    missing_seconds : float
        So long there may be no file before that is an error.
    ends : collection of str
        Ends of names that are left alone.
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
        self._open: dict[str, None] = {}  # the one that has been quiet for longest first
        self._waiting: deque[str] = deque()  # those that are still to be polled in this turn
        self._next_look = self._next_turn = 0.0
        self._missing_since: float | None = None
        self._none_is_there = False
        self._gaps = 0

    @property
    def up(self) -> bool:
        """Whether there is a file."""
        return bool(self._files)

    @property
    def gaps(self) -> int:
        """Those of all files."""
        return self._gaps + sum(each.gaps for each in [*self._files.values()])

    def read(self, timeout_seconds: float) -> list[Raw]:
        """Return about 1 MiB of whole lines of some files, or positions alone; [] if nothing came in time.

        Raises
        ------
        SourceError
            A file cannot be read, or there has been none for `missing_seconds`; and nothing came of others.
        """
        deadline = time.monotonic() + timeout_seconds
        while True:
            found = self._poll(deadline)
            left = deadline - time.monotonic()
            if found or left <= 0:
                return found
            time.sleep(min(_POLL_SECONDS, left))

    def _poll(self, deadline: float) -> list[Raw]:
        now = time.monotonic()
        if now >= self._next_look:
            changed = self._look()
            # One that takes long is made again after several times as long.
            self._next_look = now + max(_LOOK_SECONDS, _LOOKING * (time.monotonic() - now))
            if changed:
                return changed
        if not self._waiting and now >= self._next_turn:
            self._waiting.extend(self._files)
            self._next_turn = now + max(_POLL_SECONDS, len(self._files) / _POLLS_A_SECOND)
        found, error = self._turn(deadline)
        if error is not None and not found:
            raise error
        if not found and self._none_is_there:
            self._note_missing(now)
        return found

    def _turn(self, deadline: float) -> tuple[list[Raw], SourceError | None]:
        """Return what waiting files hold now, up to about 1 MiB, and why one cannot be read."""
        found: list[Raw] = []
        size, error = 0, None
        while self._waiting and size < BLOCK_BYTES and len(found) < _MOST_RAWS:
            name = self._waiting.popleft()
            if name not in self._files:  # it was let go meanwhile
                continue
            try:
                some = self._files[name].poll()
            except SourceError as problem:
                error = problem
                continue
            self._keep_few_open(name, bool(some))
            if some:
                found += some
                size += sum(map(bytes_in, some))
                self._waiting.append(name)  # after the others, as it may have more
            if time.monotonic() >= deadline and found:
                break
        return found, error

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
        """Take up what is new, and let go of what has gone."""
        names = matching(self._pattern, self._ends, self._files)
        changed = self._take_up([name for name in names if name not in self._files])
        self._none_is_there = not names
        if not names:  # a folder that is not mounted keeps its positions
            return changed
        self._missing_since = None
        there = set(names)
        for name in [name for name, file in self._files.items() if file.has_ended(name in there)]:
            file = self._files.pop(name)
            self._open.pop(name, None)
            self._gaps += file.gaps
            file.close()
            changed.append(RawPosition(name, None))
        return changed

    def _take_up(self, names: Sequence[str]) -> list[Raw]:
        """Open new files, and continue those that had another name of the pattern.

        A file that has two names, by a link, is read under the first of them, and rather not a symbolic link.
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
        """The sum over the files that are open; None before the first line."""
        known = [lag for each in [*self._files.values()] if (lag := each.lag()) is not None]
        return sum(known) if known else None

    def close(self) -> None:
        """Let go of the files."""
        for file in self._files.values():
            file.close()
        self._files = {}


def matching(pattern: str, ends: Collection[str], known: Iterable[str] = ()) -> list[str]:
    """The plain files of a pattern, but for rotated ones of these or of `known`, and for these ends."""
    names = [name for name in sorted(glob.glob(pattern)) if not name.lower().endswith(tuple(ends))]
    bases = {*names, *known}

    def is_own(name: str) -> bool:
        folder, last = os.path.split(name)
        return not any(os.path.join(folder, base) in bases for base in rotation_bases(last))

    return [name for name in names if is_own(name) and os.path.isfile(name)]

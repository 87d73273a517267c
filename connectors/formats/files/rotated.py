"""Where the text of a followed file went: its own place in it, and the rotated files beside it."""

from __future__ import annotations

import errno
import gzip
import os
import re
import stat
import time
import zlib
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from io import BufferedReader, FileIO
from pathlib import Path
from typing import Any

from connectors.formats.files.line_cutter import BLOCK_BYTES, HEAD_BYTES, LineCutter, begins_array
from monitor.base.errors import SourceError

_TAIL_BYTES = 256
_LISTINGS = 100
_SEARCHES = 10
_PAUSE_SECONDS = 0.001
_MOST_FOLDERS, _SURE_NS = 16, 1_000_000_000
_LEAST_DATE = 6  # digits: fewer are a count, of which 1 is the newest

DAMAGED = (OSError, EOFError, zlib.error)
"""What reading a damaged file raises."""

MakeCutter = Callable[[int, bytes], LineCutter]
"""From a byte offset and the first bytes of the text to a cutter that begins there."""


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=16).digest()


@dataclass(frozen=True, slots=True)
class Place:
    """Where reading goes on, and what its file is known by.

    Parameters
    ----------
    at : int
        Byte offset in the (uncompressed) text.
    device, inode : int
        0 if unknown: a position of an older version.
    head : bytes
        Digest of the first `head_bytes` bytes.
    head_bytes : int
        At most 1 KiB, and no more than were there when it was read.
    tail : bytes
        Digest of the last bytes before `at`, at most 256: a record near the beginning may have been
        overwritten with blanks since.
    modified : int
        The newest time of change that was seen of the file, in ns: a rotated file that is newer was not read.
    """

    at: int
    device: int = 0
    inode: int = 0
    head: bytes = b""
    head_bytes: int = 0
    tail: bytes = b""
    modified: int = 0

    @classmethod
    def of(cls, position: Any) -> Place:
        """From a position, or from the byte offset that was one in older versions."""
        if isinstance(position, Mapping):
            return cls(**{name: position[name] for name in cls.__slots__})
        return cls(int(position))

    def position(self) -> dict[str, Any]:
        """Plain values that a store can hold."""
        return {name: getattr(self, name) for name in self.__slots__}

    @property
    def known(self) -> bool:
        """Whether more than a byte offset is known."""
        return bool(self.inode)


def _open_at_once(path: Any, flags: int) -> int:
    """Open a file, but not a pipe that has taken its name: this would wait for a writer without a limit."""
    number = os.open(path, flags | os.O_NONBLOCK)
    if stat.S_ISFIFO(os.fstat(number).st_mode):
        os.close(number)
        raise OSError(errno.EINVAL, "it is a pipe now; let it be a file", path)
    return number


class OpenFile:
    """A file that is read from a byte on: the followed one, or a rotated one, plain or in gzip.

    Parameters
    ----------
    path : Path
    make_cutter : callable
        See `MakeCutter`.

    Raises
    ------
    OSError, EOFError, zlib.error
        It cannot be opened, or is damaged at its beginning.
    """

    def __init__(self, path: Path, make_cutter: MakeCutter) -> None:
        self.path = path
        self.packed = path.suffix == ".gz"
        self.file = FileIO(path, opener=_open_at_once)
        self._make_cutter = make_cutter
        self._stream: Any = (
            gzip.GzipFile(fileobj=BufferedReader(self.file), mode="rb") if self.packed else self.file
        )
        try:
            now = os.fstat(self.file.fileno())
        except OSError:
            self.file.close()
            raise
        self.id = now.st_dev, now.st_ino
        self.modified = now.st_mtime_ns
        self._head = self._tail = b""
        self._lines = self._first_byte = 0
        self._ended = self._replaced = False
        self.cutter = make_cutter(0, b"")
        if self.packed:
            try:
                self._head = self._first(HEAD_BYTES)
            except DAMAGED:
                self.close()
                raise

    def _first(self, count: int) -> bytes:
        if not self.packed:
            return os.pread(self.file.fileno(), count, 0)
        self._stream.seek(0)
        found: bytes = self._stream.read(count)
        self._stream.seek(0)
        return found

    def begin(self, at: int, modified: int | None = None) -> OpenFile:
        """Go to a byte; `modified` is what the place there says."""
        head = self._first(HEAD_BYTES) if at else b""
        self._stream.seek(at)
        self.cutter, self._first_byte = self._make_cutter(at, head), at
        if modified is not None:
            self.modified = modified
        if not self.packed:
            self._head = self._first(min(HEAD_BYTES, at))
            self._tail = self._before(at)
        return self

    def _before(self, at: int) -> bytes:
        size = min(_TAIL_BYTES, at)
        return b"" if self.packed else os.pread(self.file.fileno(), size, at - size)

    @property
    def size(self) -> int:
        """Bytes on the disk now."""
        return os.fstat(self.file.fileno()).st_size

    @property
    def left(self) -> bool:
        """Whether it holds more than was read of it, as far as its size says."""
        return not self._ended if self.packed else self.size > self.cutter.fed

    def take(self) -> bytes | None:
        """The next bytes, b"" at the end; None if the file holds another text than the one that was read.

        Raises
        ------
        OSError, EOFError, zlib.error
            A compressed file is damaged.
        """
        fed = self.cutter.fed
        data: bytes = self._stream.read(BLOCK_BYTES)
        if not self.packed:
            # Looked at after the reading: what was cut in between must not be taken for the old text.
            now, end = os.fstat(self.file.fileno()), fed + len(data)
            head = self._first(HEAD_BYTES)[:end]
            if now.st_size < end or not (head.startswith(self._head) or self._blanked()):
                self._replaced = True
                return None
            if end:  # what changed an empty file may have been written, copied and cut since the last look
                self._head, self.modified = head, max(self.modified, now.st_mtime_ns)
        self._lines += data.count(b"\n")
        self._ended = not data
        return data

    def _blanked(self) -> bool:
        """Whether only the beginning differs."""
        return bool(self._tail) and self._before(self.cutter.position) == self._tail

    def place(self, at: int | None = None) -> Place:
        """The place behind the last whole line, or at `at`."""
        at = self.cutter.position if at is None else at
        if not self._replaced:
            self._tail = self._before(at)
        head = self._head
        return Place(at, *self.id, _digest(head), len(head), _digest(self._tail), self.modified)

    def place_of_all(self) -> Place:
        """The place before a text of which nothing was read, known by what is there now."""
        head = self._first(HEAD_BYTES)
        return Place(0, *self.id, _digest(head), len(head), modified=self.modified)

    def is_at(self, place: Place) -> bool:
        """Whether the text that a place is in stands here."""
        at = place.at
        if place.known and not place.head_bytes:
            return self.id == (place.device, place.inode)
        same = _digest(self._first(place.head_bytes)) == place.head or not place.known
        if self.packed:
            return same
        ends = b"\n,]" if begins_array(self._first(HEAD_BYTES)) else b"\n"
        if self.size < at or (at < self.size and self._before(at)[-1:] not in ends):
            return False
        return same or (at > 0 and _digest(self._before(at)) == place.tail)

    def lag(self, behind: int) -> int | None:
        """Bytes left, and those behind it, over the mean length of a line so far; None before the first."""
        lines, fed = self._lines, self.cutter.fed - self._first_byte
        if not lines or fed <= 0:
            return None
        left = 0 if self.packed else max(self.size - self.cutter.position, 0)
        return -(-(left + behind) * lines // fed)

    def close(self) -> None:
        """Let go of the file."""
        self._stream.close()
        self.file.close()


@dataclass(frozen=True, slots=True)
class Rotated:
    """A rotated file in a folder.

    Parameters
    ----------
    path : Path
    id : tuple of int
        Device and inode.
    modified : int
        In ns.
    number : str
        Its number or date.
    sure : bool
        Whether its name says so beyond doubt: ``p.1``, not ``p1``.
    """

    path: Path
    id: tuple[int, int]
    modified: int
    number: str = ""
    sure: bool = True

    @property
    def is_counted(self) -> bool:
        """Whether it has a number, not a date."""
        return self.number.isdigit() and len(self.number) < _LEAST_DATE


# p.log.1, p.log-20260131, p.log.2026-01-31_23-59-59; with logrotate's `extension` p-20260131.log.
_SUFFIX = re.compile(r"(?P<mark>[-._]?)(?P<number>\d[-.:_T\d]*Z?)(\.gz)?")
_DATED = re.compile(r"[-._](?P<number>\d[-.:_T\d]*Z?)")


def rotation_of(name: str, base: str) -> tuple[str, bool] | None:
    """The number or date of a rotated file of `base`, and whether the name is beyond doubt; None of another.

    Examples
    --------
    >>> rotation_of("p.log.1", "p.log"), rotation_of("p.log-20260131.gz", "p.log")
    (('1', True), ('20260131', True))
    >>> rotation_of("p-20260131.log", "p.log"), rotation_of("p.log2", "p.log")
    (('20260131', True), ('2', False))
    >>> rotation_of("p.1.log", "p.log")
    """
    found = _SUFFIX.fullmatch(name, len(base)) if name.startswith(base) else None
    if found:
        return found["number"], bool(found["mark"])
    stem, extension = os.path.splitext(base)
    plain = name.removesuffix(".gz")
    if not (extension and name.startswith(stem) and plain.endswith(extension)):
        return None
    dated = _DATED.fullmatch(plain, len(stem), len(plain) - len(extension))
    date = sum(map(str.isdigit, dated["number"])) >= _LEAST_DATE if dated else False
    return (dated["number"], True) if dated and date else None


def rotation_bases(name: str) -> set[str]:
    """The names of which a name may be a rotated one, beyond doubt.

    Examples
    --------
    >>> sorted(rotation_bases("p.log.1")), sorted(rotation_bases("p.1.log")), rotation_bases("p-20260131.log")
    (['p.log'], [], {'p.log'})
    """
    plain = name.removesuffix(".gz")
    stem, extension = os.path.splitext(plain)
    cuts = [found.start() for found in re.finditer(r"[-._](?=\d)", plain) if found.start()]
    bases = {plain[:cut] for cut in cuts} | {stem[:cut] + extension for cut in cuts if cut < len(stem)}
    return {base for base in bases if (rotation_of(name, base) or ("", False))[1]}


def rotated_beside(path: Path) -> list[Rotated]:
    """The rotated files of a path, the oldest first; of one that is just being compressed the plain one.

    Of numbers 1 is the newest, dates rise; where both are there, the time of the last change decides.
    """
    names = _names(path)
    for _ in range(_LISTINGS):
        found = _described(path, names)
        before, names = names, _names(path)
        if names == before:  # else one that was renamed meanwhile may stand nowhere
            break
        time.sleep(_PAUSE_SECONDS)
    both = len({each.is_counted for each in found if each.sure}) > 1

    def age(file: Rotated) -> tuple[Any, ...]:
        if both:
            return (file.modified,)
        return (-int(file.number),) if file.is_counted else (file.number,)

    sure = [each for each in found if each.sure]
    return [*sorted(sure, key=age), *(each for each in found if not each.sure)]


class _FolderNames:
    """A cache of the names and inodes in folders; a folder is listed again once its change time has moved.

    A change soon after another one may leave that time as it is, so a listing is kept only if the last change
    before it is old enough.
    """

    def __init__(self) -> None:
        self._kept: dict[str, tuple[int, list[str], dict[str, int]]] = {}

    def beginning_with(self, stem: str, folder: str) -> dict[str, int]:
        """Return the names of a folder that begin so, with inodes; none if it cannot be listed."""
        try:
            changed = os.stat(folder).st_mtime_ns
            kept = self._kept.get(folder)
            if kept is None or kept[0] != changed:
                kept = self._list(folder, changed)
        except OSError:
            return {}
        _, names, inodes = kept
        first = last = bisect_left(names, stem)
        while last < len(names) and names[last].startswith(stem):
            last += 1
        return {name: inodes[name] for name in names[first:last]}

    def _list(self, folder: str, changed: int) -> tuple[int, list[str], dict[str, int]]:
        began = time.time_ns()
        with os.scandir(folder) as entries:
            inodes = {each.name: each.inode() for each in entries}
        kept = changed, sorted(inodes), inodes
        self._kept.pop(folder, None)
        if began - changed > _SURE_NS:
            while len(self._kept) >= _MOST_FOLDERS:
                self._kept.pop(next(iter(self._kept)), None)
            self._kept[folder] = kept
        return kept


_FOLDERS = _FolderNames()


def _names(path: Path) -> dict[str, int]:
    """The names in the folder that may be rotated ones, with their inodes."""
    folder, name = os.path.split(path)
    return _FOLDERS.beginning_with(os.path.splitext(name)[0], folder or os.curdir)


def _described(path: Path, names: Collection[str]) -> list[Rotated]:
    found: dict[str, Rotated] = {}
    for name in sorted(names):
        named = rotation_of(name, path.name)
        if named is None or name.removesuffix(".gz") in found:
            continue
        try:
            now = os.stat(path.parent / name)
        except OSError:
            continue
        if stat.S_ISREG(now.st_mode):
            found[name] = Rotated(path.parent / name, (now.st_dev, now.st_ino), now.st_mtime_ns, *named)
    return [*found.values()]


def opened(file: Rotated, make_cutter: MakeCutter) -> OpenFile | None:
    """A file of a listing, at its beginning; None where its name has gone to another since."""
    try:
        found = OpenFile(file.path, make_cutter)
    except FileNotFoundError:
        return None
    if found.id == file.id:
        return found
    found.close()
    return None


def found_again(path: Path, place: Place, make_cutter: MakeCutter) -> OpenFile | None:
    """The file that holds the text of a place, opened there: the file itself or a rotated one.

    The same inode goes before the same beginning. It is looked for again where a name went to another file.
    """
    for _ in range(_SEARCHES):
        found, missed = _search(path, place, make_cutter)
        if found is not None or not missed:
            return found
    return None


def _search(path: Path, place: Place, make_cutter: MakeCutter) -> tuple[OpenFile | None, bool]:
    """The file, and whether one could not be looked at under its name any more.

    Raises
    ------
    SourceError
        The file of the place cannot be read now: another one that begins like it is not taken for it.
    """
    beside = rotated_beside(path) if place.known else []
    ours, missed = (place.device, place.inode), False
    files = [*_itself(path), *beside]
    # What holds the text has not changed before the place was taken: the first such file is mostly it.
    for file in sorted(files, key=lambda each: (each.id != ours, each.modified < place.modified)):
        try:
            candidate = opened(file, make_cutter)
            if candidate is not None and candidate.is_at(place):
                return candidate.begin(place.at, place.modified), missed
        except DAMAGED as error:
            if file.id == ours and getattr(error, "errno", None):  # of the system; gzip's errors have none
                raise SourceError(f"{file.path} cannot be read: {error}") from error
            continue
        if candidate is None:
            missed = True
        else:
            candidate.close()
    return None, missed


def _itself(path: Path) -> Iterator[Rotated]:
    try:
        now = os.stat(path)
    except OSError:
        return
    yield Rotated(path, (now.st_dev, now.st_ino), now.st_mtime_ns)

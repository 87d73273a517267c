"""The position in a followed file together with the file's identity, and the search for rotated files.

Rotation gives a file another name, or copies and truncates it. A place is a byte of a file together with the
marks that identify the file under any name: its inode and parts of its text.
"""

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
_LEAST_DATE = 6  # digits of a date; fewer are a count, of which 1 is the newest

DAMAGED = (OSError, EOFError, zlib.error)
"""The exceptions that reading a damaged file raises."""

MakeCutter = Callable[[int, bytes], LineCutter]
"""A function from a byte offset and the first bytes of the text to a cutter that begins there."""


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=16).digest()


@dataclass(frozen=True, slots=True)
class Place:
    """A position in a file, with the properties by which the file is recognised after a rotation.

    Parameters
    ----------
    at : int
        Byte offset in the (uncompressed) text.
    device, inode : int
        The device and inode numbers of the file. They are 0 if an older version of Blindsight stored the
        position.
    head : bytes
        Digest of the first `head_bytes` bytes.
    head_bytes : int
        The length of the text that `head` covers: at most 1 KiB, and at most the size of the file when it was
        read.
    tail : bytes
        Digest of at most 256 bytes before `at`. This digest identifies the file if the writer has overwritten
        the beginning with blanks.
    modified : int
        The latest time of change of the file that was observed, in ns since the epoch. A rotated file with a
        later time of change has not been read.
    """

    at: int
    device: int = 0
    inode: int = 0
    head: bytes = b""
    head_bytes: int = 0
    tail: bytes = b""
    modified: int = 0

    @classmethod
    def from_position(cls, position: Any) -> Place:
        """Return the place that a stored position describes. Older versions stored only a byte offset."""
        if isinstance(position, Mapping):
            return cls(**{name: position[name] for name in cls.__slots__})
        return cls(int(position))

    def position(self) -> dict[str, Any]:
        """Return the place as plain values that a store can hold."""
        return {name: getattr(self, name) for name in self.__slots__}

    @property
    def known(self) -> bool:
        """True if the place identifies its file; False if it has only a byte offset."""
        return bool(self.inode)


def _open_at_once(path: Any, flags: int) -> int:
    """Return a descriptor of a file, or raise an OSError for a pipe.

    Opening a pipe would wait for a writer without a limit.
    """
    number = os.open(path, flags | os.O_NONBLOCK)
    if stat.S_ISFIFO(os.fstat(number).st_mode):
        os.close(number)
        raise OSError(errno.EINVAL, "it is a pipe now; let it be a file", path)
    return number


class OpenFile:
    """An open file: the followed file, or a rotated file, which may be compressed with gzip.

    Parameters
    ----------
    path : Path
    make_cutter : callable
        See `MakeCutter`.

    Raises
    ------
    OSError, EOFError, zlib.error
        The file cannot be opened, or its beginning is damaged.
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
        data: bytes = self._stream.read(count)
        self._stream.seek(0)
        return data

    def begin(self, at: int, modified: int | None = None) -> OpenFile:
        """Set the position in the file, and return this object.

        Parameters
        ----------
        at : int
            The byte offset in the uncompressed text.
        modified : int, optional
            The value of `Place.modified` for this file; by default it stays as it is.
        """
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
        """The current size of the file on the disk, in bytes."""
        return os.fstat(self.file.fileno()).st_size

    @property
    def left(self) -> bool:
        """True if the file is longer than the text that was read."""
        return not self._ended if self.packed else self.size > self.cutter.fed

    def take(self) -> bytes | None:
        """Return the next bytes; b"" at the end; None if the text before the position was overwritten.

        Raises
        ------
        OSError, EOFError, zlib.error
            A compressed file is damaged.
        """
        fed = self.cutter.fed
        data: bytes = self._stream.read(BLOCK_BYTES)
        if not self.packed:
            # Checked after reading, so that a truncation in between is noticed.
            now, end = os.fstat(self.file.fileno()), fed + len(data)
            head = self._first(HEAD_BYTES)[:end]
            if now.st_size < end or not (head.startswith(self._head) or self._blanked()):
                self._replaced = True
                return None
            if end:  # in an empty file, text may have been written, copied and truncated meanwhile
                self._head, self.modified = head, max(self.modified, now.st_mtime_ns)
        self._lines += data.count(b"\n")
        self._ended = not data
        return data

    def _blanked(self) -> bool:
        """Return whether only the beginning has changed."""
        return bool(self._tail) and self._before(self.cutter.position) == self._tail

    def place(self, at: int | None = None) -> Place:
        """Return the place at the byte offset `at`, by default after the last whole line.

        A place is a position and the identity of the file.
        """
        at = self.cutter.position if at is None else at
        if not self._replaced:
            self._tail = self._before(at)
        head = self._head
        return Place(at, *self.id, _digest(head), len(head), _digest(self._tail), self.modified)

    def place_of_all(self) -> Place:
        """Return the place of byte 0, with digests of the file's current text."""
        head = self._first(HEAD_BYTES)
        return Place(0, *self.id, _digest(head), len(head), modified=self.modified)

    def is_at(self, place: Place) -> bool:
        """Return whether a place belongs to this file. The inode or the digests of the text decide."""
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
        """Return the approximate number of remaining records; None before the first line.

        The number is the sum of the remaining bytes and `behind`, divided by the mean length of a line.
        `behind` is the size of the later files in bytes. The remaining bytes of a compressed file are not
        known, and count as 0.
        """
        lines, fed = self._lines, self.cutter.fed - self._first_byte
        if not lines or fed <= 0:
            return None
        left = 0 if self.packed else max(self.size - self.cutter.position, 0)
        return -(-(left + behind) * lines // fed)

    def close(self) -> None:
        """Close the file."""
        self._stream.close()
        self.file.close()


@dataclass(frozen=True, slots=True)
class Rotated:
    """A rotated file in the listing of a folder.

    Parameters
    ----------
    path : Path
    id : tuple of int
        Device and inode.
    modified : int
        The time of change in ns since the epoch.
    number : str
        The number or date in the name of the file.
    sure : bool
        True if the name shows that this is a rotated file, as ``p.1`` does. False for a name such as ``p1``,
        which may also belong to an unrelated file.
    """

    path: Path
    id: tuple[int, int]
    modified: int
    number: str = ""
    sure: bool = True

    @property
    def is_counted(self) -> bool:
        """True if the name has a number, False if it has a date."""
        return self.number.isdigit() and len(self.number) < _LEAST_DATE


# p.log.1, p.log-20260131, p.log.2026-01-31_23-59-59; with logrotate's `extension` p-20260131.log.
_SUFFIX = re.compile(r"(?P<mark>[-._]?)(?P<number>\d[-.:_T\d]*Z?)(\.gz)?")
_DATED = re.compile(r"[-._](?P<number>\d[-.:_T\d]*Z?)")


def rotation_of(name: str, base: str) -> tuple[str, bool] | None:
    """Return the number or date in a rotated file's name, and the value of `Rotated.sure`.

    Return None if no rotated file of `base` has such a name.

    Examples
    --------
    >>> rotation_of("p.log.1", "p.log"), rotation_of("p.log-20260131.gz", "p.log")
    (('1', True), ('20260131', True))
    >>> rotation_of("p-20260131.log", "p.log"), rotation_of("p.log2", "p.log")
    (('20260131', True), ('2', False))
    >>> rotation_of("p.1.log", "p.log")
    """
    suffix = _SUFFIX.fullmatch(name, len(base)) if name.startswith(base) else None
    if suffix:
        return suffix["number"], bool(suffix["mark"])
    stem, extension = os.path.splitext(base)
    plain = name.removesuffix(".gz")
    if not (extension and name.startswith(stem) and plain.endswith(extension)):
        return None
    dated = _DATED.fullmatch(plain, len(stem), len(plain) - len(extension))
    date = sum(map(str.isdigit, dated["number"])) >= _LEAST_DATE if dated else False
    return (dated["number"], True) if dated and date else None


def rotation_bases(name: str) -> set[str]:
    """Return the possible original names of a rotated file.

    The result is empty if a file that was never rotated may have this name (`Rotated.sure` is False).

    Examples
    --------
    >>> sorted(rotation_bases("p.log.1")), sorted(rotation_bases("p.1.log")), rotation_bases("p-20260131.log")
    (['p.log'], [], {'p.log'})
    """
    plain = name.removesuffix(".gz")
    stem, extension = os.path.splitext(plain)
    cuts = [mark.start() for mark in re.finditer(r"[-._](?=\d)", plain) if mark.start()]
    bases = {plain[:cut] for cut in cuts} | {stem[:cut] + extension for cut in cuts if cut < len(stem)}
    return {base for base in bases if (rotation_of(name, base) or ("", False))[1]}


def rotated_beside(path: Path) -> list[Rotated]:
    """Return the rotated files of a path, the oldest first.

    The order follows the names: the file with the number 1 is the newest, and a later date is newer. If both
    kinds of names occur, the order follows the times of change. Files whose names may belong to an unrelated
    file (`Rotated.sure` is False) are last, in no order. While a file is being compressed, the result has the
    uncompressed file.
    """
    names = _names(path)
    for _ in range(_LISTINGS):
        rotated = _described(path, names)
        before, names = names, _names(path)
        if names == before:  # else a file that was renamed during the listing may be missing
            break
        time.sleep(_PAUSE_SECONDS)
    both = len({each.is_counted for each in rotated if each.sure}) > 1

    def age(file: Rotated) -> tuple[Any, ...]:
        if both:
            return (file.modified,)
        return (-int(file.number),) if file.is_counted else (file.number,)

    sure = [each for each in rotated if each.sure]
    return [*sorted(sure, key=age), *(each for each in rotated if not each.sure)]


class _FolderNames:
    """A cache of the names and inodes in folders, which lists a folder again if its time of change has moved.

    Two changes in quick succession may have the same time, so a listing is kept only if the last change
    before it is old enough.
    """

    def __init__(self) -> None:
        self._kept: dict[str, tuple[int, list[str], dict[str, int]]] = {}

    def beginning_with(self, stem: str, folder: str) -> dict[str, int]:
        """Return the inodes of the names in a folder that begin with `stem`, {} if it cannot be listed."""
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
    """Return the inodes of the names in the folder that may be rotated files."""
    folder, name = os.path.split(path)
    return _FOLDERS.beginning_with(os.path.splitext(name)[0], folder or os.curdir)


def _described(path: Path, names: Collection[str]) -> list[Rotated]:
    by_name: dict[str, Rotated] = {}
    for name in sorted(names):
        named = rotation_of(name, path.name)
        if named is None or name.removesuffix(".gz") in by_name:
            continue
        try:
            now = os.stat(path.parent / name)
        except OSError:
            continue
        if stat.S_ISREG(now.st_mode):
            by_name[name] = Rotated(path.parent / name, (now.st_dev, now.st_ino), now.st_mtime_ns, *named)
    return [*by_name.values()]


def opened(file: Rotated, make_cutter: MakeCutter) -> OpenFile | None:
    """Open a rotated file at its beginning, or return None if its name belongs to another file by now."""
    try:
        open_file = OpenFile(file.path, make_cutter)
    except FileNotFoundError:
        return None
    if open_file.id == file.id:
        return open_file
    open_file.close()
    return None


def find_again(path: Path, place: Place, make_cutter: MakeCutter) -> OpenFile | None:
    """Open the followed or rotated file that holds the text of a place, at that place.

    Return None if no file holds the text. A file with the same inode is tried before a file with the same
    beginning. If a file is renamed during the search, the search is repeated.
    """
    for _ in range(_SEARCHES):
        file, missed = _search(path, place, make_cutter)
        if file is not None or not missed:
            return file
    return None


def _search(path: Path, place: Place, make_cutter: MakeCutter) -> tuple[OpenFile | None, bool]:
    """Return the file with the text of a place, and whether a candidate's name has moved to another file.

    Raises
    ------
    SourceError
        The file with the inode of the place cannot be read now, so no other file is searched.
    """
    beside = rotated_beside(path) if place.known else []
    ours, missed = (place.device, place.inode), False
    files = [*_itself(path), *beside]
    # The file changed after the place was recorded, so the first such candidate is mostly the right one.
    for file in sorted(files, key=lambda each: (each.id != ours, each.modified < place.modified)):
        try:
            candidate = opened(file, make_cutter)
            if candidate is not None and candidate.is_at(place):
                return candidate.begin(place.at, place.modified), missed
        except DAMAGED as error:
            if file.id == ours and getattr(error, "errno", None):  # gzip's own errors have no errno
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

"""The contract of a spool: posted records rest there from their acknowledgement until they are used.

Offsets count the bytes of all lines that were ever kept, and go on rising whatever was deleted. The lines of
many posts are kept together (group commit) by one thread; another one reads, and sees only what is kept for
sure. `connectors.http.spool` keeps them in a folder, `monitor.store.spool_table` in the store's database.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from itertools import groupby
from typing import NamedTuple

from monitor.base.errors import BlindsightError


class SpoolFullError(BlindsightError):
    """There is no room for more until something is used."""


class SpoolWriteError(BlindsightError):
    """The lines could not be kept: they are not acknowledged."""


class SpoolLines(NamedTuple):
    """Whole lines, the offset of the first, and whether they were posted as labels."""

    lines: bytes
    start: int
    labels: bool


class SpoolPost(NamedTuple):
    """Lines, how many they are, whether they are labels, and who waits for them."""

    lines: bytes
    rows: int
    labels: bool
    future: Future[int]


class SpoolFrame(NamedTuple):
    """What is kept as one: lines of one kind that follow each other."""

    lines: bytes
    start: int
    rows: int
    labels: bool

    @property
    def end(self) -> int:
        return self.start + len(self.lines)


def framed(posts: Sequence[SpoolPost], start: int) -> Iterator[SpoolFrame]:
    """A frame for each stretch of one kind, the first at this offset."""
    for labels, run in groupby(posts, lambda post: post.labels):
        some = list(run)
        frame = SpoolFrame(b"".join(p.lines for p in some), start, sum(p.rows for p in some), labels)
        start = frame.end
        yield frame


def joined(stretches: Sequence[SpoolLines]) -> list[SpoolLines]:
    """Those of one kind that follow each other as one.

    Examples
    --------
    >>> joined([SpoolLines(b"a\\n", 0, False), SpoolLines(b"b\\n", 2, False), SpoolLines(b"c\\n", 4, True)])
    [SpoolLines(lines=b'a\\nb\\n', start=0, labels=False), SpoolLines(lines=b'c\\n', start=4, labels=True)]
    """
    runs = [list(run) for _, run in groupby(stretches, lambda each: each.labels)]
    return [SpoolLines(b"".join(each.lines for each in run), run[0].start, run[0].labels) for run in runs]


class PostSpool(ABC):
    """An append-only queue of lines. `append` and `absorbed` may be called from any thread.

    Parameters
    ----------
    max_bytes : int
        Of what waits.
    group_bytes : int
        Kept at once, at most, but for a single larger post.
    frame_bytes : int
        What a frame takes beside its lines.
    """

    def __init__(self, max_bytes: int, group_bytes: int, frame_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._group_bytes = group_bytes
        self._frame_bytes = frame_bytes
        self._lock = threading.RLock()
        self._to_write = threading.Condition(self._lock)  # the writer waits for posts, or for something used
        self._to_read = threading.Condition(self._lock)  # the reader waits for what is kept
        self._waiting: list[SpoolPost] = []
        self._bytes = 0  # kept, and waiting to be
        self._closing = False
        self._thread: threading.Thread | None = None

    @abstractmethod
    def open(self, position: int | None) -> None:
        """Get ready, and go on reading at `position`; without one where nothing was used yet.

        Raises
        ------
        SourceError, StoreError
            It cannot be had.
        """

    def append(self, lines: bytes, rows: int, labels: bool = False) -> Future[int]:
        """Have whole lines kept; the future holds the offset after them once they are kept for sure.

        `labels` says whether they were posted as such. The future fails with `SpoolWriteError` where they
        cannot be kept.

        Raises
        ------
        SpoolFullError
            There is no room. Nothing was kept.
        """
        need = len(lines) + self._frame_bytes
        with self._lock:
            if self._closing or self._thread is None:
                raise SpoolFullError("The spool is closed")
            if self._bytes + need > self.max_bytes:
                raise SpoolFullError(f"The spool holds its {self.max_bytes} bytes")
            future: Future[int] = Future()
            future.set_running_or_notify_cancel()  # who waits may leave; what is written cannot be taken back
            if not self._waiting:
                self._to_write.notify()
            self._waiting.append(SpoolPost(lines, rows, labels, future))
            self._bytes += need
        return future

    @abstractmethod
    def read(self, timeout_seconds: float) -> list[SpoolLines]:
        """The next whole lines, about 1 MiB, in stretches of one kind; [] where none came in time.

        Raises
        ------
        SourceError
            What was kept is not there any more, or is damaged.
        """

    @abstractmethod
    def absorbed(self, position: int) -> None:
        """Hear that all before this offset is used, and that this is saved: it may go."""

    @abstractmethod
    def close(self) -> None:
        """Keep what waits, and let go."""

    @property
    @abstractmethod
    def lag(self) -> int:
        """Lines that are kept and were not read yet."""

    @property
    def size(self) -> int:
        """Bytes of all that is kept, and of what waits to be."""
        with self._lock:
            return self._bytes

    @abstractmethod
    def _kept(self, group: Sequence[SpoolPost], reserved: int) -> int:
        """Keep these posts; the offset after them. `reserved` of `_bytes` are theirs already.

        Raises
        ------
        SpoolWriteError
            None of them is kept, and the bytes are given back.
        """

    @abstractmethod
    def _untidy(self) -> bool:
        """Whether something is used and can go now; called with the lock."""

    @abstractmethod
    def _untidy_seconds(self) -> float | None:
        """In how long to ask again; None where nothing that is kept is used."""

    @abstractmethod
    def _tidy(self) -> None:
        """Let go of what is used."""

    def _begin_writing(self) -> None:
        self._closing = False
        self._thread = threading.Thread(target=self._write, name="blindsight-spool", daemon=True)
        self._thread.start()

    def _end_writing(self, timeout_seconds: float | None = None) -> bool:
        """End the thread; whether there was one."""
        with self._lock:
            self._closing = True
            self._to_write.notify_all()
            self._to_read.notify_all()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join(timeout_seconds)
        return thread is not None

    def _write(self) -> None:
        """The writer's thread: a group of posts after another, until closed and all is kept."""
        while (group := self._next_group()) is not None:
            if group:
                self._write_group(group)
            else:
                self._tidy()

    def _next_group(self) -> list[SpoolPost] | None:
        """Some that wait; none where only something is to go; None at the end, once that is gone."""
        with self._lock:
            while not (self._waiting or self._closing or self._untidy()):
                self._to_write.wait(self._untidy_seconds())
            if self._closing and not self._waiting:
                return [] if self._untidy() else None
            size = count = 0
            for post in self._waiting:
                if count and size + len(post.lines) > self._group_bytes:
                    break
                size, count = size + len(post.lines), count + 1
            group, self._waiting = self._waiting[:count], self._waiting[count:]
            return group

    def _write_group(self, group: Sequence[SpoolPost]) -> None:
        reserved = sum(len(post.lines) + self._frame_bytes for post in group)
        try:
            end = self._kept(group, reserved)
        except SpoolWriteError as failure:
            for post in group:
                post.future.set_exception(failure)
        else:
            for post in group:
                post.future.set_result(end)


Spools = Callable[[str, int], PostSpool]
"""Makes the spool of a source, by its name and `max_bytes`, where the store's database keeps it."""

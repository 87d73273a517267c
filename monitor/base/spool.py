"""The contract of a spool: posted records rest there from their acknowledgement until they are used.

Offsets count the bytes of all lines that were ever kept, and go on rising whatever was deleted. The lines of
many posts are kept together (group commit) by one thread; another one reads, and sees only what is kept for
sure. `connectors.http.spool` keeps them in a folder, `monitor.store.spool_table` in the store's database.
"""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from itertools import groupby
from typing import NamedTuple

from monitor.base.errors import BlindsightError

log = logging.getLogger("blindsight")

SLOW_SECONDS = 10.0
"""A write of a group of posts that takes longer counts as trouble; it normally takes some milliseconds."""

AGAIN_SECONDS = 1.0
"""How long after a failure to look whether posts can be kept again."""


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
        self.lost: int | None = None
        """Rows that were kept and are gone, since it was opened first; None where that cannot happen."""
        self._lock = threading.RLock()
        self._to_write = threading.Condition(self._lock)  # the writer waits for posts, or for something used
        self._to_read = threading.Condition(self._lock)  # the reader waits for what is kept
        self._waiting: list[SpoolPost] = []
        self._bytes = 0  # kept, and waiting to be
        self._closing = False
        self._thread: threading.Thread | None = None
        self._fault: str | None = None  # why nothing could be kept at the last try
        self._busy_since: float | None = None  # since when the writer writes, monotonic
        self._next_look = 0.0  # when to look whether posts can be kept, monotonic

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
    def trouble(self) -> str | None:
        """Return why posts cannot be kept at present, without a full stop; None where they can."""
        since = self._busy_since
        if since is not None and (stands := time.monotonic() - since) > SLOW_SECONDS:
            return f"posts cannot be kept: the spool has not answered for {stands:.0f} s"
        return self._fault and f"posts cannot be kept: {self._fault}"

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

    @abstractmethod
    def _look(self) -> None:
        """Test whether posts can be kept, by keeping none.

        Raises
        ------
        SpoolWriteError
            They could not.
        """

    _look_seconds: float | None = None
    """How often to look where no posts come; None where only a post or an earlier failure can tell."""

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
            self._busy_since = time.monotonic()
            try:
                self._write_group(group)
            except SpoolWriteError as failure:
                self._fault = str(failure)
            except Exception as failure:  # the thread must outlive it, whatever it was
                log.exception("The spool has failed; it tries again.")
                self._fault = repr(failure)
            else:
                self._fault = None
            self._busy_since = None
            pause = self._look_seconds if self._fault is None else AGAIN_SECONDS
            self._next_look = time.monotonic() + (pause or 0.0)

    def _next_group(self) -> list[SpoolPost] | None:
        """Return posts that wait; none where something is to be tidied or looked at; None at the end."""
        with self._lock:
            while not (self._waiting or self._closing or self._untidy() or self._is_look_due()):
                self._to_write.wait(self._idle_seconds())
            if self._closing and not self._waiting:
                return [] if self._untidy() else None
            size = count = 0
            for post in self._waiting:
                if count and size + len(post.lines) > self._group_bytes:
                    break
                size, count = size + len(post.lines), count + 1
            group, self._waiting = self._waiting[:count], self._waiting[count:]
            return group

    def _looks(self) -> bool:
        """Return whether to look now and then: clients that were refused may never post again."""
        return self._fault is not None or self._look_seconds is not None

    def _is_look_due(self) -> bool:
        return self._looks() and time.monotonic() >= self._next_look

    def _idle_seconds(self) -> float | None:
        """Return how long to wait for posts at most."""
        look = max(self._next_look - time.monotonic(), 0.0) if self._looks() else None
        return min((each for each in (self._untidy_seconds(), look) if each is not None), default=None)

    def _write_group(self, group: Sequence[SpoolPost]) -> None:
        if not group:
            if self._untidy():
                self._tidy()
            if self._looks():
                self._look()
            return
        reserved = sum(len(post.lines) + self._frame_bytes for post in group)
        try:
            end = self._kept(group, reserved)
        except Exception as failure:
            for post in group:
                post.future.set_exception(failure)
            raise
        for post in group:
            post.future.set_result(end)


Spools = Callable[[str, int], PostSpool]
"""Makes the spool of a source, by its name and `max_bytes`, where the store's database keeps it."""

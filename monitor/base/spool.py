"""The interface of a spool, which stores posted records durably until they are used.

An offset is a number of bytes, counted over all lines that were ever stored. Deletions do not change offsets.
One thread stores the lines of several posts together (group commit). Another thread reads lines after they
are durable. `connectors.http.spool` stores lines in a folder. `monitor.store.spool_table` stores them in the
store's database.
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
"""The time after which an unfinished write is reported as trouble; normally a write takes milliseconds."""

AGAIN_SECONDS = 1.0
"""The pause after a failure before the spool tests whether it can store posts again."""


class SpoolFullError(BlindsightError):
    """The spool has no room for further lines until stored lines are used."""


class SpoolWriteError(BlindsightError):
    """The lines could not be stored and must not be acknowledged."""


class SpoolLines(NamedTuple):
    """Complete lines, the offset of the first line, and whether the lines were posted as labels."""

    lines: bytes
    start: int
    labels: bool


class SpoolPost(NamedTuple):
    """The lines of a post, their number, whether they are labels, and the future that `append` returned."""

    lines: bytes
    rows: int
    labels: bool
    future: Future[int]


class SpoolFrame(NamedTuple):
    """Consecutive lines that are stored together. Either all of them are labels, or none is."""

    lines: bytes
    start: int
    rows: int
    labels: bool

    @property
    def end(self) -> int:
        """The offset after the last of these lines."""
        return self.start + len(self.lines)


def make_frames(posts: Sequence[SpoolPost], start: int) -> Iterator[SpoolFrame]:
    """Divide posts into frames, each with successive posts that are all labels or all answers.

    Parameters
    ----------
    posts : sequence of SpoolPost
    start : int
        The offset of the lines of the first post.

    Yields
    ------
    SpoolFrame
        The frames, in the order of the posts.
    """
    for labels, run in groupby(posts, lambda post: post.labels):
        some = list(run)
        frame = SpoolFrame(b"".join(p.lines for p in some), start, sum(p.rows for p in some), labels)
        start = frame.end
        yield frame


def merge_stretches(stretches: Sequence[SpoolLines]) -> list[SpoolLines]:
    r"""Merge successive `SpoolLines` whose lines are all labels, or all answers.

    Examples
    --------
    >>> a, b, c = (SpoolLines(b"a\n", 0, False), SpoolLines(b"b\n", 2, False), SpoolLines(b"c\n", 4, True))
    >>> merge_stretches([a, b, c])
    [SpoolLines(lines=b'a\nb\n', start=0, labels=False), SpoolLines(lines=b'c\n', start=4, labels=True)]
    """
    runs = [list(run) for _, run in groupby(stretches, lambda each: each.labels)]
    return [SpoolLines(b"".join(each.lines for each in run), run[0].start, run[0].labels) for run in runs]


class PostSpool(ABC):
    """An append-only queue of lines. Any thread may call `append` and `absorbed`.

    Parameters
    ----------
    max_bytes : int
        The largest total size in bytes of the lines that are not used yet.
    group_bytes : int
        The largest size in bytes of several posts that are stored together. A single post may be larger.
    frame_bytes : int
        The overhead of a frame in bytes.
    """

    def __init__(self, max_bytes: int, group_bytes: int, frame_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._group_bytes = group_bytes
        self._frame_bytes = frame_bytes
        self.lost: int | None = None
        """The number of stored rows lost since the spool was first opened; None if no row can be lost."""
        self._lock = threading.RLock()
        self._to_write = threading.Condition(self._lock)  # the writer waits for posts or used lines
        self._to_read = threading.Condition(self._lock)  # the reader waits for stored lines
        self._waiting: list[SpoolPost] = []
        self._bytes = 0  # size of the lines that are stored or wait to be stored
        self._closing = False
        self._thread: threading.Thread | None = None
        self._fault: str | None = None  # the reason why the last write failed
        self._busy_since: float | None = None  # monotonic time at which the current write began
        self._next_look = 0.0  # monotonic time of the next test whether posts can be stored

    @abstractmethod
    def open(self, position: int | None) -> None:
        """Open the spool, to read from an offset. None means that no lines have been used.

        Raises
        ------
        SourceError, StoreError
            The spool cannot be opened.
        """

    def append(self, lines: bytes, rows: int, labels: bool = False) -> Future[int]:
        """Queue complete lines, and return a future with the offset after these lines.

        The future is done when the lines are durable. It raises `SpoolWriteError` if they cannot be stored.

        Parameters
        ----------
        lines : bytes
        rows : int
            The number of lines.
        labels : bool
            Whether the lines were posted as labels.

        Raises
        ------
        SpoolFullError
            The spool is full or closed; nothing was stored.
        """
        need = len(lines) + self._frame_bytes
        with self._lock:
            if self._closing or self._thread is None:
                raise SpoolFullError("The spool is closed")
            if self._bytes + need > self.max_bytes:
                raise SpoolFullError(f"The spool holds its {self.max_bytes} bytes")
            future: Future[int] = Future()
            future.set_running_or_notify_cancel()  # a write cannot be cancelled
            if not self._waiting:
                self._to_write.notify()
            self._waiting.append(SpoolPost(lines, rows, labels, future))
            self._bytes += need
        return future

    @abstractmethod
    def read(self, timeout_seconds: float) -> list[SpoolLines]:
        """Return the next complete lines, about 1 MiB. The list is empty if no lines come in time.

        In one `SpoolLines`, either all lines are labels, or none is.

        Raises
        ------
        SourceError
            Stored lines are missing or damaged.
        """

    @abstractmethod
    def absorbed(self, position: int) -> None:
        """Record that all lines before an offset are used and saved. They may then be deleted."""

    @abstractmethod
    def close(self) -> None:
        """Store the waiting posts, and close the spool."""

    @property
    @abstractmethod
    def lag(self) -> int:
        """The number of stored lines that have not been read."""

    @property
    def trouble(self) -> str | None:
        """The reason why posts cannot be stored now, without a full stop; None if they can be stored."""
        since = self._busy_since
        if since is not None and (stands := time.monotonic() - since) > SLOW_SECONDS:
            return f"posts cannot be kept: the spool has not answered for {stands:.0f} s"
        return self._fault and f"posts cannot be kept: {self._fault}"

    @property
    def size(self) -> int:
        """The size in bytes of all lines that are stored or wait to be stored."""
        with self._lock:
            return self._bytes

    @abstractmethod
    def _kept(self, group: Sequence[SpoolPost], reserved: int) -> int:
        """Store posts and return the offset after them.

        Parameters
        ----------
        group : sequence of SpoolPost
        reserved : int
            The size that `append` added to `_bytes` for these posts.

        Raises
        ------
        SpoolWriteError
            No post is stored; the reserved size is subtracted from `_bytes`.
        """

    @abstractmethod
    def _untidy(self) -> bool:
        """Return whether used lines can be deleted now. The caller must hold the lock."""

    @abstractmethod
    def _untidy_seconds(self) -> float | None:
        """Return the seconds until the next call of `_untidy`; None if there are no used lines."""

    @abstractmethod
    def _tidy(self) -> None:
        """Delete used lines."""

    @abstractmethod
    def _look(self) -> None:
        """Test whether posts can be stored, without storing one.

        Raises
        ------
        SpoolWriteError
            Posts cannot be stored.
        """

    _look_seconds: float | None = None
    """The seconds between calls of `_look` without a post; None to call it only after a failure."""

    def _begin_writing(self) -> None:
        """Start the writer's thread."""
        self._closing = False
        self._thread = threading.Thread(target=self._write, name="blindsight-spool", daemon=True)
        self._thread.start()

    def _end_writing(self, timeout_seconds: float | None = None) -> bool:
        """Let the writer's thread store the waiting posts and end. Return False if there is no thread."""
        with self._lock:
            self._closing = True
            self._to_write.notify_all()
            self._to_read.notify_all()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join(timeout_seconds)
        return thread is not None

    def _write(self) -> None:
        """Store groups of posts until the spool is closed and no post waits.

        The writer's thread runs this method.
        """
        while (group := self._next_group()) is not None:
            self._busy_since = time.monotonic()
            try:
                self._write_group(group)
            except SpoolWriteError as failure:
                self._fault = str(failure)
            except Exception as failure:  # the thread must survive any error
                log.exception("The spool has failed; it tries again.")
                self._fault = repr(failure)
            else:
                self._fault = None
            self._busy_since = None
            pause = self._look_seconds if self._fault is None else AGAIN_SECONDS
            self._next_look = time.monotonic() + (pause or 0.0)

    def _next_group(self) -> list[SpoolPost] | None:
        """Wait for work, and return the next group of posts.

        The group is empty if used lines can be deleted or a call of `_look` is due. The result is None if the
        spool is closed and all work is done.
        """
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
        """Return whether to call `_look` without a post.

        This is necessary after a refusal, because refused clients may not post again.
        """
        return self._fault is not None or self._look_seconds is not None

    def _is_look_due(self) -> bool:
        return self._looks() and time.monotonic() >= self._next_look

    def _idle_seconds(self) -> float | None:
        """Return the longest time to wait for posts in seconds; None for no limit."""
        look = max(self._next_look - time.monotonic(), 0.0) if self._looks() else None
        return min((each for each in (self._untidy_seconds(), look) if each is not None), default=None)

    def _write_group(self, group: Sequence[SpoolPost]) -> None:
        """Store a group of posts and set their futures. If the group is empty, call `_tidy` and `_look`."""
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
"""A factory of spools in the store's database, called with a source's name and `max_bytes`."""

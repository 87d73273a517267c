"""A sink with a bounded queue: its thread delivers the queued items to a destination."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from itertools import islice
from typing import Generic

from monitor.base.errors import SinkError
from monitor.export.sinks.destination import Destination, Item, Sink

log = logging.getLogger("blindsight")

_BATCH = 500  # items delivered together: enough that the cost of a system call or a round trip is negligible
_RETRY_SECONDS = 1.0  # a full disk stays full for longer; a shorter wait would only spin


class QueuedSink(Sink, Generic[Item]):
    """A sink that delivers items in order from a bounded queue; `write` never waits for the destination.

    Parameters
    ----------
    destination : Destination
    capacity : int
        Largest number of waiting items, including those under delivery.
    drop_oldest : bool
        The behaviour of a full queue. If True, a new item replaces the oldest item that is not being
        delivered. This suits windows, because the newest windows are the most important. If False, the new
        item is dropped. This suits rejected records, because the first records show most about the cause. In
        both cases, one item is lost.

    Examples
    --------
    >>> from monitor.export.sinks.line_file import LineFile
    >>> import tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "w.ndjson")
    ...     sink = QueuedSink(LineFile(str(path), name="w", setting="w.path", encode=bytes), capacity=10)
    ...     sink.start()
    ...     taken = sink.write(b"{}\\n")
    ...     (taken, sink.close(5.0), path.read_bytes(), sink.view.delivered)
    (True, True, b'{}\\n', 1)
    """

    def __init__(self, destination: Destination[Item], capacity: int, drop_oldest: bool = False) -> None:
        super().__init__(destination)
        self._capacity = capacity
        self._drop_oldest = drop_oldest
        self._most_at_once = max(1, min(_BATCH, capacity // 2))
        self._queue: deque[Item] = deque()
        self._under_way: list[Item] = []
        self._lock = threading.Lock()
        self._filled = threading.Condition(self._lock)
        self._emptied = threading.Condition(self._lock)
        self._failures = 0
        self._give_up: float | None = None  # monotonic time at which closing gives up

    @property
    def lost(self) -> int:
        """The number of items that were lost: the queue was full, they were refused, or `close` timed out."""
        return self.view.lost

    @property
    def written(self) -> int:
        """The number of items delivered since the start."""
        return self.view.delivered

    @property
    def failures(self) -> int:
        """The number of deliveries that failed and were tried again."""
        return self._failures

    def write(self, item: Item, wait_seconds: float = 0.0) -> bool:
        """Queue one item, and return whether the queue accepted it.

        Parameters
        ----------
        item
            An item of the destination's type.
        wait_seconds : float
            The time to wait for room in a full queue. In the daemon, it is 0, because no thread may wait for
            a disk. In a replay, it is longer, because a missing line would be worse than a late line. If
            there is still no room, the item is dropped. With `drop_oldest` and no wait, the oldest item is
            dropped instead.
        """
        with self._lock:
            if wait_seconds > 0:
                self._emptied.wait_for(lambda: self._give_up is not None or self._has_room(), wait_seconds)
            if not self._has_room():
                self._lost += 1
                displaces = self._drop_oldest and self._queue and not wait_seconds
                if self._give_up is not None or not displaces:
                    return False
                self._queue.popleft()
            self._queue.append(item)
            self._filled.notify()
            return True

    def close(self, timeout: float) -> bool:
        """Deliver the waiting items, and close the destination. Return whether all were delivered in time.

        Parameters
        ----------
        timeout : float
            Seconds after which undelivered items count as lost.
        """
        with self._lock:
            if self._give_up is None:
                self._give_up = time.monotonic() + timeout
            self._filled.notify()
            self._emptied.notify_all()
        self._join(timeout)
        with self._lock:
            left = self._waiting()
            self._lost += left
            self._queue.clear()
            self._under_way = []
        return left == 0

    def _has_room(self) -> bool:
        return self._give_up is None and self._waiting() < self._capacity

    def _waiting(self) -> int:
        return len(self._queue) + len(self._under_way)

    def _run(self) -> None:
        while items := self._next():
            try:
                done = self._destination.deliver(items)
            except SinkError as error:
                self._failed(str(error))
            except Exception as error:
                log.exception("%s: has failed; it is tried again.", self._destination.setting)
                self._failed(str(error))
            else:
                self._succeeded(done)
        left = 0.0 if self._give_up is None else max(0.0, self._give_up - time.monotonic())
        self._destination.close(left)

    def _next(self) -> list[Item]:
        """Return the items to deliver next.

        They count as waiting until they are delivered. No items: stop.
        """
        with self._lock:
            self._filled.wait_for(lambda: self._queue or self._under_way or self._give_up is not None)
            if self._give_up is not None and time.monotonic() >= self._give_up:
                return []
            if not self._under_way:
                self._under_way = list(islice(self._queue, self._most_at_once))
                for _ in self._under_way:
                    self._queue.popleft()
            return self._under_way

    def _failed(self, why: str) -> None:
        self._failures += 1
        if self._fails(why):
            log.warning("%s; up to %d lines wait meanwhile", why, self._capacity)
        with self._lock:
            self._filled.wait_for(lambda: self._give_up is not None, _RETRY_SECONDS)
            closing = self._give_up is not None
        if closing:
            # While closing, the condition above no longer waits, so that the loop would spin.
            time.sleep(0.05)

    def _succeeded(self, done: int) -> None:
        if self._works():
            log.warning("%s is written again; %d lines were lost so far", self._destination.where, self.lost)
        with self._lock:
            if self._under_way:  # otherwise `close` has given them up
                self._under_way = self._under_way[done:]
                self._delivered += done
            self._emptied.notify_all()

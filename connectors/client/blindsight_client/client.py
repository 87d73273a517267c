"""The client, which has two bounded queues and a thread that posts the queued records."""

from __future__ import annotations

import atexit
import json
import logging
import os
import random
import threading
import time
import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from blindsight_client.posting import Poster, Reply

log = logging.getLogger("blindsight_client")

_FIRST_WAIT, _LONGEST_WAIT = 0.5, 30.0  # seconds between two tries of a post, doubled each time, with jitter
_LONGEST_RETRY = 3600.0  # limit of Retry-After in seconds
_SAY_SECONDS = 60.0
_RETRIED = frozenset({401, 404, 408, 425, 429})
"""The statuses below 500 after which a post is tried again, because it may succeed later."""


@dataclass(frozen=True)
class Counts:
    """Counts of predictions or of labels; ``logged = sent + rejected + dropped + pending`` always holds.

    Parameters
    ----------
    logged : int
        Calls of `Client.log` or of `Client.label`.
    sent : int
        Records that the agent has acknowledged.
    rejected : int
        Records that the agent refused or that cannot be written as JSON; the first reason is logged.
    dropped : int
        Records that did not fit into the queue, and records that the client still held when it was closed.
    pending : int
        Records in the queue and in the current post.
    retries : int
        Number of posts that were tried again.
    """

    logged: int = 0
    sent: int = 0
    rejected: int = 0
    dropped: int = 0
    pending: int = 0
    retries: int = 0


class _Queue:
    """The records of one kind for one path, guarded by the lock of the client."""

    def __init__(self, path: str, max_records: int, max_bytes: int) -> None:
        self.path = path
        self._max_records, self._max_bytes = max_records, max_bytes
        self.lines: deque[bytes] = deque()
        self.posted: list[bytes] = []  # the records of the current post
        self.bytes = 0
        self.logged = self.sent = self.rejected = self.dropped = self.retries = 0
        self.wait = _FIRST_WAIT
        self.not_before = 0.0  # the monotonic time of the next try

    @property
    def pending(self) -> int:
        return len(self.lines) + len(self.posted)

    def add(self, line: bytes) -> None:
        self.logged += 1
        if self.pending >= self._max_records or self.bytes + len(line) > self._max_bytes:
            self.dropped += 1
            return
        self.lines.append(line)
        self.bytes += len(line)

    def take(self, most_records: int, most_bytes: int) -> list[bytes]:
        """Return the records to post: the current post if it must be sent again, else the next records."""
        if self.posted:
            return self.posted
        size = 0
        while self.lines and len(self.posted) < most_records:
            size += len(self.lines[0]) + 1
            if self.posted and size > most_bytes:
                break
            self.posted.append(self.lines.popleft())
        return self.posted

    def end(self, sent: int, rejected: int, dropped: int = 0) -> None:
        """End the current post, and add its records to the counts."""
        self.bytes -= sum(map(len, self.posted))
        self.sent += sent
        self.rejected += rejected
        self.dropped += dropped
        self.posted = []
        self.wait, self.not_before = _FIRST_WAIT, 0.0

    def halve(self) -> None:
        """Put the second half of the current post, which is too large, back into the queue."""
        rest = self.posted[len(self.posted) // 2 :]
        self.posted = self.posted[: len(self.posted) // 2]
        self.lines.extendleft(reversed(rest))

    def put_off(self, retry_after: float | None, now: float) -> None:
        """Postpone the current post by `retry_after` seconds, or by a growing pause."""
        self.retries += 1
        spread = self.wait * random.uniform(0.5, 1.0)
        self.not_before = now + (
            spread if retry_after is None else min(max(retry_after, 0.0), _LONGEST_RETRY)
        )
        self.wait = min(2 * self.wait, _LONGEST_WAIT)

    def drop(self) -> None:
        """Drop all records."""
        self.dropped += self.pending
        self.lines.clear()
        self.posted, self.bytes = [], 0

    def counts(self) -> Counts:
        return Counts(self.logged, self.sent, self.rejected, self.dropped, self.pending, self.retries)


class Client:
    """A client that sends predictions and labels to the `http` source of an agent from a background thread.

    `log` and `label` write a record as JSON, put it into a bounded queue and return. Both methods return
    without waiting for the agent, and raise no error if the agent fails. If the queue is full, the client
    drops the record and counts it. If the agent cannot accept a post now, the client sends the post again
    after the time in the header `Retry-After`, or after growing pauses. The agent recognises a repeated
    record by its id.

    Predictions and labels have separate queues. All methods may be called from any thread and from
    coroutines. After a fork, the child starts with empty queues and its own thread, and the parent still
    sends the records that it queued. At the end of the process, the client sends the remaining records for at
    most `close_seconds`. A process that ends by `os._exit`, such as a process of `multiprocessing`, should
    call `close` first.

    Parameters
    ----------
    url : str
        The address of the source, such as ``http://127.0.0.1:9108``; ``/v1/…`` is appended to its path.
    token : str, optional
        The bearer token.
    model, task : str, optional
        The model and task of records that name no model or task.
    max_records : int
        The largest number of records in each queue, including its current post.
    max_bytes : int
        The largest size of each queue in bytes.
    batch_records, batch_bytes : int
        The largest number of records and of bytes in one post. The agent accepts at most 50,000 rows and
        ``max_body_bytes``.
    flush_seconds : float
        The longest time for which a record waits in the queue before it is posted.
    timeout_seconds : float
        The time limit of a post.
    close_seconds : float
        The time limit for the remaining records at the end of the process.
    ca_file : str, optional
        A PEM file with the certificates of authorities for https; by default the certificates of the system.

    Raises
    ------
    ValueError
        The address or a number cannot be used.

    Examples
    --------
    >>> client = Client("http://127.0.0.1:9", model="erm", max_records=1, flush_seconds=60.0)
    >>> client.log("req-81", [0.1, 0.9])
    >>> client.log("req-82", [0.2, 0.8])
    >>> client.counts()["predictions"]
    Counts(logged=2, sent=0, rejected=0, dropped=1, pending=1, retries=0)
    >>> client.close(timeout=0.0)
    >>> client.counts()["predictions"].dropped
    2
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        model: str | None = None,
        task: str | None = None,
        max_records: int = 10_000,
        max_bytes: int = 10_000_000,
        batch_records: int = 1_000,
        batch_bytes: int = 1_000_000,
        flush_seconds: float = 1.0,
        timeout_seconds: float = 5.0,
        close_seconds: float = 5.0,
        ca_file: str | None = None,
    ) -> None:
        self._settings = {key: value for key, value in locals().items() if key not in ("self", "__class__")}
        for name in ("max_records", "max_bytes", "batch_records", "batch_bytes", "timeout_seconds"):
            if not self._settings[name] > 0:
                raise ValueError(f"{name}: expected a number above 0, got {self._settings[name]!r}")
        self._poster = Poster(url, token, timeout_seconds, ca_file)
        self._named = {key: value for key, value in (("task", task), ("model", model)) if value is not None}
        self._bounds = max_records, max_bytes
        self._batch = batch_records, batch_bytes
        self._flush_seconds, self._close_seconds = flush_seconds, close_seconds
        self._closing_at: float | None = None
        self._begin()
        atexit.register(_close, weakref.ref(self))
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=_Begin(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (self._settings,)  # for frameworks such as Ray that copy the client to other processes

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def log(
        self,
        id: str,
        scores: Sequence[float] | Mapping[str, float] | float | None = None,
        *,
        model: str | None = None,
        task: str | None = None,
        version: str | None = None,
        prediction: str | float | None = None,
        confidence: float | None = None,
        sigma: float | None = None,
        quantiles: Mapping[str, float] | None = None,
        groups: Mapping[str, Any] | None = None,
        features: Mapping[str, Any] | None = None,
        time: float | None = None,
    ) -> None:
        """Queue one answer of a model for the agent, without waiting and without raising an error.

        Parameters
        ----------
        id : str
            The id of the request. A label with the same id joins this answer. A second answer of the model
            with the same id is a duplicate.
        scores : sequence of float, mapping of class to float, or float, optional
            A list of class probabilities in the order of the configuration, a mapping from class to
            probability, or, in a task with two classes, the probability of the second class alone.
        model, task : str, optional
            The model and its task; by default the model and the task of the client.
        version : str, optional
            The version of the model.
        prediction : str or float, optional
            The predicted class, if it is not the class with the largest score. In a task whose models predict
            numbers, the predicted number.
        confidence : float, optional
            The probability that the answer is right, instead of `scores`.
        sigma : float, optional
            The standard deviation of the error of a predicted number, as the model states it.
        quantiles : mapping of str to float, optional
            The quantiles of the true number by level, such as ``{"0.05": -4, "0.95": 11}``.
        groups : mapping of str to str, optional
        features : mapping of str to float or str, optional
            The inputs of the model that the configuration of the task names.
        time : float, optional
            Seconds since the epoch, by default now.
        """
        extra: dict[str, Any] = {"model": model, "task": task, "version": version, "groups": groups}
        extra["prediction"] = prediction
        extra |= {"scores": scores, "confidence": confidence, "sigma": sigma, "quantiles": quantiles}
        extra["features"] = features
        self._add(self._predictions, {"id": id, "time": time}, extra)

    def label(
        self,
        id: str,
        label: str | float | None = None,
        *,
        correct: bool | None = None,
        model: str | None = None,
        task: str | None = None,
        probability: float | None = None,
        time: float | None = None,
    ) -> None:
        """Queue the label of a request for the agent, without waiting and without raising an error.

        Parameters
        ----------
        id : str
            The id of the request.
        label : str or float, optional
            The true class, or the true number.
        correct : bool, optional
            True if the answer of the model was right. Use it for a task without classes. Then `model` must be
            set here or in the client.
        model, task : str, optional
            The task, and the model whose answer the label describes. Without a model, a label applies to the
            answers of all models. The client's model is the default only together with `correct`.
        probability : float, optional
            The probability with which the request was picked for labelling, above 0 and at most 1.
        time : float, optional
            Seconds since the epoch, by default now.
        """
        named = self._named.get("model") if correct is not None and model is None else model
        extra = {"label": label, "correct": correct, "model": named, "task": task, "probability": probability}
        self._add(self._labels, {"id": id, "time": time}, extra, but="model")

    def counts(self) -> dict[str, Counts]:
        """Return the counts of this process so far, under the keys ``"predictions"`` and ``"labels"``."""
        with self._changed:
            return {"predictions": self._predictions.counts(), "labels": self._labels.counts()}

    def flush(self, timeout: float = 5.0) -> bool:
        """Wait until the agent has replied to the post of every record logged so far.

        Return True if the agent has replied to all of them within `timeout` seconds, else False.
        """
        until = time.monotonic() + timeout
        with self._changed:
            self._flushing = True
            self._changed.notify_all()
            done = self._changed.wait_for(lambda: not self._pending, max(until - time.monotonic(), 0.0))
            self._flushing = False
            return done

    def close(self, timeout: float | None = None) -> None:
        """Send the queued records for at most `timeout` seconds, drop the rest, and stop the thread.

        By default `timeout` is `close_seconds`.
        """
        seconds = self._close_seconds if timeout is None else timeout
        with self._changed:
            self._closing_at = time.monotonic() + seconds
            for queue in self._queues:
                queue.not_before = 0.0
            self._changed.notify_all()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(seconds)
        with self._changed:
            self._closed = True
            for queue in self._queues:
                queue.drop()
            self._changed.notify_all()

    def _begin(self) -> None:
        """Start with empty queues: in a new client, and in the child of a fork."""
        self._changed = threading.Condition()
        self._predictions = _Queue("/v1/predictions", *self._bounds)
        self._labels = _Queue("/v1/labels", *self._bounds)
        self._queues = self._predictions, self._labels
        self._thread: threading.Thread | None = None
        self._closing_at = None
        self._closed = self._flushing = False
        self._logged_at: dict[str, float] = {}
        self._poster.forget_connection()

    @property
    def _pending(self) -> int:
        return sum(queue.pending for queue in self._queues)

    def _add(self, queue: _Queue, record: dict[str, Any], extra: Mapping[str, Any], but: str = "") -> None:
        if record["time"] is None:
            record["time"] = time.time()
        record.update((key, value) for key, value in self._named.items() if key != but)
        record.update((key, value) for key, value in extra.items() if value is not None)
        try:
            line = json.dumps(record, separators=(",", ":"), default=_plain).encode()
        except (TypeError, ValueError, RecursionError) as error:
            self._reject(queue, error)
            return
        with self._changed:
            queue.add(line)
            if self._closed or (self._thread is None and not self._started()):
                queue.drop()
            elif len(queue.lines) == self._batch[0]:
                self._changed.notify_all()

    def _reject(self, queue: _Queue, error: Exception) -> None:
        with self._changed:
            queue.logged += 1
            queue.rejected += 1
        self._say(queue.path, f"a record cannot be written as JSON ({error}); give text and numbers")

    def _started(self) -> bool:
        """Start the thread; return False if the interpreter is about to end."""
        thread = threading.Thread(target=self._run, name="blindsight-client", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            return False
        self._thread = thread
        return True

    def _run(self) -> None:
        while not self._is_over():
            with self._changed:
                self._changed.wait_for(self._is_due, self._pause())
                ready = [queue for queue in self._queues if self._may_post(queue)]
                posts = [(queue, queue.take(*self._batch)) for queue in ready]
            for queue, lines in posts:
                if lines:
                    self._post(queue, lines)
        self._poster.close()

    def _is_over(self) -> bool:
        return self._closed or (self._closing_at is not None and not self._pending)

    def _is_due(self) -> bool:
        """Return whether a post should not wait for the next flush."""
        hurry = self._closing_at is not None or self._flushing
        ready = [queue for queue in self._queues if self._may_post(queue)]
        full = any(len(queue.lines) >= self._batch[0] for queue in ready)
        return self._is_over() or full or (hurry and bool(ready))

    def _may_post(self, queue: _Queue) -> bool:
        return queue.pending > 0 and time.monotonic() >= queue.not_before

    def _pause(self) -> float:
        """Return the seconds until the queues must be checked again."""
        waits = [queue.not_before - time.monotonic() for queue in self._queues if queue.posted]
        return max(min([self._flush_seconds, *waits]), 0.001)

    def _post(self, queue: _Queue, lines: list[bytes]) -> None:
        left = None if self._closing_at is None else self._closing_at - time.monotonic()
        answer = self._poster.post(queue.path, b"\n".join(lines) + b"\n", left)
        with self._changed:
            if self._closed or queue.posted is not lines:
                return  # `close` has counted the records as dropped
            message = self._settle(queue, answer, len(lines))
            self._changed.notify_all()
        if message:  # without the lock: a slow log handler must not block callers of `log`
            self._say(queue.path, message)

    def _settle(self, queue: _Queue, answer: Reply, count: int) -> str:
        """Count the records of a post by its reply, and return the message to be logged or ""."""
        if answer.status == 202:
            rejected = min(answer.rejected, count)
            queue.end(count - rejected, rejected)
            return f"the agent rejected {rejected} of {count} records: {answer.message}" if rejected else ""
        if answer.status == 413 and count > 1:
            queue.halve()
            return ""
        if answer.status == 0 or answer.status >= 500 or answer.status in _RETRIED:
            queue.put_off(answer.retry_after, time.monotonic())
            return f"the agent cannot take records now: {answer.message}; they wait in the queue"
        queue.end(0, count)
        return f"the agent refused {count} records: {answer.message}"

    def _say(self, about: str, sentence: str) -> None:
        """Log a message, at most once a minute about each subject."""
        now = time.monotonic()
        if now - self._logged_at.get(about, -_SAY_SECONDS) >= _SAY_SECONDS:
            self._logged_at[about] = now
            log.warning("%s", sentence[:1].upper() + sentence[1:])


class _Begin:
    """A callable that resets a client in the child of a fork, with a weak reference to the client."""

    def __init__(self, client: Client) -> None:
        self._client = weakref.ref(client)

    def __call__(self) -> None:
        client = self._client()
        if client is not None:
            client._begin()


def _close(client: weakref.ref[Client]) -> None:
    open_client = client()
    if open_client is not None:
        open_client.close()


def _again(settings: dict[str, Any]) -> Client:
    return Client(**settings)


def _plain(value: Any) -> Any:
    """Return an array or number of numpy, torch and so on as Python values."""
    for name in ("tolist", "item"):
        if hasattr(value, name):
            return getattr(value, name)()
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (set, frozenset)):
        raise TypeError(f"{type(value).__name__} has no order")
    return list(value)

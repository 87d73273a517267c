"""The client: two bounded queues, and one thread that posts what is in them."""

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

_FIRST_WAIT, _LONGEST_WAIT = 0.5, 30.0  # seconds between two tries of a post, doubled and spread by chance
_LONGEST_ASKED = 3600.0  # of what an answer asks for in Retry-After
_SAY_SECONDS = 60.0
_RETRIED = frozenset({401, 404, 408, 425, 429})
"""Answers below 500 after which the same post may be taken later: a token, a proxy or room may come."""


@dataclass(frozen=True)
class Counts:
    """What became of the records of one kind: ``logged = sent + rejected + dropped + pending`` at all times.

    Parameters
    ----------
    logged : int
        Calls of `Client.log`, or of `Client.label`.
    sent : int
        Records that the agent has acknowledged.
    rejected : int
        Records that the agent refused, or that could not be written as JSON; the log has the first reason.
    dropped : int
        Records for which the queue had no room, and those that were left when the client was closed.
    pending : int
        Records in the queue, and in the post under way.
    retries : int
        Posts that were tried again.
    """

    logged: int = 0
    sent: int = 0
    rejected: int = 0
    dropped: int = 0
    pending: int = 0
    retries: int = 0


class _Queue:
    """Records of one kind on their way to one path. Guarded by the client's lock."""

    def __init__(self, path: str, max_records: int, max_bytes: int) -> None:
        self.path = path
        self._max_records, self._max_bytes = max_records, max_bytes
        self.lines: deque[bytes] = deque()
        self.posted: list[bytes] = []  # the post under way
        self.bytes = 0
        self.logged = self.sent = self.rejected = self.dropped = self.retries = 0
        self.wait = _FIRST_WAIT
        self.not_before = 0.0  # monotonic

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
        """The next post; that of the last try, where there is one."""
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
        """The post under way is answered for good."""
        self.bytes -= sum(map(len, self.posted))
        self.sent += sent
        self.rejected += rejected
        self.dropped += dropped
        self.posted = []
        self.wait, self.not_before = _FIRST_WAIT, 0.0

    def halve(self) -> None:
        """The post under way is too large."""
        rest = self.posted[len(self.posted) // 2 :]
        self.posted = self.posted[: len(self.posted) // 2]
        self.lines.extendleft(reversed(rest))

    def put_off(self, asked: float | None, now: float) -> None:
        """The post under way is to be tried again, after as many seconds as the answer asked for."""
        self.retries += 1
        spread = self.wait * random.uniform(0.5, 1.0)
        self.not_before = now + (spread if asked is None else min(max(asked, 0.0), _LONGEST_ASKED))
        self.wait = min(2 * self.wait, _LONGEST_WAIT)

    def drop(self) -> None:
        """Nothing of it will be sent any more."""
        self.dropped += self.pending
        self.lines.clear()
        self.posted, self.bytes = [], 0

    def counts(self) -> Counts:
        return Counts(self.logged, self.sent, self.rejected, self.dropped, self.pending, self.retries)


class Client:
    """Sends predictions and labels to the `http` source of a Blindsight agent, from a thread of its own.

    `log` and `label` write a record as JSON, put it into a bounded queue and return: no call waits for the
    agent, and none raises because of it. What does not fit into the queue is dropped and counted. A post that
    the agent cannot take now is tried again, after what its answer asks for in `Retry-After`, else with
    growing pauses. The agent knows a record that comes twice by its id.

    Predictions and labels have a queue each. All methods may be called from any thread, and from coroutines.
    After a fork the child has an empty queue and a thread of its own, and the parent sends what its queue
    holds. Where the process ends, what is left has `close_seconds` to be sent; a process that ends by
    `os._exit`, as those of `multiprocessing`, should call `close` before.

    Parameters
    ----------
    url : str
        Of the source: ``http://127.0.0.1:9108``; a path is put before ``/v1/…``.
    token : str, optional
        Bearer token.
    model, task : str, optional
        Of the records that name none.
    max_records : int
        In each queue, with the post under way.
    max_bytes : int
        Of the records in each queue.
    batch_records, batch_bytes : int
        In one post at most; the agent's own bounds are 50,000 rows and ``max_body_bytes``.
    flush_seconds : float
        The oldest record waits no longer before it is posted.
    timeout_seconds : float
        For the agent to take and answer a post.
    close_seconds : float
        To send what is left when the process ends.
    ca_file : str, optional
        Certificates of the authorities for https, PEM; the system's if absent.

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
        return _again, (self._settings,)  # for a framework that copies it to other processes, as Ray does

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def log(
        self,
        id: str,
        scores: Sequence[float] | Mapping[str, float] | float,
        *,
        model: str | None = None,
        task: str | None = None,
        version: str | None = None,
        prediction: str | None = None,
        groups: Mapping[str, Any] | None = None,
        features: Mapping[str, Any] | None = None,
        time: float | None = None,
    ) -> None:
        """Log one answer of a model. It waits for nothing, and raises nothing.

        Parameters
        ----------
        id : str
            The request's, by which its label joins; the agent counts a second answer with it as a duplicate.
        scores : sequence of float, mapping of class to float, or float
            Probabilities of the classes in the order of the configuration; or of the positive one alone.
        model, task : str, optional
            If left out, the client's.
        version : str, optional
            Of the model.
        prediction : str, optional
            The class acted on, if it is not that of the largest score.
        groups : mapping of str to str, optional
        features : mapping of str to float or str, optional
            What the model was given, as far as the task's configuration names it.
        time : float, optional
            Seconds since the epoch; now if left out.
        """
        given = {"model": model, "task": task, "version": version, "prediction": prediction, "groups": groups}
        given["features"] = features
        self._add(self._predictions, {"id": id, "scores": scores, "time": time}, given)

    def label(
        self,
        id: str,
        label: str | None = None,
        *,
        correct: bool | None = None,
        model: str | None = None,
        task: str | None = None,
        probability: float | None = None,
        time: float | None = None,
    ) -> None:
        """Send the label of a request. It waits for nothing, and raises nothing.

        Parameters
        ----------
        id : str
            The request's.
        label : str, optional
            The true class.
        correct : bool, optional
            Instead, for a task without classes: whether the model's answer was right. It needs a model.
        model, task : str, optional
            A label that names no model is about the answers of them all; so `model` of the client is put in
            only where `correct` is given.
        probability : float, optional
            The chance with which the request was picked for labelling, above 0 and at most 1.
        time : float, optional
            Seconds since the epoch; now if left out.
        """
        whose = self._named.get("model") if correct is not None and model is None else model
        given = {"label": label, "correct": correct, "model": whose, "task": task, "probability": probability}
        self._add(self._labels, {"id": id, "time": time}, given, but="model")

    def counts(self) -> dict[str, Counts]:
        """What became of the ``"predictions"`` and of the ``"labels"`` so far, in this process."""
        with self._changed:
            return {"predictions": self._predictions.counts(), "labels": self._labels.counts()}

    def flush(self, timeout: float = 5.0) -> bool:
        """Wait until all that was logged is answered, at most so many seconds; whether it is."""
        until = time.monotonic() + timeout
        with self._changed:
            self._flushing = True
            self._changed.notify_all()
            done = self._changed.wait_for(lambda: not self._pending, max(until - time.monotonic(), 0.0))
            self._flushing = False
            return done

    def close(self, timeout: float | None = None) -> None:
        """Send what is left, at most for so many seconds (`close_seconds`); what then remains is dropped."""
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
        """With nothing logged: as it is made, and in the child of a fork."""
        self._changed = threading.Condition()
        self._predictions = _Queue("/v1/predictions", *self._bounds)
        self._labels = _Queue("/v1/labels", *self._bounds)
        self._queues = self._predictions, self._labels
        self._thread: threading.Thread | None = None
        self._closing_at = None
        self._closed = self._flushing = False
        self._said: dict[str, float] = {}
        self._poster.begin_anew()

    @property
    def _pending(self) -> int:
        return sum(queue.pending for queue in self._queues)

    def _add(self, queue: _Queue, record: dict[str, Any], given: Mapping[str, Any], but: str = "") -> None:
        if record["time"] is None:
            record["time"] = time.time()
        record.update((key, value) for key, value in self._named.items() if key != but)
        record.update((key, value) for key, value in given.items() if value is not None)
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
        """Start the thread; False where the interpreter is about to end."""
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
        """Whether there is something that should not wait for the next flush."""
        hurry = self._closing_at is not None or self._flushing
        ready = [queue for queue in self._queues if self._may_post(queue)]
        full = any(len(queue.lines) >= self._batch[0] for queue in ready)
        return self._is_over() or full or (hurry and bool(ready))

    def _may_post(self, queue: _Queue) -> bool:
        return queue.pending > 0 and time.monotonic() >= queue.not_before

    def _pause(self) -> float:
        """Seconds after which to look again, whatever happens."""
        waits = [queue.not_before - time.monotonic() for queue in self._queues if queue.posted]
        return max(min([self._flush_seconds, *waits]), 0.001)

    def _post(self, queue: _Queue, lines: list[bytes]) -> None:
        left = None if self._closing_at is None else self._closing_at - time.monotonic()
        answer = self._poster.post(queue.path, b"\n".join(lines) + b"\n", left)
        with self._changed:
            if self._closed or queue.posted is not lines:
                return  # what was left has been counted as dropped
            told = self._settle(queue, answer, len(lines))
            self._changed.notify_all()
        if told:  # not before: a handler of the log may be slow, and who logs must not wait for it
            self._say(queue.path, told)

    def _settle(self, queue: _Queue, answer: Reply, count: int) -> str:
        """What becomes of a post by its answer; the sentence to be logged."""
        if answer.status == 202:
            rejected = min(answer.rejected, count)
            queue.end(count - rejected, rejected)
            return f"the agent rejected {rejected} of {count} records: {answer.told}" if rejected else ""
        if answer.status == 413 and count > 1:
            queue.halve()
            return ""
        if answer.status == 0 or answer.status >= 500 or answer.status in _RETRIED:
            queue.put_off(answer.retry_after, time.monotonic())
            return f"the agent cannot take records now: {answer.told}; they wait in the queue"
        queue.end(0, count)
        return f"the agent refused {count} records: {answer.told}"

    def _say(self, about: str, sentence: str) -> None:
        """Log it, at most once a minute of each kind."""
        now = time.monotonic()
        if now - self._said.get(about, -_SAY_SECONDS) >= _SAY_SECONDS:
            self._said[about] = now
            log.warning("%s", sentence[:1].upper() + sentence[1:])


class _Begin:
    """What the child of a fork does; it keeps no client alive."""

    def __init__(self, client: Client) -> None:
        self._client = weakref.ref(client)

    def __call__(self) -> None:
        client = self._client()
        if client is not None:
            client._begin()


def _close(client: weakref.ref[Client]) -> None:
    found = client()
    if found is not None:
        found.close()


def _again(settings: dict[str, Any]) -> Client:
    return Client(**settings)


def _plain(value: Any) -> Any:
    """What an array or a number of numpy, torch or the like holds."""
    for name in ("tolist", "item"):
        if hasattr(value, name):
            return getattr(value, name)()
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (set, frozenset)):
        raise TypeError(f"{type(value).__name__} has no order")
    return list(value)

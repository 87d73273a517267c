"""One thread a source: it reads and decodes, and hands chunks to the engine through a bounded queue.

With `Decoders` it has large reads decoded by other processes. Each read is kept until its chunk is there. A
second thread hands these chunks on, in the order of the reads: the first may wait in a read until all that it
has read is used, as where Kafka takes a partition away.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from monitor.agent.decoders import DecoderProcess, Decoders
from monitor.agent.shards import MovingShard, Shards
from monitor.base.errors import BlindsightError
from monitor.base.records import Chunk, Keys, Reject, RejectReason
from monitor.base.source import EndOfSource, Input, Raw, Refusals, bytes_in, open_source, records_in
from monitor.reports.views import SourceView

log = logging.getLogger("blindsight")

_READ_SECONDS = 0.2
_ROOM_SECONDS = 0.02
_REOPEN_SECONDS = 5.0
_SMALL_BYTES = 1 << 16  # decoded in half a millisecond: it is not worth the way to another process

Fed = tuple[MovingShard | None, Chunk]
"""What was read, and the shard that it is for; None where the agent has one for good."""


@dataclass(frozen=True, slots=True)
class GivenRead:
    """A read that is with a process, and the shard that it is for."""

    raws: Sequence[Raw]
    shard: MovingShard | None
    process: DecoderProcess


class Feeder:
    """Runs one source in a thread of its own.

    Parameters
    ----------
    source : Input
    chunks : queue.Queue
        Where chunks go.
    most_chunks : int
        While so many wait there or are being decoded, nothing is read.
    shards : Shards, optional
        Those of the source's partitions, where they move between agents.
    decoders : Decoders, optional
        Decode large reads; without them this thread decodes all.
    """

    def __init__(
        self,
        source: Input,
        chunks: queue.Queue[Fed],
        most_chunks: int,
        shards: Shards | None = None,
        decoders: Decoders | None = None,
    ) -> None:
        self._feed = source.feed
        self._shards = shards
        self._decoders = decoders
        # Reads that are with processes, each until its chunk is handed on; only then may the next one be.
        self._given: deque[GivenRead] = deque()
        self._given_changed = threading.Condition()
        self._gives_more = decoders is not None
        self._decode = source.decode
        self._reads_events = source.reads_events
        self._told = Refusals()
        self._told_paths: set[str] = set()
        # Records of each read that the engine has not absorbed: a number a chunk, taken off by its thread.
        self._unused: deque[int] = deque()
        self._chunks = chunks
        self._most_chunks = most_chunks
        self._stop = threading.Event()
        name = source.feed.name
        self._thread = threading.Thread(target=self._run, name=f"source {name}", daemon=True)
        self._hander = threading.Thread(target=self._hand_on_given, name=f"chunks of {name}", daemon=True)
        self.ended = False
        self.failure: str | None = None

    @property
    def name(self) -> str:
        return self._feed.name

    def open(self, positions: Mapping[str, object]) -> None:
        """Open the source: see `open_source`."""
        open_source(self._feed, positions)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()
        if self._decoders is not None:
            self._hander.start()

    def stop(self) -> None:
        """Ask the thread to end; what it has read and not handed over is read again next time."""
        self._stop.set()

    def join(self, timeout_seconds: float) -> None:
        """Wait for the threads to end; not at all where they never began."""
        deadline = time.monotonic() + timeout_seconds
        for thread in (self._thread, self._hander):
            if thread.ident is not None:
                thread.join(max(deadline - time.monotonic(), 0.0))

    def absorbed(self) -> None:
        """Hear that the engine has used the oldest chunk that it had not."""
        self._unused.popleft()

    def acknowledge(self, positions: Mapping[str, object]) -> None:
        """Tell the source what is used and saved. It never raises, as the next call covers a failed one."""
        try:
            self._feed.acknowledge(positions)
        except Exception:
            log.exception("%s: the acknowledgement failed; the next one covers it.", self.name)

    def forget(self, keys: Keys) -> None:
        """Make the source hand out positions without these records from now on."""
        self._feed.forget(keys)

    def without(self, position: Any, keys: Keys) -> Any:
        """Return a position of the source without these records."""
        return self._feed.without(position, keys)

    def close(self) -> None:
        """Let go of the source. It never raises: there are others to close."""
        try:
            self._feed.close()
        except Exception:
            log.exception("%s: could not be closed cleanly.", self.name)

    def view(self) -> SourceView:
        """The feed's health; what was read and not used yet waits too."""
        up = self.failure is None and (self.ended or self._feed.up)
        unread, refusals = self._feed.lag, self._feed.refusals
        return SourceView(
            self.name,
            up,
            None if unread is None else unread + sum(self._unused.copy()),
            counts=self._feed.counts,
            refused=refusals.requests,
            reads_events=self._reads_events,
            labels_by_token=refusals.labels_by_token,
        )

    def why_down(self) -> str:
        """A sentence for people who ask why the agent is not ready."""
        if self.failure is None and (trouble := self._feed.trouble):
            return f"Source {self.name} is stuck: {trouble}."
        return f"Source {self.name} is not connected{f': {self.failure}' if self.failure else '.'}"

    def _run(self) -> None:
        try:
            self._read_on()
        finally:
            with self._given_changed:
                self._gives_more = False
                self._given_changed.notify_all()

    def _read_on(self) -> None:
        while not self._stop.is_set():
            try:
                self._pump()
                return
            except EndOfSource:
                with self._given_changed:
                    self._given_changed.wait_for(lambda: not self._given)
                self.ended = True
                return
            except BlindsightError as error:
                if str(error) != self.failure:  # once, not every few seconds for as long as it lasts
                    log.error(
                        "%s: %s Trying again every %.0f s.", self.name, _sentence(error), _REOPEN_SECONDS
                    )
                self.failure = str(error)
            except Exception as error:
                # A fault of ours, not the user's; one source must not end quietly while others go on.
                self.failure = f"it failed with {error!r}"
                log.exception("%s: has failed; it reads on.", self.name)
            self._stop.wait(_REOPEN_SECONDS)

    def _decoded(self, raws: Sequence[Raw]) -> Chunk:
        """Decode a read; where our decoder fails, count each record of it as rejected."""
        try:
            return self._decode(raws)
        except Exception as error:
            count = sum(map(records_in, raws))
            self.failure = f"it failed with {error!r}"
            log.exception(
                "%s: %d records could not be decoded and are counted as malformed; it reads on.",
                self.name,
                count,
            )
            return _rejected(self.name, raws, f"the agent could not decode what it read: {error!r}")

    def _pump(self) -> None:
        """Read only what there is room for: what is held here could not be absorbed in a hand-over."""
        while not self._stop.is_set():
            if not self._has_room():
                self._feed.keep_alive()
                self._stop.wait(_ROOM_SECONDS)
                continue
            raws = self._feed.read(_READ_SECONDS)
            self.failure = None
            if self._given and not raws:
                continue  # what was refused meanwhile is told with the chunks to come
            parts: Iterable[tuple[MovingShard | None, Sequence[Raw]]] = [(None, raws)]
            if self._shards is not None:
                parts = self._shards.split(raws)
            for shard, part in parts:
                self._unused.append(sum(map(records_in, part)))
                passed_on = False
                try:
                    passed_on = self._give(part, shard) or self._hand_on(part, shard)
                finally:
                    if not passed_on:
                        self._unused.pop()

    def _has_room(self) -> bool:
        decoding = 0 if self._decoders is None else self._decoders.busy
        return self._chunks.qsize() + decoding < self._most_chunks

    def _give(self, raws: Sequence[Raw], shard: MovingShard | None) -> bool:
        """Have what was read decoded by a process; False where it is to be decoded here, and may be."""
        if self._decoders is None or not (self._given or sum(map(bytes_in, raws)) >= _SMALL_BYTES):
            return False
        while (process := self._decoders.give(self.name, raws)) is None:
            with self._given_changed:
                if not self._given:
                    return False
                self._given_changed.wait()
        if shard is not None:
            shard.queued += 1
        with self._given_changed:
            self._given.append(GivenRead(raws, shard, process))
            self._given_changed.notify_all()
        return True

    def _hand_on_given(self) -> None:
        while True:
            with self._given_changed:
                self._given_changed.wait_for(lambda: self._given or not self._gives_more)
                if not self._given:
                    return
                given = self._given[0]
            self._chunks.put((given.shard, self._completed(self._taken(given))))
            with self._given_changed:
                self._given.popleft()
                self._given_changed.notify_all()

    def _taken(self, given: GivenRead) -> Chunk:
        """Return the chunk of a read that was sent to a process."""
        assert self._decoders is not None
        return self._decoders.take(given.process) or self._decoded(given.raws)

    def _hand_on(self, raws: Sequence[Raw], shard: MovingShard | None) -> bool:
        """Decode what was read; whether there is a chunk of it for the engine."""
        chunk = self._completed(self._decoded(raws) if raws else Chunk(self.name))
        is_news = bool(raws or chunk.shed or chunk.labels_shed or chunk.ignored)
        if is_news:
            if shard is not None:
                shard.queued += 1
            self._chunks.put((shard, chunk))
        return is_news

    def _completed(self, chunk: Chunk) -> Chunk:
        chunk = self._with_refusals(chunk)
        self._warn_of_rows(chunk)
        return chunk

    def _warn_of_rows(self, chunk: Chunk) -> None:
        """Say once of a path that there is more where it reads one row."""
        for path in chunk.rows_left.keys() - self._told_paths:
            self._told_paths.add(path)
            log.warning(
                "%s: records hold several rows, of which the mapping reads %s alone. The others are "
                "counted in blindsight_rows_left_total, and not used. `blindsight doctor` looks for a format "
                "that takes them all; or write one row a record.",
                self.name,
                path,
            )

    def _with_refusals(self, chunk: Chunk) -> Chunk:
        """A chunk that also counts what the source has not taken since the one before.

        Through the engine these counts are saved with its own, so that no restart begins them anew.
        """
        now, told = self._feed.refusals, self._told
        self._told = now
        labels = {task: n - told.labels_shed.get(task, 0) for task, n in now.labels_shed.items()}
        return replace(
            chunk,
            shed=now.shed - told.shed,
            labels_shed={task: n for task, n in labels.items() if n},
            ignored=chunk.ignored + now.ignored - told.ignored,
        )


def _rejected(source: str, raws: Sequence[Raw], why: str) -> Chunk:
    """Return a chunk that counts each record of a read as rejected."""
    rejects = tuple(
        Reject(RejectReason.MALFORMED, why, b"", raw.partition, 0, answers=count)
        for raw in raws
        if (count := records_in(raw))
    )
    return Chunk(
        source,
        rejects=rejects,
        positions={raw.partition: raw.after for raw in raws},
        answers=sum(each.answers for each in rejects),
    )


def _sentence(error: BaseException) -> str:
    text = str(error)
    return text if text.endswith((".", "!", "?")) else f"{text}."

"""A thread for each source, which reads, decodes, and passes chunks to the engine through a bounded queue.

A read is the bytes that one call of a source's `read` returns. A chunk is its decoded records. With
`Decoders`, other processes decode large reads. A second thread then queues their chunks in the order of the
reads. The first thread cannot queue them, because `read` may block until all earlier reads are processed (for
example, while Kafka revokes a partition).
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
from monitor.reports.views import EngineView, SourceView
from monitor.reports.window_report import rfc3339

log = logging.getLogger("blindsight")

_READ_SECONDS = 0.2
_ROOM_SECONDS = 0.02
_REOPEN_SECONDS = 5.0
_SMALL_BYTES = 1 << 16  # a smaller read is decoded in half a millisecond; another process would not save time

Fed = tuple[MovingShard | None, Chunk]
"""A shard (None if the agent has only one) and a chunk for its engine."""


@dataclass(frozen=True, slots=True)
class SentRead:
    """A read that another process is decoding.

    Parameters
    ----------
    raws : sequence of Raw
        The read. If the process dies, the feeder decodes it.
    shard : MovingShard or None
        The shard that processes the read; None if the agent has only one shard.
    process : DecoderProcess
        The process that decodes the read.
    """

    raws: Sequence[Raw]
    shard: MovingShard | None
    process: DecoderProcess


class Feeder:
    """The threads that read one source and pass its decoded chunks to the engine.

    Parameters
    ----------
    source : Input
        The source with its decoder.
    chunks : queue.Queue
        The queue from which the engine's thread takes chunks.
    most_chunks : int
        The largest number of chunks that are queued or being decoded. At this number, reading pauses.
    shards : Shards, optional
        The shards of the source's partitions, if partitions move between agents.
    decoders : Decoders, optional
        Processes that decode large reads. Without them, the reading thread decodes all reads.
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
        # The reads that processes decode, in order; each is removed after its chunk is passed on.
        self._sent: deque[SentRead] = deque()
        self._sent_changed = threading.Condition()
        self._sends_more = decoders is not None
        self._decode = source.decode
        self._reads_events = source.reads_events
        self._counted = Refusals()
        self._logged_paths: set[str] = set()
        # The number of records of each chunk in the queue; the engine's thread removes it after use.
        self._unused: deque[int] = deque()
        self._chunks = chunks
        self._most_chunks = most_chunks
        self._stop = threading.Event()
        name = source.feed.name
        self._thread = threading.Thread(target=self._run, name=f"source {name}", daemon=True)
        self._hander = threading.Thread(target=self._hand_on_sent, name=f"chunks of {name}", daemon=True)
        self.ended = False
        self._ended_time: float | None = None
        self._left: int | None = None  # the records that waited in the source when it was closed
        self.failure: str | None = None

    @property
    def name(self) -> str:
        """The name of the source."""
        return self._feed.name

    def open(self, positions: Mapping[str, object]) -> None:
        """Open the source at the saved positions of its partitions; see `open_source`."""
        open_source(self._feed, positions)

    def start(self) -> None:
        """Start the reading thread. With `decoders`, also start the thread that queues their chunks."""
        self._thread.start()
        if self._decoders is not None:
            self._hander.start()

    def stop(self) -> None:
        """Request the end of the threads, without waiting for it.

        Records that were read but not queued will be read again after the next start.
        """
        self._stop.set()

    def join(self, timeout_seconds: float) -> None:
        """Wait until the threads have ended, or until the time limit."""
        deadline = time.monotonic() + timeout_seconds
        for thread in (self._thread, self._hander):
            if thread.ident is not None:
                thread.join(max(deadline - time.monotonic(), 0.0))

    def absorbed(self) -> None:
        """Record that the engine has processed the oldest queued chunk.

        Only the engine's thread calls this method.
        """
        self._unused.popleft()

    def acknowledge(self, positions: Mapping[str, object]) -> None:
        """Acknowledge to the source that all records before these positions are processed and saved.

        An error is only logged, because the next acknowledgement includes these positions.

        Parameters
        ----------
        positions : mapping of str to object
            The position of each partition at which reading continues after a restart.
        """
        try:
            self._feed.acknowledge(positions)
        except Exception:
            log.exception("%s: the acknowledgement failed; the next one covers it.", self.name)

    def forget(self, keys: Keys) -> None:
        """Delete the ids of these records from the positions that the source will return.

        The positions of some sources contain ids. A request to delete personal data also concerns these ids.

        Parameters
        ----------
        keys : (n,) uint64
            The hashes of the records' ids.
        """
        self._feed.forget(keys)

    def without(self, position: Any, keys: Keys) -> Any:
        """Return a position of the source without the ids of these records: see `forget`.

        Parameters
        ----------
        position : object
            A position that the source returned.
        keys : (n,) uint64
            The hashes of the records' ids.
        """
        return self._feed.without(position, keys)

    def close(self) -> None:
        """Close the source.

        An error is logged and not raised, because the agent still has to close its other sources.
        """
        if self._ended_time is None:
            self._left, self._ended_time = self._feed.lag, time.time()
        try:
            self._feed.close()
        except Exception:
            log.exception("%s: could not be closed cleanly.", self.name)

    def view(self) -> SourceView:
        """Return the state of the source for exporters.

        The lag is the number of records that are not processed yet, including records that have not been
        read.
        """
        ended_time, refusals = self._ended_time, self._feed.refusals
        up = self.failure is None and (self.ended or self._feed.up)
        unread = self._feed.lag if ended_time is None else self._left
        return SourceView(
            self.name,
            up,
            None if unread is None else unread + sum(self._unused.copy()),
            counts=self._feed.counts,
            refused=refusals.requests,
            reads_events=self._reads_events,
            labels_by_token=refusals.labels_by_token,
            ended_time=ended_time,
        )

    def why_down(self) -> str:
        """Return the reason why the source is not up, as a sentence."""
        if self.failure is None and (trouble := self._feed.trouble):
            return f"Source {self.name} is stuck: {trouble}."
        return f"Source {self.name} is not connected{f': {self.failure}' if self.failure else '.'}"

    def how_ended(self, engine: EngineView) -> str:
        """Return a sentence that says when and how the source ended, and how many records it gave."""
        counts = ((engine.received, "answer"), (engine.labels_received, "label"))
        numbers = [(number, noun) for each, noun in counts if (number := each.get(self.name, 0))]
        records = " and ".join(f"{n:,} {noun}{'' if n == 1 else 's'}" for n, noun in numbers) or "no record"
        how = "was read to its end" if self._left == 0 else "was closed"
        left = f", {self._left:,} records before its end" if self._left else ""
        assert self._ended_time is not None
        when = rfc3339(self._ended_time)[:19].replace("T", " ")
        return f"Source {self.name} {how} at {when} UTC{left}: {records}."

    def _run(self) -> None:
        try:
            self._read_on()
        finally:
            with self._sent_changed:
                self._sends_more = False
                self._sent_changed.notify_all()

    def _read_on(self) -> None:
        """Read until the source ends or `stop` is called. After an error, log it and try again."""
        while not self._stop.is_set():
            try:
                self._pump()
                return
            except EndOfSource:
                with self._sent_changed:
                    self._sent_changed.wait_for(lambda: not self._sent)
                self._left, self._ended_time, self.ended = 0, time.time(), True
                return
            except BlindsightError as error:
                if str(error) != self.failure:  # log an error once, not at each attempt
                    log.error(
                        "%s: %s Trying again every %.0f s.", self.name, _sentence(error), _REOPEN_SECONDS
                    )
                self.failure = str(error)
            except Exception as error:
                # This is a bug of ours; the source must not end silently while other sources continue.
                self.failure = f"it failed with {error!r}"
                log.exception("%s: has failed; it reads on.", self.name)
            self._stop.wait(_REOPEN_SECONDS)

    def _decoded(self, raws: Sequence[Raw]) -> Chunk:
        """Decode a read. If the decoder raises an error, count each record of the read as rejected."""
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
        """Read from the source and pass chunks on, until `stop` is called.

        While the queue is full, the method does not read. So this thread never holds a chunk that waits for
        room in the queue. This is necessary because a shard is handed over as soon as its queued chunks are
        processed.
        """
        while not self._stop.is_set():
            if not self._has_room():
                self._feed.keep_alive()
                self._stop.wait(_ROOM_SECONDS)
                continue
            raws = self._feed.read(_READ_SECONDS)
            self.failure = None
            if self._sent and not raws:
                continue  # refused records are counted with the next chunk
            parts: Iterable[tuple[MovingShard | None, Sequence[Raw]]] = [(None, raws)]
            if self._shards is not None:
                parts = self._shards.split(raws)
            for shard, part in parts:
                self._unused.append(sum(map(records_in, part)))
                passed_on = False
                try:
                    passed_on = self._send(part, shard) or self._hand_on(part, shard)
                finally:
                    if not passed_on:
                        self._unused.pop()

    def _has_room(self) -> bool:
        decoding = 0 if self._decoders is None else self._decoders.busy
        return self._chunks.qsize() + decoding < self._most_chunks

    def _send(self, raws: Sequence[Raw], shard: MovingShard | None) -> bool:
        """Send a read to a decoding process. Return False if this thread must decode the read."""
        if self._decoders is None or not (self._sent or sum(map(bytes_in, raws)) >= _SMALL_BYTES):
            return False
        while (process := self._decoders.give(self.name, raws)) is None:
            with self._sent_changed:
                if not self._sent:
                    return False
                self._sent_changed.wait()
        if shard is not None:
            shard.queued += 1
        with self._sent_changed:
            self._sent.append(SentRead(raws, shard, process))
            self._sent_changed.notify_all()
        return True

    def _hand_on_sent(self) -> None:
        """Queue the chunks of reads that processes decode, in the order of the reads."""
        while True:
            with self._sent_changed:
                self._sent_changed.wait_for(lambda: self._sent or not self._sends_more)
                if not self._sent:
                    return
                read = self._sent[0]
            self._chunks.put((read.shard, self._completed(self._receive(read))))
            with self._sent_changed:
                self._sent.popleft()
                self._sent_changed.notify_all()

    def _receive(self, read: SentRead) -> Chunk:
        """Return the chunk of a sent read. If its process is lost, decode the read in this thread."""
        assert self._decoders is not None
        return self._decoders.take(read.process) or self._decoded(read.raws)

    def _hand_on(self, raws: Sequence[Raw], shard: MovingShard | None) -> bool:
        """Decode a read and queue its chunk. Return False if the chunk contains nothing for the engine."""
        chunk = self._completed(self._decoded(raws) if raws else Chunk(self.name))
        is_news = bool(raws or chunk.shed or chunk.labels_shed or chunk.ignored)
        if is_news:
            if shard is not None:
                shard.queued += 1
            self._chunks.put((shard, chunk))
        return is_news

    def _completed(self, chunk: Chunk) -> Chunk:
        """Return a decoded chunk with the counts of refused records, and log warnings about it."""
        chunk = self._with_refusals(chunk)
        self._warn_of_rows(chunk)
        return chunk

    def _warn_of_rows(self, chunk: Chunk) -> None:
        """Warn that the mapping reads only one of the several rows of a record, once for each path."""
        for path in chunk.rows_left.keys() - self._logged_paths:
            self._logged_paths.add(path)
            log.warning(
                "%s: records hold several rows, of which the mapping reads %s alone. The others are "
                "counted in blindsight_rows_left_total, and not used. `blindsight doctor` looks for a format "
                "that takes them all; or write one row a record.",
                self.name,
                path,
            )

    def _with_refusals(self, chunk: Chunk) -> Chunk:
        """Add the counts of records that the source refused since the previous chunk.

        The engine saves these counts with its own, so that a restart does not reset them.
        """
        now, before = self._feed.refusals, self._counted
        self._counted = now
        labels = {task: n - before.labels_shed.get(task, 0) for task, n in now.labels_shed.items()}
        return replace(
            chunk,
            shed=now.shed - before.shed,
            labels_shed={task: n for task, n in labels.items() if n},
            ignored=chunk.ignored + now.ignored - before.ignored,
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

"""One thread a source: it reads and decodes, and hands chunks to the engine through a bounded queue."""

from __future__ import annotations

import logging
import queue
import threading
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from monitor.agent.shards import MovingShard, Shards
from monitor.base.errors import BlindsightError
from monitor.base.records import Chunk
from monitor.base.source import EndOfSource, Input, Raw, Refusals, records_in
from monitor.reports.views import SourceView

log = logging.getLogger("blindsight")

_READ_SECONDS = 0.2
_ROOM_SECONDS = 0.02
_REOPEN_SECONDS = 5.0

Fed = tuple[MovingShard | None, Chunk]
"""What was read, and the shard that it is for; None where the agent has one for good."""


class Feeder:
    """Runs one source in a thread of its own.

    Parameters
    ----------
    source : Input
    chunks : queue.Queue
        Where chunks go.
    most_chunks : int
        While so many wait there, nothing is read.
    shards : Shards, optional
        Those of the source's partitions, where they move between agents.
    """

    def __init__(
        self, source: Input, chunks: queue.Queue[Fed], most_chunks: int, shards: Shards | None = None
    ) -> None:
        self._feed = source.feed
        self._shards = shards
        self._decode = source.decode
        self._reads_events = source.reads_events
        self._told = Refusals()
        self._told_paths: set[str] = set()
        # Records of each read that the engine has not absorbed: a number a chunk, taken off by its thread.
        self._unused: deque[int] = deque()
        self._chunks = chunks
        self._most_chunks = most_chunks
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"source {source.feed.name}", daemon=True)
        self.ended = False
        self.failure: str | None = None

    @property
    def name(self) -> str:
        return self._feed.name

    def open(self, positions: Mapping[str, object]) -> None:
        """Open the source; raises `SourceError` where it cannot be had and waiting would not help."""
        self._feed.open(positions)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def stop(self) -> None:
        """Ask the thread to end; what it has read and not handed over is read again next time."""
        self._stop.set()

    def join(self, timeout_seconds: float) -> None:
        """Wait for the thread to end; not at all where it never began."""
        if self._thread.ident is not None:
            self._thread.join(timeout_seconds)

    def absorbed(self) -> None:
        """Hear that the engine has used the oldest chunk that it had not."""
        self._unused.popleft()

    def acknowledge(self, positions: Mapping[str, object]) -> None:
        """Tell the source what is used and saved."""
        self._feed.acknowledge(positions)

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
        while not self._stop.is_set():
            try:
                self._pump()
                return
            except EndOfSource:
                self.ended = True
                return
            except BlindsightError as error:
                if str(error) != self.failure:  # once, not every few seconds for as long as it lasts
                    log.error(
                        "%s: %s Trying again every %.0f s.", self.name, _sentence(error), _REOPEN_SECONDS
                    )
                self.failure = str(error)
            except Exception as error:
                # Ours to mend, not the user's; but one source must not end quietly while others go on.
                self.failure = f"it failed with {error!r}"
                log.exception(
                    "%s: has failed, and the records that it was reading are lost; it continues.", self.name
                )
            self._stop.wait(_REOPEN_SECONDS)

    def _pump(self) -> None:
        """Read only what there is room for: what is held here could not be absorbed in a hand-over."""
        while not self._stop.is_set():
            if self._chunks.qsize() >= self._most_chunks:
                self._feed.keep_alive()
                self._stop.wait(_ROOM_SECONDS)
                continue
            raws = self._feed.read(_READ_SECONDS)
            self.failure = None
            parts: Iterable[tuple[MovingShard | None, Sequence[Raw]]] = [(None, raws)]
            if self._shards is not None:
                parts = self._shards.split(raws)
            for shard, part in parts:
                self._unused.append(sum(map(records_in, part)))
                handed_on = False
                try:
                    handed_on = self._hand_on(part, shard)
                finally:
                    if not handed_on:
                        self._unused.pop()

    def _hand_on(self, raws: Sequence[Raw], shard: MovingShard | None) -> bool:
        """Decode what was read; whether there is a chunk of it for the engine."""
        chunk = self._with_refusals(self._decode(raws) if raws else Chunk(self.name))
        self._warn_of_rows(chunk)
        is_news = bool(raws or chunk.shed or chunk.labels_shed or chunk.ignored)
        if is_news:
            if shard is not None:
                shard.queued += 1
            self._chunks.put((shard, chunk))
        return is_news

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


def _sentence(error: BaseException) -> str:
    text = str(error)
    return text if text.endswith((".", "!", "?")) else f"{text}."

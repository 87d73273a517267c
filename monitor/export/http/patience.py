"""Connections that do not go on are cut, so that no scraper can hold the HTTP side or its memory.

uvicorn bounds neither the time that a request may take to come, nor that in which an answer must be taken,
nor what it holds of answers that nobody takes.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from monitor.reports.views import SinkView

MOST_CONNECTIONS = 64
"""Held at once; one more cuts the one that has waited longest: a scrape is over in milliseconds."""

MOST_UNSENT_BYTES = 32 << 20
"""Of answers that have not been taken yet, all together; past it those that have waited longest are cut."""

REQUEST_SECONDS = 10.0
"""Within which a request must have come whole: Prometheus' own patience (`scrape_timeout`)."""

ANSWER_SECONDS = 30.0
"""Within which an answer must have been made and taken."""


@dataclass(slots=True)
class ScrapeCounts:
    """What became of requests, since the start; written by the server's thread, read by any.

    Parameters
    ----------
    answered : int
    cut : int
        Connections that were cut: too slow, or the slowest where there were too many.
    connections : int
        Open now.
    """

    answered: int = 0
    cut: int = 0
    connections: int = 0

    @property
    def view(self) -> SinkView:
        """As one of the agent's sinks."""
        return SinkView("metrics", waiting=self.connections, delivered=self.answered, lost=self.cut)


def patient_protocol(counts: ScrapeCounts) -> type[H11Protocol]:
    """uvicorn's protocol with bounds, its connections counted in `counts`."""
    held: dict[PatientProtocol, None] = {}

    class Bounded(PatientProtocol):
        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **named)
            self.held, self.counts = held, counts

    return Bounded


class PatientProtocol(H11Protocol):
    """One connection, whose every step has its time.

    Attributes
    ----------
    held : dict
        All connections, in the order in which they began to wait.
    """

    held: dict[PatientProtocol, None]
    counts: ScrapeCounts
    _limit: asyncio.TimerHandle | None = None
    _asking = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request."""
        super().connection_made(transport)
        self._wait(REQUEST_SECONDS)
        if len(self.held) > MOST_CONNECTIONS:
            next(iter(self.held)).cut()
        self.counts.connections = len(self.held)

    def data_received(self, data: bytes) -> None:
        """Take what came; once a request is whole, its answer has its own time."""
        if self._rested:
            self._wait(REQUEST_SECONDS)
        before = self.cycle
        super().data_received(data)
        if self.cycle is not before and not self.cycle.response_complete:
            self._wait(ANSWER_SECONDS)

    def on_response_complete(self) -> None:
        """The answer is on its way; it must be taken."""
        self.counts.answered += 1
        super().on_response_complete()
        if self.unsent:
            self._wait(ANSWER_SECONDS)
            self._relieve()
        else:
            self._rest()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        self._rest()
        self.held.pop(self, None)
        self.counts.connections = len(self.held)
        super().connection_lost(exc)

    @property
    def unsent(self) -> int:
        """Bytes of an answer that the other side has not taken."""
        return int(self.transport.get_write_buffer_size())

    def cut(self) -> None:
        """Let go at once of the connection and of what it holds."""
        self.counts.cut += not self._rested
        self._rest()
        self.held.pop(self, None)
        self.transport.abort()

    @property
    def _rested(self) -> bool:
        """Whether it waits for nothing: its last answer was taken whole, and no further request has begun."""
        done = self.cycle is not None and self.cycle.response_complete
        return done and not self.unsent and not self._asking

    def _wait(self, seconds: float) -> None:
        self._rest()
        self._asking = seconds == REQUEST_SECONDS
        self.held.pop(self, None)
        self.held[self] = None
        self._limit = self.loop.call_later(seconds, self._late)

    def _late(self) -> None:
        if not self._rested:
            self.cut()

    def _rest(self) -> None:
        self._asking = False
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None

    def _relieve(self) -> None:
        unsent = {each: each.unsent for each in self.held}
        total = sum(unsent.values())
        for each, size in unsent.items():
            if total <= MOST_UNSENT_BYTES:
                return
            if size:
                each.cut()
                total -= size

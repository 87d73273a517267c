"""Every bound of the HTTP server: how long, how large, how many; and which connections are held."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Protocol

from monitor.reports.views import SinkView


@dataclass(frozen=True, slots=True)
class Bounds:
    """Of one server.

    Parameters
    ----------
    connections : int
        Held at once, those in a TLS handshake among them; for one more the longest idle or slow one is cut.
    head_bytes : int
        Of a request's line and headers; more is answered 431.
    request_seconds : float
        For a handshake, a request's head and its body, each; else 408. The default is Prometheus' own
        patience (`scrape_timeout`).
    made_seconds : float or None
        Within which a response must be made.
    taken_seconds : float
        Within which the other side must have taken it.
    idle_seconds : float
        Between two requests of a connection.
    unsent_bytes : int
        Of responses that are not taken yet, all together; past it those that wait longest are cut.
    """

    connections: int = 64
    head_bytes: int = 16 << 10
    request_seconds: float = 10.0
    made_seconds: float | None = 30.0
    taken_seconds: float = 30.0
    idle_seconds: float = 60.0
    unsent_bytes: int = 32 << 20


_TURN_SECONDS = 0.001  # also threads go on: to one that wants Python meanwhile it is given after 5 ms

SCRAPES = Bounds()
"""Of scrapes and pages, which are over in milliseconds."""


class HeldConnection(Protocol):
    """What `OpenConnections` asks of a connection."""

    idle: bool
    """Whether it owes nothing: its last response was taken whole, and no further request has begun."""

    @property
    def unsent(self) -> int:
        """Bytes of a response that the other side has not taken."""

    def abort(self) -> None:
        """Let go at once of the connection and of what it holds."""


class OpenConnections:
    """Connections in the order in which they began to wait for the other side, and what became of requests.

    Written by the server's thread, `view` may be read by any.

    Attributes
    ----------
    answered, cut : int
        Requests that were answered; connections that were cut because they were slow.
    """

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._waiting: dict[HeldConnection, None] = {}
        self._working: dict[HeldConnection, None] = {}
        self._turns = asyncio.Lock()
        self.answered = self.cut = 0

    def begin(self) -> None:
        """A server starts, in a loop of its own."""
        self._turns = asyncio.Lock()

    async def turn(self) -> None:
        """Let others go on. Of those who ask for it one goes on at a time, so that many are as one."""
        async with self._turns:
            await asyncio.sleep(_TURN_SECONDS)

    @property
    def view(self) -> SinkView:
        """As one of the agent's sinks."""
        count = len(self._waiting) + len(self._working)
        return SinkView("metrics", waiting=count, delivered=self.answered, lost=self.cut)

    def waits(self, connection: HeldConnection) -> None:
        """It begins to wait for the other side."""
        self.forget(connection)
        self._waiting[connection] = None

    def works(self, connection: HeldConnection) -> None:
        """A response to it is being made."""
        self.forget(connection)
        self._working[connection] = None

    def forget(self, connection: HeldConnection) -> None:
        """It is gone."""
        self._waiting.pop(connection, None)
        self._working.pop(connection, None)

    def make_room(self) -> None:
        """Where no more may be held, cut the one that waits longest, or failing that works longest."""
        if len(self._waiting) + len(self._working) >= self._bounds.connections:
            self._cut(next(iter(self._waiting or self._working)))

    def relieve(self) -> None:
        """Cut those that wait longest while too much is unsent."""
        unsent = {each: each.unsent for each in self._waiting}
        total = sum(unsent.values())
        for each, size in unsent.items():
            if total <= self._bounds.unsent_bytes:
                return
            if size:
                self._cut(each)
                total -= size

    def _cut(self, connection: HeldConnection) -> None:
        self.cut += not connection.idle
        self.forget(connection)
        connection.abort()

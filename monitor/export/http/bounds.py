"""The bounds of the HTTP server on times, sizes and numbers, and the table of its open connections."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from monitor.reports.views import SinkView

if TYPE_CHECKING:
    from monitor.export.http.connection import Connection


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits of one HTTP server.

    Parameters
    ----------
    connections : int
        The largest number of open connections, including connections in a TLS handshake. If there is one
        more, the connection that has been idle or slow for longest is closed.
    head_bytes : int
        The largest size of a request's line and headers. A larger request is answered with 431.
    request_seconds : float
        The time limit for a handshake, for the head of a request, and for its body. A late request is
        answered with 408. The default is Prometheus' own limit (`scrape_timeout`).
    made_seconds : float or None
        Time limit for making a response; None for no limit.
    taken_seconds : float
        Time limit for the client to receive the response.
    idle_seconds : float
        Time limit between two requests of a connection.
    unsent_bytes : int
        The largest total size of the unsent parts of all responses. If it is exceeded, the server closes the
        connections whose clients have been slow for longest.
    """

    connections: int = 64
    head_bytes: int = 16 << 10
    request_seconds: float = 10.0
    made_seconds: float | None = 30.0
    taken_seconds: float = 30.0
    idle_seconds: float = 60.0
    unsent_bytes: int = 32 << 20


_TURN_SECONDS = 0.001  # long enough that other threads, too, can get Python's lock

SCRAPES = Bounds()
"""The bounds of a server of scrapes and pages, which take milliseconds."""


class OpenConnections:
    """The table of a server's open connections, which closes the slowest ones when a limit is exceeded.

    The table also counts requests. Only the server's thread changes the table. Any thread may read `view`.

    Attributes
    ----------
    answered, cut : int
        The number of answered requests, and of connections that were cut because they were slow.
    """

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._waiting: dict[Connection, None] = {}
        self._working: dict[Connection, None] = {}
        self._turns = asyncio.Lock()
        self.answered = self.cut = 0

    def begin(self) -> None:
        """Prepare for a server that starts in a new event loop."""
        self._turns = asyncio.Lock()

    async def turn(self) -> None:
        """Wait a millisecond so that other tasks proceed.

        Only one caller waits at a time. Therefore many callers load the server no more than one caller.
        """
        async with self._turns:
            await asyncio.sleep(_TURN_SECONDS)

    @property
    def view(self) -> SinkView:
        """The numbers of open connections, answered requests and cut connections.

        The page and the metrics list the server with these numbers among the agent's sinks.
        """
        count = len(self._waiting) + len(self._working)
        return SinkView("metrics", waiting=count, delivered=self.answered, lost=self.cut)

    def waits(self, connection: Connection) -> None:
        """Record that a connection now waits for its client."""
        self.forget(connection)
        self._waiting[connection] = None

    def works(self, connection: Connection) -> None:
        """Record that the server now makes the response of a connection."""
        self.forget(connection)
        self._working[connection] = None

    def forget(self, connection: Connection) -> None:
        """Remove a connection that has ended."""
        self._waiting.pop(connection, None)
        self._working.pop(connection, None)

    def make_room(self) -> None:
        """Close one connection if the table is full.

        The method closes the connection that has waited longest for its client. If no connection waits, it
        closes the connection whose response has taken longest.
        """
        if len(self._waiting) + len(self._working) >= self._bounds.connections:
            self._cut(next(iter(self._waiting or self._working)))

    def relieve(self) -> None:
        """Close connections, the longest waiting first, until the unsent bytes are within the limit."""
        unsent = {each: each.unsent for each in self._waiting}
        total = sum(unsent.values())
        for each, size in unsent.items():
            if total <= self._bounds.unsent_bytes:
                return
            if size:
                self._cut(each)
                total -= size

    def _cut(self, connection: Connection) -> None:
        self.cut += not connection.idle
        self.forget(connection)
        connection.abort()

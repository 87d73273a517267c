"""One connection: requests in, answers out, each step within its time and size.

It speaks HTTP/1.1 by h11, which parses and keeps the order of things; uvicorn, which the pages are served
with, bounds neither the time that a head may take nor the connections whose handshake goes on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from email.utils import formatdate
from http import HTTPStatus

import h11

from connectors.http.messages import Answer, Handler, Request, refusal

log = logging.getLogger("blindsight")

MOST_HEAD_BYTES = 16 << 10
IDLE_SECONDS = 60.0
"""How long a connection may wait between two requests."""

READ_BYTES = 64 << 10
_LINGER_BYTES = 1 << 20
_LINGER_SECONDS = 1.0


_WHAT_IS_WRONG = {
    408: "The head of the request did not come in time",
    431: f"The head of the request has more than {MOST_HEAD_BYTES} bytes",
}


class _GoneError(Exception):
    """The other side has left, or stayed silent."""


class Conversation:
    """Serves one connection until either side ends it.

    Parameters
    ----------
    reader, writer : asyncio streams
    handler : Handler
    read_seconds : float
        Within which a request's head must have come, and an answer gone.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        handler: Handler,
        read_seconds: float,
    ) -> None:
        self._reader, self._writer = reader, writer
        self._handler = handler
        self._seconds = read_seconds
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=MOST_HEAD_BYTES)
        peer = writer.get_extra_info("peername")
        self._peer = str(peer[0]) if peer else "an unknown address"
        self.busy = False
        self._asked_by_head = False

    async def run(self) -> None:
        """Exchange requests and answers; it does not raise for what the other side does."""
        try:
            first = True
            while await self._exchange(first):
                first = False
        except (_GoneError, OSError, TimeoutError):
            pass
        finally:
            self._writer.close()

    async def _exchange(self, first: bool) -> bool:
        """One request and its answer; whether another may follow."""
        self._asked_by_head = False
        try:
            request = await self._next_request(first)
            self.busy = True
            answer = await self._handled(request)
        except h11.RemoteProtocolError as error:
            status = error.error_status_hint
            answer = refusal(status, _WHAT_IS_WRONG.get(status, f"This is not HTTP/1.1: {error}"))
        await self._send(answer)
        self.busy = False
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
            return True
        await self._linger()
        return False

    async def _next_request(self, first: bool) -> Request:
        if not first and not self._http.trailing_data[0]:
            async with asyncio.timeout(IDLE_SECONDS):
                await self._receive()
        try:
            async with asyncio.timeout(self._seconds):
                event = await self._next_event()
        except TimeoutError:
            if self._http.trailing_data[0]:
                text = f"the head did not come within {self._seconds:g} s"
                raise h11.RemoteProtocolError(text, error_status_hint=408) from None
            raise
        if not isinstance(event, h11.Request):
            raise _GoneError
        self._asked_by_head = event.method == b"HEAD"
        # What came at once h11 takes whole, however large; it bounds only what is not complete yet.
        if sum(len(name) + len(value) for name, value in event.headers) + len(event.target) > MOST_HEAD_BYTES:
            raise h11.RemoteProtocolError("the head is too large", error_status_hint=431)
        headers: dict[str, str] = {}
        for name, value in event.headers:
            key, text = name.decode("ascii"), value.decode("latin-1")
            headers[key] = f"{headers[key]}, {text}" if key in headers else text
        path = event.target.decode("ascii", "replace").partition("?")[0]
        return Request(event.method.decode("ascii"), path, headers, self._body, self._peer)

    async def _handled(self, request: Request) -> Answer:
        try:
            return await self._handler(request)
        except (h11.RemoteProtocolError, _GoneError, OSError):
            raise
        except Exception:
            log.exception("A post could not be handled.")
            return refusal(500, "This failed here; the log says why")

    async def _body(self) -> AsyncIterator[bytes]:
        while isinstance(event := await self._next_event(), h11.Data):
            yield bytes(event.data)

    async def _next_event(self) -> object:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            if self._http.they_are_waiting_for_100_continue:
                go_on = self._http.send(h11.InformationalResponse(status_code=100, headers=[]))
                self._writer.write(go_on or b"")
                await self._writer.drain()
            await self._receive()
        return event

    async def _receive(self) -> None:
        data = await self._reader.read(READ_BYTES)
        if not data and self._http.their_state is h11.IDLE and not self._http.trailing_data[0]:
            raise _GoneError
        self._http.receive_data(data)

    async def _send(self, answer: Answer) -> None:
        if self._http.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            raise _GoneError
        body = answer.body
        headers = {
            "date": formatdate(usegmt=True),
            "content-type": "application/json",
            "content-length": str(len(body)),
            "cache-control": "no-store",
            "x-content-type-options": "nosniff",
            **answer.headers,
        }
        if self._http.their_state is not h11.DONE:
            headers["connection"] = "close"  # what was not read would be taken for the next request
        head = h11.Response(
            status_code=answer.status,
            headers=list(headers.items()),
            reason=HTTPStatus(answer.status).phrase.encode(),
        )
        parts = [
            self._http.send(head),
            self._http.send(h11.Data(data=b"" if self._asked_by_head else body)),
            self._http.send(h11.EndOfMessage()),
        ]
        self._writer.write(b"".join(part or b"" for part in parts))
        async with asyncio.timeout(self._seconds):
            await self._writer.drain()

    async def _linger(self) -> None:
        """Read on for a moment: to close on who is still sending could take the answer away from them."""
        if self._writer.can_write_eof():
            self._writer.write_eof()
        left = _LINGER_BYTES
        async with asyncio.timeout(_LINGER_SECONDS):
            while left > 0 and (data := await self._reader.read(READ_BYTES)):
                left -= len(data)

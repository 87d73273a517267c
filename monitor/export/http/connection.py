"""One HTTP connection, which receives requests and sends responses within limits of time and size.

The connection uses h11, which parses messages of HTTP/1.1 and enforces their order.
`tests/bench/bench_servers.py` compares existing servers; none of them limits every step.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import AsyncIterator
from email.utils import formatdate
from http import HTTPStatus
from urllib.parse import unquote

import h11

from monitor.export.http.bounds import Bounds, OpenConnections
from monitor.export.http.messages import Application, BodyError, HttpRequest, Response

log = logging.getLogger("blindsight")

_BUFFER_BYTES = 64 << 10
_READ_BYTES = 16 << 10
_TURN_CHUNKS = 64  # parts of a body, for which h11 needs half a millisecond of the loop's time
_LINGER_BYTES = 1 << 20
_LINGER_SECONDS = 1.0
_HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff"}


class _GoneError(Exception):
    """The other side has left, or the connection is being closed."""


class Connection:
    """A connection that is served until the client or the server ends it.

    Parameters
    ----------
    application : Application
    bounds : Bounds
    held : OpenConnections
        The table that contains the connection until it has ended.

    Attributes
    ----------
    busy : bool
        True if a request has arrived and its response has not been sent.
    leaving : bool
        True if the server is stopping, so that the next response is the last.
    """

    def __init__(self, application: Application, bounds: Bounds, held: OpenConnections) -> None:
        self._application, self._bounds, self._held = application, bounds, held
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=bounds.head_bytes)
        self._reader = asyncio.StreamReader(_BUFFER_BYTES)
        self._writer: asyncio.StreamWriter  # assigned with `_transport`, after the handshake
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None
        self._making = asyncio.timeout(None)
        self._asked_by_head = False
        self._peer = "an unknown address"
        self.idle = self.busy = self.leaving = False
        self._held.waits(self)

    def start(self, accepted: socket.socket, context: ssl.SSLContext | None) -> asyncio.Task[None]:
        """Start and return a task that serves the connection.

        The task ends without an exception if the client causes an error or leaves.
        """
        self._task = asyncio.create_task(self._run(accepted, context))
        # Needed if the task is cancelled before its first step.
        self._task.add_done_callback(lambda _: accepted.close())
        return self._task

    @property
    def unsent(self) -> int:
        """The number of bytes of the response that wait to be sent."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def abort(self) -> None:
        """Close the connection at once and release its memory."""
        if self._transport is not None:
            self._transport.abort()
        if self._task is not None:
            self._task.cancel()

    def leave(self) -> None:
        """Close the connection because the server stops, either at once or after the current response."""
        self.leaving = True
        if not self.busy and self._task is not None:
            self._task.cancel()

    async def _run(self, accepted: socket.socket, context: ssl.SSLContext | None) -> None:
        try:
            await self._secure(accepted, context)
            while await self._exchange():
                pass
            await self._linger()
        except (_GoneError, OSError):
            pass
        finally:
            self._held.forget(self)
            if self._transport is not None:
                await self._close(self._transport)

    async def _secure(self, accepted: socket.socket, context: ssl.SSLContext | None) -> None:
        loop = asyncio.get_running_loop()
        protocol = asyncio.StreamReaderProtocol(self._reader)
        seconds = self._bounds.request_seconds if context else None
        self._transport, _ = await loop.connect_accepted_socket(
            lambda: protocol, accepted, ssl=context, ssl_handshake_timeout=seconds
        )
        self._transport.set_write_buffer_limits(high=1, low=0)  # `drain` then waits until everything is sent
        self._writer = asyncio.StreamWriter(self._transport, protocol, self._reader, loop)
        if peer := self._writer.get_extra_info("peername"):
            self._peer = str(peer[0])

    async def _exchange(self) -> bool:
        """Serve one request, and return whether another may follow."""
        self._asked_by_head, broken = False, False
        try:
            request = await self._next_request()
            self.busy = True
            self._held.works(self)
            response = await self._handled(request)
            self._held.answered += 1
        except h11.RemoteProtocolError as error:
            broken = True
            response = self._application.refusal(error.error_status_hint, str(error))
        await self._send(response, last=broken or self.leaving)
        self.busy = False
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
            self.idle = True
            return True
        return False

    async def _next_request(self) -> HttpRequest:
        if self.idle:
            await self._begun()
        self.idle = False
        self._held.waits(self)
        try:
            event = await self._next_event(_after(self._bounds.request_seconds))
        except TimeoutError:
            self._held.cut += 1
            if not self._http.trailing_data[0]:
                raise _GoneError from None
            raise _refused(408, f"The head did not come within {self._bounds.request_seconds:g} s") from None
        except h11.RemoteProtocolError as error:
            if error.error_status_hint == 431:
                raise self._too_large() from None
            raise _refused(error.error_status_hint, f"This is not HTTP/1.1: {error}") from None
        if not isinstance(event, h11.Request):
            raise _GoneError
        return self._request_of(event)

    async def _begun(self) -> None:
        """Wait for the first bytes of another request."""
        if self._http.trailing_data[0]:
            await asyncio.sleep(0)  # a client that sends many requests at once must not block others
            return
        try:
            async with asyncio.timeout(self._bounds.idle_seconds):
                await self._receive()
        except TimeoutError:
            raise _GoneError from None

    def _request_of(self, event: h11.Request) -> HttpRequest:
        self._asked_by_head = event.method == b"HEAD"
        # h11 bounds only incomplete heads; it accepts one of any size that arrives at once.
        size = len(event.target) + sum(len(name) + len(value) for name, value in event.headers)
        if size > self._bounds.head_bytes:
            raise self._too_large()
        headers: dict[str, str] = {}
        for name, value in event.headers:
            key, content = name.decode("ascii"), value.decode("latin-1")
            headers[key] = f"{headers[key]}, {content}" if key in headers else content
        if "transfer-encoding" in headers and "content-length" in headers:
            # A proxy that uses the other header may take a part of the body for a request (RFC 9112, 6.1).
            raise _refused(400, "Send Content-Length or Transfer-Encoding, not both")
        path, _, query = event.target.decode("ascii", "replace").partition("?")
        segments = tuple(unquote(each) for each in path.split("/")[1:])
        return HttpRequest(
            event.method.decode("ascii"), unquote(path), headers, self._body, self._peer, query, segments
        )

    def _too_large(self) -> h11.RemoteProtocolError:
        return _refused(431, f"The head of the request has more than {self._bounds.head_bytes} bytes")

    async def _handled(self, request: HttpRequest) -> Response:
        try:
            async with asyncio.timeout(self._bounds.made_seconds) as self._making:
                return await self._application(request)
        except BodyError as error:
            return self._application.refusal(error.status, str(error))
        except _GoneError:
            raise
        except asyncio.CancelledError:
            if not self.leaving or self._task is None:
                raise
            self._task.uncancel()
            return self._application.refusal(503, "Blindsight is stopping")
        except Exception:
            if self._making.expired():
                self._held.cut += 1
                raise _GoneError from None
            log.exception("A request could not be answered.")
            return self._application.refusal(500, "This failed here; the log says why")

    async def _body(self) -> AsyncIterator[bytes]:
        seconds, made = self._bounds.request_seconds, self._bounds.made_seconds
        self._making.reschedule(None)
        self._held.waits(self)
        try:
            by, chunks = _after(seconds), 0
            while isinstance(event := await self._next_event(by), h11.Data):
                yield bytes(event.data)
                chunks += 1
                if chunks % _TURN_CHUNKS == 0:
                    async with asyncio.timeout_at(by):
                        await self._held.turn()
        except TimeoutError:
            sentence = f"The body did not come within {seconds:g} s; send it faster, or in smaller posts"
            raise BodyError(408, sentence) from None
        except (h11.RemoteProtocolError, OSError) as error:
            raise BodyError(400, f"The body is broken off, or no HTTP/1.1: {error}") from None
        self._held.works(self)
        self._making.reschedule(made and _after(made))

    async def _next_event(self, by: float) -> object:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            if self._http.they_are_waiting_for_100_continue:
                go_on = self._http.send(h11.InformationalResponse(status_code=100, headers=[]))
                self._writer.write(go_on or b"")
            async with asyncio.timeout_at(by):
                await self._receive()
        return event

    async def _receive(self) -> None:
        data = await self._reader.read(_READ_BYTES)
        if not data and self._http.their_state is h11.IDLE and not self._http.trailing_data[0]:
            raise _GoneError
        self._http.receive_data(data)
        if len(data) == _READ_BYTES:  # more data is there; let other connections proceed first
            await asyncio.sleep(0)

    async def _send(self, response: Response, last: bool) -> None:
        if self._http.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            raise _GoneError
        self._skip_body()
        length = str(len(response.body))
        headers = {"date": formatdate(usegmt=True), **_HEADERS, **response.headers, "content-length": length}
        if last or self._http.their_state is not h11.DONE:
            headers["connection"] = "close"  # unread data would be taken for the next request
        head = h11.Response(
            status_code=response.status,
            headers=list(headers.items()),
            reason=HTTPStatus(response.status).phrase.encode(),
        )
        parts = [
            self._http.send(head),
            self._http.send(h11.Data(data=b"" if self._asked_by_head else response.body)),
            self._http.send(h11.EndOfMessage()),
        ]
        self._held.waits(self)
        self._writer.write(b"".join(part or b"" for part in parts))
        if self.unsent:
            self._held.relieve()
            await self._drain()

    def _skip_body(self) -> None:
        """Skip the received part of an unread body. If the body is complete, other requests may follow."""
        if self._http.their_state is h11.SEND_BODY:
            with contextlib.suppress(h11.RemoteProtocolError):
                while isinstance(self._http.next_event(), h11.Data):
                    pass

    async def _drain(self) -> None:
        try:
            async with asyncio.timeout(self._bounds.taken_seconds):
                await self._writer.drain()
        except TimeoutError:
            self._held.cut += 1
            raise _GoneError from None

    async def _linger(self) -> None:
        """Read for a moment, because closing while the other side sends could destroy the response."""
        self.idle = True
        if self._writer.can_write_eof():
            self._writer.write_eof()
        left = _LINGER_BYTES
        async with asyncio.timeout(_LINGER_SECONDS):
            while left > 0 and (data := await self._reader.read(_READ_BYTES)):
                left -= len(data)

    async def _close(self, transport: asyncio.Transport) -> None:
        """Give sent data a moment to arrive, then close."""
        transport.close()
        try:
            with contextlib.suppress(OSError):
                async with asyncio.timeout(_LINGER_SECONDS):
                    await self._writer.wait_closed()
        finally:
            transport.abort()


def _refused(status: int, sentence: str) -> h11.RemoteProtocolError:
    return h11.RemoteProtocolError(sentence, error_status_hint=status)


def _after(seconds: float) -> float:
    return asyncio.get_running_loop().time() + seconds

"""Listens in a thread of its own, and bounds the connections held, those in a handshake included."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
import threading
from collections.abc import Callable

from connectors.http.conversation import READ_BYTES, Conversation
from connectors.http.messages import Handler
from monitor.base.errors import SourceError
from monitor.config.section import listen_address
from monitor.export.http.listening import bind, cannot_listen

log = logging.getLogger("blindsight")

IDLE_CONNECTIONS = 256
"""Connections held beside those that a post may be coming in on."""

_GRACE_SECONDS = 1.0
_PAUSE_SECONDS = 0.5  # after the system had no room for one more connection


class Listener:
    """Serves a handler on an address.

    Parameters
    ----------
    listen : str
        ``127.0.0.1:9108``; port 0 takes a free one.
    handler : Handler
    context : callable, optional
        Gives the TLS context for a new connection; plain HTTP if absent.
    read_seconds : float
        Bounds each step of a connection, the handshake too.
    most_connections : int
        More wait in the system's queue.
    """

    def __init__(
        self,
        listen: str,
        handler: Handler,
        context: Callable[[], ssl.SSLContext] | None,
        read_seconds: float,
        most_connections: int,
    ) -> None:
        self._listen = listen
        self._handler = handler
        self._context = context
        self._seconds = read_seconds
        self._most = most_connections
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._stopping = asyncio.Event()
        self._tasks: dict[asyncio.Task[None], Conversation | None] = {}
        self.port = 0

    def start(self) -> None:
        """Take the address and serve.

        Raises
        ------
        SourceError
            The address cannot be had; the sentence says why and what to do.
        """
        host, port = listen_address(self._listen)
        try:
            bound = bind(host, port)
        except OSError as error:
            raise SourceError(cannot_listen(self._listen, error, key="listen")) from error
        bound.setblocking(False)
        self._stopping, self._tasks = asyncio.Event(), {}
        self.port = bound.getsockname()[1]
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._run, args=(self._loop, bound), name="blindsight-posts", daemon=True
        )
        self._thread.start()

    @property
    def up(self) -> bool:
        """Whether it serves."""
        return self._thread is not None and self._thread.is_alive()

    def stop(self) -> None:
        """Stop within about a second: idle connections at once, posts in flight after a short grace."""
        if self._thread is None or self._loop is None:
            return
        with contextlib.suppress(RuntimeError):  # it has ended by itself
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()
        self._thread = None

    def _run(self, loop: asyncio.AbstractEventLoop, bound: socket.socket) -> None:
        try:
            loop.run_until_complete(self._serve(bound))
        except Exception:
            log.exception("Posts are no longer taken on %s.", self._listen)
        finally:
            bound.close()
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()

    async def _serve(self, bound: socket.socket) -> None:
        accepting = asyncio.create_task(self._accept(bound))
        stopping = asyncio.create_task(self._stopping.wait())
        done, _ = await asyncio.wait({accepting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        for task in (accepting, stopping):
            task.cancel()
        await self._leave()
        if accepting in done:
            accepting.result()

    async def _leave(self) -> None:
        for task, conversation in self._tasks.items():
            if conversation is None or not conversation.busy:
                task.cancel()
        if self._tasks:
            _, left = await asyncio.wait(self._tasks, timeout=_GRACE_SECONDS)
            for task in left:
                task.cancel()
            if left:
                await asyncio.wait(left)

    async def _accept(self, bound: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        room = asyncio.Semaphore(self._most)

        def ended(task: asyncio.Task[None]) -> None:
            del self._tasks[task]
            room.release()
            if not task.cancelled() and (error := task.exception()):
                log.error("A connection failed.", exc_info=error)

        while True:
            await room.acquire()
            try:
                connected, _ = await loop.sock_accept(bound)
            except OSError as error:  # no more files may be open, or the other side has left already
                room.release()
                log.debug("A connection could not be accepted: %s.", error)
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            task = asyncio.create_task(self._talk(connected))
            self._tasks[task] = None
            task.add_done_callback(ended)

    async def _talk(self, connected: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(READ_BYTES)
        protocol = asyncio.StreamReaderProtocol(reader)
        context = self._context() if self._context else None
        try:
            transport, _ = await loop.connect_accepted_socket(
                lambda: protocol,
                connected,
                ssl=context,
                ssl_handshake_timeout=self._seconds if context else None,
            )
        except (OSError, TimeoutError):  # ssl.SSLError is an OSError
            connected.close()
            return
        writer = asyncio.StreamWriter(transport, protocol, reader, loop)
        conversation = Conversation(reader, writer, self._handler, self._seconds)
        task = asyncio.current_task()
        assert task is not None
        self._tasks[task] = conversation
        try:
            await conversation.run()
        finally:
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(_GRACE_SECONDS):
                    await writer.wait_closed()
            transport.abort()  # who does not take the end of it is left alone

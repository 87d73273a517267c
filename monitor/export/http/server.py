"""An HTTP server in a separate thread: it accepts connections, starts and stops."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import ssl
import threading
from collections.abc import Callable

from monitor.base.errors import BlindsightError, InUseError, SinkError
from monitor.export.http.bounds import SCRAPES, Bounds, OpenConnections
from monitor.export.http.connection import Connection
from monitor.export.http.listening import bind, cannot_listen, parse_listen
from monitor.export.http.messages import Application
from monitor.reports.views import SinkView

log = logging.getLogger("blindsight")

_GRACE_SECONDS = 1.0  # the time for open requests when the server stops
_FORCED_SECONDS = 0.3  # the time to refuse the remaining requests
_PAUSE_SECONDS = 0.5  # the pause after the system refused one more connection


class HttpServer:
    """A server that runs an application in a daemon thread. It can be started again after a stop.

    The server installs no signal handler.

    Parameters
    ----------
    application : Application
    listen : str
        The address, such as ``127.0.0.1:9109`` or ``[::1]:9109``; port 0 selects a free port.
    bounds : Bounds
    context : callable, optional
        A function that returns the TLS context for a new connection; plain HTTP if absent.
    key : str
        The key of `listen` in the configuration, for errors.
    failure : type
        The exception that `start` raises.
    name : str
        Name of the thread.

    Raises
    ------
    ConfigError
        `listen` is not an address and a port.

    Examples
    --------
    >>> from prometheus_client import CollectorRegistry
    >>> from monitor.export.http.app import build_app
    >>> from monitor.reports.views import AgentView
    >>> server = HttpServer(build_app(AgentView, CollectorRegistry(), lambda view, query: ""), "127.0.0.1:0")
    >>> server.start()
    >>> server.port > 0, server.up
    (True, True)
    >>> server.stop()
    """

    def __init__(
        self,
        application: Application,
        listen: str,
        bounds: Bounds = SCRAPES,
        *,
        context: Callable[[], ssl.SSLContext] | None = None,
        key: str = "export.listen",
        failure: type[BlindsightError] = SinkError,
        name: str = "blindsight-http",
    ) -> None:
        self._host, self._port = parse_listen(listen, key)
        self._application, self._listen, self._bounds = application, listen, bounds
        self._context, self._key, self._failure, self._name = context, key, failure, name
        self._held = OpenConnections(bounds)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = asyncio.Event()
        self._thread: threading.Thread | None = None
        self._tasks: dict[asyncio.Task[None], Connection] = {}

    @property
    def port(self) -> int:
        """The port that the server uses. Before the start, it is the configured port."""
        return self._port

    @property
    def up(self) -> bool:
        """True while the server runs."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def view(self) -> SinkView:
        """The numbers of open connections, answered requests and cut connections.

        The page and the metrics list the server with these numbers among the agent's sinks.
        """
        return self._held.view

    def start(self) -> None:
        """Open the address and serve.

        Raises
        ------
        BlindsightError
            The address cannot be used: an `InUseError` if another process uses it, otherwise a `failure`. The
            message says why and what to do.
        """
        try:
            bound = bind(self._host, self._port)
        except OSError as error:
            kind = InUseError if error.errno == errno.EADDRINUSE else self._failure
            raise kind(cannot_listen(self._listen, error, self._key)) from error
        bound.setblocking(False)
        self._port = bound.getsockname()[1]
        self._loop, self._stopping = asyncio.new_event_loop(), asyncio.Event()
        self._held.begin()
        self._thread = threading.Thread(
            target=self._run, args=(self._loop, bound), name=self._name, daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Stop within two seconds. Idle connections are closed at once; responses in progress may finish."""
        if self._thread is None or self._loop is None:
            return
        with contextlib.suppress(RuntimeError):  # the loop has ended already
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()
        self._thread = None

    def _run(self, loop: asyncio.AbstractEventLoop, bound: socket.socket) -> None:
        try:
            loop.run_until_complete(self._serve(bound))
        except Exception:
            log.exception("Nothing more is served on %s.", self._listen)
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
        bound.close()
        await self._leave()
        if accepting in done:
            accepting.result()

    async def _leave(self) -> None:
        for connection in self._tasks.values():
            connection.leave()
        for seconds in (_GRACE_SECONDS, _FORCED_SECONDS, _FORCED_SECONDS):
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=seconds)
            for task in self._tasks:
                task.cancel()

    async def _accept(self, bound: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, _ = await loop.sock_accept(bound)
            except OSError as error:  # too many open files, or the other side has left already
                log.debug("A connection could not be accepted: %s.", error)
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            self._held.make_room()
            connection = Connection(self._application, self._bounds, self._held)
            task = connection.start(accepted, self._context() if self._context else None)
            self._tasks[task] = connection
            task.add_done_callback(self._ended)
            await asyncio.sleep(0)  # lets connections that were cut end before more are accepted

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        if not task.cancelled() and (error := task.exception()):
            log.error("A connection failed.", exc_info=error)

"""The HTTP side of the agent: the page, the metrics, and whether it is healthy and ready.

Rendering runs in threads of its own, so that a scrape of a hundred models never delays the answer to
`/-/healthy`: a kubelet that hears nothing would kill an agent that is well.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence

import uvicorn
from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from prometheus_client import CollectorRegistry
from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from monitor.base.errors import ConfigError, SinkError
from monitor.config.section import listen_address
from monitor.export.http.accept import prefers_openmetrics
from monitor.export.http.listening import bind, cannot_listen
from monitor.export.http.packing import encodings_of, packed
from monitor.export.http.patience import ScrapeCounts, patient_protocol
from monitor.export.prometheus import exposition
from monitor.reports.views import AgentView, SinkView

TEXT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"

_RENDERINGS_AT_ONCE = 2  # more would only make each slower: rendering is Python, one thread runs at a time
_START_SECONDS = 10.0  # the event loop is up in milliseconds; this only bounds a machine that thrashes
_GRACE_SECONDS = 0.6  # requests in flight may end; with the forced part, `stop` stays within a second
_FORCED_SECONDS = 0.3

_SECURITY_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
}


def build_app(
    view: Callable[[], AgentView],
    registry: CollectorRegistry,
    page: Callable[[AgentView], str],
    routes: Sequence[Route] = (),
) -> Starlette:
    """The agent's HTTP application: `/`, `/metrics`, `/-/healthy`, `/-/ready`, and what the page asks for.

    Parameters
    ----------
    view : callable
        Gives the newest view; called in the event loop for the health checks, so it must not block.
    registry : CollectorRegistry
        Rendered at `/metrics`: text format 0.0.4, or OpenMetrics 1.0.0 to who asks for it.
    page : callable
        Renders `/` as HTML. Both are packed with gzip for who takes that.
    routes : sequence of Route
        What the page needs beside itself.

    Notes
    -----
    `/-/healthy` and `/-/ready` answer 200, or 503 with a reason a line (Prometheus, *Management API*).
    """
    answers = _Answers(view, registry, page)
    app = Starlette(
        routes=[
            Route("/", answers.page),
            Route("/metrics", answers.metrics),
            Route("/-/healthy", answers.healthy),
            Route("/-/ready", answers.ready),
            *routes,
        ]
    )
    app.router.redirect_slashes = False  # "/metrics/" is not there; a redirect would hide the typing error
    app.add_middleware(_SecurityHeaders)
    return app


class _Answers:
    """One method a path; see `build_app`."""

    def __init__(
        self,
        view: Callable[[], AgentView],
        registry: CollectorRegistry,
        page: Callable[[AgentView], str],
    ) -> None:
        self._view, self._registry, self._page = view, registry, page
        self._limiter = CapacityLimiter(_RENDERINGS_AT_ONCE)

    async def page(self, request: Request) -> Response:
        encodings = encodings_of(request)
        return await self._rendered(lambda: self._html(encodings))

    async def metrics(self, request: Request) -> Response:
        accept = ",".join(request.headers.getlist("accept"))
        encodings = encodings_of(request)
        return await self._rendered(lambda: _metrics(self._registry, accept, encodings))

    async def healthy(self, request: Request) -> Response:
        newest = self._view()
        return _condition(newest.healthy, newest, "healthy")

    async def ready(self, request: Request) -> Response:
        newest = self._view()
        return _condition(newest.ready, newest, "ready")

    def _html(self, encodings: str) -> Response:
        text = self._page(self._view())
        return packed(text.encode("utf-8", "replace"), "text/html; charset=utf-8", encodings)

    async def _rendered(self, render: Callable[[], Response]) -> Response:
        try:
            return await run_sync(render, abandon_on_cancel=True, limiter=self._limiter)
        except asyncio.CancelledError:
            # Only a server that is told to stop cancels a request; answered, it need not log an error.
            return PlainTextResponse("Blindsight is stopping.\n", status_code=503)


def _metrics(registry: CollectorRegistry, accept: str, encodings: str) -> Response:
    openmetrics = prefers_openmetrics(accept)
    body = exposition.openmetrics(registry) if openmetrics else exposition.text(registry)
    return packed(body, OPENMETRICS_TYPE if openmetrics else TEXT_TYPE, encodings, vary="Accept")


def _condition(fine: bool, view: AgentView, word: str) -> Response:
    if fine:
        return PlainTextResponse(f"Blindsight is {word}.\n")
    return PlainTextResponse("\n".join([f"Blindsight is not {word}.", *view.reasons, ""]), status_code=503)


class _SecurityHeaders:
    """Adds the headers to every answer, errors included."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(_SECURITY_HEADERS)
                headers.setdefault("cache-control", "no-store")
            await send(message)

        await self._app(scope, receive, send_with_headers)


class HttpServer:
    """Serves an application from a daemon thread of its own; installs no signal handler.

    Parameters
    ----------
    app : ASGI application
    listen : str
        ``127.0.0.1:9109``, ``[::1]:9109``; port 0 takes a free one.

    Raises
    ------
    ConfigError
        `listen` is not an address and a port.

    Examples
    --------
    >>> from prometheus_client import CollectorRegistry
    >>> server = HttpServer(build_app(AgentView, CollectorRegistry(), lambda view: ""), "127.0.0.1:0")
    >>> server.start()
    >>> server.port > 0
    True
    >>> server.stop()
    """

    def __init__(self, app: ASGIApp, listen: str) -> None:
        self._host, self._port = parse_listen(listen)
        self._listen = listen
        self._counts = ScrapeCounts()
        config = uvicorn.Config(
            app,
            loop="asyncio",
            # h11, in pure Python: what parses bytes from the network is the same everywhere.
            http=patient_protocol(self._counts),
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        self._thread: threading.Thread | None = None

    @property
    def port(self) -> int:
        """The port in use, once started; before that, the one that was asked for."""
        return self._port

    @property
    def view(self) -> SinkView:
        """How the HTTP side stands, as one of the agent's sinks: requests answered, connections cut."""
        return self._counts.view

    def start(self) -> None:
        """Bind and serve.

        Raises
        ------
        SinkError
            The address cannot be had; the sentence says why and what to do.
        """
        try:
            bound = bind(self._host, self._port)
        except OSError as error:
            raise SinkError(cannot_listen(self._listen, error)) from error
        self._port = bound.getsockname()[1]
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [bound]}, name="blindsight-http", daemon=True
        )
        self._thread.start()
        self._wait_until_started()

    def _wait_until_started(self) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while self._thread is not None and self._thread.is_alive() and time.monotonic() < deadline:
            if self._server.started:
                return
            time.sleep(0.005)
        raise SinkError(
            f"export.listen: the HTTP server did not start on {self._listen}; see the log for the cause"
        )

    def stop(self) -> None:
        """Stop within a second: idle connections at once, requests in flight after a short grace."""
        if self._thread is None:
            return
        self._server.should_exit = True
        self._thread.join(_GRACE_SECONDS)
        self._server.force_exit = True
        self._thread.join(_FORCED_SECONDS)
        self._thread = None


def parse_listen(listen: str) -> tuple[str, int]:
    """Host and port of an address to listen on.

    Raises
    ------
    ConfigError
        It is not of the form ``host:port``.

    Examples
    --------
    >>> parse_listen("127.0.0.1:9109"), parse_listen("[::1]:0")
    (('127.0.0.1', 9109), ('::1', 0))
    """
    try:
        return listen_address(listen)
    except ValueError as error:
        raise ConfigError(
            f"export.listen: expected host:port, such as 127.0.0.1:9109, 0.0.0.0:9109 or [::1]:9109, "
            f"with a port from 0 to 65535, got {listen!r}"
        ) from error

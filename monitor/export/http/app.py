"""The HTTP application of the agent: the page, the metrics, and the health checks.

Separate threads render responses, so that a scrape of a hundred models never delays the answer to
`/-/healthy`. A kubelet would kill a healthy agent that does not answer in time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

from prometheus_client import CollectorRegistry

from monitor.export.http.gate import Gate, bearer_of
from monitor.export.http.messages import HttpRequest, RefusedError, Response, text
from monitor.export.http.negotiation import packed, prefers_openmetrics
from monitor.export.prometheus import exposition
from monitor.reports.views import AgentView

HTML = "text/html; charset=utf-8"
TEXT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"

_SECURITY_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
}

_OPEN = frozenset({"/-/healthy", "/-/ready"})
"""The paths of health checks. They need no token, because a kubelet has none and the answers are not
secret."""

# Basic comes first, in the same header, because a browser uses the first scheme that it knows.
_CHALLENGES = 'Basic realm="Blindsight", Bearer realm="Blindsight"'
_NEEDS_TOKEN = "Give a token of export.tokens: Authorization: Bearer …, or as the password of a login.\n"

Handler = Callable[[HttpRequest], Awaitable[Response]]
"""A function that answers the requests of a path."""


class App:
    """An application that answers GET and HEAD by path, with security headers for browsers.

    Parameters
    ----------
    routes : mapping of str to Handler
        Handlers by path; each ``*`` at the end of a path matches one segment.
    gate : Gate, optional
        The tokens of readers. If absent, everyone may read.
    """

    def __init__(self, routes: Mapping[str, Handler], gate: Gate | None = None) -> None:
        self._routes, self._gate = routes, gate or Gate([])

    async def __call__(self, request: HttpRequest) -> Response:
        """Answer a request."""
        handler = self._handler(request)
        if not self._admits(request):
            response = text(401, _NEEDS_TOKEN, www_authenticate=_CHALLENGES)
        elif handler is None:
            response = text(404, "Not Found")
        elif request.method not in ("GET", "HEAD"):
            response = text(405, "Method Not Allowed", allow="GET, HEAD")
        else:
            try:
                response = await handler(request)
            except RefusedError as error:
                response = text(error.status, f"{error}\n")
        return _secured(response)

    def _handler(self, request: HttpRequest) -> Handler | None:
        handler = self._routes.get(request.path)
        for below in (1, 2):
            kept = request.segments[:-below]
            if handler is None and kept:
                handler = self._routes.get("/" + "/".join((*kept, *["*"] * below)))
        return handler

    def _admits(self, request: HttpRequest) -> bool:
        if request.path in _OPEN:
            return True
        return self._gate.admits(bearer_of(request.headers.get("authorization"))) is not None

    def refusal(self, status: int, sentence: str) -> Response:
        """Return the response to an error that the server detects."""
        return _secured(text(status, "Internal Server Error" if status == 500 else f"{sentence}.\n"))


def _secured(response: Response) -> Response:
    return Response(response.status, response.body, {**_SECURITY_HEADERS, **response.headers})


class Rendering:
    """A pool of threads that render the responses of the application."""

    def __init__(self) -> None:
        # More threads would only make each slower: rendering is Python, which runs one thread at a time.
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="blindsight-render")

    async def __call__(self, render: Callable[[], Response]) -> Response:
        """Call `render` in a thread and return its response."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, render)


def build_app(
    view: Callable[[], AgentView],
    registry: CollectorRegistry,
    page: Callable[[AgentView, str], str],
    routes: Mapping[str, Handler] | None = None,
    max_bytes: int | None = None,
    gate: Gate | None = None,
) -> App:
    """Return the agent's HTTP application: the page, `/metrics`, the health checks, and further routes.

    Parameters
    ----------
    view : callable
        A function that returns the agent's newest state. It must not block, because the health checks call
        it in the event loop.
    registry : CollectorRegistry
        The metrics for `/metrics`. They are rendered in text format 0.0.4, or in OpenMetrics 1.0.0 for
        clients that prefer it.
    page : callable
        A function from the state and the query of the address to the HTML of `/`. The page and the metrics
        are compressed with gzip for clients that accept gzip.
    routes : mapping of str to Handler, optional
        Further routes of the page.
    max_bytes : int, optional
        The largest uncompressed size of `/metrics`: see `exposition.text`.
    gate : Gate, optional
        The tokens of readers. If absent, everyone may read.

    Notes
    -----
    `/-/healthy` and `/-/ready` answer 200, or 503 with one reason on each line (Prometheus, *Management
    API*).
    """
    rendering = Rendering()

    def html(request: HttpRequest) -> Response:
        return packed(request, page(view(), request.query).encode("utf-8", "replace"), HTML)

    async def healthy(request: HttpRequest) -> Response:
        newest = view()
        return _condition(newest.healthy, newest, "healthy")

    async def ready(request: HttpRequest) -> Response:
        newest = view()
        return _condition(newest.ready, newest, "ready")

    return App(
        {
            "/": lambda request: rendering(lambda: html(request)),
            "/metrics": lambda request: rendering(lambda: _metrics(request, registry, max_bytes)),
            "/-/healthy": healthy,
            "/-/ready": ready,
            **(routes or {}),
        },
        gate,
    )


def _metrics(request: HttpRequest, registry: CollectorRegistry, max_bytes: int | None) -> Response:
    openmetrics = prefers_openmetrics(request.headers.get("accept", ""))
    body = (exposition.openmetrics if openmetrics else exposition.text)(registry, max_bytes)
    return packed(request, body, OPENMETRICS_TYPE if openmetrics else TEXT_TYPE, vary="Accept")


def _condition(fine: bool, view: AgentView, word: str) -> Response:
    if fine:
        return text(200, f"Blindsight is {word}.\n")
    return text(503, "\n".join([f"Blindsight is not {word}.", *view.reasons, ""]))

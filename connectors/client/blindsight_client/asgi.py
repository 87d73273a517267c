"""A middleware for ASGI services: FastAPI, Starlette, BentoML, Ray Serve with an ingress, and others."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

from blindsight_client.client import Client

log = logging.getLogger("blindsight_client")

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_ID_HEADERS = ("x-request-id", "x-bentoml-request-id")


@dataclass(frozen=True)
class Exchange:
    """A request and its response.

    Parameters
    ----------
    path : str
    status : int
        The status of the response.
    request_headers, response_headers : mapping of str to str
        The headers by name in lower case.
    request, response : bytes
        The bodies.
    """

    path: str
    status: int
    request_headers: Mapping[str, str]
    response_headers: Mapping[str, str]
    request: bytes
    response: bytes


Records = Callable[[Exchange], Iterable[Mapping[str, Any]]]


def records_of(exchange: Exchange) -> Iterable[Mapping[str, Any]]:
    """Return the answers in a JSON response, which are the objects with the key `scores`.

    The body is one such object, a list of them, or an object with the list under `predictions`.

    If the body is a single answer without an `id`, the id is the value of the header ``x-request-id`` or
    ``x-bentoml-request-id``. Answers without an id are left out.

    Examples
    --------
    >>> exchange = Exchange("/", 200, {"x-request-id": "r-1"}, {}, b"", b'{"scores": [0.1, 0.9], "ms": 3}')
    >>> records_of(exchange)
    [{'scores': [0.1, 0.9], 'id': 'r-1'}]
    """
    content = json.loads(exchange.response)
    if isinstance(content, dict) and isinstance(content.get("predictions"), list):
        content = content["predictions"]
    rows = content if isinstance(content, list) else [content]
    fields = ("id", "scores", "model", "task", "version", "prediction", "groups", "time")
    answers = [
        {k: row[k] for k in fields if k in row} for row in rows if isinstance(row, dict) and "scores" in row
    ]
    heads = (exchange.response_headers, exchange.request_headers)
    header = next((head[name] for head in heads for name in _ID_HEADERS if head.get(name)), None)
    if len(answers) == 1 and header is not None:
        answers[0].setdefault("id", header)
    return [row for row in answers if "id" in row]


class Middleware:
    """A middleware that logs a service's answers after each response.

    It does not change or delay the response.

    Parameters
    ----------
    app : ASGI application
    client : Client
    records : callable
        A function that takes an `Exchange` and returns a mapping for each answer, with the keyword arguments
        of `Client.log`; by default `records_of`. If the function raises, the middleware logs the first
        exception.
    paths : iterable of str, optional
        The paths to log, by default all.
    max_bytes : int
        The largest body that is read. The middleware does not log an exchange with a longer body.

    Examples
    --------
    ::

        app = FastAPI()
        app.add_middleware(Middleware, client=Client("http://127.0.0.1:9108", model="erm"))
    """

    def __init__(
        self,
        app: App,
        client: Client,
        records: Records = records_of,
        paths: Iterable[str] | None = None,
        max_bytes: int = 1_000_000,
    ) -> None:
        self._app, self._client, self._records = app, client, records
        self._paths = None if paths is None else frozenset(paths)
        self._max_bytes = max_bytes
        self._failed = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http" or (self._paths is not None and scope["path"] not in self._paths):
            await self._app(scope, receive, send)
            return
        request, response = _Body(self._max_bytes), _Body(self._max_bytes)
        start: Message = {}

        async def receiving() -> Message:
            message = await receive()
            request.add(message)
            return message

        async def sending(message: Message) -> None:
            await send(message)
            if message["type"] == "http.response.start":
                start.update(message)
            else:
                response.add(message)

        await self._app(scope, receiving, sending)
        if 200 <= start.get("status", 0) < 300 and not request.cut and not response.cut:
            self._log(scope, start, request, response)

    def _log(self, scope: Scope, start: Message, request: _Body, response: _Body) -> None:
        try:
            exchange = Exchange(
                scope["path"],
                start["status"],
                _headers(scope),
                _headers(start),
                request.content,
                response.content,
            )
            for record in self._records(exchange):
                self._client.log(**record)
        except Exception:
            if not self._failed:
                self._failed = True
                log.exception("No record was made of a response of %s. This is told once.", scope["path"])


class _Body:
    """The received parts of a body, up to a limit."""

    def __init__(self, max_bytes: int) -> None:
        self._parts: list[bytes] = []
        self._room = max_bytes
        self.cut = False

    def add(self, message: Message) -> None:
        part = message.get("body", b"")
        self._room -= len(part)
        self.cut = self.cut or self._room < 0
        if self.cut:
            self._parts.clear()
        elif part:
            self._parts.append(bytes(part))

    @property
    def content(self) -> bytes:
        return b"".join(self._parts)


def _headers(part: Mapping[str, Any]) -> dict[str, str]:
    return {
        bytes(k).decode("latin-1").lower(): bytes(v).decode("latin-1") for k, v in part.get("headers", ())
    }

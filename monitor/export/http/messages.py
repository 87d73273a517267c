"""Requests and responses, independent of the bytes on a connection."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

TEXT = "text/plain; charset=utf-8"


class BodyError(Exception):
    """The error of a request's body that is late, broken or incomplete. The text has no full stop."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class RefusedError(Exception):
    """The error of a request to which the response is an error status. The text is the reason."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """An HTTP request whose head has arrived, while its body may still be on the way.

    Parameters
    ----------
    method, path : str
        The path is decoded, without its query.
    headers : mapping of str to str
        Names are in lower case; values of the same name are joined by commas.
    body : callable
        A function that yields the parts of the body when they arrive, or raises `BodyError`. If the body did
        not arrive together with the head and is not read, the connection ends after the response.
    peer : str
        The address of the sender.
    query : str
        The part of the address after the question mark.
    segments : tuple of str
        The parts of the path between its slashes. Each part is decoded separately, so that it may contain
        slashes.
    """

    method: str
    path: str
    headers: Mapping[str, str]
    body: Callable[[], AsyncIterator[bytes]]
    peer: str = ""
    query: str = ""
    segments: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Response:
    """A response.

    `headers` has names in lower case, without the date and the length, which the server adds.
    """

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


class Application(Protocol):
    """The interface of an application, which makes the responses of an `HttpServer`."""

    async def __call__(self, request: HttpRequest) -> Response:
        """Answer a request in the server's event loop. The call is cancelled if the client has left."""

    def refusal(self, status: int, sentence: str) -> Response:
        """Return the response to an error that the server detects: 400, 408, 431, 500 or 503.

        The sentence has no full stop.
        """


def text(status: int, body: str, **headers: str) -> Response:
    """Return a response in plain text. Keyword arguments are headers, with `_` for `-`.

    Examples
    --------
    >>> text(405, "Method Not Allowed", allow="GET").headers
    {'content-type': 'text/plain; charset=utf-8', 'allow': 'GET'}
    """
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Response(status, body.encode("utf-8", "replace"), {"content-type": TEXT, **named})

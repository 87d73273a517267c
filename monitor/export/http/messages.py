"""A request and its response, apart from the bytes on a connection."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

TEXT = "text/plain; charset=utf-8"


class BodyError(Exception):
    """The body of a request is not whole: late, broken or cut off; its text has no full stop."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class RefusedError(Exception):
    """A request that cannot be answered as it stands; its text is a sentence that says why."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request whose head has come.

    Parameters
    ----------
    method, path : str
        The path decoded, without its query.
    headers : mapping of str to str
        Names in lower case; values of one name joined by commas.
    body : callable
        Gives the parts of the body as they come, or raises `BodyError`. Where it is not read, and did not
        come along with the head, the connection ends after the response.
    peer : str
        The address of who sent it.
    query : str
        What follows the question mark.
    segments : tuple of str
        What stands between the slashes of the path, each decoded by itself: it may hold slashes.
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
    """What is sent back; `headers` are those beside the date and the length, names in lower case."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


class Application(Protocol):
    """What a server serves."""

    async def __call__(self, request: HttpRequest) -> Response:
        """Answer a request, in the server's event loop; cancelled where the answer is no longer wanted."""

    def refusal(self, status: int, sentence: str) -> Response:
        """What the server itself answers: 400, 408, 431, 500 or 503; the sentence has no full stop."""


def text(status: int, body: str, **headers: str) -> Response:
    """A response in plain text; an underscore in a header's name stands for a hyphen.

    Examples
    --------
    >>> text(405, "Method Not Allowed", allow="GET").headers
    {'content-type': 'text/plain; charset=utf-8', 'allow': 'GET'}
    """
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Response(status, body.encode("utf-8", "replace"), {"content-type": TEXT, **named})

"""A request and its answer, apart from the bytes on a connection."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field

import msgspec


@dataclass(frozen=True, slots=True)
class Request:
    """A request whose head has come.

    Parameters
    ----------
    method, path : str
        The path without a query.
    headers : mapping of str to str
        Names in lower case; values of one name joined by commas.
    body : callable
        Gives the parts of the body as they come. Not reading it ends the connection after the answer.
    peer : str
        The address of who sent it.
    """

    method: str
    path: str
    headers: Mapping[str, str]
    body: Callable[[], AsyncIterator[bytes]]
    peer: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """What is sent back: a status, a JSON object, and headers beside the usual ones."""

    status: int
    content: Mapping[str, object]
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def body(self) -> bytes:
        try:
            return msgspec.json.encode(self.content) + b"\n"
        except UnicodeEncodeError:  # a fault may quote a lone surrogate, which UTF-8 cannot hold
            return json.dumps(self.content).encode() + b"\n"


def refusal(status: int, sentence: str, **headers: str) -> Answer:
    """An answer that says why not; an underscore in a header's name stands for a hyphen.

    Examples
    --------
    >>> refusal(429, "Later.", retry_after="5")
    Answer(status=429, content={'error': 'Later.'}, headers={'retry-after': '5'})
    """
    return Answer(
        status, {"error": sentence}, {key.replace("_", "-"): value for key, value in headers.items()}
    )


Handler = Callable[[Request], Awaitable[Answer]]
"""Answers a request."""

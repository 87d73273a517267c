"""The answers to posts. An answer has a status and a JSON object."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from monitor.export.http.messages import Response


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer to a post: its status, a JSON object, and additional headers."""

    status: int
    content: Mapping[str, object]
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def response(self) -> Response:
        """The answer in the form in which the HTTP server sends it."""
        return Response(self.status, self.body, {"content-type": "application/json", **self.headers})

    @property
    def body(self) -> bytes:
        """The body of the response: the JSON object and a newline, in UTF-8."""
        try:
            return msgspec.json.encode(self.content) + b"\n"
        except UnicodeEncodeError:  # a fault may quote a lone surrogate, which UTF-8 cannot encode
            return json.dumps(self.content).encode() + b"\n"


def refusal(status: int, sentence: str, **headers: str) -> Answer:
    """Return an answer with the error `sentence` and these headers.

    In the names of headers, "_" means a hyphen.

    Examples
    --------
    >>> refusal(429, "Later.", retry_after="5")
    Answer(status=429, content={'error': 'Later.'}, headers={'retry-after': '5'})
    """
    return Answer(
        status, {"error": sentence}, {key.replace("_", "-"): value for key, value in headers.items()}
    )

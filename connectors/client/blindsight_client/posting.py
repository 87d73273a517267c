"""The connection to the agent, which is kept open, and the replies to posts."""

from __future__ import annotations

import http.client
import json
import ssl
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

_LONGEST_ANSWER = 1 << 20


@dataclass(frozen=True)
class Reply:
    """The reply to a post.

    Parameters
    ----------
    status : int
        The HTTP status; 0 if the agent did not reply.
    message : str
        The status and message of the agent, or the error of the connection.
    rejected : int
        The number of rejected records in an accepted post.
    retry_after : float, optional
        The seconds in the header `Retry-After`; None without this header.
    """

    status: int
    message: str
    rejected: int = 0
    retry_after: float | None = None


class Poster:
    """A sender of lines, one request at a time, over one connection that is kept open.

    Parameters
    ----------
    url, token, ca_file
        See `Client`.
    timeout_seconds : float
        The time limit of each step of a request.

    Raises
    ------
    ValueError
        The address has no host, or a scheme other than http and https.

    Examples
    --------
    >>> Poster("127.0.0.1:9108", None, 1.0, None)
    Traceback (most recent call last):
    ...
    ValueError: url: expected http://host:port or https://host:port, got '127.0.0.1:9108'
    """

    def __init__(self, url: str, token: str | None, timeout_seconds: float, ca_file: str | None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
            shown = url if parts.username is None else f"{parts.scheme}://…@{parts.hostname}"
            raise ValueError(f"url: expected http://host:port or https://host:port, got {shown!r}")
        self._host, self._port = parts.hostname, parts.port
        self._base = parts.path.rstrip("/")
        self._timeout = timeout_seconds
        self._context = ssl.create_default_context(cafile=ca_file) if parts.scheme == "https" else None
        self._headers = {"Content-Type": "application/x-ndjson"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        self._connection: http.client.HTTPConnection | None = None

    def close(self) -> None:
        """Close the connection; the next post opens a new connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def forget_connection(self) -> None:
        """Forget the connection without closing it.

        Call this method in the child of a fork, because the parent uses the connection.
        """
        self._connection = None

    def post(self, path: str, body: bytes, seconds: float | None = None) -> Reply:
        """Post lines, and return the reply. The reply has the status 0 if the agent did not answer.

        If the agent has closed the connection since the last post, the lines are posted once more.

        Parameters
        ----------
        path : str
        body : bytes
        seconds : float, optional
            A time limit for this post, used if it is shorter than `timeout_seconds`.
        """
        kept = self._connection is not None
        timeout = self._timeout if seconds is None else max(min(self._timeout, seconds), 0.001)
        try:
            try:
                return self._ask(path, body, timeout)
            except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
                if not kept:
                    raise
                self.close()  # the agent closes idle connections, perhaps this one
                return self._ask(path, body, timeout)
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.close()
            return Reply(0, f"{self._host}:{self._port or ''}: {error or type(error).__name__}")

    def _ask(self, path: str, body: bytes, timeout: float) -> Reply:
        if self._connection is None:
            if self._context is None:
                self._connection = http.client.HTTPConnection(self._host, self._port)
            else:
                self._connection = http.client.HTTPSConnection(self._host, self._port, context=self._context)
        self._connection.timeout = timeout
        if self._connection.sock is not None:
            self._connection.sock.settimeout(timeout)
        self._connection.request("POST", self._base + path, body, self._headers)
        response = self._connection.getresponse()
        text = response.read(_LONGEST_ANSWER)
        if response.will_close or not response.isclosed():
            self.close()
        return _answer(response.status, response.headers.get("Retry-After"), text)


def _answer(status: int, retry_after: str | None, text: bytes) -> Reply:
    try:
        content: Any = json.loads(text)
    except ValueError:
        content = None
    content = content if isinstance(content, dict) else {}
    rejected = content.get("rejected", 0)
    errors = content.get("errors")
    first = errors[0] if isinstance(errors, list) and errors and isinstance(errors[0], dict) else {}
    message = first.get("message") or content.get("error") or ""
    return Reply(
        status,
        f"{status} {message}".strip(),
        rejected if isinstance(rejected, int) else 0,
        _seconds(retry_after),
    )


def _seconds(retry_after: str | None) -> float | None:
    """Return the seconds of a `Retry-After`, or None for a date, which the agent never sends.

    Examples
    --------
    >>> _seconds("5"), _seconds("Wed, 21 Oct 2026 07:28:00 GMT"), _seconds(None)
    (5.0, None, None)
    """
    return float(retry_after) if retry_after is not None and retry_after.strip().isdecimal() else None

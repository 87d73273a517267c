"""Bearer tokens: who may write to an intake, and who may read the exporter."""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from monitor.base.errors import SourceError
from monitor.config.http import BearerToken, HttpToken, token_fault, token_names
from monitor.export.http.reloaded_file import ReloadedFile

_MOST_TOKEN_BYTES = 4096

Tasks = frozenset[str] | None
"""Tasks that a request may write; None for all."""


class Holder(NamedTuple):
    """Who sends a request: the name of the token, "" where none is asked for, and the tasks it may write."""

    name: str
    tasks: Tasks


class Gate:
    """Knows the tokens, as digests only.

    Parameters
    ----------
    tokens : sequence of HttpToken or BearerToken
        None: everybody may write everything.
    clock : callable
        Seconds that never go back, for looking at token files again.

    Raises
    ------
    SourceError
        A token file cannot be used.

    Examples
    --------
    >>> gate = Gate([HttpToken(token="0123456789abcdef", tasks=["spam"], name="ann")])
    >>> gate.admits("Bearer 0123456789abcdef")
    Holder(name='ann', tasks=frozenset({'spam'}))
    >>> gate.admits("Bearer fedcba9876543210"), gate.admits(None)
    (None, None)
    """

    def __init__(self, tokens: Sequence[BearerToken], clock: Callable[[], float] = time.monotonic) -> None:
        self._entries = [
            (_digests(token, clock), Holder(name, _tasks_of(token)))
            for name, token in zip(token_names(tokens), tokens, strict=True)
        ]

    def admits(self, authorization: str | None) -> Holder | None:
        """Who sends a request with this `Authorization`; None for one without a token that is known."""
        if not self._entries:
            return Holder("", None)
        scheme, _, token = (authorization or "").partition(" ")
        given = _digest(token.strip()) if scheme.lower() == "bearer" else b""
        # All are compared, each in constant time: how long it takes says nothing about which is near.
        found = [holder for digest, holder in self._entries if hmac.compare_digest(digest(), given)]
        if not found:
            return None
        every = any(holder.tasks is None for holder in found)
        tasks = frozenset[str]().union(*(holder.tasks or () for holder in found))
        return Holder(found[0].name, None if every else tasks)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def _tasks_of(token: BearerToken) -> Tasks:
    return frozenset(token.tasks) if isinstance(token, HttpToken) and token.tasks is not None else None


def _digests(token: BearerToken, clock: Callable[[], float]) -> Callable[[], bytes]:
    if token.token is not None:
        digest = _digest(token.token)
        return lambda: digest
    path = token.token_file
    assert path is not None
    return ReloadedFile([path], lambda: _digest(_read_token(path)), clock).current


def _read_token(path: str) -> str:
    try:
        with Path(path).open("rb") as file:
            text = file.read(_MOST_TOKEN_BYTES).decode("ascii").strip()
    except OSError as error:
        raise SourceError(
            f"The token file {path} cannot be read: {error.strerror or error}; correct token_file, or create "
            "it"
        ) from error
    except UnicodeDecodeError:
        text = ""
    if fault := token_fault(text):
        raise SourceError(f"The token file {path}: {fault}.")
    return text


def bearer_of(authorization: str | None) -> str | None:
    """The same `Authorization`, but where a browser gives the token as a password (Basic): as a bearer's.

    The name of the user may be any.

    Examples
    --------
    >>> bearer_of("Basic YW5uOjAxMjM0NTY3ODlhYmNkZWY="), bearer_of("Basic ?"), bearer_of("Bearer x")
    ('Bearer 0123456789abcdef', None, 'Bearer x')
    """
    scheme, _, given = (authorization or "").partition(" ")
    if scheme.lower() != "basic":
        return authorization
    try:
        _, _, password = base64.b64decode(given.strip(), validate=True).decode("ascii").partition(":")
    except ValueError:
        return None
    return f"Bearer {password}"

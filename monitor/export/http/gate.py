"""Bearer tokens, which decide who may write to an intake and who may read the exporter."""

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
"""The tasks to which a request may write; None means all tasks."""


class Holder(NamedTuple):
    """The owner of a token.

    The fields are the name of the owner, and the tasks to which the owner may write (None for all tasks). If
    no token is required, the name is "".
    """

    name: str
    tasks: Tasks


class Gate:
    """The check of tokens. The gate keeps only digests of the accepted tokens in memory.

    Parameters
    ----------
    tokens : sequence of HttpToken or BearerToken
        The accepted tokens. If there are none, everybody may write to every task.
    clock : callable
        A monotonic clock in seconds. It determines when token files are checked for changes.

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
        """Return the holder of the token in an `Authorization` header; None if it has no known token.

        If the gate has no tokens, the result is a holder without a name, who may write to every task.
        """
        if not self._entries:
            return Holder("", None)
        scheme, _, token = (authorization or "").partition(" ")
        digest_sent = _digest(token.strip()) if scheme.lower() == "bearer" else b""
        # Every token is compared in constant time, so that the duration reveals nothing about a token.
        holders = [holder for digest, holder in self._entries if hmac.compare_digest(digest(), digest_sent)]
        if not holders:
            return None
        every = any(holder.tasks is None for holder in holders)
        tasks = frozenset[str]().union(*(holder.tasks or () for holder in holders))
        return Holder(holders[0].name, None if every else tasks)


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
    """Return the value of an `Authorization` header, with a Basic login converted to a bearer token.

    Browsers send Basic logins. The password is the token, and the name of the user is ignored. The result is
    None for a Basic login that cannot be decoded. Other values are returned unchanged.

    Examples
    --------
    >>> bearer_of("Basic YW5uOjAxMjM0NTY3ODlhYmNkZWY="), bearer_of("Basic ?"), bearer_of("Bearer x")
    ('Bearer 0123456789abcdef', None, 'Bearer x')
    """
    scheme, _, credentials = (authorization or "").partition(" ")
    if scheme.lower() != "basic":
        return authorization
    try:
        _, _, password = base64.b64decode(credentials.strip(), validate=True).decode("ascii").partition(":")
    except ValueError:
        return None
    return f"Bearer {password}"

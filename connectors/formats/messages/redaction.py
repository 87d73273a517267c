"""Redacts rejected records: each value is replaced by the name of its kind, and the structure is kept."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from dataclasses import replace
from hashlib import blake2b
from typing import Any, Literal

from connectors.formats.decode.structs import RAW_BYTES
from connectors.formats.messages.wording import kind
from monitor.base.records import Reject

Keep = Literal["whole", "redacted", "none"]
"""The part of a rejected record that is kept."""

_NAMES_KEPT = ("task", "model")
_MOST_BYTES = 16_384  # a longer record would cost milliseconds of a core, and at most 2,000 bytes are kept
_NAME_CHARACTERS = 60
SECRET = secrets.token_bytes(16)
"""The default key of the hashes, which is random in each process. Without a key, a short record could be
guessed from its hash."""


class _Number(str):
    """A number of JSON as text, which is not converted because its kind replaces it."""

    __slots__ = ()


def keeper(keep: Keep, secret: bytes = SECRET) -> Callable[[Reject], Reject]:
    """Return a function that removes from a reject whatever part of its record must not be kept.

    Parameters
    ----------
    keep : {"whole", "redacted", "none"}
        "whole" keeps the first 2,000 bytes of the record. "redacted" keeps the result of `redact`. "none"
        keeps only the reason and the place. With "redacted" and "none", messages must not quote values: see
        `wording.without_values`.
    secret : bytes, optional
        The key of the hashes. All processes of an agent pass the same key, so that equal records have equal
        hashes.
    """

    def whole(reject: Reject) -> Reject:
        return reject if len(reject.raw) <= RAW_BYTES else replace(reject, raw=reject.raw[:RAW_BYTES])

    def redacted(reject: Reject) -> Reject:
        return replace(reject, raw=redact(reject.raw, secret)[:RAW_BYTES])

    def none(reject: Reject) -> Reject:
        return replace(reject, message="", raw=b"")

    return {"whole": whole, "redacted": redacted, "none": none}[keep]


def redact(record: bytes, secret: bytes = SECRET) -> bytes:
    """Return a record with each value replaced by its kind, except `task` and `model`, which name no person.

    Keys, `task` and `model` are cut at 60 characters. A secret in a key is not protected. A record that is
    not JSON, or is longer than 16 kB, becomes its length and a keyed hash. With the same key, equal records
    have equal hashes.

    Examples
    --------
    >>> redact(b'{"id": "req-81", "model": "erm", "scores": [0.5, 1.5], "label": null}').decode()
    '{"id":"text of 6 characters","model":"erm","scores":["a number","a number"],"label":null}'
    >>> redact(b'{"id": "req-81", ').decode()[:28]
    '{"unreadable":{"bytes":17,"h'
    """
    try:
        return json.dumps(_redacted(record), separators=(",", ":")).encode()
    except (ValueError, RecursionError):
        digest = blake2b(record, key=secret, digest_size=8).hexdigest()
        return b'{"unreadable":{"bytes":%d,"hash":"%s"}}' % (len(record), digest.encode())


def _redacted(record: bytes) -> Any:
    if len(record) > _MOST_BYTES:
        raise ValueError("too long to be looked through")
    value = json.loads(record, parse_float=_Number, parse_int=_Number, parse_constant=_Number)
    if not isinstance(value, dict):
        return _kinds(value)
    return {_cut(name): _cut(each) if _is_kept(name, each) else _kinds(each) for name, each in value.items()}


def _is_kept(name: str, value: Any) -> bool:
    return name in _NAMES_KEPT and isinstance(value, str) and not isinstance(value, _Number)


def _kinds(value: Any) -> Any:
    if isinstance(value, dict):
        return {_cut(name): _kinds(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_kinds(each) for each in value]
    if isinstance(value, _Number):
        return kind(0)
    return None if value is None else kind(value)


def _cut(name: str) -> str:
    return name if len(name) <= _NAME_CHARACTERS else name[:_NAME_CHARACTERS] + "…"

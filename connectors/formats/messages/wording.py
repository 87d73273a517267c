"""Phrases that the messages of rejected records share."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from math import isfinite

_SHOWN_CHARACTERS = 60
_SHOWN_NAMES = 10

# A context variable, because an argument of dozens of functions below the decoder would be missing in one.
_without: ContextVar[bool] = ContextVar("blindsight_without_values", default=False)


@contextmanager
def without_values() -> Iterator[None]:
    """Make the messages of this thread name kinds of values, such as "a text", instead of the values.

    Use the function in a ``with`` block.

    Examples
    --------
    >>> with without_values():
    ...     f"expected a number, got {shown('alice')}"
    'expected a number, got text of 5 characters'
    """
    token = _without.set(True)
    try:
        yield
    finally:
        _without.reset(token)


def values_are_shown() -> bool:
    """Return whether a message may quote the values of a record."""
    return not _without.get()


def shown(value: object) -> str:
    """Return a value as it appears in messages: as JSON, or its `kind` within `without_values`.

    Examples
    --------
    >>> shown(None), shown("a"), shown(1.5), shown([1, 2])
    ('null', '"a"', '1.5', 'an array')
    """
    return as_json(value) if values_are_shown() else kind(value)


def kind(value: object) -> str:
    """Return the kind of a value, such as "a text", for a message that must not quote the value.

    Examples
    --------
    >>> kind("req-81"), kind(1.5), kind(True), kind({}), kind(None)
    ('text of 6 characters', 'a number', 'true or false', 'an object', 'null')
    """
    if isinstance(value, str):
        return f"text of {len(value)} characters"
    if isinstance(value, bool):
        return "true or false"
    return as_json(value) if value is None or isinstance(value, list | tuple | dict) else "a number"


def as_json(value: object) -> str:
    """Return a value as JSON, cut to 60 characters, or the kind of an array or object.

    Examples
    --------
    >>> as_json("a"), as_json({"a": 1}), as_json(float("nan"))
    ('"a"', 'an object', 'NaN')
    """
    if isinstance(value, list | tuple):
        return "an array"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, str):
        return json.dumps(_cut(value), ensure_ascii=False)
    if isinstance(value, bool) or value is None or (isinstance(value, float) and not isfinite(value)):
        return json.dumps(value)
    return _cut(repr(value))


def listing(names: Sequence[str]) -> str:
    """Return names separated by commas: at most ten, each cut to 60 characters.

    Examples
    --------
    >>> listing(["ok", "toxic"])
    'ok, toxic'
    """
    first = ", ".join(map(_cut, names[:_SHOWN_NAMES]))
    return first if len(names) <= _SHOWN_NAMES else f"{first}, … ({len(names)} in all)"


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…"


@lru_cache(maxsize=1024)  # a faulty feed repeats the same fault a thousand times a second
def _nearest(name: str, known: tuple[str, ...], cutoff: float) -> str:
    close = difflib.get_close_matches(name, known, n=1, cutoff=cutoff)
    return f"; did you mean {close[0]}?" if close else ""


def nearest(name: str, known: Sequence[str], cutoff: float = 0.6) -> str:
    """Return a clause that suggests the nearest known name, or "".

    Parameters
    ----------
    cutoff : float
        The smallest similarity: see `difflib.get_close_matches`.

    Examples
    --------
    >>> nearest("toxik", ["ok", "toxic"])
    '; did you mean toxic?'
    """
    return _nearest(name[:_SHOWN_CHARACTERS], tuple(known), cutoff)


def step(name: object) -> str:
    """Return one step of a JSON path: ``.name``, or ``["a name"]`` if the name is not a plain word.

    Examples
    --------
    >>> step("erm"), step("a.b")
    ('.erm', '["a.b"]')
    """
    text = str(name)
    return (
        f".{text}"
        if text.replace("-", "_").isidentifier() and len(text) <= _SHOWN_CHARACTERS
        else f"[{as_json(text)}]"
    )

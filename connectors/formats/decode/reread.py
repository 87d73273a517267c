"""Reads a rejected record again without types, so that only the faulty values are lost.

The typed decoder rejects a whole record for a NaN in an unused field, for half a character in a label, or for
the id `81.0`. This module keeps the usable values of such a record, and later steps check the other values.
All formats share this code, so every format treats a value in the same way.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from connectors.formats.decode.structs import KIND_FIELDS, Fault, Record
from connectors.formats.messages.explain import explain_text, explain_value, json_value, text_fault
from monitor.base.records import RejectReason

_Kind = TypeVar("_Kind", bound=Record)

_BY_COLUMN = frozenset({"label", "correct", "probability", "draw", "groups", "features", *KIND_FIELDS})
"""The fields that are checked only if a task uses them; a group that no task uses may hold any value."""

CONVERSION = (msgspec.MsgspecError, RecursionError, UnicodeEncodeError, OverflowError)
"""The exceptions of `msgspec.convert` for values of a wrong type."""

_EXACT = 1 << 53


def whole_number(value: object) -> object:
    """Return the integer that equals a whole float, or any other value unchanged.

    Tables with gaps and JavaScript store integers as floats.

    Examples
    --------
    >>> whole_number(81.0), whole_number(0.5), whole_number(2.0**53)
    (81, 0.5, 9007199254740992.0)
    """
    exact = isinstance(value, float) and value.is_integer() and abs(value) < _EXACT
    return int(value) if exact else value  # type: ignore[call-overload]


def read_again(data: bytes, error: Exception) -> Record | Fault:
    """Read a record again without types, after the typed decoder has rejected it.

    Return the record, or the fault that makes the bytes unusable.

    Parameters
    ----------
    error : Exception
        The error of the typed decoder. Its text is the message if the second reading finds no clearer reason.

    Examples
    --------
    >>> read_again(b'{"model": "erm", "scores": [0.25, 0.75], "latency": NaN}', ValueError()).scores
    [0.25, 0.75]
    """
    value = lenient_value(data)
    outcome = record_of(value) if isinstance(value, dict) else None
    return outcome if isinstance(outcome, Record) else _explained(data, error, outcome)


def _explained(data: bytes, error: Exception, fault: Fault | None) -> Fault:
    """Return the fault of a record: a fault of its bytes, which names the position, comes first."""
    if fault is None or fault[0] is RejectReason.ENCODING:
        return explain_text(data, error)
    return fault


def lenient_value(data: bytes) -> Any:
    """Return the value of JSON text that may hold NaN, Infinity and invalid UTF-8; None for any other text.

    Invalid bytes become lone surrogates.
    """
    try:
        return json_value(data.decode("utf-8", "surrogateescape"))
    except (ValueError, RecursionError):
        return None


def lenient_elements(data: bytes) -> list[bytes] | None:
    """Return the elements of a JSON array that may hold NaN, Infinity and invalid UTF-8.

    Return None if the bytes are not an array.

    Examples
    --------
    >>> lenient_elements(b'[{"a": NaN}, {"b": [1, 2]}]'), lenient_elements(b'[1, '), lenient_elements(b'{}')
    ([b'{"a": NaN}', b'{"b": [1, 2]}'], None, None)
    """
    text = data.decode("utf-8", "surrogateescape")
    if not text.startswith("[") or lenient_value(data) is None:
        return None
    elements: list[bytes] = []
    at = _next_token(text, 1)
    while text[at] != "]":
        _, end = _ELEMENT.raw_decode(text, at)
        elements.append(text[at:end].encode("utf-8", "surrogateescape"))
        at = _next_token(text, end)
        if text[at] == ",":
            at = _next_token(text, at + 1)
    return elements


_ELEMENT = json.JSONDecoder(parse_float=str, parse_int=str)


def _next_token(text: str, at: int) -> int:
    while text[at] in " \t\r\n":
        at += 1
    return at


def record_of(value: Mapping[str, object], kind: type[_Kind] = Record) -> _Kind | Fault:  # type: ignore[assignment]
    """Convert a parsed mapping to a record, or return the fault that makes the mapping unusable.

    Parameters
    ----------
    value : mapping
        The values by the names of the fields of `Record`. Other keys are ignored.
    kind : type of Record
        The class of the record: `Record` or a subclass.

    Examples
    --------
    >>> record_of({"id": 81.0, "label": ["toxic"], "seen": float("nan")}).id
    81
    >>> record_of({"id": 2.0**60})[0].value
    'bad_id'
    """
    names = kind.__struct_fields__
    read = {name: each for name, each in value.items() if name in names and each is not None}
    id_ = whole_number(read.get("id"))
    read["id"] = id_ if id_ == id_ else None  # tables with gaps store a missing id as NaN
    judged = {name: each for name, each in read.items() if name not in _BY_COLUMN}
    fault = explain_value(read) or text_fault(judged)
    if fault is not None:
        return fault
    later = {name: read.pop(name) for name in _BY_COLUMN & read.keys()}
    try:
        record = msgspec.convert(read, kind)
    except CONVERSION as error:
        return RejectReason.WRONG_TYPE, f"$: {error}"
    for name, each in later.items():
        setattr(record, name, each)
    return record

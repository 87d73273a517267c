"""Says what is wrong with one record that the typed decoder refused, and exactly where.

The typed decoder is quick and stops at the first fault, but names neither the keys of objects on the
way there nor the literals ``NaN`` and ``Infinity``, which Python's json module writes and JSON lacks.
Here the same record is read again without types, which only rejected records pay for.
"""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec

from connectors.formats.decode.structs import Fault
from connectors.formats.messages.wording import kind, shown, step, values_are_shown
from monitor.base.records import RejectReason

_BYTE_ORDER_MARK = "\ufeff"


class _Literal(str):
    """A number that JSON has no number for: NaN, Infinity, or one too large."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class _TooLarge(_Literal):
    __slots__ = ()


def _float(text: str) -> float | _Literal:
    value = float(text)
    return value if math.isfinite(value) else _TooLarge(text)


def _int(text: str) -> int | _Literal:
    # Python itself refuses to convert more digits than this.
    return int(text) if len(text) <= 4000 else _TooLarge(text)


_KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    "id": ((str, int), "a string or an integer"),
    "time": ((str, int, float), "RFC 3339 text or seconds since the epoch"),
    "task": ((str,), "a string"),
    "model": ((str,), "a string"),
    "confidence": ((int, float), "a number from 0 to 1"),
    "prediction": ((str, int, bool), "the name of a class"),
    "version": ((str, int, float), "a string or a number"),
    "groups": ((dict,), "an object"),
    "label": ((str, int, bool), "the name of a class"),
    "correct": ((bool,), "true or false"),
    "probability": ((int, float), "a number above 0 and at most 1"),
}


_OTHER_FILES = {
    b"\x1f\x8b": ("gzip", ".gz"),
    b"\x28\xb5\x2f\xfd": ("Zstandard", ".zst"),
    b"PAR1": ("Parquet", ".parquet"),
}
"""What files of other kinds begin with, and what their names must end in to be read as such."""


def explain_text(record: bytes, error: Exception) -> Fault:
    """Why these bytes are no record.

    Parameters
    ----------
    record : bytes
        One record that `msgspec` refused.
    error : Exception
        What it said, for what nothing better can be said.

    Examples
    --------
    >>> explain_text(b'{"scores": [0.1, null]}', ValueError())[1]
    '$.scores[1]: expected a number from 0 to 1, got null'
    """
    for bytes_, (name, ending) in _OTHER_FILES.items():
        if record.startswith(bytes_):
            message = f"$: these are bytes of {name}, not JSON; end the name of such a file in {ending}"
            return RejectReason.ENCODING, message
    try:
        text = record.decode("utf-8")
    except UnicodeDecodeError as bad:
        which = f" (0x{record[bad.start]:02x})" if values_are_shown() else ""
        return RejectReason.ENCODING, f"$: byte {bad.start} is not UTF-8{which}; send UTF-8"
    try:
        value = json.loads(text, parse_float=_float, parse_int=_int, parse_constant=_Literal)
    except RecursionError:
        return RejectReason.MALFORMED, "$: nested too deep"
    except json.JSONDecodeError as bad:
        if text.startswith(_BYTE_ORDER_MARK):
            return (
                RejectReason.MALFORMED,
                "$: a byte order mark stands before the record; only the first line of a file may have one, "
                "so leave it out where files are joined",
            )
        where = f"at character {bad.pos}: {bad.msg}"
        return RejectReason.MALFORMED, f"$: not JSON {where}; send one whole JSON object a line"
    found = explain_value(value) or text_fault(value)
    if found is not None:
        return found
    if isinstance(error, msgspec.ValidationError):
        return RejectReason.WRONG_TYPE, f"$: {error}"
    return RejectReason.MALFORMED, f"$: not JSON: {error}"


def explain_value(value: object) -> Fault | None:
    """What is wrong with the types in a record, None where nothing is."""
    if not isinstance(value, dict):
        return RejectReason.WRONG_TYPE, f"$: expected an object, got {shown(value)}"
    for name in (*_KINDS, "scores", "models"):
        given = value.get(name)
        if given is None:
            continue
        fault = _field_fault(name, given)
        if fault is not None:
            return fault
    return _literal_fault(value, "$")


def text_fault(value: object, path: str = "$") -> Fault | None:
    """The first text in a tree that holds half of a surrogate pair, as Python's json module reads it.

    No UTF-8 can hold it, so neither can an id, a label of Prometheus or the store.

    Examples
    --------
    >>> text_fault({"id": "a\\ud83d"})[1]
    '$.id: text with half of a surrogate pair, as cutting it within a character leaves; send whole characters'
    """
    pending = [(value, path)]
    while pending:
        value, path = pending.pop()
        if isinstance(value, dict):
            pending.extend((x, path + step(name)) for name, x in reversed(value.items()))
            value = "".join(map(str, value))
        elif isinstance(value, list):
            pending.extend((x, f"{path}[{i}]") for i, x in reversed(list(enumerate(value))))
        if isinstance(value, str) and not is_unicode(value):
            message = (
                "text with half of a surrogate pair, as cutting it within a character leaves; "
                "send whole characters"
            )
            return RejectReason.ENCODING, f"{path}: {message}"
    return None


def is_unicode(text: str) -> bool:
    """Whether UTF-8 can hold a text.

    Examples
    --------
    >>> is_unicode("caf\u00e9"), is_unicode("\\ud83d")
    (True, False)
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _field_fault(name: str, given: Any) -> Fault | None:
    if name == "scores":
        return _scores_fault(given, "$.scores")
    if name == "models":
        if not isinstance(given, dict):
            message = f"$.models: expected an object of scores by model, got {shown(given)}"
            return RejectReason.WRONG_TYPE, message
        faults = (_scores_fault(scores, f"$.models{step(model)}") for model, scores in given.items())
        return next((fault for fault in faults if fault is not None), None)
    kinds, expected = _KINDS[name]
    if isinstance(given, _Literal):
        return _literal_fault(given, f"$.{name}", expected)
    if isinstance(given, kinds) and (bool in kinds or not isinstance(given, bool)):
        return None
    regression = name in ("prediction", "label") and isinstance(given, float)
    instead = "; of a regression send `confidence`, or bin its numbers into classes" if regression else ""
    return RejectReason.WRONG_TYPE, f"$.{name}: expected {expected}, got {shown(given)}{instead}"


def _scores_fault(given: Any, path: str) -> Fault | None:
    if isinstance(given, list):
        faults = (_number_fault(x, f"{path}[{i}]") for i, x in enumerate(given))
    elif isinstance(given, dict):
        faults = (_number_fault(x, f"{path}{step(name)}") for name, x in given.items())
    else:
        return _number_fault(given, path, "an array, an object or a number of probabilities")
    return next((fault for fault in faults if fault is not None), None)


def _number_fault(given: Any, path: str, expected: str = "a number from 0 to 1") -> Fault | None:
    if isinstance(given, _Literal):
        return _literal_fault(given, path, "a number from 0 to 1")
    if given is None:
        return RejectReason.NOT_A_NUMBER, f"{path}: expected {expected}, got null"
    if isinstance(given, bool) or not isinstance(given, int | float):
        return RejectReason.WRONG_TYPE, f"{path}: expected {expected}, got {shown(given)}"
    return None


def _literal_fault(value: Any, path: str, expected: str = "a value that JSON has") -> Fault | None:
    """The first number in a tree that JSON has no number for."""
    pending = [(value, path)]
    while pending:
        value, path = pending.pop()
        if isinstance(value, _TooLarge):
            text = value if len(value) <= 60 else value[:60] + "…"
            got = text if values_are_shown() else kind(0)
            return RejectReason.OUT_OF_RANGE, f"{path}: expected {expected}, got {got}"
        if isinstance(value, _Literal):
            return RejectReason.NOT_A_NUMBER, f"{path}: expected {expected}, got {value}"
        if isinstance(value, dict):
            pending.extend((x, path + step(name)) for name, x in reversed(value.items()))
        elif isinstance(value, list):
            pending.extend((x, f"{path}[{i}]") for i, x in reversed(list(enumerate(value))))
    return None

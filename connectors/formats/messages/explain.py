"""Finds the fault of a record that the typed decoder rejected, and the exact place of the fault.

The typed decoder is fast and stops at the first fault. Its errors do not name the keys of outer objects. They
do not name the literals ``NaN`` and ``Infinity`` either, which are not valid JSON but which Python's json
module writes. This module parses the record again without types. Only rejected records are parsed twice.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

import msgspec

from connectors.formats.decode.structs import Fault
from connectors.formats.messages.wording import kind, shown, step, values_are_shown
from monitor.base.records import RejectReason

_BYTE_ORDER_MARK = "\ufeff"
_INEXACT = (
    "$.id: expected text or an integer, got {}, a float of 2^53 or more, which may stand for another number; "
    "write ids as text or integers"
)


class TooLarge(str):
    """A number that is too large for a float, as its digits."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def float_of(text: str) -> float | TooLarge:
    """Return the number that a text spells, including NaN and Infinity. Raise ValueError for any other text.

    Examples
    --------
    >>> float_of("0.25"), float_of("NaN"), float_of("1e999")
    (0.25, nan, 1e999)
    """
    if "_" in text:  # Python accepts 1_000; JSON does not
        raise ValueError(text)
    value = float(text)
    return TooLarge(text) if math.isinf(value) and any(map(str.isdigit, text)) else value


def _int(text: str) -> int | TooLarge:
    # Python limits the digits that it converts.
    return int(text) if len(text) <= 4000 else TooLarge(text)


def json_value(text: str) -> Any:
    """Return the value of a JSON text. The text may hold NaN and Infinity, which Python's json module writes.

    Raises
    ------
    ValueError
        The text is no JSON.
    RecursionError
        The text is nested too deeply.
    """
    return json.loads(text, parse_float=float_of, parse_int=_int)


_KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    "id": ((str, int), "a string or an integer"),
    "time": ((str, int, float), "RFC 3339 text or seconds since the epoch"),
    "task": ((str,), "a string"),
    "model": ((str,), "a string"),
    "confidence": ((int, float), "a number from 0 to 1"),
    "prediction": ((str, int, float, bool), "the name of a class"),
    "version": ((str, int, float), "a string or a number"),
    "groups": ((dict,), "an object"),
}


_OTHER_FILES = {
    b"\x1f\x8b": ("gzip", ".gz"),
    b"\x28\xb5\x2f\xfd": ("Zstandard", ".zst"),
    b"PAR1": ("Parquet", ".parquet"),
    b"PK\x03\x04": ("an Excel workbook or a zip archive", ".csv, once it is saved as CSV UTF-8"),
}
"""The name and the required file extension of other kinds of files, by their first bytes."""

_TABLE = "; a table of text must be CSV with commas, in a file whose name ends in .csv"

UTF_16 = (b"\xff\xfe", b"\xfe\xff")
"""The byte order marks of UTF-16, which Excel's "Unicode text" and PowerShell write."""


def is_utf_16(text: bytes) -> bool:
    """Return whether a line belongs to a text in UTF-16, with or without a byte order mark.

    Examples
    --------
    >>> is_utf_16("id,model".encode("utf-16-le")), is_utf_16(b"\\0id,model")
    (True, False)
    """
    # Cutting such a file at newline bytes leaves half of a newline before each line.
    marked = text.replace(b"\0", b"").startswith(UTF_16)
    return b"\0" in text[:4] and (marked or text.count(0) * 3 > len(text))


def explain_text(record: bytes, error: Exception) -> Fault:
    """Return the fault of bytes that `msgspec` rejected as a record.

    Parameters
    ----------
    error : Exception
        The error of `msgspec`. Its text is the message if this function finds no clearer reason.

    Examples
    --------
    >>> explain_text(b'{"scores": [0.1, null]}', ValueError())[1]
    '$.scores[1]: expected a number from 0 to 1, got null'
    """
    if (fault := _other_bytes(record)) is not None:
        return fault
    try:
        text = record.decode("utf-8")
    except UnicodeDecodeError as bad:
        which = f" (0x{record[bad.start]:02x})" if values_are_shown() else ""
        return RejectReason.ENCODING, f"$: byte {bad.start} is not UTF-8{which}; send UTF-8"
    try:
        value = json_value(text)
    except RecursionError:
        return RejectReason.MALFORMED, "$: nested too deep"
    except ValueError as bad:
        if text.startswith(_BYTE_ORDER_MARK):
            return (
                RejectReason.MALFORMED,
                "$: a byte order mark stands before the record; only the first line of a file may have one, "
                "so leave it out where files are joined",
            )
        where = f"at character {bad.pos}: {bad.msg}" if isinstance(bad, json.JSONDecodeError) else f": {bad}"
        table = _TABLE if text[:1].isalpha() and re.search("[,;\t]", text) else ""
        return RejectReason.MALFORMED, f"$: not JSON {where}; send one whole JSON object a line{table}"
    fault = explain_value(value) or text_fault(value)
    if fault is not None:
        return fault
    if isinstance(error, msgspec.ValidationError):
        return RejectReason.WRONG_TYPE, f"$: {error}"
    return RejectReason.MALFORMED, f"$: not JSON: {error}"


def _other_bytes(record: bytes) -> Fault | None:
    """Return the fault of bytes of another kind of file or of another encoding, or None."""
    for bytes_, (name, ending) in _OTHER_FILES.items():
        if record.startswith(bytes_):
            message = f"$: these are bytes of {name}, not JSON; end the name of such a file in {ending}"
            return RejectReason.ENCODING, message
    if is_utf_16(record):
        return RejectReason.ENCODING, "$: these are bytes of UTF-16, not UTF-8; write the file as UTF-8"
    return None


def explain_value(value: object) -> Fault | None:
    """Return the fault of a value with a wrong type in a record, or None if all types are right."""
    if not isinstance(value, dict):
        return RejectReason.WRONG_TYPE, f"$: expected an object, got {shown(value)}"
    for name in (*_KINDS, "scores", "models"):
        field = value.get(name)
        if field is None:
            continue
        fault = _field_fault(name, field)
        if fault is not None:
            return fault
    return None


def text_fault(value: object, path: str = "$") -> Fault | None:
    """Return the fault of the first text in a decoded value that holds half of a surrogate pair, or None.

    Python's json module accepts such a text, but UTF-8 cannot encode it. The text can therefore be neither an
    id nor a label of Prometheus, and the store cannot hold it.

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
            return unicode_fault(value, path)
    return None


def unicode_fault(text: str, path: str) -> Fault:
    """Return the fault of a text that UTF-8 cannot encode: invalid bytes, or half of a character."""
    message = (
        "text with half of a surrogate pair, as cutting it within a character leaves; send whole characters"
    )
    if any("\udc80" <= character <= "\udcff" for character in text):
        message = "not UTF-8; send UTF-8"
    return RejectReason.ENCODING, f"{path}: {message}"


def is_unicode(text: str) -> bool:
    """Return whether UTF-8 can encode a text.

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


def _field_fault(name: str, value: Any) -> Fault | None:
    if name == "scores":
        return _scores_fault(value, "$.scores")
    if name == "models":
        if not isinstance(value, dict):
            message = f"$.models: expected an object of scores by model, got {shown(value)}"
            return RejectReason.WRONG_TYPE, message
        faults = (_scores_fault(scores, f"$.models{step(model)}") for model, scores in value.items())
        return next((fault for fault in faults if fault is not None), None)
    kinds, expected = _KINDS[name]
    if isinstance(value, TooLarge) or (name in ("time", "confidence") and not has_room(value)):
        return _size_fault(value, f"$.{name}", expected)
    if name == "id" and isinstance(value, float) and value.is_integer():
        return RejectReason.BAD_ID, _INEXACT.format(shown(value))
    if isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool)):
        return None
    if isinstance(value, float) and not math.isfinite(value):
        return RejectReason.NOT_A_NUMBER, f"$.{name}: expected {expected}, got {shown(value)}"
    return RejectReason.WRONG_TYPE, f"$.{name}: expected {expected}, got {shown(value)}{spelling(value)}"


def _scores_fault(value: Any, path: str) -> Fault | None:
    if isinstance(value, list):
        faults = (_number_fault(x, f"{path}[{i}]") for i, x in enumerate(value))
    elif isinstance(value, dict):
        faults = (_number_fault(x, f"{path}{step(name)}") for name, x in value.items())
    else:
        return _number_fault(value, path, "an array, an object or a number of probabilities")
    return next((fault for fault in faults if fault is not None), None)


def _number_fault(value: Any, path: str, expected: str = "a number from 0 to 1") -> Fault | None:
    if isinstance(value, TooLarge) or not has_room(value):
        return _size_fault(value, path, "a number from 0 to 1")
    if value is None:
        return RejectReason.NOT_A_NUMBER, f"{path}: expected {expected}, got null"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return RejectReason.WRONG_TYPE, f"{path}: expected {expected}, got {shown(value)}{spelling(value)}"
    return None


def has_room(value: object) -> bool:
    """Return False for an integer that is too large for a float, otherwise True."""
    try:
        return not isinstance(value, int) or math.isfinite(value)
    except OverflowError:
        return False


def _size_fault(value: object, path: str, expected: str) -> Fault:
    text = str(value) if isinstance(value, str) else f"a number of {len(hex(value)) * 6 // 5} digits"  # type: ignore[arg-type]
    got = (text if len(text) <= 60 else text[:60] + "…") if values_are_shown() else kind(0)
    return RejectReason.OUT_OF_RANGE, f"{path}: expected {expected}, got {got}"


_SPELLED = re.compile(r"\s*([-+]?)(\d*)([.,]?)(\d*)\s*(%?)\s*")


def spelling(value: object) -> str:
    """Return a hint if a text is a number with a decimal comma or a per cent sign, otherwise "".

    Examples
    --------
    >>> spelling("0,95"), spelling("95 %"), spelling("n/a")
    ('; this is a decimal comma: write 0.95', '; this is a per cent sign: write 0.95', '')
    """
    parts = _SPELLED.fullmatch(value) if isinstance(value, str) and len(value) < 60 else None
    if parts is None or not (parts[2] or parts[4]) or not (parts[3] == "," or parts[5]):
        return ""
    signs = [sign for sign, here in (("decimal comma", parts[3] == ","), ("per cent sign", parts[5])) if here]
    hint = f"; this is a {' and a '.join(signs)}"
    if not values_are_shown():
        return f"{hint}: write a number from 0 to 1 with a point"
    number = float(f"{parts[1]}{parts[2] or 0}.{parts[4] or 0}") / (100 if parts[5] else 1)
    return f"{hint}: write {number:.10g}"

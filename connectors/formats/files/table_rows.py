"""Reads the rows of tables (CSV, Parquet) as records, which are then checked like lines of JSON.

Columns are named as in SPEC section 4: the fields of a record, ``groups.<name>``, ``features.<name>``,
either ``scores.<class>`` for each class or one column ``scores``, and likewise ``quantiles.<level>`` or
``quantiles``, and ``draw.round`` and so on or ``draw``. Other columns are ignored. All cells of a CSV file
are text: text in a column of numbers is parsed as a number, and an empty cell is absent. A value that JSON
lacks (a date, a decimal, bytes, a map) is converted.
"""

from __future__ import annotations

import datetime
import decimal
import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from math import isinf
from types import NoneType

import msgspec
import numpy as np

from connectors.formats.decode.draws import DRAW_FIELDS
from connectors.formats.decode.reread import CONVERSION, record_of, whole_number
from connectors.formats.decode.structs import Reading, Record
from connectors.formats.messages.explain import float_of, is_unicode, json_value, unicode_fault
from connectors.formats.messages.wording import shown
from monitor.base.records import Reject, RejectReason
from monitor.base.source import RawTable

_FIELDS = frozenset(Record.__struct_fields__) - {"models", "groups", "features"}
_SCORES, _GROUPS, _FEATURES, _QUANTILES = "scores.", "groups.", "features.", "quantiles."
_DRAWS: Mapping[str, str] = {f"draw.{field}": field for field in DRAW_FIELDS}
KNOWN_COLUMNS = (
    *sorted(_FIELDS),
    "scores.<class>",
    "groups.<name>",
    "features.<name>",
    "quantiles.<level>",
    *_DRAWS,
)
"""The names that the columns of a table may have."""

_NUMBERS = frozenset(
    {"confidence", "probability", "time", "scores", "judge_b", "draw", "sigma", "quantiles", *_DRAWS}
    - {"draw.round"}
)
_NAMES = frozenset({"id", "task", "model", "prediction", "label", "features", "draw.round"})
_OWN_TEXT = ("id", "time", "task", "model", "prediction", "version")  # checked in each row
_ROUNDED = re.compile(r"[0-9](\.[0-9]+)?[eE]\+[0-9]{2,3}")


def read_table(raw: RawTable, passed_over: Collection[int] = (), names_models: bool = True) -> Reading:
    """Return the records of the rows of a table.

    Parameters
    ----------
    raw : RawTable
    passed_over : collection of int
        The indices of the valid rows that hold no record. They are skipped.
    names_models : bool, default True
        True if the table has a column of models. Then a row with a model is an answer, even if it has no
        scores.

    Examples
    --------
    >>> raw = RawTable({"scores.ok": ["0.25"], "scores.toxic": ["0.75"], "label": ["ok"]}, "r.csv", 0)
    >>> reading = read_table(raw)
    >>> reading.records[0].scores, reading.records[0].label
    ({'ok': 0.25, 'toxic': 0.75}, 'ok')
    """
    rows = _rows(raw.columns)
    if names_models:
        _mark_answers(rows, raw.columns)
    size = max(map(len, raw.columns.values()), default=0)
    records: list[Record] = []
    numbers: list[int] = []
    rejects: list[tuple[int, Reject]] = []
    whole = None if raw.broken or passed_over or _is_odd(raw.columns) else _try_all(rows)
    if whole is not None:
        records, numbers = whole, list(range(size))
    else:
        for i, row in enumerate(rows):
            if i in passed_over:
                continue
            outcome = _one(row, raw.broken.get(i))
            if isinstance(outcome, Record):
                records.append(outcome)
                numbers.append(i)
            else:
                reject = Reject(*outcome, _bytes(row), raw.partition, raw.start + i)
                rejects.append((len(records), reject))
    positions = np.array(numbers, dtype=np.int64) + raw.start
    return Reading(records, positions, lambda k: _bytes(rows[numbers[k]]), rejects, len(passed_over))


def _try_all(rows: list[dict[str, object]]) -> list[Record] | None:
    try:
        return msgspec.convert(rows, list[Record])
    except CONVERSION:
        return None


def _one(row: dict[str, object], broken: str | None) -> Record | tuple[RejectReason, str]:
    if broken is not None:
        return RejectReason.MALFORMED, f"$: {broken}"
    for name in _OWN_TEXT:
        value = row.get(name)
        if isinstance(value, str) and not is_unicode(value):
            return unicode_fault(value, f"$.{name}")
    id_ = row.get("id")
    if isinstance(id_, str) and _ROUNDED.fullmatch(id_):
        message = (
            f"$.id: expected an id, got {shown(id_)}, a number that a spreadsheet has rounded; {_AS_TEXT}"
        )
        return RejectReason.BAD_ID, message
    return record_of(row)


_AS_TEXT = "have it write ids as text"


def _is_odd(columns: Mapping[str, list[object]]) -> bool:
    """Return whether the rows must be checked one by one: a text is not UTF-8, or an id may be rounded."""
    texts = {
        name: "".join(
            [
                value if type(value) is str else str(plain_cell(value))
                for value in columns.get(name, ())
                if isinstance(value, (str, bytes))
            ]
        )
        for name in _OWN_TEXT
    }
    return not all(map(is_unicode, texts.values())) or "E+" in texts["id"] or "e+" in texts["id"]


def _rows(columns: Mapping[str, list[object]]) -> list[dict[str, object]]:
    """Return a dictionary for each row, shaped like a JSON record, without absent values."""
    size = max(map(len, columns.values()), default=0)
    rows: list[dict[str, object]] = [{} for _ in range(size)]
    for name, column in columns.items():
        parent, key = _place_of(name)
        if key is None:
            continue
        values = _converted(name if name in _DRAWS else parent or key, column)
        for row, converted in zip(rows, values, strict=False):
            if converted is None:
                continue
            if parent is None:
                row[key] = converted
            else:
                inner = row.setdefault(parent, {})
                if isinstance(inner, dict):
                    inner[key] = converted
    return rows


def _mark_answers(rows: Sequence[dict[str, object]], columns: Collection[str]) -> None:
    """Set empty scores in rows with a model, a label and no scores, if the table has a column of scores.

    Such a row is an answer of a model that failed, not a label of another row's answer.
    """
    if "model" not in columns or "label" not in columns:
        return
    if any(name == "scores" or name.startswith(_SCORES) for name in columns):
        for row in [row for row in rows if "scores" not in row]:
            if "model" in row and "label" in row:
                row["scores"] = {}


def is_column(name: str) -> bool:
    """Return whether a column with this name holds a part of a record, such as ``id`` or ``groups.<name>``.

    Examples
    --------
    >>> is_column("scores.toxic"), is_column("comment")
    (True, False)
    """
    return _place_of(name)[1] is not None


def _place_of(name: str) -> tuple[str | None, str | None]:
    """Return where the values of a column go: (None, field), ("scores", class) and so on, or (None, None)."""
    for prefix in (_SCORES, _GROUPS, _FEATURES, _QUANTILES):
        if name.startswith(prefix):
            return prefix[:-1], name[len(prefix) :]
    if name in _DRAWS:
        return "draw", _DRAWS[name]
    return None, name if name in _FIELDS else None


def _converted(field: str, column: list[object]) -> Iterable[object]:
    """Return the values of a column, converted in one step if they are numbers, texts of numbers or names."""
    kinds = set(map(type, column))
    if field in _NAMES and kinds <= _TEXT and "" not in column:
        return column
    if field in _NUMBERS:
        if kinds <= _PLAIN:
            return column
        if kinds == {str}:
            with suppress(ValueError):  # an empty cell, a list, or a time
                numbers = list(map(float, column))  # type: ignore[arg-type]
                if not any(map(isinf, numbers)) and not any("_" in text for text in column):  # type: ignore[operator]
                    return numbers
    return map(_converter(field), column)


_PLAIN = frozenset({float, int, NoneType})
"""The types of columns of numbers that need no conversion."""
_TEXT = frozenset({str, NoneType})


def _converter(field: str) -> Callable[[object], object]:
    if field in _NUMBERS:
        return _number
    if field in _NAMES:
        return _name
    return plain_cell


def plain_cell(value: object) -> object:
    """Return the value of a cell as a type that JSON has; None for an empty text.

    Examples
    --------
    >>> plain_cell(datetime.datetime(2026, 11, 20, 10)), plain_cell(decimal.Decimal("0.25")), plain_cell("")
    ('2026-11-20T10:00:00', 0.25, None)
    """
    if isinstance(value, str):
        return value or None
    if value is None or isinstance(value, int | float):
        return value
    if isinstance(value, list | tuple):
        return value if value and type(value[0]) is float else list(map(plain_cell, value))
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, np.generic):  # half floats
        return plain_cell(value.item())
    if isinstance(value, decimal.Decimal):
        return float("nan") if value.is_nan() else float(value)  # float() rejects a signalling NaN
    if isinstance(value, dict):
        return {_key(name): plain_cell(each) for name, each in value.items()}
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).decode("utf-8", "surrogateescape") or None
    return str(value)


def _key(name: object) -> str:
    plain = plain_cell(name)
    return json.dumps(plain) if isinstance(plain, bool) else "" if plain is None else str(plain)


def _name(value: object) -> object:
    """Return the `plain_cell` of a value, with whole floats, as in columns with gaps, as integers."""
    if isinstance(value, decimal.Decimal) and value.is_finite() and value == value.to_integral_value():
        return int(value)
    return whole_number(plain_cell(value))


def _number(value: object) -> object:
    """Return the `plain_cell` of a value, with text that is a number or JSON parsed."""
    value = plain_cell(value)
    if not isinstance(value, str):
        return value
    try:
        return float_of(value)
    except ValueError:
        pass
    if value.lstrip()[:1] in ("[", "{"):
        try:
            return json_value(value)
        except (ValueError, RecursionError):
            return value
    return value


def _bytes(row: Mapping[str, object]) -> bytes:
    """Return the row as JSON for rejects, with the `repr` of values that JSON lacks."""
    try:
        return json.dumps(row, default=repr).encode()
    except RecursionError:
        return json.dumps({name: repr(type(value)) for name, value in row.items()}).encode()

"""Rows of a table (CSV, Parquet) to records, so that they are judged exactly like lines of JSON.

Columns are named as in SPEC section 4: the fields of a record, ``groups.<name>``, ``features.<name>``, and
either ``scores.<class>``, a column a class, or one column ``scores``; likewise ``draw.round`` and its like,
or one column ``draw``. Other columns are passed over.
A CSV file holds nothing but text: there, text in a column of numbers is read as a number, and an empty
cell is no value.
"""

from __future__ import annotations

import datetime
import decimal
import json
from collections.abc import Callable, Mapping

import msgspec
import numpy as np

from connectors.formats.decode.draws import DRAW_FIELDS
from connectors.formats.decode.structs import Reading, Record
from connectors.formats.messages.explain import explain_value, is_unicode
from monitor.base.records import Reject, RejectReason
from monitor.base.source import RawTable

_FIELDS = frozenset(Record.__struct_fields__) - {"models", "groups", "features"}
_SCORES, _GROUPS, _FEATURES = "scores.", "groups.", "features."
_DRAWS: Mapping[str, str] = {f"draw.{field}": field for field in DRAW_FIELDS}
KNOWN_COLUMNS = (*sorted(_FIELDS), "scores.<class>", "groups.<name>", "features.<name>", *_DRAWS)
"""What a table's columns may be called."""

_NUMBERS = frozenset(
    {"confidence", "probability", "time", "scores", "judge_b", "draw", *_DRAWS} - {"draw.round"}
)
_NAMES = frozenset({"id", "task", "model", "prediction", "label", "features", "draw.round"})
_BOOLEANS: Mapping[str, bool] = {"true": True, "1": True, "false": False, "0": False}


def read_table(raw: RawTable) -> Reading:
    """The records of a table's rows.

    Examples
    --------
    >>> raw = RawTable({"scores.ok": ["0.25"], "scores.toxic": ["0.75"], "label": ["ok"]}, "r.csv", 0)
    >>> reading = read_table(raw)
    >>> reading.records[0].scores, reading.records[0].label
    ({'ok': 0.25, 'toxic': 0.75}, 'ok')
    """
    rows = _rows(raw.columns)
    size = max(map(len, raw.columns.values()), default=0)
    records: list[Record] = []
    numbers: list[int] = []
    rejects: list[tuple[int, Reject]] = []
    whole = None if raw.broken else _try_all(rows)
    if whole is not None and not _has_surrogates(raw.columns):
        records, numbers = whole, list(range(size))
    else:
        for i, row in enumerate(rows):
            outcome = _one(row, raw.broken.get(i))
            if isinstance(outcome, Record):
                records.append(outcome)
                numbers.append(i)
            else:
                reject = Reject(*outcome, _bytes(row), raw.partition, raw.start + i)
                rejects.append((len(records), reject))
    positions = np.array(numbers, dtype=np.int64) + raw.start
    return Reading(records, positions, lambda k: _bytes(rows[numbers[k]]), rejects)


def _try_all(rows: list[dict[str, object]]) -> list[Record] | None:
    try:
        return msgspec.convert(rows, list[Record])
    except (msgspec.ValidationError, RecursionError):
        return None


def _one(row: dict[str, object], broken: str | None) -> Record | tuple[RejectReason, str]:
    if broken is not None:
        return RejectReason.MALFORMED, f"$: {broken}"
    for name, value in row.items():
        if isinstance(value, str) and not is_unicode(value):
            return RejectReason.ENCODING, f"$.{name}: not UTF-8; send UTF-8"
    try:
        return msgspec.convert(row, Record)
    except (msgspec.ValidationError, RecursionError) as error:
        return explain_value(row) or (RejectReason.WRONG_TYPE, f"$: {error}")


def _has_surrogates(columns: Mapping[str, list[object]]) -> bool:
    """Whether any text holds bytes that were not UTF-8 (Python keeps those as lone surrogates)."""
    return not all(
        is_unicode("".join(value for value in column if isinstance(value, str)))
        for column in columns.values()
    )


def _rows(columns: Mapping[str, list[object]]) -> list[dict[str, object]]:
    """One dictionary a row, shaped like a JSON record; without what is absent."""
    size = max(map(len, columns.values()), default=0)
    rows: list[dict[str, object]] = [{} for _ in range(size)]
    for name, column in columns.items():
        parent, key = _place_of(name)
        if key is None:
            continue
        value_of = _converter(name if name in _DRAWS else parent or key)
        for row, value in zip(rows, column, strict=False):
            converted = value_of(value)
            if converted is None:
                continue
            if parent is None:
                row[key] = converted
            else:
                inner = row.setdefault(parent, {})
                if isinstance(inner, dict):
                    inner[key] = converted
    return rows


def is_column(name: str) -> bool:
    """Whether a column of this name means something to us.

    Examples
    --------
    >>> is_column("scores.toxic"), is_column("comment")
    (True, False)
    """
    return _place_of(name)[1] is not None


def _place_of(name: str) -> tuple[str | None, str | None]:
    """Where a column's values go: (None, field), ("scores", class) and the like, or nowhere."""
    for prefix in (_SCORES, _GROUPS, _FEATURES):
        if name.startswith(prefix):
            return prefix[:-1], name[len(prefix) :]
    if name in _DRAWS:
        return "draw", _DRAWS[name]
    return None, name if name in _FIELDS else None


def _converter(field: str) -> Callable[[object], object]:
    if field in _NUMBERS:
        return _number
    if field == "correct":
        return lambda value: _BOOLEANS.get(value.lower(), value or None) if isinstance(value, str) else value
    if field in _NAMES:
        return _name
    return plain_cell


def plain_cell(value: object) -> object:
    """A value as JSON could have it; an empty text is no value.

    Examples
    --------
    >>> plain_cell(datetime.datetime(2026, 11, 20, 10)), plain_cell(decimal.Decimal("0.25")), plain_cell("")
    ('2026-11-20T10:00:00', 0.25, None)
    """
    if value == "":
        return None
    if isinstance(value, datetime.date):
        return value.isoformat()
    return float(value) if isinstance(value, decimal.Decimal) else value


def _name(value: object) -> object:
    """As `plain_cell`; a whole float is an integer, which a table with gaps turned into a float."""
    value = plain_cell(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _number(value: object) -> object:
    """As `plain_cell`; text is read as a number where it is one, or a list of them."""
    value = plain_cell(value)
    if not isinstance(value, str):
        return value
    try:
        return float(value)
    except ValueError:
        pass
    if value[:1] in "[{":
        try:
            return msgspec.json.decode(value)
        except (msgspec.MsgspecError, RecursionError):
            return value
    return value


def _bytes(row: Mapping[str, object]) -> bytes:
    """The row as JSON, for the rejects; what JSON lacks as Python shows it."""
    return json.dumps(row, default=repr).encode()

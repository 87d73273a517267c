"""Encodes columns of names (models, versions, classes, groups) as indices, and ids as keys."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from math import isfinite
from operator import itemgetter
from types import NoneType
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from connectors.formats.decode.columns import absent
from connectors.formats.decode.structs import MAX_ID, MAX_NAME, Fault, Faults, Record
from connectors.formats.messages.explain import TooLarge, is_unicode, spelling, unicode_fault
from connectors.formats.messages.wording import as_json, listing, nearest, shown, values_are_shown
from connectors.formats.wires.wire import PLAIN, Wire
from monitor.base.records import NO_ID, Floats, Ints, Keys, RejectReason, TaskLayout, id_keys, text_codes
from monitor.base.source import Raw, RawBlock, RawTable

Value = str | int | float | bool | None

_NO_FEATURES: dict[str, object] = {}


def text_of(value: Value) -> str:
    """Return a scalar as JSON text without quotes.

    Examples
    --------
    >>> text_of("a"), text_of(True), text_of(3), text_of(1.5)
    ('a', 'true', '3', '1.5')
    """
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def encode(names: Sequence[str]) -> tuple[tuple[str, ...], Ints]:
    """Return the distinct names in order of appearance, and the index of each row's name.

    Examples
    --------
    >>> encode(["b", "a", "b"])
    (('b', 'a'), array([0, 1, 0]))
    """
    distinct = tuple(dict.fromkeys(names))
    if len(distinct) <= 1:
        return distinct, np.zeros(len(names), dtype=np.int64)
    return distinct, indices(names, {name: i for i, name in enumerate(distinct)})


def indices(names: Sequence[object], index: Mapping[object, int] | Mapping[str, int]) -> Ints:
    """Return the index of each name, or raise a KeyError for an unknown name."""
    return np.fromiter(map(index.__getitem__, names), dtype=np.int64, count=len(names))  # type: ignore[arg-type]


_MISSING = ("NULL", "null", "\\N", "None", "NaN", "nan", "<NA>", "NaT")
_MISSING_KEYS, _LONGEST_MISSING = id_keys(_MISSING), max(map(len, _MISSING))


def encode_ids(values: Sequence[str | int | None], faults: Faults) -> Keys:
    """Return the keys of ids, which are their hashes by `monitor.base.records.id_keys`.

    An integer has the same key as its decimal text. The key of a missing id is `NO_ID`. A text that means a
    missing value, such as NULL, counts as missing, because many rows would have the same id. An id that is
    empty or too long gets a fault.

    Examples
    --------
    >>> keys = encode_ids(["81", 81, None], Faults(3))
    >>> bool(keys[0] == keys[1]), int(keys[2])
    (True, 0)
    """
    kinds = set(map(type, values))
    if kinds == {type(None)}:
        return np.zeros(len(values), dtype=np.uint64)
    if kinds == {str}:
        texts: list[str] = list(values)  # type: ignore[arg-type]
    else:
        texts = ["" if value is None else str(value) for value in values]
    sizes = [*map(len, texts)]
    shortest = min(sizes, default=MAX_ID)
    if shortest == 0 or max(sizes, default=0) > MAX_ID:
        for row, value in enumerate(values):
            if value == "":
                message = '$.id: expected 1 to 512 characters, got ""; leave it out where there is none'
                faults.add(row, RejectReason.BAD_ID, message)
            elif sizes[row] > MAX_ID:
                message = f"$.id: expected 1 to {MAX_ID} characters, got {sizes[row]}"
                faults.add(row, RejectReason.BAD_ID, message)
                texts[row] = ""
    keys = id_keys(texts)
    if shortest > _LONGEST_MISSING:
        return keys
    missing = np.isin(keys, _MISSING_KEYS)
    return np.where(missing, NO_ID, keys) if missing.any() else keys


def request_keys(values: Sequence[str | int | None], rows: Sequence[int]) -> tuple[Keys, NDArray[np.bool_]]:
    """Return the key of each record's request, and a mask of the records whose request has one row.

    The id of a record is the request's id, a colon and the row number. The key is that of the request's id.
    Only the first row of a request (number 0) gets the key. The other rows, and records that are no rows of
    requests, get `NO_ID`.

    Parameters
    ----------
    values : sequence of str, int or None
        The id of each record.
    rows : sequence of int
        The number of rows of the request of each record; 0 if the record is no row of a request.

    Examples
    --------
    >>> keys, alone = request_keys(["r:0", "s:0", "s:1", "t:0"], [1, 2, 2, 0])
    >>> keys.tolist() == id_keys(["r", "s", "", ""]).tolist(), alone.tolist()
    (True, [True, False, False, False])
    """
    named = zip(map(str, values), rows, strict=True)
    ids = [id_[: -len(":0")] if size and id_.endswith(":0") else "" for id_, size in named]
    return id_keys(ids), np.array(rows) == 1


def first_id(values: Sequence[str | int | None], rows: Ints) -> str | None:
    """Return the id of the first row as a text for messages; "" if the row has no id.

    Return None if there are no rows. If messages may not quote values, letters are replaced by `a` and digits
    by `9`.

    Parameters
    ----------
    values : sequence of str, int or None
        The id of each record.
    rows : (m,) int64
        The indices of the rows.

    Examples
    --------
    >>> first_id([None, 81], np.array([1])), first_id([None, 81], np.array([0])), first_id([81], np.array([]))
    ('81', '', None)
    """
    if not len(rows):
        return None
    value = values[int(rows[0])]
    text = "" if value is None else str(value)
    return text if values_are_shown() else re.sub(r"[^\W\d_]", "a", re.sub(r"\d", "9", text))


def check_names(
    names: Sequence[str | None], path: Callable[[int], str], layout: TaskLayout, faults: Faults
) -> None:
    """Add a fault for each model without a name and for each name that is too long."""
    wrong = {name for name in set(names) if not name or len(name) > MAX_NAME} - layout.long_names
    if not wrong:
        return
    for row, name in enumerate(names):
        if name not in wrong:
            continue
        if name:
            message = f"{path(row)}: expected at most {MAX_NAME} characters, got {len(name)}"
            faults.add(row, RejectReason.TOO_LARGE, message)
        else:
            message = f"{path(row)}: expected the name of the model, got {shown(name)}"
            faults.add(row, RejectReason.NO_MODEL, message)


def encode_versions(
    values: Sequence[str | int | float | None], layout: TaskLayout, faults: Faults
) -> list[str]:
    """Return versions as text, ``""`` for an absent or faulty version."""
    if set(map(type, values)) == {str}:
        texts: list[str] = list(values)  # type: ignore[arg-type]
    else:
        texts = ["" if value is None else text_of(value) for value in values]
        for row, value in enumerate(values):
            if isinstance(value, float) and not isfinite(value):
                message = f"$.version: expected a string or a number, got {shown(value)}"
                faults.add(row, RejectReason.NOT_A_NUMBER, message)
                texts[row] = ""
    if max(map(len, texts), default=0) > MAX_NAME:
        for row, text in enumerate(texts):
            if len(text) > MAX_NAME and text not in layout.long_names:
                message = f"$.version: expected at most {MAX_NAME} characters, got {len(text)}"
                faults.add(row, RejectReason.TOO_LARGE, message)
                texts[row] = ""
    return texts


def encode_classes(values: Sequence[Value], field: str, layout: TaskLayout, faults: Faults) -> Ints:
    """Return the indices of classes, -1 for an absent or faulty class.

    Parameters
    ----------
    field : str
        The name of the field in messages: `label` or `prediction`.
    """
    if values.count(None) == len(values):
        return np.full(len(values), -1, dtype=np.int64)
    index: dict[Value, int] = {name: i for i, name in enumerate(layout.classes)}
    index[None] = -1
    with suppress(KeyError, TypeError):  # another spelling, an unknown class, or an unhashable value
        return np.fromiter(map(index.__getitem__, values), dtype=np.int64, count=len(values))
    index |= {name: i for name, i in same_names(layout.classes).items() if name not in index}
    classes = np.full(len(values), -1, dtype=np.int64)
    for row, value in enumerate(values):
        place = index.get(text_of(value), -1) if isinstance(value, str | int | float) else -1
        if place < 0 and value is not None:
            place = _place(value, field, index, layout, lambda *fault, row=row: faults.add(row, *fault))
        classes[row] = place
    return classes


NO_VALUE = frozenset(
    ("", "null", "nan", "-nan", "none", "na", "n/a", "<na>", "nat", "\\n", "#n/a", "#na", "#n/a n/a")
)
"""The texts that mean a missing value in tables, in lower case."""


def is_no_value(text: object, names: Collection[str] = NO_VALUE) -> bool:
    """Return whether a text means a missing value, such as NULL; case is ignored.

    Examples
    --------
    >>> is_no_value("NULL "), is_no_value("None"), is_no_value("nothing"), is_no_value(None)
    (True, True, False, False)
    """
    return isinstance(text, str) and text.strip().lower() in names


def same_name(text: str) -> str:
    """Return the normal form of a class name: in NFC, and without the decimals of a whole number.

    Examples
    --------
    >>> same_name("1.0"), same_name("cafe\u0301") == "caf\u00e9", same_name("v1.0")
    ('1', True, 'v1.0')
    """
    whole = re.fullmatch(r"(-?[0-9]+)\.0+", text)
    return whole[1] if whole else unicodedata.normalize("NFC", text)


def same_names(names: Iterable[str]) -> dict[str, int]:
    """Return the index of each name by its normal form, without names whose normal forms are equal.

    Examples
    --------
    >>> same_names(["0.0", "1.0"]), same_names(["1", "1.0", "2"])
    ({'0': 0, '1': 1}, {'2': 2})
    """
    alike = [same_name(name) for name in names]
    return {name: i for i, name in enumerate(alike) if alike.count(name) == 1}


def _place(
    value: Any,
    field: str,
    index: Mapping[Value, int],
    layout: TaskLayout,
    add: Callable[..., None],
) -> int:
    """Return the index of the class that a value spells in another way, or -1.

    A label that stands for a missing value gives -1 without a fault; every other -1 has a fault.
    """
    text = text_of(value) if isinstance(value, str | int | float) else None
    missing = is_no_value(text) or (isinstance(value, float) and value != value)
    if text is None:
        add(RejectReason.WRONG_TYPE, f"$.{field}: expected the name of a class, got {shown(value)}")
    elif missing and field == "label":
        return -1
    elif (isinstance(value, float) and not isfinite(value)) or text in ("NaN", "nan"):
        add(RejectReason.NOT_A_NUMBER, f"$.{field}: expected the name of a class, got {shown(value)}")
    elif not is_unicode(text):
        add(*unicode_fault(text, f"$.{field}"))
    elif (place := index.get(same_name(text))) is not None:
        return place
    elif re.fullmatch(r"-?[0-9]*\.(?!0+$)[0-9]+(e-?[0-9]+)?", text):
        add(
            RejectReason.WRONG_TYPE,
            f"$.{field}: expected the name of a class, got {shown(value)}; {_REGRESSION}",
        )
    else:
        add(RejectReason.UNKNOWN_CLASS, unknown_class(f"$.{field}", value, layout))
    return -1


_TRUE, _FALSE = frozenset({"1", "true", "t", "yes", "y"}), frozenset({"0", "false", "f", "no", "n"})


def meant_class(text: str, classes: Sequence[str]) -> str | None:
    """Return the class that a text names in a different spelling, or None if there is no such class.

    In a task with two classes, words and numbers such as "yes" and 1 mean the second class, and words and
    numbers such as "no" and 0 mean the first class.

    Examples
    --------
    >>> meant_class(" Toxic", ["ok", "toxic"]), meant_class("false", ["ok", "toxic"])
    ('toxic', 'ok')
    >>> meant_class("01", ["0", "1"]), meant_class("spam", ["ok", "toxic"])
    ('1', None)
    """
    folded = _folded(text)
    alike = [name for name in classes if _folded(name) == folded]
    if not alike and len(classes) == 2 and folded in _TRUE | _FALSE:
        return classes[folded in _TRUE]
    return alike[0] if len(alike) == 1 else None


def _folded(text: str) -> str:
    """Return a text without blanks around it, capitals, and zeros before a number."""
    folded = same_name(text.strip()).casefold()
    return str(int(folded)) if folded.isdecimal() and len(folded) < MAX_NAME else folded


_REGRESSION = "of a regression send `confidence`, or bin its numbers into classes"


def unknown_class(path: str, value: Value, layout: TaskLayout) -> str:
    """Return the message about a class that the task does not have, with a hint about the likely cause."""
    allowed = listing(layout.classes)
    hint = ""
    if values_are_shown():  # a hint reveals the value
        text = text_of(value)
        number = same_name(text)
        at = int(number) if number.isdecimal() and len(number) < 6 else len(layout.classes)
        named = (
            f"; send names, not numbers: class {at} is {layout.classes[at]}"
            if at < len(layout.classes) and layout.classes[at] != str(at)
            else ""
        )
        hint = named or nearest(text, layout.classes)
        if text.lower() in ("true", "false") and {"0", "1"} == set(layout.classes):
            hint = "; send 1 for true and 0 for false, or translate them by label_values of a mapping"
        elif path == "$.label" and (name := meant_class(text, layout.classes)) is not None:
            hint += f"; or translate it: label_values: {{{as_json(text)}: {as_json(name)}}} in the mapping"
    return f"{path}: task {layout.name} has no class {shown(value)}; its classes are {allowed}{hint}"


def encode_group(
    values: Sequence[Mapping[str, object] | None], name: str, layout: TaskLayout, faults: Faults
) -> tuple[tuple[str, ...], Ints]:
    """Return the distinct values of one group, and the index of each row's value.

    The index is -1 if the row has no value, or a faulty one.
    """
    index: dict[str, int] = {}
    codes = np.full(len(values), -1, dtype=np.int64)
    for row, groups in enumerate(values):
        value = groups.get(name) if groups else None
        if value is None:
            continue
        place = index.get(value) if type(value) is str else None  # nearly always a value of an earlier row
        if place is None:
            text = text_of(value) if isinstance(value, str | int | float) else None
            fault = _group_fault(value, text, name, layout)
            if fault is not None:
                faults.add(row, *fault)
                continue
            place = index.setdefault(str(text), len(index))
        codes[row] = place
    return tuple(index), codes


def _group_fault(value: object, text: str | None, name: str, layout: TaskLayout) -> Fault | None:
    """Return the fault of the value of a group, or None."""
    if text is None or isinstance(value, TooLarge) or (isinstance(value, float) and not isfinite(value)):
        reason = RejectReason.WRONG_TYPE if text is None else RejectReason.NOT_A_NUMBER
        reason = RejectReason.OUT_OF_RANGE if isinstance(value, TooLarge) else reason
        return reason, f"$.groups.{name}: expected a string, a number, true or false, got {shown(value)}"
    if not is_unicode(text):
        return unicode_fault(text, f"$.groups.{name}")
    if len(text) > MAX_NAME and text not in layout.long_names:
        return (
            RejectReason.TOO_LARGE,
            f"$.groups.{name}: expected at most {MAX_NAME} characters, got {len(text)}",
        )
    return None


def encode_features(values: Sequence[object], layout: TaskLayout, faults: Faults) -> Floats:
    """Return the features of a task, encoded as in `Batch`, (n, F); NaN for a missing or faulty feature.

    A text such as "3.5" counts as a number, because all cells of a CSV file are texts.
    """
    features = np.full((len(values), len(layout.features)), np.nan)
    if not layout.features or absent(values):
        return features
    if not set(map(type, values)) <= {dict, NoneType}:
        for row, value in enumerate(values):
            if not isinstance(value, dict | None):
                message = f"$.features: expected an object, got {shown(value)}"
                faults.add(row, RejectReason.WRONG_TYPE, message)
    faulty = []
    for kind, encode_cells in _ENCODE_CELLS.items():
        own = [j for j, (_, each) in enumerate(layout.features) if each == kind]
        if not own:
            continue
        try:
            cells = encode_cells(_cells(values, [layout.features[j][0] for j in own]))
        except (TypeError, ValueError, OverflowError):  # a value has another type
            faulty += own
        else:
            features[:, own] = cells.reshape(len(values), len(own))
    for j in sorted(faulty):
        name, kind = layout.features[j]
        encode_column = _codes if kind == "text" else _numbers
        features[:, j] = encode_column(_cells(values, [name]), name, faults)
    return features


def _cells(values: Sequence[object], names: Sequence[str]) -> Sequence[object]:
    """Return the features of the first row, then those of the second row, and so on; None for an absent one.

    Reading row by row takes half the time of reading column by column, because rows are apart in memory.
    """
    try:
        cells = list(map(itemgetter(*names), values))  # type: ignore[arg-type]
    except (KeyError, TypeError):  # a row lacks a feature, or all of them
        rows = [each if isinstance(each, dict) else _NO_FEATURES for each in values]
        return [row.get(name) for row in rows for name in names]
    return cells if len(names) == 1 else list(chain.from_iterable(cells))


def _number_cells(cells: Sequence[Any]) -> Floats:
    """Return numbers, NaN for None and for infinite ones; raise an exception if any cell is not a number."""
    numbers = np.fromiter(cells, np.float64, len(cells))
    numbers[np.isinf(numbers)] = np.nan
    return numbers


def _text_cells(cells: Sequence[Any]) -> Floats:
    """Return the codes of texts, NaN for None; raise an exception if any cell is not valid text."""
    distinct = dict.fromkeys(cells)
    distinct.pop(None, None)
    texts = list(distinct)
    if not all(isinstance(text, str) and is_unicode(text) for text in texts):
        raise TypeError
    codes = dict(zip(texts, text_codes(texts).tolist(), strict=True)) | {None: np.nan}
    return np.fromiter(map(codes.__getitem__, cells), np.float64, len(cells))


_ENCODE_CELLS = {"number": _number_cells, "text": _text_cells}


def _numbers(column: Sequence[object], name: str, faults: Faults) -> Floats:
    """Return the numbers of a column, (n,), NaN for absent, faulty and infinite ones."""
    numbers = np.array([_number(value, row, name, faults) for row, value in enumerate(column)])
    numbers[np.isinf(numbers)] = np.nan
    return numbers


def _number(value: Any, row: int, name: str, faults: Faults) -> float:
    try:
        return np.nan if value is None else float(value)
    except (TypeError, ValueError, OverflowError):
        message = f"$.features.{name}: expected a number, got {shown(value)}{spelling(value)}"
        faults.add(row, RejectReason.WRONG_TYPE, message)
        return np.nan


def _codes(column: Sequence[object], name: str, faults: Faults) -> Floats:
    """Return the codes of the texts of a column, (n,), NaN for absent and faulty ones."""
    index: dict[str, int] = {}
    places = np.full(len(column), -1, dtype=np.int64)
    for row, value in enumerate(column):
        if isinstance(value, TooLarge) or (isinstance(value, float) and not isfinite(value)):
            continue
        if isinstance(value, str | int | float):
            whole = isinstance(value, float) and value.is_integer()  # an integer in a column with gaps
            text = text_of(int(value) if whole else value)
            if not is_unicode(text):
                faults.add(row, *unicode_fault(text, f"$.features.{name}"))
            places[row] = index.setdefault(text, len(index))
        elif value is not None:
            message = f"$.features.{name}: expected text or a number, got {shown(value)}"
            faults.add(row, RejectReason.WRONG_TYPE, message)
    return np.append(text_codes(list(index)), np.nan)[places]


def id_at(raw: Raw, position: int, key: int, wire: Wire = PLAIN) -> str | None:
    """Return the id with this key in the record at a position of the raw input.

    The id may be in a field of any name.

    Parameters
    ----------
    raw : Raw
        A block of lines or a table that holds the position.
    position : int
        A value of `Batch.position`: a byte in a block, or a row in a table.
    key : int
        The key of the id (`id_keys`).
    wire : Wire
        The format of a line. If one event holds several records, their ids are made from the id of the event.

    Returns
    -------
    str or None
        The id; None if no text and no whole number of the record has this key.

    Examples
    --------
    >>> block = RawBlock(b'{"request": {"id": 82}, "p": 0.5}', "p.ndjson", 0)
    >>> id_at(block, 0, int(id_keys(["82"])[0]))
    '82'
    """
    for text in (*_texts(_record(raw, position)), *_read(raw, position, wire)):
        if int(id_keys([text])[0]) == key:
            return text
    return None


def holds(raw: Raw, position: int) -> bool:
    """Return whether the raw input contains the record at a position."""
    if isinstance(raw, RawBlock):
        return raw.start <= position < raw.start + len(raw.data)
    if isinstance(raw, RawTable):
        return raw.start <= position < raw.start + max(map(len, raw.columns.values()), default=0)
    return False


def _read(raw: Raw, position: int, wire: Wire) -> Iterator[str]:
    """Yield the ids of the records in the line at a position."""
    if isinstance(raw, RawBlock):
        for _, outcome in wire.read(_line(raw, position)):
            if isinstance(outcome, Record) and outcome.id is not None:
                yield str(outcome.id)


def _line(raw: RawBlock, position: int) -> bytes:
    at = position - raw.start
    end = raw.data.find(b"\n", at)
    return raw.data[at : end if end >= 0 else len(raw.data)]


def _record(raw: Raw, position: int) -> object:
    if isinstance(raw, RawBlock):
        return msgspec.json.decode(_line(raw, position))
    if isinstance(raw, RawTable):
        return {name: column[position - raw.start] for name, column in raw.columns.items()}
    return None


def _texts(value: object) -> Iterator[str]:
    """Yield the texts and whole numbers of a record as texts, outer ones first."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, int) and not isinstance(value, bool):
        yield str(value)
    elif isinstance(value, dict):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)

"""Reads records whose fields and times a mapping describes. The mapping is compiled once.

If all paths have one step, msgspec decodes a `Record` with renamed fields at no extra cost. Longer paths
become a tree of typed structs with only the mapped fields, and columns are extracted from these structs.
Records that these typed decoders reject are parsed again one by one, without types.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone, tzinfo
from itertools import repeat, takewhile
from operator import attrgetter, itemgetter
from typing import Any, Self, get_type_hints
from zoneinfo import ZoneInfo

import msgspec

from connectors.formats.decode.names import same_name, text_of
from connectors.formats.decode.reread import lenient_value, record_of, whole_number
from connectors.formats.decode.structs import MAX_ID, Fault, OneOfRows, Record
from connectors.formats.files.table_rows import plain_cell
from connectors.formats.messages.explain import explain_text, explain_value, float_of
from connectors.formats.messages.hints import MISSING_FIELD, MOST_NAMES
from connectors.formats.messages.wording import listing, nearest
from connectors.formats.wires.beside import with_fields
from connectors.formats.wires.cloudevents import Headers, event, http_attributes, kafka_attributes
from connectors.formats.wires.wire import ERRORS, Mixed, Outcome, Wire
from monitor.base.records import RejectReason, TaskLayout
from monitor.base.source import RawTable
from monitor.config.mapping import (
    JSON_TEXT,
    MISSING,
    UNITS,
    Constants,
    FieldMapping,
    FieldPath,
    lookup,
    parse_field_path,
)

_TYPES: Mapping[str, Any] = get_type_hints(Record)
_FIELDS = Record.__struct_fields__
_NUMBER = float | None
_LABELS = frozenset({"label", "correct"})
_TENSORS = ("outputs", ("data",))  # steps before and after the index of a tensor
_SUM_TOLERANCE = 1e-3
_UNMAPPED = "blindsight: not mapped: "  # prefix of a field name that no record has

Column = list[Any]


@dataclass(frozen=True, slots=True)
class _Rows:
    """An array of which a mapping reads one element, although each element may be a row.

    Parameters
    ----------
    array : tuple
        The path of the array.
    index : int
        The index of the element that is read.
    inner : tuple of tuple
        The path of each field that is read, from the element on.
    """

    array: FieldPath
    index: int
    inner: tuple[FieldPath, ...]

    def left(self, values: object) -> int:
        """Return the number of other elements that are rows: they have the fields of the one that is read.

        Plain numbers that sum to 1 are the classes of one row.
        """
        if not isinstance(values, list) or self.index >= len(values) or len(values) < 2:
            return 0
        numbers = all(_look(each) == "number" for each in values)
        if numbers and abs(sum(values) - 1) <= _SUM_TOLERANCE:
            return 0
        looks = [[_look(_inside(each, path)) for path in self.inner] for each in values]
        mine = looks[self.index]
        return looks.count(mine) - 1 if None not in mine else 0


def _rows_of(paths: Mapping[str, FieldPath]) -> tuple[FieldPath, tuple[_Rows, ...]]:
    """Return the common start of the paths of scores, and the arrays in it of which one element is read.

    Without scores, the paths of the label count. The tensors of the Open Inference Protocol are no rows,
    because each tensor holds all rows.

    Examples
    --------
    >>> _rows_of({"scores": ("predictions", 0), "id": ("ids", 0)})[1]
    (_Rows(array=('predictions',), index=0, inner=((),)),)
    >>> _rows_of({"scores": ("outputs", 1, "data")})[1]
    ()
    >>> _rows_of({"scores.ok": ("p", 0), "scores.toxic": ("p", 1)})[1]
    ()
    """
    read = [path for name, path in paths.items() if name.partition(".")[0] in ("scores", "confidence")]
    read = read or [path for name, path in paths.items() if name in _LABELS]
    steps = takewhile(lambda each: len(set(each)) == 1, zip(*read, strict=False))
    shared = tuple(each[0] for each in steps)
    arrays = [
        _Rows(shared[:depth], step, tuple(path[depth + 1 :] for path in read))
        for depth, step in enumerate(shared)
        if isinstance(step, int) and (shared[depth - 1], shared[depth + 1 : depth + 2]) != _TENSORS
    ]
    return shared, tuple(arrays)


def _look(value: object) -> object:
    """Return the kind of a value, by which rows resemble each other, or None for a value that is no row."""
    if isinstance(value, float):
        return "number"
    if isinstance(value, dict):
        return ("names", *value)
    if isinstance(value, list | tuple):
        return ("numbers", len(value)) if value and _look(value[0]) == "number" else None
    if isinstance(value, int) and not isinstance(value, bool):
        return "number"
    return "text" if isinstance(value, str | bool) else None


def _inside(value: Any, path: FieldPath) -> object:
    """Return the value at a path in a decoded value or in a tree of typed structs, or None."""
    for step in path:
        if isinstance(value, dict | list) or step is JSON_TEXT:
            value = lookup(value, (step,))
        else:
            known = getattr(value, "STEPS", ())
            value = getattr(value, f"f{known.index(step)}") if step in known else None
        if value is MISSING or value is None:
            return None
    return value


class MappedWire(Wire):
    """A reader of records whose fields are at the paths of a mapping.

    Examples
    --------
    >>> wire = MappedWire(FieldMapping(id="req.uuid", model="m", scores="out.probs"))
    >>> records = wire.read_lines(b'{"req": {"uuid": "a"}, "m": "erm", "out": {"probs": [0.25, 0.75]}}')
    >>> records[0].id, records[0].model, records[0].scores
    ('a', 'erm', [0.25, 0.75])
    """

    def __init__(self, mapping: FieldMapping) -> None:
        self.mapping: FieldMapping = mapping
        self._events = mapping.format == "cloudevents"
        self._beside = frozenset(map(parse_field_path, mapping.beside.values()))
        self.paths: Mapping[str, FieldPath] = {
            name: parse_field_path(path) for name, path in mapping.paths.items()
        }
        self._constants = {
            name: value for name, value in mapping.constants.model_dump().items() if value is not None
        }
        self._where = {parse_field_path(path): _spellings(texts) for path, texts in mapping.where.items()}
        self.paths = {**self.paths, **{f"{_WHERE}{path}": parse_field_path(path) for path in mapping.where}}
        self._time_of = time_reader(mapping)
        self._id_of = id_reader(mapping)
        self._classes = mapping.label_values
        way, self._rows = _rows_of(self.paths)
        self.one_row = _written(way) if self._rows else ""
        self.reads_labels = not _LABELS.isdisjoint(self.paths)
        whole = (*mapping.paths.values(), *mapping.where)
        self.columns = frozenset(whole) | {str(path[0]) for path in self.paths.values()}
        # A renamed Record has each name once, and no nested fields.
        apart = len(set(self.paths.values())) == len(self.paths)
        flat = apart and all(len(path) == 1 and name in _FIELDS for name, path in self.paths.items())
        self._deep = not flat
        self._order: tuple[str, ...] = ()
        self._texts: Mapping[FieldPath, msgspec.json.Decoder[Any]] = {}
        try:
            shape = self._renamed() if flat else _tree(self.paths)
            self._texts = _texts_in(self.paths)
        except _UntypedError:
            shape = None
        self._decoder = None if shape is None else msgspec.json.Decoder(shape)

    def for_tasks(self, layouts: Sequence[TaskLayout]) -> Self:
        """Return a reader that reads the scores of these tasks as fast as possible.

        If all tasks have the same classes and every class has a path, the new reader reads the scores as
        tuples, which is several times as fast as reading objects. Otherwise return this reader, which reads
        objects, because error messages need the names in the objects.
        """
        orders = {layout.classes for layout in layouts}
        if len(orders) != 1 or set(self.mapping.class_scores) != set(*orders):
            return self
        wire = copy(self)
        (wire._order,) = orders
        return wire

    def read_lines(self, data: bytes) -> list[Record] | Mixed | None:
        """Return the record of each line; None for a line that `where` excludes.

        Return None instead of a list if any line cannot be decoded together with the others.
        """
        if self._decoder is None:
            return None
        try:
            return self._records(self._decoder.decode_lines(data))
        except ERRORS:
            return None

    def reads_rows(self, names: Collection[str]) -> bool:
        """Return False: tables are read by column."""
        return False

    def convert_message(self, value: bytes, headers: Headers) -> bytes:
        """Return a Kafka message with the fields that the mapping reads from its key, time and headers.

        With `format: cloudevents`, an event in binary mode becomes structured JSON first.
        """
        attributes = kafka_attributes(headers) if self._events else {}
        value = event(attributes, value) if attributes else value
        return with_fields(value, headers, self._beside) if self._beside else value

    def convert_post(self, headers: Mapping[str, str], body: bytes) -> bytes | None:
        """Return an event in binary mode as JSON; None for another post, or without `format: cloudevents`."""
        attributes = http_attributes(headers) if self._events else {}
        return event(attributes, body) if attributes else None

    def read(self, data: bytes) -> list[Outcome]:
        """Read one value as a record, and return its outcome.

        The outcome is None if `where` excludes the record.
        """
        try:
            if self._decoder is None:
                return [(data, self._again(data, ValueError("not as the mapping says")))]
            return [(data, self._records([self._decoder.decode(data)])[0])]
        except ERRORS as error:
            return [(data, self._again(data, error))]

    def record(self, value: object) -> Record | Fault:
        """Return the record in a decoded value, or the fault of the value."""
        shaped = self.shaped(value)
        left = sum(rows.left(lookup(value, rows.array)) for rows in self._rows)
        if left:
            shaped["left"] = left
        record = record_of(shaped, OneOfRows if left else Record)
        if isinstance(record, Record):
            return self._translated([record])[0]
        return record[0], record[1] + self.note(record[1])

    def shaped(self, value: object) -> dict[str, Any]:
        """Return the mapped values of a decoded value, by the names of Blindsight's fields."""
        values: dict[str, Any] = dict(self._constants)
        for name, path in self.paths.items():
            each = lookup(value, path)
            if each is MISSING or each is None or name.startswith(_WHERE):
                continue
            parent, _, key = name.partition(".")
            if key:
                values.setdefault(parent, {})[key] = each
            else:
                values[name] = each
        return values

    def hint(self, fault: Fault, data: bytes | None) -> str:
        """Return a clause that names the mapping's path for the field of a fault, or ""."""
        reason, message = fault
        if data is None or reason not in MISSING_FIELD:
            return self.note(message)
        return self.missing(message, data)

    def note(self, message: str) -> str:
        """Return a clause that names the mapping's path for the field that a message names, or "".

        Examples
        --------
        >>> MappedWire(FieldMapping(scores="out.probs")).note("$.scores[0]: expected a number")
        '; the mapping reads scores at out.probs'
        """
        name, _, index = message.removeprefix("$.").partition(":")[0].partition("[")
        if name == "scores" and self._order and index[:-1].isdigit():
            name = f"scores.{self._order[int(index[:-1])]}"
        known = self.mapping.paths
        place = known.get(name) or known.get(name.partition(".")[0])
        return f"; the mapping reads {name} at {place}" if place else ""

    def missing(self, message: str, data: bytes) -> str:
        """Return a clause about a path at which a record has no value.

        The clause lists the names that the record has there.

        Examples
        --------
        >>> wire = MappedWire(FieldMapping(scores="out.probs"))
        >>> wire.missing("$.scores: missing", b'{"out": {"prob": [0.5, 0.5]}}')
        '; the mapping reads scores at out.probs, but out has only prob; did you mean prob?'
        """
        name = message.removeprefix("$.").partition(":")[0].partition("[")[0]
        fields = [field for field in self.paths if field == name or field.startswith(f"{name}.")]
        if not fields:
            other = f", or constants.{name}" if name in Constants.model_fields else ""
            return f"; the mapping names no path of {name}: give one{other}" if name in _FIELDS else ""
        try:
            value = msgspec.json.decode(data)
        except ERRORS:
            return ""
        for field in fields:
            clause = _lost(value, self.paths[field])
            if clause:
                return f"; the mapping reads {field} at {self.mapping.paths[field]}, but {clause}"
        return self.note(message)

    def map_table(self, raw: RawTable) -> RawTable:
        """Return a table with Blindsight's columns, made from the columns that the mapping names.

        A path of the mapping is the name of a column, or leads into the cells of a column.
        """
        rows = max(map(len, raw.columns.values()), default=0)
        columns: dict[str, list[object]] = {name: [value] * rows for name, value in self._constants.items()}
        for name, written in self.mapping.paths.items():
            if (cells := _column(raw, written, self.paths[name])) is not None:
                columns[name] = cells
        if "time" in columns and self._time_of is not None:
            columns["time"] = [self._time_of(_time_in(value)) for value in columns["time"]]
        if "id" in columns and self._id_of is not None:
            columns["id"] = [self._id_of(plain_cell(value)) for value in columns["id"]]
        if "label" in columns and self._classes:
            columns["label"] = [self._class_of(plain_cell(value)) for value in columns["label"]]
        # A table without a mapped column keeps its number of rows.
        return RawTable(columns or {_UNMAPPED: [None] * rows}, raw.partition, raw.start, raw.broken)

    def excluded_rows(self, raw: RawTable) -> frozenset[int]:
        """Return the indices of the rows of a table that `where` excludes."""
        rows: set[int] = set()
        for written in self.mapping.where:
            path = parse_field_path(written)
            column = _column(raw, written, path) or [None] * len(raw)
            texts = self._where[path]
            rows.update(i for i, value in enumerate(column) if not _is_one_of(plain_cell(value), texts))
        return frozenset(rows - raw.broken.keys())

    def rows_left(self, raw: RawTable) -> int:
        """Return the number of rows that the mapping does not read in the arrays of a table's cells."""
        return sum(
            rows.left(_inside(_unpacked(cell), rows.array[1:]))
            for rows in self._rows
            for cell in raw.columns.get(str(rows.array[0]), ())
        )

    def _renamed(self) -> type[Record]:
        names = {field: _UNMAPPED + field for field in _FIELDS}
        names.update({name: str(path[0]) for name, path in self.paths.items()})
        fields = [(field, _TYPES[field], self._constants.get(field)) for field in _FIELDS]
        made: Any = msgspec.defstruct("Renamed", fields, bases=(Record,), rename=names, gc=False)
        kind: type[Record] = made
        return kind

    def _records(self, values: list[Any]) -> list[Record] | Mixed:
        if not self._deep:
            return self._translated(values)
        at_path = _columns_at(self.paths, values, self._texts)
        columns = {name: at_path[path] for name, path in self.paths.items()}
        by_class = [columns[f"scores.{name}"] for name in self._order]
        if by_class and not any(None in column for column in by_class):
            columns["scores"] = list(zip(*by_class, strict=True))
        for parent in ("scores", "groups", "features", "quantiles"):
            if parent in columns:
                continue
            inner = {name.partition(".")[2]: name for name in columns if name.startswith(f"{parent}.")}
            if inner:
                columns[parent] = _objects(inner, columns)
        made = [columns.get(name) or repeat(self._constants.get(name), len(values)) for name in _FIELDS]
        left = self._left(at_path)
        records = self._translated(list(map(OneOfRows, *made, left) if left else map(Record, *made)))
        if not self._where:
            return records
        read = [True] * len(records)
        for path, texts in self._where.items():
            read = [here and _is_one_of(each, texts) for here, each in zip(read, at_path[path], strict=True)]
        return (
            records
            if all(read)
            else Mixed(x if here else None for x, here in zip(records, read, strict=True))
        )

    def _left(self, at_path: Mapping[FieldPath, Column]) -> list[int] | None:
        """Return the number of unread rows of each record, or None if no array has two elements."""
        several = [
            rows
            for rows in self._rows
            if any(each is not None and len(each) > 1 for each in at_path[rows.array])
        ]
        if not several:
            return None
        return [
            sum(each) for each in zip(*(map(rows.left, at_path[rows.array]) for rows in several), strict=True)
        ]

    def _translated(self, records: list[Record]) -> list[Record]:
        """Convert times, ids and labels of the records to our forms, and return the records."""
        if self._time_of is not None:
            for record in records:
                record.time = self._time_of(record.time)
        if self._id_of is not None:
            for record in records:
                record.id = self._id_of(record.id)
        if self._classes:
            for record in records:
                record.label = self._class_of(record.label)
        return records

    def _class_of(self, label: Any) -> Any:
        """Return the class that a label stands for, or the label if it has no translation."""
        if not isinstance(label, str | int | float):
            return label
        text = text_of(label)
        return self._classes.get(text, self._classes.get(same_name(text), label))

    def _again(self, data: bytes, error: Exception) -> Record | Fault | None:
        value = lenient_value(data)
        if not isinstance(value, dict):
            return (
                explain_text(data, error)
                if value is None
                else explain_value(value) or (RejectReason.WRONG_TYPE, f"$: {error}")
            )
        if not all(_is_one_of(lookup(value, path), texts) for path, texts in self._where.items()):
            return None
        outcome = self.record(value)
        if isinstance(outcome, Record) or outcome[0] is not RejectReason.ENCODING or _is_text(data):
            return outcome
        return explain_text(data, error)


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


_WHERE = "where: "  # prefix of the names of paths that decide whether a record is read
_FLAGS = ({"true", "True", "TRUE"}, {"false", "False", "FALSE"})


def _spellings(texts: Sequence[str]) -> frozenset[str]:
    """Return the texts to compare values with, with each spelling of true and false among them."""
    spellings = set(texts)
    return frozenset(spellings.union(*(flags for flags in _FLAGS if flags & spellings)))


def _is_one_of(value: Any, texts: frozenset[str]) -> bool:
    """Return whether a scalar, as JSON writes it, is one of these texts."""
    if not isinstance(value, str | int | float):
        return False
    text = text_of(value)
    return text in texts or same_name(text) in texts


def id_reader(mapping: FieldMapping) -> Callable[[Any], Any] | None:
    """Return a function that converts ids as the mapping says, or None if the mapping converts no ids.

    Examples
    --------
    >>> read = id_reader(FieldMapping(id="i", id_digits=4, id_prefix="req-", id_case="lower"))
    >>> read(81), read("81.0"), read("REQ-0081"), read(None)
    ('req-0081', 'req-0081', 'req-0081', None)
    """
    hex_digits, digits = mapping.id_hex_digits, mapping.id_digits
    prefix, case = mapping.id_prefix or "", mapping.id_case
    if hex_digits is None and digits is None and not prefix and case is None:
        return None

    def read(id_: Any) -> Any:
        id_ = whole_number(id_)
        if hex_digits is not None:
            id_ = hexadecimal(id_, hex_digits)
        if not isinstance(id_, str | int) or isinstance(id_, bool) or id_ == "":
            return id_
        text = str(id_)
        if digits is not None and (number := same_name(text)).isascii() and number.isdigit():
            text = number.zfill(digits)
        if case is not None:
            text = text.lower() if case == "lower" else text.upper()
        return text if text.startswith(prefix) else prefix + text

    return read


def _column(raw: RawTable, written: str, path: FieldPath) -> list[object] | None:
    """Return the cells at a path: a column of this name, or values within the column of its first step."""
    whole = raw.columns.get(written)
    if whole is not None:
        return whole
    inner = raw.columns.get(str(path[0]))
    if inner is None:
        return None
    values = (lookup(_unpacked(value), path[1:]) for value in inner)
    return [None if value is MISSING else value for value in values]


def hexadecimal(id_: Any, digits: int) -> Any:
    """Return an id that is a decimal number in hexadecimal, with at least `digits` digits.

    Any other id is returned unchanged.

    Examples
    --------
    >>> hexadecimal("4151694932783368069", 16), hexadecimal(255, 4), hexadecimal("r-1", 16)
    ('399dc88b74578785', '00ff', 'r-1')
    """
    if isinstance(id_, str):
        return f"{int(id_):0{digits}x}" if id_.isascii() and id_.isdigit() and len(id_) <= MAX_ID else id_
    whole = isinstance(id_, int) and not isinstance(id_, bool) and id_ >= 0
    return f"{id_:0{digits}x}" if whole else id_


def _objects(inner: Mapping[str, str], columns: Mapping[str, Column]) -> Column:
    """Combine a column for each name into one object a row, without absent values.

    A row without any value is None.
    """
    keys = tuple(inner)
    chosen = [columns[name] for name in inner.values()]
    if any(None in column for column in chosen):
        return [
            {key: value for key, value in zip(keys, row, strict=True) if value is not None} or None
            for row in zip(*chosen, strict=True)
        ]
    return [dict(zip(keys, row, strict=True)) for row in zip(*chosen, strict=True)]


def _leaf(name: str) -> Any:
    if name.startswith("scores."):
        return _NUMBER
    return Any if name.startswith(("groups.", "features.", "quantiles.", _WHERE)) else _TYPES[name]


class _UntypedError(Exception):
    """Two fields need different types at the same path, which only the untyped parser can read."""


def _tree(paths: Mapping[str, FieldPath]) -> Any:
    """Return the type of the value at the first steps of these paths, with all their later steps."""
    leaves = {_leaf(name) for name, path in paths.items() if not path}
    leaves = leaves - {Any} or leaves  # a field of any type takes the type of another field
    steps = dict.fromkeys(path[0] for path in paths.values() if path)
    if leaves:
        if steps or len(leaves) > 1:
            raise _UntypedError
        return leaves.pop()
    if JSON_TEXT in steps:
        if len(steps) > 1:
            raise _UntypedError
        return str
    if all(isinstance(step, int) for step in steps):
        # One type for all elements, with the fields of all indices.
        return list[_tree({name: path[1:] for name, path in paths.items()}) | None] | None  # type: ignore[misc]
    if any(isinstance(step, int) for step in steps):
        raise _UntypedError
    inner = {
        step: _tree({name: path[1:] for name, path in paths.items() if path[0] == step}) for step in steps
    }
    fields = [(f"f{i}", kind | None, None) for i, kind in enumerate(inner.values())]
    names = {f"f{i}": str(step) for i, step in enumerate(inner)}
    return msgspec.defstruct("Tree", fields, rename=names, gc=False, namespace={"STEPS": tuple(inner)})


def _texts_in(paths: Mapping[str, FieldPath]) -> dict[FieldPath, msgspec.json.Decoder[Any]]:
    """Return the decoder of each text that holds JSON, by the path of the text."""
    decoders: dict[FieldPath, msgspec.json.Decoder[Any]] = {}
    for path in paths.values():
        for at in (i for i, step in enumerate(path) if step is JSON_TEXT):
            begin = path[: at + 1]
            inner = {name: each[at + 1 :] for name, each in paths.items() if each[: at + 1] == begin}
            decoders.setdefault(path[:at], msgspec.json.Decoder(_tree(inner)))
    return decoders


def _columns_at(
    paths: Mapping[str, FieldPath],
    values: Sequence[Any],
    texts: Mapping[FieldPath, msgspec.json.Decoder[Any]],
) -> dict[FieldPath, Column]:
    """Return the column at each path and at each start of a path.

    Paths with a common start share its columns.
    """
    columns: dict[FieldPath, Column] = {(): list(values)}
    for path in paths.values():
        for depth in range(len(path)):
            whole, before = path[: depth + 1], path[:depth]
            if whole in columns:
                continue
            if path[depth] is JSON_TEXT:
                decode = texts[before].decode
                columns[whole] = [None if each is None else decode(each) for each in columns[before]]
            else:
                columns[whole] = _step(columns[before], path[depth])
    return columns


def _step(column: Column, step: str | int) -> Column:
    if isinstance(step, int):
        # The trees are typed: an integer step is always into a list.
        take: Callable[[Any], Any] = itemgetter(step)
        try:
            return list(map(take, column))
        except (TypeError, IndexError):
            return [None if each is None or len(each) <= step else each[step] for each in column]
    kind = next((type(each) for each in column if each is not None), None)
    if kind is None or kind is dict:
        return [None if each is None else each.get(step) for each in column]
    field = f"f{kind.STEPS.index(step)}"
    take = attrgetter(field)
    try:
        return list(map(take, column))
    except AttributeError:
        return [None if each is None else take(each) for each in column]


def _lost(value: object, path: FieldPath) -> str:
    """Return a clause on the first step of a path that a record lacks, or "" if the path leads to a value."""
    for depth, step in enumerate(path):
        inner = lookup(value, (step,))
        if inner is MISSING:
            where = "the record" if depth == 0 else _written(path[:depth])
            if step is JSON_TEXT:
                return f"{where} is no text that is JSON"
            if isinstance(value, dict):
                names = tuple(map(str, value))
                hint = nearest(str(step), names[:MOST_NAMES])
                return f"{where} has only {listing(names) or 'no field'}{hint}"
            size = f" has {len(value)} elements" if isinstance(value, list) else " is no object"
            return where + size
        value = inner
    return "" if value is not None else f"{_written(path)} is null"


def _written(path: FieldPath) -> str:
    parts = [
        f"[{step}]" if isinstance(step, int) else str(step) if step is JSON_TEXT else f".{step}"
        for step in path
    ]
    return "".join(parts).removeprefix(".")


def _unpacked(value: object) -> object:
    """Return the value of a cell that is JSON text, as in CSV, and another cell unchanged."""
    if isinstance(value, str) and value[:1] in "[{":
        try:
            return msgspec.json.decode(value)
        except ERRORS:
            return value
    return value


def _time_in(value: object) -> object:
    """Return the time in a cell with its JSON type: a number that is text, as in CSV, becomes a float."""
    value = plain_cell(value)
    try:
        return float_of(value) if isinstance(value, str) else value
    except ValueError:
        return value


def time_reader(mapping: FieldMapping) -> Callable[[Any], Any] | None:
    """Return a function that converts a time to seconds or RFC 3339; None if the mapping converts no times.

    The function returns unreadable times unchanged, and the decoder rejects them. A text with an offset keeps
    its offset. If daylight saving ends and an hour occurs twice, a time in this hour belongs to its first
    occurrence.

    Examples
    --------
    >>> read = time_reader(FieldMapping(time="t", time_unit="milliseconds", time_zone="+01:00"))
    >>> read(1500), read("1970-01-01T01:00:02.250"), read("1970-01-01T00:00:00Z"), read("noon")
    (1.5, 2.25, '1970-01-01T00:00:00Z', 'noon')
    """
    per_second, zone = UNITS[mapping.time_unit], _zone(mapping.time_zone)
    if per_second == 1.0 and zone is None:
        return None

    def read(value: Any) -> Any:
        if isinstance(value, str):
            return value if zone is None else _seconds(value, zone)
        return value / per_second if isinstance(value, int | float) and not isinstance(value, bool) else value

    return read


def _zone(name: str | None) -> tzinfo | None:
    if name is None:
        return None
    if name[0] in "+-":
        ahead = timedelta(hours=int(name[1:3]), minutes=int(name[4:]))
        return timezone(-ahead if name[0] == "-" else ahead)
    return ZoneInfo(name)


def _seconds(text: str, zone: tzinfo) -> str | float:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return text
    return time.replace(tzinfo=zone).timestamp() if time.tzinfo is None else text

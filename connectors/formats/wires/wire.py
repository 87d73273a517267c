"""The interface of wires. A wire is the reader of one format: it turns the bytes of a source into records.

A wire reads one JSON value at a time (`one`), or many lines at once if each is one record (`lines`). `lines`
makes decoding fast, and `one` finds the fault of a record.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from copy import copy
from functools import lru_cache
from typing import Any, Protocol, Self, runtime_checkable

import msgspec

from connectors.formats.decode.reread import read_again
from connectors.formats.decode.structs import Fault, Record, RowRecord, record_without
from connectors.formats.messages.explain import explain_text
from connectors.formats.wires.cloudevents import Headers
from connectors.formats.wires.marks import formats_of_table
from connectors.formats.wires.responses import constants_of
from monitor.base.records import TaskLayout
from monitor.config.mapping import FieldMapping

Outcome = tuple[bytes, Record | Fault | None]
"""The bytes of a value, with its record or its fault; or with None for a valid value without a record."""

ERRORS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""The exceptions of `msgspec` for bytes that it cannot decode as a type."""


_MANY_BYTES = 1 << 13  # with fewer bytes, decoding the first record costs more than it saves
_FIELDS = Record.__struct_fields__


@lru_cache(maxsize=64)
def _decoder_without(absent: frozenset[str], scored: bool = False) -> msgspec.json.Decoder[Record]:
    return msgspec.json.Decoder(record_without(absent, scored))


class Mixed(list[Record | None]):
    """The records of lines that were decoded at once.

    An entry is None if `Wire.one` still has to read the line.
    """


class ByShape:
    """The base of wires that recognise records of SPEC section 3 by their shape, whatever the headers are."""


class Wire(Protocol):
    """The interface of a reader of JSON records in one format."""

    @property
    def reads_labels(self) -> bool:
        """True if a record may be a label without an answer."""
        ...

    def lines(self, data: bytes) -> list[Record] | Mixed | None:
        """Decode many lines at once, each of which is one record.

        Return None if a line is no record of this format; the caller then reads each line with `one`.
        """
        ...

    def array(self, data: bytes) -> list[Record] | None:
        """Decode the elements of a JSON array at once, each of which is one record.

        Return None if an element is no record of this format; the caller then reads each element with `one`.
        """
        ...

    def one(self, data: bytes) -> list[Outcome]:
        """Read one JSON value, and return an outcome for each record in it.

        An outcome is a record, or the fault that makes it unusable, or None for a valid value without a
        record.
        """
        ...

    def reads_rows(self, names: Collection[str]) -> bool:
        """Return whether `one` reads each row of a table with these columns as JSON."""
        ...

    def message(self, value: bytes, headers: Headers) -> bytes:
        """Return a Kafka message as JSON, which `one` can read.

        The method is called only if the headers matter.

        Parameters
        ----------
        value : bytes
            The value of the message.
        headers : Headers
            The headers of the message.
        """
        ...

    def posted(self, headers: Mapping[str, str], body: bytes) -> bytes | None:
        """Return the body of an HTTP request as one line of JSON if the headers show a special form.

        Return None otherwise; the content type then decides how the body is read.

        Parameters
        ----------
        headers : mapping of str to str
            The headers of the request.
        body : bytes
        """
        ...

    def passes_over(self, line: bytes) -> bool:
        """Return whether a line is valid and holds no answer."""
        ...


@runtime_checkable
class FormatWire(Protocol):
    """The interface of a wire that can explain where its format holds a field."""

    def missing(self, fault: Fault, data: bytes) -> str:
        """Return a clause that says where the format holds the field that a record lacks, or ""."""
        ...


@runtime_checkable
class TaskAwareWire(Protocol):
    """The interface of a wire that needs the configured tasks to read records."""

    def for_tasks(self, layouts: Sequence[TaskLayout]) -> Wire:
        """Return a wire of the same kind that knows these tasks."""
        ...


class WithoutHeaders:
    """The base of wires for which the headers of messages and HTTP requests do not matter."""

    def message(self, value: bytes, headers: Headers) -> bytes:
        """Return the value unchanged."""
        return value

    def posted(self, headers: Mapping[str, str], body: bytes) -> bytes | None:
        """Return None: the content type decides how a post is read."""
        return None


class OneByOne:
    """The base of wires that read one value at a time, with a record for each row of the value.

    If the only task lists one model, answers that name no model belong to it. Values of another form are
    records with the fields of SPEC section 3. A subclass defines `_rows_of`.

    Parameters
    ----------
    mapping : FieldMapping
        A mapping whose `constants` override the fields of the format.
    """

    reads_labels = True  # a value of another form may be a label
    _layouts: Sequence[TaskLayout] = ()

    def __init__(self, mapping: FieldMapping) -> None:
        self._constants = constants_of(mapping)

    def for_tasks(self, layouts: Sequence[TaskLayout]) -> Self:
        """Return a wire of the same kind that knows these tasks."""
        wire = copy(self)
        wire._layouts = layouts
        return wire

    def one(self, data: bytes) -> list[Outcome]:
        """Read one value, and return an outcome for each of its rows."""
        outcomes = self._read(data)
        models = self._layouts[0].models if len(self._layouts) == 1 else ()
        if len(models) == 1:
            for _, outcome in outcomes:
                if isinstance(outcome, RowRecord) and outcome.model is None:
                    outcome.model = models[0]
        return outcomes

    def _read(self, data: bytes) -> list[Outcome]:
        try:
            value = json.loads(data)
        except (ValueError, RecursionError) as error:
            return [(data, explain_text(data, error))]
        rows = self._rows_of(value) if isinstance(value, dict) else None
        return PLAIN.one(data) if rows is None else [(data, row) for row in rows]

    def _rows_of(self, value: Mapping[str, Any]) -> Sequence[Record | Fault | None] | None:
        """Return the outcome of each row of an object, or None for an object of another form."""
        raise NotImplementedError

    def passes_over(self, line: bytes) -> bool:
        """Return whether a line is valid and holds no answer."""
        return self.one(line)[0][1] is None

    def lines(self, data: bytes) -> list[Record] | None:
        """Return None: `one` reads each line."""
        return None

    def array(self, data: bytes) -> list[Record] | None:
        """Return None: `one` reads each element."""
        return None

    def reads_rows(self, names: Collection[str]) -> bool:
        """Return whether a table with these columns is in a known format, whose rows `one` reads as JSON."""
        return bool(formats_of_table(names))


class PlainWire(WithoutHeaders):
    """A reader of records with the fields of SPEC section 3 under their own names."""

    reads_labels = True

    def __init__(self) -> None:
        self._decoder = msgspec.json.Decoder(Record)
        self._array = msgspec.json.Decoder(list[Record])

    def lines(self, data: bytes) -> list[Record] | None:
        """Return the record of each line, or None if a line is not a record with these fields."""
        if len(data) > _MANY_BYTES:
            # Most streams omit the same fields in every record; a type without them saves their columns.
            try:
                return _decoder_without(self._absent_in_first(data)).decode_lines(data)
            except ERRORS:
                pass
        try:
            return self._decoder.decode_lines(data)
        except ERRORS:
            return None

    def scored(self, data: bytes) -> list[Record] | None:
        """Return the records of many lines if all have scores and no field that the first record lacks.

        Return None otherwise, or if `data` is short.
        """
        if len(data) <= _MANY_BYTES:
            return None
        try:
            absent = self._absent_in_first(data)
            return None if "scores" in absent else _decoder_without(absent, scored=True).decode_lines(data)
        except ERRORS:
            return None

    def _absent_in_first(self, data: bytes) -> frozenset[str]:
        """Return the fields that the first record lacks."""
        first = self._decoder.decode(data[: data.find(b"\n")])
        return frozenset(name for name in _FIELDS if getattr(first, name) is None)

    def array(self, data: bytes) -> list[Record] | None:
        """Return the record of each element of an array, or None if an element is not a record."""
        try:
            return self._array.decode(data)
        except ERRORS:
            return None

    def reads_rows(self, names: Collection[str]) -> bool:
        """Return False: tables are read by column."""
        return False

    def passes_over(self, line: bytes) -> bool:
        """Return False: every line is a record."""
        return False

    def one(self, data: bytes) -> list[Outcome]:
        """Read one value as a record, and return its outcome."""
        try:
            return [(data, self._decoder.decode(data))]
        except ERRORS as error:
            return [(data, read_again(data, error))]


PLAIN = PlainWire()
"""The wire for records with the fields of SPEC section 3 only."""

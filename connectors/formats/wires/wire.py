"""The base of wires. A wire is the reader of one format: it turns the bytes of a source into records.

A wire reads one JSON value at a time (`read`), or many lines at once if each is one record (`read_lines`).
`read_lines` makes decoding fast, and `read` finds the fault of a record.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Self

import msgspec

from connectors.formats.decode.reread import read_again
from connectors.formats.decode.structs import Fault, Record, record_without
from connectors.formats.wires.cloudevents import Headers
from connectors.formats.wires.marks import formats_of_table
from monitor.base.records import TaskLayout
from monitor.base.source import RawTable
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

    An entry is None if `Wire.read` still has to read the line.
    """


class Wire(ABC):
    """The base of readers of records in one format.

    A subclass defines `read`, which returns the records of one event. Its line in
    `monitor.base.registry.FORMATS` has the marks by which records of the format are recognised; if other
    records may have these marks, the subclass also defines `doubt`. The attributes and the other methods have
    defaults, which suit a format of JSON events that names its fields itself and has nothing in headers.
    """

    reads_labels: bool = True
    """Whether a record may be a label without an answer."""

    lines_need_headers: bool = True
    """Whether `read_lines` needs the results of `convert_message`, or also reads unconverted messages."""

    mapping: FieldMapping | None = None
    """The mapping that names the fields of the records; None if the format defines them."""

    columns: frozenset[str] = frozenset()
    """The names of the columns that the mapping reads from a table; an empty set without a mapping."""

    one_row: str = ""
    """The path that reads one row of an array that may hold several rows, or "" if all rows are read."""

    @abstractmethod
    def read(self, data: bytes) -> list[Outcome]:
        """Read one JSON value, and return an outcome for each record in it.

        An outcome is a record, or the fault that makes it unusable, or None for a valid value without a
        record.
        """

    def doubt(self, fields: Mapping[str, msgspec.Raw]) -> str:
        """Return a message if a record that has the marks of this format may be something else, otherwise "".

        Parameters
        ----------
        fields : mapping of str to Raw
            The undecoded fields of the record.
        """
        return ""

    def read_lines(self, data: bytes) -> list[Record] | Mixed | None:
        """Decode many lines at once, each of which is one record.

        Return None if a line is no record of this format; the caller then reads each line with `read`.
        """
        return None

    def for_tasks(self, layouts: Sequence[TaskLayout]) -> Self:
        """Return a wire of the same kind that knows the configured tasks."""
        return self

    def convert_message(self, value: bytes, headers: Headers) -> bytes:
        """Return a Kafka message as JSON, which `read` can read.

        Parameters
        ----------
        value : bytes
            The value of the message.
        headers : Headers
            The headers of the message.
        """
        return value

    def convert_post(self, headers: Mapping[str, str], body: bytes) -> bytes | None:
        """Return the body of an HTTP request as one line of JSON if the headers show a special form.

        Return None otherwise; the content type then decides how the body is read.

        Parameters
        ----------
        headers : mapping of str to str
            The headers of the request.
        body : bytes
        """
        return None

    def hint(self, fault: Fault, data: bytes | None) -> str:
        """Return a clause that says where the format or the mapping has the field of a fault, or "".

        Parameters
        ----------
        fault : Fault
        data : bytes or None
            The record; None for a row of a table that is read by column.
        """
        return ""

    def reads_rows(self, names: Collection[str]) -> bool:
        """Return whether `read` reads each row of a table with these columns as JSON.

        Otherwise the table is read by column.
        """
        return bool(formats_of_table(names))

    def map_table(self, raw: RawTable) -> RawTable:
        """Return a table that is read by column, under the names of the fields of SPEC section 3."""
        return raw

    def excluded_rows(self, raw: RawTable) -> frozenset[int]:
        """Return the indices of valid rows that hold no record, in a table that is read by column."""
        return frozenset()

    def rows_left(self, raw: RawTable) -> int:
        """Return the number of rows in arrays within the cells of a table that `one_row` does not read."""
        return 0


class PlainWire(Wire):
    """A reader of records with the fields of SPEC section 3 under their own names."""

    def __init__(self) -> None:
        self._decoder = msgspec.json.Decoder(Record)

    def read_lines(self, data: bytes) -> list[Record] | None:
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

    def reads_rows(self, names: Collection[str]) -> bool:
        """Return False: tables are read by column."""
        return False

    def read(self, data: bytes) -> list[Outcome]:
        """Read one value as a record, and return its outcome."""
        try:
            return [(data, self._decoder.decode(data))]
        except ERRORS as error:
            return [(data, read_again(data, error))]


PLAIN = PlainWire()
"""The wire for records with the fields of SPEC section 3 only."""

"""The base class of wires. A wire reads one format: it turns the bytes of a source into records.

The method `read` reads one JSON value, and finds the fault of an unusable record. The method `read_lines` is
faster: it reads many lines at once, if each line is one record.
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
"""The bytes of a value and the result of reading it: a record, a fault, or None for a valid value without a
record."""

ERRORS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""The exceptions of `msgspec` for bytes that it cannot decode as a type."""


_MANY_BYTES = 1 << 13  # with fewer bytes, decoding the first record costs more than it saves
_FIELDS = Record.__struct_fields__


@lru_cache(maxsize=64)
def _decoder_without(absent: frozenset[str], scored: bool = False) -> msgspec.json.Decoder[Record]:
    return msgspec.json.Decoder(record_without(absent, scored))


class Mixed(list[Record | None]):
    """The records of lines that were decoded together: one entry for each line, which may be None.

    An entry is None if the line must still be read with `Wire.read`.
    """


class Wire(ABC):
    """The base class of readers of records in one format.

    A subclass defines `read`, which returns the records of one event. The format's line in
    `monitor.base.registry.FORMATS` has the marks by which its records are recognised. If records of another
    format may have the same marks, the subclass also defines `doubt`. The other methods and the attributes
    have defaults. The defaults suit a format of JSON events that defines the names of its fields and uses no
    headers.
    """

    reads_labels: bool = True
    """True if a record may be a label without an answer."""

    lines_need_headers: bool = True
    """True if Kafka messages must pass through `convert_message` before `read_lines`."""

    mapping: FieldMapping | None = None
    """The mapping that names the fields of the records; None if the format defines them."""

    columns: frozenset[str] = frozenset()
    """The names of the columns that the mapping reads from a table; an empty set without a mapping."""

    one_row: str = ""
    """The mapping's path that reads one row of an array with several rows, or "" if all rows are read."""

    @abstractmethod
    def read(self, data: bytes) -> list[Outcome]:
        """Read one JSON value, and return an outcome for each record in it.

        An outcome is a record, the fault of an unusable record, or None for a valid value without a record.
        """

    def doubt(self, fields: Mapping[str, msgspec.Raw]) -> str:
        """Return a message if a record with this format's marks (field names) may have another format, or "".

        Parameters
        ----------
        fields : mapping of str to Raw
            The undecoded fields of the record.
        """
        return ""

    def read_lines(self, data: bytes) -> list[Record] | Mixed | None:
        """Decode many lines at once, and return the record of each line.

        If the lines cannot be decoded together, for example because a line is no record of this format, the
        result is None. The caller then reads each line with `read`. This default always returns None.
        """
        return None

    def for_tasks(self, layouts: Sequence[TaskLayout]) -> Self:
        """Return a reader with the same settings for the configured tasks."""
        return self

    def convert_message(self, value: bytes, headers: Headers) -> bytes:
        """Return a Kafka message as JSON that `read` accepts.

        Parameters
        ----------
        value : bytes
            The value of the message.
        headers : Headers
            The headers of the message.
        """
        return value

    def convert_post(self, headers: Mapping[str, str], body: bytes) -> bytes | None:
        """Return the body of an HTTP request as one line of JSON, if the headers show that this is necessary.

        Return None otherwise. Then the content type determines how the body is read.

        Parameters
        ----------
        headers : mapping of str to str
            The headers of the request.
        body : bytes
        """
        return None

    def hint(self, fault: Fault, data: bytes | None) -> str:
        """Return a clause that explains where the format or the mapping expects the field of a fault, or "".

        Parameters
        ----------
        fault : Fault
        data : bytes or None
            The bytes of the record; None for a row of a table that is read by column.
        """
        return ""

    def reads_rows(self, names: Collection[str]) -> bool:
        """Return whether each row of a table with these columns is converted to JSON and read with `read`.

        Otherwise the table is read by column.
        """
        return bool(formats_of_table(names))

    def map_table(self, raw: RawTable) -> RawTable:
        """Return a table with columns that have the names of Blindsight's fields.

        The table is then read by column.
        """
        return raw

    def excluded_rows(self, raw: RawTable) -> frozenset[int]:
        """Return the indices of the valid rows without a record, in a table that is read by column."""
        return frozenset()

    def rows_left(self, raw: RawTable) -> int:
        """Return the number of rows that the mapping does not read in the arrays of a table's cells.

        The mapping reads one row of an array if it has a path such as `one_row`.
        """
        return 0


class PlainWire(Wire):
    """A reader of records in Blindsight's own format."""

    def __init__(self) -> None:
        self._decoder = msgspec.json.Decoder(Record)

    def read_lines(self, data: bytes) -> list[Record] | None:
        """Return the record of each line, or None if a line is not a record in Blindsight's own format."""
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
        """Return the records of many lines, if every line has scores and no field that the first line lacks.

        Return None otherwise, and if `data` is short.
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
"""The wire that reads only records in Blindsight's own format."""

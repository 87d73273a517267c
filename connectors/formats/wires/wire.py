"""How the bytes of one source become records: under our names, or wherever its mapping says.

A wire reads one JSON value at a time (`one`), or many at once where each line is one record (`lines`);
the second is what makes decoding quick, the first what finds out what is wrong with a record.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from copy import copy
from functools import lru_cache
from typing import Protocol, Self, runtime_checkable

import msgspec

from connectors.formats.decode.reread import read_again
from connectors.formats.decode.structs import Fault, Record, RowRecord, record_without
from connectors.formats.wires.cloudevents import Headers
from connectors.formats.wires.marks import formats_of_table
from monitor.base.records import TaskLayout

Outcome = tuple[bytes, Record | Fault | None]
"""The bytes of a record, and the record or what is wrong with it; None where they hold none, as they may."""

ERRORS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What `msgspec` raises for bytes that are none of its type."""


_MANY_BYTES = 1 << 13  # below, looking at the first record costs more than it saves
_FIELDS = Record.__struct_fields__


@lru_cache(maxsize=64)
def _decoder_without(absent: frozenset[str], scored: bool = False) -> msgspec.json.Decoder[Record]:
    return msgspec.json.Decoder(record_without(absent, scored))


class Mixed(list[Record | None]):
    """Records of lines that were decoded at once; None of each that `Wire.one` has to read."""


class ByShape:
    """A wire to which a record under our names is one, whatever stands beside it in a message."""


class Wire(Protocol):
    """Reads records from JSON."""

    @property
    def reads_labels(self) -> bool:
        """Whether a record may be a label, and no answer."""
        ...

    def lines(self, data: bytes) -> list[Record] | Mixed | None:
        """The records of lines, one a line; None where any is not as it should be."""
        ...

    def array(self, data: bytes) -> list[Record] | None:
        """The records of an array, one an element; None where any is not as it should be."""
        ...

    def one(self, data: bytes) -> list[Outcome]:
        """What one value, an object or not, holds."""
        ...

    def reads_rows(self, names: Collection[str]) -> bool:
        """Return whether `one` reads each row of a table with these columns as JSON."""
        ...

    def message(self, value: bytes, headers: Headers) -> bytes:
        """A message of Kafka that came with its headers, as JSON; only asked where a mapping needs them."""
        ...

    def posted(self, headers: Mapping[str, str], body: bytes) -> bytes | None:
        """A post that is one value whatever its content type, as JSON on a line; None for any other."""
        ...

    def passes_over(self, line: bytes) -> bool:
        """Whether a line holds no answer, and is no fault for that."""
        ...


@runtime_checkable
class FormatWire(Protocol):
    """A wire of a format: it knows where a name that is missing could stand."""

    def missing(self, fault: Fault, data: bytes) -> str:
        """The clause about where a name that a record lacks is looked for; "" where nothing is to be said."""
        ...


@runtime_checkable
class OfTasks(Protocol):
    """A wire that reads records better where it knows the tasks."""

    def in_order(self, layouts: Sequence[TaskLayout]) -> Wire:
        """The same, for these tasks."""
        ...


class WithoutHeaders:
    """The part of a wire to which nothing is said in headers."""

    def message(self, value: bytes, headers: Headers) -> bytes:
        """The value."""
        return value

    def posted(self, headers: Mapping[str, str], body: bytes) -> bytes | None:
        """None: a post is read by its content type."""
        return None


class OneByOne:
    """The part of a wire that reads values one by one; each value holds a record for each of its rows.

    An answer that names no model is of the only model that the only task lists.
    """

    _layouts: Sequence[TaskLayout] = ()

    def in_order(self, layouts: Sequence[TaskLayout]) -> Self:
        """Return a copy for these tasks."""
        found = copy(self)
        found._layouts = layouts
        return found

    def one(self, data: bytes) -> list[Outcome]:
        """Return a record for each row of one value."""
        outcomes = self._read(data)
        models = self._layouts[0].models if len(self._layouts) == 1 else ()
        if len(models) == 1:
            for _, outcome in outcomes:
                if isinstance(outcome, RowRecord) and outcome.model is None:
                    outcome.model = models[0]
        return outcomes

    def _read(self, data: bytes) -> list[Outcome]:
        raise NotImplementedError

    def lines(self, data: bytes) -> list[Record] | None:
        """None."""
        return None

    def array(self, data: bytes) -> list[Record] | None:
        """None."""
        return None

    def reads_rows(self, names: Collection[str]) -> bool:
        """Return whether a table is of a format, judged by the names of its columns."""
        return bool(formats_of_table(names))


class PlainWire(WithoutHeaders):
    """Records of SPEC section 3 under their own names."""

    reads_labels = True

    def __init__(self) -> None:
        self._decoder = msgspec.json.Decoder(Record)
        self._array = msgspec.json.Decoder(list[Record])

    def lines(self, data: bytes) -> list[Record] | None:
        """The records of lines, one a line."""
        if len(data) > _MANY_BYTES:
            # Most streams leave out the same fields in every record: their columns need not be gathered.
            try:
                return _decoder_without(self._absent_in_first(data)).decode_lines(data)
            except ERRORS:
                pass
        try:
            return self._decoder.decode_lines(data)
        except ERRORS:
            return None

    def scored(self, data: bytes) -> list[Record] | None:
        """The records of many lines that all have scores, and lack what the first one lacks; else None."""
        if len(data) <= _MANY_BYTES:
            return None
        try:
            absent = self._absent_in_first(data)
            return None if "scores" in absent else _decoder_without(absent, scored=True).decode_lines(data)
        except ERRORS:
            return None

    def _absent_in_first(self, data: bytes) -> frozenset[str]:
        """The fields that the first record lacks."""
        first = self._decoder.decode(data[: data.find(b"\n")])
        return frozenset(name for name in _FIELDS if getattr(first, name) is None)

    def array(self, data: bytes) -> list[Record] | None:
        """The records of an array, one an element."""
        try:
            return self._array.decode(data)
        except ERRORS:
            return None

    def reads_rows(self, names: Collection[str]) -> bool:
        """Return False: a table's columns are read, not its rows."""
        return False

    def passes_over(self, line: bytes) -> bool:
        """False: every line is a record."""
        return False

    def one(self, data: bytes) -> list[Outcome]:
        """The record that these bytes are."""
        try:
            return [(data, self._decoder.decode(data))]
        except ERRORS as error:
            return [(data, read_again(data, error))]


PLAIN = PlainWire()
"""The wire of a source that has no mapping."""

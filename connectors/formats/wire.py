"""How the bytes of one source become records: under our names, or wherever its mapping says.

A wire reads one JSON value at a time (`one`), or many at once where each line is one record (`lines`);
the second is what makes decoding quick, the first what finds out what is wrong with a record.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from connectors.formats.explain import explain_text
from connectors.formats.structs import Fault, Record

Outcome = tuple[bytes, Record | Fault]
"""The bytes of a record, and the record or what is wrong with it."""

ERRORS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What `msgspec` raises for bytes that are none of its type."""


class Wire(Protocol):
    """Reads records from JSON."""

    def lines(self, data: bytes) -> list[Record] | None:
        """The records of lines, one a line; None where any is not as it should be."""
        ...

    def array(self, data: bytes) -> list[Record] | None:
        """The records of an array, one an element; None where any is not as it should be."""
        ...

    def one(self, data: bytes) -> list[Outcome]:
        """What one value, an object or not, holds."""
        ...


class PlainWire:
    """Records of SPEC section 3 under their own names."""

    def __init__(self) -> None:
        self._decoder = msgspec.json.Decoder(Record)
        self._array = msgspec.json.Decoder(list[Record])

    def lines(self, data: bytes) -> list[Record] | None:
        """The records of lines, one a line."""
        try:
            return self._decoder.decode_lines(data)
        except ERRORS:
            return None

    def array(self, data: bytes) -> list[Record] | None:
        """The records of an array, one an element."""
        try:
            return self._array.decode(data)
        except ERRORS:
            return None

    def one(self, data: bytes) -> list[Outcome]:
        """The record that these bytes are."""
        try:
            return [(data, self._decoder.decode(data))]
        except ERRORS as error:
            return [(data, explain_text(data, error))]


PLAIN = PlainWire()
"""The wire of a source that has no mapping."""

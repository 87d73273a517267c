"""Reads posts to `/v1/observe/<source>` with the mapping or format of the named source.

The spool stores each line in an object that names the line's source, so that the line can be read again in
the same way. A line that names no source is read by the base wire, the reader that the `http` source has
otherwise.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from connectors.formats.decode.structs import Fault, Record
from connectors.formats.messages.wording import listing, nearest, shown
from connectors.formats.wires.cloudevents import Headers, is_json
from connectors.formats.wires.wire import ERRORS, Mixed, Outcome, Wire
from monitor.base.records import RejectReason, TaskLayout

_BEGIN = b'{"$observe":'


class _Line(msgspec.Struct, gc=False, rename={"name": "$observe"}):
    name: str
    record: msgspec.Raw


_LINE = msgspec.json.Decoder(_Line)


def observed_line(name: str, line: bytes) -> bytes:
    """Return a line wrapped in an object that names its source.

    Examples
    --------
    >>> observed_line("scorer", b'{"p": 0.5}')
    b'{"$observe":"scorer","record":{"p": 0.5}}'
    """
    return (
        _BEGIN + msgspec.json.encode(name) + b',"record":' + (line if is_json(line) else _text(line)) + b"}"
    )


class ObservedWire(Wire):
    """A reader of lines that name their source. Each line is read in the format of its source.

    Parameters
    ----------
    base : Wire
        The wire for lines that name no source.
    sources : mapping of str to Wire
        The wires by the name of the source.

    Examples
    --------
    >>> from connectors.formats.wires.mapped import MappedWire
    >>> from connectors.formats.wires.wire import PLAIN
    >>> from monitor.config.mapping import FieldMapping
    >>> wire = ObservedWire(PLAIN, {"scorer": MappedWire(FieldMapping(id="uuid", scores="p"))})
    >>> wire.read(observed_line("scorer", b'{"uuid": "a", "p": [0.25, 0.75]}'))[0][1].scores
    [0.25, 0.75]
    """

    lines_need_headers = False

    def __init__(self, base: Wire, sources: Mapping[str, Wire]) -> None:
        self.base, self.sources = base, sources
        self.one_row = next((wire.one_row for wire in (base, *sources.values()) if wire.one_row), "")

    def for_tasks(self, layouts: Sequence[TaskLayout]) -> ObservedWire:
        """Return a reader with the same settings for these tasks."""
        sources = {name: wire.for_tasks(layouts) for name, wire in self.sources.items()}
        return ObservedWire(self.base.for_tasks(layouts), sources)

    def read_lines(self, data: bytes) -> list[Record] | Mixed | None:
        """Return the record of each line; None for a line that must be read with `read`.

        Return None instead of a list if the lines cannot be decoded together.
        """
        if _BEGIN not in data:
            return self.base.read_lines(data)
        lines = data.split(b"\n")
        if not lines[-1]:
            lines.pop()
        mixed: list[Record | None] = [None] * len(lines)
        for wire, places, records in self._parted(lines):
            decoded = wire.read_lines(b"\n".join(records))
            if decoded is not None and len(decoded) == len(places):
                for place, record in zip(places, decoded, strict=True):
                    mixed[place] = record
        return Mixed(mixed)

    def reads_rows(self, names: Collection[str]) -> bool:
        """Return whether rows of a table with these columns are read as JSON.

        The base reader, for lines without the name of a source, decides.
        """
        return self.base.reads_rows(names)

    def convert_message(self, value: bytes, headers: Headers) -> bytes:
        """Return a Kafka message as JSON, converted by the reader for lines without the name of a source."""
        return self.base.convert_message(value, headers)

    def convert_post(self, headers: Mapping[str, str], body: bytes) -> bytes | None:
        """Return a post as a line of JSON, converted by the reader for lines without the name of a source.

        Posts to ``/v1/observe/<source>`` do not use this method: the reader of the named source converts
        them.
        """
        return self.base.convert_post(headers, body)

    def read(self, data: bytes) -> list[Outcome]:
        """Read one value in the format of the source that it names, and return the outcomes."""
        line = _opened(data)
        if line is None:
            return self.base.read(data)
        wire = self.sources.get(line.name)
        if wire is None:
            message = f"$.$observe: no source {shown(line.name)} is known any more; send the record again"
            return [(data, (RejectReason.WRONG_TYPE, message + nearest(line.name, list(self.sources))))]
        return [(data, outcome) for _, outcome in wire.read(bytes(line.record))]

    def hint(self, fault: Fault, data: bytes | None) -> str:
        """Return the clause about the field of a fault for the format of the record's source."""
        line = None if data is None else _opened(data)
        if line is None:
            return self.base.hint(fault, data)
        wire = self.sources.get(line.name)
        return "" if wire is None else wire.hint(fault, bytes(line.record))

    def _parted(self, lines: Sequence[bytes]) -> Iterable[tuple[Wire, list[int], list[bytes]]]:
        """Yield each wire with the indices and records of its lines."""
        parts: dict[str | None, tuple[list[int], list[bytes]]] = {}
        for place, data in enumerate(lines):
            line = _opened(data)
            record = data if line is None else bytes(line.record)
            places, records = parts.setdefault(None if line is None else line.name, ([], []))
            places.append(place)
            records.append(record)
        for name, (places, records) in parts.items():
            wire = self.base if name is None else self.sources.get(name)
            if wire is not None and all(each.startswith(b"{") for each in records):
                yield wire, places, records


def unknown_source(name: str, known: Iterable[str]) -> str:
    """Return the message about an unknown source name.

    Examples
    --------
    >>> unknown_source("scorr", ["scorer", "kserve"])
    'No source "scorr" is observed here; known are scorer, kserve; did you mean scorer?'
    """
    names = list(known)
    return f"No source {shown(name)} is observed here; known are {listing(names)}{nearest(name, names)}"


def _opened(data: bytes) -> _Line | None:
    """Return the content of a line that names a source, or None for another line."""
    if not data.startswith(_BEGIN):
        return None
    try:
        return _LINE.decode(data)
    except ERRORS:
        return None


def _text(line: bytes) -> bytes:
    """Return bytes that are not JSON as JSON text, which is rejected and shown unchanged."""
    return msgspec.json.encode(line.decode("utf-8", "replace"))

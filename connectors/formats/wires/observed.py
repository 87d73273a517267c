"""Posts to `/v1/observe/<source>`: lines that say by which mapping or format they are read.

A line is kept in the spool as it came, within an object that names its source, so that it is read again as it
was judged. What names none is read as ever.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from connectors.formats.decode.structs import Fault, Record
from connectors.formats.messages.hints import MISSING
from connectors.formats.messages.wording import listing, nearest, shown
from connectors.formats.wires.cloudevents import Headers, is_json
from connectors.formats.wires.mapped import MappedWire
from connectors.formats.wires.wire import ERRORS, ByShape, FormatWire, Mixed, OfTasks, Outcome, Wire
from monitor.base.records import RejectReason, TaskLayout

_BEGIN = b'{"$observe":'


class _Line(msgspec.Struct, gc=False, rename={"name": "$observe"}):
    name: str
    record: msgspec.Raw


_LINE = msgspec.json.Decoder(_Line)


def observed_line(name: str, line: bytes) -> bytes:
    """A line of the source of this name.

    Examples
    --------
    >>> observed_line("scorer", b'{"p": 0.5}')
    b'{"$observe":"scorer","record":{"p": 0.5}}'
    """
    return (
        _BEGIN + msgspec.json.encode(name) + b',"record":' + (line if is_json(line) else _text(line)) + b"}"
    )


class ObservedWire(ByShape):
    """Reads lines as the wire of the source that they name, and all else as another wire.

    Parameters
    ----------
    base : Wire
        Of lines that name no source.
    sources : mapping of str to Wire
    Examples
    --------
    >>> from connectors.formats.wires.wire import PLAIN
    >>> from monitor.config.mapping import FieldMapping
    >>> wire = ObservedWire(PLAIN, {"scorer": MappedWire(FieldMapping(id="uuid", scores="p"))})
    >>> wire.one(observed_line("scorer", b'{"uuid": "a", "p": [0.25, 0.75]}'))[0][1].scores
    [0.25, 0.75]
    """

    reads_labels = True

    def __init__(self, base: Wire, sources: Mapping[str, Wire]) -> None:
        self.base, self.sources = base, sources

    def in_order(self, layouts: Sequence[TaskLayout]) -> ObservedWire:
        """The same, for these tasks."""
        sources = {name: _of_tasks(wire, layouts) for name, wire in self.sources.items()}
        return ObservedWire(_of_tasks(self.base, layouts), sources)

    @property
    def one_row(self) -> str:
        """The path that reads one row where there may be several; "" where none does."""
        wires = (self.base, *self.sources.values())
        return next((wire.one_row for wire in wires if isinstance(wire, MappedWire) and wire.one_row), "")

    def lines(self, data: bytes) -> list[Record] | Mixed | None:
        """The records of lines; with gaps where they are read one by one."""
        if _BEGIN not in data:
            return self.base.lines(data)
        lines = data.split(b"\n")
        if not lines[-1]:
            lines.pop()
        found: list[Record | None] = [None] * len(lines)
        for wire, places, records in self._parted(lines):
            made = wire.lines(b"\n".join(records))
            if made is not None and len(made) == len(places):
                for place, record in zip(places, made, strict=True):
                    found[place] = record
        return Mixed(found)

    def array(self, data: bytes) -> list[Record] | None:
        """None where an element may name a source."""
        return None if _BEGIN in data else self.base.array(data)

    def reads_rows(self, names: Collection[str]) -> bool:
        """Return what the base returns."""
        return self.base.reads_rows(names)

    def message(self, value: bytes, headers: Headers) -> bytes:
        """As the base."""
        return self.base.message(value, headers)

    def posted(self, headers: Mapping[str, str], body: bytes) -> bytes | None:
        """As the base: posts that name a source ask its own wire."""
        return self.base.posted(headers, body)

    def passes_over(self, line: bytes) -> bool:
        """Whether a line holds no answer, and is no fault for that."""
        return self.one(line)[0][1] is None if line.startswith(_BEGIN) else self.base.passes_over(line)

    def one(self, data: bytes) -> list[Outcome]:
        """What one value holds."""
        line = _opened(data)
        if line is None:
            return self.base.one(data)
        wire = self.sources.get(line.name)
        if wire is None:
            message = f"$.$observe: no source {shown(line.name)} is known any more; send the record again"
            return [(data, (RejectReason.WRONG_TYPE, message + nearest(line.name, list(self.sources))))]
        return [(data, outcome) for _, outcome in wire.one(bytes(line.record))]

    def missing(self, fault: Fault, data: bytes) -> str:
        """What the wire that read a line says of a name that it lacks."""
        line = _opened(data)
        wire = self.base if line is None else self.sources.get(line.name)
        inner = data if line is None else bytes(line.record)
        if isinstance(wire, MappedWire):
            return wire.missing(fault[1], inner) if fault[0] in MISSING else wire.note(fault[1])
        return wire.missing(fault, inner) if isinstance(wire, FormatWire) else ""

    def _parted(self, lines: Sequence[bytes]) -> Iterable[tuple[Wire, list[int], list[bytes]]]:
        """Lines by the wire that reads them, with the places where they stand."""
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
    """The sentence about a name that no source has.

    Examples
    --------
    >>> unknown_source("scorr", ["scorer", "kserve"])
    'No source "scorr" is observed here; known are scorer, kserve; did you mean scorer?'
    """
    names = list(known)
    return f"No source {shown(name)} is observed here; known are {listing(names)}{nearest(name, names)}"


def _of_tasks(wire: Wire, layouts: Sequence[TaskLayout]) -> Wire:
    return wire.in_order(layouts) if isinstance(wire, OfTasks) else wire


def _opened(data: bytes) -> _Line | None:
    """What a line that names a source holds; None of any other."""
    if not data.startswith(_BEGIN):
        return None
    try:
        return _LINE.decode(data)
    except ERRORS:
        return None


def _text(line: bytes) -> bytes:
    """What is no JSON as a text, which is rejected, and shown as it came."""
    return msgspec.json.encode(line.decode("utf-8", "replace"))

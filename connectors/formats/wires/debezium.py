"""Debezium's change events: the row that a table has after a change, which is a record.

The envelope has `before`, `after`, `op` and `source`, within `payload` where the converter writes schemas
(debezium.io, "change event values"); in a CloudEvent it is the `data`. MongoDB's `after` is JSON as text.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from connectors.formats.decode.structs import Fault, Record
from connectors.formats.messages.explain import explain_text
from connectors.formats.wires.cloudevents import is_json
from connectors.formats.wires.mapped import MappedWire
from connectors.formats.wires.marks import formats_of_table
from connectors.formats.wires.responses import constants_of
from connectors.formats.wires.wire import ERRORS, Mixed, Outcome, Wire, WithoutHeaders
from monitor.base.records import RejectReason, TaskLayout
from monitor.config.mapping import FieldMapping

_WITH_A_ROW = ("c", "r", "u")
_WITHOUT = ("d", "t", "m")  # deletes, truncations, messages
_TEXTS = ("scores", "models", "groups", "features", "draw")  # databases without arrays keep them as JSON text


class _Envelope(msgspec.Struct, gc=False):
    op: str | None = None
    after: msgspec.Raw = msgspec.Raw()
    payload: msgspec.Raw = msgspec.Raw()


_ENVELOPE = msgspec.json.Decoder(_Envelope)


class DebeziumWire(WithoutHeaders):
    """Reads the row after a change; a row that was deleted, and a truncation, hold no record.

    Parameters
    ----------
    mapping : FieldMapping
        Its paths refer to the row. Without any the row is read as a record is without a mapping, and
        `constants` stand for what it lacks.

    Examples
    --------
    >>> wire = DebeziumWire(FieldMapping(format="debezium"))
    >>> row = b'{"id": 81, "label": "toxic"}'
    >>> wire.one(b'{"before": null, "after": ' + row + b', "op": "c"}')[0][1].label
    'toxic'
    >>> wire.one(b'{"before": ' + row + b', "after": null, "op": "d"}')[0][1] is None
    True
    """

    def __init__(self, mapping: FieldMapping, inner: Wire | None = None) -> None:
        self._mapping = mapping
        self._constants = {} if mapping.paths else constants_of(mapping)
        self._inner = inner or (MappedWire(mapping) if mapping.paths else _recognised(()))

    @property
    def reads_labels(self) -> bool:
        """Whether a row may be a label."""
        return self._inner.reads_labels

    def in_order(self, layouts: Sequence[TaskLayout]) -> DebeziumWire:
        """The same, for these tasks."""
        inner = self._inner.in_order(layouts) if isinstance(self._inner, MappedWire) else _recognised(layouts)
        return DebeziumWire(self._mapping, inner)

    def lines(self, data: bytes) -> list[Record] | Mixed | None:
        """The rows of lines; with gaps where one has none, or is read by itself."""
        try:
            envelopes = [_opened(each) for each in _ENVELOPE.decode_lines(data)]
        except ERRORS:
            return None
        rows = [bytes(each.after) if each.op in _WITH_A_ROW else b"" for each in envelopes]
        places = [i for i, row in enumerate(rows) if row.startswith(b"{") and b"\n" not in row]
        records = self._inner.lines(b"\n".join(rows[i] for i in places))
        if records is None or len(records) != len(places):
            return None
        found = Mixed([None] * len(rows))
        for i, record in zip(places, records, strict=True):
            found[i] = None if record is None else self._completed(record)
        return found

    def array(self, data: bytes) -> list[Record] | None:
        """None: each element is opened by itself."""
        return None

    def reads_rows(self, names: Collection[str]) -> bool:
        """Return whether a table holds changes, judged by the names of its columns."""
        return bool(formats_of_table(names))

    def passes_over(self, line: bytes) -> bool:
        """Whether a line is a change that leaves no row."""
        try:
            return _opened(_ENVELOPE.decode(line)).op in _WITHOUT
        except ERRORS:
            return False

    def one(self, data: bytes) -> list[Outcome]:
        """The record that the row after a change is; None of a change that leaves none."""
        try:
            envelope = _opened(_ENVELOPE.decode(data))
        except ERRORS as error:
            return [(data, explain_text(data, error))]
        if envelope.op is None:  # a record of Kafka Connect, whose converter writes its schema beside it
            row = bytes(envelope.payload)
            return [(data, outcome) for _, outcome in self._inner.one(row or data)]
        if envelope.op in _WITHOUT:
            return [(data, None)]
        row = bytes(envelope.after)
        if envelope.op not in _WITH_A_ROW or row in (b"", b"null"):
            message = "$.after: expected the row after a change of op c, r or u; let the connector write it"
            return [(data, (RejectReason.WRONG_TYPE, message))]
        outcomes = [outcome for _, outcome in self._inner.one(_unpacked(row))]
        return [(data, self._completed(each) if isinstance(each, Record) else each) for each in outcomes]

    def missing(self, fault: Fault, data: bytes) -> str:
        """The clause of a mapping about a path at which a row has nothing."""
        if not isinstance(self._inner, MappedWire):
            return ""
        try:
            return self._inner.missing(fault[1], bytes(_opened(_ENVELOPE.decode(data)).after))
        except ERRORS:
            return ""

    def _completed(self, record: Record) -> Record:
        for name, value in self._constants.items():
            if getattr(record, name) is None:
                setattr(record, name, value)
        return record


def _recognised(layouts: Sequence[TaskLayout]) -> Wire:
    # It reads the formats of this table, of which this is one.
    from connectors.formats.wires.recognised import RecognisedWire

    return RecognisedWire(layouts, inner=True)


def _opened(envelope: _Envelope) -> _Envelope:
    """The envelope itself, where a schema stands beside it."""
    if envelope.op is not None or not bytes(envelope.payload).startswith(b"{"):
        return envelope
    inner = _ENVELOPE.decode(envelope.payload)
    return envelope if inner.op is None else inner


def _unpacked(row: bytes) -> bytes:
    """A row whose JSON columns came as text, as they would be without; all else as it is."""
    try:
        if row.startswith(b'"'):
            return msgspec.json.decode(row, type=str).encode().replace(b"\n", b" ")
        fields = msgspec.json.decode(row, type=dict[str, msgspec.Raw])
        texts = {name: msgspec.json.decode(fields[name]) for name in _TEXTS if name in fields}
        packed = {
            name: msgspec.Raw(text.encode())
            for name, text in texts.items()
            if isinstance(text, str) and text[:1] in ("[", "{") and is_json(text.encode())
        }
        return msgspec.json.encode({**fields, **packed}) if packed else row
    except ERRORS:
        return row

"""Reads Debezium's change events. The record of an event is the row of a table after a change.

An event has an envelope with the fields `before`, `after`, `op` and `source` (debezium.io, "change event
values"). If the converter writes schemas, the envelope is in the field `payload`. In a CloudEvent, the
envelope is in the field `data`. For MongoDB, `after` is JSON text.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from connectors.formats.decode.structs import Fault, Record
from connectors.formats.messages.explain import explain_text
from connectors.formats.wires.cloudevents import is_json
from connectors.formats.wires.mapped import MappedWire
from connectors.formats.wires.responses import constants_of
from connectors.formats.wires.wire import ERRORS, Mixed, Outcome, Wire
from monitor.base.records import RejectReason, TaskLayout
from monitor.config.mapping import FieldMapping

_WITH_A_ROW = ("c", "r", "u")
_WITHOUT = ("d", "t", "m")  # deletes, truncations, messages
_TEXTS = ("scores", "models", "groups", "features", "draw")  # JSON text in databases without arrays


class _Envelope(msgspec.Struct, gc=False):
    op: str | None = None
    after: msgspec.Raw = msgspec.Raw()
    payload: msgspec.Raw = msgspec.Raw()


_ENVELOPE = msgspec.json.Decoder(_Envelope)


class DebeziumWire(Wire):
    """A reader of Debezium's change events. The record of an event is the row after the change.

    Events of deletes and truncations hold no record.

    Parameters
    ----------
    mapping : FieldMapping
        A mapping whose paths start at the row. Without paths, the format of the row is recognised by its
        fields, and `constants` fill in missing fields.

    Examples
    --------
    >>> wire = DebeziumWire(FieldMapping(format="debezium"))
    >>> row = b'{"id": 81, "label": "toxic"}'
    >>> wire.read(b'{"before": null, "after": ' + row + b', "op": "c"}')[0][1].label
    'toxic'
    >>> wire.read(b'{"before": ' + row + b', "after": null, "op": "d"}')[0][1] is None
    True
    """

    def __init__(self, mapping: FieldMapping, inner: Wire | None = None) -> None:
        self._mapping = mapping
        self._constants = {} if mapping.paths else constants_of(mapping)
        self._inner = inner or (MappedWire(mapping) if mapping.paths else _recognised())
        self.reads_labels = self._inner.reads_labels

    def for_tasks(self, layouts: Sequence[TaskLayout]) -> DebeziumWire:
        """Return a reader with the same settings for these tasks."""
        return DebeziumWire(self._mapping, self._inner.for_tasks(layouts))

    def read_lines(self, data: bytes) -> list[Record] | Mixed | None:
        """Return the row of each line, or None if not all lines can be decoded at once.

        The entry of a line is None if the line holds no row, or if the line must be read with `read`.
        """
        try:
            envelopes = [_opened(each) for each in _ENVELOPE.decode_lines(data)]
        except ERRORS:
            return None
        rows = [bytes(each.after) if each.op in _WITH_A_ROW else b"" for each in envelopes]
        places = [i for i, row in enumerate(rows) if row.startswith(b"{") and b"\n" not in row]
        records = self._inner.read_lines(b"\n".join(rows[i] for i in places))
        if records is None or len(records) != len(places):
            return None
        mixed = Mixed([None] * len(rows))
        for i, record in zip(places, records, strict=True):
            mixed[i] = None if record is None else self._completed(record)
        return mixed

    def read(self, data: bytes) -> list[Outcome]:
        """Return the outcomes of the row after a change.

        The outcome is None if the change left no row.
        """
        try:
            envelope = _opened(_ENVELOPE.decode(data))
        except ERRORS as error:
            return [(data, explain_text(data, error))]
        if envelope.op is None:  # a record of Kafka Connect, whose converter adds the schema
            row = bytes(envelope.payload)
            return [(data, outcome) for _, outcome in self._inner.read(row or data)]
        if envelope.op in _WITHOUT:
            return [(data, None)]
        row = bytes(envelope.after)
        if envelope.op not in _WITH_A_ROW or row in (b"", b"null"):
            message = "$.after: expected the row after a change of op c, r or u; let the connector write it"
            return [(data, (RejectReason.WRONG_TYPE, message))]
        outcomes = [outcome for _, outcome in self._inner.read(_unpacked(row))]
        return [(data, self._completed(each) if isinstance(each, Record) else each) for each in outcomes]

    def hint(self, fault: Fault, data: bytes | None) -> str:
        """Return a clause that names the mapping's path at which the row has no value, or ""."""
        if not isinstance(self._inner, MappedWire):
            return ""
        try:
            row = b"" if data is None else bytes(_opened(_ENVELOPE.decode(data)).after)
        except ERRORS:
            return ""
        return self._inner.missing(fault[1], row)

    def _completed(self, record: Record) -> Record:
        for name, value in self._constants.items():
            if getattr(record, name) is None:
                setattr(record, name, value)
        return record


def _recognised() -> Wire:
    # Imported here, because RecognisedWire loads the wires of all formats, this one included.
    from connectors.formats.wires.recognised import RecognisedWire

    return RecognisedWire(inner=True)


def _opened(envelope: _Envelope) -> _Envelope:
    """Return the envelope within the payload beside a schema, or the envelope itself."""
    if envelope.op is not None or not bytes(envelope.payload).startswith(b"{"):
        return envelope
    inner = _ENVELOPE.decode(envelope.payload)
    return envelope if inner.op is None else inner


def _unpacked(row: bytes) -> bytes:
    """Return a row with JSON columns that are text replaced by their JSON, and another row unchanged."""
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

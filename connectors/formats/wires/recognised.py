"""The wire of a source without a mapping, which recognises the format of each record by its fields.

Records in Blindsight's own format are read together in one call. A record that has no field of an answer or a
label is checked for the marks of other formats. The marks of a format are names of fields
(`monitor.base.registry`). A record that fits two formats is rejected with a message that names both.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from operator import attrgetter

import msgspec

from connectors.formats.decode.structs import Fault, Record, without
from connectors.formats.wires.cloudevents import Headers, http_attributes, kafka_attributes
from connectors.formats.wires.kserve import TENSORS_HEADER
from connectors.formats.wires.marks import ONE_IS_OURS, OURS, formats_of, may_have_a_mark
from connectors.formats.wires.wire import ERRORS, PLAIN, Mixed, Outcome, Wire
from monitor.base.records import RejectReason, TaskLayout
from monitor.base.registry import FORMATS, load
from monitor.config.mapping import FieldMapping

_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_BENTOML = frozenset({"timestamp", "request_id", "trace_id"})  # users name the other columns
_EVENTS = "kserve"  # the format of events in headers


class RecognisedWire(Wire):
    """A reader of records in Blindsight's own format and in every format that is recognised by its fields.

    Parameters
    ----------
    layouts : sequence of TaskLayout, optional
        The configured tasks. If there is one task and it lists one model, answers that name no model belong
        to this model.
    inner : bool
        True if the records are wrapped in records of another format. Then formats that wrap records are
        excluded.

    Examples
    --------
    >>> wire = RecognisedWire([TaskLayout("toxicity", ("ok", "toxic"), models=("erm",))])
    >>> [(record.id, record.model) for _, record in wire.read(b'{"id": "r", "predictions": [[0.25, 0.75]]}')]
    [('r:0', 'erm')]
    """

    lines_need_headers = False

    def __init__(self, layouts: Sequence[TaskLayout] = (), inner: bool = False) -> None:
        self._layouts, self._inner = layouts, inner
        self._wires: dict[str, Wire] = {}

    def for_tasks(self, layouts: Sequence[TaskLayout]) -> RecognisedWire:
        """Return a reader with the same settings for these tasks."""
        return RecognisedWire(layouts, self._inner)

    def read_lines(self, data: bytes) -> list[Record] | Mixed | None:
        """Return the record of each line; None for a line that must be read with `read`.

        Return None instead of a list if the lines cannot be decoded together.
        """
        if (scored := PLAIN.scored(data)) is not None:
            return scored
        records = PLAIN.read_lines(data)
        if records is None or not (foreign := _foreign(records)):
            return records
        if not may_have_a_mark(data, self._inner):
            return records
        pieces, mixed = data.split(b"\n"), Mixed(records)
        held: dict[str, list[int]] = {}
        for i in foreign:
            mixed[i] = None
            tag = self.format_of(pieces[i]) if len(pieces) >= len(records) else None
            if tag is not None and FORMATS[tag].holds_records:
                held.setdefault(tag, []).append(i)
        for tag, places in held.items():
            within = self._wire(tag).read_lines(b"\n".join(pieces[i] for i in places))
            if within is not None and len(within) == len(places):
                for i, record in zip(places, within, strict=True):
                    mixed[i] = record
        return mixed

    def read(self, data: bytes) -> list[Outcome]:
        """Read one value of any format, and return an outcome for each record in it."""
        fields = _fields_of(data)
        if fields is None or not ONE_IS_OURS.isdisjoint(fields):
            return PLAIN.read(data)
        formats = self._formats(fields)
        if not formats:
            return PLAIN.read(data)
        if len(formats) > 1:
            choice = " or ".join(formats)
            message = f"$: this may be a record of the formats {choice}: say which with mapping.format"
            return [(data, (RejectReason.WRONG_TYPE, message))]
        if "specversion" in fields and (within := self._within(fields)) is not None:
            return [(data, outcome) for outcome in within]
        wire = self._wire(formats[0])
        if message := wire.doubt(fields):
            return [(data, (RejectReason.WRONG_TYPE, message))]
        return wire.read(data)

    def convert_message(self, value: bytes, headers: Headers) -> bytes:
        """Return a Kafka message as JSON.

        Events in binary mode and responses that are not JSON are converted.
        """
        if kafka_attributes(headers) and _is_ours(value):
            return value
        return self._wire(_EVENTS).convert_message(value, headers)

    def convert_post(self, headers: Mapping[str, str], body: bytes) -> bytes | None:
        """Return an event in binary mode, or binary tensors, as a line of JSON; None for other posts."""
        if (TENSORS_HEADER not in headers and not http_attributes(headers)) or _is_ours(body):
            return None
        return self._wire(_EVENTS).convert_post(headers, body)

    def hint(self, fault: Fault, data: bytes | None) -> str:
        """Return a clause about the field that is missing from a record of a known format, or ""."""
        if data is None:
            return ""
        if fault[0] in (RejectReason.NO_SCORES, RejectReason.NO_MODEL) and _is_bentoml(data):
            return (
                "; this looks like BentoML's log, whose columns have names of their own and whose times have "
                "no zone: name them in mapping, with time_zone and, for ids as its headers have them, "
                "id_hex_digits: 16"
            )
        tag = self.format_of(data) if fault[0] is RejectReason.NO_MODEL else None
        if tag is None:
            return ""
        return (
            f"; a record of the format {tag} need not name it: list one model under the task's models, or "
            f"name it in mapping.constants.model, beside format: {tag}"
        )

    def format_of(self, data: bytes) -> str | None:
        """Return the format that the names of a record's fields show.

        Return None if no format or several formats fit, or if the record is in Blindsight's own format.
        """
        fields = _fields_of(data)
        if fields is None or not ONE_IS_OURS.isdisjoint(fields):
            return None
        formats = self._formats(fields)
        return formats[0] if len(formats) == 1 else None

    def _within(self, event: Mapping[str, msgspec.Raw]) -> list[Record | Fault | None] | None:
        """Return the outcomes of the data of an event, or None.

        The data must be a record with our fields, or a record of a format that wraps one.
        """
        data = bytes(event.get("data", b""))
        fields = _fields_of(data)
        if fields is None:
            return None
        if not ONE_IS_OURS.isdisjoint(fields):
            return [_own_within(event, data)]
        held = [tag for tag in self._formats(fields) if FORMATS[tag].holds_records]
        return [outcome for _, outcome in self._wire(held[0]).read(data)] if held else None

    def _formats(self, fields: Mapping[str, msgspec.Raw]) -> list[str]:
        return formats_of(fields.keys(), self._inner)

    def _wire(self, tag: str) -> Wire:
        wire = self._wires.get(tag)
        if wire is None:
            wire = load(FORMATS[tag].path)(FieldMapping(format=tag)).for_tasks(self._layouts)
            self._wires[tag] = wire
        return wire


def _is_bentoml(data: bytes) -> bool:
    fields = _fields_of(data)
    return fields is not None and fields.keys() >= _BENTOML


def _is_ours(value: bytes) -> bool:
    """Return whether these bytes are a record with our fields."""
    fields = _fields_of(value)
    return fields is not None and not ONE_IS_OURS.isdisjoint(fields)


def _own_within(event: Mapping[str, msgspec.Raw], data: bytes) -> Record | Fault | None:
    """Return the record with our fields in the data of an event, or its fault.

    The record gets the id and time of the event if it lacks them.
    """
    outcome = PLAIN.read(data)[0][1]
    if isinstance(outcome, Record):
        of_event = _decoded_texts(event, ("id", "time"))
        for name in of_event:
            if getattr(outcome, name) is None:
                setattr(outcome, name, of_event[name])
    return outcome


def _decoded_texts(fields: Mapping[str, msgspec.Raw], names: Sequence[str]) -> dict[str, str]:
    """Return the values of those of these fields that are text."""
    texts = {}
    for name in names:
        with suppress(*ERRORS):
            texts[name] = msgspec.json.decode(fields.get(name, b"null"), type=str)
    return texts


def _foreign(records: Sequence[Record]) -> list[int]:
    """Return the indices of records without any field that a record of ours needs."""
    if not records:
        return []
    names = [name for name in OURS if name not in without(type(records[0]))]
    left: Sequence[int] = range(len(records))
    for take in map(attrgetter, names):
        left = [i for i in left if take(records[i]) is None]
        if not left:
            break
    return list(left)


def _fields_of(data: bytes) -> dict[str, msgspec.Raw] | None:
    """Return the fields of an object as raw JSON, or None for another value."""
    try:
        return _FIELDS.decode(data)
    except ERRORS:
        pass
    try:  # Python writes NaN, which is no JSON, and reads it again
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    return {name: msgspec.Raw(json.dumps(each).encode()) for name, each in value.items()}

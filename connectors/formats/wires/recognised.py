"""Records of any format, each told by its fields: what a source without a mapping reads.

A record under our names is read as ever, in one call with the others. Only what has none of the fields of an
answer or of a label is looked at again: the formats' marks, in `monitor.base.registry`, tell whose it is.
Where two may be meant, it is rejected with a sentence that names the choice.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from operator import attrgetter
from typing import Protocol, runtime_checkable

import msgspec

from connectors.formats.decode.structs import Fault, Record, without
from connectors.formats.wires.cloudevents import Headers, http_attributes, kafka_attributes
from connectors.formats.wires.kserve import TENSORS_HEADER
from connectors.formats.wires.marks import ONE_IS_OURS, OURS, formats_of, formats_of_table
from connectors.formats.wires.wire import ERRORS, PLAIN, ByShape, Mixed, OfTasks, Outcome, Wire
from monitor.base.records import RejectReason, TaskLayout
from monitor.base.registry import FORMATS, load
from monitor.config.mapping import FieldMapping

_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_BENTOML = frozenset({"timestamp", "request_id", "trace_id"})  # beside columns of names that its user chose
_EVENTS = "kserve"  # the format of what headers tell


@runtime_checkable
class Doubting(Protocol):
    """A wire that looks closer at what has its marks."""

    def doubt(self, fields: Mapping[str, msgspec.Raw]) -> str:
        """Why a record may be something else; "" where there is no doubt."""
        ...


class RecognisedWire(ByShape):
    """Reads records under our names, and those of every format that has marks.

    Parameters
    ----------
    layouts : sequence of TaskLayout, optional
        An answer of a format that names no model is of the only model that the only task lists.
    inner : bool
        Whether records stand within those of a format, which are then not looked for.

    Examples
    --------
    >>> wire = RecognisedWire([TaskLayout("toxicity", ("ok", "toxic"), models=("erm",))])
    >>> [(record.id, record.model) for _, record in wire.one(b'{"id": "r", "predictions": [[0.25, 0.75]]}')]
    [('r:0', 'erm')]
    """

    reads_labels = True

    def __init__(self, layouts: Sequence[TaskLayout] = (), inner: bool = False) -> None:
        self._layouts, self._inner = layouts, inner
        self._wires: dict[str, Wire] = {}
        self._doubting: dict[str, Doubting] = {}

    def in_order(self, layouts: Sequence[TaskLayout]) -> RecognisedWire:
        """The same, for these tasks."""
        return RecognisedWire(layouts, self._inner)

    def lines(self, data: bytes) -> list[Record] | Mixed | None:
        """The records of lines; with gaps where one is not under our names."""
        if (scored := PLAIN.scored(data)) is not None:
            return scored
        records = PLAIN.lines(data)
        if records is None or not (foreign := _foreign(records)):
            return records
        pieces, found = data.split(b"\n"), Mixed(records)
        held: dict[str, list[int]] = {}
        for i in foreign:
            found[i] = None
            tag = self.format_of(pieces[i]) if len(pieces) >= len(records) else None
            if tag is not None and FORMATS[tag].holds_records:
                held.setdefault(tag, []).append(i)
        for tag, places in held.items():
            within = self._wire(tag).lines(b"\n".join(pieces[i] for i in places))
            if within is not None and len(within) == len(places):
                for i, record in zip(places, within, strict=True):
                    found[i] = record
        return found

    def reads_rows(self, names: Collection[str]) -> bool:
        """Return whether a table is of a format, judged by the names of its columns."""
        return bool(formats_of_table(names))

    def array(self, data: bytes) -> list[Record] | None:
        """The records of an array, where all are under our names."""
        records = PLAIN.array(data)
        return None if records is None or _foreign(records) else records

    def one(self, data: bytes) -> list[Outcome]:
        """What one value holds, of whatever format it is."""
        fields = _fields_of(data)
        if fields is None or not ONE_IS_OURS.isdisjoint(fields):
            return PLAIN.one(data)
        found = self._formats(fields)
        if not found:
            return PLAIN.one(data)
        if len(found) > 1:
            choice = " or ".join(found)
            message = f"$: this may be a record of the formats {choice}: say which with mapping.format"
            return [(data, (RejectReason.WRONG_TYPE, message))]
        if "specversion" in fields and (within := self._within(fields)) is not None:
            return [(data, outcome) for outcome in within]
        wire = self._wire(found[0])
        if found[0] in self._doubting and (message := self._doubting[found[0]].doubt(fields)):
            return [(data, (RejectReason.WRONG_TYPE, message))]
        return wire.one(data)

    def message(self, value: bytes, headers: Headers) -> bytes:
        """A message of Kafka as JSON: an event in binary mode, or a response that is not JSON."""
        if kafka_attributes(headers) and _is_ours(value):
            return value
        return self._wire(_EVENTS).message(value, headers)

    def posted(self, headers: Mapping[str, str], body: bytes) -> bytes | None:
        """A post that is one value whatever its content type, as JSON on a line; None for any other."""
        if (TENSORS_HEADER not in headers and not http_attributes(headers)) or _is_ours(body):
            return None
        return self._wire(_EVENTS).posted(headers, body)

    def passes_over(self, line: bytes) -> bool:
        """Whether a line is of a format, and holds no answer."""
        tag = self.format_of(line)
        if tag is None:
            return False
        return self._wire(tag).passes_over(line) if tag != _EVENTS else self.one(line)[0][1] is None

    def missing(self, fault: Fault, data: bytes) -> str:
        """The clause about a name that a record of a format does not give; "" of a record under our names."""
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
        """The only format whose marks a record has; None of one under our names, and of all else."""
        fields = _fields_of(data)
        if fields is None or not ONE_IS_OURS.isdisjoint(fields):
            return None
        found = self._formats(fields)
        return found[0] if len(found) == 1 else None

    def _within(self, event: Mapping[str, msgspec.Raw]) -> list[Record | Fault | None] | None:
        """What an event's data are, where they are a record under our names, or hold one; else None."""
        data = bytes(event.get("data", b""))
        fields = _fields_of(data)
        if fields is None:
            return None
        if not ONE_IS_OURS.isdisjoint(fields):
            return [_own_within(event, data)]
        held = [tag for tag in self._formats(fields) if FORMATS[tag].holds_records]
        return [outcome for _, outcome in self._wire(held[0]).one(data)] if held else None

    def _formats(self, fields: Mapping[str, msgspec.Raw]) -> list[str]:
        return formats_of(fields.keys(), self._inner)

    def _wire(self, tag: str) -> Wire:
        wire = self._wires.get(tag)
        if wire is None:
            wire = load(FORMATS[tag].path)(FieldMapping(format=tag))
            if isinstance(wire, OfTasks):
                wire = wire.in_order(self._layouts)
            if isinstance(wire, Doubting):
                self._doubting[tag] = wire
            self._wires[tag] = wire
        return wire


def _is_bentoml(data: bytes) -> bool:
    fields = _fields_of(data)
    return fields is not None and fields.keys() >= _BENTOML


def _is_ours(value: bytes) -> bool:
    """Whether these bytes are a record under our names."""
    fields = _fields_of(value)
    return fields is not None and not ONE_IS_OURS.isdisjoint(fields)


def _own_within(event: Mapping[str, msgspec.Raw], data: bytes) -> Record | Fault | None:
    """The record under our names that is an event's data, with the event's id and time where it has none."""
    outcome = PLAIN.one(data)[0][1]
    if isinstance(outcome, Record):
        told = _decoded_texts(event, ("id", "time"))
        for name in told:
            if getattr(outcome, name) is None:
                setattr(outcome, name, told[name])
    return outcome


def _decoded_texts(fields: Mapping[str, msgspec.Raw], names: Sequence[str]) -> dict[str, str]:
    """Those of these fields that are text."""
    found = {}
    for name in names:
        with suppress(*ERRORS):
            found[name] = msgspec.json.decode(fields.get(name, b"null"), type=str)
    return found


def _foreign(records: Sequence[Record]) -> list[int]:
    """Which of these records have none of the fields that one of ours has."""
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
    """The fields of an object, not decoded; None of anything else."""
    try:
        return _FIELDS.decode(data)
    except ERRORS:
        pass
    try:  # Python writes NaN, which is no JSON: it is read as far as it can be
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    return {name: msgspec.Raw(json.dumps(each).encode()) for name, each in value.items()}

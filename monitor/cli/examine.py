"""Examines a few records of a source: counts, faults, and mappings that make more records usable."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import yaml

from connectors.formats.decode.decoder import Decoder
from connectors.formats.decode.names import is_no_value, same_name, text_of
from connectors.formats.decode.reread import lenient_value
from connectors.formats.decode.structs import Record
from connectors.formats.files.table_json import json_cell, json_rows
from connectors.formats.files.table_rows import is_column
from connectors.formats.messages.proposal import (
    FEWEST_DIVIDED,
    NAME_OF_MODEL,
    looks_scored,
    named_path,
    propose,
    spelled_scores,
    vectors,
    written,
)
from connectors.formats.messages.translations import translated_labels
from connectors.formats.wires.choice import RECOGNISED, compiled
from connectors.formats.wires.kserve import KserveWire
from connectors.formats.wires.mapped import MappedWire
from connectors.formats.wires.marks import ONE_IS_OURS, formats_of
from connectors.formats.wires.payloads import odd_payloads
from connectors.formats.wires.wire import Wire
from monitor.base.records import NO_ID, Batch, Chunk, TaskLayout
from monitor.base.source import Raw, RawBlock, RawMessages, RawTable, records_in
from monitor.config.mapping import FieldMapping, lookup, parse_field_path
from monitor.engine.reference import Reference, refuse_reversed_classes

_FEWEST = 5  # vectors of scores that are needed to judge whether they are probabilities
_FEWEST_LABELS = 10  # labels that are needed to judge whether they repeat the predictions
_MOST_NAMES = 10  # names of fields in one sentence
_NOTHING = "no mapping is known that reads them: see docs/records.md for what a record needs"


@dataclass(frozen=True, slots=True)
class Proposal:
    """A mapping and the result of its trial on the records.

    Parameters
    ----------
    mapping : FieldMapping
    chunk : Chunk
        The records read with the mapping.
    before : Chunk
        The records as the source reads them now.
    """

    mapping: FieldMapping
    chunk: Chunk
    before: Chunk

    @property
    def used(self) -> int:
        """The number of answers and labels that the mapping makes usable."""
        return _used(self.chunk)

    @property
    def answers_first(self) -> tuple[int, int]:
        """The rank of the mapping: the number of answers, then the number of answers and labels.

        The number of answers is compared first, so that an answer that is read as a label does not count as a
        gain.
        """
        return self.answers, self.used

    @property
    def labelled(self) -> int:
        """The number of answers with a label in the same record."""
        return _labelled(self.chunk)

    @property
    def with_id(self) -> int:
        """The number of answers with an id, which labels can join."""
        return sum(int((batch.key != NO_ID).sum()) for batch in self.chunk.batches)

    @property
    def answers(self) -> int:
        """The number of answers that are usable with the mapping."""
        return sum(map(len, self.chunk.batches))

    @property
    def labels(self) -> int:
        """The number of usable labels, in separate records and in the records of answers."""
        return sum(map(len, self.chunk.labels)) + self.labelled

    @property
    def keys(self) -> dict[str, Any]:
        """The mapping as the keys of a configuration, with placeholders for unknown values."""
        return written(self.mapping)

    def losses(self) -> Iterable[str]:
        """Yield a clause for each kind of record that is usable now, but not with the mapping."""
        now = {(reject.partition, reject.position) for reject in self.before.rejects}
        lost = [each for each in self.chunk.rejects if (each.partition, each.position) not in now]
        if lost:
            clause = f"{_times(len(lost), 'record')} that can be used now cannot any more"
            yield f"{clause} (give them a source of their own; {lost[0].message})"
        for left in _left(self.chunk):
            yield f"it {left}; write one row a record"

    def lines(self, records: int, joins: str, losses: Sequence[str]) -> Iterable[str]:
        """Yield the result of the trial and the mapping. A mapping counts as good only if no record is lost.

        Parameters
        ----------
        records : int
            The number of records in the trial.
        joins : str
            A clause about the labels that join answers; "" without answers or without labels.
        losses : sequence of str
            Clauses about losses other than records, such as joins of labels.
        """
        yield (
            f"tried on {_times(records, 'record')}: {_times(self.answers, 'answer')}, "
            f"{self.with_id} with an id, {_times(self.labels, 'label')}, "
            f"{_times(self.chunk.rejected, 'record')} that cannot be "
            f"used{joins}"
        )
        lost = "; ".join((*self.losses(), *losses))
        begin = "not good yet, as it loses some: with" if lost else "with"
        end = f", but {lost}" if lost else ""
        text = yaml.safe_dump({"mapping": self.keys}, sort_keys=False, width=100)
        indented = "\n".join(f"    {line}" for line in text.splitlines())
        gain = f"{self.used} can be used instead of {_used(self.before)}"
        if self.used == _used(self.before) and self.labelled > _labelled(self.before):  # in answers' records
            gain = f"{_times(self.labelled, 'label')} can be used instead of {_labelled(self.before)}"
        yield f"{begin} this mapping {gain}{end}:\n{indented}"


def _times(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


@dataclass(frozen=True, slots=True)
class Examination:
    """The result of examining records of a source: counts, faults, and mappings that would help.

    Parameters
    ----------
    answers, labels, rejected : int
        The numbers of usable answers, of usable labels and of unusable records.
    lines : tuple of str
        The sentences to print.
    wrong : bool
        True if the source should not be used with its present settings.
    chunk : Chunk
        The decoded records.
    records : int
        The number of records.
    proposals : tuple of Proposal
        The mappings that make more records usable, the best mapping first.
    """

    answers: int
    labels: int
    rejected: int
    lines: tuple[str, ...]
    wrong: bool
    chunk: Chunk
    records: int = 0
    proposals: tuple[Proposal, ...] = ()

    @property
    def every_label(self) -> int:
        """The number of usable labels, in separate records and in the records of answers."""
        return self.labels + _labelled(self.chunk)


def examine(
    raws: Sequence[Raw],
    layouts: Sequence[TaskLayout],
    name: str,
    wire: Wire,
    read: Callable[[Wire], Sequence[Raw]] | None = None,
) -> Examination:
    """Decode records of a source as `run` does, and return their counts, their faults and helpful mappings.

    Parameters
    ----------
    raws : sequence of Raw
        Some records; the labels among the records are joined to the answers by id.
    layouts : sequence of TaskLayout
    name : str
        Name of the source.
    wire : Wire
        The wire that is configured for the source.
    read : callable, optional
        A function from a wire to the same records in the form that this wire needs. If None, every wire gets
        `raws`.
    """
    chunk = Decoder(layouts, name, wire=wire, clock=time.time).decode(raws)
    values = list(records_of(raws, wire))
    left = [f"the mapping {left}" for left in _left(chunk)]
    mistaken, absent = _mistaken(chunk, values), _absent_features(chunk, layouts)
    lines = [*_held(chunk), *mistaken, *left, *faults(chunk), *(odd_payloads(raws) if chunk.rejects else ())]
    lines += [*absent, *_suspicious(chunk), *_unread(raws, values, wire, chunk)]
    shaped = [wire.shaped(value) for value in values] if isinstance(wire, MappedWire) else values
    odd = no_probabilities([value.get("scores") for value in shaped])
    lines += odd
    proposals: tuple[Proposal, ...] = ()
    if (chunk.rejects or left or mistaken) and not odd and not isinstance(wire, KserveWire):
        proposals = tuple(_proposals(read or (lambda _: raws), values, layouts, name, chunk, wire.mapping))
        if not proposals:
            lines += _odd_elsewhere(values, layouts) or [_NOTHING]
    return Examination(
        answers=sum(map(len, chunk.batches)),
        labels=sum(map(len, chunk.labels)),
        rejected=chunk.rejected,
        lines=tuple(lines),
        wrong=bool(chunk.rejects or left or odd or mistaken or absent),
        chunk=chunk,
        records=sum(map(records_in, raws)),
        proposals=proposals,
    )


def _held(chunk: Chunk) -> Iterable[str]:
    answers = sum(map(len, chunk.batches))
    labelled = sum(int((batch.label >= 0).sum()) for batch in chunk.batches)
    labels = sum(map(len, chunk.labels))
    yield f"{answers} answers, {labels + labelled} labels, {chunk.rejected} records that cannot be used"
    for batch in chunk.batches:
        often = Counter(np.asarray(batch.models)[batch.model].tolist())
        models = ", ".join(f"{model} ({times})" for model, times in often.most_common(5))
        yield f"task {batch.task}: models {models}"
        if np.isnan(batch.time).any():
            yield "some answers have no time: they count as of their arrival"
        if (batch.key == NO_ID).any():
            yield "some answers have no id: no label can be joined to those"


def _mistaken(chunk: Chunk, values: Sequence[Any]) -> list[str]:
    """Return a sentence about records that are read as labels but look like answers."""
    labels = sum(map(len, chunk.labels))
    if chunk.batches or not labels or not looks_scored(values) or named_path("model", values) is None:
        return []
    spelled = spelled_scores(values)
    return [
        f"all {labels} are read as labels, though they name a model and have fields of scores: "
        + (spelled or "their scores may be under another name, and their label may be the model's own answer")
    ]


def _absent_features(chunk: Chunk, layouts: Sequence[TaskLayout]) -> list[str]:
    """Return a sentence for each feature of a task that no answer has."""
    names = {layout.name: [name for name, _ in layout.features] for layout in layouts}
    return [
        f"task {batch.task}: no answer has the feature {name}, without which the estimates are not trusted: "
        f"send it as features.{name}, or name its field in mapping.features.{name}"
        for batch in chunk.batches
        for name, absent in zip(names[batch.task], np.isnan(batch.features).all(axis=0), strict=True)
        if absent
    ]


def _suspicious(chunk: Chunk) -> Iterable[str]:
    """Yield a sentence on each doubtful property of usable answers."""
    answers = sum(map(len, chunk.batches))
    if repeats := repeated_ids(chunk.batches):
        yield (
            f"{repeats} of {answers} answers have the id of an earlier one of their model: they do not count "
            "(duplicates); give each answer an id of its own, not that of its user"
        )
    for batch in chunk.batches:
        if repeats_predictions(batch):
            known = int((batch.label >= 0).sum())
            yield (
                f"task {batch.task}: the label of each of {known} answers follows from the prediction or the "
                "scores: is it what the model answered? Then it is no truth, and belongs in prediction"
            )
        if batch.certain.all():
            yield (
                f"task {batch.task}: each score is exactly 0 or 1, so that every answer gets the same "
                "confidence; send probabilities before rounding"
            )


def repeated_ids(batches: Sequence[Batch]) -> int:
    """Return the number of answers with the id of an earlier answer of their model."""
    repeated = 0
    for batch in batches:
        known = np.flatnonzero(batch.key != NO_ID)
        pairs = np.stack([batch.key[known], batch.model[known].astype(np.uint64)])
        repeated += len(known) - np.unique(pairs, axis=1).shape[1]
    return repeated


def repeats_predictions(batch: Batch) -> bool:
    """Return whether the labels repeat the model's predictions, which true labels hardly ever do.

    Numbers are repetitions if they are equal to the predicted numbers. The order of the classes may be
    unknown. Therefore labels count as repetitions if each predicted class corresponds to exactly one label,
    or if a threshold on the scores separates the two labels of many rows. If there are fewer than ten labels,
    if only one class occurs, or if an answer has a single score, return False.
    """
    known = np.flatnonzero(batch.label >= 0)
    if batch.numbers.shape[1] and len(known) >= _FEWEST_LABELS:
        return bool((batch.numbers[known, 0] == batch.numbers[known, 1]).all())
    if len(known) < _FEWEST_LABELS or batch.scores.shape[1] < 2:
        return False
    label = batch.label[known]
    for predicted in (batch.scores[known].argmax(axis=1), batch.predicted[known]):
        pairs = np.unique(np.stack([predicted, label]), axis=1).shape[1]
        if 1 < pairs == len(np.unique(predicted)) == len(np.unique(label)):
            return True
    second, is_second = batch.scores[known, -1], label == 1
    if batch.scores.shape[1] != 2 or len(known) < FEWEST_DIVIDED or len(np.unique(label)) != 2:
        return False
    low, high = sorted((second[is_second], second[~is_second]), key=np.max)
    return bool(low.max() < high.min())


def _unread(raws: Sequence[Raw], values: Sequence[Any], wire: Wire, chunk: Chunk) -> Iterable[str]:
    """Yield a sentence on the fields of the records that are not read."""
    if not chunk.batches:
        return
    names = unread_fields(raws, values, wire)
    if names:
        more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
        yield f"fields that are not read: {', '.join(names[:_MOST_NAMES])}{more}"


def unread_fields(raws: Sequence[Raw], values: Sequence[Any], wire: Wire) -> list[str]:
    """Return the names of the records' fields, or of a table's columns, that a wire does not read."""
    mapped = wire.mapping is not None
    if mapped:
        read = wire.columns
    elif any(isinstance(raw, RawTable) and wire.reads_rows(raw.columns) for raw in raws) or any(
        formats_of(value) and ONE_IS_OURS.isdisjoint(value) for value in values[:1]
    ):
        return []  # a serving stack's format, which reads all the fields that it needs
    else:
        read = frozenset(Record.__struct_fields__)
    tables = any(isinstance(raw, RawTable) for raw in raws)
    names = dict.fromkeys(name for value in values for name in value)
    return [name for name in names if name not in read and not (tables and not mapped and is_column(name))]


def _left(chunk: Chunk) -> Iterable[str]:
    for path, rows in chunk.rows_left.items():
        yield f"reads {path} alone, and leaves {_times(rows, 'row')} that stand beside it"


def faults(chunk: Chunk) -> Iterable[str]:
    """Yield, for each reason, the number of unusable records and the fault of the first record."""
    often = Counter(reject.reason for reject in chunk.rejects)
    for reason, times in often.most_common():
        first = next(reject for reject in chunk.rejects if reject.reason is reason)
        yield f"{times} × {reason.value}, the first at {first.partition}:{first.position}: {first.message}"


def _used(chunk: Chunk) -> int:
    return sum(map(len, chunk.batches)) + sum(map(len, chunk.labels))


def _labelled(chunk: Chunk) -> int:
    return sum(int((batch.label >= 0).sum()) for batch in chunk.batches)


def records_of(raws: Sequence[Raw], wire: Wire) -> Iterable[dict[str, Any]]:
    """Yield the records with their original field names. Values that are not objects are left out."""
    for raw in raws:
        if isinstance(raw, RawTable):
            full = {name: column for name, column in raw.columns.items() if column}
            for row in zip(*full.values(), strict=True):
                yield {name: _number(cell) for name, cell in zip(full, row, strict=True)}
        else:
            for text in _texts(raw, wire):
                yield from _objects(text)


def answers_in(raws: Sequence[Raw]) -> Iterable[dict[str, Any]]:
    """Yield the records of a source without a mapping. Fields of a known format get Blindsight's names.

    A record that no known format can read is yielded unchanged.
    """
    for raw in raws:
        if isinstance(raw, RawTable) and RECOGNISED.reads_rows(raw.columns):
            for line in json_rows(raw):
                yield from _own_names(line) or _objects(line)
            continue
        for value in records_of([raw], RECOGNISED):
            line = b"" if isinstance(raw, RawTable) else _encoded(value)
            of_format = bool(line) and RECOGNISED.format_of(line) is not None
            yield from (_own_names(line) or [value]) if of_format else [value]


def _encoded(value: object) -> bytes:
    try:
        return msgspec.json.encode(value)
    except (TypeError, ValueError, OverflowError):
        return b""


def _own_names(line: bytes) -> list[dict[str, Any]]:
    """Return the records in a value of a known format, with Blindsight's field names; [] for other values."""
    records = [outcome for _, outcome in RECOGNISED.read(line) if isinstance(outcome, Record)]
    fields = ({name: getattr(each, name) for name in Record.__struct_fields__} for each in records)
    return [{name: value for name, value in each.items() if value is not None} for each in fields]


def _texts(raw: Raw, wire: Wire) -> Iterable[bytes]:
    """Return the lines of a block, or the messages combined with their headers."""
    if isinstance(raw, RawBlock):
        return raw.data.splitlines()
    if isinstance(raw, RawMessages):
        return raw.values if raw.headers is None else map(wire.convert_message, raw.values, raw.headers)
    return ()


def _number(cell: object) -> object:
    """Return a cell as a JSON value. A text that is a number becomes a number, because CSV has only texts."""
    for kind in (int, float):
        with suppress(ValueError):
            return kind(cell) if isinstance(cell, str) else json_cell(cell)
    return json_cell(cell)


def _objects(text: bytes) -> Iterable[dict[str, Any]]:
    try:
        value = msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        value = lenient_value(text)
    for each in value if isinstance(value, list) else [value]:
        if isinstance(each, dict):
            yield each


def _odd_elsewhere(values: Sequence[Any], layouts: Sequence[TaskLayout]) -> list[str]:
    """Return the sentence of `no_probabilities` for fields with other names, which no mapping can read."""
    by_path = {path: rows for layout in layouts for path, rows in vectors(values, layout).items()}
    return [line for path, rows in by_path.items() for line in no_probabilities(rows, path)][:1]


def no_probabilities(scores: Sequence[Any], name: str = "scores") -> list[str]:
    """Return a list with a sentence about scores that are not probabilities, such as logits.

    The list is empty if all scores are from 0 to 1, or if fewer than five records have scores.
    """
    alone = [[each] if isinstance(each, int | float) else each for each in scores]
    rows = [list(each.values()) if isinstance(each, dict) else each for each in alone]
    vectors = [
        row
        for row in rows
        if isinstance(row, list) and row and all(type(x) in (int, float) and x == x for x in row)
    ]
    if len(vectors) < _FEWEST:
        return []
    low, high = min(map(min, vectors)), max(map(max, vectors))
    if low >= 0 and high <= 1:
        return []
    got = f"{name}: expected probabilities from 0 to 1, got {low:.4g} to {high:.4g}: they look like "
    if low >= 0 and high <= 100.1 and all(len(row) == 1 or abs(sum(row) - 100) < 0.5 for row in vectors):
        return [got + "percent; divide by 100 where they are sent"]
    logarithms = all(len(row) > 1 and abs(sum(np.exp(row)) - 1) < 0.01 for row in vectors)
    named = re.search("log_?prob", name.lower()) and all(len(row) == 1 for row in vectors)
    if high <= 0 and (logarithms or named):
        return [got + "logarithms of probabilities; send exp() of them"]
    return [got + "logits; send the softmax of them (of a single number the sigmoid)"]


def _proposals(
    read: Callable[[Wire], Sequence[Raw]],
    values: Sequence[Any],
    layouts: Sequence[TaskLayout],
    name: str,
    chunk: Chunk,
    own: FieldMapping | None,
) -> Iterable[Proposal]:
    """Yield the mappings that make more of the records usable than now, each with its trial.

    `own` is the source's mapping, if it has one.
    """
    events = compiled(FieldMapping(format="cloudevents", id="id"))
    # In binary mode the attributes of an event are in headers beside the value.
    in_events = list(records_of(read(events), events))
    candidates = list(_candidates(values, in_events if in_events != values else (), layouts))
    translating = [
        translated
        for layout in layouts
        for mapping in ([own] if own is not None else [_with_names(each, values) for each in candidates])
        if (translated := _translating(mapping, [*values, *in_events], layout)) is not None
    ]
    for mapping in (*candidates, *translating):
        wire = compiled(mapping)
        trial = Decoder(layouts, name, wire=wire, clock=time.time).decode(read(wire))
        more_labels = mapping.label_values and _used(trial) == _used(chunk)
        if (
            _used(trial) > _used(chunk)
            or (not chunk.batches and trial.batches)
            or (more_labels and _labelled(trial) > _labelled(chunk))
        ):
            yield Proposal(mapping, trial, chunk)


def _with_names(mapping: FieldMapping, records: Sequence[Any]) -> FieldMapping:
    """Return the mapping with the groups and features that are read without a mapping."""
    fields = {}
    for field in ("groups", "features"):
        within = [record[field] for record in records if isinstance(record.get(field), dict)]
        names = dict.fromkeys(name for each in within for name in each if not re.search(r'["\\]', name))
        fields[field] = {name: f'{field}["{name}"]' for name in names}
    return mapping.model_copy(update=fields)


def _translating(mapping: FieldMapping, records: Sequence[Any], layout: TaskLayout) -> FieldMapping | None:
    """Return the mapping with a class for each label that is not a class, or None if none can be derived."""
    if mapping.label is None or not layout.classes:
        return None
    path = parse_field_path(mapping.label)
    cells = (lookup(record, path) for record in records)
    texts = dict.fromkeys(same_name(text_of(each)) for each in cells if isinstance(each, str | int | float))
    values = translated_labels([text for text in texts if not is_no_value(text)], layout.classes)
    if not values.keys() - mapping.label_values.keys():
        return None
    return mapping.model_copy(update={"label_values": {**values, **mapping.label_values}})


def _candidates(
    values: Sequence[Any], in_events: Sequence[Any], layouts: Sequence[TaskLayout]
) -> Iterable[FieldMapping]:
    """Yield mappings that may read the records, for each task, beginning with the formats of serving stacks.

    The mapping of a format comes first, because it reads every row of a record. It is tried without a model's
    name first, because the events may contain the name.
    """
    for layout in layouts:
        task = {"task": layout.name} if len(layouts) > 1 else {}
        constants = {"model": layout.models[0] if len(layout.models) == 1 else NAME_OF_MODEL}
        for constants_of_format in (task, {**constants, **task}):
            yield FieldMapping.model_validate({"format": "kserve", "constants": constants_of_format})
            yield FieldMapping.model_validate(
                {"format": "kserve", "id": "body", "constants": constants_of_format}
            )
        for records, kind in ((values, {}), (in_events, {"format": "cloudevents"})):
            mapping = propose(records, layout, constants) if records else None
            if mapping is None:
                continue
            fields = {**mapping.model_dump(exclude_defaults=True), **kind}
            if mapping.task is None:
                fields["constants"] = {**fields.get("constants", {}), **task}
            yield FieldMapping(**fields)


def refuse_reversed(chunk: Chunk, layout: TaskLayout, source: str) -> None:
    """Raise `ConfigError` if the labels of the sample show that the classes are in the wrong order.

    Raises
    ------
    ConfigError
        At least 50 labelled answers show that the order is wrong.
    """
    known = {
        int(key): int(label)
        for batch in chunk.labels
        if batch.task == layout.name
        for key, label in zip(batch.key, batch.label, strict=True)
    }
    for batch in chunk.batches:
        if batch.task != layout.name:
            continue
        label = np.array(
            [
                own if own >= 0 else known.get(int(key), -1)
                for own, key in zip(batch.label.tolist(), batch.key.tolist(), strict=True)
            ],
            dtype=np.int64,
        )
        for i, model in enumerate(batch.models):
            rows = np.flatnonzero((batch.model == i) & (label >= 0))
            reference = Reference(
                batch.scores[rows], batch.predicted[rows], label[rows], batch.time[rows], "", {}
            )
            refuse_reversed_classes(layout.name, layout.classes, model, reference, source)

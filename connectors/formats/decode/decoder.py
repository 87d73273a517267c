"""The decoder, which turns raw bytes and tables into a chunk of columns (SPEC section 3).

bytes ── json_lines ─┐                 ┌─ times, ids, tasks ─┬─ answers (scores, names) ─ Batch
                     ├─ Record ─ Columns                     ├─ truth ─────────────────── LabelBatch
                     │                                       ├─ comparisons ───────────── both, for pairs
tables ─ table_rows ─┘                 └─ explain ───────────┴─────────────────────────── Reject
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from itertools import accumulate

import numpy as np

from connectors.formats.decode.columns import Bools, Columns, Places, RejectList
from connectors.formats.decode.json_lines import read_block, read_messages, read_rows, too_large
from connectors.formats.decode.names import NO_VALUE, encode_ids, first_id, request_keys
from connectors.formats.decode.structs import KIND_FIELDS, MAX_LINE_BYTES, Fault, Faults, OneOfRows, Reading
from connectors.formats.decode.tasks import TaskFinder
from connectors.formats.decode.times import parse_times
from connectors.formats.files.table_rows import read_table
from connectors.formats.messages.hints import MISSING_FIELD, bare_classes, keys_of, misspelt
from connectors.formats.messages.redaction import SECRET, Keep, keeper
from connectors.formats.messages.wording import without_values
from connectors.formats.wires.wire import PLAIN, Wire
from monitor.base.records import Chunk, Ints, Reject, RejectReason, SampleIds, TaskLayout
from monitor.base.registry import TASK_KINDS, load
from monitor.base.source import Raw, RawBlock, RawDamaged, RawMessages, RawPosition, RawSkipped, RawTable


class Decoder:
    """A decoder of the input of one source, which turns raw bytes and tables into a chunk of columns.

    The decoder keeps no state between calls. The rows do not depend on where a source divides its input, nor,
    without a clock, on the time of the call. No input raises an exception: the chunk's `rejects` hold the
    records that cannot be used.

    Parameters
    ----------
    layouts : sequence of TaskLayout
        The configured tasks.
    source : str
        The name of the source, which each chunk carries.
    max_line_bytes : int, default 1 MiB
        The largest length of a record. A longer record is rejected without being read. A message that is an
        array of records may be longer.
    keep : {"whole", "redacted", "none"}
        The part of a rejected record that its `Reject` keeps: see `connectors.formats.messages.redaction`.
        With "redacted" and "none", the messages do not quote values.
    wire : Wire, optional
        The reader of the format of the records, by default Blindsight's own format. See
        `connectors.formats.wires.choice.wire_of`.
    clock : callable, optional
        A function that returns the present time in seconds since the epoch. The decoder rejects times more
        than a day after the present. Without a clock, as in `replay`, it accepts them.
    secret : bytes, optional
        The key of the hashes of unreadable records: see `connectors.formats.messages.redaction.keeper`.

    Raises
    ------
    ValueError
        There is no layout, or two layouts have the same name.

    Examples
    --------
    >>> decoder = Decoder([TaskLayout("toxicity", ("ok", "toxic"))], "file")
    >>> line = b'{"id": "a", "model": "erm", "scores": [0.25, 0.75]}'
    >>> chunk = decoder.decode([RawBlock(line + b"\\n" + line[:20] + b"\\n", "p.ndjson", 0)])
    >>> chunk.batches[0].scores.tolist(), chunk.batches[0].predicted.tolist(), chunk.positions
    ([[0.25, 0.75]], [1], {'p.ndjson': 73})
    >>> chunk.answers, chunk.rejects[0].reason.value, chunk.rejects[0].position
    (2, 'malformed', 52)
    """

    def __init__(
        self,
        layouts: Sequence[TaskLayout],
        source: str,
        max_line_bytes: int = MAX_LINE_BYTES,
        keep: Keep = "whole",
        wire: Wire = PLAIN,
        clock: Callable[[], float] | None = None,
        secret: bytes = SECRET,
    ) -> None:
        names = [layout.name for layout in layouts]
        if not names or len(set(names)) != len(names):
            raise ValueError(f"layouts: expected one or more tasks, each name once, got {names}")
        self.layouts = tuple(layouts)
        self.source = source
        self.max_line_bytes = max_line_bytes
        # A class may have a name such as none.
        self._no_label = NO_VALUE.difference(
            name.lower() for layout in self.layouts for name in layout.classes
        )
        kinds = [TASK_KINDS[layout.kind] for layout in self.layouts]
        self._readers = [(load(kind.answers), load(kind.labels)) for kind in kinds]
        self._ignored = frozenset(KIND_FIELDS).difference(name for kind in kinds for name in kind.fields)
        self._names = (*names, "")  # index -1 is an unknown task
        self._numeric = np.array([*(layout.numeric for layout in self.layouts), False])  # -1 is no task
        self._doubtful = len(self.layouts) > 1 and bool(self._numeric.any())
        self._clock = clock
        self._finder = TaskFinder(self.layouts)
        self._wording = nullcontext if keep == "whole" else without_values
        self._keep = keeper(keep, secret)
        self._wire = wire.for_tasks(self.layouts)

    def decode(self, raws: Sequence[Raw]) -> Chunk:
        """Decode the items that one call of a source's `read` returned.

        Returns
        -------
        Chunk
            The decoded records. `answers` is always the number of rows of the batches plus the number of
            rejected answers.
        """
        return self.decode_with_places(raws)[0]

    def decode_with_places(self, raws: Sequence[Raw]) -> tuple[Chunk, Places]:
        """Decode like `decode`, and also return the place of each record.

        Returns
        -------
        Chunk
        Places
            The place of each record in the order of reading. `Places.order` is the index of the record's
            first row in the chunk, as in the column `order` of the batches. In the chunk itself, labels have
            no partition and no position.
        """
        with self._wording():
            return self._decode(raws)

    def _decode(self, raws: Sequence[Raw]) -> tuple[Chunk, Places]:
        readings = [self._read(raw) for raw in raws]
        partitions = tuple(dict.fromkeys(raw.partition for raw in raws))
        numbers = {partition: number for number, partition in enumerate(partitions)}
        owners = [numbers[raw.partition] for raw in raws]
        columns = self._columns(raws, readings)
        places, faults = self._place(columns, readings, owners)
        rejects = RejectList(partitions, places, _raw_of(readings), self._keep, self._hint_of(raws, readings))
        self._add_unread(readings, rejects)

        task = self._find_tasks(columns, faults)
        rejects.add_all(faults, np.arange(columns.size), columns.weight, lambda i: self._names[task[i]])
        usable = faults.good()
        batches, labels, ids = [], [], {}
        for i, (layout, (read_answers, read_labels)) in enumerate(
            zip(self.layouts, self._readers, strict=True)
        ):
            here = usable & (task == i)
            answers, truth = np.flatnonzero(here & ~columns.is_label), np.flatnonzero(here & columns.is_label)
            if len(answers):
                batches.append(read_answers(layout, columns, answers, places, rejects))
            if len(truth):
                labels.append(read_labels(layout, columns, truth, places, rejects))
            ids[layout.name] = SampleIds(first_id(columns.id, answers), first_id(columns.id, truth))
        chunk = Chunk(
            source=self.source,
            batches=tuple(batch for batch in batches if batch is not None),
            labels=tuple(batch for batch in labels if batch is not None),
            rejects=rejects.in_order(),
            partitions=partitions,
            positions={raw.partition: raw.after for raw in raws},
            answers=int(columns.weight.sum()) + _unread_answers(readings),
            labels_received=int(columns.is_label.sum()),
            after_others=_after_others(raws),
            ignored=sum(reading.ignored for reading in readings),
            rows_left=self._rows_left(raws, readings),
            ids=ids,
        )
        return chunk, places

    def _find_tasks(self, columns: Columns, faults: Faults) -> Ints:
        """Return the index of each record's task, and count the predictions of numbers as answers."""
        shown = columns.kinds, columns.numbers if self._doubtful else ()
        task = self._finder.find(columns.task, columns.model, columns.models, faults, *shown)
        columns.take_predictions_as_answers(self._numeric[task])
        return task

    def _rows_left(self, raws: Sequence[Raw], readings: Sequence[Reading]) -> dict[str, int]:
        """Return the number of rows that the mapping skipped, by the path of the one row that it reads."""
        if not self._wire.one_row:
            return {}
        records = (record for reading in readings for record in reading.records)
        left = sum(record.left for record in records if isinstance(record, OneOfRows))
        left += sum(self._wire.rows_left(raw) for raw in raws if isinstance(raw, RawTable))
        return {self._wire.one_row: left} if left else {}

    def _columns(self, raws: Sequence[Raw], readings: Sequence[Reading]) -> Columns:
        records = [record for reading in readings for record in reading.records]
        sent = _sent_as_labels(raws, readings)
        return Columns(records, self._ignored, self._wire.reads_labels, sent, self._no_label)

    def _read(self, raw: Raw) -> Reading:
        match raw:
            case RawBlock():
                return read_block(raw, self.max_line_bytes, self._wire)
            case RawMessages():
                return read_messages(raw, self.max_line_bytes, self._wire)
            case RawTable():
                return self._read_table(raw)
            case RawSkipped():
                return _unread(raw, *too_large(raw.size, self.max_line_bytes))
            case RawDamaged():
                return _unread(raw, RejectReason.MALFORMED, f"$: {raw.why}")
            case RawPosition():
                return Reading([], np.zeros(0, dtype=np.int64), lambda _: b"", [])

    def _read_table(self, raw: RawTable) -> Reading:
        if self._wire.reads_rows(raw.columns):
            return read_rows(raw, self.max_line_bytes, self._wire)
        mapping = self._wire.mapping
        names_models = mapping is None or mapping.model is not None
        return read_table(self._wire.map_table(raw), self._wire.excluded_rows(raw), names_models)

    def _hint_of(
        self, raws: Sequence[Raw], readings: Sequence[Reading]
    ) -> Callable[[int, bytes, Fault, str], str]:
        """Return a function that returns a clause on the likely name of a field that a record lacks."""
        ends = np.cumsum([len(reading.records) for reading in readings]).tolist()
        classes = {layout.name: layout.classes for layout in self.layouts}

        def hint(record: int, data: bytes, fault: Fault, task: str) -> str:
            raw = raws[bisect_right(ends, record)]
            columns = raw.columns if isinstance(raw, RawTable) else None
            by_column = columns is not None and not self._wire.reads_rows(columns)
            clause = self._wire.hint(fault, None if by_column else data)
            if clause or self._wire.mapping is not None or fault[0] not in MISSING_FIELD:
                return clause
            if columns is None:
                return misspelt(keys_of(data))
            return bare_classes(columns, classes.get(task, ())) or misspelt(columns)

        return hint

    def _place(
        self, columns: Columns, readings: Sequence[Reading], owners: Sequence[int]
    ) -> tuple[Places, Faults]:
        faults = Faults(columns.size)
        slots = np.maximum(columns.weight, 1)
        sizes = [len(reading.records) for reading in readings]
        request, alone = (None, None) if columns.rows is None else request_keys(columns.id, columns.rows)
        places = Places(
            time=parse_times(columns.time, faults, None if self._clock is None else self._clock()),
            key=encode_ids(columns.id, faults),
            order=np.cumsum(slots) - slots,
            partition=np.repeat(np.array(owners, dtype=np.int64), np.array(sizes, dtype=np.int64)),
            position=_joined([reading.positions for reading in readings]),
            request=request,
            alone=alone,
        )
        return places, faults

    def _add_unread(self, readings: Sequence[Reading], rejects: RejectList) -> None:
        before = 0
        for reading in readings:
            for records, reject in reading.rejects:
                rejects.unread(before + records, reject)
            before += len(reading.records)


def _unread(raw: RawSkipped | RawDamaged, reason: RejectReason, message: str) -> Reading:
    reject = Reject(reason, message, raw.head, raw.partition, raw.start)
    return Reading([], np.zeros(0, dtype=np.int64), lambda _: b"", [(0, reject)])


def _unread_answers(readings: Sequence[Reading]) -> int:
    return sum(reject.answers for reading in readings for _, reject in reading.rejects)


def _after_others(raws: Sequence[Raw]) -> tuple[str, ...]:
    return tuple(raw.partition for raw in raws if isinstance(raw, RawMessages) and raw.after_others)


def _sent_as_labels(raws: Sequence[Raw], readings: Sequence[Reading]) -> Bools | None:
    """Return a mask of the records that were sent as labels, or None if none was."""
    sent = [isinstance(raw, RawBlock) and raw.labels for raw in raws]
    return np.repeat(sent, [len(reading.records) for reading in readings]) if any(sent) else None


def _joined(parts: Sequence[Ints]) -> Ints:
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)


def _raw_of(readings: Sequence[Reading]) -> Callable[[int], bytes]:
    """Return a function from the index of a record in the chunk to its bytes."""
    sizes = [len(reading.records) for reading in readings]
    starts = [0, *accumulate(sizes)]

    def raw(record: int) -> bytes:
        i = bisect_right(starts, record) - 1
        return readings[i].raw(record - starts[i])

    return raw

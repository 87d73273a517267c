"""The first stage, on the executors: a split's records, decoded as anywhere else, shared out by model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np

from connectors.files import FileSource
from connectors.formats.decode.decoder import Decoder
from connectors.formats.wires.choice import columns_of, wire_for
from connectors.spark.job import BLOCKS, Block, BlockKind, Facts, Job, as_arrow, begin_task, packed
from connectors.spark.partitioning import Partition, StreamPartitioner
from connectors.spark.splits import Split
from monitor.base.errors import SourceError
from monitor.base.records import Batch, Chunk
from monitor.base.source import (
    EndOfSource,
    Raw,
    RawBlock,
    RawDamaged,
    RawMessages,
    RawPosition,
    RawSkipped,
    RawTable,
)
from monitor.config.layouts import layouts

_BLOCKS_AT_ONCE = 4  # MiB of lines, or tables of 8,192 rows: of a thousand models each share has some rows
_BYTES_AT_ONCE = 8 << 20
_MESSAGES_KEPT = 5

OfFile = RawBlock | RawTable | RawSkipped | RawDamaged


def read_splits(job: Any, batches: Iterator[Any]) -> Iterator[Any]:
    """Blocks of the splits whose numbers stand in the first column; for `mapInArrow`."""
    begin_task()
    numbers = chain.from_iterable(batch.column(0).to_pylist() for batch in batches)
    return as_arrow(
        chain.from_iterable(blocks_of(job.value, number) for number in numbers), BLOCKS, _BYTES_AT_ONCE
    )


def blocks_of(job: Job, number: int) -> Iterator[Block]:
    """What a split holds: shares and rejects by chunk, then its times, then its facts."""
    split = job.splits[number]
    wire = wire_for(job.config, split.path)
    source = FileSource(split.path, mapped=columns_of(wire))
    known = layouts(job.config.tasks, numbered=job.config.numbers_rows)
    decoder = Decoder(known, source.name, keep=job.config.keep_of_rejects, wire=wire)
    sharing, facts = StreamPartitioner(), Facts()
    caps = {name: task.max_series for name, task in job.config.scored_tasks.items()}

    def other(kind: BlockKind, at: int, value: Any) -> Block:
        return Block(kind, "", "", "", number, at, packed(value))

    at = 0
    for at, raws in enumerate(_read(source, split)):
        chunk = decoder.decode(raws)
        note(facts, chunk, "row" if any(isinstance(raw, RawTable) for raw in raws) else "byte")
        for share in sharing.share(chunk):
            block = Block(BlockKind.SHARE, share.task, share.model, share.besides, number, at, packed(share))
            note_share(facts, share, len(block.data), caps[share.task])
            yield block
        if chunk.rejects and job.config.rejects:
            yield other(BlockKind.REJECTS, at, [(reject, chunk.source) for reject in chunk.rejects])
    facts.stretch = sharing.stretch
    yield other(BlockKind.TIMES, at + 1, sharing.times())
    yield other(BlockKind.FACTS, at + 2, facts)


def _read(source: FileSource, split: Split) -> Iterator[list[Raw]]:
    """What is in a split, some MiB at a time."""
    if split.start == split.stop:
        return
    source.open({source.partition: split.start})
    pending: list[Raw] = []
    try:
        while True:
            for raw in source.read(0.0):
                assert not isinstance(raw, RawMessages | RawPosition)  # a file has lines or rows
                if raw.start < split.start:
                    raise SourceError(f"{split.path}: it has become shorter while it was read; run it again")
                cut, ended = _until(raw, split.stop)
                pending += [] if cut is None else [cut]
                if ended:
                    raise EndOfSource
            if len(pending) >= _BLOCKS_AT_ONCE:
                yield pending
                pending = []
    except EndOfSource:
        if pending:
            yield pending
    finally:
        source.close()


def _until(raw: OfFile, stop: int | None) -> tuple[OfFile | None, bool]:
    """What of it lies before a place, and whether all of it does not."""
    if stop is None:
        return raw, False
    if raw.start >= stop:
        return None, True
    left = stop - raw.start
    if isinstance(raw, RawBlock) and len(raw.data) > left:
        return replace(raw, data=raw.data[:left]), True
    if isinstance(raw, RawTable) and max(map(len, raw.columns.values()), default=0) > left:
        columns = {name: column[:left] for name, column in raw.columns.items()}
        broken = {row: why for row, why in raw.broken.items() if row < left}
        return replace(raw, columns=columns, broken=broken), True
    return raw, False


def note(facts: Facts, chunk: Chunk, unit: str) -> None:
    """Count what a chunk brought, used or not; `unit` is what its positions count."""
    facts.received += chunk.answers + chunk.labels_received
    facts.ignored += chunk.ignored
    facts.rows_left.update(chunk.rows_left)
    for reject in chunk.rejects:
        if reject.answers:
            facts.answers_rejected[reject.reason.value] += reject.answers
        else:
            facts.labels_rejected[reject.task, reject.reason.value] += 1
        if len(facts.first) < _MESSAGES_KEPT:
            facts.first.append(f"{reject.partition}: {unit} {reject.position}: {reject.message}")


def note_share(facts: Facts, share: Partition, size: int, cap: int) -> None:
    """Count a share of so many packed bytes; of a task no more than `cap` groups are remembered."""
    facts.largest = max(facts.largest, size)
    if not isinstance(share.records, Batch):
        facts.labels[share.task] += len(share)
        return
    known = facts.models.setdefault((share.task, share.model), [int(share.records.order[0]), 0])
    known[1] += len(share)
    groups = facts.groups.setdefault(share.task, set())
    for name, (values, codes) in share.records.groups.items():
        if len(groups) <= cap:
            groups.update((share.model, f"{name}={values[i]}") for i in np.unique(codes[codes >= 0]))

"""The first stage of a replay on the executors: the records of a split, decoded and partitioned by model."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

from connectors.files import FileSource
from connectors.formats.decode.decoder import Decoder
from connectors.formats.wires.choice import wire_for
from connectors.spark.job import BLOCKS, Block, BlockKind, Job, as_arrow, begin_task, packed
from connectors.splits import read_split
from monitor.base.source import RawTable
from monitor.config.layouts import layouts
from monitor.parallel.partitioning import StreamPartitioner
from monitor.parallel.planning import Facts, most_groups, note_share

_BLOCKS_AT_ONCE = 4  # MiB of lines, or tables of 8,192 rows: with a thousand models each share has some rows
_BYTES_AT_ONCE = 8 << 20


def read_splits(job: Any, batches: Iterator[Any]) -> Iterator[Any]:
    """Read and decode splits of files, and return their records by model, for use with `mapInArrow`.

    The first column of the batches has the numbers of the splits. The results are rows of the type `Block`.
    """
    begin_task()
    numbers = chain.from_iterable(batch.column(0).to_pylist() for batch in batches)
    return as_arrow(
        chain.from_iterable(blocks_of(job.value, number) for number in numbers), BLOCKS, _BYTES_AT_ONCE
    )


def blocks_of(job: Job, number: int) -> Iterator[Block]:
    """Read and decode a split. Yield its records by model and its rejects, then its times and counts."""
    split = job.splits[number]
    wire = wire_for(job.config, split.path)
    source = FileSource(split.path, mapped=wire.columns)
    known = layouts(job.config.tasks, numbered=job.config.numbers_rows)
    decoder = Decoder(known, source.name, keep=job.config.keep_of_rejects, wire=wire)
    sharing, facts = StreamPartitioner(), Facts()
    caps = most_groups(job.settings)

    def other(kind: BlockKind, at: int, value: Any) -> Block:
        return Block(kind, "", "", "", number, at, packed(value))

    at = 0
    for at, raws in enumerate(read_split(source, split, _BLOCKS_AT_ONCE)):
        chunk = decoder.decode(raws)
        facts.note(chunk, "row" if any(isinstance(raw, RawTable) for raw in raws) else "byte")
        for share in sharing.share(chunk):
            block = Block(BlockKind.SHARE, share.task, share.model, share.besides, number, at, packed(share))
            note_share(facts, share, len(block.data), caps[share.task])
            yield block
        if chunk.rejects and job.config.rejects:
            yield other(BlockKind.REJECTS, at, [(reject, chunk.source) for reject in chunk.rejects])
    facts.stretch = sharing.stretch
    yield other(BlockKind.TIMES, at + 1, sharing.times())
    yield other(BlockKind.FACTS, at + 2, facts)

"""The first stage of a stream, on the executors: a batch's messages, decoded and shared out by model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from connectors.formats.decode.columns import Places
from connectors.formats.decode.decoder import Decoder
from connectors.formats.wires.beside import beside
from connectors.formats.wires.choice import wire_of
from connectors.formats.wires.cloudevents import Headers
from connectors.spark.job import BLOCKS, Block, BlockKind, as_arrow, begin_task, packed
from monitor.base.records import Chunk, Floats, Ints
from monitor.base.source import RawMessages
from monitor.config.layouts import layouts
from monitor.config.root import Config, KafkaSourceConfig
from monitor.engine.engine import EngineSettings
from monitor.engine.partitioning import Partition, StreamPartitioner
from monitor.engine.planning import Facts, most_groups, note_share

MESSAGES = (
    "concat(topic, '-', partition) AS partition",
    "offset",
    "unix_millis(timestamp) AS milliseconds",
    "value",
    "headers",
    "key",
)
"""What the stage is handed of each message: ``topic-3``, its offset, its time in Kafka, its bytes, and the
last two, its headers and its key, where the source's mapping reads what stands beside messages."""

_BYTES_AT_ONCE = 8 << 20
_DAY = 86_400.0  # a time further ahead of its message is an error of the sender, and moves no other's clock


@dataclass(frozen=True, slots=True)
class Stream:
    """What every executor of a stream is told.

    Parameters
    ----------
    config : Config
    settings : EngineSettings
        Of all tasks.
    source : KafkaSourceConfig
    long_names : frozenset of str
        As of `TaskLayout`: those in the states of the units.
    """

    config: Config
    settings: EngineSettings
    source: KafkaSourceConfig
    long_names: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class MessagePart:
    """A share of some messages of one partition, n records, with where and when they stood in it.

    Parameters
    ----------
    share : Partition
    offset : (n,) int64
    stamp : (n,) float64
        Seconds since the epoch: the largest time that Kafka holds of the partition's messages of this batch
        up to the record's.
    """

    share: Partition
    offset: Ints
    stamp: Floats

    def __len__(self) -> int:
        return len(self.share)

    @property
    def time(self) -> Floats:
        """That of each record; one that names none has that of its message."""
        named = self.share.records.time
        return np.where(np.isnan(named), self.stamp, named)


def read_messages(stream: Any, batches: Iterator[Any]) -> Iterator[Any]:
    """Blocks of the messages whose columns are `MESSAGES`; for `mapInArrow`."""
    begin_task()
    return as_arrow(blocks_of(stream.value, pieces_of(batches)), BLOCKS, _BYTES_AT_ONCE)


def blocks_of(stream: Stream, pieces: Iterator[tuple[RawMessages, Ints]]) -> Iterator[Block]:
    """Shares and rejects of pieces of partitions, then the facts of all.

    Parameters
    ----------
    stream : Stream
    pieces : iterator of (RawMessages, (n,) int64)
        Messages, and the time of each in Kafka, milliseconds.
    """
    config = stream.config
    known = layouts(config.tasks, stream.long_names, config.numbers_rows)
    decoder = Decoder(known, stream.source.label, keep=config.keep_of_rejects, wire=wire_of(stream.source))
    caps = most_groups(stream.settings)
    facts = Facts()
    newest: dict[str, int] = {}  # one task reads all of a partition that is in a batch
    for number, (raw, times) in enumerate(pieces):
        milliseconds = np.maximum.accumulate(np.maximum(times, newest.get(raw.partition, 0)))
        newest[raw.partition] = int(milliseconds[-1])
        chunk, places = decoder.decode_with_places([raw])
        facts.note(chunk, "offset")
        for part in _parts(chunk, places, np.asarray(raw.offsets, dtype=np.int64), milliseconds):
            share, data = part.share, packed(part)
            facts.newest = max(facts.newest, float(np.minimum(part.time, part.stamp + _DAY).max()))
            note_share(facts, share, len(data), caps[share.task])
            yield Block(BlockKind.SHARE, share.task, share.model, share.besides, 0, number, data)
        if chunk.rejects and config.rejects:
            rejects = [(reject, chunk.source) for reject in chunk.rejects]
            yield Block(BlockKind.REJECTS, "", "", "", 0, number, packed(rejects))
    yield Block(BlockKind.FACTS, "", "", "", 0, 0, packed(facts))


def pieces_of(batches: Iterator[Any]) -> Iterator[tuple[RawMessages, Ints]]:
    """Messages of record batches with the columns `MESSAGES`, of one partition each, and their times."""
    for batch in batches:
        names, offsets, times, values, *more = batch.columns
        for at, to in _runs(names):
            some = slice(at, to)
            # pyarrow's own `to_pylist` makes a scalar of each row first, and takes ten times as long.
            held = values[some].to_numpy(zero_copy_only=False).tolist()
            if values.null_count:
                held = [value or b"" for value in held]  # a deleted one holds nothing
            stamps = times[some].to_numpy()
            besides = (column[some].to_pylist() for column in more)
            headers = (
                [_headers(*each) for each in zip(*besides, stamps.tolist(), strict=True)] if more else None
            )
            yield (
                RawMessages(held, names[at].as_py(), offsets[some].to_numpy().tolist(), headers=headers),
                stamps,
            )


def _runs(names: Any) -> Iterator[tuple[int, int]]:
    """Where each run of one name begins and ends."""
    codes = names.dictionary_encode().indices.to_numpy()
    edges = [0, *(np.flatnonzero(np.diff(codes)) + 1).tolist(), len(codes)]
    return pairwise(edges) if len(codes) else iter(())


def _headers(found: Any, key: bytes | None, milliseconds: int) -> Headers:
    return beside([(each["key"], each["value"]) for each in found or ()], key, milliseconds)


def _parts(chunk: Chunk, places: Places, offsets: Ints, milliseconds: Ints) -> Iterator[MessagePart]:
    for share in StreamPartitioner().share(chunk):
        record = np.searchsorted(places.order, share.records.order, side="right") - 1
        offset = places.position[record]
        yield MessagePart(share, offset, milliseconds[np.searchsorted(offsets, offset)] / 1000)

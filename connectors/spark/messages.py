"""The first stage of a stream on the executors: the messages of a batch, decoded and partitioned by model."""

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
from monitor.parallel.partitioning import Partition, StreamPartitioner
from monitor.parallel.planning import Facts, most_groups, note_share

MESSAGES = (
    "concat(topic, '-', partition) AS partition",
    "offset",
    "unix_millis(timestamp) AS milliseconds",
    "value",
    "headers",
    "key",
)
"""The columns of the stage's input: for each message its partition such as ``topic-3``, offset, time in Kafka
and value; and its headers and key, but only if the source's mapping reads them."""

_BYTES_AT_ONCE = 8 << 20
_DAY = 86_400.0  # a time that is further ahead of its message is wrong, and must not move the stream's clock


@dataclass(frozen=True, slots=True)
class Stream:
    """The settings of a stream, which every executor gets.

    Parameters
    ----------
    config : Config
    settings : EngineSettings
        The settings of all tasks.
    source : KafkaSourceConfig
    long_names : frozenset of str
        The long names in the states of the units: see `TaskLayout`.
    """

    config: Config
    settings: EngineSettings
    source: KafkaSourceConfig
    long_names: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class MessagePart:
    """The n records of one model or task in a batch, from one Kafka partition, with offsets and times.

    Parameters
    ----------
    share : Partition
    offset : (n,) int64
    stamp : (n,) float64
        For each record, the largest timestamp in Kafka among the partition's messages of this batch up to the
        message of the record, in seconds since the epoch.
    """

    share: Partition
    offset: Ints
    stamp: Floats

    def __len__(self) -> int:
        return len(self.share)

    @property
    def time(self) -> Floats:
        """The time of each record, or the time of its message if the record has no time."""
        named = self.share.records.time
        return np.where(np.isnan(named), self.stamp, named)


def read_messages(stream: Any, batches: Iterator[Any]) -> Iterator[Any]:
    """Decode Kafka messages, and return their records by model, for use with `mapInArrow`.

    The batches have the columns `MESSAGES`. The results are rows of the type `Block`.
    """
    begin_task()
    return as_arrow(blocks_of(stream.value, pieces_of(batches)), BLOCKS, _BYTES_AT_ONCE)


def blocks_of(stream: Stream, pieces: Iterator[tuple[RawMessages, Ints]]) -> Iterator[Block]:
    """Decode messages. Yield their records by model and their rejects, then the counts and times of all.

    Parameters
    ----------
    stream : Stream
    pieces : iterator of (RawMessages, (n,) int64)
        Messages of one partition, and the times of the messages in Kafka in milliseconds.
    """
    config = stream.config
    known = layouts(config.tasks, stream.long_names, config.numbers_rows)
    decoder = Decoder(known, stream.source.label, keep=config.keep_of_rejects, wire=wire_of(stream.source))
    caps = most_groups(stream.settings)
    facts = Facts()
    newest: dict[str, int] = {}  # one Spark task reads all messages of a partition in a batch
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
    """Yield the messages of record batches by partition, with their times in Kafka in milliseconds."""
    for batch in batches:
        names, offsets, times, values, *more = batch.columns
        for at, to in _runs(names):
            some = slice(at, to)
            # pyarrow's own `to_pylist` makes a scalar of each row, and takes ten times as long.
            held = values[some].to_numpy(zero_copy_only=False).tolist()
            if values.null_count:
                held = [value or b"" for value in held]  # a tombstone has no value
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
    """Return the start and end of each run of equal names."""
    codes = names.dictionary_encode().indices.to_numpy()
    edges = [0, *(np.flatnonzero(np.diff(codes)) + 1).tolist(), len(codes)]
    return pairwise(edges) if len(codes) else iter(())


def _headers(pairs: Any, key: bytes | None, milliseconds: int) -> Headers:
    return beside([(each["key"], each["value"]) for each in pairs or ()], key, milliseconds)


def _parts(chunk: Chunk, places: Places, offsets: Ints, milliseconds: Ints) -> Iterator[MessagePart]:
    for share in StreamPartitioner().share(chunk):
        record = np.searchsorted(places.order, share.records.order, side="right") - 1
        offset = places.position[record]
        yield MessagePart(share, offset, milliseconds[np.searchsorted(offsets, offset)] / 1000)

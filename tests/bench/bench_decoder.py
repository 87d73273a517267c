"""Cost of decoding to columns, compared with msgspec alone: ``python -m tests.bench.bench_decoder``.

The bare rate is `decode_lines` on blocks of 1 MiB into a Struct with every field of SPEC section 3; the
decoder's rate includes it. Both read the same fresh file in the same run; the best of several rounds
is printed, because only other processes can make a round slower.
"""

from __future__ import annotations

import contextlib
import gc
import random
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from connectors.files import FileSource
from connectors.formats.decode.columns import Columns
from connectors.formats.decode.decoder import Decoder
from connectors.formats.decode.json_lines import read_block
from connectors.formats.decode.names import encode, encode_ids
from connectors.formats.decode.scores import score_matrix
from connectors.formats.decode.structs import MAX_LINE_BYTES, Faults, Record
from connectors.formats.decode.times import parse_times
from connectors.formats.wires.mapped import MappedWire
from monitor.base.records import TaskLayout
from monitor.base.source import EndOfSource, Raw, RawBlock, RawMessages
from monitor.config.mapping import FieldMapping
from tests.harness import run

MODELS = 4
LAYOUT = TaskLayout("toxicity", ("ok", "toxic"))


def write_predictions(path: Path, records: int, seed: int = 0) -> None:
    """Write two-class predictions with ids and times, one a line, by `MODELS` models in turn."""
    rng = random.Random(seed)
    with path.open("w", encoding="ascii") as file:
        for i in range(records):
            toxic = round(rng.random(), 6)
            request = i // MODELS
            file.write(
                f'{{"id": "req-{request:08d}", "time": "2026-11-{1 + request // 40000 % 28:02d}T'
                f"{request // 3600 % 24:02d}:{request // 60 % 60:02d}:{request % 60:02d}"
                f'.{request % 1000:03d}Z", '
                f'"task": "toxicity", "model": "model-{i % MODELS}", '
                f'"scores": [{1 - toxic:.6f}, {toxic:.6f}]}}\n'
            )


def blocks_of(path: Path) -> Iterator[RawBlock]:
    """Yield the file in blocks of whole lines, as the file source gives them."""
    source = FileSource(path, name="bench")
    source.open({})
    with contextlib.closing(source), contextlib.suppress(EndOfSource):
        while True:
            for raw in source.read(0.0):
                assert isinstance(raw, RawBlock)
                yield raw


def wires() -> dict[str, MappedWire]:
    """Return mappings of the same records with every name changed: side by side, or in nested objects."""
    flat = {"id": "uuid", "time": "ts", "task": "question", "model": "net"}
    return {
        "one step": MappedWire(FieldMapping(**flat, scores="p")),
        "deeper": MappedWire(FieldMapping(**flat, scores="out.p")),
        "by class": MappedWire(FieldMapping(**flat, class_scores={"ok": "out.p[0]", "toxic": "out.p[1]"})),
    }


def renamed(data: bytes, kind: str) -> bytes:
    """Return the lines of `write_predictions` under the names that `wires` maps."""
    for old, new in ((b'"id"', b'"uuid"'), (b'"time"', b'"ts"'), (b'"task"', b'"question"')):
        data = data.replace(old, new)
    data = data.replace(b'"model"', b'"net"')
    if kind == "one step":
        return data.replace(b'"scores"', b'"p"')
    return data.replace(b'"scores": ', b'"out": {"p": ').replace(b"]}", b"]}}")


def best_seconds(work: Callable[[Any], object], blocks: Sequence[Raw], rounds: int) -> float:
    """Return seconds of the quickest round over all blocks."""
    best = float("inf")
    for _ in range(rounds):
        gc.collect()
        start = time.perf_counter()
        for block in blocks:
            work(block)
        best = min(best, time.perf_counter() - start)
    return best


def as_messages(block: RawBlock) -> RawMessages:
    """Return the lines of a block as Kafka brings them, a message each."""
    values = block.data.splitlines()
    return RawMessages(values, "topic-0", range(len(values)))


def table(records: int = 200_000, rounds: int = 5) -> Iterator[str]:
    """Yield the ratio, what mappings cost, and where the time goes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "predictions.ndjson"
        write_predictions(path, records)
        blocks = list(blocks_of(path))
    whole = yield from tell_whole(blocks, records, rounds)
    yield from tell_mappings(blocks, records, rounds, whole)
    yield from tell_stages(blocks, records, rounds)


def tell_whole(blocks: list[RawBlock], records: int, rounds: int) -> Generator[str, None, float]:
    """Yield the ratio; return microseconds a record."""
    bare = msgspec.json.Decoder(Record)
    decoder = Decoder([LAYOUT], "bench")
    alone = best_seconds(lambda block: bare.decode_lines(block.data), blocks, rounds) / records * 1e6
    whole = best_seconds(lambda block: decoder.decode([block]), blocks, rounds) / records * 1e6
    yield f"{records} records, {len(blocks)} blocks, best of {rounds} rounds"
    yield f"msgspec decode_lines    {alone:6.3f} us a record   {1 / alone:5.2f} million records/s"
    yield f"Decoder to a Chunk      {whole:6.3f} us a record   {1 / whole:5.2f} million records/s"
    yield (
        f"rate of the Decoder     {alone / whole:6.1%} of the bare one (the whole of replay is to reach 35 %)"
    )
    apart = [as_messages(block) for block in blocks]
    cost = best_seconds(lambda raw: decoder.decode([raw]), apart, rounds) / records * 1e6
    yield f"  a message a record    {cost:6.3f} us a record   {alone / cost:6.1%} of the bare one (a topic)"
    return whole


def tell_mappings(blocks: list[RawBlock], records: int, rounds: int, whole: float) -> Iterator[str]:
    """Yield the cost of other names and places of the fields."""
    for name, wire in wires().items():
        theirs = [RawBlock(renamed(block.data, name), block.partition, block.start) for block in blocks]
        mapped = Decoder([LAYOUT], "bench", wire=wire)
        cost = best_seconds(lambda block, by=mapped: by.decode([block]), theirs, rounds)
        cost *= 1e6 / records
        rows = sum(len(b) for block in theirs for b in mapped.decode([block]).batches)
        assert rows == records, (name, rows)
        yield f"  mapping, {name:12s} {cost:6.3f} us a record   {whole / cost:6.1%} of the rate without one"


def tell_stages(blocks: list[RawBlock], records: int, rounds: int) -> Iterator[str]:
    """Yield the time of each stage of decoding."""
    decoder = Decoder([LAYOUT], "bench")

    def per_record(work: Callable[[RawBlock], object]) -> float:
        return best_seconds(work, blocks, rounds) / records * 1e6

    read = per_record(lambda block: read_block(block, MAX_LINE_BYTES))
    yield f"  bytes to records      {read:6.3f}"
    readings = {block.start: read_block(block, MAX_LINE_BYTES) for block in blocks}
    columns = {start: Columns(reading.records) for start, reading in readings.items()}
    none = Faults(0)
    stages: dict[str, Callable[[RawBlock], object]] = {
        "records to lists": lambda b: Columns(readings[b.start].records),
        "times": lambda b: parse_times(columns[b.start].time, none),
        "keys of ids": lambda b: encode_ids(columns[b.start].id, none),
        "scores": lambda b: score_matrix(columns[b.start].scores, LAYOUT, str, none),
        "models": lambda b: encode(columns[b.start].model),
    }
    for name, work in stages.items():
        yield f"  {name:20s}  {per_record(work):6.3f}"
    rows = sum(len(batch) for block in blocks for batch in decoder.decode([block]).batches)
    assert rows == records, (rows, records)
    assert np.isfinite(decoder.decode(blocks[:1]).batches[0].time).all()


if __name__ == "__main__":
    run(table, keep=False)

"""Feeds wrong input to the decoder: ``python -m tests.bench.fuzz_decoder --inputs 1000000``.

A seeded mutator damages good records, our own and, in every other pair of reads, those of serving stacks,
which are told by their shape: bytes flipped, cut, doubled and spliced, values replaced by others
that JSON allows and by some that it does not. They arrive as blocks of a file and as messages. After
each read the accounting identity must hold, no row may break the promises of `Batch`, and, now and
then, the same bytes cut elsewhere must give the same rows and rejects.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from connectors.formats.decode.decoder import Decoder
from connectors.formats.decode.scores import SUM_TOLERANCE
from connectors.formats.wires.choice import RECOGNISED
from monitor.base.records import FIRST_MILLISECOND, LAST_MILLISECOND, NO_ID, Chunk, Floats, TaskLayout
from monitor.base.source import Raw, RawBlock, RawMessages
from tests.harness import run

LAYOUTS = (
    TaskLayout("toxicity", ("ok", "toxic"), models=("erm", "irm"), groups=("region",)),
    TaskLayout("topic", ("a", "b", "c"), models=("topic-1",)),
    TaskLayout("arrival", (), models=("eta",), groups=("origin",)),
)

GOOD = (
    b'{"id": "req-81", "time": "2026-11-20T10:00:00.120Z", "task": "toxicity", "model": "erm", '
    b'"scores": [0.12, 0.88], "groups": {"region": "eu"}}',
    b'{"id": 81, "time": 1763632800.5, "model": "irm", "scores": {"ok": 0.5, "toxic": 0.5}, "label": "ok"}',
    b'{"id": "a", "task": "toxicity", "models": {"erm": [0.25, 0.75], "irm": 0.3}, "version": "v2"}',
    b'{"task": "topic", "model": "m", "scores": [0.2, 0.3, 0.5], "prediction": "b", "extra": [{"x": null}]}',
    b'{"id": "b", "model": "eta", "confidence": 0.9, "correct": true, "groups": {"origin": "EWR"}}',
    b'{"id": "req-81", "task": "toxicity", "label": "toxic", "probability": 0.05}',
    '{"id": "ü-1", "model": "eta", "correct": false, "time": "2026-11-20T11:00:00+01:00"}'.encode(),
)

STACKS = (
    b'{"specversion": "1.0", "id": "e", "type": "org.kubeflow.serving.inference.response", '
    b'"inferenceservicename": "erm", "data": {"predictions": [[0.25, 0.75], [0.5, 0.5]]}}',
    b'{"specversion": "1.0", "id": "e", "type": "org.kubeflow.serving.inference.request", "data": {}}',
    b'{"predictions": [[0.25, 0.75], [0.5, 0.5]], "id": "a", "model_name": "erm"}',
    b'{"model_name": "erm", "id": "v2", "outputs": [{"name": "p", "shape": [1, 2], "datatype": "FP32", '
    b'"data": [0.25, 0.75]}]}',
    b'{"data": {"names": ["t:0"], "ndarray": [[0.25, 0.75]]}, "meta": {"requestPath": {"irm": "image:1"}}}',
    b'{"captureData": {"endpointInput": {"data": "1,2", "encoding": "CSV"}, "endpointOutput": {"data": '
    b'"0.25,0.75", "encoding": "CSV"}}, "eventMetadata": {"eventId": "s", "inferenceTime": '
    b'"2026-02-14T17:25:49Z"}, "eventVersion": "0"}',
    b'{"groundTruthData": {"data": "ok", "encoding": "CSV"}, "eventMetadata": {"eventId": "s:0"}}',
    b'{"databricks_request_id": "d", "timestamp_ms": 1763632800123, "status_code": 200, "response": '
    b'"{\\"predictions\\": [[0.25, 0.75]]}", "request_metadata": {"model_name": "erm"}}',
    b'{"before": null, "after": {"id": "c", "model": "erm", "scores": "[0.25, 0.75]"}, "op": "c"}',
    b'{"before": {"id": "c"}, "after": null, "op": "d"}',
    b'{"schema": {}, "payload": {"after": {"id": 7, "task": "toxicity", "label": "ok"}, "op": "u"}}',
    b'{"$observe":"scorer","record":{"id": "o", "model_name": "erm", "predictions": [[0.25, 0.75]]}}',
)
"""Good records of serving stacks, as they are told by their shape."""

NASTY = (
    b"NaN", b"-Infinity", b"null", b"true", b"-1", b"1.7", b"1e999", b"1e-999", b"-0.0", b"9" * 400,
    b"1763632800120", b'""', b'"' + b"x" * 600 + b'"', b"[]", b"{}", b"[[0.5]]", b"[" * 60 + b"]" * 60,
    b'"\\ud800"', b'"\\u0000"', b'"2026-02-30T00:00:00Z"', b'"2026-11-20T10:00:00"', b"\xff\xfe", b"\n",
    b"\r\n", b"}{", b"} {", b"\xef\xbb\xbf", b"\x00", b",", b":", b'"', b"{", b"}", b"[", b"]",
)  # fmt: skip


def mutate(rng: random.Random, good: Sequence[bytes] = GOOD) -> bytes:
    """Return a good record with up to four damages."""
    data = bytearray(rng.choice(good))
    for _ in range(rng.randrange(4)):
        at, end = sorted((rng.randrange(len(data) + 1), rng.randrange(len(data) + 1)))
        end = min(end, at + 24)
        kind = rng.randrange(10)
        if kind == 0 and data:
            data[rng.randrange(len(data))] = rng.randrange(256)
        elif kind == 1:
            del data[at:end]
        elif kind == 2:
            data[at:at] = data[at:end]
        elif kind == 3:
            data[at:end] = rng.choice(NASTY)
        elif kind == 4:
            other = rng.choice(good)
            data[at:] = other[rng.randrange(len(other)) :]
        else:
            _replace_value(rng, data)
    return bytes(data)


def _replace_value(rng: random.Random, data: bytearray) -> None:
    """Put something else after a colon or a comma: the record stays whole and means something wrong."""
    places = [i for i, byte in enumerate(data) if byte in b":,["]
    if not places:
        return
    start = rng.choice(places) + 1
    end = start
    while end < len(data) and data[end] not in b",]}":
        end += 1
    data[start:end] = rng.choice(NASTY)


def check_chunk(chunk: Chunk) -> None:
    """Raise `AssertionError` unless the accounting holds and every row is as `Batch` promises."""
    used = sum(map(len, chunk.batches))
    assert chunk.answers == used + sum(reject.answers for reject in chunk.rejects), chunk
    rejected_labels = chunk.labels_received - sum(map(len, chunk.labels))
    alone = [reject for reject in chunk.rejects if not reject.along]
    assert 0 <= rejected_labels == sum(reject.answers == 0 for reject in alone), chunk
    assert all(reject.answers == 0 for reject in chunk.rejects if reject.along), chunk
    orders = np.concatenate(
        [np.zeros(0, dtype=np.int64), *(b.order for b in (*chunk.batches, *chunk.labels))]
    )
    assert len(np.unique(orders)) == len(orders)
    for batch in chunk.batches:
        classes = batch.scores.shape[1]
        if batch.numbers.shape[1]:
            assert not np.isinf(batch.scores).any()
            assert not (batch.scores[:, 0] <= 0).any(), "the first column is the standard deviation"
        else:
            assert ((batch.scores >= 0) & (batch.scores <= 1)).all()
        if classes > 1 and not batch.numbers.shape[1]:
            assert np.abs(batch.scores.sum(axis=1) - 1).max() <= SUM_TOLERANCE + 1e-5
        assert ((batch.predicted >= 0) & (batch.predicted < classes)).all()
        check_times(batch.time)
        assert (np.diff(batch.order) > 0).all()
        assert set(batch.model.tolist()) == set(range(len(batch.models)))
        named = (
            *batch.models,
            *batch.versions,
            *(name for names, _ in batch.groups.values() for name in names),
        )
        assert "".join(named).encode("utf-8") is not None, "the store and Prometheus hold them as UTF-8"
    for labels in chunk.labels:
        assert (labels.key != NO_ID).all()
        assert (labels.label >= 0).all()
        check_times(labels.time)
    for reject in chunk.rejects:
        assert reject.message.startswith("$"), reject
        assert len(reject.raw) <= 2000, reject


def check_times(times: Floats) -> None:
    """Check that each time is one that a report can write, or NaN for none."""
    milliseconds = np.rint(times[~np.isnan(times)] * 1000)
    assert ((milliseconds >= FIRST_MILLISECOND) & (milliseconds <= LAST_MILLISECOND)).all()


def reads(rng: random.Random, inputs: int, each: int = 200) -> Iterator[list[bytes]]:
    """Yield mutated records, `each` of them a read; a few of them as whole as they were."""
    for start in range(0, inputs, each):
        stacks = (GOOD, (*GOOD, *STACKS))[start // each % 4 // 2]
        yield [mutate(rng, stacks) for _ in range(min(each, inputs - start))]


def as_raw(number: int, values: list[bytes]) -> Raw:
    """Return a read as messages if its number is odd, else as a block."""
    if number % 2:
        return RawMessages(values, "topic-0", list(range(len(values))))
    return RawBlock(b"\n".join(values) + b"\n", "file.ndjson", 0)


def counts_of(chunks: Sequence[Chunk]) -> Counter[str]:
    """Return rows used and rejects by reason, over some chunks."""
    counts: Counter[str] = Counter()
    for chunk in chunks:
        counts["used"] += sum(map(len, chunk.batches))
        counts["labels used"] += sum(map(len, chunk.labels))
        counts.update(reject.reason.value for reject in chunk.rejects)
    return counts


def one_by_one(raw: Raw) -> list[Raw]:
    """Return the same input in the smallest pieces."""
    if isinstance(raw, RawMessages):
        return [RawMessages([v], raw.partition, [o]) for v, o in zip(raw.values, raw.offsets, strict=True)]
    assert isinstance(raw, RawBlock)
    lines = raw.data.split(b"\n")[:-1]
    starts = np.cumsum([0, *(len(line) + 1 for line in lines)]).tolist()
    pairs = zip(lines, starts[:-1], strict=True)
    # A byte order mark is passed over at the start of a file only.
    return [RawBlock(line + b"\n", raw.partition, start) for line, start in pairs]


def table(inputs: int = 1_000_000, seed: int = 0) -> Iterator[str]:
    """Yield the counts of inputs by outcome."""
    decoders = Decoder(LAYOUTS, "fuzz"), Decoder(LAYOUTS, "fuzz", wire=RECOGNISED)
    rng = random.Random(seed)
    counts: Counter[str] = Counter()
    answers = labels = cut_elsewhere = 0
    begun = time.perf_counter()
    for number, values in enumerate(reads(rng, inputs)):
        raw = as_raw(number, values)
        decoder = decoders[number % 4 // 2]
        chunk = decoder.decode([raw])
        check_chunk(chunk)
        counts += counts_of([chunk])
        answers += chunk.answers
        labels += chunk.labels_received
        if number % 50 < 2:
            pieces = [decoder.decode([piece]) for piece in one_by_one(raw)]
            assert counts_of(pieces) == counts_of([chunk])
            cut_elsewhere += 1
    seconds = time.perf_counter() - begun
    for name, count in counts.most_common():
        yield f"{name:16s} {count:9d}"
    yield f"{inputs} inputs (seed {seed}) in {seconds:.0f} s:"
    yield f"{answers} answers and {labels} labels received, every one accounted for;"
    yield f"{cut_elsewhere} reads, cut into single records, gave the same"


if __name__ == "__main__":
    run(table, keep=False)

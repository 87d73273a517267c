"""Records for the decoder's tests, and what it makes of them, checked against its promises."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from connectors.formats.decode.decoder import Decoder
from monitor.base.records import Chunk, TaskLayout
from monitor.base.source import RawBlock, RawMessages
from tests.bench.fuzz_decoder import check_chunk

FEATURES = (("hour", "number"), ("carrier", "text"))
TOXICITY = TaskLayout(
    "toxicity", ("ok", "toxic"), models=("erm", "irm"), groups=("region",), features=FEATURES
)
TOPIC = TaskLayout("topic", ("a", "b", "c"), models=("topic-1",))
ARRIVAL = TaskLayout("arrival", (), models=("eta",))


def decode(
    *records: object,
    layouts: tuple[TaskLayout, ...] = (TOXICITY,),
    clock: Callable[[], float] | None = None,
) -> Chunk:
    """Return one line a record, as one block; bytes are taken as they are."""
    lines = [record if isinstance(record, bytes) else json.dumps(record).encode() for record in records]
    block = RawBlock(b"\n".join(lines) + b"\n", "p.ndjson", 0)
    chunk = Decoder(layouts, "test", clock=clock).decode([block])
    check_chunk(chunk)
    return chunk


def answer(**fields: object) -> dict[str, object]:
    """Return a good prediction, with some fields changed; None takes one away."""
    record = {"id": "a", "model": "erm", "scores": [0.25, 0.75], **fields}
    return {name: value for name, value in record.items() if value is not None}


def kserve_event(record: Mapping[str, object]) -> dict[str, object]:
    """Return an answer with scores, time and model, as an event of KServe's logger."""
    return {
        "specversion": "1.0",
        "id": record["id"],
        "source": "http://localhost:9081/",
        "type": "org.kubeflow.serving.inference.response",
        "time": record["time"],
        "inferenceservicename": record["model"],
        "data": {"predictions": [record["scores"]]},
    }


def message_chunk(*values: bytes) -> Chunk:
    raw = RawMessages(values, "topic-3", [10 + i for i in range(len(values))])
    chunk = Decoder([TOXICITY], "test").decode([raw])
    check_chunk(chunk)
    return chunk

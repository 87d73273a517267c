"""A topic for streams on Spark, and the windows that one engine makes of the same batches."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from connectors.formats.decode.decoder import Decoder
from monitor.base.source import RawMessages
from monitor.cli.trial import ReferenceTrial
from monitor.config.file import load_config
from monitor.config.layouts import layouts
from monitor.reports.window_report import to_json
from tests.connectors.spark.streams import TASKS, write_reference

if TYPE_CHECKING:
    from tests.services.kafka_broker import KafkaBroker


class Message(NamedTuple):
    """One of a topic."""

    partition: int
    offset: int
    milliseconds: int
    value: bytes


def messages(records: Iterable[Any], partitions: int) -> list[Message]:
    """Return records spread over partitions, their own times as those of their messages."""
    messages, last = [], 1
    offsets: Counter[int] = Counter()
    for i, record in enumerate(records):
        value = record if isinstance(record, bytes) else json.dumps(record).encode()
        moment = record.get("time") if isinstance(record, dict) else None
        last = int(moment * 1000) if isinstance(moment, int | float) else last
        partition = i * 7 // 3 % partitions
        messages.append(Message(partition, offsets[partition], last, value))
        offsets[partition] += 1
    return messages


def send(broker: KafkaBroker, topic: str, sent: Sequence[Message]) -> None:
    """Send messages to a new topic, whose partitions give them the offsets that they have."""
    from kafka import KafkaProducer

    # Their times are long past: the broker would remove them.
    config = {"retention.ms": "-1"}
    broker.create_topic(topic, 1 + max(message.partition for message in sent), **config)
    producer = KafkaProducer(bootstrap_servers=broker.address)
    for one in sent:
        producer.send(topic, one.value, partition=one.partition, timestamp_ms=one.milliseconds)
    producer.flush()
    producer.close()


def cuts(checkpoint: Path, topic: str) -> list[dict[int, int]]:
    """Return, by batch, the offset in each partition at which it ends, from Spark's log of the stream."""
    batch_ends = []
    folder = checkpoint / "spark" / "offsets"
    for number in sorted(int(path.name) for path in folder.iterdir() if path.name.isdigit()):
        ends = json.loads((folder / str(number)).read_text().splitlines()[2])[topic]
        batch_ends.append({int(partition): int(end) for partition, end in ends.items()})
    return batch_ends


def in_batches(sent: Sequence[Message], ends: Sequence[dict[int, int]]) -> list[list[Message]]:
    """Return messages of each batch, by their times, which do not fall within a partition."""
    begins: dict[int, int] = defaultdict(int)
    batches = []
    for end in ends:
        some, newest = [], dict[int, int]()
        for message in sorted(sent):
            if begins[message.partition] <= message.offset < end[message.partition]:
                newest[message.partition] = max(newest.get(message.partition, 0), message.milliseconds)
                some.append((newest[message.partition], message))
        batches.append([message for _, message in sorted(some)])
        begins.update(end)
    return batches


def stream_config(folder: Path, broker: str, topic: str = "p", **more: Any) -> Path:
    """Return a configuration that reads a topic; windows of the task `t` close by their size alone."""
    tasks = TASKS | {"t": TASKS["t"] | {"window": {"size": 100, "min_size": 20, "max_age_seconds": 1e6}}}
    text = {
        "tasks": tasks,
        "rejects": {"path": "rejects.ndjson"},
        "export": {"listen": "127.0.0.1:0"},
        "sources": [{"kind": "kafka", "brokers": [broker], "topics": [topic]}],
    }
    write_reference(folder)
    path = folder / "config.yaml"
    path.write_text(json.dumps(text | more))
    return path


def one_engine(config: Path, batches: Sequence[Sequence[Message]], topic: str) -> dict[Any, list[Any]]:
    """Return, by task and model, the lines of one engine that takes the messages of batches one by one."""
    loaded = load_config(str(config))
    engine = ReferenceTrial(loaded).engine_settings(event_time=True).build()
    decoder = Decoder(layouts(loaded.tasks), "kafka")
    lines = []
    for message in (message for batch in batches for message in batch):
        raw = RawMessages([message.value], f"{topic}-{message.partition}", [message.offset])
        lines += [to_json(report) for report in engine.absorb(decoder.decode([raw]), 0.0)]
    return by_model([json.loads(line) for line in lines])


def by_model(lines: Iterable[Any]) -> dict[Any, list[Any]]:
    """Return the windows' fields of the lines, by task and model, in their order."""
    by_series: dict[Any, list[Any]] = defaultdict(list)
    for line in lines:
        head = line["window"], line["revision"], line.get("group"), line["size"], line["closed_by"]
        estimates = [
            tuple(map(one.get, ("metric", "estimator", "value", "lower", "labels", "unit")))
            for one in [*(line.get("estimates") or line["models"]), *(line.get("values") or ())]
        ]
        by_series[line["task"], line.get("model")].append((*head, estimates))
    return dict(by_series)

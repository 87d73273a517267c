"""What reading from Kafka costs beside kafka-python alone: ``python -m tests.bench.bench_kafka``.

A real broker on this machine holds messages of 141 bytes, one prediction each, in three partitions.
Every stage reads the whole topic in a group of its own: kafka-python's bare `poll`, then the source,
then the source with the decoder, then with the engine behind it. The best of several rounds is
printed, because only other processes can make a round slower.
"""

from __future__ import annotations

import argparse
import gc
import time
import uuid
import warnings
from collections.abc import Callable, Sequence

from connectors.base import Raw, RawMessages
from connectors.formats.decoder import Decoder
from monitor.config import Calibration, Task
from monitor.engine import EngineSettings, layouts
from tests.services.kafka_reading import make_source

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer

    from connectors.kafka.options import DEFAULTS
    from tests.services.kafka_broker import KafkaBroker

PARTITIONS = 3
TOPIC = "bench"
TASKS = {"toxicity": Task(classes=("ok", "toxic"), calibration=Calibration(method="none"))}

Work = Callable[[Sequence[Raw]], None]


def message(i: int) -> bytes:
    """A prediction of 141 bytes; four models answer each request."""
    score = (i * 7919 % 9999) / 10_000
    return (
        f'{{"id": "req-{i // 4:08d}", "time": "2026-11-20T10:{i // 60 % 60:02d}:{i % 60:02d}.120Z", '
        f'"task": "toxicity", "model": "model-{i % 4}", "scores": [{1 - score:.4f}, {score:.4f}], '
        '"version": ""}'
    ).encode()


def decoding() -> Work:
    """What turns raw messages into columns."""
    decoder = Decoder(layouts(TASKS), "bench")

    def work(raws: Sequence[Raw]) -> None:
        decoder.decode(raws)

    return work


def computing() -> Work:
    """Decoder and engine: joins, windows of 500, intervals, charts."""
    decoder = Decoder(layouts(TASKS), "bench")
    engine = EngineSettings(TASKS).build()

    def work(raws: Sequence[Raw]) -> None:
        engine.absorb(decoder.decode(raws), 0.0)

    return work


def bare_rate(broker: KafkaBroker, count: int) -> float:
    """Messages a second by kafka-python's `poll` alone, with the source's options."""
    consumer = KafkaConsumer(
        TOPIC,
        bootstrap_servers=broker.address,
        group_id=uuid.uuid4().hex,
        enable_auto_commit=False,
        **DEFAULTS,
    )
    got, began = 0, 0.0
    while got < count:
        polled = consumer.poll(timeout_ms=500)
        # The clock starts at the first message: joining the group is not reading.
        began = began or (time.perf_counter() if polled else 0.0)
        got += sum(map(len, polled.values()))
    rate = count / (time.perf_counter() - began)
    consumer.close(autocommit=False)
    return rate


def source_rate(broker: KafkaBroker, count: int, work: Work | None = None) -> float:
    """Messages a second by the source, with what `work` does to them."""
    source = make_source(broker.address, TOPIC, group=uuid.uuid4().hex)
    source.open({})
    got, began = 0, 0.0
    while got < count:
        raws = source.read(0.5)
        began = began or (time.perf_counter() if raws else 0.0)
        if work is not None and raws:
            work(raws)
        for raw in raws:
            assert isinstance(raw, RawMessages)
            got += len(raw.values)
            source.absorbed({raw.partition: raw.offsets[-1] + 1})
    rate = count / (time.perf_counter() - began)
    source.close()
    return rate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--messages", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    count = arguments.messages
    stages: dict[str, Callable[[KafkaBroker], float]] = {
        "kafka-python poll alone": lambda broker: bare_rate(broker, count),
        "KafkaSource.read": lambda broker: source_rate(broker, count),
        "... and Decoder": lambda broker: source_rate(broker, count, decoding()),
        "... and Engine": lambda broker: source_rate(broker, count, computing()),
    }
    with KafkaBroker() as broker:
        broker.create_topic(TOPIC, PARTITIONS)
        broker.produce(TOPIC, map(message, range(count)), partitions=PARTITIONS)
        best = dict.fromkeys(stages, 0.0)
        for _ in range(arguments.rounds):
            for name, rate in stages.items():
                gc.collect()
                best[name] = max(best[name], rate(broker))
    alone = best["kafka-python poll alone"]
    print(
        f"{count} messages of {len(message(0))} bytes, {PARTITIONS} partitions, best of {arguments.rounds}:"
    )
    for name, found in best.items():
        print(f"  {name:24} {found:10,.0f} messages/s   {found / alone:5.2f} of poll alone")


if __name__ == "__main__":
    main()

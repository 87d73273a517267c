"""Cost of reading from Kafka with either client library: ``python -m tests.bench.bench_kafka``.

A real broker on this machine holds messages of 141 bytes, one prediction each, in three partitions. Every
stage reads the whole topic in its own group: the library's bare poll, the source, the source with the
decoder, and with the engine; first with kafka-python, then with confluent-kafka. The garbage collector has
the daemon's settings. librdkafka fetches ahead in its own threads and can use a second core, so the processor
time of all threads is printed with the rate. Both are the best of several rounds, because only other
processes can make a round slower.
"""

from __future__ import annotations

import gc
import math
import time
import uuid
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from connectors.formats.decode.decoder import Decoder
from monitor.base.collector import tune_collector
from monitor.base.source import Raw, RawMessages
from monitor.config.layouts import layouts
from monitor.config.root import CalibrationConfig, Task
from monitor.config.root import KafkaSourceConfig as KafkaSettings
from monitor.engine.engine import EngineSettings
from tests.harness import run
from tests.services.kafka_reading import make_source
from tests.services.process import DRIVERS, Driver

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import confluent_kafka
    from kafka import KafkaConsumer

    from connectors.kafka.drivers.native_options import native_options
    from connectors.kafka.drivers.options import consumer_options
    from tests.services.kafka_broker import KafkaBroker

PARTITIONS = 3
TOPIC = "bench"
TASKS = {"toxicity": Task(classes=("ok", "toxic"), calibration=CalibrationConfig(method="none"))}

Work = Callable[[Sequence[Raw]], None]


def message(i: int) -> bytes:
    """Return a prediction of 141 bytes; four models answer each request."""
    score = (i * 7919 % 9999) / 10_000
    return (
        f'{{"id": "req-{i // 4:08d}", "time": "2026-11-20T10:{i // 60 % 60:02d}:{i % 60:02d}.120Z", '
        f'"task": "toxicity", "model": "model-{i % 4}", "scores": [{1 - score:.4f}, {score:.4f}], '
        '"version": ""}'
    ).encode()


def decoding() -> Work:
    """Return the step that turns raw messages into columns."""
    decoder = Decoder(layouts(TASKS), "bench")

    def work(raws: Sequence[Raw]) -> None:
        decoder.decode(raws)

    return work


def computing() -> Work:
    """Return decoder and engine: joins, windows of 500, intervals, charts."""
    decoder = Decoder(layouts(TASKS), "bench")
    engine = EngineSettings(TASKS).build()

    def work(raws: Sequence[Raw]) -> None:
        engine.absorb(decoder.decode(raws), 0.0)

    return work


def bare_python(broker: KafkaBroker, count: int) -> float:
    """Return messages a second by kafka-python's `poll` alone, with the source's options."""
    consumer = KafkaConsumer(TOPIC, **consumer_options(settings_of(broker, "kafka-python")))
    got, began = 0, 0.0
    while got < count:
        polled = consumer.poll(timeout_ms=500)
        # The clock starts at the first message: joining the group is not reading.
        began = began or (time.perf_counter() if polled else 0.0)
        got += sum(map(len, polled.values()))
    rate = count / (time.perf_counter() - began)
    consumer.close(autocommit=False)
    return rate


def bare_native(broker: KafkaBroker, count: int) -> float:
    """Return messages a second by confluent-kafka's `consume` alone, with the source's options."""
    settings = settings_of(broker, "confluent")
    options = native_options(settings, consumer_options(settings))
    consumer = confluent_kafka.Consumer({**options, "auto.offset.reset": "earliest"})
    consumer.subscribe([TOPIC])
    got, began = 0, 0.0
    while got < count:
        polled = [m for m in consumer.consume(20_000, 0.05) if m.error() is None and m.value()]
        began = began or (time.perf_counter() if polled else 0.0)
        got += len(polled)
    rate = count / (time.perf_counter() - began)
    consumer.close()
    return rate


def settings_of(broker: KafkaBroker, driver: Driver) -> KafkaSettings:
    """Return a source in a group of its own."""
    return KafkaSettings(
        kind="kafka", driver=driver, brokers=(broker.address,), topics=(TOPIC,), group=uuid.uuid4().hex
    )


def source_rate(broker: KafkaBroker, count: int, driver: Driver, work: Work | None = None) -> float:
    """Return messages a second by the source, with what `work` does to them."""
    source = make_source(broker.address, TOPIC, driver=driver, group=uuid.uuid4().hex)
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
            source.acknowledge({raw.partition: raw.offsets[-1] + 1})
    rate = count / (time.perf_counter() - began)
    source.close()
    return rate


def stages_of(driver: Driver, count: int) -> dict[str, Callable[[KafkaBroker], float]]:
    """Return the stages by name, from the bare library to the whole."""
    bare = {"kafka-python": bare_python, "confluent": bare_native}[driver]
    return {
        "poll alone": lambda broker: bare(broker, count),
        "KafkaSource.read": lambda broker: source_rate(broker, count, driver),
        "... and Decoder": lambda broker: source_rate(broker, count, driver, decoding()),
        "... and Engine": lambda broker: source_rate(broker, count, driver, computing()),
    }


@dataclass
class Cost:
    """The best that was seen."""

    rate: float = 0.0
    seconds: float = math.inf

    def take(self, rate: float, seconds: float) -> None:
        """See another round: messages a second, and the processor's seconds a message."""
        self.rate, self.seconds = max(self.rate, rate), min(self.seconds, seconds)


def table(messages: int = 300_000, rounds: int = 3) -> Iterator[str]:
    """Yield a line a driver and stage."""
    tune_collector()
    costs = {driver: {name: Cost() for name in stages_of(driver, 0)} for driver in DRIVERS}
    with KafkaBroker() as broker:
        broker.create_topic(TOPIC, PARTITIONS)
        broker.produce(TOPIC, map(message, range(messages)), partitions=PARTITIONS)
        for _ in range(rounds):
            for driver in DRIVERS:
                for name, rate in stages_of(driver, messages).items():
                    gc.collect()
                    busy = time.process_time()
                    costs[driver][name].take(rate(broker), (time.process_time() - busy) / messages)
    yield f"{messages} messages of {len(message(0))} bytes, {PARTITIONS} partitions, best of {rounds};"
    yield "in brackets, beside the same stage of kafka-python"
    yield f"{'':30}    messages/s            CPU, us a message"
    for driver in DRIVERS:
        for name, cost in costs[driver].items():
            plain = costs["kafka-python"][name]
            yield (
                f"  {driver:12} {name:16} {cost.rate:10,.0f} ({cost.rate / plain.rate:4.2f})"
                f" {1e6 * cost.seconds:14.2f} ({plain.seconds / cost.seconds:4.2f})"
            )


if __name__ == "__main__":
    run(table, keep=False)

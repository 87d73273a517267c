"""The memory of an agent where a few kilobytes in a topic unpack to a hundred megabytes.

    python -m tests.faults.unpacked [--messages 100] [--megabytes 1.0]

A batch of compressed messages is unpacked whole by both drivers, before anyone can look at a message, so no
setting bounds it. Who may write to a topic can do this; only the memory limit of the process ends it. Each
message is a number of that many digits: the agent rejects it, and goes on.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from kafka import KafkaProducer

from tests.daemon import DaemonProcess, configuration
from tests.harness import resident, run
from tests.services.kafka_broker import KafkaBroker
from tests.services.process import DRIVERS


def send(broker: KafkaBroker, topic: str, messages: int, size: int) -> None:
    """Send all messages in one batch, as far as the broker takes one of that size."""
    producer = KafkaProducer(
        bootstrap_servers=broker.address,
        compression_type="gzip",
        batch_size=2 * messages * size,
        max_request_size=2 * messages * size,
        linger_ms=60_000,
    )
    for _ in range(messages):
        producer.send(topic, b"1" * size, partition=0)
    producer.flush()
    producer.close()


def peak(folder: Path, source: dict[str, object], rejected: int) -> float:
    """Return the most memory that an agent had at once, in MB, when it has rejected `rejected` messages."""
    folder.mkdir()
    with DaemonProcess(folder, configuration(sources=[source])) as daemon:
        daemon.until(
            lambda: daemon.metrics().total("rejected_total") == rejected and daemon.get("/-/ready")[0] == 200,
            "each is rejected",
        )
        return resident(daemon.process.pid, most=True) / 1e6


def measure(messages: int = 100, megabytes: float = 1.0) -> Iterator[str]:
    """Yield the most memory at once of an agent without and with such a batch, by driver."""
    size = int(megabytes * 1e6)
    with KafkaBroker() as broker, tempfile.TemporaryDirectory() as name:
        broker.create_topic("empty")
        broker.create_topic("unpacked")
        send(broker, "unpacked", messages, size)
        stored = sum(file.stat().st_size for file in broker.data.glob("unpacked-0/*.log"))
        yield f"{messages} messages of {megabytes:g} MB, {stored / 1e3:,.0f} kB in the topic; MB at most"
        for driver in DRIVERS:
            source = {"kind": "kafka", "brokers": [broker.address], "driver": driver, "group": driver}
            without = peak(Path(name, f"{driver}-0"), source | {"topics": ["empty"]}, 0)
            with_it = peak(Path(name, f"{driver}-1"), source | {"topics": ["unpacked"]}, messages)
            yield f"{driver:<14} {without:5.0f} without, {with_it:5.0f} with"


if __name__ == "__main__":
    run(measure)

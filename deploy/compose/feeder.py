"""The demo's flights for the compose file: prepares them, and sends them to a topic at a steady pace.

    python feeder.py prepare FOLDER                     the agent's reference and the stream, once
    python feeder.py feed FOLDER --brokers HOST:PORT    the stream, flights and labels in one topic

The extra `demo` must be installed. Times of the records are those of 2013; only the pace is ours.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from kafka import KafkaAdminClient, KafkaProducer
from kafka.errors import KafkaError, TopicAlreadyExistsError

from monitor.cli.demo.stream import prepare

STEP_SECONDS = 0.2
WAIT_SECONDS = 60.0


def feed(path: Path, brokers: Sequence[str], topic: str, rate: float) -> int:
    """Send every line of a file, `rate` a second; how many there were.

    Parameters
    ----------
    path : Path
        NDJSON.
    brokers : sequence of str
        ``host:port``.
    topic : str
        Made with one partition, which keeps the order, if it is not there.
    rate : float
        Lines a second, above 0.
    """
    _make_topic(brokers, topic)
    producer = KafkaProducer(bootstrap_servers=list(brokers), acks="all", linger_ms=20)
    began, sent = time.monotonic(), 0
    try:
        for lines in _batches(path, max(int(rate * STEP_SECONDS), 1)):
            time.sleep(max(began + sent / rate - time.monotonic(), 0.0))
            for line in lines:
                producer.send(topic, line)
            sent += len(lines)
        producer.flush(timeout=WAIT_SECONDS)
    finally:
        producer.close()
    return sent


def _batches(path: Path, size: int) -> Iterator[list[bytes]]:
    with path.open("rb") as file:
        while lines := [line.rstrip(b"\n") for line in itertools.islice(file, size)]:
            yield lines


def _make_topic(brokers: Sequence[str], topic: str) -> None:
    """Make it as soon as a broker answers."""
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            admin = KafkaAdminClient(bootstrap_servers=list(brokers), bootstrap_timeout_ms=5000)
            break
        except KafkaError as error:
            if time.monotonic() > deadline:
                raise SystemExit(
                    f"feeder: no broker at {', '.join(brokers)} within a minute: {error}"
                ) from error
            time.sleep(1.0)
    try:
        admin.create_topics({topic: {"num_partitions": 1, "replication_factor": 1}})
    except TopicAlreadyExistsError:
        pass
    finally:
        admin.close()


def main(words: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="feeder.py", description=__doc__)
    parser.add_argument("what", choices=("prepare", "feed"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--brokers", nargs="+", default=["kafka:9092"], metavar="HOST:PORT")
    parser.add_argument("--topic", default="flights")
    parser.add_argument("--rate", type=float, default=120.0, help="lines a second, of flights and labels")
    chosen = parser.parse_args(words)
    if chosen.rate <= 0:
        parser.error(f"--rate must be above 0, got {chosen.rate:g}")
    if chosen.what == "prepare":
        if not (chosen.folder / "reference.ndjson").exists():
            prepare(chosen.folder, progress=lambda step: print(step, flush=True))
        return 0
    sent = feed(chosen.folder / "flights.ndjson", chosen.brokers, chosen.topic, chosen.rate)
    print(f"Sent {sent:,} records.", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Cost of a record from each kind of source, compared with another checkout: ``--against DIR``.

    python -m tests.bench.bench_intake --against DIR [--records 300000] [--rounds 5]

`replay` reads a file of predictions. `run` takes the same number from posts of 100 rows over eight
connections (`http`), and from a real broker in three partitions by either library (`kafka-python`,
`confluent`). Each runs as a command of its checkout. Counting begins after a first part of the records, so it
excludes the start and the imports for the first window or chart. It counts the processor time of all threads.
Both checkouts take turns; figures are medians.
"""

from __future__ import annotations

import subprocess
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

from tests.bench.bench_http import CLIENTS, ROWS, body, connect, post
from tests.bench.bench_kafka import PARTITIONS, message
from tests.bench.bench_replay import write_inputs
from tests.bench.bench_start import Checkout
from tests.daemon import ROOT, DaemonProcess
from tests.harness import processor_of_children, processor_seconds, run
from tests.services.kafka_broker import KafkaBroker
from tests.services.process import DRIVERS, free_ports

WARM = 100_000
"""Records before the counted ones: 50 windows of each of four models, so that every chart has its limits."""

WINDOW = 500

WAYS = ("replay", "http", *DRIVERS)

Send = Callable[[int], None]
"""Brings so many more records on their way."""


def replayed(checkout: Checkout, records: int) -> float:
    """Return processor seconds of a replay beyond those of a short one."""
    return _replay_of(checkout, WARM + records) - _replay_of(checkout, WARM)


def _replay_of(checkout: Checkout, records: int) -> float:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_inputs(folder, records)
        before = processor_of_children()
        words = ("replay", "config.yaml", "stream.ndjson", "--out", "out")
        subprocess.run(checkout.words(*words), check=True, capture_output=True, cwd=folder)
        return processor_of_children() - before


def intake_rate(checkout: Checkout, records: int, source: Mapping[str, Any], send: Send) -> float:
    """Return processor seconds of a daemon from its first records to its last."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = {
            "tasks": {"toxicity": {"classes": ["ok", "toxic"], "calibration": {"method": "none"}}},
            "sources": [source],
            "export": {"listen": "127.0.0.1:0"},
            "reports": {"path": "windows.ndjson"},
        }
        reports = folder / "windows.ndjson"
        words = checkout.words("run", str(folder / "config.yaml"))
        # Not by scrapes: they cost processor time, more of them where the machine is busy.
        with DaemonProcess(folder, config, program=words) as daemon:

            def used(count: int) -> None:
                windows = count // WINDOW
                daemon.until(lambda: reports.read_bytes().count(b"\n") >= windows, f"{windows} windows")

            daemon.until(lambda: "Running: " in daemon.log, "it runs")
            send(WARM)
            used(WARM)
            before = processor_seconds(daemon.process.pid)
            send(records)
            used(WARM + records)
            return processor_seconds(daemon.process.pid) - before


def posted(checkout: Checkout, records: int) -> float:
    """Return the `intake_rate` of posts."""
    [port] = free_ports(1)
    sent = 0

    def send(count: int) -> None:
        nonlocal sent

        def client(numbers: range) -> None:
            with connect(port) as connection:
                for number in numbers:
                    assert post(connection, body(number)), "a post was refused"

        posts = range(sent, sent + count // ROWS)
        with ThreadPoolExecutor(CLIENTS) as pool:
            list(pool.map(client, (posts[i::CLIENTS] for i in range(CLIENTS))))
        sent += count // ROWS

    with tempfile.TemporaryDirectory() as spool:
        source = {"kind": "http", "listen": f"127.0.0.1:{port}", "spool": {"path": spool}}
        return intake_rate(checkout, records, source, send)


def consumed(checkout: Checkout, records: int, broker: KafkaBroker, driver: str) -> float:
    """Return the `intake_rate` of a topic of its own."""
    topic, sent = f"bench-{uuid.uuid4().hex}", 0
    broker.create_topic(topic, PARTITIONS)

    def send(count: int) -> None:
        nonlocal sent
        broker.produce(topic, map(message, range(sent, sent + count)), partitions=PARTITIONS)
        sent += count

    source = {"kind": "kafka", "brokers": [broker.address], "topics": [topic], "group": topic}
    options = {"auto_offset_reset": "earliest"}
    return intake_rate(checkout, records, {**source, "driver": driver, "options": options}, send)


def table(
    against: Path = ROOT, records: int = 300_000, rounds: int = 5, ways: tuple[str, ...] = WAYS
) -> Iterator[str]:
    """Yield microseconds of the processor a record: the other checkout's, this one's, and their ratio."""
    checkouts = [Checkout(root.resolve()) for root in (against, ROOT)]
    for checkout in checkouts:
        checkout.check_path()
    with KafkaBroker() as broker:

        def cost(way: str, checkout: Checkout) -> float:
            if way in DRIVERS:
                return consumed(checkout, records, broker, way)
            return (replayed if way == "replay" else posted)(checkout, records)

        yield f"{'us of processor a record':26}{'before':>9}{'now':>9}{'ratio':>8}   of each round"
        for name in ways:
            turns = [[cost(name, checkout) for checkout in checkouts] for _ in range(rounds)]
            before, now = (1e6 * median(column) / records for column in zip(*turns, strict=True))
            each = " ".join(f"{turn[1] / turn[0]:.2f}" for turn in turns)
            yield f"{name:26}{before:9.2f}{now:9.2f}{now / before:8.3f}   {each}"


if __name__ == "__main__":
    run(table, keep=False)

"""A topic through `run --engine spark` beside one agent, `run`, on the same topic.

    python -m tests.bench.bench_spark_stream [--messages 1000000] [--batch 100000]

A real broker on this machine holds the predictions of `bench_replay`, four models, each in a partition of its
own. Spark has one executor of one core and 1 GiB (`local-cluster`), so that it computes with one core, as the
agent does; the driver's threads use the other where it is idle. Wall seconds begin as the command says that
it runs, and end as the last window is written (the agent) or the last message committed (Spark); other load
on the machine makes them, and so the messages a second, say little. Processor seconds are of all processes of
the command, from its start to its end. "once started" are those from there on that the agent runs, or that
Spark has committed its first two batches, to the last message, as microseconds a message and messages a
second of one core: at least three batches more are needed for this. Memory is the largest that is resident,
looked at ten times a second, Java and Pythons together: of the agent, or of driver and executor. Each must
give the same windows, or the bench fails.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet

from tests.bench.bench_replay import MODELS, write_inputs
from tests.connectors.spark.messages import by_model
from tests.harness import processor_of_children, processor_seconds, resident, run
from tests.services.process import descendants, stop
from tests.services.spark_cluster import executors, kafka_jars

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaProducer

    from tests.services.kafka_broker import KafkaBroker

TOPIC = "bench"
MIB = 1 << 20
SECONDS = 900


@dataclass
class Cost:
    """The cost of a run: seconds, and bytes of the agent or the driver, and of the executor."""

    wall: float = 0.0
    processor: float = 0.0
    memory: int = 0
    executor: int = 0
    started_with: int = 0
    started: float = 0.0
    ended: float = 0.0

    def each(self, messages: int) -> float:
        """Return seconds of the processor that a message takes once it is started."""
        return (self.ended - self.started) / (messages - self.started_with)


def fill(broker: KafkaBroker, folder: Path) -> None:
    """Send each model's predictions to its partition."""
    broker.create_topic(TOPIC, len(MODELS), **{"retention.ms": "-1"})
    producer = KafkaProducer(bootstrap_servers=broker.address, linger_ms=20, batch_size=1 << 18)
    with (folder / "stream.ndjson").open("rb") as file:
        for i, line in enumerate(file):
            producer.send(TOPIC, line.rstrip(), partition=i % len(MODELS))
    producer.flush()
    producer.close()


def configured(folder: Path, broker: KafkaBroker, **source: Any) -> Path:
    """Return the configuration of `bench_replay` over the topic; JSON is YAML."""
    kafka = {"kind": "kafka", "brokers": [broker.address], "topics": [TOPIC], **source}
    path = folder / "agent.yaml"
    path.write_text(
        (folder / "config.yaml").read_text()
        + f"sources: {json.dumps([kafka])}\nreports: {{path: windows.ndjson}}\n"
        + "export: {listen: '127.0.0.1:0'}\n"
    )
    return path


def measured(
    words: list[str], log: Path, done: Callable[[], bool], started_with: Callable[[], int] = lambda: 0
) -> Cost:
    """Run a command until it is done, then end it; `started_with` says how many messages its start took."""
    cost = Cost()
    before = processor_of_children()
    with log.open("wb") as file:
        process = subprocess.Popen([sys.executable, "-m", "monitor.cli", *words], stdout=file, stderr=file)
    try:
        while b"Running: metrics on port" not in log.read_bytes():
            _look(process, cost, log)
        began = time.perf_counter()
        cost.started_with, cost.started = started_with(), _spent(process.pid)
        while not done():
            _look(process, cost, log)
            if not cost.started_with and (rows := started_with()):
                cost.started_with, cost.started = rows, _spent(process.pid)
            assert time.perf_counter() < began + SECONDS, log.read_text()[-3000:]
        cost.wall, cost.ended = time.perf_counter() - began, _spent(process.pid)
        process.send_signal(signal.SIGTERM)
        process.wait(120)
    finally:
        stop(process, kill=True)
    cost.processor = processor_of_children() - before
    return cost


def _spent(pid: int) -> float:
    return sum(processor_seconds(each, with_ended=True) for each in descendants(pid))


def _look(process: subprocess.Popen[bytes], cost: Cost, log: Path) -> None:
    """Wait a tenth of a second, and note the resident memory."""
    time.sleep(0.1)
    assert process.poll() is None, log.read_text()[-3000:]
    of_executors = {pid for each in executors(process.pid) for pid in descendants(each)}
    rest = set(descendants(process.pid)) - of_executors
    cost.memory = max(cost.memory, sum(map(resident, rest)))
    cost.executor = max(cost.executor, sum(map(resident, of_executors)))


def agent(folder: Path, broker: KafkaBroker, lines: int, **source: Any) -> tuple[Cost, Any]:
    """Return `run` in one process, and its windows."""
    path = folder / "windows.ndjson"
    path.unlink(missing_ok=True)

    def done() -> bool:
        return path.exists() and path.read_bytes().count(b"\n") >= lines

    words = ["run", str(configured(folder, broker, **source))]
    cost = measured(words, folder / "log", done)
    return cost, by_model([json.loads(line) for line in path.read_bytes().splitlines()])


def on_spark(folder: Path, broker: KafkaBroker, messages: int, batch: int) -> tuple[Cost, Any]:
    """Return `run --engine spark`, and its windows."""
    state, out = folder / "state", folder / "out"

    def received() -> int:
        path = state / "committed.json"
        return int(json.loads(path.read_bytes())["received"]) if path.exists() else 0

    def started_with() -> int:
        count = received()
        return count if count >= 2 * batch else 0

    words = ["run", str(configured(folder, broker)), "--engine", "spark", "--checkpoint", str(state)]
    words += ["--out", str(out), "--batch", str(batch), "--every", "0", "--master", "local-cluster[1,1,1024]"]
    for setting in (f"spark.jars={kafka_jars()}", "spark.executor.memory=1g"):
        words += ["--spark-conf", setting]
    cost = measured(words, folder / "log", lambda: received() >= messages, started_with)
    files = sorted(out.glob("windows-*.parquet"))
    return cost, by_model(row for file in files for row in pyarrow.parquet.read_table(file).to_pylist())


def table(messages: int = 1_000_000, batch: int = 100_000) -> Iterator[str]:
    """Yield a line a way."""
    lines = len(MODELS) * (messages // len(MODELS) // 500)
    with tempfile.TemporaryDirectory() as name, KafkaBroker() as broker:
        folder = Path(name)
        write_inputs(folder, messages)
        fill(broker, folder)
        runs: dict[str, Callable[[], tuple[Cost, Any]]] = {
            "one agent": lambda: agent(folder, broker, lines, group="python"),
            "one agent, confluent": lambda: agent(folder, broker, lines, group="native", driver="confluent"),
            "Spark, one executor": lambda: on_spark(folder, broker, messages, batch),
        }
        yield (
            f"{'':<21} {'wall s':>7} {'messages/s':>11} {'processor s':>12} {'MiB':>6} {'executor MiB':>13}"
            f" {'once started: us':>17} {'messages/s a core':>18}"
        )
        expected = None
        for way, work in runs.items():
            cost, windows = work()
            expected = expected or windows
            assert windows == expected, f"{way}: other windows than those of one agent"
            yield (
                f"{way:<21} {cost.wall:7.1f} {messages / cost.wall:11,.0f} {cost.processor:12.1f} "
                f"{cost.memory / MIB:6.0f} {cost.executor / MIB:13.0f}"
                f" {1e6 * cost.each(messages):17.1f} {1 / cost.each(messages):18,.0f}"
            )
    yield (
        f"{messages:,} messages, {len(MODELS)} partitions, batches of {batch:,}; "
        f"{lines:,} windows, the same from each"
    )


if __name__ == "__main__":
    run(table, keep=False)

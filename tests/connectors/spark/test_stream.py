"""`blindsight run --engine spark` on a real broker: killed and started again, each window once."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.accounting import answers_account
from tests.connectors.spark.messages import (
    by_model,
    cuts,
    in_batches,
    messages,
    one_engine,
    send,
    stream_config,
)
from tests.connectors.spark.streams import records
from tests.daemon import DaemonProcess
from tests.services.kafka_broker import KafkaBroker
from tests.services.kafka_topics import read_topic
from tests.services.process import descendants, end_of, wait_until
from tests.services.spark_cluster import SparkCluster, executors, kafka_jars

pytestmark = pytest.mark.usefixtures("spark")

BATCH = 400


def driver(config: Path, folder: Path, master: str, *more: str) -> DaemonProcess:
    folder.mkdir()
    words = [
        sys.executable, "-m", "tests.connectors.spark.dies_before_commit",
        str(folder / "die"), "run", str(config),
        "--engine", "spark", "--master", master, "--checkpoint", str(config.parent / "state"),
        "--out", str(config.parent / "out"),
        "--batch", str(BATCH), "--every", "0", "--spark-conf", f"spark.jars={kafka_jars()}",
        "--spark-conf", "spark.executor.memory=512m", *more,
    ]  # fmt: skip
    return DaemonProcess(folder, json.loads(config.read_text()), program=words)


def committed(folder: Path) -> int:
    path = folder / "state" / "committed.json"
    return json.loads(path.read_bytes())["batch"] if path.exists() else -1


def written(folder: Path, last: int = 10**9) -> list[Any]:
    """Return the windows in files up to that of a batch."""
    parquet = pytest.importorskip("pyarrow.parquet")
    files = sorted((folder / "out").glob("windows-*.parquet"))
    until = f"windows-{last:09d}.parquet"
    return [row for file in files if file.name <= until for row in parquet.read_table(file).to_pylist()]


def key_of(line: Any) -> tuple[Any, ...]:
    return tuple(line.get(name) for name in ("task", "model", "group", "window", "revision"))


def gone(pids: list[int]) -> bool:
    return not any(Path(f"/proc/{pid}/cmdline").exists() and _words(pid) for pid in pids)


def _words(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def test_a_killed_executor_and_a_killed_driver_lose_no_window_and_repeat_none(
    tmp_path: Path, kafka_broker: KafkaBroker, spark_cluster: SparkCluster
) -> None:
    """On two executors of a local cluster, then on the two workers of a standalone one."""
    sent = messages(records(requests=900), partitions=3)
    send(kafka_broker, "spark-p", sent)
    reports = {"brokers": [kafka_broker.address], "topic": "spark-windows"}
    config = stream_config(tmp_path, kafka_broker.address, "spark-p", reports={"kafka": reports})
    kafka_broker.create_topic("spark-windows", 2)

    with driver(config, tmp_path / "first", "local-cluster[2,1,512]") as first:
        wait_until(lambda: committed(tmp_path) >= 0, "a batch is committed")
        pid = executors(first.process.pid)[0]
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: committed(tmp_path) >= 1, "one more, without that executor")
        scraped = first.metrics()
        answers_account(scraped).assert_adds_up()
        family = descendants(first.process.pid)
        (tmp_path / "first" / "die").touch()
        assert end_of(first.process) == -signal.SIGKILL, first.log
        wait_until(lambda: gone(family), "its Java and its executors have ended")
    before = committed(tmp_path)
    cut_short = len(read_topic(kafka_broker, "spark-windows"))
    assert cut_short > len(written(tmp_path, before)) > 0, "windows of a batch are there that does not count"

    with driver(config, tmp_path / "second", spark_cluster.master, "--once") as second:
        assert end_of(second.process) == 0, second.log

    assert 1 <= before < committed(tmp_path), "it was killed in the middle"
    ends = cuts(tmp_path / "state", "spark-p")
    assert len(ends) == committed(tmp_path) + 1
    lines = written(tmp_path)
    expected = one_engine(config, in_batches(sent, ends), "spark-p")
    assert by_model(lines) == expected
    assert len(expected) == 10
    assert expected["duel", None], "the arena's state goes from batch to batch"
    keys = [key_of(line) for line in lines]
    assert len(set(keys)) == len(keys) > 20
    sent_on = [json.loads(each.value) for each in read_topic(kafka_broker, "spark-windows")]
    assert sorted(map(key_of, sent_on)) == sorted(keys), "each window is one message"
    assert {name: sorted(of, key=str) for name, of in by_model(sent_on).items()} == {
        name: sorted(of, key=str) for name, of in expected.items()
    }
    assert scraped.total("windows_closed_total", task="t") > 0
    rejects = [path.read_bytes() for path in sorted((tmp_path / "out").glob("rejects-*.ndjson"))]
    assert b"".join(rejects).count(b"\n") == sum(message.value.endswith(b"[0.1]") for message in sent) > 0

"""A stream on Spark to which little or nothing comes, over a real broker: what time alone brings."""

from __future__ import annotations

import json
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.accounting import answers_account
from tests.connectors.spark.messages import stream_config
from tests.daemon import DaemonProcess
from tests.services.kafka_broker import KafkaBroker
from tests.services.process import end_of, wait_until
from tests.services.spark_cluster import kafka_jars

pytestmark = pytest.mark.usefixtures("spark")

MODELS = ("a", "b", "c")
TASK = {
    "classes": ["ok", "toxic"],
    "metrics": ["accuracy"],
    "reference": {"first_windows": 5},
    "window": {"size": 100, "min_size": 20, "max_age_seconds": 2},
    "max_series": 2,
}


def windows(folder: Path) -> list[Any]:
    parquet = pytest.importorskip("pyarrow.parquet")
    files = sorted((folder / "out").glob("windows-*.parquet"))
    rows = [row for file in files for row in parquet.read_table(file).to_pylist()]
    return [(row["model"], row["window"], row["closed_by"], row["size"]) for row in rows]


def answers(models: tuple[str, ...], start: int) -> list[bytes]:
    """Return thirty of each model, at this time."""
    now = time.time()
    scores = {name: [0.8, 0.2] for name in models}
    return [
        json.dumps({"id": f"r{i}", "time": now, "models": scores}).encode() for i in range(start, start + 30)
    ]


def test_windows_close_by_age_although_nothing_comes(tmp_path: Path, kafka_broker: KafkaBroker) -> None:
    """From an empty topic on; models beyond `max_series` are dropped, and those that stop are silent."""
    kafka_broker.create_topic("spark-quiet")
    config = stream_config(
        tmp_path, kafka_broker.address, "spark-quiet", tasks={"t": TASK}, rejects=None, reports=None
    )
    (tmp_path / "driver").mkdir()
    words = [
        sys.executable, "-m", "monitor.cli", "run", str(config), "--engine", "spark", "--master", "local[1]",
        "--checkpoint", str(tmp_path / "state"), "--out", str(tmp_path / "out"), "--every", "0.5",
        "--spark-conf", f"spark.jars={kafka_jars()}",
    ]  # fmt: skip
    with DaemonProcess(tmp_path / "driver", json.loads(config.read_text()), program=words) as driver:
        wait_until(lambda: "Running: metrics on port" in driver.log, "it runs")
        scraped = driver.metrics()
        assert scraped.total("answers_received_total", source="kafka") == 0
        assert windows(tmp_path) == []

        kafka_broker.produce("spark-quiet", answers(MODELS, 0))
        closed = [("a", 0, "age", 30), ("b", 0, "age", 30)]
        wait_until(lambda: windows(tmp_path) == closed, f"they close: {driver.log}")
        wait_until(lambda: driver.metrics().total("state", model="a", state="silent") == 1, "a falls silent")
        scraped = driver.metrics()
        assert scraped.total("series_dropped_total") == 1
        account = answers_account(scraped)
        account.assert_adds_up()
        assert account.parts["shed"] == 30, "those of the model beyond max_series"
        assert scraped.total("windows_closed_total", task="t", model="b") == 1

        kafka_broker.produce("spark-quiet", answers(("a",), 30))
        closed.append(("a", 1, "age", 30))
        wait_until(lambda: windows(tmp_path) == closed, f"it goes on: {driver.log}")
        driver.send(signal.SIGTERM)
        assert end_of(driver.process) == 0, driver.log

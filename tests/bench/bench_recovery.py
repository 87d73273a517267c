"""Recovery time of an agent with a large state after a kill -9.

    python -m tests.bench.bench_recovery [--rows 22000000] [--models 500]

It fills a store with answers of many models, with a checkpoint every 200,000 rows, until the ring of answers
is full: about 1 GB. Then it starts `blindsight run` on the store, sends some answers, kills the agent with
SIGKILL, and starts it again. It prints the time until the agent is ready, the time to read the file's bytes,
and the time of SQLite's own check.
"""

from __future__ import annotations

import json
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from monitor.agent.resume import tasks_as_json
from monitor.base.records import Batch, Chunk, mix
from monitor.config.file import load_config
from monitor.engine.engine import EngineSettings
from monitor.store import Store
from monitor.store.store import FILE
from tests.daemon import DaemonProcess, configuration, write_configuration
from tests.faults.kafka_kills import saved_offsets
from tests.harness import best, run
from tests.services.process import wait_until

ROWS_A_CHECKPOINT = 200_000
PATIENCE_SECONDS = 600.0


def config(rows: int) -> dict[str, Any]:
    """Return a configuration of one task whose join keeps `rows` answers."""
    return configuration(
        sources=[{"kind": "file", "path": "stream.ndjson", "follow": True}],
        store={"path": "store", "every_seconds": 0.1},
        task={
            "window": {"size": 500, "min_size": 50, "max_age_seconds": 1_000_000},
            "labels": {"max_answers": rows, "horizon_days": 365},
        },
    )


def answers_from(first: int, count: int, models: int, rng: np.random.Generator) -> Chunk:
    """Return answers of all models in turn, with ids of their own, a thousand a second."""
    number = np.arange(first, first + count)
    right = rng.beta(20, 1, size=count)
    zeros = np.zeros(count, dtype=np.int64)
    batch = Batch(
        task="t",
        scores=np.stack([1 - right, right], axis=1),
        predicted=zeros + 1,
        model=number % models,
        models=tuple(f"m{i}" for i in range(models)),
        version=zeros,
        versions=("",),
        time=1.7e9 + number / 1000,
        key=mix(number.astype(np.uint64) + np.uint64(1)),
        label=zeros - 1,
        groups={},
        order=np.arange(count),
        partition=zeros,
        position=number,
    )
    return Chunk("made", (batch,), partitions=("made",), positions={"made": first + count}, answers=count)


def fill(folder: Path, rows: int, models: int) -> None:
    """Make a store like that of an agent that has used `rows` answers."""
    settings = load_config(str(write_configuration(folder, config(rows))))
    rng = np.random.default_rng(0)
    engine = EngineSettings(settings.tasks).build()
    store = Store(folder / "store")
    for first in range(0, rows, ROWS_A_CHECKPOINT):
        count = min(ROWS_A_CHECKPOINT, rows - first)
        reports = engine.absorb(answers_from(first, count, models, rng), 1.8e9)
        store.commit(engine.changes(), reports, config=tasks_as_json(dict(settings.tasks)))
        engine.confirm()
    store.close()


def until_ready(folder: Path, rows: int) -> tuple[float, float]:
    """Start, wait until it is ready, add an answer, wait for the checkpoint, kill; the two times."""
    began = time.monotonic()
    with DaemonProcess(folder, config(rows)) as daemon:
        wait_until(lambda: "Running: metrics" in daemon.log, "it runs", seconds=PATIENCE_SECONDS)
        wait_until(lambda: daemon.get("/-/ready")[0] == 200, "it is ready", seconds=PATIENCE_SECONDS)
        ready = time.monotonic()
        with (folder / "stream.ndjson").open("a") as stream:
            stream.write(json.dumps({"id": f"r{ready}", "model": "m0", "scores": [0.1, 0.9]}) + "\n")
        size = (folder / "stream.ndjson").stat().st_size
        wait_until(
            lambda: size in saved_offsets(folder / "store").values(),
            "it is saved",
            pause=0.02,
            seconds=PATIENCE_SECONDS,
        )
        return ready - began, time.monotonic() - ready


def read_bytes(path: Path) -> None:
    """Read a file to its end."""
    with path.open("rb") as file:
        while file.read(1 << 20):
            pass


def quick_check(path: Path) -> None:
    """Let SQLite check each page."""
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA quick_check(1)").fetchone() == ("ok",)
    connection.close()


def table(rows: int = 22_000_000, models: int = 500) -> Iterator[str]:
    """Yield the seconds of a start beside those of an empty agent, the bytes, and SQLite's check."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        fill(folder, rows, models)
        (folder / "stream.ndjson").touch()
        path = folder / "store" / FILE
        starts = [until_ready(folder, rows) for _ in range(3)]
        read, check = (best(partial(work, path), rounds=1) for work in (read_bytes, quick_check))
        size = path.stat().st_size
        with tempfile.TemporaryDirectory() as empty:
            (Path(empty) / "stream.ndjson").touch()
            bare = until_ready(Path(empty), rows)[0]
    ready = min(seconds for seconds, _ in starts[1:])
    yield f"{rows:,} answers kept for the join, {models} models: {size / 1e9:.2f} GB"
    yield f"ready after a kill -9 in {ready:.1f} s, of which an empty agent takes {bare:.1f} s"
    yield f"{(ready - bare) / read:.0f} times reading the file's bytes, {(ready - bare) / check:.1f} times"
    yield f"SQLite's quick_check; the first checkpoint is saved {min(s for _, s in starts[1:]):.2f} s later"


if __name__ == "__main__":
    run(table, keep=False)

"""Seconds from `blindsight run` to the first scrape with data.

    python -m tests.bench.bench_start [--runs 5]

The README's sidecar: a reference of 10,000 labelled answers a model, and a file in which the answers of the
first window of each model stand already. The clock starts with the process; `/metrics` is asked every 10 ms
until it has the estimate of each model. Then the same on the store that it left (a restart). Processor
seconds up to that moment stand beside, since they do not hang on what else the machine does, and so does the
ratio to the command that only imports itself (`blindsight version`).
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np

from tests.bench.paced_daemon import processor_seconds
from tests.daemon import DaemonProcess, command, ndjson
from tests.services.process import free_ports
from tests.streams import CLASSES, answers

REFERENCE_ROWS = 10_000
WINDOW = 500
PATIENCE_SECONDS = 120.0


def sidecar(folder: Path, models: int, reference_rows: int = REFERENCE_ROWS) -> dict[str, Any]:
    """Reference, stream and configuration in a folder."""
    rng = np.random.default_rng(7)
    names = [f"m{i}" for i in range(models)]
    reference = [row for name in names for row in answers(rng, reference_rows, name, labelled=True)]
    stream = [row for name in names for row in answers(rng, WINDOW, name, start=1.8e9)]
    (folder / "reference.ndjson").write_bytes(ndjson(reference))
    (folder / "answers.ndjson").write_bytes(ndjson(stream))
    return {
        "tasks": {
            "t": {
                "classes": CLASSES,
                "reference": {"path": "reference.ndjson"},
                "objective": {"accuracy": {"min": 0.9}},
            }
        },
        "sources": [{"kind": "file", "path": "answers.ndjson", "follow": True}],
        "reports": {"path": "windows.ndjson"},
        "store": {"path": "state"},
    }


def seconds_to_data(folder: Path, config: dict[str, Any], models: int) -> tuple[float, float]:
    """From the process's start until a scrape holds the accuracy of every model: passed, of the processor."""
    [port] = free_ports(1)

    def has_data() -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
                text = answer.read().decode()
        except urllib.error.URLError:
            return False
        lines = [line for line in text.splitlines() if line.startswith("blindsight_estimate_ratio{")]
        return sum('metric="accuracy"' in line and "average_confidence" in line for line in lines) == models

    began = time.monotonic()
    with DaemonProcess(folder, config | {"export": {"listen": f"127.0.0.1:{port}"}}) as daemon:
        daemon.until(has_data, "a scrape has data", PATIENCE_SECONDS, pause=0.01)
        passed = time.monotonic() - began
        worked = processor_seconds(daemon.process.pid)
        daemon.end()
    return passed, worked


Run = tuple[float, float]


def measured(runs: int, models: int) -> tuple[list[Run], list[Run]]:
    """Of fresh starts, and of starts on the store that they left."""
    fresh, again = [], []
    for _ in range(runs):
        with tempfile.TemporaryDirectory(prefix="blindsight-start-") as name:
            config = sidecar(Path(name), models)
            fresh.append(seconds_to_data(Path(name), config, models))
            again.append(seconds_to_data(Path(name), config, models))
    return fresh, again


def importing(runs: int) -> float:
    """What the command takes that does nothing."""

    def one() -> float:
        began = time.monotonic()
        assert command("version").returncode == 0
        return time.monotonic() - began

    return statistics.median(one() for _ in range(runs))


def told(found: list[Run], bare: float) -> str:
    """A row's figures."""
    passed, worked = zip(*found, strict=True)
    middle = statistics.median(passed)
    spread = f"{min(passed):.1f} to {max(passed):.1f}"
    processor = statistics.median(worked)
    return f"{middle:.1f} s ({spread}), {middle / bare:.1f} times that; {processor:.1f} s of processor"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    runs = parser.parse_args().runs
    bare = importing(runs)
    print(f"the command alone (`version`): {bare:.1f} s; medians of {runs}, lowest and highest")
    for models in (1, 10):
        fresh, again = measured(runs, models)
        print(f"{models:2} models, {models * REFERENCE_ROWS:,} rows of reference: {told(fresh, bare)}")
        print(f"{'':10}on the store that it left: {told(again, bare)}")


if __name__ == "__main__":
    main()

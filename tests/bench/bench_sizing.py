"""The needs of an agent by answers a second and models: processor, memory, disk, and scrape time.

    python -m tests.bench.bench_sizing [--cells 1x100 10x1000 100x10000] [--seconds 15] [--keep]

Windows of 500, accuracy and calibration error with a labelled reference, 5 % of the answers labelled, a
store, a file of reports. First it fills the join to its bound of a million answers, at full speed. Then
answers come at the set pace; only this stretch counts, in seconds of processor time a second, of one core.
Memory is the peak of resident memory. The store's files do not grow further once they hold `keep_reports`
lines, 100,000 of about 2 kB, so their bound is 200 MB more.
"""

from __future__ import annotations

import platform
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE

import numpy as np

from monitor.base.records import Floats
from tests.daemon import DaemonProcess
from tests.harness import processor_seconds, resident, run
from tests.streams import confidences

CELLS = ("1x100", "10x1000", "10x10000", "100x1000", "100x10000", "500x10000")
FILL = 1_200_000
REFERENCE_ROWS = 3000
LABELLED_EVERY = 20
STEP_SECONDS = 0.1


@dataclass(frozen=True)
class Need:
    """The cost of one cell of the table.

    Parameters
    ----------
    cores : float
        Processor seconds a second.
    resident, store, scrape : int
        Bytes: the most resident, the store's files at the end, one scrape.
    scrape_seconds : float
        The least of five.
    """

    models: int
    rate: int
    cores: float
    resident: int
    store: int
    scrape: int
    scrape_seconds: float


def lines(first: int, count: int, models: int, score: Floats, labelled: bool = False) -> bytes:
    """Return predictions number `first` and on, the models in turn; every label beside, or every 20th
    behind.
    """
    lines = []
    for number in range(first, first + count):
        chance = float(score[number % len(score)])
        model, request = number % models, number // models
        label = ""
        if labelled:
            label = f',"label":"{"bad" if number * 7919 % 1000 < chance * 1000 else "ok"}"'
        lines.append(
            f'{{"id":"m{model}-{request}","time":{1.7e9 + number / 1000:.3f},"model":"m{model}",'
            f'"scores":[{1 - chance:.6f},{chance:.6f}]{label}}}'
        )
        if not labelled and number % LABELLED_EVERY == 0:
            truth = "bad" if number * 7919 % 1000 < chance * 1000 else "ok"
            stamp = 1.7e9 + number / 1000
            lines.append(f'{{"id":"m{model}-{request}","time":{stamp:.3f},"label":"{truth}"}}')
    return "\n".join(lines).encode() + b"\n"


def measure(models: int, rate: int, seconds: float, fill: int = FILL) -> Need:
    """Run one daemon.

    Parameters
    ----------
    models, rate : int
        `rate` is answers a second of all models together.
    seconds : float
        How long the pace is kept.
    fill : int
        Answers before that, as fast as they are taken.
    """
    score = confidences(np.random.default_rng(0), 100_003)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        reference = lines(-REFERENCE_ROWS * models, REFERENCE_ROWS * models, models, score, labelled=True)
        (folder / "reference.ndjson").write_bytes(reference)
        with DaemonProcess(folder, _config(models), stdin=PIPE, fresh=True) as daemon:
            pipe = daemon.process.stdin
            assert pipe is not None
            for block in _blocks(fill, models, score):
                pipe.write(block)
            pipe.flush()
            _used(daemon, fill // models // 500 * 500 * models)
            step = max(int(rate * STEP_SECONDS), 1)
            count = max(int(seconds * rate / step), 1)
            blocks = [lines(fill + i * step, step, models, score) for i in range(count)]
            before, began = processor_seconds(daemon.process.pid), time.monotonic()
            for number, block in enumerate(blocks):
                time.sleep(max(began + number * step / rate - time.monotonic(), 0.0))
                pipe.write(block)
                pipe.flush()
            busy = processor_seconds(daemon.process.pid) - before
            passed = time.monotonic() - began
            text, scraped = _scrape(daemon)
            return Need(
                models,
                rate,
                busy / passed,
                resident(daemon.process.pid, most=True),
                _size(folder / "state"),
                text,
                scraped,
            )


def _config(models: int) -> dict[str, object]:
    task = {
        "classes": ["ok", "bad"],
        "window": {"size": 500, "min_size": 50},
        "reference": {"path": "reference.ndjson"},
        "calibration": {"method": "isotonic"},
        "metrics": ["accuracy", "ece"],
        "objective": {"accuracy": {"min": 0.8}},
        "models": {f"m{number}": {} for number in range(models)},
    }
    return {
        "tasks": {"t": task},
        "sources": [{"kind": "stdin"}],
        "reports": {"path": "windows.ndjson"},
        "store": {"path": "state"},
        "export": {"listen": "127.0.0.1:0"},
    }


def _blocks(count: int, models: int, score: Floats) -> Iterator[bytes]:
    block = 20_000
    for first in range(0, count, block):
        yield lines(first, min(block, count - first), models, score)


def _used(daemon: DaemonProcess, wanted: int) -> None:
    end = time.monotonic() + 300
    while daemon.metrics().total("predictions_total") < wanted:
        if time.monotonic() > end or daemon.process.poll() is not None:
            raise RuntimeError(f"the daemon did not take what it was given:\n{daemon.log}")
        time.sleep(0.2)


def _scrape(daemon: DaemonProcess) -> tuple[int, float]:
    times = []
    for _ in range(5):
        began = time.perf_counter()
        status, text = daemon.get("/metrics")
        times.append(time.perf_counter() - began)
        if status != 200:
            raise RuntimeError(f"/metrics answered {status}")
    return len(text), min(times)


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


HEAD = (
    f"Python {platform.python_version()}, a million answers joinable, 5 % labelled",
    "models  answers/s   cores   resident MB   store MB   scrape KB   scrape ms",
)


def line(n: Need) -> str:
    """Return a need as text."""
    return (
        f"{n.models:6,} {n.rate:10,} {n.cores:7.3f} {n.resident / 1e6:13,.0f} {n.store / 1e6:10,.0f}"
        f" {n.scrape / 1e3:11,.0f} {n.scrape_seconds * 1e3:11,.0f}"
    )


def table(cells: tuple[str, ...] = CELLS, seconds: float = 15.0) -> Iterator[str]:
    """Yield a line a cell, MODELSxRATE each."""
    yield from HEAD
    for cell in cells:
        models, rate = map(int, cell.split("x"))
        yield line(measure(models, rate, seconds))


if __name__ == "__main__":
    run(table, keep=False)

"""An agent that exports 100,000 series: how long a scrape of it takes, and SIGTERM.

    python -m tests.faults.many_series

A real daemon, with a store, reads windows of as many models, each in two groups, as fill `max_series`.
It is scraped five times, plain and packed, while its windows are open, and then stopped. What else runs on
the machine counts too: the times are those of a clock.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx

from tests.daemon import DaemonProcess, configuration, ndjson
from tests.harness import run

MAX_SERIES = 100_000
WINDOW = 50
GROUPS = 2
SCRAPES = 5


def config(max_series: int) -> dict[str, object]:
    """Return a followed file, and room for every model and group."""
    task = {
        "classes": ["ok", "toxic"],
        "window": {"size": WINDOW, "min_size": WINDOW, "max_age_seconds": 86_400},
        "metrics": ["accuracy", "ece"],
        "groups": ["region"],
        "max_series": 100_000,
    }
    return configuration(
        tasks={"t": task},
        sources=[{"kind": "file", "path": "in.ndjson", "follow": True}],
        store={"path": "state"},
        export={"listen": "127.0.0.1:0", "max_series": max_series},
    )


def feed(folder: Path, models: int) -> int:
    """Return a closed window of each model and group, and an open one; the number of records."""
    records = [
        {
            "id": f"{row}", "model": f"model-{model}", "scores": [row % 100 / 100, 1 - row % 100 / 100],
            "label": "ok", "groups": {"region": f"r{row % GROUPS}"},
        }
        for row in range(GROUPS * WINDOW + 10) for model in range(models)
    ]  # fmt: skip
    (folder / "in.ndjson").write_bytes(ndjson(records))
    return len(records)


def measure(models: int = 900, max_series: int = MAX_SERIES) -> Iterator[str]:
    """Print the size of a scrape, and the longest of each kind."""
    with tempfile.TemporaryDirectory() as folder:
        rows = feed(Path(folder), models)
        with DaemonProcess(Path(folder), config(max_series)) as daemon:
            daemon.until(lambda: daemon.metrics().total("answers_received_total") == rows, "all is read", 2.0)
            url = f"http://127.0.0.1:{daemon.port}/metrics"
            for name in ("identity", "gzip"):
                durations, body, size = [], b"", 0
                for _ in range(SCRAPES):
                    began = time.monotonic()
                    answer = httpx.get(url, headers={"Accept-Encoding": name}, timeout=60)
                    durations.append(time.monotonic() - began)
                    body, size = answer.content, int(answer.headers["content-length"])
                samples = sum(not line.startswith(b"#") for line in body.splitlines())
                yield (
                    f"{samples:,} series, {size / 1e6:.1f} MB as {name}: a scrape takes {min(durations):.2f} "
                    f"to {max(durations):.2f} s"
                )
            code, seconds = daemon.end()
            yield f"SIGTERM: ended with {code} after {seconds:.1f} s, as on idle cores"


if __name__ == "__main__":
    run(measure, keep=False)

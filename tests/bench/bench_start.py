"""Cost of the start: bare Python, `--help`, `check`, and `run` until its first scrape; medians of some runs.

    python -m tests.bench.bench_start [--runs 5] [--models 1 10] [--against DIR]

`run` is the README's sidecar: a reference of 10,000 labelled answers a model, and a file in which the answers
of the first window of each model stand already. `/metrics` is asked every 10 ms: "first scrape" is the first
that is answered, "with data" the first that has the estimate of each model; then the same on the store that
it left (a restart). Wall seconds depend on other load, processor seconds hardly. A separate run counts the
imported modules (`-X importtime`); it writes the bytecode for the others.

`DIR` is another checkout; the commands of both run in turns, by `PYTHONPATH`. The figures are those of `DIR`,
of this checkout, and the ratio of processor times.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.daemon import ROOT, DaemonProcess, ndjson
from tests.harness import processor_of_children, processor_seconds, run
from tests.services.process import free_ports
from tests.streams import CLASSES, answers

REFERENCE_ROWS = 10_000
WINDOW = 500
COUNTING = ("-X", "importtime")
IMPORTED = "import time:"


@dataclass(frozen=True)
class Cost:
    """The cost of one start: seconds of processor, seconds passed, modules (0 if they were not counted)."""

    processor: float
    passed: float
    modules: int = 0


Costs = dict[str, Cost]


@dataclass(frozen=True)
class Checkout:
    """The command of one checkout, wherever the current folder is."""

    root: Path

    def words(self, *arguments: str, options: Sequence[str] = ()) -> list[str]:
        """Return the command with these arguments; options are Python's."""
        project = tomllib.loads((self.root / "pyproject.toml").read_text(encoding="utf-8"))
        module, _, name = project["project"]["scripts"]["blindsight"].partition(":")
        code = f"import sys; from {module} import {name}; sys.exit({name}())"
        return self.python(*options, "-c", code, *arguments)

    def python(self, *arguments: str) -> list[str]:
        """Return Python with this checkout before all that is installed, and without the current folder."""
        return ["env", f"PYTHONPATH={self.root}", sys.executable, "-P", *arguments]

    def check_path(self) -> None:
        """Raise SystemExit unless Python imports the checkout."""
        words = self.python("-c", "import monitor; print(monitor.__file__)")
        origin = subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()
        if not Path(origin).is_relative_to(self.root):
            raise SystemExit(f"{self.root} has no package monitor: Python takes {origin}")

    def ended(self, options: Sequence[str] = ()) -> Costs:
        """Return the commands that end by themselves."""
        example = str(self.root / "config.example.yaml")
        return {
            "python -c pass": cost_of(self.python(*options, "-c", "pass")),
            "blindsight --help": cost_of(self.words("--help", options=options)),
            "blindsight check config.example.yaml": cost_of(self.words("check", example, options=options)),
        }

    def scraped(self, models: int, options: Sequence[str] = (), rows: int = REFERENCE_ROWS) -> Costs:
        """Return two starts of the sidecar, the second on the store of the first."""
        with tempfile.TemporaryDirectory(prefix="blindsight-start-") as name:
            config = sidecar(Path(name), models, rows)
            first, data = self.until_data(Path(name), config, models, options)
            _, again = self.until_data(Path(name), config, models, options)
        what = f"run, {models} model" + "s" * (models > 1)
        return {f"{what}: first scrape": first, "  first with data": data, "  on its store": again}

    def until_data(
        self, folder: Path, config: Mapping[str, Any], models: int, options: Sequence[str] = ()
    ) -> tuple[Cost, Cost]:
        """Return the costs from the process's start to the first scrape, and to one with every model's
        accuracy.
        """
        [port] = free_ports(1)
        config = {**config, "export": {"listen": f"127.0.0.1:{port}"}}
        words = self.words("run", str(folder / "config.yaml"), options=options)

        def scrape() -> str | None:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
                    return str(answer.read().decode())
            except urllib.error.URLError:
                return None

        began = time.monotonic()
        with DaemonProcess(folder, config, program=words) as daemon:

            def cost() -> Cost:
                passed = time.monotonic() - began
                return Cost(processor_seconds(daemon.process.pid), passed, daemon.log.count(IMPORTED))

            daemon.until(lambda: scrape() is not None, "a scrape is answered", pause=0.01)
            first = cost()
            daemon.until(lambda: has_data(scrape(), models), "one has data", pause=0.01)
            data = cost()
            daemon.end()
        return first, data


def has_data(text: str | None, models: int) -> bool:
    """Return whether a scrape has an accuracy of each model."""
    lines = [line for line in (text or "").splitlines() if line.startswith("blindsight_estimate_ratio{")]
    return sum('metric="accuracy"' in line and "average_confidence" in line for line in lines) == models


def cost_of(words: Sequence[str]) -> Cost:
    """Return a command that is run to its end."""

    before, began = processor_of_children(), time.monotonic()
    done = subprocess.run(words, check=False, capture_output=True, text=True, cwd=os.sep)
    passed = time.monotonic() - began
    assert done.returncode == 0, done.stderr
    return Cost(processor_of_children() - before, passed, done.stderr.count(IMPORTED))


def sidecar(folder: Path, models: int, reference_rows: int = REFERENCE_ROWS) -> dict[str, Any]:
    """Write reference, stream and configuration into a folder; return the configuration."""
    rng = np.random.default_rng(7)
    names = [f"m{i}" for i in range(models)]
    reference = [row for name in names for row in answers(rng, reference_rows, name, labelled=True)]
    stream = [row for name in names for row in answers(rng, WINDOW, name, start=1.75e9)]
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


def measured(checkouts: Sequence[Checkout], models: Sequence[int], runs: int) -> Iterator[list[Costs]]:
    """Yield a part of the table at a time: of each checkout the medians of its runs, which take turns."""

    def part(one: Callable[[Checkout, Sequence[str]], Costs]) -> list[Costs]:
        counted = [one(checkout, COUNTING) for checkout in checkouts]
        turns = [[one(checkout, ()) for checkout in checkouts] for _ in range(runs)]
        return [
            {name: median([turn[i][name] for turn in turns], cost.modules) for name, cost in costs.items()}
            for i, costs in enumerate(counted)
        ]

    yield part(Checkout.ended)
    for count in models:
        yield part(lambda checkout, options, count=count: checkout.scraped(count, options))  # type: ignore[misc]


def median(costs: Sequence[Cost], modules: int) -> Cost:
    """Return the middle of each figure; modules were counted apart."""
    return Cost(
        statistics.median(cost.processor for cost in costs),
        statistics.median(cost.passed for cost in costs),
        modules,
    )


def header(checkouts: int, runs: int) -> str:
    """Return the header of the table."""
    columns = f"{'processor s':>13}{'passed s':>10}{'modules':>9}"
    ratio = "  processor" * (checkouts > 1)
    title = f"medians of {runs}, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    return f"{title:38}{columns * checkouts}{ratio}"


def lines(part: Sequence[Costs]) -> Iterator[str]:
    """Yield the rows of one part; the last column is the last checkout's processor time beside the
    first's.
    """
    for name in part[0]:
        costs = [costs[name] for costs in part]
        cells = "".join(f"{c.processor:13.3f}{c.passed:10.2f}{c.modules:9}" for c in costs)
        ratio = f"{costs[-1].processor / costs[0].processor:11.2f}" if len(costs) > 1 else ""
        yield f"{name:38}{cells}{ratio}"


def table(runs: int = 5, models: tuple[int, ...] = (1, 10), against: Path | None = None) -> Iterator[str]:
    """Yield all of it."""
    checkouts = [Checkout(root.resolve()) for root in (against, ROOT) if root]
    for checkout in checkouts:
        checkout.check_path()
    yield header(len(checkouts), runs)
    for part in measured(checkouts, models, runs):
        yield from lines(part)


if __name__ == "__main__":
    run(table, keep=False)

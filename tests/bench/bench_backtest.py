"""`blindsight backtest` with nine injected drops, three drops of each of three starts, beside one `replay`.

    python -m tests.bench.bench_backtest [--records N] [--labelled-every 19] [--processes 2]

Each drop is replayed in three ways: with and without the model's knowledge, with and without labels. Both
commands use the same number of processes. On busy cores the clock says little, so the table has the
processor time, of all processes and imports, too.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.bench.bench_processes import SCRIPT, Turn, read_turn
from tests.bench.bench_replay import write_inputs
from tests.bench.bench_start import Checkout
from tests.harness import ROOT, run


def table(records: int = 1_000_000, labelled_every: int = 19, processes: int = 2) -> Iterator[str]:
    """Yield seconds by the clock and of the processor of both commands, and their ratios."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_inputs(folder, records, labelled_every=labelled_every)
        replay, backtest = (cost(folder, command, processes) for command in ("replay", "backtest"))
    yield f"{records:,} answers of 4 models, {processes} processes on {os.cpu_count()} cores, of which "
    yield f"{os.getloadavg()[0]:.1f} were wanted in the last minute\n"
    yield "            clock, s  processor, s  largest process, MB\n"
    for command, turn in (("replay", replay), ("backtest", backtest)):
        yield f"{command:10s}{turn.wall:10.1f}{turn.processor:14.1f}{turn.memory / 1e6:21,.0f}\n"
    yield f"ratio     {backtest.wall / replay.wall:10.2f}{backtest.processor / replay.processor:14.2f}\n"


def cost(folder: Path, command: str, processes: int) -> Turn:
    """Return the cost of a command on the folder's stream."""
    words = Checkout(ROOT).words(command, "config.yaml", "stream.ndjson", "--out", f"out-{command}")
    script = [sys.executable, "-c", SCRIPT, *words, "--processes", str(processes)]
    return read_turn(subprocess.Popen(script, cwd=folder, stdout=subprocess.PIPE))


if __name__ == "__main__":
    run(table, keep=False)

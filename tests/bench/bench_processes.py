"""`replay` of five million answers of four models by one process and by several, in rounds.

    python -m tests.bench.bench_processes [--records N] [--rounds 3] [--processes 1 2] [--labelled-every 0]

Wall-clock time says what it should only where as many cores are free as there are processes. So the table has
the processor time too, of all processes and of the one that took most: on free cores a replay takes at least
the larger of that and of the whole time over the cores. The imports of those that read and compute are
in it; those of the first, which one process needs too, are not. What is written is compared byte by byte.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from multiprocessing import forkserver
from pathlib import Path
from statistics import median
from typing import Any

from monitor.base.collector import tune_collector
from monitor.cli.process import one_heap, one_thread_for_matrices
from monitor.cli.replay_processes import replay_on_cores
from monitor.cli.replay_worker import used
from tests.bench.bench_replay import write_inputs
from tests.harness import ROOT, processor_seconds, run

SCRIPT = """\
import json, sys
from pathlib import Path
from tests.bench.bench_processes import one
print(json.dumps(one(Path(sys.argv[1]), int(sys.argv[2]))))
"""
"""No module is `__main__`, which each process would import: that of the command is passed over."""


def apart(folder: Path, processes: int) -> dict[str, Any]:
    """What `one` returns in a fresh Python."""
    one_thread_for_matrices()
    words = [sys.executable, "-c", SCRIPT, str(folder), str(processes)]
    found: dict[str, Any] = json.loads(
        subprocess.run(words, check=True, cwd=ROOT, capture_output=True).stdout
    )
    return found


def one(folder: Path, processes: int) -> dict[str, Any]:
    """A replay as the command runs it: seconds by the clock, of the processor, and the most memory of one."""
    one_heap()
    tune_collector()
    began, before = time.perf_counter(), time.process_time()
    out = folder / f"out{processes}"
    stream = folder / "stream.ndjson"
    done = replay_on_cores(str(folder / "config.yaml"), [stream], out, lambda *_: None, processes)
    wall, first = time.perf_counter() - began, time.process_time() - before
    server = forkserver._forkserver._forkserver_pid if processes > 1 else None
    spent = [first, *done.seconds, *([processor_seconds(server)] if server else [])]
    return {
        "wall": wall,
        "processor": sum(spent),
        "largest": max(spent),
        "each": spent,
        "megabytes": used()[0] / 1e6,
        "notes": list(done.notes),
    }


def table(
    records: int = 5_000_000, rounds: int = 3, processes: Sequence[int] = (1, 2), labelled_every: int = 0
) -> Iterator[str]:
    """Seconds by the clock and of the processor, by the number of processes."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_inputs(folder, records, labelled_every=labelled_every)
        found = []
        for _ in range(rounds):
            found.append({number: apart(folder, number) for number in processes})
            yield ", ".join(f"{n}: {turn['wall']:.1f} s" for n, turn in found[-1].items())
        first = (folder / f"out{processes[0]}" / "windows.ndjson").read_bytes()
        for number in processes[1:]:
            assert (folder / f"out{number}" / "windows.ndjson").read_bytes() == first, number
    yield f"{records:,} answers of 4 models, windows of 500, medians of {rounds} rounds in turn;"
    yield f"{os.cpu_count()} cores, of which {os.getloadavg()[0]:.1f} were wanted in the last minute"
    yield "processes  clock, s  times as fast  processor, s  of the largest, s  at least, s  times as fast"
    base = None
    for number in processes:
        wall, spent, most = (
            median(turn[number][what] for turn in found) for what in ("wall", "processor", "largest")
        )
        least = max(spent / number, most)
        base = base or (wall, least)
        yield (
            f"{number:9} {wall:9.1f} {base[0] / wall:14.2f} {spent:13.1f} {most:18.1f} {least:12.1f} "
            f"{base[1] / least:14.2f}"
        )
        each = ", ".join(f"{seconds:.1f}" for seconds in found[-1][number]["each"])
        yield f"          the first process, those that read and computed, the server of forks: {each} s"
        yield from (f"          {note}" for note in found[-1][number]["notes"])
    yield f"the first process of {processes[0]} had {found[-1][processes[0]]['megabytes']:,.0f} MB"


if __name__ == "__main__":
    run(table, keep=False)

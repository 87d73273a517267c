"""`replay` of five million answers of four models by one process and by several, in rounds.

    python -m tests.bench.bench_processes [--records N] [--rounds 3] [--processes 1 2] [--labelled-every 0]
                                          [--at-once] [--against DIR]

Wall-clock time says what it should only where as many cores are free as there are processes. So the table has
the processor time too, of all processes and of the one that took most: on free cores a replay takes at least
the larger of that and of the whole time over the cores. The imports of those that read and compute are
in it; those of the first, which one process needs too, are not. What is written is compared byte by byte.

On busy cores processor time depends on what others do. With `--at-once` all replays of a round run side by
side, so that they meet the same, those of another checkout too.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
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


def started(root: Path, folder: Path, processes: int) -> subprocess.Popen[bytes]:
    """A fresh Python that prints what `one` of a checkout returns."""
    one_thread_for_matrices()
    words = [sys.executable, "-c", SCRIPT, str(folder), str(processes)]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    return subprocess.Popen(words, cwd=root, env=environment, stdout=subprocess.PIPE)


def told(program: subprocess.Popen[bytes]) -> dict[str, Any]:
    """What it printed."""
    printed, _ = program.communicate()
    assert program.returncode == 0, program.returncode
    found: dict[str, Any] = json.loads(printed)
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
    records: int = 5_000_000,
    rounds: int = 3,
    processes: Sequence[int] = (1, 2),
    labelled_every: int = 0,
    at_once: bool = False,
    against: Path = ROOT,
) -> Iterator[str]:
    """Seconds by the clock and of the processor, by the number of processes."""
    roots = {"now": ROOT} if against.resolve() == ROOT else {"before": against.resolve(), "now": ROOT}
    with tempfile.TemporaryDirectory() as name:
        folders = {checkout: Path(name) / checkout for checkout in roots}
        inputs = Path(name) / "inputs"
        inputs.mkdir()
        write_inputs(inputs, records, labelled_every=labelled_every)
        for folder in folders.values():
            folder.mkdir()
            for path in inputs.iterdir():
                os.link(path, folder / path.name)
        found = []
        for _ in range(rounds):
            found.append(one_round(roots, folders, processes, at_once))
            yield ", ".join(f"{who} {n}: {turn['wall']:.1f} s" for (who, n), turn in found[-1].items())
        for folder in folders.values():
            lines = [(folder / f"out{number}" / "windows.ndjson").read_bytes() for number in processes]
            assert all(each == lines[0] for each in lines), folder
    how = "side by side" if at_once else "in turn"
    yield f"{records:,} answers of 4 models, windows of 500, medians of {rounds} rounds {how};"
    yield f"{os.cpu_count()} cores, of which {os.getloadavg()[0]:.1f} were wanted in the last minute"
    yield "processes   clock, s  times as fast  processor, s  of the largest, s  at least, s  times as fast"
    for who in roots:
        yield from rows_of({n: [turn[who, n] for turn in found] for n in processes}, who)


def one_round(
    roots: Mapping[str, Path], folders: Mapping[str, Path], processes: Sequence[int], at_once: bool
) -> dict[tuple[str, int], dict[str, Any]]:
    """A replay by each checkout and number of processes, one after another or all side by side."""
    runs = [(who, number) for who in roots for number in processes]
    if at_once:
        programs = {run: started(roots[run[0]], folders[run[0]], run[1]) for run in runs}
        return {run: told(program) for run, program in programs.items()}
    return {(who, number): told(started(roots[who], folders[who], number)) for who, number in runs}


def rows_of(found: Mapping[int, Sequence[Mapping[str, Any]]], who: str) -> Iterator[str]:
    """A row for each number of processes of one checkout, and what each process took."""
    base = None
    for number, turns in found.items():
        wall, spent, most = (
            median(turn[what] for turn in turns) for what in ("wall", "processor", "largest")
        )
        least = max(spent / number, most)
        base = base or (wall, least)
        yield (
            f"{who:6} {number:3} {wall:9.1f} {base[0] / wall:14.2f} {spent:13.1f} {most:18.1f} {least:12.1f} "
            f"{base[1] / least:14.2f}"
        )
        each = ", ".join(f"{seconds:.1f}" for seconds in turns[-1]["each"])
        yield f"           the first process, those that read and computed, the server of forks: {each} s"
        yield f"           the first process had {turns[-1]['megabytes']:,.0f} MB"
        yield from (f"           {note}" for note in turns[-1]["notes"])


if __name__ == "__main__":
    run(table, keep=False)

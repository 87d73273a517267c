"""`blindsight replay` of five million answers of four models by one process and by several, in rounds.

    python -m tests.bench.bench_processes [--records N] [--rounds 3] [--processes 1 2] [--labelled-every 0]
                                          [--at-once] [--against DIR]

The clock runs from the start of the command to its end. It says what it should only where as many cores are
free as there are processes. So the table has the processor time too, of all processes, imports and the server
of forks among them: on free cores a replay takes at least that time over the number of processes. The
written lines are compared byte by byte.

On busy cores processor time depends on what others do. With `--at-once` all replays of a round run side by
side, so that they meet the same, those of another checkout too.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from tests.bench.bench_replay import write_inputs
from tests.bench.bench_start import Checkout
from tests.harness import ROOT, run

SCRIPT = """\
import ctypes, json, os, resource, subprocess, sys, time
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER: the server of forks outlives the command
began = time.perf_counter()
done = subprocess.run(sys.argv[1:], stdout=subprocess.PIPE, text=True, check=True)
wall = time.perf_counter() - began
try:
    while True:
        os.wait()
except ChildProcessError:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
notes = [line for line in done.stdout.splitlines() if "processes read and computed" in line]
print(json.dumps([wall, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024, notes]))
"""
"""Runs a command, and waits for all processes that it has started."""


@dataclass(frozen=True)
class Turn:
    """The cost of a replay: seconds by the clock and of the processor; bytes of the largest process."""

    wall: float
    processor: float
    memory: int
    notes: Sequence[str]


def started(root: Path, folder: Path, processes: int) -> subprocess.Popen[bytes]:
    """Return a replay of a folder's stream by a checkout."""
    words = Checkout(root).words("replay", "config.yaml", "stream.ndjson", "--out", f"out{processes}")
    script = [sys.executable, "-c", SCRIPT, *words, "--processes", str(processes)]
    return subprocess.Popen(script, cwd=folder, stdout=subprocess.PIPE)


def read_turn(program: subprocess.Popen[bytes]) -> Turn:
    """Return the cost that a finished replay printed."""
    printed, _ = program.communicate()
    assert program.returncode == 0, program.returncode
    return Turn(*json.loads(printed))


def table(
    records: int = 5_000_000,
    rounds: int = 3,
    processes: Sequence[int] = (1, 2),
    labelled_every: int = 0,
    at_once: bool = False,
    against: Path = ROOT,
) -> Iterator[str]:
    """Yield seconds by the clock and of the processor, by the number of processes."""
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
        results = []
        for _ in range(rounds):
            results.append(one_round(roots, folders, processes, at_once))
            yield ", ".join(f"{who} {n}: {turn.wall:.1f} s" for (who, n), turn in results[-1].items())
        for folder in folders.values():
            lines = [(folder / f"out{number}" / "windows.ndjson").read_bytes() for number in processes]
            assert all(each == lines[0] for each in lines), folder
    how = "side by side" if at_once else "in turn"
    yield f"{records:,} answers of 4 models, windows of 500, medians of {rounds} rounds {how};"
    yield f"{os.cpu_count()} cores, of which {os.getloadavg()[0]:.1f} were wanted in the last minute"
    yield "processes   clock, s  times as fast  processor, s  at least, s  times as fast  largest, MB"
    for who in roots:
        yield from rows_of({n: [turn[who, n] for turn in results] for n in processes}, who)


def one_round(
    roots: Mapping[str, Path], folders: Mapping[str, Path], processes: Sequence[int], at_once: bool
) -> dict[tuple[str, int], Turn]:
    """Return a replay by each checkout and number of processes, one after another or all side by side."""
    runs = [(who, number) for who in roots for number in processes]
    if at_once:
        programs = {run: started(roots[run[0]], folders[run[0]], run[1]) for run in runs}
        return {run: read_turn(program) for run, program in programs.items()}
    return {(who, number): read_turn(started(roots[who], folders[who], number)) for who, number in runs}


def rows_of(by_number: Mapping[int, Sequence[Turn]], who: str) -> Iterator[str]:
    """Yield a row for each number of processes of one checkout."""
    base = None
    for number, turns in by_number.items():
        wall, spent = median(turn.wall for turn in turns), median(turn.processor for turn in turns)
        least = spent / number
        base = base or (wall, least)
        yield (
            f"{who:6} {number:3} {wall:9.1f} {base[0] / wall:14.2f} {spent:13.1f} {least:12.1f} "
            f"{base[1] / least:14.2f} {turns[-1].memory / 1e6:12,.0f}"
        )
        yield from (f"           {note}" for note in turns[-1].notes)


if __name__ == "__main__":
    run(table, keep=False)

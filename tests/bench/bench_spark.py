"""`replay --engine spark` on one and two executors, and with one killed, beside one process on the same file.

    python -m tests.bench.bench_spark [--records 1000000]

Executors have one core and 1 GiB each (`local-cluster`), so that two of them are two cores. Each run is a
process of its own on the file of `bench_replay`: four models, windows of 500 with accuracy, ECE and an
objective. Seconds are of the wall clock, without those in which Spark starts, and of the processor, of all
processes and with Spark's start; memory is the peak of what is resident in one executor, its Java and its
Pythons together. Where an executor is killed, that is as half of the splits have been read. Other load on the
machine makes wall seconds, and so the rows a second, say little; processor seconds and memory hardly change.
Every run must give the lines of the one process, or the bench fails.
"""

from __future__ import annotations

import os
import resource
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from connectors.spark import replaying
from monitor.cli.process import one_thread_for_matrices
from monitor.cli.replay import replay
from monitor.cli.replay_spark import OnSpark, replay_on_spark
from tests.bench.bench_replay import write_inputs
from tests.harness import apart, processor_of_children, resident, run
from tests.services.process import wait_until
from tests.services.spark_cluster import descendants, executors, kill_an_executor

MIB = 1 << 20
SPLIT_BYTES = 16 * MIB


class Peak:
    """The largest resident memory of one executor with its Pythons, looked at ten times a second."""

    def __init__(self) -> None:
        self.bytes = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._over.wait(0.1):
            for pid in executors(os.getpid()):
                self.bytes = max(self.bytes, sum(map(resident, descendants(pid))))

    def stop(self) -> int:
        self._over.set()
        self._thread.join()
        return self.bytes


def one_process(folder: Path, out: Path) -> dict[str, float]:
    """`replay` as it is."""
    one_thread_for_matrices()
    began = time.perf_counter()
    replay(str(folder / "config.yaml"), [folder / "stream.ndjson"], out, lambda path, size: None)
    wall = time.perf_counter() - began
    return {"wall": wall, "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0}


def on_spark(folder: Path, out: Path, workers: int, kill: bool) -> dict[str, float]:
    """The same on so many executors, one of which is killed or not."""
    begun: list[float] = []
    inner: Callable[..., Any] = replaying._facts

    def facts(blocks: Any, splits: int) -> Any:
        begun.append(time.perf_counter())
        thread = threading.Thread(target=_kill_half_way, args=(blocks.sparkSession, splits))
        if kill:
            thread.start()
        found = inner(blocks, splits)
        if kill:
            thread.join()
        return found

    replaying._facts = facts
    peak = Peak()
    where = OnSpark(f"local-cluster[{workers},1,1024]", split_bytes=SPLIT_BYTES)
    replay_on_spark(str(folder / "config.yaml"), [folder / "stream.ndjson"], out, where)
    return {"wall": time.perf_counter() - begun[0], "peak": float(peak.stop())}


def _kill_half_way(session: Any, splits: int) -> None:
    tracker = session.sparkContext.statusTracker()

    def half() -> bool:
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        return any(stage is not None and 2 * stage.numCompletedTasks >= splits for stage in stages)

    wait_until(half, "half of the splits have been read", pause=0.01, seconds=600)
    kill_an_executor()


RUNS: dict[str, Callable[[Path, Path], dict[str, float]]] = {
    "one process": one_process,
    "one executor": lambda folder, out: on_spark(folder, out, 1, kill=False),
    "two executors": lambda folder, out: on_spark(folder, out, 2, kill=False),
    "two, one killed": lambda folder, out: on_spark(folder, out, 2, kill=True),
}


def measured(name: str, folder: Path) -> dict[str, float]:
    """One run in a process of its own; `cpu` is of it and of all that it started."""
    before = processor_of_children()
    found = apart(one_run, name, folder)
    return {**found, "cpu": processor_of_children() - before}


def one_run(name: str, folder: Path) -> dict[str, float]:
    """One of `RUNS`."""
    return RUNS[name](folder, folder / name)


def table(records: int = 1_000_000) -> Iterator[str]:
    """A line a run."""
    yield f"{'':<16} {'wall s':>8} {'rows/s':>10} {'of one':>7} {'processor s':>12} {'peak MiB':>9}"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_inputs(folder, records)
        expected, base = b"", 0.0
        for run_name in RUNS:
            found = measured(run_name, folder)
            lines = (folder / run_name / "windows.ndjson").read_bytes()
            expected, base = expected or lines, base or found["wall"]
            assert lines == expected, f"{run_name}: other lines than those of one process"
            yield (
                f"{run_name:<16} {found['wall']:8.1f} {records / found['wall']:10,.0f} "
                f"{base / found['wall']:7.2f} {found['cpu']:12.1f} {found['peak'] / MIB:9.0f}"
            )
    yield f"{records:,} records, {len(expected.splitlines()):,} lines, the same bytes from each run"


if __name__ == "__main__":
    run(table, keep=False)

"""`replay --engine spark` on one and two executors, and with one killed, beside one process on the same file.

    python -m tests.bench.bench_spark [--records 1000000]

Executors have one core and 1 GiB each (`local-cluster`), so that two of them are two cores. Each run is a
process of its own on the file of `bench_replay`: four models, windows of 500 with accuracy, ECE and an
objective. The start is told apart: on Spark it ends as each executor's Python has done its imports; in one
process it is what a file of 4,000 records takes. All other seconds, answers a second, and microseconds of the
processor an answer are without it. "a core" compares an executor's answers a second with those of the one
process. Processor time is of all processes: the executors' Python and Java, and the driver's two, which with
two executors on two cores share these; memory is the peak of the resident memory of one executor, its Java
and its Pythons together. Where an executor is killed, that is as half of the splits have been read. Other
load on the machine makes wall seconds, and so the answers a second, say little; processor time hardly
changes. Every run must give the lines of the one process, or the bench fails.
"""

from __future__ import annotations

import os
import resource
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from connectors.spark import replaying
from monitor.base.collector import tune_collector
from monitor.cli import replay_spark
from monitor.cli.process import one_thread_for_matrices
from monitor.cli.replay import replay
from monitor.cli.replay_spark import OnSpark, replay_on_spark
from tests.bench.bench_replay import write_inputs
from tests.harness import ROOT, apart, processor_seconds, resident, run
from tests.services.process import descendants, wait_until
from tests.services.spark_cluster import executors, is_executor, kill_an_executor, words_of

MIB = 1 << 20
SPLIT_BYTES = 16 * MIB
FEW = 4_000
KINDS = ("Python", "Java", "driver")


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


@dataclass
class Cost:
    """The cost of a run: seconds by the clock and of the processor, by kind of process, start apart."""

    start: float = 0.0
    wall: float = 0.0
    start_processor: float = 0.0
    processor: dict[str, float] = field(default_factory=dict)
    peak: float = 0.0


def one_process(folder: Path, out: Path) -> Cost:
    """Return `replay` as it is; the start is in `wall` and `processor` too."""
    one_thread_for_matrices()
    tune_collector()
    began, processor = time.perf_counter(), time.process_time()
    replay(str(folder / "config.yaml"), [folder / "stream.ndjson"], out, lambda path, size: None)
    return Cost(
        wall=time.perf_counter() - began,
        processor={"driver": time.process_time() - processor},
        peak=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0,
    )


def on_spark(folder: Path, out: Path, workers: int, kill: bool) -> Cost:
    """Run the same on `workers` executors; kill one of them if `kill`."""
    one_thread_for_matrices()
    tune_collector()
    os.environ["PYTHONPATH"] = str(ROOT)  # executors work elsewhere, and run this checkout
    cost, began = Cost(), time.perf_counter()
    read: Callable[..., Any] = replaying._facts
    written: Callable[..., Any] = replay_spark._write

    def imported(batches: Iterator[Any]) -> Iterator[Any]:
        """Yield rows as they are, from a Python with all that both stages import."""
        import connectors.spark.computing
        import connectors.spark.reading  # noqa: F401

        time.sleep(0.2)  # so that each executor gets some of the tasks
        return batches

    def facts(blocks: Any, splits: int) -> Any:
        session = blocks.sparkSession
        numbers = session.range(0, 16 * workers, 1, 16 * workers)
        numbers.mapInArrow(imported, "id long").collect()
        assert len(executors(os.getpid())) == workers
        cost.start = time.perf_counter() - began
        cost.processor = _spent()
        thread = threading.Thread(target=_kill_half_way, args=(session, splits))
        if kill:
            thread.start()
        result = read(blocks, splits)
        if kill:
            thread.join()
        return result

    def write(*arguments: Any) -> Any:
        result = written(*arguments)
        cost.wall = time.perf_counter() - began - cost.start
        cost.start_processor = sum(cost.processor.values())
        cost.processor = {kind: spent - cost.processor.get(kind, 0.0) for kind, spent in _spent().items()}
        return result

    replaying._facts, replay_spark._write = facts, write
    peak = Peak()
    where = OnSpark(f"local-cluster[{workers},1,1024]", split_bytes=SPLIT_BYTES)
    replay_on_spark(str(folder / "config.yaml"), [folder / "stream.ndjson"], out, where)
    cost.peak = float(peak.stop())
    return cost


def _spent() -> dict[str, float]:
    """Return seconds of the processor that this process and its descendants took, by `KINDS`."""
    seconds = dict.fromkeys(KINDS, 0.0)
    for pid in descendants(os.getpid()):
        seconds[_kind(pid)] += processor_seconds(pid, with_ended=pid != os.getpid())
    return seconds


def _kind(pid: int) -> str:
    if is_executor(pid):
        return "Java"
    return "Python" if b"pyspark.daemon" in words_of(pid) else "driver"


def _kill_half_way(session: Any, splits: int) -> None:
    tracker = session.sparkContext.statusTracker()

    def half() -> bool:
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        return any(stage is not None and 2 * stage.numCompletedTasks >= splits for stage in stages)

    wait_until(half, "half of the splits have been read", pause=0.01, seconds=600)
    kill_an_executor()


RUNS: dict[str, Callable[[Path, Path], Cost]] = {
    "one process": one_process,
    "one executor": lambda folder, out: on_spark(folder, out, 1, kill=False),
    "two executors": lambda folder, out: on_spark(folder, out, 2, kill=False),
    "two, one killed": lambda folder, out: on_spark(folder, out, 2, kill=True),
}
CORES = {"two executors": 2, "two, one killed": 2}


def one_run(name: str, folder: Path) -> Cost:
    """Return one of `RUNS`."""
    return RUNS[name](folder, folder / name)


def cost_line(name: str, cost: Cost, records: int, one: Cost) -> str:
    """Return a run's line."""
    each = {kind: 1e6 * cost.processor.get(kind, 0.0) / records for kind in KINDS}
    rate = records / cost.wall
    return (
        f"{name:<16} {cost.start:8.1f} {cost.start_processor:8.1f} {cost.wall:8.1f} {rate:10,.0f} "
        f"{rate * one.wall / records / CORES.get(name, 1):7.2f} {sum(each.values()):7.2f} "
        + " ".join(f"{each[kind]:7.2f}" for kind in KINDS)
        + f" {cost.peak / MIB:9.0f}"
    )


def table(records: int = 1_000_000) -> Iterator[str]:
    """Yield a line a run."""
    yield f"{'':<16} {'start':^17} {'once started':^27} {'processor, us an answer':^31}"
    yield (
        f"{'':<16} {'wall s':>8} {'proc. s':>8} {'wall s':>8} {'answers/s':>10} {'a core':>7} {'all':>7} "
        + " ".join(f"{kind:>7}" for kind in KINDS)
        + f" {'peak MiB':>9}"
    )
    costs: dict[str, Cost] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "few").mkdir()
        write_inputs(folder / "few", FEW)
        write_inputs(folder, records)
        expected = b""
        for run_name in RUNS:
            cost = apart(one_run, run_name, folder)
            if not costs:
                few = apart(one_run, run_name, folder / "few")
                cost.start, cost.start_processor = few.wall, sum(few.processor.values())
                cost.wall -= cost.start
                cost.processor["driver"] -= cost.start_processor
            costs[run_name] = cost
            lines = (folder / run_name / "windows.ndjson").read_bytes()
            expected = expected or lines
            assert lines == expected, f"{run_name}: other lines than those of one process"
            yield cost_line(run_name, cost, records, costs["one process"])
    gain = costs["one executor"].wall / costs["two executors"].wall
    yield f"two executors are {gain:.2f} times as fast as one, once started"
    yield f"{records:,} records, {len(expected.splitlines()):,} lines, the same bytes from each run"


if __name__ == "__main__":
    run(table, keep=False)

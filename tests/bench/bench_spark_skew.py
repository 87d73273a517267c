"""Memory of `replay --engine spark` if one model has nine answers in ten, compared with equal shares.

    python -m tests.bench.bench_spark_skew [--millions 1 2 4]

The file of `bench_replay` on two executors of one core and 1 GiB each (`local-cluster[2,1,1024]`): either
each of four models answers as often, or one answers 27 times in 30 and the other three once each; in the last
two lines every tenth answer brings its label. Memory is the peak of resident memory (`VmHWM`): of the
driver's Python, of its Java, which is this cluster's master and workers too, of an executor's Java, and of an
executor's Python, each the largest of its kind. Each run is a process of its own. A line says how many rows
the largest unit of work had, which one core computes.

Below is the speed of one core without Spark, in rows a second of processor time: for reading, decoding and
distribution, which use all cores, and for one model's engine, which uses one.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from connectors.spark.computing import lines_of
from connectors.spark.job import BlockKind, Computing, Job, unpacked
from connectors.spark.reading import blocks_of
from connectors.splits import splits_of
from monitor.cli.process import one_thread_for_matrices
from monitor.cli.replay_spark import OnSpark, replay_on_spark
from monitor.cli.trial import ReferenceTrial
from monitor.config.file import load_config
from monitor.parallel.partitioning import begins
from monitor.parallel.planning import Unit, rows_of
from tests.bench.bench_replay import MODELS, write_inputs
from tests.harness import apart, resident, run
from tests.services.process import descendants
from tests.services.spark_cluster import is_executor, words_of

MIB = 1 << 20
ALIKE = MODELS
SKEWED = (*MODELS[1:], *MODELS[:1] * 27)
EVERY_TENTH = 10
KINDS = ("driver", "its Java", "executor", "its Python")

LABELS_ROWS = 200_000

Item = TypeVar("Item")


class Peaks:
    """The most that was ever resident of the largest process of each of `KINDS`, in bytes."""

    def __init__(self) -> None:
        self.peaks: dict[str, int] = defaultdict(int)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._over.wait(0.2):
            for pid in descendants(os.getpid()):
                kind = _kind(pid)
                self.peaks[kind] = max(self.peaks[kind], resident(pid, most=True))

    def stop(self) -> dict[str, int]:
        self._over.set()
        self._thread.join()
        return self.peaks


def _kind(pid: int) -> str:
    words = words_of(pid)
    if pid == os.getpid():
        return "driver"
    if b"pyspark.daemon" in words:
        return "its Python"
    return "executor" if is_executor(pid) else "its Java" if b"SparkSubmit" in words else "other"


def on_spark(folder: Path) -> dict[str, Any]:
    """Return peaks, and seconds with Spark's start."""
    peaks, began = Peaks(), time.perf_counter()
    where = OnSpark("local-cluster[2,1,1024]")
    done = replay_on_spark(str(folder / "config.yaml"), [folder / "stream.ndjson"], folder / "out", where)
    wall = time.perf_counter() - began
    reason = next((note.partition(":")[0].partition(", ")[0] for note in done.notes), "")
    return {"wall": wall, **peaks.stop(), "note": reason}


def of_one_core(folder: Path) -> str:
    """Return rows a second of reading, and of one model's engine."""
    one_thread_for_matrices()
    config = load_config(str(folder / "config.yaml"))
    splits = tuple(splits_of(folder / "stream.ndjson"))
    job = Job(config, ReferenceTrial(config).engine_settings(event_time=True), splits)
    blocks, reading = _timed(block for number in range(len(splits)) for block in blocks_of(job, number))
    facts = [unpacked(block.data) for block in blocks if block.kind == BlockKind.FACTS]
    times = [unpacked(block.data) for block in blocks if block.kind == BlockKind.TIMES]
    rows = rows_of(facts)
    (task, model), most = max(rows.items(), key=lambda item: item[1])
    starts = tuple(begins([each.stretch for each in facts], times.__getitem__))
    own = [block[4:] for block in blocks if block.kind == BlockKind.SHARE and block.model == model]
    computing = Computing((Unit(task, model, most),), starts)
    lines, engine = _timed(lines_of(job, computing, 0, own))
    size = sum(len(block.data) for block in blocks if block.kind == BlockKind.SHARE) / sum(rows.values())
    return (
        f"one core reads, decodes and shares out {sum(rows.values()) / reading:,.0f} rows/s, and computes "
        f"{most / engine:,.0f} rows/s of one model ({most:,} rows, {len(lines) - 1:,} lines); "
        f"{size:.0f} bytes a row are moved"
    )


def of_labels(folder: Path) -> str:
    """Return how much of answers and of labels Spark moves."""
    lines = [f"{'models, labels of answers':31}{'bytes/answer':>14}{'of labels':>11}"]
    for models in (4, 40):
        for every in (10, 1):
            write_inputs(folder, LABELS_ROWS, [f"m{i}" for i in range(models)], every)
            config = load_config(str(folder / "config.yaml"))
            (split,) = splits_of(folder / "stream.ndjson", 1 << 40)
            job = Job(config, ReferenceTrial(config).engine_settings(event_time=True), (split,))
            moved = {True: 0, False: 0}
            for block in blocks_of(job, 0):
                if block.kind == BlockKind.SHARE:
                    moved[block.model == ""] += len(block.data) * (1 if block.model else models - 1)
            title = f"{models}, {100 // every} %"
            lines.append(f"{title:31}{moved[False] / LABELS_ROWS:14,.0f}{moved[True] / LABELS_ROWS:11,.0f}")
    return "\n".join(lines)


def _timed(items: Iterable[Item]) -> tuple[list[Item], float]:
    began = time.process_time()
    values = list(items)
    return values, time.process_time() - began


def table(millions: tuple[float, ...] = (1, 2, 4)) -> Iterator[str]:
    """Yield a line a load, then the figures of one core on the first load, and the bytes moved."""
    yield f"{'':31}" + "".join(f"{kind:>11}" for kind in KINDS) + "     wall   (memory in MiB)"
    for size, labels in [(size, 0) for size in millions] + [(max(millions), EVERY_TENTH)]:
        for name, answering in (("alike", ALIKE), ("90 % of one", SKEWED)):
            with tempfile.TemporaryDirectory() as folder:
                write_inputs(Path(folder), round(size * 1e6), answering, labels)
                outcome = apart(on_spark, Path(folder))
                title = f"{size:g} million, {name}{', labels' if labels else ''}"
                figures = "".join(f"{outcome[kind] / MIB:11,.0f}" for kind in KINDS)
                yield f"{title:31}{figures}{outcome['wall']:8.0f} s {outcome['note']}"
                if (size, labels, name) == (millions[0], 0, "90 % of one"):
                    core = apart(of_one_core, Path(folder))
    yield core
    with tempfile.TemporaryDirectory() as folder:
        yield apart(of_labels, Path(folder))


if __name__ == "__main__":
    run(table, keep=False)

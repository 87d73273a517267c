"""Resident memory, and the store's files, after one, five and twenty million records of one run.

    python -m tests.bench.bench_memory [--marks 1000000 5000000 20000000] [--kind run|replay]

Four models in windows of 500, labels for 5 % of the rows, a labelled reference. A named pipe brings the
records to `blindsight run` with a store and a reports file, and to `blindsight replay`. Everything with a
bound in the configuration is full at the first mark: the join holds 200,000 answers and 20,000 labels, the
store 1,000 windows' lines, and 1,000 windows wait for revisions. The peak is of resident memory until the
mark.
"""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

from tests.bench.bench_replay import CONFIG, write_inputs
from tests.bench.endless import BLOCK, stream
from tests.daemon import ROOT, read_windows
from tests.harness import processor_seconds, resident, run
from tests.services.process import stop

FLAT = 0.10
"""How much more may be resident at the last mark than at the first: the promise."""

BOUNDS = {"max_answers": 200_000, "max_waiting": 20_000, "keep_reports": 1000}

_RUN = """\
    labels: {{max_answers: {max_answers}, max_waiting: {max_waiting}}}
sources: [{{kind: file, path: pipe}}]
reports: {{path: windows.ndjson}}
store: {{path: state, keep_reports: {keep_reports}}}
export: {{listen: "127.0.0.1:0"}}
"""
_STARVED_SECONDS = 300.0


@dataclass(frozen=True)
class Mark:
    """The memory of a process, in bytes, once it had used `records` records."""

    records: int
    resident: int
    peak: int
    store: int


def measure(
    kind: str, marks: Sequence[int], folder: Path, bounds: dict[str, int] | None = None
) -> list[Mark]:
    """Run one of the commands over a stream and look at it at each mark.

    Parameters
    ----------
    kind : {"run", "replay"}
    marks : sequence of int
        Rising, whole blocks of the stream.
    folder : Path
        Empty.
    bounds : dict, optional
        `BOUNDS` if not given.

    Raises
    ------
    AssertionError
        The command failed, or not every record is in a window.
    """
    write_inputs(folder, 0)
    (folder / "config.yaml").write_text(CONFIG + _RUN.format(**(bounds or BOUNDS)), encoding="utf-8")
    os.mkfifo(folder / "pipe")
    words = ["run", "config.yaml"] if kind == "run" else ["replay", "config.yaml", "pipe", "--out", "."]
    measured_marks: list[Mark] = []
    with running(folder, words) as process:
        with opened(folder, process) as pipe:
            for start, mark in zip([0, *marks], marks, strict=False):
                for block in stream(mark, start):
                    pipe.write(block)
                pipe.flush()
                until_idle(process.pid, pipe)
                measured_marks.append(look(mark, process.pid, folder / "state"))
        assert process.wait(_STARVED_SECONDS) == 0, (folder / "log").read_text()
    windows = read_windows(folder / "windows.ndjson")
    assert sum(window["size"] for window in windows) == marks[-1], "not every record is in a window"
    return measured_marks


@contextmanager
def running(folder: Path, words: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Yield the command at work in a folder; outside it is gone."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "monitor.cli", *words], cwd=folder, stdout=log, stderr=log, env=environment
        )
    try:
        yield process
    finally:
        stop(process, kill=True)


def opened(folder: Path, process: subprocess.Popen[bytes]) -> BinaryIO:
    """Return the pipe, once the command reads it: one that has ended never will."""
    deadline = time.monotonic() + _STARVED_SECONDS
    while time.monotonic() < deadline:
        assert process.poll() is None, (folder / "log").read_text()
        with suppress(OSError):  # nobody reads yet
            number = os.open(folder / "pipe", os.O_WRONLY | os.O_NONBLOCK)
            os.set_blocking(number, True)
            return os.fdopen(number, "wb")
        time.sleep(0.05)
    raise AssertionError("it does not begin to read")


def until_idle(pid: int, pipe: BinaryIO) -> None:
    """Wait until everything written has been read and used: the process takes no more processor time."""
    deadline = time.monotonic() + _STARVED_SECONDS
    quiet = 0
    while quiet < 3:
        assert time.monotonic() < deadline, "it is still busy"
        before = processor_seconds(pid)
        time.sleep(0.5)
        quiet = quiet + 1 if _unread(pipe) == 0 and processor_seconds(pid) - before < 0.1 else 0


def look(records: int, pid: int, store: Path) -> Mark:
    """Return the memory of a process as the kernel counts it, and the size of its store."""
    disk = sum(file.stat().st_size for file in store.iterdir()) if store.exists() else 0
    return Mark(records, resident(pid), resident(pid, most=True), disk)


def _unread(pipe: BinaryIO) -> int:
    return int(struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, b"\0" * 4))[0])


def table(
    marks: tuple[int, ...] = (1_000_000, 5_000_000, 20_000_000),
    kind: Literal["run", "replay"] | None = None,
) -> Iterator[str]:
    """Yield each command at each mark."""
    assert all(mark % BLOCK == 0 for mark in marks), f"marks must be multiples of {BLOCK:,}"
    yield (
        "four models, windows of 500, 5 % labelled; MB resident, at most until then, and of the store's files"
    )
    yield ", ".join(f"{name}: {value:,}" for name, value in BOUNDS.items())
    for command in [kind] if kind else ["run", "replay"]:
        with tempfile.TemporaryDirectory() as name:
            measured_marks = measure(command, marks, Path(name))
        yield f"\nblindsight {command:<9} resident     peak    store"
        for mark in measured_marks:
            figures = (mark.resident, mark.peak, mark.store)
            yield f"{mark.records:>20,} " + " ".join(f"{figure / 1e6:8.1f}" for figure in figures)
        first, last = measured_marks[0], measured_marks[-1]
        more = last.resident / first.resident - 1, last.peak / first.peak - 1
        verdict = "flat" if max(more) <= FLAT else "NOT FLAT"
        yield f"last beside first    {more[0]:+8.1%} {more[1]:+8.1%}  {verdict} (at most {FLAT:+.0%})"


if __name__ == "__main__":
    run(table, keep=False)

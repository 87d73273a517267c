"""`blindsight run` fed through a pipe at a set pace: the latency of its windows, and its processor time.

The pace is an open loop: a window's latency counts from the due time of its last record to its line in the
reports file, so delayed records do not hide a stall. The file is checked every 2 ms.
"""

from __future__ import annotations

import fcntl
import re
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE

import numpy as np

from monitor.base.records import Floats
from tests.daemon import DaemonProcess, configuration
from tests.harness import processor_seconds

MODELS = 4
PIPE_BYTES = 1 << 20
LOOK_SECONDS = 0.002
FINISH_SECONDS = 120.0
_CLOSED = re.compile(rb'"window":(\d+),"revision":0,')


@dataclass(frozen=True)
class Paced:
    """One run.

    Parameters
    ----------
    latency : (n,) float64
        Seconds, of each window from the first one looked at.
    longest : float
        Of all windows, from the beginning.
    late : float
        Seconds by which the last block was written after it was due: the pace was kept where it is small.
    seconds : float
        From the first block to the last window's line.
    processor : float
        Processor seconds that the daemon took meanwhile.
    revised : int
        Further lines of closed windows.
    """

    latency: Floats
    longest: float
    late: float
    seconds: float
    processor: float
    revised: int


class _Lines(threading.Thread):
    """A reader that notes when the line of each window is there."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self.seen: list[tuple[int, float]] = []
        self.revised = 0
        self.ended = threading.Event()

    def run(self) -> None:
        rest = b""
        for part in self._parts():
            now = time.perf_counter()
            lines = (rest + part).split(b"\n")
            rest = lines.pop()
            matches = [_CLOSED.search(line) for line in lines]
            self.seen += [(int(match[1]), now) for match in matches if match]
            self.revised += sum(match is None for match in matches)

    def _parts(self) -> Iterator[bytes]:
        while not self._path.exists() and not self.ended.is_set():
            time.sleep(LOOK_SECONDS)
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            while True:
                last = self.ended.is_set()
                if part := file.read():
                    yield part
                elif last:
                    return
                time.sleep(LOOK_SECONDS)


def paced(
    blocks: Sequence[bytes], every_seconds: float, first: int, reference: bytes, task: dict[str, object]
) -> Paced:
    """Run a daemon over blocks of lines, one every `every_seconds` (0: as fast as it takes them).

    Parameters
    ----------
    blocks : sequence of bytes
        Window w of every model closes with the last record of block w.
    every_seconds : float
    first : int
        The first window whose latency is looked at.
    reference : bytes
        Labelled rows, NDJSON.
    task : dict
        Its configuration but for the reference.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "reference.ndjson").write_bytes(reference)
        config = configuration(
            task={**task, "reference": {"path": "reference.ndjson"}},
            sources=[{"kind": "stdin"}],
            reports={"path": "windows.ndjson"},
        )
        lines = _Lines(folder / "windows.ndjson")
        with DaemonProcess(folder, config, stdin=PIPE) as daemon:
            assert daemon.port
            lines.start()
            try:
                before = processor_seconds(daemon.process.pid)
                due, late = _feed(daemon, blocks, every_seconds)
                _until(lambda: len(lines.seen) >= MODELS * len(blocks), daemon)
                processor = processor_seconds(daemon.process.pid) - before
            finally:
                lines.ended.set()
                lines.join()
        late_by = np.array([[window, at - due[window]] for window, at in lines.seen])
        return Paced(
            latency=late_by[late_by[:, 0] >= first, 1],
            longest=float(late_by[:, 1].max()),
            late=late,
            seconds=lines.seen[-1][1] - due[0],
            processor=processor,
            revised=lines.revised,
        )


def _feed(daemon: DaemonProcess, blocks: Sequence[bytes], every_seconds: float) -> tuple[list[float], float]:
    """Send the blocks; return when each was due, and how late the last one was."""
    pipe = daemon.process.stdin
    assert pipe is not None
    fcntl.fcntl(pipe.fileno(), fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    start = time.perf_counter()
    due = [start + number * every_seconds for number in range(len(blocks))]
    for moment, block in zip(due, blocks, strict=True):
        time.sleep(max(moment - time.perf_counter(), 0.0))
        pipe.write(block)
        pipe.flush()
    return due, time.perf_counter() - due[-1]


def _until(done: Callable[[], bool], daemon: DaemonProcess) -> None:
    end = time.monotonic() + FINISH_SECONDS
    while not done():
        if time.monotonic() > end or daemon.process.poll() is not None:
            raise RuntimeError(f"the daemon did not report every window:\n{daemon.log}")
        time.sleep(0.05)

"""The worker process of refits: jobs come by standard input, results leave by standard output.

    python -m monitor.agent.refit_child

One frame a job and one a result: 8 bytes with its length, the most significant first, then the bytes of
`monitor.engine.refit.wire`. It ends as soon as its standard input does, so that it never outlives the agent,
whichever way that went; a thread watches for it, because a fit may take a minute.
"""

from __future__ import annotations

import io
import os
import queue
import signal
import sys
import threading
import time
from contextlib import suppress
from typing import BinaryIO

from msgspec.structs import replace

from monitor.agent.refit_process import HEAD
from monitor.engine.refit.fit import refit
from monitor.engine.refit.recalibration import RecalibrationJob, recalibrate
from monitor.engine.refit.wire import Job, JobResult, job_from_bytes, result_to_bytes

NICENESS = 10
"""Added to the agent's: whatever else wants the processor goes first."""

_STATUS = "/proc/self/status"


def read_frame(stream: BinaryIO) -> bytes | None:
    """The next frame; None at the end of the stream, even within a frame."""
    head = _exactly(stream, HEAD.size)
    return None if head is None else _exactly(stream, HEAD.unpack(head)[0])


def _exactly(stream: BinaryIO, size: int) -> bytes | None:
    found = stream.read(size)
    return found if len(found) == size else None


def write_frame(stream: BinaryIO, content: bytes) -> None:
    """A frame, at once."""
    stream.write(HEAD.pack(len(content)))
    stream.write(content)
    stream.flush()


def main() -> None:
    """Answer jobs until the standard input ends."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not stand between two frames
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the agent's to hear: it closes the pipe
    with suppress(PermissionError):  # a seccomp filter, as that of our unit for systemd, may forbid it
        os.nice(NICENESS)
    jobs: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(sys.stdin.buffer, jobs), daemon=True).start()
    while True:
        job, memory_bytes = job_from_bytes(jobs.get())
        write_frame(answers, result_to_bytes(_answer(job, memory_bytes)))


def _listen(stream: io.BufferedIOBase | BinaryIO, jobs: queue.SimpleQueue[bytes]) -> None:
    while True:
        frame = read_frame(stream)  # type: ignore[arg-type]  # a buffered reader is one
        if frame is None:
            os._exit(0)
        jobs.put(frame)


def answer(job: Job) -> JobResult:
    """The result of a job; see `refit` and `recalibrate`."""
    return recalibrate(job) if isinstance(job, RecalibrationJob) else refit(job)


def _answer(job: Job, memory_bytes: float) -> JobResult:
    began = time.monotonic()
    try:
        with _Limit(memory_bytes):
            result = answer(job)
    except MemoryError:
        result = job.refused(out_of_memory(memory_bytes))
    return replace(result, seconds=time.monotonic() - began)


def out_of_memory(memory_bytes: float) -> str:
    """Why a refit that wanted more memory than it may have was refused."""
    return (
        f"the refit needed more than the {memory_bytes:,.0f} bytes of memory that ssme.memory_bytes allows; "
        "raise it, or lower ssme.max_rows"
    )


class _Limit:
    """Bounds how much memory the process may take on top of what it has, where the system can do that."""

    def __init__(self, memory_bytes: float) -> None:
        self._memory_bytes = int(memory_bytes)

    def __enter__(self) -> None:
        _bound(_writable() + self._memory_bytes)

    def __exit__(self, *_: object) -> None:
        _bound(None)


def _writable() -> int:
    """Bytes of memory that the process may write to; its limit counts these alone.

    Address space would count what is only reserved, and the code of libraries: 1.5 GB for a fit by jax that
    fills 0.4.
    """
    try:
        with open(_STATUS, encoding="ascii") as status:
            return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmData:"))
    except (OSError, StopIteration):
        return 0


def _bound(most: int | None) -> None:
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    if not os.path.exists(_STATUS):  # without the size of the process there is nothing to count from
        return
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    soft = hard if most is None else most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


if __name__ == "__main__":
    main()

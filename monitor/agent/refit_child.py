"""The worker process of refits, which reads jobs from standard input and writes results to standard output.

    python -m monitor.agent.refit_child

Each job and each result is a frame: the length of its content in 8 bytes (big-endian), then the content in
the encoding of `monitor.engine.refit.wire`. The process ends as soon as its standard input is closed, even
during a fit. So it never outlives the agent. A separate thread waits for the end of the input.
"""

from __future__ import annotations

import io
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO

from msgspec.structs import replace

from monitor.agent.refit_process import HEAD
from monitor.engine.refit.fit import refit
from monitor.engine.refit.recalibration import RecalibrationJob, recalibrate
from monitor.engine.refit.wire import Job, JobResult, job_from_bytes, result_to_bytes

NICENESS = 10
"""The increment of the process's nice value, which gives other processes priority."""

_STATUS = "/proc/self/status"


def read_frame(stream: BinaryIO) -> bytes | None:
    """Return the content of the next frame, or None if the stream ends before the frame is complete."""
    head = _exactly(stream, HEAD.size)
    return None if head is None else _exactly(stream, HEAD.unpack(head)[0])


def _exactly(stream: BinaryIO, size: int) -> bytes | None:
    """Return the next `size` bytes of a stream, or None if the stream ends before."""
    content = stream.read(size)
    return content if len(content) == size else None


def write_frame(stream: BinaryIO, content: bytes) -> None:
    """Write a frame with this content to a stream, and flush the stream."""
    stream.write(HEAD.pack(len(content)))
    stream.write(content)
    stream.flush()


def main() -> None:
    """Run jobs from the standard input and write their results, until the input ends."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # libraries that print must not write between two frames
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the agent handles Ctrl-C and closes the pipe
    with suppress(PermissionError):  # a seccomp filter, such as that of our systemd unit, may forbid it
        os.nice(NICENESS)
    jobs: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(sys.stdin.buffer, jobs), daemon=True).start()
    while True:
        job, memory_bytes = job_from_bytes(jobs.get())
        write_frame(answers, result_to_bytes(_answer(job, memory_bytes)))


def _listen(stream: io.BufferedIOBase | BinaryIO, jobs: queue.SimpleQueue[bytes]) -> None:
    """Queue the frames of a stream, and end the process when the stream ends."""
    while True:
        frame = read_frame(stream)  # type: ignore[arg-type]  # a buffered reader is one
        if frame is None:
            os._exit(0)
        jobs.put(frame)


def answer(job: Job) -> JobResult:
    """Run a job with `refit` or `recalibrate`, and return its result."""
    return recalibrate(job) if isinstance(job, RecalibrationJob) else refit(job)


def _answer(job: Job, memory_bytes: float) -> JobResult:
    """Run a job within a limit of memory, and return its result with its duration."""
    began = time.monotonic()
    try:
        with limit_memory(memory_bytes):
            result = answer(job)
    except MemoryError:
        result = job.refused(out_of_memory(memory_bytes))
    return replace(result, seconds=time.monotonic() - began)


def out_of_memory(memory_bytes: float) -> str:
    """Return the message of a refit that needed more than `memory_bytes` of memory."""
    return (
        f"the refit needed more than the {memory_bytes:,.0f} bytes of memory that ssme.memory_bytes allows; "
        "raise it, or lower ssme.max_rows"
    )


@contextmanager
def limit_memory(memory_bytes: float) -> Iterator[None]:
    """Let the process use at most `memory_bytes` of additional memory in the `with` block.

    On a system without such a limit, the function has no effect.
    """
    _bound(_writable() + int(memory_bytes))
    try:
        yield
    finally:
        _bound(None)


def _writable() -> int:
    """Return the size of the process's writable memory in bytes, or 0 if the size is not known.

    The limit counts only this memory. A limit on the address space would also count reserved memory and the
    code of libraries: 1.5 GB for a fit with jax that uses 0.4 GB.
    """
    try:
        with open(_STATUS, encoding="ascii") as status:
            return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmData:"))
    except (OSError, StopIteration):
        return 0


def _bound(most: int | None) -> None:
    """Limit the writable memory of the process to `most` bytes; None removes the limit."""
    try:
        import resource
    except ImportError:  # Windows does not have this limit
        return
    if not os.path.exists(_STATUS):  # the size of the process is not known
        return
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    soft = hard if most is None else most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


if __name__ == "__main__":
    main()

"""Runs refits in a child process, which is killed and replaced after a failure or a timeout."""

from __future__ import annotations

import os
import selectors
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType

from msgspec.structs import replace

from monitor.engine.refit.recalibration import RecalibrationJob, RecalibrationResult
from monitor.engine.refit.wire import Job, JobResult, job_to_bytes, result_from_bytes

HEAD = struct.Struct(">Q")
"""The header of a frame: the length of its content in bytes."""

_LARGEST_ANSWER = 64 << 20  # enough for 1,000 models with curves of 1,000 knots; a larger answer is invalid
_PIECE = 1 << 16
_ENDS_SECONDS = 30.0  # a killed child may end slowly, because it has a low priority
# jax reads NPROC. Without it, jax starts several threads of 8 MB for each core: 1 GB on 64 cores.
_ONE_THREAD = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NPROC")


@dataclass(frozen=True, slots=True)
class ProcessLimits:
    """The limits of one refit.

    Parameters
    ----------
    seconds : float
        The limit of the wall time, including the start of a new process.
    memory_bytes : float
        The limit of the memory that the refit uses in addition to the memory of the idle worker.
    """

    seconds: float = 60.0
    memory_bytes: float = 1e9


class _Lost(Exception):  # noqa: N818 - it becomes the reason of a refusal
    """A child can no longer be used. The text of the error is the reason."""


class RefitWorker:
    """A child process that runs refits one at a time. Only one thread may use it.

    Each job gives a result, which may be a refusal with the reason. If the child dies, takes too long or
    sends an invalid answer, it is killed, and the job is refused. The next job starts a new child. The child
    has a lower priority than the agent, uses one thread for linear algebra, and ends when the agent ends.

    Parameters
    ----------
    program : sequence of str, optional
        The arguments of Python that start the child. By default, they run `monitor.agent.refit_child`.

    Examples
    --------
    >>> import numpy as np
    >>> from monitor.engine.refit.job import RefitJob
    >>> nothing = RefitJob("late", 1, 0, 0.0, ("a",), 1, np.empty((0, 1, 2)), np.empty(0, int),
    ...                    np.empty((0, 1), int), np.empty(0), ("ssme",), ("accuracy",), 0.95, 0, False)
    >>> with RefitWorker() as worker:
    ...     worker.run(nothing, ProcessLimits()).refused
    'ssme: no rows'
    """

    def __init__(self, program: Sequence[str] = ("-m", "monitor.agent.refit_child")) -> None:
        self._program = tuple(program)
        self._child: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> RefitWorker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def pid(self) -> int | None:
        """The id of the child, or None if there is no child."""
        return None if self._child is None else self._child.pid

    def run(self, job: Job, limits: ProcessLimits) -> JobResult:
        """Run a job, and return its result. After the time limit, the result is a refusal."""
        began = time.monotonic()
        try:
            result = self._exchange(job, limits, began + limits.seconds)
        except _Lost as lost:
            self.close()
            return replace(job.refused(str(lost)), seconds=time.monotonic() - began)
        return result

    def kill(self) -> None:
        """Kill the child. A running call of `run` then returns a refusal. Any thread may call this method."""
        child = self._child
        if child is not None:
            child.kill()

    def close(self) -> None:
        """Kill the child and close its pipes. Only the thread that runs jobs may call this method."""
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            for pipe in (child.stdin, child.stdout):
                if pipe is not None:
                    pipe.close()
            with suppress(subprocess.TimeoutExpired):  # the kernel may keep a killed process for some time
                child.wait(_ENDS_SECONDS)

    def _exchange(self, job: Job, limits: ProcessLimits, deadline: float) -> JobResult:
        """Send a job to the child and return its result. Raise _Lost if there is no valid result in time."""
        child = self._ensure_child()
        sent = job_to_bytes(job, limits.memory_bytes)
        received = _converse(child, HEAD.pack(len(sent)) + sent, limits, deadline)
        try:
            result = result_from_bytes(received)
        except ValueError as error:
            raise _Lost(f"the worker's answer is not a result ({error})") from error
        alike = isinstance(result, RecalibrationResult) is isinstance(job, RecalibrationJob)
        if (result.task, result.number, True) != (job.task, job.number, alike):
            raise _Lost(
                f"the worker answered refit {result.number} of {result.task}, "
                f"asked for refit {job.number} of {job.task}"
            )
        return result

    def _ensure_child(self) -> subprocess.Popen[bytes]:
        if self._child is not None and self._child.poll() is None:
            return self._child
        self.close()  # a child that died between two jobs is replaced without a refusal
        try:
            self._child = subprocess.Popen(
                [sys.executable, "-P", *self._program],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=_environment(),
                bufsize=0,
            )
        except OSError as error:
            raise _Lost(f"the worker process could not be started ({error})") from error
        for pipe in (self._child.stdin, self._child.stdout):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)
        return self._child


def _environment() -> dict[str, str]:
    """Return the environment of the agent, with its module path, and with variables for a single thread."""
    path = os.pathsep.join(map(os.path.abspath, sys.path))  # an empty entry means the current folder
    return {**os.environ, "PYTHONPATH": path, **dict.fromkeys(_ONE_THREAD, "1")}


def _converse(child: subprocess.Popen[bytes], sent: bytes, limits: ProcessLimits, deadline: float) -> bytes:
    """Write a frame to the child and return the frame that it sends back.

    Raises
    ------
    _Lost
        The child died or did not answer before the deadline.
    """
    assert child.stdin is not None
    assert child.stdout is not None
    waiting, received = memoryview(sent), bytearray()
    with selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ)
        selector.register(child.stdin, selectors.EVENT_WRITE)
        while len(received) < HEAD.size or len(received) < HEAD.size + _size(received):
            left = deadline - time.monotonic()
            ready = selector.select(left) if left > 0 else ()
            if not ready:
                raise _Lost(
                    f"the refit took longer than the {limits.seconds:g} s that ssme.seconds allows; "
                    "raise it, or lower ssme.max_rows"
                )
            for key, _ in ready:
                if key.fileobj is child.stdout:
                    received += _piece(child)
                elif not (waiting := _written(child, waiting)):
                    selector.unregister(child.stdin)
    return bytes(received[HEAD.size : HEAD.size + _size(received)])


def _size(received: bytearray) -> int:
    """Return the length of a frame from its head. Raise _Lost if the frame is too large."""
    size = int(HEAD.unpack_from(received)[0])
    if size > _LARGEST_ANSWER:
        raise _Lost(f"the worker's answer is not a result ({size:,} bytes announced)")
    return size


def _piece(child: subprocess.Popen[bytes]) -> bytes:
    """Return the bytes that are available from the child. Raise _Lost if the child has closed its output."""
    assert child.stdout is not None
    try:
        piece = os.read(child.stdout.fileno(), _PIECE)
    except BlockingIOError:
        return b""
    if not piece:
        raise _Lost(_death(child))
    return piece


def _written(child: subprocess.Popen[bytes], waiting: memoryview) -> memoryview:
    """Write as many bytes as the pipe accepts, and return the remaining bytes."""
    assert child.stdin is not None
    try:
        return waiting[os.write(child.stdin.fileno(), waiting) :]
    except BlockingIOError:
        return waiting
    except BrokenPipeError as error:
        raise _Lost(_death(child)) from error


def _death(child: subprocess.Popen[bytes]) -> str:
    """Return how the child ended. The text is the reason of a refusal."""
    try:
        code = child.wait(_ENDS_SECONDS)
    except subprocess.TimeoutExpired:
        return "the worker process closed its output without an answer"
    if code == -signal.SIGKILL:
        return "the worker process was killed (signal 9: by hand, or by the system for want of memory)"
    how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
    return f"the worker process ended {how} before it answered"

"""Processes that decode what sources read, for streams that are too fast for one core.

A read is the bytes that one call of a source's `read` returns. A process receives a read, decodes it, and
sends the chunk of records back. The process keeps no state between reads.

Each process has two pipes, one in each direction. If the process dies, its pipes are closed, and the agent
decodes the read itself. The module does not use an executor of `concurrent.futures`, because all its
processes share one pipe. If one of them were killed while it writes a chunk, the executor would wait for
ever. A process ends when its pipes are closed, so it never outlives the agent.
"""

from __future__ import annotations

import logging
import os
import pickle
import select
import signal
import struct
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from monitor.base.collector import tune_collector
from monitor.base.records import Chunk
from monitor.base.source import Decode, Raw

log = logging.getLogger("blindsight")

SILENT_SECONDS = 30.0
"""A process that takes longer than this to receive or decode a read is killed."""

_AGAIN_SECONDS = 5.0
_ENDS_SECONDS = 5.0
# A message of a `Connection` begins with its size, a long message with -1 and then its size.
_HEAD, _LONG_HEAD = struct.Struct("!i"), struct.Struct("!Q")
_SHORT_BYTES = 0x7FFFFFFF
_PART_BYTES = 1 << 20

BuildDecoders = Callable[[], Mapping[str, Decode]]
"""The type of a function that returns the decoder of each source by name; each process calls it."""


@dataclass(slots=True, eq=False)
class DecoderProcess:
    """The agent's handle of a decoding process: its pipes and its state.

    Parameters
    ----------
    process : BaseProcess
        The process itself.
    reads : Connection
        The pipe that sends reads to the process.
    chunks : Connection
        The pipe that receives chunks from the process.
    ready : bool
        Whether the process has reported that it has built its decoders.
    busy : bool
        Whether the process has a read that it has not answered.
    """

    process: BaseProcess
    reads: Connection
    chunks: Connection
    ready: bool = False
    busy: bool = False

    def send(self, message: bytes, timeout_seconds: float) -> bool:
        """Send a message to the process. Return False if the process does not read it in time.

        The format is that of `Connection.send_bytes`. The time limit applies to each wait for space in the
        pipe.

        Raises
        ------
        OSError
            The process has ended.
        """
        pipe, size = self.reads.fileno(), len(message)
        head = _HEAD.pack(size) if size <= _SHORT_BYTES else _HEAD.pack(-1) + _LONG_HEAD.pack(size)
        for part in (memoryview(head), memoryview(message)):
            while part:
                try:
                    part = part[os.write(pipe, part) :]
                except BlockingIOError:
                    if not _is_ready(pipe, select.POLLOUT, timeout_seconds):
                        return False
        return True

    def receive(self, timeout_seconds: float) -> bytes | None:
        """Return the next message from the process, or None if the process does not send it in time.

        Parameters
        ----------
        timeout_seconds : float
            The limit of each wait for the next bytes.

        Raises
        ------
        EOFError, OSError
            The process has ended.
        """
        head = self._receive_bytes(_HEAD.size, timeout_seconds)
        if head is None or (size := _HEAD.unpack(head)[0]) >= 0:
            return head and self._receive_bytes(size, timeout_seconds)
        head = self._receive_bytes(_LONG_HEAD.size, timeout_seconds)
        return head and self._receive_bytes(_LONG_HEAD.unpack(head)[0], timeout_seconds)

    def _receive_bytes(self, size: int, timeout_seconds: float) -> bytes | None:
        pipe, parts = self.chunks.fileno(), []
        while size:
            if not _is_ready(pipe, select.POLLIN, timeout_seconds):
                return None
            part = os.read(pipe, min(size, _PART_BYTES))
            if not part:
                raise EOFError
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def has_answered(self, timeout_seconds: float = 0.0) -> bool:
        """Wait for a message or the end of the process. Return False if the time limit passes first."""
        return self.chunks.poll(timeout_seconds)


class Decoders:
    """A pool of processes that decode what sources read. Its methods are thread-safe.

    Parameters
    ----------
    processes : int
        The largest number of processes.
    build : callable
        Returns the decoders of all sources. The function is pickled, and each process calls it.
    """

    def __init__(self, processes: int, build: BuildDecoders) -> None:
        self._most, self._build = processes, build
        self._processes: list[DecoderProcess] = []
        self._lock = threading.RLock()
        self._next_start = 0.0
        self._closed = False
        self.failures = 0
        """The number of processes that were killed, died, or did not answer."""

    @property
    def busy(self) -> int:
        """The number of reads that are being decoded."""
        return sum(each.busy for each in self._processes.copy())

    @property
    def pids(self) -> list[int]:
        """The ids of the present processes."""
        return [each.process.pid or 0 for each in self._processes.copy()]

    def start(self) -> None:
        """Start missing processes. Do nothing if a process was lost within the last few seconds."""
        with self._lock:
            while len(self._processes) < self._most and time.monotonic() >= self._next_start:
                try:
                    self._processes.append(_start_process(self._build))
                except OSError as error:
                    self._next_start = time.monotonic() + _AGAIN_SECONDS
                    log.warning("A process that decodes could not be started: %s.", error)

    def give(self, source: str, raws: Sequence[Raw]) -> DecoderProcess | None:
        """Send a read of a source to a free process, and return the process.

        Return None if no process is free, or if the process did not receive the read.
        """
        with self._lock:
            if self._closed:
                return None
            self.start()
            free = next((each for each in self._processes.copy() if self._is_free(each)), None)
            if free is None:
                return None
            free.busy = True
        try:
            if free.send(pickle.dumps((source, raws), protocol=5), SILENT_SECONDS):
                return free
            self._lose(free, f"took nothing for {SILENT_SECONDS:.0f} s")
        except OSError:
            self._lose(free)
        return None

    def take(self, process: DecoderProcess) -> Chunk | None:
        """Wait for the chunk of the read that a process decodes, and return it.

        The result is None if the process died, did not answer in time, or could not decode the read.
        """
        try:
            answer = process.receive(SILENT_SECONDS)
        except (EOFError, OSError):
            self._lose(process)
            return None
        if answer is None:
            self._lose(process, f"did not answer within {SILENT_SECONDS:.0f} s")
            return None
        process.busy = False
        chunk: Chunk | None = pickle.loads(answer)
        return chunk

    def close(self) -> None:
        """Kill all processes. They have no state that could be lost."""
        with self._lock:
            self._closed = True
            ending, self._processes = self._processes, []
        for each in ending:
            each.process.kill()
        for each in ending:
            each.process.join(_ENDS_SECONDS)

    def _is_free(self, one: DecoderProcess) -> bool:
        if not one.ready and one.has_answered():
            try:
                one.chunks.recv_bytes()
                one.ready = True
            except (EOFError, OSError):
                self._lose(one)
        return one.ready and not one.busy

    def _lose(self, one: DecoderProcess, how: str | None = None) -> None:
        """Kill a process that died or did not answer, remove it, and log the reason."""
        with self._lock:
            if self._closed:
                return
            self._processes.remove(one)
            self._next_start = time.monotonic() + _AGAIN_SECONDS
            self.failures += 1
        if how is None:
            one.process.join(_ENDS_SECONDS)
            how = _death(one.process.exitcode)
        one.process.kill()
        one.process.join(_ENDS_SECONDS)  # without this it would stay a zombie until the next start
        log.warning(
            "A process that decodes %s. The agent decodes what it had, and starts another when it needs one.",
            how,
        )


def _death(code: int | None) -> str:
    """Return the end of a sentence that says how a process ended.

    `code` is its exit code, or None if it still runs.
    """
    if code == -signal.SIGKILL:
        return "was killed (signal 9: by hand, or by the system for want of memory)"
    if code is None:
        return "has closed its pipe"
    return f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"


def _is_ready(pipe: int, event: int, timeout_seconds: float) -> bool:
    """Wait until a pipe has room or bytes, or its other end is closed. Return False after the time limit."""
    poll = select.poll()
    poll.register(pipe, event)
    return bool(poll.poll(1000 * timeout_seconds))


def _start_process(build: BuildDecoders) -> DecoderProcess:
    context = get_context("spawn")
    to_read, reads = context.Pipe(duplex=False)
    chunks, to_answer = context.Pipe(duplex=False)
    process = context.Process(target=serve, args=(to_read, to_answer, build), name="decoder", daemon=True)
    process.start()
    # The agent closes the ends of the process, so that the death of the process closes the pipes.
    to_read.close()
    to_answer.close()
    os.set_blocking(reads.fileno(), False)  # only the agent's end
    return DecoderProcess(process, reads, chunks)


def serve(reads: Connection, chunks: Connection, build: BuildDecoders) -> None:
    """Run a decoding process: decode reads and send their chunks back, until the agent ends.

    If a read cannot be decoded, the process sends None back.

    Parameters
    ----------
    reads, chunks : Connection
        The pipe that receives reads from the agent, and the pipe that sends chunks back.
    build : callable
        Returns the decoder of each source by name.
    """
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C reaches all processes of a terminal; the agent ends this one
    decoders = build()
    tune_collector()
    with suppress(EOFError, BrokenPipeError):
        chunks.send_bytes(b"ready")
        while True:
            source, raws = pickle.loads(reads.recv_bytes())
            chunks.send_bytes(pickle.dumps(_decoded(decoders[source], raws), protocol=5))


def _decoded(decode: Decode, raws: Sequence[Raw]) -> Chunk | None:
    try:
        return decode(raws)
    except Exception:  # noqa: BLE001 - it fails in the agent too, which logs it
        return None

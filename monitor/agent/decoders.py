"""Processes that decode what sources read, where the agent's one core is not enough.

A process gets what one read brought and answers with its chunk, one after another; it keeps nothing between
them. Each has a pipe of its own in either direction, so that its death ends them, whatever it was about; what
it had, the agent decodes itself. (An executor of `concurrent.futures` has one pipe for all: it waits for ever
for the rest of the chunk amid which a process was killed.) A process ends when its pipes do, so that it never
outlives the agent, whichever way that went.
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
"""A process that takes or decodes one read for so long is given up; it takes a fraction of a second."""

_AGAIN_SECONDS = 5.0
_ENDS_SECONDS = 5.0
# A message of a `Connection` begins with its size; that of a long one is -1, and stands behind it.
_HEAD, _LONG_HEAD = struct.Struct("!i"), struct.Struct("!Q")
_SHORT_BYTES = 0x7FFFFFFF
_PART_BYTES = 1 << 20

BuildDecoders = Callable[[], Mapping[str, Decode]]
"""Makes the decoder of each source, by the source's name. It is called in another process."""


@dataclass(slots=True, eq=False)
class DecoderProcess:
    """One process, from the agent's side.

    Parameters
    ----------
    process : BaseProcess
    reads, chunks : Connection
        What it is given, and what it answers.
    ready : bool
        Whether it has said that its decoders are made.
    busy : bool
        Whether it has a read of which nobody has taken the chunk.
    """

    process: BaseProcess
    reads: Connection
    chunks: Connection
    ready: bool = False
    busy: bool = False

    def send(self, message: bytes, timeout_seconds: float) -> bool:
        """Send a message as `Connection.send_bytes` does, but return False where it is not taken in time.

        The limit holds for each wait until the full pipe has room again.

        Raises
        ------
        OSError
            The process is gone.
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
        """Return the answer; None where nothing more of it comes within the time limit.

        Raises
        ------
        EOFError, OSError
            The process is gone.
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

    def answered(self, timeout_seconds: float = 0.0) -> bool:
        """Whether there is an answer, or none will come, within so long."""
        return self.chunks.poll(timeout_seconds)


class Decoders:
    """The processes, shared by all sources of an agent. Each method may be called by any thread.

    Parameters
    ----------
    processes : int
        At most so many reads are with them at a time.
    build : callable
        Is pickled.
    """

    def __init__(self, processes: int, build: BuildDecoders) -> None:
        self._most, self._build = processes, build
        self._processes: list[DecoderProcess] = []
        self._lock = threading.RLock()
        self._next_start = 0.0
        self._closed = False
        self.failures = 0
        """Processes that were killed, died, or did not answer."""

    @property
    def busy(self) -> int:
        """Reads that are with them."""
        return sum(each.busy for each in self._processes.copy())

    @property
    def pids(self) -> list[int]:
        """Of the processes that are there."""
        return [each.process.pid or 0 for each in self._processes.copy()]

    def start(self) -> None:
        """Start those that are missing, but none within a few seconds after one was lost."""
        with self._lock:
            while len(self._processes) < self._most and time.monotonic() >= self._next_start:
                try:
                    self._processes.append(_started(self._build))
                except OSError as error:
                    self._next_start = time.monotonic() + _AGAIN_SECONDS
                    log.warning("A process that decodes could not be started: %s.", error)

    def give(self, source: str, raws: Sequence[Raw]) -> DecoderProcess | None:
        """Have a read of this source decoded; None where no process is free: it is not taken then."""
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

    def take(self, given: DecoderProcess) -> Chunk | None:
        """The chunk of the read that a process was given, once it is there; None where none will come."""
        try:
            answer = given.receive(SILENT_SECONDS)
        except (EOFError, OSError):
            self._lose(given)
            return None
        if answer is None:
            self._lose(given, f"did not answer within {SILENT_SECONDS:.0f} s")
            return None
        given.busy = False
        chunk: Chunk | None = pickle.loads(answer)
        return chunk

    def close(self) -> None:
        """End all processes, for good; they hold nothing that would be lost."""
        with self._lock:
            self._closed = True
            ending, self._processes = self._processes, []
        for each in ending:
            each.process.kill()
        for each in ending:
            each.process.join(_ENDS_SECONDS)

    def _is_free(self, one: DecoderProcess) -> bool:
        if not one.ready and one.answered():
            try:
                one.chunks.recv_bytes()
                one.ready = True
            except (EOFError, OSError):
                self._lose(one)
        return one.ready and not one.busy

    def _lose(self, one: DecoderProcess, how: str | None = None) -> None:
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
        one.process.join(_ENDS_SECONDS)  # else it stays a zombie until the next one is started
        log.warning(
            "A process that decodes %s. The agent decodes what it had, and starts another when it needs one.",
            how,
        )


def _death(code: int | None) -> str:
    if code == -signal.SIGKILL:
        return "was killed (signal 9: by hand, or by the system for want of memory)"
    if code is None:
        return "has closed its pipe"
    return f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"


def _is_ready(pipe: int, event: int, timeout_seconds: float) -> bool:
    """Return whether a pipe has room or bytes, or its other end is closed, within the time limit."""
    poll = select.poll()
    poll.register(pipe, event)
    return bool(poll.poll(1000 * timeout_seconds))


def _started(build: BuildDecoders) -> DecoderProcess:
    context = get_context("spawn")
    to_read, reads = context.Pipe(duplex=False)
    chunks, to_answer = context.Pipe(duplex=False)
    process = context.Process(target=serve, args=(to_read, to_answer, build), name="decoder", daemon=True)
    process.start()
    # Its own ends: only if it alone has them does its death end the pipes.
    to_read.close()
    to_answer.close()
    os.set_blocking(reads.fileno(), False)  # of the agent's end alone
    return DecoderProcess(process, reads, chunks)


def serve(reads: Connection, chunks: Connection, build: BuildDecoders) -> None:
    """Decode until the agent has gone; an answer of None leaves a read to the agent.

    Parameters
    ----------
    reads, chunks : Connection
    build : callable
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal it goes to all: the agent ends us
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
    except Exception:  # noqa: BLE001 - it fails in the agent too, which tells
        return None

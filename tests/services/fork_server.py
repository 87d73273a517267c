"""Programs of ours that begin where their imports end: forks of one process that has done them.

An agent imports for most of a second of processor time, and the tests start hundreds. A fork runs the same
command on the same code, in a process of its own; it only need not import again. What a start costs, and how
much memory a program takes, is measured with programs that were started in full (`fresh`), and commands that
are run by hand start no other ones.

    python -m tests.services.fork_server NUMBER_OF_A_SOCKET
"""

from __future__ import annotations

import array
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from itertools import count
from pathlib import Path
from typing import IO, Any

from monitor.cli.process import one_thread_for_matrices, put_off_imports
from tests.services.process import forks, shared

ROOT = Path(__file__).parents[2]

enabled = False
"""Whether agents and commands are forks: in the tests, not in commands run by hand."""

COMMAND = "monitor.cli"
"""The module that is `blindsight`."""

_LONGEST_REQUEST = 1 << 20
_DESCRIPTORS = 3
_IMPORTED = (
    "monitor.cli.main",
    "monitor.cli.daemon",
    "monitor.cli.verifying",
    "monitor.stats.charts.shewhart",
    "connectors.files",
    "connectors.http.source",
    "connectors.kafka",
    "connectors.redis_stream",
    "scipy.special",
)


class ForkedProcess:
    """A fork that runs `blindsight` with these words, or a module; it has the part of `subprocess.Popen` that
    tests use.

    Parameters
    ----------
    words : sequence of str
    stdin, stdout, stderr : optional
        As of `subprocess.Popen`, but `PIPE` for `stdin` alone.
    env : mapping of str to str
    cwd : Path, optional
    module : str
        The module to run with these words, as ``python -m`` does.
    """

    def __init__(
        self,
        words: Sequence[str],
        *,
        stdin: Any,
        stdout: Any,
        stderr: Any,
        env: Mapping[str, str],
        cwd: Path | None = None,
        module: str = COMMAND,
    ) -> None:
        self.args = list(words)
        self.returncode: int | None = None
        self.stdin: IO[bytes] | None = None
        self._server = _server()
        with _Opened(stdin) as opened:
            if opened.pipe is not None:
                self.stdin = os.fdopen(opened.pipe, "wb")
            request = {"words": self.args, "cwd": str(cwd or Path.cwd()), "env": dict(env), "module": module}
            files = [opened.number, _number(stdout), _number(stderr)]
            self._number, self.pid = self._server.fork(request, files)
            forks.add(self.pid)
        self._descriptor = os.pidfd_open(self.pid)

    def poll(self) -> int | None:
        """Return the exit code, None while it runs."""
        if self.returncode is None and (code := self._server.code(self._number)) is not None:
            self.returncode = code
            forks.discard(self.pid)
            os.close(self._descriptor)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code, once it has ended; raise `subprocess.TimeoutExpired` after the timeout."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
            self._server.listen(left)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it ended this moment
                signal.pidfd_send_signal(self._descriptor, number)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)


class _Opened:
    """A descriptor for the values that `stdin` may have; a file opened for it is closed at the end of the
    block.
    """

    def __init__(self, stdin: Any) -> None:
        self.pipe: int | None = None
        self._own = True
        if stdin == subprocess.PIPE:
            self.number, self.pipe = os.pipe()
        elif stdin == subprocess.DEVNULL:
            self.number = os.open(os.devnull, os.O_RDONLY)
        else:
            self.number, self._own = _number(stdin), False

    def __enter__(self) -> _Opened:
        return self

    def __exit__(self, *_: object) -> None:
        if self._own:
            os.close(self.number)


def _number(file: Any) -> int:
    return file if isinstance(file, int) else int(file.fileno())


class _Server:
    """The process that forks, started when the first fork is wanted; it ends with the one that asked."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.services.fork_server", str(theirs.fileno())],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
                pass_fds=[theirs.fileno()],
            )
        self._codes: dict[int, int] = {}  # by number: the system gives a process id again
        self._forked: list[tuple[int, int]] = []
        self._lock = threading.Lock()

    def fork(self, request: Mapping[str, Any], files: Sequence[int]) -> tuple[int, int]:
        """Return the number and the process id of a new fork."""
        with self._lock:
            packed = array.array("i", files)
            ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, packed)]
            self._socket.sendmsg([json.dumps(request).encode()], ancillary)
            while not self._forked:
                self._hear(None)
            return self._forked.pop()

    def code(self, number: int) -> int | None:
        """Return the exit code of a fork; None while it runs."""
        with self._lock:
            while number not in self._codes and self._hear(0.0):
                pass
            return self._codes.get(number)

    def listen(self, seconds: float | None) -> None:
        """Wait until the server says something, so long at most."""
        with self._lock:
            # Another thread may hear what this one waits for: not longer than a moment.
            self._hear(0.05 if seconds is None else min(seconds, 0.05))

    def _hear(self, seconds: float | None) -> bool:
        ready, _, _ = select.select([self._socket], [], [], seconds)
        if not ready:
            return False
        message = self._socket.recv(_LONGEST_REQUEST)
        assert message, f"the fork server ended with {self._process.wait()}"
        for kind, number, value in json.loads(message):
            if kind == "forked":
                self._forked.append((number, value))
            else:
                self._codes[number] = value
        return True

    def end(self) -> None:
        """End it; its forks go on."""
        self._socket.close()
        self._process.wait()


@cache
def _server() -> _Server:
    with shared():
        return _Server()


def end_server() -> None:
    """End the server of this process, if it has one."""
    if _server.cache_info().currsize:
        _server().end()
        _server.cache_clear()


def _serve(connection: socket.socket) -> dict[str, Any] | None:
    """Fork as asked; in a fork, what it is to do, and None once nobody asks any more."""
    awake, wake = socket.socketpair()
    for each in (awake, wake):
        each.setblocking(False)
    numbers, running = count(), dict[int, int]()  # of the forks that have not ended, by process id
    signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of Ctrl-C; who asked ends, and then we
    while True:
        ready, _, _ = select.select([connection, awake], [], [])
        if awake in ready:
            awake.recv(4096)
            _say_ended(connection, running)
        if connection not in ready:
            continue
        message, files, _, _ = socket.recv_fds(connection, _LONGEST_REQUEST, _DESCRIPTORS)
        if not message:
            return None
        if (pid := os.fork()) == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            for each in (awake, wake, connection):
                each.close()
            for target, file in enumerate(files):
                os.dup2(file, target)
                os.close(file)
            order: dict[str, Any] = json.loads(message)
            return order
        for file in files:
            os.close(file)
        running[pid] = next(numbers)
        connection.send(json.dumps([["forked", running[pid], pid]]).encode())


def _say_ended(connection: socket.socket, running: dict[int, int]) -> None:
    ended = []
    with suppress(ChildProcessError):
        while (waited := os.waitpid(-1, os.WNOHANG))[0]:
            ended.append(["ended", running.pop(waited[0]), os.waitstatus_to_exitcode(waited[1])])
    if ended:
        with suppress(OSError):  # nobody asks any more
            connection.send(json.dumps(ended).encode())


def _main() -> None:
    one_thread_for_matrices()
    importlib.import_module("numpy")
    put_off_imports()
    for module in _IMPORTED:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()
    with socket.socket(fileno=int(sys.argv[1])) as connection:
        request = _serve(connection)
    if request is None:
        return
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    time.tzset()
    sys.argv = [request["module"], *request["words"]]
    runpy.run_module(request["module"], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _main()

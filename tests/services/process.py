"""The parts that the test services share: free ports, waiting, stopping by process id, why one is missing."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from tests.services.fork_server import ForkedProcess

_PORTS = Path(tempfile.gettempdir(), f"blindsight-test-ports-{os.getuid()}")
_handed_out: set[int] = set()
SHORT_LIVED_JAVA = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""What a Java is told that works for seconds: the second compiler would take longer than it ever saves."""
_QUIET = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")
"""An archive that does not fit is as good as none, and what Java prints may be read."""


CACHE = Path.home() / ".cache" / "blindsight-test"
"""What is made or fetched once a machine."""

PATIENCE_SECONDS = 300.0
"""How long a test waits for what takes a moment on an idle machine: it may be the last of many in line."""

Driver = Literal["kafka-python", "confluent"]
DRIVERS: tuple[Driver, ...] = ("kafka-python", "confluent")
"""The client libraries by which tests read Kafka."""

forks: set[int] = set()
"""Process ids of `ForkedProcess`es whose end nobody has heard of yet."""

shared_children: set[int] = set()
"""Process ids of `children` that serve more than one test."""

shared_threads: set[threading.Thread] = set()
"""Threads that serve more than one test."""

NO_DRIVER: Driver = "confluent"
"""Whose broker tests of Kafka take that read by no driver of ours."""


class ServiceUnavailable(Exception):  # noqa: N818 - a reason to skip, not a failure of the code under test
    """An error that this machine cannot run the service; the text names the missing part."""


def in_ci() -> bool:
    """Return whether a missing service must fail the tests instead of skipping them (`CI=true`)."""
    return os.environ.get("CI", "").lower() in {"1", "true", "yes"}


@cache
def _port_locks() -> int:
    return os.open(_PORTS, os.O_RDWR | os.O_CREAT, 0o666)


def free_ports(count: int) -> list[int]:
    """Return `count` free TCP ports of 127.0.0.1, none handed out before by any test process that still runs.

    They are below the range that the kernel hands out to outgoing connections, so that a client
    which keeps trying an absent server cannot take the server's port from it. Workers and runs side by side
    tell each other by locks on one file, byte n for port n, which the kernel drops as the process ends.
    """
    ports: list[int] = []
    for port in range(20_000, 32_000):
        if port in _handed_out:
            continue
        with suppress(OSError), socket.socket() as probe:
            fcntl.lockf(_port_locks(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
            probe.bind(("127.0.0.1", port))
            _handed_out.add(port)
            ports.append(port)
        if len(ports) == count:
            return ports
    raise ServiceUnavailable(f"no {count} free ports between 20000 and 32000 on 127.0.0.1")


@cache
def java_words(name: str, jars: Path, use: Callable[[Sequence[str]], object]) -> tuple[str, ...]:
    """Return the options of a Java that works for seconds: `SHORT_LIVED_JAVA`, and where its classes are.

    They lie in an archive (class data sharing), from which a Java has them in half of the time. The first
    who asks on a machine makes it; where that cannot be done, Java is told nothing of it.

    Parameters
    ----------
    name : str
        Of the jars, with their version.
    jars : Path
        Their folder.
    use : callable
        Runs such a Java to its end, told these words; what it has loaded then is in the archive.
    """
    java = Path(shutil.which("java") or "java").resolve()
    of = "".join(f"{path} {path.stat().st_mtime_ns}\n" for path in (java, jars))
    archive = CACHE / f"{name}-{hashlib.sha256(of.encode()).hexdigest()[:12]}.jsa"
    CACHE.mkdir(parents=True, exist_ok=True)
    with locked(archive.with_suffix(".lock")), suppress(AssertionError, OSError, subprocess.SubprocessError):
        if not archive.exists():
            unfinished = archive.with_suffix(".unfinished")
            use([*SHORT_LIVED_JAVA, *_QUIET, f"-XX:ArchiveClassesAtExit={unfinished}"])
            unfinished.rename(archive)
    known = (*_QUIET, f"-XX:SharedArchiveFile={archive}") if archive.exists() else ()
    return SHORT_LIVED_JAVA + known


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep every other process out of a block of the same path."""
    with path.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def wait_until(
    done: Callable[[], object], what: str, pause: float = 0.05, seconds: float = PATIENCE_SECONDS
) -> None:
    """Return once `done()` is true; raise AssertionError naming `what` after `seconds` seconds.

    Each look takes processor time from the awaited work: pauses grow with the wait, to five times the
    first. On a busy machine the limit is `programs_a_core` times as long.
    """
    began = time.monotonic()
    while not done():
        waited = time.monotonic() - began
        late = waited >= seconds and waited >= seconds * programs_a_core()
        assert not late, f"waited {waited:.0f} s in vain until {what}"
        time.sleep(max(pause, min(5 * pause, waited / 20)))


def programs_a_core() -> float:
    """Return how many programs have wanted each core in the last five minutes; 1 where there were fewer."""
    return max(1.0, os.getloadavg()[1] / (os.cpu_count() or 1))


def answers(port: int) -> bool:
    """Return whether something accepts connections on this port of 127.0.0.1."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False


def end_of(process: subprocess.Popen[bytes] | ForkedProcess, seconds: float = PATIENCE_SECONDS) -> int:
    """Return the exit code of a process; raise `subprocess.TimeoutExpired` as late as `wait_until` does."""
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return process.wait(seconds * programs_a_core() - seconds)


def stop(process: subprocess.Popen[bytes] | ForkedProcess | None, *, kill: bool = False) -> None:
    """End one process that we started: SIGTERM, and SIGKILL if it stays; or SIGKILL at once."""
    if process is None or process.poll() is not None:
        return
    process.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
    try:
        process.wait(PATIENCE_SECONDS / 5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def children() -> set[int]:
    """Return the processes that this one or its server of forks has started, and not waited for."""
    pids = set(forks)
    threads = Path("/proc/self/task")
    for thread in threads.iterdir() if threads.is_dir() else ():  # Linux
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            pids.update(map(int, (thread / "children").read_text().split()))
    return pids


def descendants(ancestor: int) -> list[int]:
    """Return the process ids of a process, of those that it has started, and of those that they have."""
    started_by: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError, IndexError):
                parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
                started_by.setdefault(int(parent), []).append(int(folder.name))
    pids = [ancestor]
    for pid in pids:  # which grows meanwhile
        pids += started_by.get(pid, [])
    return pids


@contextmanager
def shared() -> Iterator[None]:
    """Mark processes and threads that are started inside the block as shared by several tests."""
    before, threads = children(), set(threading.enumerate())
    try:
        yield
    finally:
        shared_children.update(children() - before)
        shared_threads.update(set(threading.enumerate()) - threads)


def gone(pid: int) -> bool:
    """Return whether a process has ended, even if nobody has waited for it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except FileNotFoundError:
        return True


def tail(path: Path, lines: int = 15) -> str:
    """Return the last lines of a log, for a message."""
    if not path.exists():
        return "(no log)"
    return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])


def started(what: str, words: Sequence[str], log: Path, ready: Callable[[], bool]) -> subprocess.Popen[bytes]:
    """Return a service's process, once it answers: it runs in the folder of its log, and is gone where it
    does not.

    It may serve more than one test: who owns it ends it.

    Raises
    ------
    AssertionError
        It ended, or is not ready after `PATIENCE_SECONDS`; with the end of its log.
    """
    with log.open("ab") as out:
        process = subprocess.Popen(words, stdout=out, stderr=out, cwd=log.parent)
    shared_children.add(process.pid)
    try:
        wait_until(lambda: ready() or process.poll() is not None, f"{what} has started")
        assert process.poll() is None, "it ended"
    except AssertionError as error:
        stop(process, kill=True)
        raise AssertionError(f"{what} did not start: {error}; the end of its log:\n{tail(log)}") from None
    except BaseException:
        stop(process, kill=True)
        raise
    return process

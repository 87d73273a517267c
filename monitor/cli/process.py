"""Settings of the whole process, made by the commands and by no library code."""

from __future__ import annotations

import ctypes
import importlib.util
import io
import os
import sys
import threading
from collections.abc import MutableMapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

_M_ARENA_MAX, _M_MMAP_THRESHOLD = -8, -3  # of glibc's malloc.h
_LARGE_BYTES = 1 << 20
_TRIM_SECONDS = 10.0
_PRELOADED = ["monitor.cli.main", "monitor.cli.replay_worker", "scipy.special"]

BYTES_A_PROCESS = 32 << 20
"""Of input that make a further process worth its start: some two thirds of a second of work."""

_abandoned = threading.Event()


def one_thread_for_matrices(environment: MutableMapping[str, str] = os.environ) -> None:
    """Keep OpenBLAS to one thread, unless the environment says otherwise. Call it before numpy is imported.

    The matrices of a window are small: more threads only take cores from the model being watched, and
    make the replay of a million records some 15 % slower.
    """
    environment.setdefault("OPENBLAS_NUM_THREADS", "1")


def print_any_text() -> None:
    """Have standard output and errors escape what their encoding lacks, as a column's name of other bytes."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def put_off_imports() -> None:
    """Have numpy's compiler for Fortran and its testing imported when used: a tenth of the start.

    `scipy.special` asks numpy for all that it has, these among it, and uses neither. Call it before that.
    """
    for name in ("f2py", "testing"):
        found = importlib.util.find_spec(f"numpy.{name}")
        if found is None or found.loader is None or found.name in sys.modules:
            continue
        found.loader = importlib.util.LazyLoader(found.loader)
        module = importlib.util.module_from_spec(found)
        sys.modules[found.name] = module
        found.loader.exec_module(module)
        setattr(sys.modules["numpy"], name, module)


def one_heap() -> None:
    """Have glibc keep one heap for all threads, and large arrays out of it. Call it before threads start.

    Each thread would get a heap of its own, and blocks are handed from thread to thread: of what was free
    in one, no other could make use, and what is resident would creep up for hours
    (`tests/bench/bench_memory.py`). Python runs one thread at a time, so that they do not wait for it.
    Arrays of a MiB and more go back to the system as they are freed: left to itself, glibc takes blocks of
    up to 32 MiB into the heap after the first one was freed, where small ones then settle between them.
    """
    with suppress(OSError, AttributeError, TypeError):  # another C library has no such thing
        library = ctypes.CDLL(None)
        library.mallopt(_M_ARENA_MAX, 1)
        library.mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)


@cache
def trim_heap(every_seconds: float = _TRIM_SECONDS) -> bool:
    """Give the heap's free pages back to the system from time to time, for as long as the process lives.

    Asked again, it goes on as it does.

    A burst (a long chunk, a refit's rows, a checkpoint) leaves free pages amid used ones, which glibc would
    keep for good: what is resident would be the sum of all that ever happened to come together. One call
    takes a few milliseconds, in a thread of its own.

    Parameters
    ----------
    every_seconds : float
        Above 0.

    Returns
    -------
    bool
        False where the C library has no such thing (musl, macOS); then nothing is started.
    """
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError, TypeError):
        return False

    def trim_for_ever() -> None:
        pause = threading.Event()
        while not pause.wait(every_seconds):
            trim(0)

    threading.Thread(target=trim_for_ever, name="heap", daemon=True).start()
    return True


def cores(limit: Path = Path("/sys/fs/cgroup/cpu.max")) -> int:
    """The cores that this process may use: those it is bound to, or as many as its container's share makes.

    Parameters
    ----------
    limit : Path
        Of the second version of Linux' cgroups: microseconds of the processor in so many of the clock.

    Examples
    --------
    >>> cores() >= 1
    True
    """
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with suppress(OSError, ValueError):  # elsewhere there is none, and "max" is no number
        quota, period = map(int, limit.read_text(encoding="ascii").split())
        return max(1, min(bound, quota // period))
    return bound


def processes_for(files: Sequence[Path], asked: int | None = None) -> int:
    """How many processes are to read and compute files: as many as were asked for.

    Left out, the cores that this process may use, but no more than one for each `BYTES_A_PROCESS`.
    """
    size = sum(path.stat().st_size for path in files if path.is_file())
    return max(1, min(cores(), size // BYTES_A_PROCESS)) if asked is None else asked


def start_fork_server() -> None:
    """Have another process import what those of a replay need, of which they are then forks.

    It does so beside the imports of this one, if it is begun before them.
    """
    from multiprocessing import forkserver, get_all_start_methods, get_context

    if "forkserver" in get_all_start_methods():
        get_context("forkserver").set_forkserver_preload(_PRELOADED)
        forkserver.ensure_running()


def abandon_threads() -> None:
    """Say that a thread still computes and is not waited for: `leave_if_abandoned` then ends the process."""
    _abandoned.set()


def leave_if_abandoned(code: int) -> None:
    """End the process at once where a thread was abandoned; otherwise do nothing.

    Once the main thread has ended, Python ends any other as that next asks for the interpreter. Where it
    stands in C++ code then, as Fourier transforms are, the whole process is aborted: SIGABRT and a core dump
    for what was an orderly end.

    Parameters
    ----------
    code : int
        The exit code.

    Examples
    --------
    >>> leave_if_abandoned(0)  # no thread was
    """
    if not _abandoned.is_set():
        return
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # nobody reads it any more
            stream.flush()
    os._exit(code)

"""Settings of the whole process. Commands change them; library code never does."""

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

_M_ARENA_MAX, _M_MMAP_THRESHOLD = -8, -3  # from glibc's malloc.h
_LARGE_BYTES = 1 << 20
_TRIM_SECONDS = 10.0
_PRELOADED = ["monitor.cli.main", "monitor.cli.replay_worker", "scipy.special"]

BYTES_A_PROCESS = 32 << 20
"""The number of bytes of input for each process of a replay. They are about two thirds of a second of
work."""

_abandoned = threading.Event()


def one_thread_for_matrices(environment: MutableMapping[str, str] = os.environ) -> None:
    """Limit OpenBLAS to one thread, unless the environment sets a number of threads.

    Call this function before numpy is imported. The matrices of a window are small. More threads would only
    take processor time from the watched model, and would slow the replay of a million records by about 15 %.
    """
    environment.setdefault("OPENBLAS_NUM_THREADS", "1")


def print_any_text() -> None:
    """Make standard output and standard error escape characters that their encoding does not have."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def put_off_imports() -> None:
    """Make numpy import its Fortran compiler and its test tools only when they are used.

    This saves a tenth of the time to start. `scipy.special` imports all parts of numpy, but does not use
    these two. Call this function before `scipy.special` is imported.
    """
    for name in ("f2py", "testing"):
        spec = importlib.util.find_spec(f"numpy.{name}")
        if spec is None or spec.loader is None or spec.name in sys.modules:
            continue
        spec.loader = importlib.util.LazyLoader(spec.loader)
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        setattr(sys.modules["numpy"], name, module)


def one_heap() -> None:
    """Make glibc use one heap for all threads, and keep large arrays out of this heap.

    Call this function before threads start. By default each thread has its own heap, and memory that is free
    in one heap cannot be used by another thread. In this program, blocks move from thread to thread, so
    resident memory would grow for hours (`tests/bench/bench_memory.py`). A single heap does not slow the
    threads, because Python runs one thread at a time.

    The memory of arrays of at least 1 MiB returns to the system when they are freed. By default, after the
    first large block was freed, glibc would put blocks of up to 32 MiB into the heap, where small blocks
    between them would keep the memory in use.
    """
    with suppress(OSError, AttributeError, TypeError):  # another C library has no such thing
        library = ctypes.CDLL(None)
        library.mallopt(_M_ARENA_MAX, 1)
        library.mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)


@cache
def trim_heap(every_seconds: float = _TRIM_SECONDS) -> bool:
    """Return free pages of the heap to the system from time to time, until the process ends.

    A burst of work (a long chunk, a refit, a checkpoint) leaves free pages between used ones. Glibc would
    keep these pages, and resident memory would be the sum of all bursts. A separate thread returns them,
    which takes a few milliseconds. Calling this function again has no effect.

    Parameters
    ----------
    every_seconds : float
        The time between two rounds, above 0.

    Returns
    -------
    bool
        True if a thread does this; False if the C library cannot do it (musl, macOS).
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
    """Return the number of cores that the affinity and the container's quota allow this process to use.

    Parameters
    ----------
    limit : Path
        The quota file of Linux cgroups, version 2. It has two numbers: the processor time per period, and the
        period, both in microseconds.

    Examples
    --------
    >>> cores() >= 1
    True
    """
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with suppress(OSError, ValueError):  # other systems have no such file; "max" means no limit
        quota, period = map(int, limit.read_text(encoding="ascii").split())
        return max(1, min(bound, quota // period))
    return bound


def processes_for(files: Sequence[Path], requested: int | None = None) -> int:
    """Return the number of processes for a replay of files: the requested number, if one is requested.

    Otherwise return the number of cores, but at most one process for each `BYTES_A_PROCESS` of the files.
    """
    size = sum(path.stat().st_size for path in files if path.is_file())
    return max(1, min(cores(), size // BYTES_A_PROCESS)) if requested is None else requested


def start_fork_server() -> None:
    """Start a process that imports the modules of a replay, and from which worker processes are forked later.

    The function does nothing on a system without the start method `forkserver`, such as Windows. Call this
    function before the imports of the calling process, so that both processes import at once.
    """
    from multiprocessing import forkserver, get_all_start_methods, get_context

    if "forkserver" in get_all_start_methods():
        get_context("forkserver").set_forkserver_preload(_PRELOADED)
        forkserver.ensure_running()


def abandon_threads() -> None:
    """Record that a thread still computes a result that is no longer needed: see `leave_if_abandoned`."""
    _abandoned.set()


def leave_if_abandoned(code: int) -> None:
    """End the process at once if a thread was abandoned; otherwise do nothing.

    After the main thread has ended, Python ends every other thread when it next needs the interpreter. If
    such a thread is in C++ code, such as a Fourier transform, the whole process aborts with SIGABRT and a
    core dump, although its work is complete.

    Parameters
    ----------
    code : int
        The exit code.

    Examples
    --------
    >>> leave_if_abandoned(0)  # no thread was abandoned
    """
    if not _abandoned.is_set():
        return
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # the reader has closed it
            stream.flush()
    os._exit(code)

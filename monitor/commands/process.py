"""Settings of the whole process, made by the commands and by no library code."""

from __future__ import annotations

import ctypes
import gc
import os
from collections.abc import MutableMapping
from contextlib import suppress

_YOUNG = 100_000  # a block of 1 MiB decodes to some 8,000 records with a list each: a dozen blocks
_MIDDLE = _OLD = 10

_M_ARENA_MAX = -8  # of glibc's malloc.h


def one_thread_for_matrices(environment: MutableMapping[str, str] = os.environ) -> None:
    """Keep OpenBLAS to one thread, unless the environment says otherwise. Call it before numpy is imported.

    The matrices of a window are small: more threads only take cores from the model being watched, and
    make the replay of a million records some 15 % slower.
    """
    environment.setdefault("OPENBLAS_NUM_THREADS", "1")


def tune_collector() -> None:
    """Look for cycles rarely, and never among the modules that are there already.

    Records are freed by reference counting as soon as their columns are made; at the default of 700
    new objects the collector walks through thousands of live ones for each block, and finds nothing.
    Measured: decoding takes 0.81 instead of 1.15 µs a record (`tests/bench/bench_replay.py`).
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG, _MIDDLE, _OLD)


def one_heap() -> None:
    """Have glibc keep one heap for all threads. Call it before threads are started.

    Each thread would get a heap of its own, and blocks are handed from thread to thread: of what was free
    in one, no other could make use, and what is resident would creep up for hours
    (`tests/bench/bench_memory.py`). Python runs one thread at a time, so that they do not wait for it.
    """
    with suppress(OSError, AttributeError, TypeError):  # another C library has no such thing
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)

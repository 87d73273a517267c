"""Settings of Python's garbage collector for the commands and for Spark's executors."""

from __future__ import annotations

import gc

_YOUNG = 100_000  # objects of a dozen blocks: a block of 1 MiB has some 8,000 records with a list each
_MIDDLE = _OLD = 10
_IMPORTED = 300_000  # more than the 140,000 objects of the modules of `run`


def postpone_collector() -> None:
    """Make garbage collection rare while modules are imported. This saves a tenth of the start time.

    Call this function before the imports.
    """
    gc.set_threshold(_IMPORTED, _MIDDLE, _OLD)


def tune_collector() -> None:
    """Make garbage collection rare, and exclude the existing objects (such as modules) from it.

    Reference counting frees records as soon as they are converted to columns. With the default threshold of
    700 new objects, the collector would visit thousands of live objects for each block of records and free
    nothing. With the higher threshold, decoding takes 0.81 instead of 1.15 µs for each record
    (`tests/bench/bench_replay.py`). Imports leave reference cycles of half a MiB. These cycles are not
    collected, because collecting them would take a twentieth of the start time.
    """
    gc.freeze()
    gc.set_threshold(_YOUNG, _MIDDLE, _OLD)

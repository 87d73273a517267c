"""Settings of Python's garbage collector for the commands and for Spark's executors."""

from __future__ import annotations

import gc

_YOUNG = 100_000  # a block of 1 MiB decodes to some 8,000 records with a list each: a dozen blocks
_MIDDLE = _OLD = 10
_IMPORTED = 300_000  # the modules of `run` are 140,000 objects


def postpone_collector() -> None:
    """Make garbage collection rare while modules are imported, which saves a tenth of the start.

    Call it before the imports.
    """
    gc.set_threshold(_IMPORTED, _MIDDLE, _OLD)


def tune_collector() -> None:
    """Make garbage collection rare, and exclude the objects that exist already, such as modules.

    Reference counting frees the records as soon as their columns are made. With the default threshold of 700
    new objects the collector visits thousands of live objects for each block and frees nothing.
    Measured: decoding takes 0.81 instead of 1.15 µs a record (`tests/bench/bench_replay.py`). Collecting the
    cycles that imports leave (half a MiB) would add a twentieth to the start.
    """
    gc.freeze()
    gc.set_threshold(_YOUNG, _MIDDLE, _OLD)

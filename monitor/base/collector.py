"""How often Python looks for cycles; set by the commands, and by the Pythons of executors."""

from __future__ import annotations

import gc

_YOUNG = 100_000  # a block of 1 MiB decodes to some 8,000 records with a list each: a dozen blocks
_MIDDLE = _OLD = 10
_IMPORTED = 300_000  # the modules of `run` are 140,000 objects


def postpone_collector() -> None:
    """Look for no cycles while modules are imported: a tenth of the start. Call it before them."""
    gc.set_threshold(_IMPORTED, _MIDDLE, _OLD)


def tune_collector() -> None:
    """Look for cycles rarely, and never among the modules that are there already.

    Records are freed by reference counting as soon as their columns are made; at the default of 700
    new objects the collector walks through thousands of live ones for each block, and finds nothing.
    Measured: decoding takes 0.81 instead of 1.15 µs a record (`tests/bench/bench_replay.py`). To look for the
    cycles that imports left (half a MiB) would take another twentieth of the start.
    """
    gc.freeze()
    gc.set_threshold(_YOUNG, _MIDDLE, _OLD)

"""Which keys of a batch come more than once."""

from __future__ import annotations

import numpy as np

from monitor.base.records import Ints, Keys

_SLOTS_PER_KEY = 8


def repeats(keys: Keys) -> tuple[Ints, Ints, Ints]:
    """Which rows repeat the key of an earlier one.

    Only rows that share a slot of a scratch table are sorted, an eighth of them where all keys differ:
    sorting them all costs more than everything else that the join does with an answer.

    Parameters
    ----------
    keys : (n,) uint64
        Scrambled, or small numbers in no particular order: the low bits must spread.

    Returns
    -------
    rows, previous, first : (r,) int64
        The rows, those of one key together and in order; for each the nearest earlier row with its
        key, and the first.

    Examples
    --------
    >>> rows, previous, first = repeats(np.array([5, 7, 5, 9, 5], dtype=np.uint64))
    >>> rows.tolist(), previous.tolist(), first.tolist()
    ([2, 4], [0, 2], [0, 0])
    """
    slots = 1 << (len(keys) * _SLOTS_PER_KEY).bit_length()
    slot = (keys & np.uint64(slots - 1)).astype(np.int64)
    rows = np.arange(len(keys), dtype=np.int32)
    owner = np.empty(slots, dtype=np.int32)  # read only where it was written
    owner[slot] = rows
    lost = owner[slot] != rows
    owner[slot[lost]] = -1
    shared = np.flatnonzero(owner[slot] < 0)
    order = shared[np.argsort(keys[shared], kind="stable")]
    again = np.flatnonzero(keys[order[1:]] == keys[order[:-1]]) + 1
    starts = np.ones(len(order), dtype=bool)
    starts[again] = False
    first = order[starts][np.cumsum(starts) - 1]
    return order[again], order[again - 1], first[again]

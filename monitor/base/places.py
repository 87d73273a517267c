"""Rows of a batch by the code that they carry: a model's number, a series'."""

from __future__ import annotations

import numpy as np

from monitor.base.records import Ints


def by_first_row(codes: Ints) -> list[int]:
    """The codes that occur, in the order of their first row.

    Examples
    --------
    >>> by_first_row(np.array([3, 0, 3, 1]))
    [3, 0, 1]
    """
    if not len(codes):
        return []
    kinds, first = np.unique(codes, return_index=True)
    return [int(kind) for kind in kinds[np.argsort(first)]]


def by_code(codes: Ints, rows: Ints) -> list[tuple[int, Ints]]:
    """The rows of each code from 0 up, each in their order.

    Parameters
    ----------
    codes : (n,) int64
        Below 0: in none.
    rows : (m,) int64
        Those to look at.

    Examples
    --------
    >>> [(code, found.tolist()) for code, found in by_code(np.array([1, 0, -1, 1]), np.arange(4))]
    [(0, [1]), (1, [0, 3])]
    """
    wanted = rows[codes[rows] >= 0]
    if not len(wanted):
        return []
    order = np.argsort(codes[wanted].astype(np.int32), kind="stable")
    wanted = wanted[order]
    sorted_codes = codes[wanted]
    cuts = np.flatnonzero(np.diff(sorted_codes)) + 1
    starts = [0, *cuts.tolist()]
    return [
        (int(sorted_codes[start]), part) for start, part in zip(starts, np.split(wanted, cuts), strict=True)
    ]

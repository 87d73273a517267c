"""Rows of a batch by the code that they carry: a model's number, a series'."""

from __future__ import annotations

from itertools import pairwise

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


def sorted_by_code(codes: Ints, rows: Ints) -> tuple[Ints, list[tuple[int, slice]]]:
    """Rows sorted by their code, each code's in their order; the codes, from 0 up, with where theirs lie.

    Parameters
    ----------
    codes : (n,) int64
        Below 0: in none.
    rows : (m,) int64
        Those to look at.

    Examples
    --------
    >>> order, pieces = sorted_by_code(np.array([1, 0, -1, 1]), np.arange(4))
    >>> order.tolist(), pieces
    ([1, 0, 3], [(0, slice(0, 1, None)), (1, slice(1, 3, None))])
    """
    wanted = rows[codes[rows] >= 0]
    order: Ints = wanted[np.argsort(codes[wanted].astype(np.int32), kind="stable")]
    found = codes[order]
    starts = np.flatnonzero(np.diff(found, prepend=-1))
    edges = pairwise([*starts.tolist(), len(order)])
    return order, [(code, slice(*edge)) for code, edge in zip(found[starts].tolist(), edges, strict=True)]

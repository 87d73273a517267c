"""Rows of a batch by the code that they carry: a model's number, a series'."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from monitor.base.records import Ints

_FEW = (1 << 15) - 1
"""The largest code by which rows are sorted by counting, many times as fast as by comparing."""


def by_first_row(codes: Ints) -> list[int]:
    """The codes that occur, in the order of their first row.

    Parameters
    ----------
    codes : (n,) int64
        From 0 up.

    Examples
    --------
    >>> by_first_row(np.array([3, 0, 3, 1]))
    [3, 0, 1]
    """
    if not len(codes):
        return []
    if (most := int(codes.max())) > _FEW:
        kinds, first = np.unique(codes, return_index=True)
        return [int(kind) for kind in kinds[np.argsort(first)]]
    places = np.full(most + 1, -1)
    places[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)  # of a code that comes again, its first row stays
    found = np.flatnonzero(places >= 0)
    return [int(kind) for kind in found[np.argsort(places[found])]]


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
    found = codes[wanted]
    narrow = found.astype(np.int16 if found.max(initial=0) <= _FEW else np.int32)
    order: Ints = wanted[np.argsort(narrow, kind="stable")]
    found = codes[order]
    starts = np.flatnonzero(np.diff(found, prepend=-1))
    edges = pairwise([*starts.tolist(), len(order)])
    return order, [(code, slice(*edge)) for code, edge in zip(found[starts].tolist(), edges, strict=True)]

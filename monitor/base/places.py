"""Grouping of the rows of a batch by an integer code, such as the index of a model or of a series."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from monitor.base.records import Ints

Named = tuple[tuple[str, ...], Ints]
"""Names, and for each row the index of its name; -1 if the row has no name."""

_FEW = (1 << 15) - 1
"""The largest code for which a counting sort is used, which is many times faster than comparisons."""


def by_first_row(codes: Ints) -> list[int]:
    """Return the distinct codes in the order in which they first occur.

    Parameters
    ----------
    codes : (n,) int64
        The code of each row, 0 or greater.

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
    # Rows are assigned from the last to the first, so that the first row of each code remains.
    places[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
    kinds = np.flatnonzero(places >= 0)
    return [int(kind) for kind in kinds[np.argsort(places[kinds])]]


def sorted_by_code(codes: Ints, rows: Ints) -> tuple[Ints, list[tuple[int, slice]]]:
    """Return rows sorted by code, and for each code the slice of its rows in the result.

    Parameters
    ----------
    codes : (n,) int64
        The code of each row. Rows with a negative code are left out.
    rows : (m,) int64
        Indices of the rows to sort. Rows with equal codes keep the order of `rows`.

    Examples
    --------
    >>> order, pieces = sorted_by_code(np.array([1, 0, -1, 1]), np.arange(4))
    >>> order.tolist(), pieces
    ([1, 0, 3], [(0, slice(0, 1, None)), (1, slice(1, 3, None))])
    """
    wanted = rows[codes[rows] >= 0]
    unsorted = codes[wanted]
    narrow = unsorted.astype(np.int16 if unsorted.max(initial=0) <= _FEW else np.int32)
    order: Ints = wanted[np.argsort(narrow, kind="stable")]
    in_order = codes[order]
    starts = np.flatnonzero(np.diff(in_order, prepend=-1))
    edges = pairwise([*starts.tolist(), len(order)])
    return order, [(code, slice(*edge)) for code, edge in zip(in_order[starts].tolist(), edges, strict=True)]


def unite_names(parts: Sequence[Named], order: Ints) -> Named:
    """Return one list of names for all parts, each name once, and the index of each row's name.

    Parameters
    ----------
    parts : sequence of Named
        The names and the rows of each part.
    order : (n,) int64
        The order of the rows of the result, as indices into the rows of all parts.

    Examples
    --------
    >>> names, codes = unite_names(
    ...     [(("a", "b"), np.array([0, 1])), (("b", "c"), np.array([0, -1, 1]))], np.arange(5)
    ... )
    >>> names, codes.tolist()
    (('a', 'b', 'c'), [0, 1, 1, -1, 2])
    """
    names = tuple(dict.fromkeys(name for own, _ in parts for name in own))
    place = {name: i for i, name in enumerate(names)}
    codes = [np.array([*(place[name] for name in own), -1], dtype=np.int64)[codes] for own, codes in parts]
    return names, np.concatenate(codes)[order]

"""Concatenates batches of one task, and selects rows of a batch."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from monitor.base.records import NO_ID, Batch, Ints

_Coded = tuple[tuple[str, ...], Ints]


COLUMNS = (
    *("scores", "predicted", "time", "key", "label", "partition", "position", "probability"),
    *("features", "numbers"),
)
"""The columns of a batch that are joined and selected, in addition to model, version and groups."""


def join_batches(batches: Sequence[Batch], columns: Collection[str] = COLUMNS) -> Batch:
    """Return one batch with the rows of all batches in their order.

    The column `order` counts the rows from 0.

    Parameters
    ----------
    batches : sequence of Batch
        One or more batches of the same task, read with the same layout and partitions.
    columns : collection of str, optional
        The columns to join. In every other column, all rows get the value of the first row, which takes no
        memory for each row.

    Raises
    ------
    ValueError
        There is no batch, or the tasks differ.
    """
    tasks = {batch.task for batch in batches}
    if len(tasks) != 1:
        raise ValueError(f"batches: expected some, all of one task, got {sorted(tasks)}")
    models, model = _join_codes([(batch.models, batch.model) for batch in batches])
    versions, version = _join_codes([(batch.versions, batch.version) for batch in batches])
    groups = {name: _join_codes([batch.groups[name] for batch in batches]) for name in batches[0].groups}
    joined = {
        name: np.concatenate([getattr(batch, name) for batch in batches])
        if name in columns
        else one_value(getattr(batches[0], name), len(model))
        for name in COLUMNS
    }
    return _batch(tasks.pop(), (models, model), (versions, version), groups, joined)


def take(batch: Batch, rows: Ints, columns: Collection[str] = COLUMNS) -> Batch:
    """Return the rows with these indices as a batch; its column `order` counts them from 0.

    See `join_batches` for `columns`.
    """
    selected = {
        name: getattr(batch, name)[rows] if name in columns else one_value(getattr(batch, name), len(rows))
        for name in COLUMNS
    }
    groups = {name: (values, code[rows]) for name, (values, code) in batch.groups.items()}
    model, version = (batch.models, batch.model[rows]), (batch.versions, batch.version[rows])
    return _batch(batch.task, model, version, groups, selected)


def one_value(column: NDArray[Any], n: int) -> NDArray[Any]:
    """Return a column whose n rows all have the first value of `column`. They share its memory.

    Examples
    --------
    >>> one_value(np.array([7, 8]), 3).tolist()
    [7, 7, 7]
    """
    return np.broadcast_to(column[:1].copy(), n) if n else column[:0]


def _batch(
    task: str, model: _Coded, version: _Coded, groups: dict[str, _Coded], columns: Mapping[str, NDArray[Any]]
) -> Batch:
    n = len(model[1])
    return Batch(
        task=task,
        models=model[0],
        model=model[1],
        versions=version[0],
        version=version[1],
        groups=groups,
        order=np.arange(n, dtype=np.int64),
        other=one_value(np.array([-1]), n),
        request=one_value(np.array([NO_ID]), n),
        alone=one_value(np.array([False]), n),
        **columns,
    )


def _join_codes(parts: Sequence[_Coded]) -> _Coded:
    """Return the distinct names of all parts, and the joined indices into them; -1 stays -1.

    Examples
    --------
    >>> _join_codes([(("a", "b"), np.array([1, 0])), (("b",), np.array([0, -1]))])
    (('a', 'b'), array([ 1,  0,  1, -1]))
    """
    names = tuple(dict.fromkeys(name for own, _ in parts for name in own))
    place = {name: i for i, name in enumerate(names)}
    codes = []
    for own, code in parts:
        table = np.array([*(place[name] for name in own), -1], dtype=np.int64)
        codes.append(table[code])
    return names, np.concatenate(codes)

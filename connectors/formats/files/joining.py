"""Batches of one task, one after another, as one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from monitor.base.records import Batch, Ints

_Coded = tuple[tuple[str, ...], Ints]


def join_batches(batches: Sequence[Batch]) -> Batch:
    """One batch with the rows of all, in their order; `order` counts them from 0.

    Parameters
    ----------
    batches : sequence of Batch
        At least one, all of one task and read with one layout; their partitions are one and the same.

    Raises
    ------
    ValueError
        There is no batch, or not all are of one task.
    """
    tasks = {batch.task for batch in batches}
    if len(tasks) != 1:
        raise ValueError(f"batches: expected some, all of one task, got {sorted(tasks)}")
    models, model = _join_codes([(batch.models, batch.model) for batch in batches])
    versions, version = _join_codes([(batch.versions, batch.version) for batch in batches])
    names = batches[0].groups.keys()
    return Batch(
        task=tasks.pop(),
        scores=np.concatenate([batch.scores for batch in batches]),
        predicted=np.concatenate([batch.predicted for batch in batches]),
        model=model,
        models=models,
        version=version,
        versions=versions,
        time=np.concatenate([batch.time for batch in batches]),
        key=np.concatenate([batch.key for batch in batches]),
        label=np.concatenate([batch.label for batch in batches]),
        groups={name: _join_codes([batch.groups[name] for batch in batches]) for name in names},
        order=np.arange(sum(map(len, batches)), dtype=np.int64),
        partition=np.concatenate([batch.partition for batch in batches]),
        position=np.concatenate([batch.position for batch in batches]),
        probability=np.concatenate([batch.probability for batch in batches]),
        features=np.concatenate([batch.features for batch in batches]),
    )


def take(batch: Batch, rows: Ints) -> Batch:
    """The chosen rows; `order` counts them from 0."""
    return Batch(
        task=batch.task,
        scores=batch.scores[rows],
        predicted=batch.predicted[rows],
        model=batch.model[rows],
        models=batch.models,
        version=batch.version[rows],
        versions=batch.versions,
        time=batch.time[rows],
        key=batch.key[rows],
        label=batch.label[rows],
        groups={name: (values, code[rows]) for name, (values, code) in batch.groups.items()},
        order=np.arange(len(rows), dtype=np.int64),
        partition=batch.partition[rows],
        position=batch.position[rows],
        probability=batch.probability[rows],
        features=batch.features[rows],
    )


def _join_codes(parts: Sequence[_Coded]) -> _Coded:
    """Names and indices into them, of all parts together; -1 stays -1.

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

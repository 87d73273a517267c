"""Labels that come in a prediction's own record, and how they join those of records of their own."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from monitor.base.records import NO_ID, Batch, Ints, LabelBatch
from monitor.engine.labels.columns import Answers, Matches, weights


def labels_along(batch: Batch, rows: Ints) -> LabelBatch:
    """The labels in these rows that an id can carry.

    A class is true whichever model answered; right or wrong (a task without classes, whose scores have
    one column) is said of the record's own model alone. A duplicate's label is among them: the record
    may have been sent again for it.
    """
    rows = rows[(batch.label[rows] >= 0) & (batch.key[rows] != NO_ID)]
    general = batch.scores.shape[1] > 1
    return LabelBatch(
        task=batch.task,
        key=batch.key[rows],
        label=batch.label[rows],
        model=np.full(len(rows), -1, dtype=np.int64) if general else batch.model[rows],
        models=() if general else batch.models,
        time=batch.time[rows],
        probability=batch.probability[rows],
        order=batch.order[rows],
    )


def match_directly(batch: Batch, rows: Ints, answers: Answers) -> Matches:
    """Matches of answers with their own labels where there is no id to join by.

    Parameters
    ----------
    batch : Batch
    rows : (m,) int64
        Rows that count.
    answers : Answers
        Of these rows.
    """
    alone = np.flatnonzero((batch.label[rows] >= 0) & (answers.key == NO_ID))
    row, column = np.nonzero(answers.series[alone] >= 0)
    place = alone[row]
    right = batch.label[rows[place]] == answers.predicted[place]
    return Matches(
        series=answers.series[alone][row, column],
        window=answers.window[alone][row, column],
        labelled=np.ones(len(place), dtype=np.int64),
        correct=right.astype(np.int64),
        sequence=answers.sequence[place],
        # Both rounded as those that are kept for a label to come.
        weight=weights(batch.probability[rows[place]].astype(np.float32)),
        confidence=answers.confidence[place].astype(np.float32).astype(np.float64),
        right=right,
        id=answers.key[place],
        label=batch.label[rows[place]],
    )


def merged(first: LabelBatch, second: LabelBatch) -> LabelBatch:
    """Both, in order of arrival: of two labels for one id the later one holds.

    Examples
    --------
    >>> def labels(key, order, models=()):
    ...     n = len(key)
    ...     model = np.arange(n) if models else np.full(n, -1)
    ...     return LabelBatch("t", np.array(key, dtype=np.uint64), np.zeros(n, int), model, models,
    ...                       np.zeros(n), np.full(n, np.nan), np.array(order))
    >>> both = merged(labels([7, 8], [0, 5]), labels([7, 9], [3, 4], ("erm", "irm")))
    >>> both.key.tolist(), both.model.tolist(), both.models
    ([7, 7, 9, 8], [-1, 0, 1, -1], ('erm', 'irm'))
    """
    if not len(first) or not len(second):
        return first if len(first) else second
    order = np.concatenate([first.order, second.order])
    by_arrival = np.argsort(order, kind="stable")

    def both(left: NDArray[Any], right: NDArray[Any]) -> NDArray[Any]:
        return np.concatenate([left, right])[by_arrival]

    return LabelBatch(
        task=first.task,
        key=both(first.key, second.key),
        label=both(first.label, second.label),
        model=both(first.model, np.where(second.model >= 0, second.model + len(first.models), -1)),
        models=(*first.models, *second.models),
        time=both(first.time, second.time),
        probability=both(first.probability, second.probability),
        order=order[by_arrival],
        draw=both(first.draw, second.draw),
    )

"""Labels meet their answers: those that came along, keys that come twice, what a label changes.

A row was picked for labelling with the probability that its first label gave; a label that comes again,
the same or another, changes nothing of that.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from monitor.base.records import NO_ID, Batch, Ints, Keys, LabelBatch
from monitor.engine.labels.columns import NO_LABEL, Answers, Matches, Pairs, weights
from monitor.engine.labels.table import BoundedTable


def assign_labels(answers: BoundedTable, pairs: Pairs) -> Matches:
    """Give answers their labels in the order in which those came; a corrected one counts by the difference.

    Parameters
    ----------
    answers : BoundedTable
        With the columns of `answer_columns`; `label`, `probability` and `replaced` are changed.
    pairs : Pairs
        Within the horizon.
    """
    _keep_probability(answers, pairs)
    pairs = pairs.take(np.argsort(pairs.sequence, kind="stable"))
    rows, new = pairs.answer, pairs.label
    old = answers["label"][rows]
    again, previous, _ = repeats(rows.astype(np.uint64))
    old[again] = new[previous]
    answers.put("label", rows, new)
    # A label may also have replaced another one before its answer came.
    replaced = ((old != NO_LABEL) & (old != new)) | (pairs.sequence != pairs.first_sequence)
    if "replaced" in answers:
        answers.put("replaced", rows[replaced], True)
    predicted = answers["predicted"][rows]
    right = new == predicted
    sequence = np.maximum(answers["sequence"][rows], pairs.sequence)
    series, window = answers["series"][rows], answers["window"][rows]
    ids = answers["id"][rows] if "id" in answers else np.full(len(rows), NO_ID, dtype=np.uint64)
    row, column = np.nonzero(series >= 0)
    return Matches(
        series=series[row, column].astype(np.int64),
        window=window[row, column].astype(np.int64),
        labelled=(old == NO_LABEL)[row].astype(np.int64),
        correct=(right.astype(np.int64) - (old == predicted))[row],
        sequence=sequence[row],
        weight=weights(answers["probability"][rows])[row],
        confidence=answers["confidence"][rows].astype(np.float64)[row],
        right=right[row],
        id=ids[row],
        label=new[row].astype(np.int64),
        replaced=replaced[row],
        block=answers["block"][rows][row, column] - 1,
        predicted=predicted[row].astype(np.int64),
    )


def _keep_probability(answers: BoundedTable, pairs: Pairs) -> None:
    """Give answers without a label the probability that the label which came first for them gave.

    Not the one that holds: of a general label and one for the model alone, either may have been changed
    since, and which of them reaches the answer first then depends on how the stream is cut into steps.
    """
    if np.isnan(pairs.probability).all():
        return
    order = np.argsort(pairs.first_sequence, kind="stable")
    rows, place = np.unique(pairs.answer[order], return_index=True)
    fresh = answers["label"][rows] == NO_LABEL
    answers.put("probability", rows[fresh], pairs.probability[order[place[fresh]]])


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
        replaced=np.zeros(len(place), dtype=bool),
        block=answers.block[alone][row, column],
        predicted=answers.predicted[place],
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
        first_row=both(first.first_row, second.first_row),
    )


_SLOTS_PER_KEY = 8
Repeats = tuple[Ints, Ints, Ints]
"""What `repeats` gives."""


def repeats(keys: Keys) -> Repeats:
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

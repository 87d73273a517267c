"""Functions of the label join: labels in the records of answers, repeated keys, and the effects of labels.

The first label of an answer states the probability with which the answer was picked for labelling. Later
labels do not change this probability.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from monitor.base.places import unite_names
from monitor.base.records import NO_ID, Batch, Floats, Ints, Keys, LabelBatch
from monitor.engine.labels.columns import NO_LABEL, Answers, Matches, Pairs, weights
from monitor.engine.labels.table import BoundedTable
from monitor.stats.regression.tolerance import Tolerance

_ENDS = ("lower", "upper")


def assign_labels(
    answers: BoundedTable, pairs: Pairs, tolerance: Tolerance | None = None, truths: bool = False
) -> Matches:
    """Store labels with their answers, in the labels' order, and return the changes of the windows' counts.

    Parameters
    ----------
    answers : BoundedTable
        The answers, with the columns of `answer_columns`. The columns `label`, `truth`, `probability` and
        `replaced` change.
    pairs : Pairs
        Pairs whose times differ by at most the horizon.
    tolerance : Tolerance, optional
        The largest error of a right answer, if labels are numbers. A right answer then gets the stored label
        0, and a wrong answer gets 1.
    truths : bool
        Whether the result has the labels' numbers, and whether they are within the stored intervals.
    """
    _keep_probability(answers, pairs)
    pairs = pairs.take(np.argsort(pairs.sequence, kind="stable"))
    rows, new = pairs.answer, pairs.label
    again, previous, _ = repeats(rows.astype(np.uint64))
    numbers: dict[str, Floats] = {}
    if tolerance is not None:
        new = right_or_wrong(tolerance.holds(answers["number"][rows], pairs.number))
        numbers = _columns_of_numbers(answers, pairs, _put_truths(answers, pairs, again, previous), truths)
    old = answers["label"][rows]
    old[again] = new[previous]
    answers.put("label", rows, new)
    # A label may have replaced another one before its answer came, too.
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
        **{name: values[row] for name, values in numbers.items()},
    )


def _columns_of_numbers(
    answers: BoundedTable, pairs: Pairs, replaced: Floats, truths: bool
) -> dict[str, Floats]:
    """Return the columns of `Matches` that numbers have, a row for each pair, by the replaced labels too."""
    number, both = answers["number"][pairs.answer], np.column_stack((pairs.number, replaced))
    columns = {"error": number - pairs.number, "replaced_error": number - replaced}
    if truths:
        columns["truths"] = both
    if truths and "lower" in answers:
        columns["inside"] = is_inside(both, np.column_stack([answers[end][pairs.answer] for end in _ENDS]))
    return columns


def _put_truths(answers: BoundedTable, pairs: Pairs, again: Ints, previous: Ints) -> Floats:
    """Store the numbers of labels with their answers, and return the numbers that they replace, or NaN."""
    replaced: Floats = answers["truth"][pairs.answer]
    replaced[again] = pairs.number[previous]
    answers.put("truth", pairs.answer, pairs.number)
    return replaced


def is_inside(numbers: Floats, stated: Floats) -> Floats:
    """Return whether numbers are within stated intervals: 1, 0, or NaN where a number or an end is NaN.

    Parameters
    ----------
    numbers : (n, L) float64
        L labels of each answer.
    stated : (n, 2) float64
        The lower and the upper end of each answer's interval.

    Examples
    --------
    >>> is_inside(np.array([[1.0, 7.0]]), np.array([[0.0, 1.0]])).tolist()
    [[1.0, 0.0]]
    """
    lower, upper = stated[:, :1], stated[:, 1:]
    inside = ((lower <= numbers) & (numbers <= upper)) * 1.0
    return np.where(np.isnan(numbers) | np.isnan(lower) | np.isnan(upper), np.nan, inside)


def right_or_wrong(right: NDArray[np.bool_]) -> Ints:
    """Return the classes of a task without classes: 0 where an answer is right, and 1 elsewhere."""
    return np.where(right, 0, 1)


def _keep_probability(answers: BoundedTable, pairs: Pairs) -> None:
    """Store the probability of the first label, for answers without a label.

    The probability of the current label would be wrong. Both a label for all models and a label for the model
    may have changed meanwhile, and the division of the stream into steps decides which of them reaches the
    answer first.
    """
    if np.isnan(pairs.probability).all():
        return
    order = np.argsort(pairs.first_sequence, kind="stable")
    rows, place = np.unique(pairs.answer[order], return_index=True)
    fresh = answers["label"][rows] == NO_LABEL
    answers.put("probability", rows[fresh], pairs.probability[order[place[fresh]]])


def labels_along(batch: Batch, rows: Ints) -> LabelBatch:
    """Return the labels that came in the records of these answers, to be joined by id like other labels.

    A label that is a class or a number applies to every model's answer. In a task of confidences, a label
    says whether the record's model was right, and applies only to that model. The labels of duplicates are
    included, because a record may have been sent again with its label.
    """
    rows = rows[(batch.label[rows] >= 0) & (batch.key[rows] != NO_ID)]
    general = batch.labels_are_general
    return LabelBatch(
        task=batch.task,
        key=batch.key[rows],
        label=np.zeros(len(rows), dtype=np.int64) if batch.numbers.shape[1] else batch.label[rows],
        model=np.full(len(rows), -1, dtype=np.int64) if general else batch.model[rows],
        models=() if general else batch.models,
        time=batch.time[rows],
        probability=batch.probability[rows],
        order=batch.order[rows],
        numbers=batch.numbers[rows, 1:2],
    )


def match_directly(batch: Batch, rows: Ints, answers: Answers, truths: bool = False) -> Matches:
    """Match answers that have no id with the labels that their own records contain.

    Parameters
    ----------
    batch : Batch
    rows : (m,) int64
        The indices of the new answers in `batch`.
    answers : Answers
        The same answers, prepared for the join.
    truths : bool
        As for `assign_labels`.
    """
    alone = np.flatnonzero((batch.label[rows] >= 0) & (answers.key == NO_ID))
    row, column = np.nonzero(answers.series[alone] >= 0)
    place = alone[row]
    right = batch.label[rows[place]] == answers.predicted[place]
    number = batch.numbers[rows[place], 1:2]
    both = np.column_stack((number, np.full_like(number, np.nan)))  # no label is replaced
    return Matches(
        series=answers.series[alone][row, column],
        window=answers.window[alone][row, column],
        labelled=np.ones(len(place), dtype=np.int64),
        correct=right.astype(np.int64),
        sequence=answers.sequence[place],
        # Both are rounded like stored values, which wait for a label.
        weight=weights(batch.probability[rows[place]].astype(np.float32)),
        confidence=answers.confidence[place].astype(np.float32).astype(np.float64),
        right=right,
        id=answers.key[place],
        label=batch.label[rows[place]],
        replaced=np.zeros(len(place), dtype=bool),
        block=answers.block[alone][row, column],
        predicted=answers.predicted[place],
        error=answers.number[place] - batch.numbers[rows[place], 1]
        if batch.numbers.shape[1]
        else np.zeros(0),
        truths=both if truths else np.zeros((0, 2)),
        inside=is_inside(both, answers.stated[place]) if truths else np.zeros((0, 2)),
    )


def merged(first: LabelBatch, second: LabelBatch) -> LabelBatch:
    """Return the labels of both batches as one batch, in order of arrival. It lists each model once.

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
    >>> both = merged(both, labels([5, 6], [6, 7], ("irm", "coral")))
    >>> both.model.tolist(), both.models
    ([-1, 0, 1, -1, 1, 2], ('erm', 'irm', 'coral'))
    """
    if not len(first) or not len(second):
        return first if len(first) else second
    order = np.concatenate([first.order, second.order])
    by_arrival = np.argsort(order, kind="stable")

    def both(left: NDArray[Any], right: NDArray[Any]) -> NDArray[Any]:
        return np.concatenate([left, right])[by_arrival]

    models, model = unite_names([(first.models, first.model), (second.models, second.model)], by_arrival)
    return LabelBatch(
        task=first.task,
        key=both(first.key, second.key),
        label=both(first.label, second.label),
        model=model,
        models=models,
        time=both(first.time, second.time),
        probability=both(first.probability, second.probability),
        order=order[by_arrival],
        draw=both(first.draw, second.draw),
        first_row=both(first.first_row, second.first_row),
        numbers=both(first.numbers, second.numbers),
    )


_SLOTS_PER_KEY = 8
Repeats = tuple[Ints, Ints, Ints]
"""The result of `repeats`."""


def repeats(keys: Keys) -> Repeats:
    """Return the rows that repeat the key of an earlier row.

    Sorting all rows would take more time than the rest of the join. So the function enters the keys into a
    temporary hash table, and sorts only the rows that share a slot. If all keys differ, about an eighth of
    the rows or fewer share a slot.

    Parameters
    ----------
    keys : (n,) uint64
        Hashes or small numbers. The result is right for any keys, but the function is slow if many different
        keys have the same low bits.

    Returns
    -------
    rows, previous, first : (r,) int64
        `rows` are the rows that repeat a key, grouped by key and in order. For each of them, `previous` is
        the last earlier row with the same key, and `first` is the first row with this key.

    Examples
    --------
    >>> rows, previous, first = repeats(np.array([5, 7, 5, 9, 5], dtype=np.uint64))
    >>> rows.tolist(), previous.tolist(), first.tolist()
    ([2, 4], [0, 2], [0, 0])
    """
    slots = 1 << (len(keys) * _SLOTS_PER_KEY).bit_length()
    slot = (keys & np.uint64(slots - 1)).astype(np.int64)
    rows = np.arange(len(keys), dtype=np.int32)
    owner = np.empty(slots, dtype=np.int32)  # read only at slots that were written
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

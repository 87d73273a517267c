"""Answers get their labels, and what that changes in the windows they count in.

A row was picked for labelling with the probability that its first label gave; a label that comes again,
the same or another, changes nothing of that.
"""

from __future__ import annotations

import numpy as np

from monitor.base.records import NO_ID
from monitor.engine.labels.columns import NO_LABEL, Matches, Pairs, weights
from monitor.engine.labels.repeats import repeats
from monitor.engine.labels.table import BoundedTable


def assign_labels(answers: BoundedTable, pairs: Pairs) -> Matches:
    """Give answers their labels in the order in which those came; a corrected one counts by the difference.

    Parameters
    ----------
    answers : BoundedTable
        With the columns of `answer_columns`; `label` and `probability` are changed.
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

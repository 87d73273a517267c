"""True classes in records, and records that are labels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from connectors.formats.decode.columns import Columns, Places, RejectList, absent, picker
from connectors.formats.decode.draws import read_draws
from connectors.formats.decode.names import Value, check_names, encode, encode_classes
from connectors.formats.decode.structs import Faults
from connectors.formats.messages.wording import listing, shown
from monitor.base.records import NO_ID, Floats, Ints, Keys, LabelBatch, RejectReason, TaskLayout, id_keys

_MISSING = "$.label: missing; give the true class, or `model` with `correct`: true or false"


def true_classes(
    labels: Sequence[Value], correct: Sequence[bool | None], layout: TaskLayout, faults: Faults
) -> Ints:
    """(n,) true classes, -1 where there is none; for a task of confidences 0 is correct, 1 is wrong."""
    if layout.classes:
        if not absent(correct):
            for row, given in enumerate(correct):
                if given is not None and labels[row] is None:
                    message = (
                        f"$.correct: task {layout.name} has classes; "
                        f"send label, one of {listing(layout.classes)}"
                    )
                    faults.add(row, RejectReason.NO_LABEL, message)
        return encode_classes(labels, "label", layout, faults)
    if not absent(labels):
        for row, label in enumerate(labels):
            if label is not None and correct[row] is None:
                message = f"$.label: task {layout.name} has no classes; send correct, true or false"
                faults.add(row, RejectReason.NO_LABEL, message)
    known = {None: -1, True: 0, False: 1}
    return np.fromiter(map(known.__getitem__, correct), dtype=np.int64, count=len(correct))


def read_labels(
    layout: TaskLayout, columns: Columns, chosen: Ints, places: Places, rejects: RejectList
) -> LabelBatch | None:
    """The labels of one task, by the arguments of `read_answers`."""
    pick = picker(chosen, columns.size)
    faults = Faults(len(chosen))
    _tell_missing(pick(columns.label), pick(columns.correct), faults)
    key = places.key[chosen]
    for row in np.flatnonzero(key == NO_ID).tolist():
        faults.add(row, RejectReason.NO_ID, "$.id: a label needs the id of its prediction, got none")
    true = true_classes(pick(columns.label), pick(columns.correct), layout, faults)
    model = pick(columns.model)
    # A confidence is right or wrong for one model only.
    named = [i for i, name in enumerate(model) if name is not None or not layout.classes]
    name_faults = Faults(len(named))
    check_names([model[i] for i in named], lambda _: "$.model", layout, name_faults)
    for at, fault in name_faults.found.items():
        faults.add(named[at], *fault)
    probability = picking_probabilities(pick(columns.probability), faults)
    draw = read_draws(pick(columns.draw), probability, faults)
    rejects.add_all(faults, chosen, columns.weight, lambda _: layout.name)
    keep = np.flatnonzero(faults.good())
    if not len(keep):
        return None
    kept = [model[i] for i in keep.tolist()]
    names, code = encode([name for name in kept if name is not None])
    index = np.full(len(kept), -1, dtype=np.int64)
    index[[name is not None for name in kept]] = code
    return LabelBatch(
        task=layout.name,
        key=key[keep],
        label=true[keep],
        model=index,
        models=names,
        time=places.time[chosen][keep],
        probability=probability[keep],
        order=places.order[chosen][keep],
        draw=draw[keep],
        first_row=_first_rows(pick(columns.id), keep, layout),
    )


def _first_rows(ids: Sequence[str | int | None], keep: Ints, layout: TaskLayout) -> Keys:
    if not layout.numbered:
        return np.zeros(0, dtype=np.uint64)
    return id_keys([f"{ids[i]}:0" for i in keep.tolist()])


def _tell_missing(labels: Sequence[Value], correct: Sequence[bool | None], faults: Faults) -> None:
    for row, given in enumerate(zip(labels, correct, strict=True)):
        if given == (None, None):
            faults.add(row, RejectReason.NO_LABEL, _MISSING)


def picking_probabilities(values: Sequence[float | None], faults: Faults) -> Floats:
    """(n,) chances with which rows were picked for labelling, NaN where none is given.

    Examples
    --------
    >>> faults = Faults(3)
    >>> picking_probabilities([0.05, None, 1.5], faults)
    array([0.05,  nan, 1.5 ])
    >>> faults.found[2][1]
    '$.probability: expected a number above 0 and at most 1, got 1.5'
    """
    found = np.array([np.nan if value is None else value for value in values], dtype=np.float64)
    for row, value in enumerate(values):
        if value is not None and not 0 < value <= 1:
            message = f"$.probability: expected a number above 0 and at most 1, got {shown(value)}"
            faults.add(row, RejectReason.OUT_OF_RANGE, message)
    return found

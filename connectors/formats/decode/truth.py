"""Converts the true classes in records to indices, and labels (records without answers) to batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from types import NoneType
from typing import Any

import numpy as np

from connectors.formats.decode.columns import Columns, Places, RejectList, absent, picker
from connectors.formats.decode.draws import read_draws
from connectors.formats.decode.names import (
    NO_VALUE,
    Value,
    check_names,
    encode,
    encode_classes,
    same_name,
    text_of,
)
from connectors.formats.decode.numbers import true_numbers
from connectors.formats.decode.structs import Fault, Faults
from connectors.formats.messages.explain import TooLarge, has_room, spelling
from connectors.formats.messages.wording import listing, shown
from monitor.base.records import NO_ID, Floats, Ints, Keys, LabelBatch, RejectReason, TaskLayout, id_keys

_MISSING = "$.label: missing; give the true class, or `model` with `correct`: true or false"
_MISSING_NUMBER = "$.label: missing; give the true number"


_CORRECT = {
    **dict.fromkeys(("true", "1", "1.0", "t", "yes", "y"), 0),
    **dict.fromkeys(("false", "0", "0.0", "f", "no", "n"), 1),
    **dict.fromkeys(NO_VALUE, -1),
}
"""The class of each spelling of `correct` in databases and tables."""


def true_classes(
    labels: Sequence[Value],
    correct: Sequence[object],
    predictions: Sequence[Value],
    layout: TaskLayout,
    faults: Faults,
) -> Ints:
    """Return the indices of the true classes, (n,); -1 for an absent or faulty class.

    In a task without classes, class 0 means that the answer is correct, and class 1 means that it is wrong.
    If a record has no `correct`, its class is 0 if `label` and `prediction` are the same name, else 1.

    Examples
    --------
    >>> faults = Faults(4)
    >>> layout = TaskLayout("digits", ())
    >>> true_classes(["5", 5.0, "3", ["5"]], [None] * 4, [5, "5", 5, 5], layout, faults)
    array([ 0,  0,  1, -1])
    >>> faults.by_row[3][1]
    '$.label: expected the name of a class, got an array'
    """
    if layout.classes:
        if not absent(correct):
            for row, value in enumerate(correct):
                if value is not None and labels[row] is None:
                    message = (
                        f"$.correct: task {layout.name} has classes; "
                        f"send label, one of {listing(layout.classes)}"
                    )
                    faults.add(row, RejectReason.NO_LABEL, message)
        return encode_classes(labels, "label", layout, faults)
    if not absent(labels):
        correct = list(correct)
        for row, label in enumerate(labels):
            if label is None or correct[row] is not None:
                continue
            prediction = predictions[row]
            if prediction is None:
                message = f"$.label: task {layout.name} has no classes; send correct, true or false"
                faults.add(row, RejectReason.NO_LABEL, message)
            elif isinstance(label, str | int | float):
                correct[row] = same_name(text_of(label)) == same_name(text_of(prediction))
            else:
                message = f"$.label: expected the name of a class, got {shown(label)}"
                faults.add(row, RejectReason.WRONG_TYPE, message)
    return _correct(correct, faults)


def _correct(values: Sequence[object], faults: Faults) -> Ints:
    known = {None: -1, True: 0, False: 1}
    with suppress(KeyError, TypeError):
        return np.fromiter(map(known.__getitem__, values), dtype=np.int64, count=len(values))  # type: ignore[arg-type]
    classes = np.full(len(values), -1, dtype=np.int64)
    for row, value in enumerate(values):
        if value is None:
            continue
        text = text_of(value) if isinstance(value, str | int | float) else ""
        place = _CORRECT.get(text.strip().lower()) if text else None
        if place is None:
            message = f"$.correct: expected true or false, got {shown(value)}"
            faults.add(row, RejectReason.WRONG_TYPE, message)
        else:
            classes[row] = place
    return classes


def read_labels(
    layout: TaskLayout, columns: Columns, chosen: Ints, places: Places, rejects: RejectList
) -> LabelBatch | None:
    """Return the usable labels of one task as a batch, or None if there are none.

    See `read_answers` for the parameters.
    """
    pick = picker(chosen, columns.size)
    faults = Faults(len(chosen))
    key = places.key[chosen]
    for row in np.flatnonzero(key == NO_ID).tolist():
        faults.add(row, RejectReason.NO_ID, "$.id: a label needs the id of its prediction, got none")
    true, numbers = _read_truth(layout, columns, pick, faults)
    model = pick(columns.model)
    # A task of confidences needs a model: each model's answer is right or wrong on its own.
    general = bool(layout.classes) or layout.numeric
    named = [i for i, name in enumerate(model) if name is not None or not general]
    name_faults = Faults(len(named))
    check_names([model[i] for i in named], lambda _: "$.model", layout, name_faults)
    for at, fault in name_faults.by_row.items():
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
        numbers=numbers[keep],
    )


def _read_truth(
    layout: TaskLayout,
    columns: Columns,
    pick: Callable[[Sequence[Any]], Sequence[Any]],
    faults: Faults,
) -> tuple[Ints, Floats]:
    """Return the true classes, (n,), and the true numbers, (n, 1), or (n, 0) in a task of classes."""
    if layout.numeric:
        true, truth = true_numbers(pick(columns.label), faults)
        numbers = truth[:, None]
    else:
        verdict = pick(columns.correct), pick(columns.prediction)
        true, numbers = (
            true_classes(pick(columns.label), *verdict, layout, faults),
            np.zeros((faults.size, 0)),
        )
    for row in np.flatnonzero(true < 0).tolist():
        faults.add(row, RejectReason.NO_LABEL, _MISSING_NUMBER if layout.numeric else _MISSING)
    return true, numbers


def _first_rows(ids: Sequence[str | int | None], keep: Ints, layout: TaskLayout) -> Keys:
    if not layout.numbered:
        return np.zeros(0, dtype=np.uint64)
    return id_keys([f"{ids[i]}:0" for i in keep.tolist()])


def picking_probabilities(values: Sequence[object], faults: Faults) -> Floats:
    """Return the probability with which each row was selected for labelling, (n,); NaN if absent.

    A value outside (0, 1] adds a fault.

    Examples
    --------
    >>> faults = Faults(3)
    >>> picking_probabilities([0.05, None, 1.5], faults)
    array([0.05,  nan, 1.5 ])
    >>> faults.by_row[2][1]
    '$.probability: expected a number above 0 and at most 1, got 1.5'
    """
    if set(map(type, values)) <= _NUMBERS:  # nearly always
        numbers = np.array(values, dtype=np.float64)  # None becomes NaN
    else:
        numbers = np.array([_number(value) for value in values])
    for row in np.flatnonzero(~((numbers > 0) & (numbers <= 1))).tolist():
        if values[row] is not None:
            faults.add(row, *_probability_fault(values[row], float(numbers[row])))
    return numbers


_NUMBERS = frozenset({float, NoneType})


def _number(value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return np.nan
    return value if has_room(value) else np.inf


def _probability_fault(value: object, number: float) -> Fault:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    reason = (
        RejectReason.OUT_OF_RANGE if is_number or isinstance(value, TooLarge) else RejectReason.WRONG_TYPE
    )
    reason = RejectReason.NOT_A_NUMBER if value != value else reason
    got = f"{shown(number if is_number else value)}{spelling(value)}"
    return reason, f"$.probability: expected a number above 0 and at most 1, got {got}"

"""Converts the scores of the answers of a task, in any accepted form, to a matrix."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from operator import itemgetter

import numpy as np

from connectors.formats.decode.names import same_name, same_names, unknown_class
from connectors.formats.decode.structs import Faults, Scores
from connectors.formats.messages.wording import listing, shown, step, values_are_shown
from monitor.base.records import Floats, RejectReason, TaskLayout

SUM_TOLERANCE = 1e-3
ROUNDING = 1e-6
"""A score outside 0 to 1 by at most this much is clipped; a softmax in float32 errs by about 1e-7."""

_LARGEST_OFF = SUM_TOLERANCE + 1e-9  # 0.5 + 0.501 must pass, with its binary rounding

Path = Callable[[int], str]
"""A function from a row to the JSON path of its scores."""


def score_matrix(values: Sequence[Scores | None], layout: TaskLayout, path: Path, faults: Faults) -> Floats:
    """Return class probabilities, (n, K) in class order, or (n, 1) confidences for a task without classes.

    Parameters
    ----------
    values : sequence of list, dict, float or None
        The scores of each row: a list in class order, a mapping by class, or the probability of the second of
        two classes.
    layout : TaskLayout
    path : callable
        See `Path`.
    faults : Faults
        Receives a fault for each row whose scores are missing, have the wrong length, are not numbers, lie
        outside 0 to 1 by more than 1e-6, or have a sum that differs from 1 by more than 1e-3. The matrix is
        undefined in rows with a fault.

    Examples
    --------
    >>> layout = TaskLayout("t", ("ok", "toxic"))
    >>> score_matrix([[0.25, 0.75], {"toxic": 0.5, "ok": 0.5}, 0.75], layout, str, Faults(3))
    array([[0.25, 0.75],
           [0.5 , 0.5 ],
           [0.25, 0.75]])
    """
    if not layout.classes:
        return _confidences(values, layout, path, faults)
    width = layout.width
    kinds = set(map(type, values))
    if kinds in ({list}, {tuple}) and set(map(len, values)) == {width}:  # type: ignore[arg-type]
        flat = chain.from_iterable(values)  # type: ignore[arg-type]
        matrix = np.fromiter(flat, dtype=np.float64, count=len(values) * width).reshape(-1, width)
    elif kinds == {float} and width == 2:
        return _from_second_class(np.array(values, dtype=np.float64), path, faults)
    elif kinds == {dict} and (from_mappings := _by_class(values, layout.classes)) is not None:  # type: ignore[arg-type]
        matrix = from_mappings
    else:
        matrix = _row_by_row(values, layout, path, faults)
    _check(matrix, values, layout, path, faults)
    return matrix


def _by_class(values: Sequence[dict[str, float]], classes: Sequence[str]) -> Floats | None:
    """Return the scores of objects that each name exactly the classes, or None if an object does not."""
    if len(classes) < 2 or set(map(len, values)) != {len(classes)}:
        return None
    try:
        flat = chain.from_iterable(map(itemgetter(*classes), values))
        scores = np.fromiter(flat, dtype=np.float64, count=len(values) * len(classes))
    except (KeyError, TypeError):
        return None
    return scores.reshape(-1, len(classes))


def _confidences(values: Sequence[Scores | None], layout: TaskLayout, path: Path, faults: Faults) -> Floats:
    confidences = np.full((len(values), 1), np.nan)
    for row, value in enumerate(values):
        if isinstance(value, int | float):
            confidences[row] = value
        elif value is None:
            message = f"{path(row)}: task {layout.name} has no classes; send confidence, a number from 0 to 1"
            faults.add(row, RejectReason.NO_SCORES, message)
        else:
            message = (
                f"{path(row)}: task {layout.name} has no classes; expected a confidence, got {shown(value)}"
            )
            faults.add(row, RejectReason.NO_SCORES, message)
    _check_numbers(confidences[:, 0], path, faults)
    clipped: Floats = np.clip(confidences, 0.0, 1.0)
    return clipped


def _from_second_class(second: Floats, path: Path, faults: Faults) -> Floats:
    _check_numbers(second, path, faults)
    second = np.clip(second, 0.0, 1.0)
    return np.column_stack((1.0 - second, second))


def _check_numbers(numbers: Floats, path: Path, faults: Faults) -> None:
    for row in np.flatnonzero(~((numbers >= -ROUNDING) & (numbers <= 1.0 + ROUNDING))).tolist():
        faults.add(row, *_number_fault(float(numbers[row]), path(row)))


def _number_fault(value: float, path: str) -> tuple[RejectReason, str]:
    if not np.isfinite(value):
        return RejectReason.NOT_A_NUMBER, f"{path}: expected a number from 0 to 1, got {shown(value)}"
    if value < 0:
        return RejectReason.LOGITS, (
            f"{path}: expected a number from 0 to 1, got {shown(value)}; these look like logits: "
            "send probabilities (softmax)"
        )
    percent = (
        "; if these are percentages, divide them by 100" if values_are_shown() and 2 < value <= 100 else ""
    )
    return RejectReason.OUT_OF_RANGE, f"{path}: expected a number from 0 to 1, got {shown(value)}{percent}"


def _row_by_row(values: Sequence[Scores | None], layout: TaskLayout, path: Path, faults: Faults) -> Floats:
    """Return the scores of rows in several forms.

    A faulty row gets a fault and the valid scores (1, 0, ...), which later checks accept.
    """
    width, names = layout.width, frozenset(layout.classes)
    matrix = np.zeros((len(values), width))
    matrix[:, 0] = 1.0
    for row, value in enumerate(values):
        if isinstance(value, list | tuple) and len(value) == width:
            matrix[row] = value
        elif isinstance(value, dict) and (by_class := _as_named(value, names, layout)) is not None:
            matrix[row] = [by_class[name] for name in layout.classes]
        elif isinstance(value, int | float) and width == 2:
            if not -ROUNDING <= value <= 1.0 + ROUNDING:
                faults.add(row, *_number_fault(value, path(row)))
            else:
                second = min(max(value, 0.0), 1.0)
                matrix[row] = (1.0 - second, second)
        else:
            faults.add(row, *_form_fault(value, layout, path(row)))
    return matrix


def _as_named(
    value: dict[str, float], names: frozenset[str], layout: TaskLayout
) -> Mapping[str, float] | None:
    """Return scores by class, with names in any Unicode form; None if other classes are named."""
    if value.keys() == names:
        return value
    if len(value) != len(names):
        return None
    places = same_names(layout.classes)
    by_class = {
        layout.classes[places[name]]: value[each] for each in value if (name := same_name(each)) in places
    }
    return by_class if by_class.keys() == names else None


def _form_fault(value: Scores | None, layout: TaskLayout, path: str) -> tuple[RejectReason, str]:
    classes = listing(layout.classes)
    if value is None or value == {}:
        return RejectReason.NO_SCORES, f"{path}: expected a probability for each class ({classes}), got none"
    if isinstance(value, dict):
        known = frozenset(layout.classes)  # searching a tuple of thousands takes seconds
        unknown = next((name for name in value if name not in known), None)
        if unknown is not None:
            return RejectReason.UNKNOWN_CLASS, unknown_class(path, unknown, layout)
        missing = [name for name in layout.classes if name not in value]
        message = (
            f"{path}: expected a probability for each class ({classes}), got none for {listing(missing)}"
        )
        return RejectReason.WRONG_LENGTH, message
    got = str(len(value)) if isinstance(value, list | tuple) else "a single number"
    message = f"{path}: expected {layout.width} probabilities, one a class ({classes}), got {got}"
    return RejectReason.WRONG_LENGTH, message


def _check(
    matrix: Floats, values: Sequence[Scores | None], layout: TaskLayout, path: Path, faults: Faults
) -> None:
    """Add a fault for each row that is no distribution, and clip the rounding of float32."""
    columns = [matrix[:, k] for k in range(layout.width)] if layout.width <= 4 else None
    total = sum(columns[1:], start=columns[0]) if columns else matrix.sum(axis=1)
    off = np.abs(total - 1.0)
    if matrix.size and matrix.min() >= 0.0 and matrix.max() <= 1.0 and off.max() <= _LARGEST_OFF:
        return
    inside = ((matrix >= -ROUNDING) & (matrix <= 1.0 + ROUNDING)).all(axis=1)
    for row in np.flatnonzero(~(inside & (off <= _LARGEST_OFF))).tolist():
        faults.add(row, *_row_fault(matrix[row], values[row], layout, path(row)))
    np.clip(matrix, 0.0, 1.0, out=matrix)


def _row_fault(row: Floats, value: Scores | None, layout: TaskLayout, path: str) -> tuple[RejectReason, str]:
    """Return the worst fault: a value that is no number, then below 0, then above 1, then the sum."""
    with np.errstate(invalid="ignore"):
        wrong = (~np.isfinite(row), row < -ROUNDING, row > 1.0 + ROUNDING)
    for mask in wrong:
        if mask.any():
            k = int(np.argmax(mask))
            place = step(layout.classes[k]) if isinstance(value, dict) else f"[{k}]"
            return _number_fault(float(row[k]), path + place)
    got = f"a sum of {row.sum():.6g}" if values_are_shown() else "another sum"
    return (
        RejectReason.WRONG_SUM,
        f"{path}: expected probabilities that sum to 1 within {SUM_TOLERANCE}, got {got}",
    )

"""Converts predictions, labels and spreads that are numbers, of tasks whose models predict numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import NoneType
from typing import Any

import numpy as np

from connectors.formats.decode.columns import absent, cleaned
from connectors.formats.decode.names import NO_VALUE
from connectors.formats.decode.structs import Faults
from connectors.formats.messages.explain import TooLarge, float_of, has_room
from connectors.formats.messages.wording import shown, values_are_shown
from monitor.base.records import Floats, Ints, RejectReason, TaskLayout

LARGEST = 1e100
"""The largest absolute value of a number: sums of squares of such numbers are finite."""

_PLAIN = frozenset({float, NoneType})


def read_numbers(values: Sequence[object], path: Callable[[int], str], faults: Faults) -> Floats:
    """Return the numbers, (n,), NaN for an absent or faulty one.

    A text such as "3.5" counts as a number, because all cells of a CSV file are texts.

    Parameters
    ----------
    values : sequence
    path : callable
        A function from a row to the JSON path of its value.
    faults : Faults
        Receives a fault for each value that is no finite number, or whose absolute value is above `LARGEST`.

    Examples
    --------
    >>> faults = Faults(4)
    >>> read_numbers([12.5, "7", None, float("inf")], lambda _: "$.prediction", faults)
    array([12.5,  7. ,  nan,  nan])
    >>> faults.by_row[3][1]
    '$.prediction: expected a finite number, got Infinity'
    """
    if set(map(type, values)) <= _PLAIN:
        numbers = np.array(values, dtype=np.float64)
        if np.isfinite(numbers).all() and np.abs(numbers).max(initial=0.0) <= LARGEST:
            return numbers
    numbers = np.full(len(values), np.nan)
    for row, value in enumerate(values):
        if value is not None:
            numbers[row] = _number(row, value, path, faults)
    return numbers


def _number(row: int, value: object, path: Callable[[int], str], faults: Faults) -> float:
    """Return a number, or NaN after adding its fault."""
    got = value
    if isinstance(got, str) and not isinstance(got, TooLarge):
        with suppress(ValueError):
            got = float_of(got)
    if isinstance(got, TooLarge) or not has_room(got):
        faults.add(row, RejectReason.OUT_OF_RANGE, f"{path(row)}: expected {_ALLOWED}, got {shown(value)}")
    elif isinstance(got, bool) or not isinstance(got, int | float):
        message = f"{path(row)}: expected a number, got {shown(value)}{_with_point(value)}"
        faults.add(row, RejectReason.WRONG_TYPE, message)
    elif not math.isfinite(got):
        faults.add(
            row, RejectReason.NOT_A_NUMBER, f"{path(row)}: expected a finite number, got {shown(value)}"
        )
    elif abs(got) > LARGEST:
        faults.add(row, RejectReason.OUT_OF_RANGE, f"{path(row)}: expected {_ALLOWED}, got {shown(value)}")
    else:
        return float(got)
    return np.nan


def _with_point(value: object) -> str:
    """Return a hint if a text is a number with a decimal comma, otherwise ""."""
    if not isinstance(value, str) or not re.fullmatch(r"\s*[-+]?[0-9]{1,30},[0-9]{1,30}\s*", value):
        return ""
    meant = value.strip().replace(",", ".") if values_are_shown() else "a point"
    return f"; this is a decimal comma: write {meant}"


_ALLOWED = f"a number from -{LARGEST:.0e} to {LARGEST:.0e}".replace("+", "")


def read_predictions(
    values: Sequence[object], layout: TaskLayout, path: Callable[[int], str], faults: Faults
) -> Floats:
    """Return the predictions of answers, (n,), like `read_numbers`; here a missing number is a fault, too."""
    for row, value in enumerate(values):
        if value is None:
            message = f"{path(row)}: missing; task {layout.name} needs prediction, the predicted number"
            faults.add(row, RejectReason.NO_SCORES, message)
    return read_numbers(values, path, faults)


def read_spreads(
    sigma: Sequence[object], quantiles: Sequence[Any], layout: TaskLayout, faults: Faults
) -> Floats:
    """Return the spread that the model states for each record, (n, 1 + Q); NaN for an absent or faulty one.

    The first column is the standard deviation `sigma`, and the others are the Q quantiles of the layout. NaN,
    and a text that means a missing value, such as NA, count as absent. So do quantiles that are all absent.

    Examples
    --------
    >>> layout = TaskLayout("delay", (), numeric=True, quantiles=(0.05, 0.95))
    >>> read_spreads([2.0, None], [None, {"0.05": -3, "0.95": 4}], layout, Faults(2)).tolist()
    [[2.0, nan, nan], [nan, -3.0, 4.0]]
    """
    spreads = np.full((len(sigma), layout.width), np.nan)
    sigma = cleaned(list(sigma), NO_VALUE)
    if not absent(sigma):
        spreads[:, 0] = read_numbers(sigma, lambda _: "$.sigma", faults)
        for row in np.flatnonzero(spreads[:, 0] <= 0).tolist():
            message = f"$.sigma: expected a number above 0, got {shown(sigma[row])}"
            faults.add(row, RejectReason.OUT_OF_RANGE, message)
    if layout.quantiles and not absent(quantiles):
        by_level = [_by_level(row, value, layout, faults) for row, value in enumerate(quantiles)]
        for k, level in enumerate(layout.quantiles):
            column = [None if each is None else each[level] for each in by_level]
            spreads[:, 1 + k] = read_numbers(column, _path_of(level), faults)
        for row in np.flatnonzero((np.diff(spreads[:, 1:], axis=1) < 0).any(axis=1)).tolist():
            message = "$.quantiles: expected quantiles that do not decrease with their levels"
            faults.add(row, RejectReason.OUT_OF_RANGE, message)
    return spreads


def _path_of(level: float) -> Callable[[int], str]:
    return lambda _: f"$.quantiles.{level}"


def _by_level(row: int, value: object, layout: TaskLayout, faults: Faults) -> dict[float, Any] | None:
    """Return the quantiles of a record by level, or None if it has none, or not those of the layout."""
    if value is None:
        return None
    levels = ", ".join(map(str, layout.quantiles))
    if not isinstance(value, dict):
        message = f"$.quantiles: expected an object with the levels {levels}, got {shown(value)}"
        faults.add(row, RejectReason.WRONG_TYPE, message)
        return None
    known: dict[float, Any] = {}
    for key, quantile in value.items():
        with suppress(ValueError):
            known[float(key)] = quantile
    known = dict(zip(known, cleaned(list(known.values()), NO_VALUE), strict=True))
    lost = [level for level in layout.quantiles if known.get(level) is None]
    if lost == list(layout.quantiles) and known.keys() >= set(lost):
        return None
    if lost:
        message = f"$.quantiles: expected the levels {levels}, got none for {lost[0]}"
        faults.add(row, RejectReason.WRONG_LENGTH, message)
        return None
    return known


def true_numbers(labels: Sequence[object], faults: Faults) -> tuple[Ints, Floats]:
    """Return 0 for each label that is a number and -1 for others, (n,), and the true numbers, (n,).

    Examples
    --------
    >>> label, truth = true_numbers([4, None, True], Faults(3))
    >>> label.tolist(), truth.tolist()
    ([0, -1, -1], [4.0, nan, nan])
    """
    truths = read_numbers(labels, lambda _: "$.label", faults)
    return np.where(np.isnan(truths), -1, 0), truths

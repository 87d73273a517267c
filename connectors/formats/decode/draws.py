"""Reads the field `draw` of labels, which describes the selection of a row for labelling.

Rows may be drawn one after another, without replacement and with known probabilities (active testing).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeGuard

import numpy as np
from numpy.typing import NDArray

from connectors.formats.decode.columns import absent
from connectors.formats.decode.names import text_of
from connectors.formats.decode.structs import MAX_ID, Fault, Faults
from connectors.formats.messages.explain import is_unicode, unicode_fault
from connectors.formats.messages.wording import shown
from monitor.base.records import DRAW, Floats, RejectReason, id_keys

DRAW_FIELDS = ("round", "number", "pool", "probability")
"""The required keys of the field `draw`."""

_LARGEST = 1 << 53  # tables turn whole numbers into floats, which are exact up to here


def read_draws(values: Sequence[object], picked: Floats, faults: Faults) -> NDArray[np.void]:
    """Return the draw of each label, an (n,) array of dtype `DRAW`.

    All fields of the draw are 0 for a label without `draw`, or with a faulty one.

    Parameters
    ----------
    values : sequence of object
        The n values of the field `draw`, unchecked.
    picked : (n,) float64
        The field `probability` of the labels, NaN if absent.
    faults : Faults
        Receives a fault for each invalid `draw`, and for each `draw` of a label without `probability`.

    Examples
    --------
    >>> faults = Faults(2)
    >>> draw = {"round": "a", "number": 3, "pool": 800, "probability": 0.02}
    >>> read_draws([draw, draw | {"pool": 2}], np.array([0.05, 0.05]), faults)["number"].tolist()
    [3, 0]
    >>> faults.by_row[1][1]
    '$.draw.pool: expected a whole number, at least the number of the draw, got 2'
    """
    draws = np.zeros(len(values), dtype=DRAW)
    if absent(values):
        return draws
    names: list[str] = []
    rows: list[int] = []
    for row, value in enumerate(values):
        if value is None or _is_null(value):
            continue
        fault = draw_fault(value) or _unweighed(picked[row])
        if fault is not None:
            faults.add(row, *fault)
            continue
        assert isinstance(value, Mapping)
        rows.append(row)
        name = value["round"]
        names.append(text_of(int(name) if isinstance(name, float) else name))
        draws[row] = (0, int(value["number"]), int(value["pool"]), value["probability"])
    draws["round"][rows] = id_keys(names)
    return draws


def _is_null(value: object) -> bool:
    """Return whether a value is a struct of nulls, which some writers of tables write for a null."""
    return isinstance(value, Mapping) and all(value.get(field, 0) is None for field in DRAW_FIELDS)


def draw_fault(value: object) -> Fault | None:
    """Return the fault of a value of the field `draw`, or None if it is valid."""
    if not isinstance(value, Mapping):
        fields = ", ".join(DRAW_FIELDS)
        return RejectReason.WRONG_TYPE, f"$.draw: expected an object with {fields}, got {shown(value)}"
    name, number, pool, chance = (value.get(field) for field in DRAW_FIELDS)
    if isinstance(name, str) and not is_unicode(name):
        return unicode_fault(name, "$.draw.round")
    if not (isinstance(name, str) and 0 < len(name) <= MAX_ID) and not _is_whole(name):
        return _wrong_value("round", f"text of 1 to {MAX_ID} characters", name, isinstance(name, str))
    if not _is_whole(number) or not 1 <= number <= _LARGEST:
        return _wrong_value("number", "a whole number from 1", number, _is_number(number))
    if not _is_whole(pool) or not number <= pool <= _LARGEST:
        return _wrong_value("pool", "a whole number, at least the number of the draw", pool, _is_number(pool))
    if not _is_number(chance) or not 0 < chance <= 1:
        return _wrong_value("probability", "a number above 0 and at most 1", chance, _is_number(chance))
    return None


def _wrong_value(field: str, expected: str, got: object, of_type: bool) -> Fault:
    reason = RejectReason.OUT_OF_RANGE if of_type else RejectReason.WRONG_TYPE
    return reason, f"$.draw.{field}: expected {expected}, got {'nothing' if got is None else shown(got)}"


def _unweighed(picked: float) -> Fault | None:
    """Return the fault of a draw without a probability, or None.

    Estimators that do not know draws would treat such a label as part of a simple random sample.
    """
    if not np.isnan(picked):
        return None
    message = (
        "$.probability: expected a number above 0 and at most 1 beside draw, got nothing; send the one that "
        "came with the draw"
    )
    return RejectReason.OUT_OF_RANGE, message


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_whole(value: object) -> TypeGuard[float]:
    """Return whether a value is a whole number; floats count, because tables turn integers into floats."""
    return value.is_integer() if isinstance(value, float) else _is_number(value)

"""How labels' rows were drawn, where they were drawn one after another: the field `draw`."""

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
"""What the field `draw` holds, all of it."""

_LARGEST = 1 << 53  # a table turns whole numbers into floats, which count no further


def read_draws(values: Sequence[object], picked: Floats, faults: Faults) -> NDArray[np.void]:
    """The draws of labels, `DRAW` each; of number 0 where a label was not drawn.

    Parameters
    ----------
    values : sequence of object
        The field as it came, n of them.
    picked : (n,) float64
        The labels' `probability`, NaN where absent.
    faults : Faults
        Takes what is wrong.

    Examples
    --------
    >>> faults = Faults(2)
    >>> drawn = {"round": "a", "number": 3, "pool": 800, "probability": 0.02}
    >>> read_draws([drawn, drawn | {"pool": 2}], np.array([0.05, 0.05]), faults)["number"].tolist()
    [3, 0]
    >>> faults.found[1][1]
    '$.draw.pool: expected a whole number, at least the number of the draw, got 2'
    """
    found = np.zeros(len(values), dtype=DRAW)
    if absent(values):
        return found
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
        found[row] = (0, int(value["number"]), int(value["pool"]), value["probability"])
    found["round"][rows] = id_keys(names)
    return found


def _is_null(value: object) -> bool:
    """A struct of a table that holds nothing but nulls: so some writers spell a null."""
    return isinstance(value, Mapping) and all(value.get(field, 0) is None for field in DRAW_FIELDS)


def draw_fault(value: object) -> Fault | None:
    """What is wrong with the field `draw`; None where nothing is."""
    if not isinstance(value, Mapping):
        fields = ", ".join(DRAW_FIELDS)
        return RejectReason.WRONG_TYPE, f"$.draw: expected an object with {fields}, got {shown(value)}"
    name, number, pool, chance = (value.get(field) for field in DRAW_FIELDS)
    if isinstance(name, str) and not is_unicode(name):
        return unicode_fault(name, "$.draw.round")
    if not (isinstance(name, str) and 0 < len(name) <= MAX_ID) and not _is_whole(name):
        return _told("round", f"text of 1 to {MAX_ID} characters", name, isinstance(name, str))
    if not _is_whole(number) or not 1 <= number <= _LARGEST:
        return _told("number", "a whole number from 1", number, _is_number(number))
    if not _is_whole(pool) or not number <= pool <= _LARGEST:
        return _told("pool", "a whole number, at least the number of the draw", pool, _is_number(pool))
    if not _is_number(chance) or not 0 < chance <= 1:
        return _told("probability", "a number above 0 and at most 1", chance, _is_number(chance))
    return None


def _told(field: str, expected: str, got: object, of_type: bool) -> Fault:
    reason = RejectReason.OUT_OF_RANGE if of_type else RejectReason.WRONG_TYPE
    return reason, f"$.draw.{field}: expected {expected}, got {'nothing' if got is None else shown(got)}"


def _unweighed(picked: float) -> Fault | None:
    """Estimators that know of no draws would take the label for one of a plain random sample."""
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
    """A float may be: tables make floats of whole numbers."""
    return value.is_integer() if isinstance(value, float) else _is_number(value)

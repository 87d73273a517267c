"""Equal but for the last bits, which differ between processors, and between a batch and a row alone."""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray


def nearly(value: Any) -> Any:
    """Return an object that equals the value, and all that differs from it in the last bits of its floats
    only.

    Parameters
    ----------
    value : Any
        A number, an array, or lists, tuples, mappings and dataclasses of them; all else must be equal.

    Examples
    --------
    >>> {"share": [1 / 3, 2]} == nearly({"share": [1 - 2 / 3, 2]})
    True
    >>> 0.333333 == nearly(1 / 3)
    False
    """
    if isinstance(value, float) or (isinstance(value, np.ndarray) and value.dtype.kind == "f"):
        return pytest.approx(value, rel=1e-12, abs=1e-15, nan_ok=True)
    if isinstance(value, np.ndarray):
        return _Array(value)
    if isinstance(value, dict):
        return {key: nearly(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(nearly, value))
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{field.name: nearly(getattr(value, field.name)) for field in fields(value)})
    return value


@dataclass(frozen=True, eq=False)
class _Array:
    """An array of whole numbers, truth values or text: equal as a whole, so that a mapping may hold it."""

    value: NDArray[Any]
    __array_ufunc__ = None  # or numpy would compare element by element, and not ask

    def __eq__(self, other: object) -> bool:
        return isinstance(other, np.ndarray) and np.array_equal(self.value, other)

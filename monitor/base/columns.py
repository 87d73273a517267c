"""The base class of data classes whose fields are columns: arrays with equal numbers of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class ColumnarRows:
    """The base class of data classes whose fields are all columns of the same rows.

    Examples
    --------
    >>> @dataclass(frozen=True)
    ... class Points(ColumnarRows):
    ...     x: NDArray[Any]
    ...     y: NDArray[Any]
    >>> points = Points(np.array([1, 2, 3]), np.array([7, 8, 9]))
    >>> points.take(slice(1, 3)).y.tolist(), Points.concatenate([points, points]).x.tolist()
    ([8, 9], [1, 2, 3, 1, 2, 3])
    """

    def take(self, index: NDArray[Any] | slice) -> Self:
        """Return the rows that an array of indices, a mask or a slice selects."""
        return type(self)(*(getattr(self, column.name)[index] for column in fields(self)))

    @classmethod
    def concatenate(cls, parts: Sequence[Self]) -> Self:
        """Return the rows of all parts, in order. There must be at least one part."""
        names = [column.name for column in fields(cls)]
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))

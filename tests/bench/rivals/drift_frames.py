"""The frames of `tests.bench.bench_rivals_drift`, as its scripts read them.

A set of rows has a matrix of numbers and a matrix of texts. `SETS` has the windows of each set.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MANY = 8
NUMBERS = tuple(f"number{k}" for k in range(MANY))
TEXTS = tuple(f"text{k}" for k in range(MANY))
NAMES = NUMBERS + TEXTS
MOVED = NUMBERS[0]
SETS = {"same": 500, "short": 100, "moved": 500}
"""The rows of a window by set; in `moved` one number has moved, in the others nothing has."""


def columns(arrays: Mapping[str, Any], part: str) -> dict[str, Any]:
    """Return the columns of a set of rows, by their names."""
    numbers, texts = arrays[f"{part}_numbers"], arrays[f"{part}_texts"]
    return dict(zip(NUMBERS, numbers.T, strict=True)) | {
        name: column.astype(object) for name, column in zip(TEXTS, texts.T, strict=True)
    }


def windows(arrays: Mapping[str, Any], part: str) -> list[dict[str, Any]]:
    """Return the columns of each window of a set."""
    whole, size = columns(arrays, part), SETS[part]
    starts = range(0, len(whole[MOVED]), size)
    return [{name: column[start : start + size] for name, column in whole.items()} for start in starts]

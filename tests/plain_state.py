"""Snapshots must survive any plain encoding: this takes one apart and builds a copy of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np


def through_msgpack(state: Any) -> Any:
    """The state after a way through MessagePack, arrays as (dtype, shape, bytes).

    Raises `AssertionError` where anything in it is no plain value: a dict with text keys, a list, text,
    a number, a truth value, None, or an array of numbers.
    """
    return _decoded(msgspec.msgpack.decode(msgspec.msgpack.encode(_encoded(state, "state"))))


def same(left: Any, right: Any) -> bool:
    """Whether two states hold the same."""
    if isinstance(left, np.ndarray) or isinstance(right, np.ndarray):
        return left.dtype == right.dtype and np.array_equal(left, right, equal_nan=left.dtype.kind == "f")
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, float) and math.isnan(left):
        return isinstance(right, float) and math.isnan(right)
    return type(left) is type(right) and bool(left == right)


def _encoded(value: Any, path: str) -> Any:
    # Exact types: an enum or a numpy number passes isinstance, and no decoder gives it back.
    if type(value) in (str, int, float, bool, type(None)):
        return value
    if type(value) is list:
        return [_encoded(item, f"{path}[{i}]") for i, item in enumerate(value)]
    if type(value) is dict:
        assert all(type(key) is str for key in value), f"{path}: a key is no text"
        return {key: _encoded(item, f"{path}.{key}") for key, item in value.items()}
    assert type(value) is np.ndarray, f"{path}: a {type(value).__name__} is no plain value"
    assert value.dtype.kind in "fiub", f"{path}: an array of {value.dtype}"
    return {"dtype": value.dtype.str, "shape": list(value.shape), "bytes": value.tobytes()}


def _decoded(value: Any) -> Any:
    if isinstance(value, list):
        return [_decoded(item) for item in value]
    if not isinstance(value, Mapping):
        return value
    if value.keys() == {"dtype", "shape", "bytes"}:
        return np.frombuffer(value["bytes"], dtype=value["dtype"]).reshape(value["shape"])
    return {key: _decoded(item) for key, item in value.items()}

"""Snapshots must survive the store: this takes one apart, as `pack` does, and builds a copy of it."""

from __future__ import annotations

import math
from dataclasses import is_dataclass
from typing import Any, TypeVar

import msgspec
import numpy as np

from monitor.base.codec import pack, restored, unpack

S = TypeVar("S")


def through_msgpack(state: S) -> S:
    """Return the state after a way through the store's bytes, of the type that it had.

    Raises `AssertionError` where anything in it is no plain value: a struct or a dict with text keys, a list,
    text, a number, a truth value, None, or an array of numbers.
    """
    _check(state, "state")
    unpacked = unpack(pack(state))
    return restored(unpacked, type(state)) if _is_record(state) else unpacked


def same(left: Any, right: Any) -> bool:
    """Return whether two states are equal."""
    if isinstance(left, np.ndarray) or isinstance(right, np.ndarray):
        return left.dtype == right.dtype and np.array_equal(left, right, equal_nan=left.dtype.kind == "f")
    if _is_record(left):
        return type(left) is type(right) and same(_fields(left), _fields(right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, float) and math.isnan(left):
        return isinstance(right, float) and math.isnan(right)
    return type(left) is type(right) and bool(left == right)


def _is_record(value: Any) -> bool:
    return isinstance(value, msgspec.Struct) or (is_dataclass(value) and not isinstance(value, type))


def _fields(value: Any) -> dict[str, Any]:
    struct = isinstance(value, msgspec.Struct)
    return {name: getattr(value, name) for name in (value.__struct_fields__ if struct else value.__slots__)}


def _check(value: Any, path: str) -> None:
    # Exact types: an enum or a numpy number passes isinstance, and no decoder gives it back.
    if type(value) in (str, int, float, bool, bytes, type(None), msgspec.UnsetType):
        return
    if isinstance(value, list | tuple):
        for i, item in enumerate(value):
            _check(item, f"{path}[{i}]")
    elif _is_record(value):
        _check(_fields(value), path)
    elif type(value) is dict:
        assert all(type(key) is str for key in value), f"{path}: a key is no text"
        for key, item in value.items():
            _check(item, f"{path}.{key}")
    else:
        assert type(value) is np.ndarray, f"{path}: a {type(value).__name__} is no plain value"
        assert value.dtype.kind in "fiub", f"{path}: an array of {value.dtype}"

"""Paths to fields of records that others write: ``payload.probs[1]``."""

from __future__ import annotations

import re
from typing import Any

FieldPath = tuple[str | int, ...]
"""The steps from the record to a field: names of objects' fields, places in arrays."""

_STEP = re.compile(r"""\.?([^.\[\]"\\\s\x00-\x1f]+)|\["([^"\\\x00-\x1f]+)"\]|\[(\d{1,4})\]""")

MISSING: Any = object()
"""The result of `lookup` if a record has nothing at a path."""


def parse_field_path(text: str) -> FieldPath:
    """The steps of a path.

    Parameters
    ----------
    text : str
        Names with dots between; ``[0]`` is a place in an array, counted from 0; ``["a.b"]`` a name that
        holds a dot, a bracket or a blank.

    Raises
    ------
    ValueError
        It is none; the message says what is allowed.

    Examples
    --------
    >>> parse_field_path('outputs[0].data'), parse_field_path('["a.b"].c')
    (('outputs', 0, 'data'), ('a.b', 'c'))
    >>> parse_field_path("a..b")
    Traceback (most recent call last):
    ValueError: expected a path such as payload.probs, outputs[0].data or ["a.b"].c, got 'a..b'
    """
    steps: list[str | int] = []
    at = 0
    while at < len(text):
        found = _STEP.match(text, at)
        if found is None or (found[0].startswith(".") != (bool(steps) and found[1] is not None)):
            break
        steps.append(int(found[3]) if found[3] is not None else found[1] or found[2])
        at = found.end()
    if at < len(text) or not steps or isinstance(steps[0], int):
        raise ValueError(
            f'expected a path such as payload.probs, outputs[0].data or ["a.b"].c, got {text[:60]!r}'
        )
    return tuple(steps)


def lookup(value: object, path: FieldPath) -> Any:
    """What stands at a path, `MISSING` where nothing does.

    Examples
    --------
    >>> lookup({"a": [{"b": 1}]}, ("a", 0, "b")), lookup({"a": 1}, ("a", "b")) is MISSING
    (1, True)
    """
    for step in path:
        if isinstance(step, str):
            there = isinstance(value, dict) and step in value
        else:
            there = isinstance(value, list) and step < len(value)
        if not there:
            return MISSING
        value = value[step]  # type: ignore[index]
    return value

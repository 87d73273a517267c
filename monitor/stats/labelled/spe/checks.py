"""Checks of SPE's settings and questions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from monitor.stats.labelled.spe.families import FAMILIES

_Choice = TypeVar("_Choice", bound=str)


def checked_choice(name: str, value: _Choice, allowed: Sequence[str]) -> _Choice:
    """The value, where it is among those allowed.

    Raises
    ------
    ValueError
        It is not.
    """
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {value!r}")
    return value


def checked_share(name: str, value: float) -> float:
    """The value, where it lies above 0 and is at most 1.

    Raises
    ------
    ValueError
        It does not.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 < value <= 1.0:
        raise ValueError(f"{name} must lie above 0 and be at most 1, got {value!r}; 90 % is 0.9")
    return float(value)


def checked_families(names: Sequence[str] | None) -> tuple[str, ...]:
    """Names of `FAMILIES` without repeats; all of them where None is given.

    Raises
    ------
    ValueError
        There are none, or one is unknown.
    """
    if names is None:
        return tuple(FAMILIES)
    if isinstance(names, str) or not names:
        raise ValueError(f"families must be a list of at least one of {', '.join(FAMILIES)}, got {names!r}")
    for name in names:
        checked_choice("families", name, tuple(FAMILIES))
    return tuple(dict.fromkeys(names))

"""Checks of SPE's settings and arguments, and of its class probabilities against the labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from monitor.base.records import Floats
from monitor.stats.rivals.spe.families import FAMILIES

_Choice = TypeVar("_Choice", bound=str)


def checked_choice(name: str, value: _Choice, allowed: Sequence[str]) -> _Choice:
    """The value, if it is allowed; else a ValueError."""
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {value!r}")
    return value


def checked_share(name: str, value: float) -> float:
    """The value, if it lies above 0 and is at most 1; else a ValueError."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 < value <= 1.0:
        raise ValueError(f"{name} must lie above 0 and be at most 1, got {value!r}; 90 % is 0.9")
    return float(value)


def checked_families(names: Sequence[str] | None) -> tuple[str, ...]:
    """Names of `FAMILIES` without repeats, by default all; a ValueError for none or an unknown one."""
    if names is None:
        return tuple(FAMILIES)
    if isinstance(names, str) or not names:
        raise ValueError(f"families must be a list of at least one of {', '.join(FAMILIES)}, got {names!r}")
    for name in names:
        checked_choice("families", name, tuple(FAMILIES))
    return tuple(dict.fromkeys(names))


LIMIT = 3.0
"""Standard deviations beyond which a fit is flagged (`Reason.CONTRADICTED`); a right fit exceeds it in less
than one case of a hundred."""

_SURE = 1e-12


def labels_z(chance: Floats, positive: Floats) -> float:
    """Spiegelhalter's z of labels under class probabilities: standard normal if these are right.

    Σ (y − p)(1 − 2p) / √Σ (1 − 2p)² p(1 − p) compares the squared error of the probabilities with its
    expectation; it is large if confident rows are wrong. A mixture uses far more unlabelled rows than labels,
    so labels hardly move it and may contradict it: then the scores of a class do not have the assumed shape.
    A small z is no proof: it needs enough labels on such rows.

    Parameters
    ----------
    chance : (n,) float64
        Probability of the positive class, without the label.
    positive : (n,) float64
        1 if the label is the positive class, else 0.

    Returns
    -------
    float
        0 if every probability is one half, or there is no row.

    References
    ----------
    D. J. Spiegelhalter, *Probabilistic prediction in patient management and clinical trials*, Statistics in
    Medicine 5 (1986).

    Examples
    --------
    >>> round(labels_z(np.full(100, 0.9), np.r_[np.ones(90), np.zeros(10)]), 6)
    0.0
    >>> round(labels_z(np.full(100, 0.9), np.r_[np.ones(75), np.zeros(25)]), 2)
    5.0
    """
    p = np.clip(chance, _SURE, 1.0 - _SURE)
    lean = 1.0 - 2.0 * p
    spread = float(np.sqrt((lean * lean * p * (1.0 - p)).sum()))
    return float(((positive - p) * lean).sum()) / spread if spread > 0 else 0.0

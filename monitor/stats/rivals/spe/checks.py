"""Checks of SPE's settings, and a test of its class probabilities against the labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from monitor.base.records import Floats
from monitor.stats.rivals.spe.families import FAMILIES

_Choice = TypeVar("_Choice", bound=str)


def checked_choice(name: str, value: _Choice, allowed: Sequence[str]) -> _Choice:
    """Return the value of a setting, or raise a ValueError if it is not among the allowed ones."""
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {value!r}")
    return value


def checked_share(name: str, value: float) -> float:
    """Return the value of a setting, or raise a ValueError unless it is above 0 and at most 1."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 < value <= 1.0:
        raise ValueError(f"{name} must lie above 0 and be at most 1, got {value!r}; 90 % is 0.9")
    return float(value)


def checked_families(names: Sequence[str] | None) -> tuple[str, ...]:
    """Return names of density families without repeats; by default those of all `FAMILIES`.

    An empty list or an unknown name raises a ValueError.
    """
    if names is None:
        return tuple(FAMILIES)
    if isinstance(names, str) or not names:
        raise ValueError(f"families must be a list of at least one of {', '.join(FAMILIES)}, got {names!r}")
    for name in names:
        checked_choice("families", name, tuple(FAMILIES))
    return tuple(dict.fromkeys(names))


LIMIT = 3.0
"""The |z| of `labels_z` above which a fit gets the flag `Reason.CONTRADICTED`. A right fit exceeds it in less
than one case of a hundred."""

_SURE = 1e-12


def labels_z(chance: Floats, positive: Floats) -> float:
    """Return Spiegelhalter's z of labels, which is standard normal if the class probabilities are right.

    z = Σ (y − p)(1 − 2p) / √Σ (1 − 2p)² p(1 − p) compares the squared error of the probabilities with its
    expectation. It is large if confident predictions are wrong. A mixture uses far more unlabelled rows than
    labels, so labels hardly change the fit and may contradict it. The scores of a class then do not have the
    assumed shape. A small z does not prove the shape if there are few labels on confident rows.

    Parameters
    ----------
    chance : (n,) float64
        Probability of the positive class, computed without the row's label.
    positive : (n,) float64
        1 if the label is the positive class, else 0.

    Returns
    -------
    float
        0 if every probability is one half, or if there is no row.

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

"""What labels say of an estimate's trust, as exporters show it and reports write it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_DECIMALS = 6


@dataclass(frozen=True, slots=True)
class Bias:
    """What labelled rows say of the estimate's error.

    Parameters
    ----------
    value, lower, upper : float
        Accuracy of the rows less their mean confidence, -1 to 1: negative where the estimate promises too
        much; and its interval.
    level : float
        Of the interval.
    rows : int
        What it rests on.
    """

    value: float
    lower: float
    upper: float
    level: float
    rows: int


@dataclass(frozen=True, slots=True)
class Trust:
    """Where the test of an estimate on labelled rows stands: see `monitor.engine.labels.trust`.

    Parameters
    ----------
    trusted : bool
    evidence : float
        Its E-value: 1 at the start, 20 costs the trust.
    labels : int
        Labelled rows that the present test has seen.
    bias : Bias or None
        Of the newest rows since the change that the evidence points to; None while trusted, and where
        a fresh test has seen no row yet.
    on_probation : bool
        Not trusted, but recalibrated or of another version since: a fresh test decides.
    """

    trusted: bool
    evidence: float
    labels: int
    bias: Bias | None = None
    on_probation: bool = False


def untrusted(metric: str, trust: Trust) -> dict[str, Any]:
    """What a window's line says of lost trust; a bias that is not known is left out.

    Examples
    --------
    >>> lost = Trust(False, 23.5, 400, Bias(-0.05, -0.08, -0.02, 0.95, 310))
    >>> untrusted("accuracy", lost)["bias"], read_untrusted(untrusted("accuracy", lost)) == lost
    (-0.05, True)
    """
    found = {
        "metric": metric,
        "evidence": round(trust.evidence, _DECIMALS),
        "labels": trust.labels,
        "on_probation": trust.on_probation,
    }
    bias = trust.bias
    if bias is None:
        return found
    ends = {"bias": bias.value, "lower": bias.lower, "upper": bias.upper, "level": bias.level}
    return found | {name: round(value, _DECIMALS) + 0.0 for name, value in ends.items()} | {"rows": bias.rows}


def read_untrusted(read: Mapping[str, Any]) -> Trust:
    """What `untrusted` wrote."""
    bias = None
    if "bias" in read:
        bias = Bias(read["bias"], read["lower"], read["upper"], read["level"], read["rows"])
    return Trust(False, read["evidence"], read["labels"], bias, read["on_probation"])


def sentence(trust: Trust) -> str:
    """What is said of lost trust in words, in points of accuracy.

    Examples
    --------
    >>> sentence(Trust(False, 23.5, 400, Bias(-0.052, -0.081, -0.024, 0.95, 310)))
    'labels contradict the accuracy: it is off by -5.2 points (-8.1 to -2.4) in 310 labelled answers'
    >>> sentence(Trust(False, 1.0, 0, None, on_probation=True))
    'labels contradicted the accuracy: a fresh test has begun, no label yet'
    """
    bias = trust.bias
    verb = "contradicted" if trust.on_probation else "contradict"
    if bias is None:
        return f"labels {verb} the accuracy: a fresh test has begun, no label yet"
    size = f"{100 * bias.value:+.1f} points ({100 * bias.lower:+.1f} to {100 * bias.upper:+.1f})"
    if trust.on_probation:
        return f"labels contradicted the accuracy: a fresh test has begun, {size} in {bias.rows:,} so far"
    return f"labels contradict the accuracy: it is off by {size} in {bias.rows:,} labelled answers"

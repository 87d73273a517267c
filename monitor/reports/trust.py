"""What labels say of an estimate's trust, as exporters show it and reports write it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import msgspec

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
        Not trusted, but predicted by those labels too, or of another version since: a fresh test decides.
    confidences : Bias or None
        Of the confidences, while labels contradict them by more than the calibration's own error. The
        accuracy that labels correct may be right all the same.
    """

    trusted: bool
    evidence: float
    labels: int
    bias: Bias | None = None
    on_probation: bool = False
    confidences: Bias | None = None


class TrustLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a window's line says of lost trust; a bias that is not known is left out.

    Examples
    --------
    >>> lost = Trust(False, 23.5, 400, Bias(-0.05, -0.08, -0.02, 0.95, 310))
    >>> TrustLine.of("accuracy", lost).bias, TrustLine.of("accuracy", lost).read() == lost
    (-0.05, True)
    """

    metric: str
    evidence: float | None
    labels: int
    on_probation: bool
    bias: float | None = None
    lower: float | None = None
    upper: float | None = None
    level: float | None = None
    rows: int | None = None

    @classmethod
    def of(cls, metric: str, trust: Trust) -> TrustLine:
        """What a line says of this."""
        head = metric, round(trust.evidence, _DECIMALS), trust.labels, trust.on_probation
        bias = trust.bias
        if bias is None:
            return cls(*head)
        numbers = bias.value, bias.lower, bias.upper, bias.level
        value, lower, upper, level = (round(x, _DECIMALS) + 0.0 for x in numbers)
        return cls(*head, value, lower, upper, level, bias.rows)

    def read(self) -> Trust:
        """What `of` was given; an evidence beyond every number is written as null."""
        bias = None
        if self.rows is not None:
            ends = self.bias, self.lower, self.upper, self.level
            value, lower, upper, level = (math.nan if x is None else x for x in ends)
            bias = Bias(value, lower, upper, level, self.rows)
        evidence = math.inf if self.evidence is None else self.evidence
        return Trust(False, evidence, self.labels, bias, self.on_probation)


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
    size = _size(bias)
    if trust.on_probation:
        return f"labels contradicted the accuracy: a fresh test has begun, {size} in {bias.rows:,} so far"
    return f"labels contradict the accuracy: it is off by {size} in {bias.rows:,} labelled answers"


def biased(bias: Bias) -> str:
    """What is said of biased confidences in words, in points of accuracy.

    Examples
    --------
    >>> biased(Bias(-0.052, -0.081, -0.024, 0.95, 310))
    'labels contradict the confidences: they are off by -5.2 points (-8.1 to -2.4) in 310 labelled answers'
    """
    return (
        f"labels contradict the confidences: they are off by {_size(bias)} in {bias.rows:,} labelled answers"
    )


def _size(bias: Bias) -> str:
    return f"{100 * bias.value:+.1f} points ({100 * bias.lower:+.1f} to {100 * bias.upper:+.1f})"

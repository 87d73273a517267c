"""The result of the test of trust (whether labels contradict an estimate), for reports and exporters."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import msgspec

from monitor.base.registry import SHARES, metric_words

ERRORS_TESTED = ("mae", "bias")
"""The metrics of errors that labels test; the others rest on the same estimates."""

_DECIMALS = 6


@dataclass(frozen=True, slots=True)
class Bias:
    """The error of an estimate, measured on labelled rows.

    Parameters
    ----------
    value, lower, upper : float
        Accuracy of the rows minus their estimated accuracy, -1 to 1, and the ends of its interval. If the
        value is negative, the estimate is too high.
    level : float
        Level of the interval.
    rows : int
        Number of the labelled rows.
    """

    value: float
    lower: float
    upper: float
    level: float
    rows: int


@dataclass(frozen=True, slots=True)
class Trust:
    """The result of the test of an estimate on labelled rows: see `monitor.engine.labels.trust`.

    Parameters
    ----------
    trusted : bool
        False if the test has rejected the estimate, and no later test has confirmed it.
    evidence : float
        E-value of the test. It is 1 before the first label. At 20, the test rejects the estimate.
    labels : int
        Number of labelled rows that the current test has used.
    bias : Bias or None
        Bias in the labelled rows since the estimated change point. None while the estimate is trusted. Also
        None if a new test has not used a row yet.
    on_probation : bool
        Whether a new test is running, which decides if a rejected estimate is trusted again. It begins after
        a recalibration, after a new forecast of the correction by labels (when a window closes), or after a
        change of the model's version.
    confidences : Bias or None
        Bias of the confidences, if it is significantly larger than the calibration's error; otherwise None.
        The accuracy that is corrected by labels may still be right.
    predicted : float or None
        For estimated errors: the predicted `metric` of the rows of `bias`, whose numbers then have the unit
        of the target. None otherwise.
    metric : {"mae", "bias"}
        For estimated errors: the metric that labels test.
    other : Trust or None
        For estimated errors: the result for the other metric, if both are tested. It is trusted, or both are
        not.
    """

    trusted: bool
    evidence: float
    labels: int
    bias: Bias | None = None
    on_probation: bool = False
    confidences: Bias | None = None
    predicted: float | None = None
    metric: str = ERRORS_TESTED[0]
    other: Trust | None = None

    @property
    def both(self) -> tuple[Trust, ...]:
        """The result itself, and `other` if there is one."""
        return (self,) if self.other is None else (self, self.other)

    @property
    def lost(self) -> tuple[Trust, ...]:
        """The results of `both` that are not trusted."""
        return tuple([each for each in self.both if not each.trusted])


def _rounded(x: float) -> float:
    return round(x, _DECIMALS) + 0.0


class TrustLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """The entry in a window's JSON line for an estimate that labels contradict.

    If the bias is unknown, its fields are left out.

    Examples
    --------
    >>> lost = Trust(False, 23.5, 400, Bias(-0.05, -0.08, -0.02, 0.95, 310))
    >>> TrustLine.from_trust("accuracy", lost).bias, TrustLine.from_trust("accuracy", lost).read() == lost
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
    predicted: float | None = None

    @classmethod
    def from_trust(cls, metric: str, trust: Trust, rounded: Callable[[float], float] = _rounded) -> TrustLine:
        """Return the entry of the JSON line for a metric whose test of trust has rejected the estimate.

        `rounded` rounds the numbers that have the unit of the metric.
        """
        head = metric, round(trust.evidence, _DECIMALS), trust.labels, trust.on_probation
        bias = trust.bias
        if bias is None:
            return cls(*head)
        value, lower, upper = (rounded(x) for x in (bias.value, bias.lower, bias.upper))
        predicted = None if trust.predicted is None else rounded(trust.predicted)
        return cls(*head, value, lower, upper, _rounded(bias.level), bias.rows, predicted)

    def read(self) -> Trust:
        """Return the result of the test of trust that this entry describes.

        An `evidence` of null becomes infinite.
        """
        bias = None
        if self.rows is not None:
            ends = self.bias, self.lower, self.upper, self.level
            value, lower, upper, level = (math.nan if x is None else x for x in ends)
            bias = Bias(value, lower, upper, level, self.rows)
        evidence = math.inf if self.evidence is None else self.evidence
        metric = self.metric if self.metric in ERRORS_TESTED else ERRORS_TESTED[0]
        return Trust(False, evidence, self.labels, bias, self.on_probation, None, self.predicted, metric)


def join_tests(tests: Iterable[Trust | None]) -> Trust | None:
    """Return the results of the tests of `ERRORS_TESTED` as one, led by the first that is not trusted.

    Examples
    --------
    >>> both = join_tests([Trust(True, 0.8, 400), Trust(False, 23.5, 400, metric="bias")])
    >>> both.trusted, both.metric, both.other.metric
    (False, 'bias', 'mae')
    """
    known = sorted((each for each in tests if each is not None), key=lambda each: each.trusted)
    if not known:
        return None
    return known[0] if len(known) == 1 else replace(known[0], other=known[1])


def sentence(trust: Trust, share: str = SHARES[0]) -> str:
    """Return a clause that says how far labels contradict an estimate, in percentage points.

    Parameters
    ----------
    trust : Trust
    share : str
        The metric that is the share of right answers.

    Examples
    --------
    >>> sentence(Trust(False, 23.5, 400, Bias(-0.052, -0.081, -0.024, 0.95, 310)))
    'labels contradict the accuracy: it is off by -5.2 points (-8.1 to -2.4) in 310 labelled answers'
    >>> sentence(Trust(False, 1.0, 0, None, on_probation=True))
    'labels contradicted the accuracy: a fresh test has begun, no label yet'
    >>> sentence(Trust(False, 23.5, 40), "within_tolerance")
    'labels contradict the share within tolerance: a fresh test has begun, no label yet'
    """
    bias, metric = trust.bias, metric_words(share)
    verb = "contradicted" if trust.on_probation else "contradict"
    if bias is None:
        return f"labels {verb} the {metric}: a fresh test has begun, no label yet"
    size = _size(bias)
    if trust.on_probation:
        return f"labels contradicted the {metric}: a fresh test has begun, {size} in {bias.rows:,} so far"
    return f"labels contradict the {metric}: it is off by {size} in {bias.rows:,} labelled answers"


def bias_sentence(bias: Bias) -> str:
    """Return a clause that says how far labels contradict the confidences, in percentage points."""
    return (
        f"labels contradict the confidences: they are off by {_size(bias)} in {bias.rows:,} labelled answers"
    )


def _size(bias: Bias) -> str:
    return f"{100 * bias.value:+.1f} points ({100 * bias.lower:+.1f} to {100 * bias.upper:+.1f})"

"""The result of an estimator: a value with its interval, or the reason why there is none."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Reason(StrEnum):
    """Why an estimate is unknown. A small closed set, because it becomes a label in Prometheus."""

    NO_ROWS = "no rows"
    TOO_FEW_ROWS = "too few rows"
    NO_LABELS = "no labels yet"
    TOO_FEW_LABELS = "too few labels"
    NOT_CALIBRATED = "not calibrated"
    NOT_FITTED = "no fit yet"
    NO_REFERENCE = "no labelled reference"
    NOT_DEFINED = "not defined for this task"
    ONE_CLASS = "one class only"
    NONE_PREDICTED = "class never predicted"
    COLLAPSED = "fit collapsed"
    CONTRADICTED = "labels contradict the fit"
    NO_DRAWS = "draws not numbered"
    TOO_FEW_COMPARISONS = "too few comparisons by humans"
    REFERENCE_TOO_FEW = "too few comparisons of the reference model"
    LABELS_UNLIKE = "labels too unlike the rest"
    NO_FINITE_ESTIMATE = "won or lost all against the others"
    FEATURES_MISSING = "features missing"
    FEATURES_UNSEEN = "features beyond the reference"
    NO_OVERLAP = "reference too unlike the window"


@dataclass(frozen=True, slots=True)
class Estimate:
    """A metric's estimated value with its interval.

    Parameters
    ----------
    value, lower, upper : float
        The estimate and the ends of its interval, in the metric's own unit (0 to 1 for every ratio).
    level : float
        The share of such intervals that hold the truth while the estimator's assumptions hold, 0 to 1.
    n : int
        Rows the estimate rests on.

    Examples
    --------
    >>> Estimate(value=0.913, lower=0.888, upper=0.936, level=0.95, n=500)
    Estimate(value=0.913, lower=0.888, upper=0.936, level=0.95, n=500)
    """

    value: float
    lower: float
    upper: float
    level: float
    n: int


@dataclass(frozen=True, slots=True)
class Unknown:
    """The reason why there is no estimate. It is never exported as 0 or NaN.

    Parameters
    ----------
    reason : str
        One of `Reason` inside the agent; estimators of their own may give another short sentence.

    Examples
    --------
    >>> Unknown("one class only").reason
    'one class only'
    """

    reason: str


@dataclass(frozen=True, slots=True)
class TooFew(Unknown):
    """There are rows, but fewer than an estimate needs.

    Parameters
    ----------
    reason : str
    n : int
        How many there are.

    Examples
    --------
    >>> found = TooFew(Reason.TOO_FEW_LABELS, 37)
    >>> isinstance(found, Unknown), str(found.reason), found.n
    (True, 'too few labels', 37)
    """

    n: int


Result = Estimate | Unknown
"""The result of every estimator."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of an operator's request: done or refused, in one sentence."""

    done: bool
    text: str

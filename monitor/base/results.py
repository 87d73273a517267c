"""Results of estimators: a value with its interval, or the reason why there is none."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Reason(StrEnum):
    """The reason why an estimate is unknown. There are few, because each is a value of a Prometheus label."""

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
    REFERENCE_TOO_SHORT = "too few labelled rows in the reference"
    OLDER_WINDOW = "window begun by an older version"
    LABEL_TOO_LARGE = "a label that was replaced is too large"
    LABEL_ZERO = "a label is 0"
    LABELS_ZERO = "all labels are 0"
    LABELS_EQUAL = "labels hardly differ"
    NO_INTERVALS = "no quantiles stated"


@dataclass(frozen=True, slots=True)
class Estimate:
    """An estimated value of a metric with its interval.

    Parameters
    ----------
    value, lower, upper : float
        The estimate and the ends of its interval, in the unit of the metric (0 to 1 for ratios).
    level : float
        The nominal coverage of the interval, 0 to 1. If the assumptions of the estimator hold, this share of
        all intervals contains the true value.
    n : int
        The number of rows from which the estimate is computed.

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
    """A missing estimate, with the reason. It is never exported as 0 or NaN.

    Parameters
    ----------
    reason : str
        The reason. The estimators of the agent use a `Reason`. The estimator of a user may use another short
        text.

    Examples
    --------
    >>> Unknown("one class only").reason
    'one class only'
    """

    reason: str


@dataclass(frozen=True, slots=True)
class TooFew(Unknown):
    """A missing estimate, because there are fewer rows than the estimator needs.

    Parameters
    ----------
    reason : str
    n : int
        The number of available rows.

    Examples
    --------
    >>> result = TooFew(Reason.TOO_FEW_LABELS, 37)
    >>> isinstance(result, Unknown), str(result.reason), result.n
    (True, 'too few labels', 37)
    """

    n: int


Result = Estimate | Unknown
"""The result of an estimator: an estimate, or the reason why it is missing."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of an operator's request: whether the agent carried it out, and an explanation."""

    done: bool
    text: str


@dataclass(frozen=True, slots=True)
class RankInterval:
    """The range of possible ranks of a model; 1 is the best.

    Parameters
    ----------
    best, worst : int
        Ranks from 1 to the number of models; equal if the rank is certain.
    """

    best: int
    worst: int

"""Histograms of confidences, and calibration curves from labelled answers, in the same bins."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from monitor.base.records import Floats

N = TypeVar("N", int, float)

BIN_ENDS = (0.1, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
"""The upper ends of the bins, inclusive; a tenth bin reaches to 1.

Most confidences of a useful model lie above 0.9, and with two classes few lie below 0.5. So with bins of
equal width, most answers would be in one bin. Do not change the ends, because Prometheus has counts in these
bins.
"""

BIN_NAMES = tuple(f"{low:.2f}-{high:.2f}" for low, high in pairwise((0.0, *BIN_ENDS, 1.0)))
"""The names of the bins in ascending order, which is also their alphabetical order."""

_ENDS = np.array(BIN_ENDS)

# Multiples of this have the same sum in any order, up to 2**23: the division of a stream into steps must
# not change the result.
_SUM_STEP = 2.0**-30

_NONE = (0,) * len(BIN_NAMES)
_NOTHING = (0.0,) * len(BIN_NAMES)


def bins_of(confidence: Floats) -> NDArray[np.intp]:
    """Return the index in `BIN_NAMES` of the bin of each confidence, from (n,) confidences of 0 to 1.

    Examples
    --------
    >>> [BIN_NAMES[place] for place in bins_of(np.array([0.0, 0.9, 0.91, 1.0]))]
    ['0.00-0.10', '0.80-0.90', '0.90-0.95', '0.99-1.00']
    """
    bins: NDArray[np.intp] = _ENDS.searchsorted(confidence)
    return bins


@dataclass(frozen=True, slots=True)
class ConfidenceHistogram:
    """The number of answers in each bin of confidence, and the sum of all confidences.

    Parameters
    ----------
    counts : tuple of int
        Number of answers in each bin of `BIN_NAMES`; not cumulative.
    total : float
        Sum of the confidences.

    Examples
    --------
    >>> result = ConfidenceHistogram().plus(np.array([0.2, 0.85, 0.97, 1.0]))
    >>> result.counts, result.total
    ((0, 1, 0, 0, 0, 0, 1, 0, 1, 1), 3.02)
    """

    counts: tuple[int, ...] = _NONE
    total: float = 0.0

    def plus(self, confidence: Floats) -> ConfidenceHistogram:
        """Return the histogram after adding (n,) confidences of further answers."""
        more = np.bincount(bins_of(confidence), minlength=len(BIN_NAMES))
        return ConfidenceHistogram(_sums(self.counts, more), self.total + float(confidence.sum()))

    def cumulative(self) -> tuple[int, ...]:
        """Return the number of answers up to the end of each bin, followed by the number of all answers."""
        return tuple(accumulate(self.counts))


@dataclass(frozen=True, slots=True)
class CalibrationCurve:
    """The counts of a reliability diagram: labelled and correct answers by bin of confidence.

    If the confidences are right, the share of correct answers in a bin equals the bin's mean confidence, up
    to chance. With n labelled answers its standard error is √(p (1 − p) / n): 4 percentage points at p = 0.8
    and n = 100.

    The curve misleads if answers are labelled because they were wrong (labels from complaints). Then every
    bin looks worse than it is. A choice of answers by the score alone does not mislead, because each bin is
    compared with its mean confidence.

    Parameters
    ----------
    labelled, correct : tuple of int
        Number of labelled answers, and of correct answers among them, in each bin of `BIN_NAMES`.
    confidence : tuple of float
        Sum of the labelled answers' confidences in each bin.

    References
    ----------
    DeGroot and Fienberg (1983), *The Comparison and Evaluation of Forecasters*, The Statistician 32.

    Examples
    --------
    >>> result = CalibrationCurve().plus(np.array([0.92, 0.94, 0.6]), np.array([True, False, True]))
    >>> [(point.name, point.labelled, round(point.confidence, 3), point.right) for point in result.points]
    [('0.50-0.60', 1, 0.6, 1.0), ('0.90-0.95', 2, 0.93, 0.5)]
    """

    labelled: tuple[int, ...] = _NONE
    correct: tuple[int, ...] = _NONE
    confidence: tuple[float, ...] = _NOTHING

    def plus(self, confidence: Floats, right: NDArray[np.bool_]) -> CalibrationCurve:
        """Return the curve after adding labelled answers: (n,) confidences, and whether each was right."""
        bins, most = bins_of(confidence), len(BIN_NAMES)
        rounded = np.rint(confidence / _SUM_STEP) * _SUM_STEP
        return CalibrationCurve(
            _sums(self.labelled, np.bincount(bins, minlength=most)),
            _sums(self.correct, np.bincount(bins[right], minlength=most)),
            _sums(self.confidence, np.bincount(bins, weights=rounded, minlength=most)),
        )

    @property
    def points(self) -> tuple[CurvePoint, ...]:
        """The points of the curve: one for each bin that has a labelled answer."""
        columns = zip(BIN_NAMES, self.labelled, self.correct, self.confidence, strict=True)
        return tuple(CurvePoint(name, n, k, total / n) for name, n, k, total in columns if n)


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """One bin of a calibration curve: its name in `BIN_NAMES`, its counts and its mean confidence."""

    name: str
    labelled: int
    correct: int
    confidence: float

    @property
    def right(self) -> float:
        """The share of right answers among the labelled answers, 0 to 1."""
        return self.correct / self.labelled


@dataclass(frozen=True, slots=True)
class Distributions:
    """The distributions of one model's confidences, and its calibration curves.

    Parameters
    ----------
    confidence : ConfidenceHistogram
        The histogram over all answers in closed windows.
    curve : CalibrationCurve
        The curve over all labelled answers.
    current : CalibrationCurve
        The curve over labelled answers of the current model version, with the current calibration.
    newest : ConfidenceHistogram
        The histogram over the answers of the newest window; empty if it is not known.
    reference : CalibrationCurve or None
        The curve over the rows of the labelled reference, each calibrated by a fit on other rows; None
        without a labelled reference.
    """

    confidence: ConfidenceHistogram = field(default_factory=ConfidenceHistogram)
    curve: CalibrationCurve = field(default_factory=CalibrationCurve)
    current: CalibrationCurve = field(default_factory=CalibrationCurve)
    newest: ConfidenceHistogram = field(default_factory=ConfidenceHistogram)
    reference: CalibrationCurve | None = None


def _sums(old: tuple[N, ...], more: NDArray[Any]) -> tuple[N, ...]:
    return tuple(a + b for a, b in zip(old, more.tolist(), strict=True))

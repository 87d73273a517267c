"""The distribution of a model's confidences, and its calibration curve."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from markupsafe import Markup

from monitor.base.results import Estimate, Result
from monitor.export.charts.marks import number
from monitor.export.page.templates import render
from monitor.stats.estimate.hajek import WeightedCounts, hajek
from monitor.stats.histograms import BIN_NAMES, CurvePoint, Distributions

LEVEL = 0.95
"""The confidence level of the intervals in the calibration curve."""

_SIDE, _LEFT, _TOP = 220, 44, 12  # the plot is a square, so that its diagonal has a slope of 1
_BAR_WIDTH = 100


def confidences(name: str, key: str, distributions: Distributions, unfolded: bool = False) -> Markup:
    """Return, as HTML, a table of confidences by bin and the calibration curve; nothing without answers.

    Parameters
    ----------
    name : str
        Name of the model.
    key : str
        HTML id of the section.
    distributions : Distributions
    unfolded : bool
        Whether the section is open when the page loads.
    """
    answers = sum(distributions.confidence.counts)
    if not answers:
        return Markup()
    return render(
        "confidences.html",
        "confidences",
        name,
        key,
        list(_bins(distributions, answers)),
        _curve(distributions),
        answers=answers,
        labelled=sum(distributions.current.labelled),
        before=sum(distributions.curve.labelled),
        level=LEVEL,
        unfolded=unfolded,
    )


class _Bin(NamedTuple):
    """A row of the table; without labels it has no point."""

    low: str
    high: str
    rows: int
    share: float
    bar: str
    """The length of the bar, in pixels of the 100 for all answers."""
    point: CurvePoint | None
    right: Result | None


def _bins(distributions: Distributions, answers: int) -> Iterator[_Bin]:
    points = {point.name: point for point in distributions.current.points}
    for name, count in zip(BIN_NAMES, distributions.confidence.counts, strict=True):
        low, high = (f"{100 * float(end):g}" for end in name.split("-"))
        point, share = points.get(name), count / answers
        right = None if point is None else _right(point)
        yield _Bin(low, high, count, share, number(_BAR_WIDTH * share), point, right)


def _right(point: CurvePoint) -> Result:
    return hajek(WeightedCounts(point.labelled, point.correct), LEVEL)


class _Mark(NamedTuple):
    """A point of the curve: its place in pixels, and the ends of its interval."""

    point: CurvePoint
    x: str
    y: str
    bottom: str
    top: str


class _Curve(NamedTuple):
    """The share of right answers over the mean confidence; points on the diagonal are calibrated."""

    marks: list[_Mark]
    ticks: list[tuple[str, str, str]]
    """The words of each tick, its place on the axis of the confidence, and on that of the share."""
    side: int = _SIDE
    left: int = _LEFT
    top: int = _TOP


def _curve(distributions: Distributions) -> _Curve | None:
    points = distributions.current.points
    if not points:
        return None
    ends = [_ends(point) for point in points]
    lowest = min(min(point.confidence, low) for point, (low, _) in zip(points, ends, strict=True))
    low = min(math.floor(10 * lowest) / 10, 0.9)
    marks = [
        _Mark(point, *_place(point.confidence, point.right, low), *(_place(low, end, low)[1] for end in own))
        for point, own in zip(points, ends, strict=True)
    ]
    ticks = [(f"{100 * at:.0f} %", *_place(at, at, low)) for at in (low, (1 + low) / 2, 1.0)]
    return _Curve(marks, ticks)


def _ends(point: CurvePoint) -> tuple[float, float]:
    """Return the ends of a point's interval."""
    share = _right(point)
    return (share.lower, share.upper) if isinstance(share, Estimate) else (point.right,) * 2


def _place(confidence: float, right: float, low: float) -> tuple[str, str]:
    """Return the position of a point in pixels, across and down."""
    scale = _SIDE / (1 - low)
    return number(_LEFT + (confidence - low) * scale), number(_TOP + (1 - right) * scale)

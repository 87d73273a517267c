"""The distribution of a model's confidences, and its calibration curve."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from markupsafe import Markup

from monitor.base.results import Estimate, Result
from monitor.export.charts.marks import number
from monitor.export.page.templates import render
from monitor.export.page.words import percent
from monitor.stats.estimate.hajek import WeightedCounts, hajek
from monitor.stats.histograms import BIN_NAMES, CurvePoint, Distributions

LEVEL = 0.95
"""The confidence level of the intervals in the calibration curve."""

_SIDE, _LEFT, _TOP = 220, 44, 12  # the plot is a square, so that its diagonal has a slope of 1
_BAR_WIDTH = 100
_STEP, _HEIGHT = 36, 120  # pixels of the picture of the newest window beside the reference


def confidences(name: str, key: str, distributions: Distributions, unfolded: bool = False) -> Markup:
    """Return the HTML of the table of confidences by bin and the calibration curve; nothing without answers.

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
        _sides(distributions),
        answers=answers,
        labelled=sum(distributions.current.labelled),
        before=sum(distributions.curve.labelled),
        level=LEVEL,
        unfolded=unfolded,
    )


class _Bin(NamedTuple):
    """A row of the table, with a point of the curve if the bin has labels."""

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


class _Side(NamedTuple):
    """A bin of the picture of the newest window beside the reference: two bars, in pixels."""

    left: str
    middle: str
    name: str
    window: str
    reference: str
    words: str


def _sides(distributions: Distributions) -> list[_Side]:
    """Return the bars of the newest window and of the reference; none if one of them is not known."""
    reference = distributions.reference
    newest, before = distributions.newest.counts, () if reference is None else reference.labelled
    if not sum(newest) or not sum(before):
        return []
    pairs = [(now / sum(newest), old / sum(before)) for now, old in zip(newest, before, strict=True)]
    highest = max(map(max, pairs))
    lower_ends = [f"{100 * float(name.split('-')[0]):g}" for name in BIN_NAMES]
    return [
        _Side(
            number(_LEFT + k * _STEP + 2),
            number(_LEFT + k * _STEP + _STEP / 2),
            lowest,
            number(_HEIGHT * now / highest),
            number(_HEIGHT * old / highest),
            f"from {lowest} %: {percent(now)} %, reference {percent(old)} %",
        )
        for k, (lowest, (now, old)) in enumerate(zip(lower_ends, pairs, strict=True))
    ]


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
    reference: list[_Mark]
    ticks: list[tuple[str, str, str]]
    """The words of each tick, its place on the axis of the confidence, and on that of the share."""
    side: int = _SIDE
    left: int = _LEFT
    top: int = _TOP


def _curve(distributions: Distributions) -> _Curve | None:
    points = distributions.current.points
    before = () if distributions.reference is None else distributions.reference.points
    if not points and not before:
        return None
    lowest = min(min(point.confidence, _ends(point)[0]) for point in (*points, *before))
    low = min(math.floor(10 * lowest) / 10, 0.9)

    def marks(points: tuple[CurvePoint, ...]) -> list[_Mark]:
        return [
            _Mark(
                point,
                *_place(point.confidence, point.right, low),
                *(_place(low, end, low)[1] for end in _ends(point)),
            )
            for point in points
        ]

    ticks = [(f"{100 * at:.0f} %", *_place(at, at, low)) for at in (low, (1 + low) / 2, 1.0)]
    return _Curve(marks(points), marks(before), ticks)


def _ends(point: CurvePoint) -> tuple[float, float]:
    """Return the ends of a point's interval."""
    share = _right(point)
    return (share.lower, share.upper) if isinstance(share, Estimate) else (point.right,) * 2


def _place(confidence: float, right: float, low: float) -> tuple[str, str]:
    """Return the position of a point in pixels, across and down."""
    scale = _SIDE / (1 - low)
    return number(_LEFT + (confidence - low) * scale), number(_TOP + (1 - right) * scale)

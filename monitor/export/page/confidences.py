"""The distribution of a model's confidences, and its calibration curve."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from monitor.base.results import Estimate, Result
from monitor.export.charts.frame import BLUE, FAINT, INK, QUIET
from monitor.export.charts.marks import number
from monitor.export.page.words import format_result, percent, table, text
from monitor.stats.estimate.hajek import WeightedCounts, hajek
from monitor.stats.histograms import BIN_NAMES, CurvePoint, Distributions

LEVEL = 0.95
"""The confidence level of the intervals in the calibration curve."""

_HEADS = ("Confidence", "#Answers", "Share of answers", "#Labelled", "#Mean confidence", "Right")
_SIDE, _LEFT, _TOP = 220, 44, 12  # the plot is a square, so that its diagonal has a slope of 1
_BAR_WIDTH = 100


def confidences(name: str, key: str, distributions: Distributions, unfolded: bool = False) -> Iterator[str]:
    """Yield, as HTML, a table of confidences by bin and the calibration curve; nothing without answers.

    Parameters
    ----------
    name : str
        Name of the model, not escaped.
    key : str
        HTML id of the section.
    distributions : Distributions
    unfolded : bool
        Whether the section is open when the page loads.
    """
    answers = sum(distributions.confidence.counts)
    if not answers:
        return
    points = {point.name: point for point in distributions.current.points}
    labelled = sum(distributions.current.labelled)
    is_open = " open" if unfolded else ""
    yield f'<details id="{key}"{is_open}><summary>{text(f"Confidences of {name}")}: {answers:,} answers'
    yield f", {labelled:,} labelled</summary>" if labelled else "</summary>"
    yield '<div class="beside">'
    yield from table(f"Confidences of {name}", _HEADS, _rows(distributions, points, answers), "sheet")
    if points:
        yield _picture(name, [_Mark(point, _right(point)) for point in points.values()])
    yield f'</div><p class="soft">{_note(distributions, labelled)}</p></details>'


def _rows(distributions: Distributions, points: dict[str, CurvePoint], answers: int) -> Iterator[str]:
    for name, count in zip(BIN_NAMES, distributions.confidence.counts, strict=True):
        point = points.get(name)
        low, high = (f"{100 * float(end):g}" for end in name.split("-"))
        labels = ["", "", ""]
        if point is not None:
            labels = [f"{point.labelled:,}", f"{percent(point.confidence)} %", format_result(_right(point))]
        yield (
            f'<tr><th scope="row" class="nowrap">{low} to {high} %</th><td class="number">{count:,}</td>'
            f'<td class="nowrap">{_bar(count / answers)} {percent(count / answers)} %</td>'
            f'<td class="number">{labels[0]}</td><td class="number">{labels[1]}</td><td>{labels[2]}</td></tr>'
        )


def _note(distributions: Distributions, labelled: int) -> str:
    if not labelled:
        before = sum(distributions.curve.labelled)
        so_far = f" ({before:,} of an earlier calibration or version)" if before else ""
        return f"No answer with the present calibration has a label yet{so_far}."
    return (
        "The table counts the answers of all windows since the start, and the labelled answers with the "
        f"present calibration. Intervals are of {percent(LEVEL)} %. If the share of right answers is below "
        "the mean confidence, the model is overconfident."
    )


def _right(point: CurvePoint) -> Result:
    return hajek(WeightedCounts(point.labelled, point.correct), LEVEL)


def _bar(share: float) -> str:
    width = number(_BAR_WIDTH * share)
    return (
        f'<svg class="bar" width="{_BAR_WIDTH}" height="10" aria-hidden="true">'
        f'<rect width="{_BAR_WIDTH}" height="10" fill="{FAINT}"/>'
        f'<rect width="{width}" height="10" fill="{BLUE}"/></svg>'
    )


@dataclass(frozen=True, slots=True)
class _Mark:
    point: CurvePoint
    right: Result

    @property
    def ends(self) -> tuple[float, float]:
        """The ends of the interval."""
        share = self.right
        return (share.lower, share.upper) if isinstance(share, Estimate) else (self.point.right,) * 2


def _picture(name: str, marks: Sequence[_Mark]) -> str:
    """Draw the share of right answers over the mean confidence; points on the diagonal are calibrated."""
    low = min(min(mark.point.confidence, mark.ends[0]) for mark in marks)
    low = min(math.floor(10 * low) / 10, 0.9)
    words = "; ".join(
        f"confidence {percent(mark.point.confidence)} %, right {percent(mark.point.right)} %"
        for mark in marks
    )
    bottom, right = _TOP + _SIDE, _LEFT + _SIDE
    elements = [
        f'<path d="M{_LEFT} {bottom}L{right} {_TOP}" stroke="{QUIET}" stroke-dasharray="4 4" fill="none"/>',
        f'<rect x="{_LEFT}" y="{_TOP}" width="{_SIDE}" height="{_SIDE}" stroke="{QUIET}" fill="none"/>',
        *_axes(low),
        *(_mark_svg(mark, low) for mark in marks),
    ]
    return (
        f'<svg class="curve" viewBox="0 0 {right + 24} {bottom + 40}" width="{right + 24}" '
        f'height="{bottom + 40}" role="img" aria-label="{text(f"Calibration curve of {name}: {words}")}">'
        f"{''.join(elements)}</svg>"
    )


def _axes(low: float) -> Iterator[str]:
    style = f'font-size="11" fill="{QUIET}"'
    bottom, middle = _TOP + _SIDE, _LEFT + _SIDE / 2
    for at in (low, (1 + low) / 2, 1.0):
        x, y = _place(at, at, low)
        yield f'<text x="{x}" y="{bottom + 16}" text-anchor="middle" {style}>{100 * at:.0f} %</text>'
        yield f'<text x="{_LEFT - 6}" y="{y}" dy="4" text-anchor="end" {style}>{100 * at:.0f} %</text>'
    yield f'<text x="{number(middle)}" y="{bottom + 34}" text-anchor="middle" {style}>mean confidence</text>'
    yield f'<text x="{_LEFT + 6}" y="{_TOP + 14}" {style}>share right</text>'


def _mark_svg(mark: _Mark, low: float) -> str:
    x, y = _place(mark.point.confidence, mark.point.right, low)
    (_, bottom), (_, top) = (_place(low, end, low) for end in mark.ends)
    return (
        f'<path d="M{x} {bottom}V{top}" stroke="{INK}" fill="none"/>'
        f'<circle cx="{x}" cy="{y}" r="4" fill="{BLUE}"/>'
    )


def _place(confidence: float, right: float, low: float) -> tuple[str, str]:
    """Return the position of a point in pixels, across and down."""
    scale = _SIDE / (1 - low)
    return number(_LEFT + (confidence - low) * scale), number(_TOP + (1 - right) * scale)

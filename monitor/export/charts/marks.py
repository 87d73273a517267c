"""The marks of a chart as SVG elements. Coordinates are in pixels, and NaN becomes a gap."""

from __future__ import annotations

import re
from xml.sax.saxutils import escape

import numpy as np

from monitor.base.records import Floats
from monitor.export.charts import plotting

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def number(value: float) -> str:
    """Format a coordinate with at most two decimals.

    Examples
    --------
    >>> number(12.0), number(3.14159), number(-0.001)
    ('12', '3.14', '0')
    """
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def text(words: str) -> str:
    """Escape a text for an XML element or a quoted attribute. Characters that XML forbids become U+FFFD.

    Examples
    --------
    >>> text('a<b & "c"\\x00')
    'a&lt;b &amp; &quot;c&quot;\\ufffd'
    """
    return escape(_NOT_XML.sub("\ufffd", words), {'"': "&quot;"})


def line(x: Floats, edges: Floats, y: Floats, most: int) -> str:
    """Return the SVG path data of a line through n windows, with gaps where `y` is not finite.

    The windows have centres `x`, (n,), heights `y`, (n,), and borders `edges`, (n + 1,), all in pixels. A
    line of more than `most` points is thinned to four points for each pixel. A single window between gaps
    becomes a horizontal line between its borders.

    Examples
    --------
    >>> x, edges = np.array([0.0, 1, 2, 3]), np.array([-0.5, 0.5, 1.5, 2.5, 3.5])
    >>> line(x, edges, np.array([5.0, 6, np.nan, 7]), 100)
    'M0 5L1 6M2.5 7H3.5'
    """
    parts = []
    for start, end in plotting.runs(np.isfinite(y)):
        if end - start == 1:
            parts.append(f"M{number(edges[start])} {number(y[start])}H{number(edges[end])}")
            continue
        rows = start + plotting.thin(x[start:end], y[start:end], most)
        points = [f"{number(one)} {number(two)}" for one, two in zip(x[rows], y[rows], strict=True)]
        parts.append("M" + "L".join(points))
    return "".join(parts)


def steps(edges: Floats, y: Floats, most: int) -> str:
    """Return the SVG path data of a line that is horizontal within each window, with gaps.

    The arguments are those of `line`. If there are more than `most` windows, the result is that of `line`.

    Examples
    --------
    >>> steps(np.array([0.0, 1, 2, 3, 4]), np.array([5.0, 5, 6, np.nan]), 100)
    'M0 5H2V6H3'
    """
    if len(y) > most:
        # Steps narrower than a pixel are drawn as points.
        return line((edges[1:] + edges[:-1]) / 2, edges, y, most)
    parts = []
    for start, end in plotting.runs(np.isfinite(y)):
        heights = [number(one) for one in y[start:end]]
        parts.append(f"M{number(edges[start])} {heights[0]}")
        for place in range(1, len(heights)):
            if heights[place] != heights[place - 1]:
                parts.append(f"H{number(edges[start + place])}V{heights[place]}")
        parts.append(f"H{number(edges[end])}")
    return "".join(parts)


def band(x: Floats, edges: Floats, lower: Floats, upper: Floats, most: int) -> str:
    """Return the SVG path data of the area between two lines with gaps.

    The lines are `lower` and `upper`; for the other arguments see `line`. The area of a single window between
    gaps extends to the borders of the window. If there are more than `most` windows, each pixel column shows
    the area from the lowest to the highest of its windows.

    Examples
    --------
    >>> low, high = np.array([9.0, 8.0]), np.array([3.0, 2.0])
    >>> band(np.array([0.0, 1.0]), np.array([-0.5, 0.5, 1.5]), low, high, 100)
    'M0 3L1 2L1 8L0 9Z'
    """
    parts = []
    for start, end in plotting.runs(np.isfinite(lower) & np.isfinite(upper)):
        if end - start == 1:
            across = edges[start : start + 2]
            low, high = np.full(2, lower[start]), np.full(2, upper[start])
        else:
            across, low, high = _widest(x[start:end], lower[start:end], upper[start:end], most)
        xs = np.concatenate([across, across[::-1]])
        ys = np.concatenate([high, low[::-1]])
        points = (f"{number(one)} {number(two)}" for one, two in zip(xs, ys, strict=True))
        parts.append("M" + "L".join(points) + "Z")
    return "".join(parts)


def _widest(x: Floats, lower: Floats, upper: Floats, most: int) -> tuple[Floats, Floats, Floats]:
    """Return the widest extent of each pixel column: the largest lower and the smallest upper height.

    Pixels grow downwards, so the lower line has the larger values.
    """
    if len(x) <= most:
        return x, lower, upper
    column = np.floor(x)
    first = np.flatnonzero(np.concatenate([[True], column[1:] != column[:-1]]))
    return x[first], np.maximum.reduceat(lower, first), np.minimum.reduceat(upper, first)


def whiskers(x: Floats, lower: Floats, upper: Floats) -> str:
    """Return the SVG path data of vertical strokes at `x`. A stroke with an end that is NaN is left out.

    Examples
    --------
    >>> whiskers(np.array([1.0, 2.0]), np.array([9.0, np.nan]), np.array([3.0, 4.0]))
    'M1 9V3'
    """
    known = np.isfinite(lower) & np.isfinite(upper)
    ends = zip(x[known], lower[known], upper[known], strict=True)
    return "".join(f"M{number(a)} {number(b)}V{number(c)}" for a, b, c in ends)


def path(data: str, style: str) -> list[str]:
    """Return an SVG path element with these data and this style, or nothing if there are no data."""
    return [f'<path {style} d="{data}"/>'] if data else []


def spread(wanted: list[float], apart: float, high: float) -> list[float]:
    """Return the heights of labels, moved until they are at least `apart` pixels from each other.

    The order of the labels stays the same, and all heights are from 0 to `high`.

    Examples
    --------
    >>> spread([50.0, 52.0, 10.0], 14.0, 100.0)
    [50.0, 64.0, 10.0]
    >>> spread([95.0, 99.0], 14.0, 100.0)
    [86.0, 100.0]
    """
    order = sorted(range(len(wanted)), key=wanted.__getitem__)
    heights = dict.fromkeys(order, 0.0)
    floor = 0.0
    for place in order:
        heights[place] = max(wanted[place], floor)
        floor = heights[place] + apart
    ceiling = high
    for place in reversed(order):
        heights[place] = min(heights[place], ceiling)
        ceiling = heights[place] - apart
    return [heights[place] for place in range(len(wanted))]

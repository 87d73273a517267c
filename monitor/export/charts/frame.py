"""The frame of a chart's plot: its measures, styles, title, axes, legend, and labels at the side."""

from __future__ import annotations

from collections.abc import Sequence

from monitor.export.charts import marks as marks

WIDTH, HEIGHT = 1200, 420
LEFT, RIGHT, TOP, BOTTOM = 66, 132, 76, 52
PLOT_WIDTH, PLOT_HEIGHT = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
PLOT = f'x="{LEFT}" y="{TOP}" width="{PLOT_WIDTH}" height="{PLOT_HEIGHT}"'

BLUE, _VERMILION, _GREEN, ORANGE, _PURPLE = "#0072b2", "#d55e00", "#00795a", "#e69f00", "#8a3a73"
INK, QUIET, FAINT = "#222222", "#5c5c5c", "#e6e6e6"
OBJECTIVE_INK = _GREEN

_ROUND = 'stroke-linejoin="round" stroke-linecap="round" fill="none"'
STYLES = {
    "estimate": f'stroke="{BLUE}" stroke-width="1.8" {_ROUND}',
    "other": f'stroke="{_PURPLE}" stroke-width="1.5" stroke-dasharray="4 3" fill="none"',
    "band": f'fill="{BLUE}" fill-opacity="0.13"',
    "limit": f'stroke="{QUIET}" stroke-width="1" stroke-dasharray="5 4" fill="none"',
    "center": f'stroke="{QUIET}" stroke-width="0.6" fill="none"',
    "objective": f'stroke="{_GREEN}" stroke-width="3" fill="none"',
    "whisker": f'stroke="{INK}" stroke-width="1" fill="none"',
    "realised": f'stroke="{INK}" stroke-width="1" fill="#ffffff"',
    "violation": f'fill="{_VERMILION}" stroke="#ffffff" stroke-width="0.8"',
    "alarm": f'fill="{ORANGE}" fill-opacity="0.17"',
    "alarm-bar": f'fill="{ORANGE}"',
    "improved": f'fill="{_GREEN}" fill-opacity="0.1"',
    "improved-bar": f'fill="{_GREEN}"',
    "version": f'stroke="{INK}" stroke-width="1" stroke-dasharray="1.5 3" fill="none"',
    "rebaseline": f'stroke="{INK}" stroke-width="1.2" stroke-dasharray="8 3 2 3" fill="none"',
    "refit": f'fill="{_PURPLE}"',
    "unknown": f'stroke="{QUIET}" stroke-width="1.5" fill="none"',
}

_LABEL_PIXELS = 14.0
_CHARACTER_PIXELS = 6.3  # mean width of a letter at 12 px
_TITLE_CHARACTERS, _SUBTITLE_CHARACTERS, _LEGEND_CHARACTERS = 70, 70, 38
_VERSION_CHARACTERS = 24
_POINTS = ("realised", "violation", "version", "rebaseline", "refit", "unknown")


def title(words: str, more: str) -> list[str]:
    """Return the title as SVG text at the left, and the subtitle `more` at the right. Long texts are cut."""
    parts = [
        f'<text class="title" x="{LEFT}" y="28" font-size="17" font-weight="600" fill="{INK}">'
        f"{marks.text(_cut(words, _TITLE_CHARACTERS))}</text>"
    ]
    if more:
        parts.append(
            f'<text class="subtitle" x="{LEFT + PLOT_WIDTH}" y="28" font-size="12" text-anchor="end" '
            f'fill="{QUIET}">{marks.text(_cut(more, _SUBTITLE_CHARACTERS))}</text>'
        )
    return parts


def _cut(words: str, most: int) -> str:
    return words if len(words) <= most else words[: most - 1] + "…"


def y_axis(ticks: Sequence[tuple[float, str]]) -> list[str]:
    """Return the y axis as SVG elements: a grid line and a label for each tick.

    A tick is a height, in pixels from the top of the plot, and the text of its label.
    """
    parts = []
    for height, label in ticks:
        y = marks.number(TOP + height)
        parts.append(f'<path class="grid" d="M{LEFT} {y}h{PLOT_WIDTH}" stroke="{FAINT}"/>')
        parts.append(_axis_text(marks.number(LEFT - 8), marks.number(TOP + height + 4), "end", label))
    return parts


def x_axis(ticks: Sequence[tuple[float, str]], name: str) -> list[str]:
    """Return the x axis as SVG elements: ticks, their labels, and the name of the axis.

    A tick is a position, in pixels from the left of the plot, and the text of its label.
    """
    bottom = TOP + PLOT_HEIGHT
    parts = []
    for across, label in ticks:
        x = marks.number(LEFT + across)
        parts.append(f'<path class="tick" d="M{x} {bottom}v5" stroke="{QUIET}"/>')
        parts.append(_axis_text(x, str(bottom + 19), "middle", label))
    parts.append(_axis_text(marks.number(LEFT + PLOT_WIDTH / 2), str(bottom + 39), "middle", name))
    return parts


def _axis_text(x: str, y: str, anchor: str, words: str, color: str = QUIET) -> str:
    style = f'font-size="12" text-anchor="{anchor}" fill="{color}"'
    return f'<text x="{x}" y="{y}" {style}>{marks.text(words)}</text>'


def side_labels(labels: Sequence[tuple[float, str, str]]) -> list[str]:
    """Return SVG labels at the right of the plot, moved apart if they would overlap.

    A label is a height, in pixels from the top of the plot, a text and a colour.
    """
    heights = marks.spread([height for height, _, _ in labels], _LABEL_PIXELS, PLOT_HEIGHT)
    x = marks.number(LEFT + PLOT_WIDTH + 8)
    return [
        _axis_text(x, marks.number(TOP + y + 4), "start", words, color)
        for y, (_, words, color) in zip(heights, labels, strict=True)
    ]


def note(words: str) -> list[str]:
    """Return an SVG text in the middle of an empty plot."""
    middle = f'x="{marks.number(LEFT + PLOT_WIDTH / 2)}" y="{marks.number(TOP + PLOT_HEIGHT / 2 - 16)}"'
    style = f'font-size="14" text-anchor="middle" fill="{QUIET}"'
    return [f'<text class="note" {middle} {style}>{marks.text(words)}</text>']


def legend(entries: Sequence[tuple[str, str]]) -> list[str]:
    """Return the legend as SVG: a row of entries.

    An entry is a kind of mark (a key of `STYLES`) and a text.
    """
    parts = []
    x = float(LEFT)
    for kind, words in entries:
        width = 14 if kind in _POINTS else 26
        words = _cut(words, _LEGEND_CHARACTERS)
        parts.append(f'<g class="legend" transform="translate({marks.number(x)} 54)">{_sample(kind)}')
        parts.append(_axis_text(str(width + 6), "4", "start", words, INK) + "</g>")
        x += width + 6 + len(words) * _CHARACTER_PIXELS + 20
    return parts


def version_name(x: float, name: str) -> tuple[list[str], float]:
    """Return an SVG text with the name of a version beside its vertical line, and the end of the text.

    The position `x` of the line and the end of the text are in pixels from the left of the plot.
    """
    words = _cut(f"version {name}" if name else "no version", _VERSION_CHARACTERS)
    place = f'x="{marks.number(x + 4)}" y="18"'
    # A halo separates the letters from the lines behind them.
    style = f'font-size="11" fill="{INK}" stroke="#ffffff" stroke-width="3" paint-order="stroke"'
    text = f'<text class="version-name" {place} {style}>{marks.text(words)}</text>'
    return [text], x + 8 + len(words) * _CHARACTER_PIXELS


def diamond(x: float, y: float) -> str:
    """Return an SVG diamond with this centre in pixels. It marks a window that broke a rule."""
    return f'<path d="M{marks.number(x)} {marks.number(y - 5.5)}l5 5.5l-5 5.5l-5 -5.5z"/>'


def _sample(kind: str) -> str:
    style = STYLES[kind]
    if kind == "estimate":
        return f'<rect y="-6" width="26" height="12" {STYLES["band"]}/><path {style} d="M0 0H26"/>'
    if kind == "realised":
        return f'<path {STYLES["whisker"]} d="M7 -7V7"/><circle cx="7" r="3.2" {style}/>'
    if kind == "violation":
        return f"<g {style}>{diamond(7, 0)}</g>"
    if kind in ("alarm", "improved"):
        bar = f'<rect y="-7" width="26" height="4" {STYLES[f"{kind}-bar"]}/>'
        return f'<rect y="-7" width="26" height="14" {style}/>{bar}'
    if kind in ("version", "rebaseline"):
        return f'<path {style} d="M7 -7V7"/>'
    if kind == "refit":
        return f'<path {style} d="M2 4l5 -9l5 9z"/>'
    if kind == "unknown":
        return f'<path {style} d="M7 5v-9"/>'
    return f'<path {style} d="M0 0H26"/>'

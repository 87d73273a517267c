"""Control charts as SVG, made without matplotlib, which is larger than the whole agent.

Marks differ in shape and dash as well as in colour, so that a picture printed in grey is readable. The
colours are Okabe and Ito's palette, which colour-blind people can distinguish. The same data give the same
bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from monitor.base.records import Floats, Ints
from monitor.export.charts import frame as frame
from monitor.export.charts import marks as marks
from monitor.export.charts import plotting
from monitor.export.charts.frame import HEIGHT, PLOT_HEIGHT, PLOT_WIDTH, STYLES, WIDTH
from monitor.reports.statements import RATIOS, three_digits

_MOST_POINTS = 4 * PLOT_WIDTH
_CROWDED_PIXELS = 7.0  # closer than this, full-size points with whiskers would hide everything else
_NARROWEST = 0.02  # the rounding of a model that never changes must not fill the full height

_SERIES = ("value", "lower", "upper", "center", "limit_lower", "limit_upper")
_REALISED = ("realised", "realised_lower", "realised_upper")
_OPTIONAL = (*_REALISED, "other")
_EVENTS = ("versions", "rebaselined", "refitted")

Flags = NDArray[np.bool_]


def _nothing() -> Floats:
    return np.zeros(0)


def _none() -> Flags:
    return np.zeros(0, dtype=bool)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlChartData:
    """The data of a control chart of one model and metric over n windows; NaN means unknown.

    Parameters
    ----------
    title, subtitle : str
    x : (n,) float64
        Ascending: the windows' numbers, or with `x_is_time` their times in seconds since the epoch.
    value, lower, upper : (n,) float64
        The estimate and its interval, in `unit`.
    center, limit_lower, limit_upper : (n,) float64
        The chart's centre line and control limits, which may differ from window to window.
    violated, out_of_control : (n,) bool
        `violated` is True for windows that broke a rule, but not for the better; `out_of_control` is True for
        windows at whose end the alarm was on.
    improved : (n,) bool
        True for windows at whose end the chart signalled an improvement; no window by default.
    realised, realised_lower, realised_upper : (n,) float64
        The value computed from labels that arrived later, with its interval; unknown by default.
    objective : float
        The floor or ceiling; NaN if there is none.
    is_floor : bool
    level : float
        Level of the intervals, 0 to 1, for the legend.
    x_is_time : bool
    estimate_name, realised_name : str
        Names for the legend.
    unit : str or None
        The unit of all values, such as minutes; None or ``"ratio"`` for ratios, which are drawn in per cent.
    other : (n,) float64
        The estimates of a second model or period for comparison, which the legend calls `other_name`; absent
        by default.
    versions : tuple of (int, str)
        The indices of `x` at which a new version of the model begins, in ascending order, with the name of
        the version. At such an index, the old limits end and new limits begin.
    rebaselined, refitted : tuple of (int, str)
        `rebaselined` has the indices of `x` at which a baseline begins on request, with the reason;
        `refitted` has the indices at which another calibration begins, with its name.

    Raises
    ------
    ValueError
        The arrays differ in length, `x` is not finite and ascending, or a version, a baseline or a
        calibration begins outside of the windows.
    """

    title: str
    x: Floats
    value: Floats
    lower: Floats
    upper: Floats
    center: Floats
    limit_lower: Floats
    limit_upper: Floats
    violated: Flags
    out_of_control: Flags
    improved: Flags = field(default_factory=_none)
    realised: Floats = field(default_factory=_nothing)
    realised_lower: Floats = field(default_factory=_nothing)
    realised_upper: Floats = field(default_factory=_nothing)
    objective: float = float("nan")
    is_floor: bool = True
    level: float = 0.95
    x_is_time: bool = False
    subtitle: str = ""
    estimate_name: str = "estimate"
    realised_name: str = "realised"
    unit: str | None = None
    other: Floats = field(default_factory=_nothing)
    other_name: str = ""
    versions: tuple[tuple[int, str], ...] = ()
    rebaselined: tuple[tuple[int, str], ...] = ()
    refitted: tuple[tuple[int, str], ...] = ()

    @property
    def is_ratio(self) -> bool:
        """True if the values are drawn in per cent."""
        return self.unit in RATIOS

    def __post_init__(self) -> None:
        n = len(self.x)
        for name in _OPTIONAL:
            if len(getattr(self, name)) == 0:
                object.__setattr__(self, name, np.full(n, np.nan))
        if len(self.improved) == 0:
            object.__setattr__(self, "improved", np.zeros(n, dtype=bool))
        for name in (*_SERIES, *_OPTIONAL, "violated", "out_of_control", "improved"):
            if len(getattr(self, name)) != n:
                raise ValueError(
                    f"{name}: expected one value a window, {n} as in x, got {len(getattr(self, name))}; "
                    "write NaN or False for the windows that have none"
                )
        if not np.isfinite(self.x).all() or (np.diff(self.x) < 0).any():
            raise ValueError("x: expected finite numbers that never fall; sort the windows by x")
        for name in _EVENTS:
            places = [place for place, _ in getattr(self, name)]
            if places != sorted(set(places)) or not all(0 <= place < n for place in places):
                raise ValueError(f"{name}: expected rising places from 0 to {n - 1}, got {places}")


def control_chart_svg(chart: ControlChartData) -> str:
    """Return one control chart, 1200 × 420, as a complete SVG document.

    If there are more than 4,000 windows, lines are thinned to the available pixels. The lowest and the
    highest value of each pixel column are kept, so that no peak is lost. A window without an estimate is a
    gap, with a tick below it.

    Examples
    --------
    >>> known = np.array([0.91, 0.93])
    >>> picture = control_chart_svg(ControlChartData(
    ...     title="erm: accuracy", x=np.arange(2.0), value=known, lower=known - 0.02, upper=known + 0.02,
    ...     center=np.full(2, 0.92), limit_lower=np.full(2, 0.88), limit_upper=np.full(2, 0.96),
    ...     violated=np.zeros(2, bool), out_of_control=np.zeros(2, bool)))
    >>> picture[:21], "erm: accuracy" in picture
    ('<svg xmlns="http://ww', True)
    """
    return stacked_svg([chart])


def stacked_svg(charts: Sequence[ControlChartData]) -> str:
    """Return several control charts below each other in one SVG document, 1200 × 420 each."""
    height = HEIGHT * max(len(charts), 1)
    label = "; ".join(chart.title for chart in charts) or "no charts"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{marks.text(label)}" '
        "font-family=\"system-ui, 'Segoe UI', Helvetica, Arial, sans-serif\">",
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
    ]
    for place, chart in enumerate(charts):
        parts += [f'<g transform="translate(0 {place * HEIGHT})">', *_Picture(chart).elements(), "</g>"]
    return "\n".join([*parts, "</svg>", ""])


class _Picture:
    """One chart with its scales in pixels, drawn in layers from back to front."""

    def __init__(self, chart: ControlChartData) -> None:
        self._chart = chart
        known = {name: _known(getattr(chart, name)) for name in (*_SERIES, *_OPTIONAL)}
        self._objective = float(chart.objective) if np.isfinite(chart.objective) else None
        self._low, self._high = _y_range(known, self._objective, chart.unit)
        borders = plotting.edges(chart.x)
        self._first, self._last = (float(borders[0]), float(borders[-1])) if len(borders) else (0.0, 1.0)
        self._x = self._across(chart.x)
        self._edges = self._across(borders)
        self._y = {name: self._down(values) for name, values in known.items()}
        self._newest = {name: _newest(known[name]) for name in ("limit_upper", "center", "limit_lower")}

    def _across(self, x: Floats) -> Floats:
        width = max(self._last - self._first, 1e-9)  # all windows may end in the same second
        return (np.asarray(x, dtype=np.float64) - self._first) / width * PLOT_WIDTH

    def _down(self, ratio: Floats) -> Floats:
        return (self._high - ratio) / (self._high - self._low) * PLOT_HEIGHT

    def _height(self, ratio: float) -> float:
        return (self._high - ratio) / (self._high - self._low) * PLOT_HEIGHT

    def elements(self) -> list[str]:
        return [
            *frame.title(self._chart.title, self._subtitle),
            *self._axes(),
            f"<svg {frame.PLOT}>",  # clips without an id, because ids would clash if pictures share a page
            *self._latched("improved", self._chart.improved),
            *self._latched("alarm", self._chart.out_of_control),
            *self._lines(),
            *self._versions(),
            *self._changes(),
            *self._realised(),
            *_path("other", marks.line(self._x, self._edges, self._y["other"], _MOST_POINTS)),
            *_path("estimate", marks.line(self._x, self._edges, self._y["value"], _MOST_POINTS)),
            *self._violations(),
            *self._unknown(),
            "</svg>",
            f'<rect {frame.PLOT} fill="none" stroke="{frame.QUIET}"/>',
            *frame.side_labels(self._side_labels()),
            *([] if len(self._chart.x) else frame.note("no window has closed yet")),
            *frame.legend(self._legend()),
        ]

    @property
    def _subtitle(self) -> str:
        unit = "" if self._chart.is_ratio or not self._chart.unit else f"in {self._chart.unit}"
        return ", ".join(filter(None, (self._chart.subtitle, unit)))

    def _axes(self) -> list[str]:
        by_time = self._chart.x_is_time and len(self._chart.x) > 0
        levels = plotting.number_ticks(self._low, self._high, 7)
        heights = [self._height(level) for level in levels]
        labels = plotting.percent_labels if self._chart.is_ratio else plotting.number_labels
        ticks = plotting.time_ticks(self._first, self._last, 12) if by_time else self._numbers()
        places = self._across(np.array([x for x, _ in ticks])).tolist()
        return [
            *frame.y_axis(list(zip(heights, labels(levels), strict=True))),
            *frame.x_axis(
                [(place, label) for place, (_, label) in zip(places, ticks, strict=True)],
                "time (UTC)" if self._chart.x_is_time else "window",
            ),
        ]

    def _numbers(self) -> plotting.Ticks:
        if len(self._chart.x) == 0:
            return []
        ticks = plotting.number_ticks(self._first, self._last, 12, integers=True)
        return [(x, f"{x:.0f}") for x in ticks]

    def _lines(self) -> list[str]:
        y = self._y
        parts = _path("band", marks.band(self._x, self._edges, y["lower"], y["upper"], _MOST_POINTS))
        for kind, name in (("center", "center"), ("limit", "limit_lower"), ("limit", "limit_upper")):
            parts += _path(kind, marks.steps(self._edges, y[name], _MOST_POINTS))
        if self._objective is not None:
            parts += _path("objective", f"M0 {marks.number(self._height(self._objective))}H{PLOT_WIDTH}")
        return parts

    def _versions(self) -> list[str]:
        """Return a line at the beginning of each version, with its name if there is room for it."""
        places = np.unique(np.round(self._edges[[place for place, _ in self._chart.versions]]))
        parts = _path("version", "".join(f"M{marks.number(x)} 0v{PLOT_HEIGHT}" for x in places))
        free = 0.0
        for place, name in self._chart.versions:
            x = float(self._edges[place])
            words, right = frame.version_name(x, name)
            if x >= free and right <= PLOT_WIDTH:
                parts += words
                free = right
        return parts

    def _changes(self) -> list[str]:
        """Return a line at the beginning of each baseline, and a mark at the foot for each calibration."""
        rebaselined, refitted = (
            np.unique(np.round(self._edges[[place for place, _ in events]]))
            for events in (self._chart.rebaselined, self._chart.refitted)
        )
        lines = "".join(f"M{marks.number(x)} 0v{PLOT_HEIGHT}" for x in rebaselined)
        feet = "".join(f"M{marks.number(x - 5)} {PLOT_HEIGHT}l5 -9l5 9z" for x in refitted)
        return [*_path("rebaseline", lines), *_path("refit", feet)]

    def _latched(self, kind: str, on: Flags) -> list[str]:
        parts = []
        for start, end in self._spans(on):
            place = f'x="{marks.number(start)}" width="{marks.number(end - start)}"'
            parts.append(f'<rect class="{kind}" {place} height="{PLOT_HEIGHT}" {STYLES[kind]}/>')
            parts.append(f'<rect {place} height="6" {STYLES[f"{kind}-bar"]}/>')
        return parts

    def _spans(self, on: Flags) -> list[tuple[float, float]]:
        """Return the spans in pixels, at least one wide; spans less than a pixel apart are merged."""
        spans: list[tuple[float, float]] = []
        for first, last in self._edges[plotting.runs(on)].tolist():
            last = max(last, first + 1.0)
            if spans and first - spans[-1][1] < 1.0:
                first, last = spans.pop()[0], last
            spans.append((first, last))
        return spans

    def _realised(self) -> list[str]:
        y = self._y
        rows = self._visible(np.isfinite(y["realised"]), y["realised"])
        x = self._x[rows]
        crowded = len(rows) > 1 and (x[-1] - x[0]) / (len(rows) - 1) < _CROWDED_PIXELS
        whiskers = marks.whiskers(x, y["realised_lower"][rows], y["realised_upper"][rows])
        faint = f' stroke-opacity="{0.2 if crowded else 0.4}"'
        radius = 1.7 if crowded else 3.2
        circles = [
            f'<circle cx="{marks.number(across)}" cy="{marks.number(down)}" r="{radius}"/>'
            for across, down in zip(x, y["realised"][rows], strict=True)
        ]
        return [
            *marks.path(whiskers, f'class="whisker" {STYLES["whisker"]}{faint}'),
            *_group("realised", circles),
        ]

    def _violations(self) -> list[str]:
        value = self._y["value"]
        rows = self._visible(self._chart.violated & np.isfinite(value), value)
        points = zip(self._x[rows], value[rows], strict=True)
        return _group("violation", [frame.diamond(x, y) for x, y in points])

    def _visible(self, mask: Flags, y: Floats) -> Ints:
        """Return the rows of the mask, at most four in each pixel column."""
        rows = np.flatnonzero(mask)
        return rows[plotting.thin(self._x[rows], y[rows], PLOT_WIDTH)]

    def _unknown(self) -> list[str]:
        columns = np.unique(np.round(self._x[~np.isfinite(self._y["value"])]))
        return _path("unknown", "".join(f"M{marks.number(x)} {PLOT_HEIGHT}v-8" for x in columns))

    def _side_labels(self) -> list[tuple[float, str, str]]:
        words = {"limit_upper": "upper limit", "center": "centre", "limit_lower": "lower limit"}
        labels = [
            (self._height(value), f"{words[name]} {self._words(value)}", frame.INK)
            for name, value in self._newest.items()
            if value is not None
        ]
        if self._objective is not None:
            word = "floor" if self._chart.is_floor else "ceiling"
            text = f"{word} {self._words(self._objective)}"
            labels.append((self._height(self._objective), text, frame.OBJECTIVE_INK))
        return labels

    def _words(self, value: float) -> str:
        return f"{100 * value:.1f} %" if self._chart.is_ratio else three_digits(value)[0]

    def _legend(self) -> list[tuple[str, str]]:
        chart = self._chart
        level = f"{100 * chart.level:g} % interval"
        whiskers = np.isfinite(self._y["realised_lower"]).any()
        realised = f"{chart.realised_name}, {level}" if whiskers else chart.realised_name
        shown = [
            ("estimate", f"{chart.estimate_name}, {level}", np.isfinite(self._y["value"]).any()),
            ("realised", realised, np.isfinite(self._y["realised"]).any()),
            ("other", chart.other_name, np.isfinite(self._y["other"]).any()),
            ("limit", "control limits", self._newest["limit_lower"] is not None),
            ("objective", "objective", self._objective is not None),
            ("violation", "breaks a rule", chart.violated.any()),
            ("alarm", "out of control", chart.out_of_control.any()),
            ("improved", "improved", chart.improved.any()),
            ("version", "another version", len(chart.versions) > 0),
            ("rebaseline", "new baseline", len(chart.rebaselined) > 0),
            ("refit", "refit", len(chart.refitted) > 0),
            ("unknown", "unknown", not np.isfinite(self._y["value"]).all()),
        ]
        return [(kind, words) for kind, words, present in shown if present]


def _path(kind: str, data: str) -> list[str]:
    return marks.path(data, f'class="{kind}" {STYLES[kind]}')


def _group(kind: str, members: list[str]) -> list[str]:
    return [f'<g class="{kind}" {STYLES[kind]}>', *members, "</g>"] if members else []


def _known(values: Floats) -> Floats:
    values = np.asarray(values, dtype=np.float64)
    return np.where(np.isfinite(values), values, np.nan)


def _newest(values: Floats) -> float | None:
    """Return the median of the last nine values. The last window is often short, and has wider limits."""
    known = values[np.isfinite(values)]
    return float(np.median(known[-9:])) if len(known) else None


def _y_range(known: dict[str, Floats], objective: float | None, unit: str | None) -> tuple[float, float]:
    """Return the range of the visible values with a margin. Ends of whiskers may lie outside.

    The margin of ratios between 0 and 1 stays between 0 and 1, and no margin goes from above 0 to below 0.
    """
    seen = [values[np.isfinite(values)] for name, values in known.items() if name not in _REALISED[1:]]
    everything = np.concatenate([*seen, [] if objective is None else [objective]])
    if len(everything) == 0:
        return 0.0, 1.0
    low, high = float(everything.min()), float(everything.max())
    narrowest = _NARROWEST if unit in RATIOS else _NARROWEST * max(abs(low), abs(high)) or 1.0
    air = max(0.06 * (high - low), (narrowest - (high - low)) / 2)
    lowest = low - air if low < 0 else max(low - air, 0.0)
    return lowest, high + air if unit not in RATIOS or high > 1 else min(high + air, 1.0)

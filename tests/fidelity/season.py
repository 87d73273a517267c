"""Limits by hour of the week: false alarms and delays, by simulation: ``python -m tests.fidelity.season``.

Each trial draws a reference of four weeks, fits the season, builds the real chart with its real limits, and
judges a stream of windows of 500 rows by the hour of each. *On* is `chart.season: hour_of_week`. *Off* is the
same chart without it, on the same windows: `reference` with limits from the whole reference, whose windows
vary by the pattern, and `20 windows` with limits from its last 20 windows, like `first_windows`. The ARL0 is
that of a fleet: windows over alarms, each window beyond the limits an alarm, of `arl0: 370` and rule we1. The
error is that of the differences between trials. A delay counts windows from the drop to the first alarm of a
new chart, over drops that begin at an hour drawn at random.

*Mondays* is a level three points lower on one day of seven; *nights* is three points between the highest and
the lowest hour of each day, as a sine.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from monitor import CHARTS, Baseline
from monitor.stats.charts.latch import ChartLogic
from monitor.stats.charts.season import HOURS, WEEKS, HourPoint, Season, SeasonFit, fit_season
from tests.harness import run

Floats = NDArray[np.float64]

SIZE, MEAN, ROW_SD, ARL0 = 500, 0.9, 0.18, 370.0
STREAM = 2000  # windows a trial
_HOUR = np.arange(HOURS)
PATTERNS: Mapping[str, Floats] = {
    "none": np.zeros(HOURS),
    "Mondays": np.where(_HOUR < 24, -0.03, 0.0),
    "nights": 0.015 * np.sin(2 * np.pi * _HOUR / 24),
}
DROPS = (0.01, 0.03)
_AT_MOST = 1000  # windows until a drop counts as not detected


@dataclass(frozen=True)
class Trial:
    """A reference of four weeks with its season, and charts on it with the season and without.

    Parameters
    ----------
    pattern : (168,) float64
    fit : SeasonFit
    common : Baseline
        The same windows with their season.
    """

    pattern: Floats
    per_hour: int
    fit: SeasonFit
    common: Baseline

    @classmethod
    def draw(cls, rng: np.random.Generator, pattern: Floats, per_hour: int, kind: str = "shewhart") -> Trial:
        """Draw a reference with `per_hour` windows in each hour, and fit its season for a kind of chart."""
        hours = np.repeat(np.arange(WEEKS * HOURS), per_hour)
        values = windows(rng, pattern, hours)
        points: dict[int, HourPoint] = {}
        for hour, value in zip(hours.tolist(), values.tolist(), strict=True):
            first = HourPoint.from_window(hour, value, SIZE, ROW_SD)
            points[hour] = points[hour].plus(value, SIZE) if hour in points else first
        fit = fit_season(list(points.values()), CHARTS[kind]().detector.newest_weight)
        assert fit is not None
        return cls(pattern, per_hour, fit, Baseline(values, np.full(len(values), float(SIZE)), ROW_SD))

    def chart(self, kind: str, how: str) -> tuple[ChartLogic, Season | None]:
        """Return the chart, and the season by which it judges; `how` is a row of the table."""
        if how == "on":
            return CHARTS[kind](arl0=ARL0).build(self.fit.baseline), self.fit.season
        few = slice(-20, None) if how == "20 windows" else slice(None)
        values, sizes = self.common.values[few], self.common.sizes[few]
        return CHARTS[kind](arl0=ARL0).build(Baseline(values, sizes, ROW_SD)), None

    def hours(self, first: int, count: int) -> NDArray[np.int64]:
        """Return the hours of windows of a stream."""
        return np.repeat(np.arange(first, first + count // self.per_hour + 1), self.per_hour)[:count]


def windows(rng: np.random.Generator, pattern: Floats, hours: NDArray[np.int64]) -> Floats:
    """Return estimates in control."""
    return MEAN + pattern[hours % HOURS] + rng.normal(0, ROW_SD / math.sqrt(SIZE), len(hours))


def judge(chart: ChartLogic, season: Season | None, value: float, hour: int) -> bool:
    """Return whether a window raises an alarm."""
    if season is None:
        return bool(chart.update(value, SIZE).rules)
    return bool(season.judge(chart, value, SIZE, hour).rules)


def alarms(trial: Trial, kind: str, how: str, rng: np.random.Generator, count: int) -> int:
    """Return the number of alarms in a stream in control; the chart starts again after each."""
    hours = trial.hours(0, count)
    chart, season = trial.chart(kind, how)
    raised = 0
    for value, hour in zip(windows(rng, trial.pattern, hours).tolist(), hours.tolist(), strict=True):
        if judge(chart, season, value, hour):
            raised += 1
            chart, season = trial.chart(kind, how)
    return raised


def delay(trial: Trial, how: str, drop: float, rng: np.random.Generator) -> int:
    """Return the windows from a drop to its alarm, at most 1,000."""
    hours = trial.hours(int(rng.integers(HOURS)), _AT_MOST)
    chart, season = trial.chart("shewhart", how)
    values = windows(rng, trial.pattern, hours) - drop
    for number, (value, hour) in enumerate(zip(values.tolist(), hours.tolist(), strict=True), 1):
        if judge(chart, season, value, hour):
            return number
    return _AT_MOST


def rate(
    name: str, how: str, trials: int, kind: str = "shewhart", per_hour: int = 1, seed: int = 0
) -> tuple[float, float]:
    """Return false alarms of a window as multiples of the promise, and their standard error."""
    rng = np.random.default_rng([seed, *map(ord, name), per_hour])  # the same references for each `how`
    many = np.array(
        [
            alarms(Trial.draw(rng, PATTERNS[name], per_hour, kind), kind, how, rng, STREAM)
            for _ in range(trials)
        ],
        dtype=np.float64,
    )
    return float(many.mean()) * ARL0 / STREAM, float(many.std(ddof=1)) * ARL0 / STREAM / math.sqrt(trials)


def false_alarms(trials: int = 300) -> Iterator[str]:
    """Yield the table of false alarms, a line at a time."""
    yield (
        f"False alarms: {trials} references of four weeks and {STREAM:,} windows after each; seed 0; windows "
        f"of {SIZE} rows with a standard deviation of {100 * ROW_SD / math.sqrt(SIZE):.1f} points."
    )
    yield "`an hour` is the number of windows in each hour."
    yield ""
    heads = f"{'chart':9s} {'pattern':8s} {'an hour':>7s} {'season':>11s}"
    yield f"{heads} {'ARL0':>6s} {'times the promise':>18s}"
    cases = [("shewhart", name, 1, how) for name in PATTERNS for how in ("on", "off", "20 windows")]
    cases += [("shewhart", "Mondays", 4, "on"), ("shewhart", "none", 4, "on")]
    cases += [(kind, name, 1, "on") for kind in ("ewma", "cusum") for name in ("none", "Mondays")]
    for kind, name, per_hour, how in cases:
        times, error = rate(name, how, trials, kind, per_hour)
        yield (
            f"{kind:9s} {name:8s} {per_hour:7d} {how:>11s} {ARL0 / times:6.0f} {times:10.2f} ± {error:5.2f}"
        )


def delays(drops: int = 300) -> Iterator[str]:
    """Yield the table of delays, a line at a time."""
    yield f"Delay of a drop in windows, one an hour; {drops:,} drops each; none after 1,000 counts as 1,000."
    yield ""
    yield f"{'pattern':8s} {'drop':>10s} {'season':>11s} {'mean':>8s} {'median':>7s} {'within 2':>9s}"
    for name in PATTERNS:
        for drop in DROPS:
            for how in ("on", "off"):
                rng = np.random.default_rng([1, *map(ord, name)])
                many = np.array(
                    [delay(Trial.draw(rng, PATTERNS[name], 1), how, drop, rng) for _ in range(drops)]
                )
                points = f"{100 * drop:.0f} point{'s' if drop > 0.01 else ''}"
                yield (
                    f"{name:8s} {points:>10s} {how:>11s} {many.mean():8.1f} {np.median(many):7.0f} "
                    f"{(many <= 2).mean():9.1%}"
                )


if __name__ == "__main__":
    run({"alarms": false_alarms, "delays": delays})

"""The sentences that `check` prints about seasons: a proposal, and the date when limits by hour begin."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import date, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from monitor.base.registry import METRICS
from monitor.base.zones import time_zone
from monitor.cli.check.calibrations import References
from monitor.config.root import Task
from monitor.engine.charting import chart_for
from monitor.engine.season import count_days
from monitor.stats.charts.base import Baseline, Verdict
from monitor.stats.charts.season import (
    FEWEST_REPEATED,
    WEEKS,
    HourPoint,
    SeasonFit,
    fit_season,
    hour_number,
    repeated_cells,
)

if TYPE_CHECKING:
    from monitor.engine.reference import Reference

PROPOSED_BELOW = 0.01
"""The p-value of the test for a season below which `check` proposes one."""

SMALLEST_SHOWN = 1e-16
"""The smallest p-value that `check` writes in full."""

_DAYS = 7 * WEEKS


def season_sentences(tasks: Mapping[str, Task], references: References, today: date) -> Iterator[str]:
    """Yield a sentence for each model whose limits by hour of the week cannot begin at once or are proposed.

    Parameters
    ----------
    tasks : mapping of str to Task
    references : mapping of str to mapping of str to Reference
    today : date
        The day from which the four weeks of windows count.
    """
    for name, task in tasks.items():
        models = references.get(name, {})
        if task.chart.season is not None and not models:
            yield f"tasks.{name}.chart.season: there is no reference file, so {_begin(today)}"
        for model, reference in models.items():
            if task.chart.season is not None:
                yield from _delays(name, task, model, reference, today)
            elif _days(reference, task) >= _DAYS:
                yield from _proposals(name, task, model, reference)


def _delays(name: str, task: Task, model: str, reference: Reference, today: date) -> Iterator[str]:
    """Yield a sentence if the windows of a reference are too few for a season of the model."""
    hours = _hours(name, task, model, reference)
    points = min(hours.values(), key=repeated_cells, default=())
    days, needed = count_days(point.hour for point in points)
    repeated = repeated_cells(points)
    where = f"tasks.{name}.chart.season, model {model}"
    if not reference.timed:
        yield f"{where}: the rows of the reference have no time, so {_begin(today)}. Add `time` to them"
    elif days < needed:
        yield f"{where}: the reference has windows on {days} of {needed} days, so {_begin(today)}"
    elif repeated < FEWEST_REPEATED:
        yield (
            f"{where}: in the reference, {repeated} hours with windows repeat an hour of an earlier week, "
            f"and {FEWEST_REPEATED} are needed, so {_begin(today)}. If the stream is as slow, they begin "
            "later or never: set a smaller window.size"
        )


def _begin(today: date) -> str:
    return (
        "limits by hour of the week begin after four weeks of windows in control, on "
        f"{today + timedelta(_DAYS)} at the earliest; until then all hours have the same limits"
    )


def _days(reference: Reference, task: Task) -> int:
    """Return the number of days from the first to the last row of a reference."""
    if not len(reference.time):
        return 0
    zone = time_zone(task.chart.time_zone)
    first, last = (hour_number(float(reference.time[at]), zone) // 24 for at in (0, -1))
    return last - first + 1


def _proposals(name: str, task: Task, model: str, reference: Reference) -> Iterator[str]:
    """Yield a sentence for each metric that differs between the hours of the week in a reference."""
    for metric, points in _hours(name, task, model, reference).items():
        if METRICS[metric].scale != "ratio":
            continue  # the sentence is about points
        fit = fit_season(points, chart_for(task.charting, metric).detector.newest_weight)
        days, needed = count_days(point.hour for point in points)
        if fit is None or fit.p_value >= PROPOSED_BELOW or days < needed:
            continue
        before, after = _replayed(task, metric, points, fit)
        narrower = round(100 * (1 - _width(after) / _width(before))) if _width(before) else 0
        if _alarms(after) >= _alarms(before) and narrower < 1:
            continue
        width = f"{abs(narrower)}% {'narrower' if narrower > 0 else 'wider'}" if narrower else "as wide"
        p_value = f"p = {fit.p_value:.1g}" if fit.p_value >= SMALLEST_SHOWN else f"p < {SMALLEST_SHOWN:.0e}"
        yield (
            f"tasks.{name}.chart.season, model {model}: {metric} differs between the hours of the week, by "
            f"{100 * float(np.std(fit.season.offsets)):.1f} points on average ({p_value}). With "
            f"chart: {{season: hour_of_week}}, the {len(points):,} hours of the reference raise "
            f"{_alarms(after)} instead of {_alarms(before)} false alarms, and limits are {width}"
        )


def _hours(name: str, task: Task, model: str, reference: Reference) -> Mapping[str, Sequence[HourPoint]]:
    """Return the windows of a reference by hour for each metric, as a task with a season computes them."""
    from monitor.engine.series import DrawnBaselines, SeriesSettings

    seasonal = task  # of which the trial of the reference has cached the baselines
    if task.chart.season is None:
        chart = task.chart.model_copy(update={"season": "hour_of_week"})
        seasonal = task.model_copy(update={"chart": chart})

    def draw() -> DrawnBaselines:
        SeriesSettings(name, model, "", seasonal).build(reference)
        return reference.cached_baselines(seasonal, "", draw)

    return reference.cached_baselines(seasonal, "", draw)[3]


def _replayed(
    task: Task, metric: str, points: Sequence[HourPoint], fit: SeasonFit
) -> tuple[list[Verdict], list[Verdict]]:
    """Return the verdicts on the first window of each hour, without a season and with it."""
    chart, inorder = chart_for(task.charting, metric), sorted(points)
    values, sizes = (np.array([point[at] for point in inorder]) for at in (1, 2))
    common = Baseline(values, sizes, fit.baseline.row_sd)
    verdicts = []
    for baseline in (common, fit.baseline):
        logic = chart.build(baseline)
        each = zip(baseline.values.tolist(), baseline.sizes.tolist(), strict=True)
        verdicts.append([logic.update(value, size) for value, size in each])
    return verdicts[0], verdicts[1]


def _alarms(verdicts: Sequence[Verdict]) -> int:
    """Return the number of alarms that begin."""
    on = [False, *(verdict.out_of_control for verdict in verdicts)]
    return sum(now and not before for before, now in pairwise(on))


def _width(verdicts: Sequence[Verdict]) -> float:
    return float(np.mean([verdict.upper - verdict.lower for verdict in verdicts]))

"""The summary at the end of the demo: each window's estimate compared with the true accuracy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import pairwise

import numpy as np

from monitor.base.records import Floats
from monitor.base.results import Estimate
from monitor.cli.demo.calibration import turned_out_calibration
from monitor.cli.demo.stream import METRICS, TASK, WINDOW_SIZE, DemoData
from monitor.engine.reference import Point, baseline
from monitor.export.charts.pictures import Alarm, Histories
from monitor.export.charts.svg import ControlChartData
from monitor.reports.window_report import WindowReport
from monitor.reports.window_view import leading_estimate
from monitor.stats.charts.base import Chart

WHY = (
    "Why: these flights have concept drift. What a delay at the gate means for the arrival changes with "
    "the season and the weather, and no confidence shows it. The intervals hold as much of it as windows of "
    "the winter showed, which is why they are so wide, and what labels have said since. Without labels "
    "what comes later cannot be seen; with them it is noticed, and mended as far as the labels reach."
)


SHORT_WHY = (
    "These flights have concept drift: what a delay at the gate means for the arrival changes with season "
    "and weather, and no confidence shows it. Labels do: calibrations that are fitted on them again take "
    "most of the error that lasts. --explain says where the estimates were wrong, and why."
)


@dataclass(frozen=True, slots=True)
class Month:
    """A month of one model: mean estimate and what turned out, 0 to 1, and the alarm's share of windows."""

    name: str
    estimate: float
    realised: float
    alarmed: float

    @property
    def both(self) -> tuple[float, float]:
        """The mean estimate and what turned out."""
        return self.estimate, self.realised


@dataclass(frozen=True, slots=True)
class ModelSummary:
    """How one model's estimates did, over whole windows.

    Parameters
    ----------
    model : str
    windows : int
    covered : float
        Share of the windows whose interval held the realised accuracy of all of their flights.
    level : float
        The share that the interval claims.
    error, error_of_reference : float
        Mean absolute difference from the realised accuracy: the estimate's, corrected by the labels that had
        come when the window closed, and that of always saying what the reference showed.
    alarms : mapping of str to tuple of Alarm
        By metric; metrics without one may be left out.
    true_alarms : int
        Of the same chart on what turned out: see `alarms_of_truth`.
    months : tuple of Month
    """

    model: str
    windows: int
    covered: float
    level: float
    error: float
    error_of_reference: float
    alarms: Mapping[str, tuple[Alarm, ...]]
    true_alarms: int
    months: tuple[Month, ...]

    @property
    def worst(self) -> Month:
        """The month whose estimate was furthest off."""
        return max(self.months, key=lambda month: abs(month.estimate - month.realised))


def turned_out(data: DemoData, model: int, windows: int) -> Floats:
    """Accuracy of every window over all of its flights whose outcome is known, (windows,)."""
    late = data.late[: windows * WINDOW_SIZE].reshape(windows, WINDOW_SIZE)
    said = (data.scores[: windows * WINDOW_SIZE, model] > 0.5).reshape(windows, WINDOW_SIZE)
    known = late >= 0
    right = (said == (late == 1)) & known
    return np.asarray(right.sum(axis=1) / known.sum(axis=1), dtype=np.float64)


def alarms_of_truth(data: DemoData, model: int, chart: Chart) -> int:
    """How often the chart of the accuracy would alarm on what turned out, had that been known at once.

    Its baseline is what turned out in the reference's windows, so that it is as good a chart of the truth as
    the other is of the estimate.
    """
    right = (data.reference_scores[:, model] > 0.5) == (data.reference_late == 1)
    windows = right[: len(right) // WINDOW_SIZE * WINDOW_SIZE].reshape(-1, WINDOW_SIZE).mean(axis=1)
    row_sd = float(np.sqrt(windows.mean() * (1 - windows.mean())))
    logic = chart.build(baseline([Point(value, WINDOW_SIZE, row_sd) for value in windows.tolist()]))
    stood = [
        logic.update(value, WINDOW_SIZE).out_of_control
        for value in turned_out(data, model, len(data) // WINDOW_SIZE).tolist()
    ]
    return sum(on and not before for before, on in pairwise([False, *stood]))


def metric_charts(data: DemoData, histories: Histories, metric: str) -> list[ControlChartData]:
    """One metric of each model with what turned out true, for the picture; whole windows only."""
    whole = len(data) // WINDOW_SIZE
    truth = turned_out if metric == "accuracy" else turned_out_calibration
    charts = []
    for column, model in enumerate(data.models):
        charts.append(
            replace(
                _cut(histories.chart((TASK, model, ""), metric), whole),
                title=f"{model}: {metric} of {TASK} predictions",
                subtitle=f"{whole} windows of {WINDOW_SIZE} flights, April to December 2013",
                realised=truth(data, column, whole),
                realised_name="turned out (all flights)",
            )
        )
    return charts


def _cut(chart: ControlChartData, windows: int) -> ControlChartData:
    """The first windows of a chart: the last of the stream is incomplete."""
    names = (
        "x",
        "value",
        "lower",
        "upper",
        "center",
        "limit_lower",
        "limit_upper",
        "violated",
        "out_of_control",
        "improved",
    )
    unknown = np.full(windows, np.nan)
    columns = {name: getattr(chart, name)[:windows] for name in names}
    return replace(
        chart, **columns, realised=unknown, realised_lower=unknown, realised_upper=unknown, other=unknown
    )


class FirstShown:
    """The accuracy that was shown first when each window closed: by labels, once there were any."""

    def __init__(self) -> None:
        self._found: dict[str, dict[int, Estimate]] = {}

    def add(self, reports: Iterable[WindowReport]) -> None:
        """Take closed windows."""
        for report in reports:
            first = leading_estimate(report.estimates, "accuracy")
            if first is None or report.task != TASK or report.revision or report.group:
                continue
            if isinstance(first.result, Estimate):
                self._found.setdefault(report.model, {})[report.window] = first.result

    def on(self, model: str, chart: ControlChartData) -> ControlChartData:
        """A chart of the accuracy of whole windows with these values and intervals."""
        found = self._found.get(model, {})
        names = ("value", "lower", "upper")
        columns = {name: getattr(chart, name).copy() for name in names}
        for window, estimate in found.items():
            if window < len(chart.x):
                for name, column in columns.items():
                    column[window] = getattr(estimate, name)
        return replace(chart, **columns)


def summarise(
    chart: ControlChartData,
    model: str,
    reference_accuracy: float,
    alarms: Mapping[str, tuple[Alarm, ...]],
    true_alarms: int,
) -> ModelSummary:
    """Hold a model's chart, with what turned out true in it, against the truth."""
    inside = (chart.lower <= chart.realised) & (chart.realised <= chart.upper)
    return ModelSummary(
        model=model,
        windows=len(chart.x),
        covered=float(inside.mean()),
        level=chart.level,
        error=float(np.abs(chart.value - chart.realised).mean()),
        error_of_reference=float(np.abs(reference_accuracy - chart.realised).mean()),
        alarms=alarms,
        true_alarms=true_alarms,
        months=tuple(_months(chart)),
    )


def _months(chart: ControlChartData) -> Iterator[Month]:
    months = np.array([datetime.fromtimestamp(t, UTC).month for t in chart.x.tolist()])
    for month in np.unique(months).tolist():
        rows = months == month
        yield Month(
            name=datetime(2013, month, 1).strftime("%B"),
            estimate=float(chart.value[rows].mean()),
            realised=float(chart.realised[rows].mean()),
            alarmed=float(chart.out_of_control[rows].mean()),
        )


def sentences(summaries: Sequence[ModelSummary]) -> Iterator[str]:
    """Where each model's estimates were wrong."""
    for found in summaries:
        worst = found.worst
        gap = 100 * (worst.estimate - worst.realised)
        yield (
            f"{found.model}: its {100 * found.level:.0f} % intervals held the true accuracy in {_only(found)}"
            f"{100 * found.covered:.0f} % of {found.windows} windows. Worst in {worst.name}: estimated "
            f"{100 * worst.estimate:.1f} %, turned out {100 * worst.realised:.1f} % "
            f"({abs(gap):.1f} points too {'high' if gap > 0 else 'low'}). Off by {100 * found.error:.1f} "
            "points a window on average; always saying the reference's accuracy is off by "
            f"{100 * found.error_of_reference:.1f}. {_alarms(found.alarms)} The true accuracy charted alike: "
            f"{_count(found.true_alarms)}."
        )


def _only(found: ModelSummary) -> str:
    """A word where the intervals held less often than they promise, by more than a percent's rounding."""
    return "only " if found.covered < found.level - 0.01 else ""


def _alarms(alarms: Mapping[str, Sequence[Alarm]]) -> str:
    """Every metric's: a chart that is left out here would contradict the table and the metrics."""
    said = []
    for metric in METRICS:
        name = metric.upper() if metric == "ece" else metric
        raised = alarms.get(metric, ())
        if raised:
            first = datetime.fromtimestamp(raised[0].time, UTC).strftime("%-d %B")
            said.append(f"{_count(len(raised), f'{name} ')}, the first on {first}")
        else:
            said.append(f"no {name} alarm")
    sentence = "; ".join(said)
    return f"{sentence[0].upper()}{sentence[1:]}."


def _count(alarms: int, of: str = "") -> str:
    return f"{alarms or 'no'} {of}alarm{'s' if alarms > 1 else ''}"

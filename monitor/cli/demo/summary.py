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
from monitor.engine.baselines import Point, baseline
from monitor.export.charts.pictures import Alarm, Histories
from monitor.export.charts.svg import ControlChartData
from monitor.reports.window_report import WindowReport
from monitor.reports.window_view import leading_estimate
from monitor.stats.charts.settings import Chart

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
    """A month of a model: mean estimated and true accuracy, and the fraction of windows in alarm, 0 to 1."""

    name: str
    estimate: float
    realised: float
    alarmed: float

    @property
    def both(self) -> tuple[float, float]:
        """The mean estimate and the mean true accuracy."""
        return self.estimate, self.realised


@dataclass(frozen=True, slots=True)
class ModelSummary:
    """The quality of one model's estimates over whole windows.

    Parameters
    ----------
    model : str
    windows : int
    covered : float
        Share of the windows whose interval contained the true accuracy of all of their flights.
    level : float
        The nominal level of the intervals, with which `covered` is compared.
    error, error_of_reference : float
        The mean absolute differences from the true accuracy. `error` is that of the estimates, corrected by
        the labels that were known when the window closed. `error_of_reference` is that of the reference's
        accuracy.
    alarms : mapping of str to tuple of Alarm
        The alarms by metric; metrics without an alarm may be missing.
    true_alarms : int
        The number of alarms if the same chart judged the true accuracy; see `alarms_of_truth`.
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
        """The month with the largest difference between estimate and true accuracy."""
        return max(self.months, key=lambda month: abs(month.estimate - month.realised))


def turned_out(data: DemoData, model: int, windows: int) -> Floats:
    """Return the true accuracy of each window, from all flights with a known outcome, (windows,)."""
    late = data.late[: windows * WINDOW_SIZE].reshape(windows, WINDOW_SIZE)
    predicted = (data.scores[: windows * WINDOW_SIZE, model] > 0.5).reshape(windows, WINDOW_SIZE)
    known = late >= 0
    right = (predicted == (late == 1)) & known
    return np.asarray(right.sum(axis=1) / known.sum(axis=1), dtype=np.float64)


def alarms_of_truth(data: DemoData, model: int, chart: Chart) -> int:
    """Return the number of alarms that a chart of the true accuracy would have raised.

    This chart has the settings of the demo's chart of the estimate. Its baseline is the true accuracy of the
    reference's windows.
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
    """Return each model's chart of a metric with the true values. The incomplete last window is left out."""
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
    """Return the first windows of a chart, without the incomplete last window of the stream."""
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
    """A record of the accuracy of each window as it was estimated when the window closed.

    The estimates are corrected by the labels that were known at that time.
    """

    def __init__(self) -> None:
        self._estimates: dict[str, dict[int, Estimate]] = {}

    def add(self, reports: Iterable[WindowReport]) -> None:
        """Record the accuracies of closed windows."""
        for report in reports:
            first = leading_estimate(report.estimates, "accuracy")
            if first is None or report.task != TASK or report.revision or report.group:
                continue
            if isinstance(first.result, Estimate):
                self._estimates.setdefault(report.model, {})[report.window] = first.result

    def on(self, model: str, chart: ControlChartData) -> ControlChartData:
        """Return the chart with the recorded estimates and intervals instead of later revisions."""
        estimates = self._estimates.get(model, {})
        names = ("value", "lower", "upper")
        columns = {name: getattr(chart, name).copy() for name in names}
        for window, estimate in estimates.items():
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
    """Return a summary of a model's accuracy. `chart` has each window's estimated and true accuracy."""
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
    """Yield a sentence for each model, about the errors of its estimates."""
    for summary in summaries:
        worst = summary.worst
        gap = 100 * (worst.estimate - worst.realised)
        yield (
            f"{summary.model}: its {100 * summary.level:.0f} % intervals held the true accuracy in "
            f"{_only(summary)}{100 * summary.covered:.0f} % of {summary.windows} windows. Worst in "
            f"{worst.name}: estimated {100 * worst.estimate:.1f} %, turned out {100 * worst.realised:.1f} % "
            f"({abs(gap):.1f} points too {'high' if gap > 0 else 'low'}). Off by {100 * summary.error:.1f} "
            "points a window on average; always saying the reference's accuracy is off by "
            f"{100 * summary.error_of_reference:.1f}. {_alarms(summary.alarms)} The true accuracy charted "
            f"alike: {_count(summary.true_alarms)}."
        )


def _only(summary: ModelSummary) -> str:
    """Return "only " if the coverage of the intervals is more than a percentage point below their level."""
    return "only " if summary.covered < summary.level - 0.01 else ""


def _alarms(alarms: Mapping[str, Sequence[Alarm]]) -> str:
    """Return a sentence on the alarms of each metric of the table, including metrics without an alarm."""
    clauses = []
    for metric in METRICS:
        name = metric.upper() if metric == "ece" else metric
        raised = alarms.get(metric, ())
        if raised:
            first = datetime.fromtimestamp(raised[0].time, UTC).strftime("%-d %B")
            clauses.append(f"{_count(len(raised), f'{name} ')}, the first on {first}")
        else:
            clauses.append(f"no {name} alarm")
    sentence = "; ".join(clauses)
    return f"{sentence[0].upper()}{sentence[1:]}."


def _count(alarms: int, of: str = "") -> str:
    return f"{alarms or 'no'} {of}alarm{'s' if alarms > 1 else ''}"

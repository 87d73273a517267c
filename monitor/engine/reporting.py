"""What a step brings to report: windows that closed and labels that came late, in the order of the stream."""

from __future__ import annotations

from collections.abc import Sequence

from monitor.engine.evaluate import evaluate
from monitor.engine.labels.join import Matches
from monitor.engine.late_labels import LabelReplay
from monitor.engine.report_order import OrderedReport, Phase, StreamPosition
from monitor.engine.steps import SeriesWindow
from monitor.engine.task import TaskEngine
from monitor.engine.windows import LAST


def lines_of(
    closed: Sequence[tuple[TaskEngine, SeriesWindow]],
    matches: Sequence[tuple[TaskEngine, Matches]],
    now: float,
) -> list[OrderedReport]:
    """Judge windows in the order of closing, each with the labels known by then; revise earlier ones.

    Parameters
    ----------
    closed, matches : sequence
        What a step has closed and matched, by task.
    now : float
        Seconds since the epoch.

    Returns
    -------
    list of OrderedReport
        In the order of their places.
    """
    late = LabelReplay(matches)
    places = sorted((_place(*found), i) for i, found in enumerate(closed))
    evaluations = evaluate(
        [closed[i][0].series[closed[i][1].series].request(closed[i][1].window) for _, i in places]
    )
    lines: list[OrderedReport] = []
    for (place, i), evaluation in zip(places, evaluations, strict=True):
        task, found = closed[i]
        lines += late.count_until(place.sequence)
        report = task.series[found.series].judge(found.window, evaluation)
        task.judged(found.series, now)
        gone = task.revisions.closed(found.series, report, place.sequence)
        lines += [OrderedReport(place, one) for one in (report, *gone)]
    return lines + late.count_until(LAST)


def _place(task: TaskEngine, closed: SeriesWindow) -> StreamPosition:
    """Where a window stands among those that close together: the same however the stream was cut."""
    settings = task.series[closed.series].settings
    return StreamPosition(
        closed.window.closed_at, Phase.CLOSED, 0, settings.task_name, settings.model, settings.group
    )

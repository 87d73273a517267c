"""What a step brings to report: windows that closed and labels that came late, in the order of the stream."""

from __future__ import annotations

from collections.abc import Sequence

from monitor.engine.evaluate import evaluate
from monitor.engine.labels.join import Matches
from monitor.engine.late_labels import LateLabels
from monitor.engine.report_order import Line, Place, Stage
from monitor.engine.steps import Closed
from monitor.engine.task import TaskEngine
from monitor.engine.windows import LAST


def lines_of(
    closed: Sequence[tuple[TaskEngine, Closed]], matches: Sequence[tuple[TaskEngine, Matches]], now: float
) -> list[Line]:
    """Judge windows in the order of closing, each with the labels known by then; revise earlier ones.

    Parameters
    ----------
    closed, matches : sequence
        What a step has closed and matched, by task.
    now : float
        Seconds since the epoch.

    Returns
    -------
    list of Line
        In the order of their places.
    """
    late = LateLabels(matches)
    places = sorted((_place(*found), i) for i, found in enumerate(closed))
    evaluations = evaluate(
        [closed[i][0].series[closed[i][1].series].request(closed[i][1].window) for _, i in places]
    )
    lines: list[Line] = []
    for (place, i), evaluation in zip(places, evaluations, strict=True):
        task, found = closed[i]
        lines += late.count_until(place.sequence)
        report = task.series[found.series].judge(found.window, evaluation)
        task.judged(found.series, now)
        gone = task.revisions.closed(found.series, report, place.sequence)
        lines += [Line(place, one) for one in (report, *gone)]
    return lines + late.count_until(LAST)


def _place(task: TaskEngine, closed: Closed) -> Place:
    """Where a window stands among those that close together: the same however the stream was cut."""
    settings = task.series[closed.series].settings
    return Place(closed.window.closed_at, Stage.CLOSED, 0, settings.task_name, settings.model, settings.group)

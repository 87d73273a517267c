"""Makes the reports of closed windows, and revised reports after late labels, in the order of the stream.

A report includes the labels up to its place in the stream. The first report of a window includes the labels
up to the record that closed the window. A revised report includes the labels up to the one that made the
report due.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from monitor.engine.evaluate import evaluate
from monitor.engine.label_checks import FirstLabels
from monitor.engine.labels.columns import Matches
from monitor.engine.labels.tally import Cells
from monitor.engine.report_order import OrderedReport, Phase, StreamPosition
from monitor.engine.task_logic import TaskOutput
from monitor.engine.windows import LAST

if TYPE_CHECKING:  # the engine passes its tasks
    from monitor.engine.task import TaskEngine


def reports_of(outputs: Sequence[tuple[Any, TaskOutput]], now: float) -> list[OrderedReport]:
    """Evaluate the windows that closed in one step, and return the reports of the step.

    In a step, the tasks process a part of a chunk, or only the time advances. A window is judged by the
    labels that were known when it closed. Later labels revise its report.

    Parameters
    ----------
    outputs : sequence of (TaskLogic, TaskOutput)
        The results of the step by task. A task whose output has windows or matches is a `TaskEngine`.
    now : float
        Seconds since the epoch.

    Returns
    -------
    list of OrderedReport
        In the order of their positions. Reports that the tasks made themselves are last.
    """
    replay = LabelReplay([(task, matches) for task, output in outputs for matches in output.matches])
    closed = [
        (StreamPosition.from_window(window), task, window)
        for task, output in outputs
        for window in output.windows
    ]
    closed.sort(key=lambda one: one[0])
    evaluations = evaluate([task.request(window) for _, task, window in closed])
    newest = {window.series: window.number for _, _, window in closed}
    reports: list[OrderedReport] = []
    for (position, task, window), evaluation in zip(closed, evaluations, strict=True):
        reports += replay.count_until(position.sequence)
        is_newest = newest[window.series] == window.number
        closings = task.close(window, evaluation, now, is_newest=is_newest)
        reports += [OrderedReport(position, report) for report in closings]
    return [*reports, *replay.count_until(LAST), *(each for _, output in outputs for each in output.reports)]


class LabelReplay:
    """Passes the labels that were matched in a step to counts, corrections and tests, in stream order.

    Parameters
    ----------
    matches : sequence of (TaskEngine, Matches)
        The matched labels of each task, in any order. A task may have several entries.
    """

    def __init__(self, matches: Sequence[tuple[TaskEngine, Matches]]) -> None:
        self._tasks = list(dict.fromkeys(task for task, _ in matches))
        joined = [Matches.join([part for owner, part in matches if owner is task]) for task in self._tasks]
        self._matches = [each.take(np.argsort(each.sequence, kind="stable")) for each in joined]
        self._stops = [0] * len(self._tasks)

    def count_until(self, sequence: int) -> list[OrderedReport]:
        """Use the labels up to and including this sequence number, and return the revised reports now due."""
        waiting = self._take_until(sequence)
        if waiting is None:  # the usual case before a window
            return []
        cells = [Cells(matches) for matches in waiting]
        crossings = [
            (at, *task.names(cell[0]), cell[1], k, cell)
            for k, task in enumerate(self._tasks)
            for at, cell in task.revisions.crossings(cells[k])
        ]
        reports = []
        first = [FirstLabels(matches) for matches in waiting]
        for at, *names, _, k, cell in sorted(crossings, key=lambda each: each[:5]):
            # Before a report only the rows of its window must be counted; the others are counted together
            # later. The correction of a series needs all rows of that series.
            self._tasks[k].count(cells[k], cell, at)
            self._tasks[k].correct(first[k], cell[0], at)
            report = self._tasks[k].revise(*cell)
            if report is not None:
                reports.append(OrderedReport(StreamPosition(at, Phase.REACHED, 0, *names), report))
        for task, matches, rest, labels in zip(self._tasks, waiting, cells, first, strict=True):
            for cell in rest:
                task.count(rest, cell)
            for series in labels:
                task.correct(labels, series)
            task.audit(matches)
        return reports

    def _take_until(self, sequence: int) -> list[Matches] | None:
        """Return each task's next matches up to a sequence number; None if no task has any."""
        stops = [int(each.sequence.searchsorted(sequence, side="right")) for each in self._matches]
        previous, self._stops = self._stops, stops
        if stops == previous:
            return None
        return [
            each.take(slice(start, stop))
            for each, start, stop in zip(self._matches, previous, stops, strict=True)
        ]

"""Matched labels of a chunk on their way into their windows, between the windows that it closes.

Labels are counted in the order of the stream: up to the record that closes a window before that window is
judged, and up to each record with which a closed window's next line is due before that line is made.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from monitor.engine.labels.cells import Cells
from monitor.engine.labels.join import Matches
from monitor.engine.report_order import OrderedReport, Phase, StreamPosition
from monitor.engine.task import TaskEngine


class LabelReplay:
    """The matches of a chunk, of all tasks.

    Parameters
    ----------
    matches : sequence of (TaskEngine, Matches)
        In any order; several of one task are taken together.
    """

    def __init__(self, matches: Sequence[tuple[TaskEngine, Matches]]) -> None:
        self._tasks = list(dict.fromkeys(task for task, _ in matches))
        joined = [Matches.join([found for owner, found in matches if owner is task]) for task in self._tasks]
        self._matches = [found.take(np.argsort(found.sequence, kind="stable")) for found in joined]
        self._taken = [0] * len(self._tasks)

    def count_until(self, sequence: int) -> list[OrderedReport]:
        """Count what was known by then, that record included; return the lines that came due on the way."""
        waiting = self._take_until(sequence)
        if waiting is None:  # as before most windows
            return []
        cells = [Cells(found) for found in waiting]
        crossings = [
            (crossing.sequence, *task.names(crossing.series), crossing.window, k, crossing)
            for k, task in enumerate(self._tasks)
            for crossing in task.revisions.crossings(cells[k])
        ]
        lines = []
        for place, *names, _, k, crossing in sorted(crossings, key=lambda found: found[:5]):
            # Of what comes before a line only its own window's rows matter; all others are counted at once.
            self._tasks[k].count(cells[k], (crossing.series, crossing.window), crossing.sequence)
            report = self._tasks[k].revisions.revise(crossing.series, crossing.window)
            if report is not None:
                lines.append(OrderedReport(StreamPosition(place, Phase.REACHED, 0, *names), report))
        for task, found, rest in zip(self._tasks, waiting, cells, strict=True):
            for cell in rest:
                task.count(rest, cell)
            task.audit(found)
        return lines

    def _take_until(self, sequence: int) -> list[Matches] | None:
        """What is next of each task, up to there; None where there is nothing."""
        stops = [int(found.sequence.searchsorted(sequence, side="right")) for found in self._matches]
        taken, self._taken = self._taken, stops
        if stops == taken:
            return None
        return [
            found.take(slice(start, stop))
            for found, start, stop in zip(self._matches, taken, stops, strict=True)
        ]

"""Matched labels of a chunk on their way into their windows, between the windows that it closes.

Labels are counted in the order of the stream: up to the record that closes a window before that window is
judged, and up to each record with which a closed window's next line is due before that line is made.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np

from monitor.labels.join import Matches
from monitor.report import WindowReport
from monitor.taskengine import TaskEngine


class LateLabels:
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

    def count_until(self, sequence: int) -> list[WindowReport]:
        """Count what was known by then, that record included; return the lines that came due on the way."""
        crossings = [
            (crossing.sequence, *task.names(crossing.series), crossing.window, task, crossing.series)
            for task, waiting in zip(self._tasks, self._waiting(sequence), strict=True)
            for crossing in task.revisions.crossings(waiting)
        ]
        crossings.sort(key=lambda found: found[:5])
        reports: list[WindowReport] = []
        for place, due in groupby(crossings, key=lambda found: found[0]):
            self._count(place)
            found = (task.revisions.revise(series, window) for *_, window, task, series in due)
            reports += [report for report in found if report is not None]
        self._count(sequence)
        return reports

    def _waiting(self, sequence: int) -> list[Matches]:
        return [
            found.take(slice(start, int(np.searchsorted(found.sequence, sequence, side="right"))))
            for found, start in zip(self._matches, self._taken, strict=True)
        ]

    def _count(self, sequence: int) -> None:
        for k, (task, waiting) in enumerate(zip(self._tasks, self._waiting(sequence), strict=True)):
            task.apply(waiting)
            self._taken[k] += len(waiting.series)

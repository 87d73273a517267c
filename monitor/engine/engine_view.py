"""The engine's picture for exporters, put together from its tasks and arenas."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from monitor.engine.arena.arenas import Arenas
from monitor.engine.task import TaskEngine
from monitor.reports.views import EngineView, LabelOutcome


def picture(
    tasks: Mapping[str, TaskEngine], arenas: Arenas, labels_rejected: Counter[str], counts: Mapping[str, Any]
) -> EngineView:
    """An immutable picture.

    Parameters
    ----------
    tasks : mapping of str to TaskEngine
    arenas : Arenas
    labels_rejected : Counter of str
        By task.
    counts : mapping
        What the engine itself has counted, by the names of `EngineView`.
    """
    joins = {name: task.join for name, task in tasks.items()}
    joins |= {name: arena.join.logic for name, arena in arenas.items()}
    labels = {
        (name, outcome): join.outcomes[outcome] for name, join in joins.items() for outcome in LabelOutcome
    }
    for name, count in labels_rejected.items():
        labels[name, LabelOutcome.REJECTED] = labels.get((name, LabelOutcome.REJECTED), 0) + count
    lags = {name: join.lag_seconds for name, join in joins.items()}
    dropped = sum(task.dropped for task in tasks.values()) + sum(arena.dropped for arena in arenas.values())
    return EngineView(
        series=tuple(series.view() for task in tasks.values() for series in task.series),
        arenas=tuple(arena.view() for arena in arenas.values()),
        labels=labels,
        labels_waiting={name: join.waiting for name, join in joins.items()},
        label_lag_seconds={name: lag for name, lag in lags.items() if lag is not None},
        series_dropped=dropped,
        answers_forgotten={name: join.forgotten for name, join in joins.items()},
        refits={name: task.refits.view() for name, task in tasks.items() if task.refits},
        labels_unrevised={name: task.revisions.missed for name, task in tasks.items()},
        **counts,
    )

"""The view of several engines together, such as the engines of the partitions of one agent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from monitor.reports.views import EngineView, RefitView, SeriesView, TaskView

_COUNTS = (
    "labels",
    "received",
    "shed",
    "rejected",
    "labels_received",
    "labels_unrevised",
    "answers_forgotten",
    "ignored",
    "rows_left",
)
"""The names of the fields of `EngineView` with counts by task or source since the start."""

Key = TypeVar("Key")
One = TypeVar("One")


def union(views: Sequence[EngineView]) -> EngineView:
    """Return one view of several engines: all their series, and the sums of their counts.

    If several engines have the same series (see `twice`), the view contains the series with the most closed
    windows. If they have the same task whose models share windows, it contains the view of the task with the
    most answers. For each task, it contains the newest refit and the longest median lag of labels.

    Examples
    --------
    >>> union([EngineView(received={"kafka": 3}), EngineView(received={"kafka": 4})]).received
    {'kafka': 7}
    """
    counts: dict[str, Any] = {
        name: _summed(getattr(view, name) for view in views) for name in (*_COUNTS, "labels_waiting")
    }
    lags: dict[str, float] = {}
    refits: dict[str, RefitView] = {}
    for view in views:
        for task, lag in view.label_lag_seconds.items():
            lags[task] = max(lag, lags.get(task, lag))
        for task, refit in view.refits.items():
            refits[task] = max(refit, refits.get(task, refit), key=_newness)
    return EngineView(
        series=tuple(_first((one for view in views for one in view.series), _series, _closed)),
        tasks=tuple(_first((one for view in views for one in view.tasks), _task, _used)),
        label_lag_seconds=lags,
        refits=refits,
        series_dropped=sum(view.series_dropped for view in views),
        **counts,
    )


def since(view: EngineView, before: EngineView) -> EngineView:
    """Return the view with the increase of each count since an earlier view.

    Examples
    --------
    >>> since(EngineView(received={"kafka": 7}), EngineView(received={"kafka": 4})).received
    {'kafka': 3}
    """
    counts: dict[str, Any] = {name: _less(getattr(view, name), getattr(before, name)) for name in _COUNTS}
    return replace(view, series_dropped=view.series_dropped - before.series_dropped, **counts)


def twice(views: Sequence[EngineView]) -> list[tuple[str, str, str]]:
    """Return the (task, model, group) of each series that several engines have."""
    counts = Counter(_series(one) for view in views for one in view.series)
    return [series for series, count in counts.items() if count > 1]


def _first(items: Iterable[One], name: Any, size: Any) -> Iterable[One]:
    """Return the item of the largest size for each name, in the order in which the names first appear."""
    largest: dict[Any, One] = {}
    for one in items:
        known = largest.get(name(one))
        largest[name(one)] = one if known is None or size(one) > size(known) else known
    return largest.values()


def _series(one: SeriesView) -> tuple[str, str, str]:
    return one.task, one.model, one.group


def _closed(one: SeriesView) -> int:
    return one.windows_closed


def _task(one: TaskView) -> str:
    return one.task


def _used(one: TaskView) -> int:
    return one.used


def _newness(refit: RefitView) -> tuple[float, int]:
    return refit.success_time or 0.0, refit.number


def _summed(counts: Iterable[Mapping[Key, int]]) -> dict[Key, int]:
    total: dict[Key, int] = {}
    for each in counts:
        for key, count in each.items():
            total[key] = total.get(key, 0) + count
    return total


def _less(counts: Mapping[Key, int], before: Mapping[Key, int]) -> dict[Key, int]:
    return {key: count - before.get(key, 0) for key, count in counts.items()}

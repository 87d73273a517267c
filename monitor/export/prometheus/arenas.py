"""The exported metrics of arenas."""

from __future__ import annotations

from collections.abc import Iterator

from monitor.base.results import Unknown
from monitor.export.prometheus.rows import Row, known, rank_rows, text
from monitor.reports.arena_report import ESTIMATOR, METRIC, ArenaView
from monitor.reports.window_report import finite
from monitor.stats.pairwise.standing import Standing


def arena_rows(arena: ArenaView) -> Iterator[Row]:
    """Yield an arena's metric rows: counts from the start, and results after the first closed window."""
    who = {"task": text(arena.task)}
    yield "comparisons", who, arena.comparisons
    yield "comparisons_pending", who, arena.pending
    yield "comparison_duplicates", who, arena.duplicates
    yield "arena_windows_closed", who, arena.windows_closed
    yield from known("arena_window_end_timestamp_seconds", who, arena.window_end_time)
    if arena.standing is not None:
        yield from _standing_rows(who, arena.standing)


def _standing_rows(who: dict[str, str], standing: Standing) -> Iterator[Row]:
    for verdict, count in standing.comparisons.items():
        yield "arena_comparisons", {**who, "verdict": verdict}, count
    if standing.effective_comparisons:
        yield "arena_judge_weight_ratio", who, standing.judge_weight
        yield "arena_effective_comparisons", who, standing.effective_comparisons
    for one in standing.models:
        labels = {**who, "model": text(one.model)}
        coefficient = finite(one.coefficient)
        if isinstance(coefficient, Unknown):
            yield "arena_unknown", {**labels, "reason": text(coefficient.reason)}, 1
            continue
        yield "arena_coefficient", labels, coefficient.value
        yield "arena_coefficient_lower", labels, coefficient.lower
        yield "arena_coefficient_upper", labels, coefficient.upper
        named = {**labels, "metric": METRIC, "estimator": ESTIMATOR}
        yield from rank_rows(named, one.rank, one.rank_chi_square)

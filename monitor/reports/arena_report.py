"""A closed window of an arena as it is written down: one line of JSON among those of other windows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from monitor.base.names import ClosedBy
from monitor.reports.views import CalibrationView, MetricEstimate
from monitor.reports.window_report import WindowReport, encoded, estimate_fields, rfc3339, rounded
from monitor.stats.pairwise.standing import ModelStanding, Standing

METRIC, ESTIMATOR = "coefficient", "bradley_terry"
"""What an arena estimates, and how, as metrics name it."""

_NO_CALIBRATION = CalibrationView("none", 0, False, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArenaReport(WindowReport):
    """A closed window of comparisons: for sinks and the store a window of no model, without estimates.

    Parameters
    ----------
    standing : Standing
        By the comparisons of this window and of those before it that are pooled.
    pooled : int
        Comparisons that it rests on, this window's among them.
    """

    standing: Standing
    pooled: int

    @classmethod
    def of(
        cls,
        task: str,
        window: int,
        *,
        size: int,
        closed_by: ClosedBy,
        times: tuple[float, float],
        positions: Mapping[str, tuple[int, ...]],
        standing: Standing,
    ) -> ArenaReport:
        """The report with its line."""
        report = cls(
            task=task,
            model="",
            group="",
            version="",
            window=window,
            size=size,
            closed_by=closed_by,
            start_time=times[0],
            end_time=times[1],
            calibration=_NO_CALIBRATION,
            positions=positions,
            standing=standing,
            pooled=sum(standing.comparisons.values()),
        )
        object.__setattr__(report, "line", encoded(_fields(report)))  # frozen, but for this
        return report


def _fields(report: ArenaReport) -> dict[str, Any]:
    """What the line holds, in its order."""
    found = report.standing
    return {
        "task": report.task,
        "kind": "arena",
        "window": report.window,
        "revision": report.revision,
        "size": report.size,
        "closed_by": report.closed_by,
        "start_time": rfc3339(report.start_time),
        "end_time": rfc3339(report.end_time),
        "pooled": report.pooled,
        "comparisons": dict(found.comparisons),
        "reference_model": found.reference,
        "judge_weight": rounded(found.judge_weight),
        "effective_comparisons": round(found.effective_comparisons, 1),
        "rank_level": found.rank_level,
        "models": [_model(one) for one in found.models],
        "positions": report.positions,
    }


def _model(one: ModelStanding) -> dict[str, Any]:
    found = MetricEstimate(METRIC, ESTIMATOR, one.coefficient, 0, one.rank, one.rank_chi_square)
    return {"model": one.model, **estimate_fields(found)}

"""A closed window of an arena as it is written down: one line of JSON among those of other windows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from monitor.base.names import ClosedBy
from monitor.reports.views import CalibrationView, MetricEstimate
from monitor.reports.window_report import WindowReport, WrittenEstimate, encoded, rfc3339, rounded, seconds_of
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
        object.__setattr__(report, "line", encoded(ArenaLine.of(report)))  # frozen, but for this
        return report


class ArenaLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line of an arena's window, in the order of its fields."""

    task: str
    kind: str = "arena"
    window: int
    revision: int = 0
    size: int
    closed_by: ClosedBy
    start_time: str
    end_time: str
    pooled: int
    comparisons: Mapping[str, int]
    reference_model: str
    judge_weight: float
    effective_comparisons: float
    rank_level: float
    models: tuple[WrittenEstimate, ...]
    positions: Mapping[str, tuple[int, ...]]

    @classmethod
    def of(cls, report: ArenaReport) -> ArenaLine:
        """What the line of a report holds."""
        found = report.standing
        return cls(
            task=report.task,
            window=report.window,
            revision=report.revision,
            size=report.size,
            closed_by=report.closed_by,
            start_time=rfc3339(report.start_time),
            end_time=rfc3339(report.end_time),
            pooled=report.pooled,
            comparisons=found.comparisons,
            reference_model=found.reference,
            judge_weight=rounded(found.judge_weight),
            effective_comparisons=round(found.effective_comparisons, 1),
            rank_level=found.rank_level,
            models=tuple(map(_written, found.models)),
            positions=report.positions,
        )

    def read(self) -> ArenaReport:
        """The report, as far as the line holds it."""
        models = (ModelStanding(e.model or "", e.result, e.rank, e.rank_chi_square) for e in self.models)
        weights = self.judge_weight, self.effective_comparisons, self.rank_level
        return ArenaReport.of(
            self.task,
            self.window,
            size=self.size,
            closed_by=self.closed_by,
            times=(seconds_of(self.start_time), seconds_of(self.end_time)),
            positions=self.positions,
            standing=Standing(tuple(models), self.reference_model, self.comparisons, *weights),
        )


def _written(one: ModelStanding) -> WrittenEstimate:
    ranks = one.rank, one.rank_chi_square
    found = MetricEstimate(METRIC, ESTIMATOR, one.coefficient, 0, *ranks)
    return msgspec.structs.replace(WrittenEstimate.of(found, rounded), model=one.model)

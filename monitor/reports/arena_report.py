"""The report of a closed window of an arena, and its JSON line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from monitor.base.names import ClosedBy
from monitor.reports.views import CalibrationView, MetricEstimate, TaskView
from monitor.reports.window_report import WindowReport, WrittenEstimate, encoded, rfc3339, rounded, seconds_of
from monitor.stats.pairwise.standing import ModelStanding, Standing

METRIC, ESTIMATOR = "coefficient", "bradley_terry"
"""The metric and the estimator of an arena's results, as they are named in lines and metrics."""

_NO_CALIBRATION = CalibrationView("none", 0, False, None)


@dataclass(frozen=True, slots=True)
class ArenaView(TaskView):
    """The state of an arena after its last closed window.

    Parameters
    ----------
    comparisons : int
        Number of comparisons in closed windows since the start.
    standing : Standing or None
        None until the first window has closed.
    """

    comparisons: int = 0
    standing: Standing | None = None

    kind = "arena"

    @property
    def used(self) -> int:
        """The number of comparisons in closed windows and in the open window."""
        return self.comparisons + self.pending

    @property
    def models(self) -> Sequence[str]:
        """The names of the models in `standing`; empty before the first window has closed."""
        return [one.model for one in self.standing.models] if self.standing else []


@dataclass(frozen=True, slots=True, kw_only=True)
class ArenaReport(WindowReport):
    """The report of a closed window of comparisons. Its `model` is empty, and it has no estimates.

    Parameters
    ----------
    standing : Standing
        The coefficients and ranks of the models. They are computed from the comparisons of this window and of
        the earlier windows that are pooled with it.
    pooled : int
        Number of comparisons from which `standing` is computed, including those of this window.
    """

    standing: Standing
    pooled: int

    def task_view(self, before: TaskView | None) -> ArenaView:
        """Return the view of the arena after this window."""
        return ArenaView(
            self.task,
            self.size,
            windows_closed=1 + (before.windows_closed if before and self.window else 0),
            window_end_time=self.end_time,
            standing=self.standing,
        )

    @classmethod
    def from_standing(
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
        """Return the report of a window from the results of its fit, together with its encoded JSON line."""
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
        # The line is the one field of the frozen report that is set after its creation.
        object.__setattr__(report, "line", encoded(ArenaLine.from_report(report)))
        return report


class ArenaLine(msgspec.Struct, frozen=True, kw_only=True):
    """The JSON line of an arena's window. The fields are written in the order of this class."""

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
    def from_report(cls, report: ArenaReport) -> ArenaLine:
        """Return the JSON line of an arena's report, as a struct that can be encoded."""
        standing = report.standing
        return cls(
            task=report.task,
            window=report.window,
            revision=report.revision,
            size=report.size,
            closed_by=report.closed_by,
            start_time=rfc3339(report.start_time),
            end_time=rfc3339(report.end_time),
            pooled=report.pooled,
            comparisons=standing.comparisons,
            reference_model=standing.reference,
            judge_weight=rounded(standing.judge_weight),
            effective_comparisons=round(standing.effective_comparisons, 1),
            rank_level=standing.rank_level,
            models=tuple(map(_written, standing.models)),
            positions=report.positions,
        )

    def read(self) -> ArenaReport:
        """Return the report that the line describes. Its numbers are rounded as in the line."""
        models = (ModelStanding(e.model or "", e.result, e.rank, e.rank_chi_square) for e in self.models)
        weights = self.judge_weight, self.effective_comparisons, self.rank_level
        return ArenaReport.from_standing(
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
    estimate = MetricEstimate(METRIC, ESTIMATOR, one.coefficient, 0, *ranks)
    return msgspec.structs.replace(WrittenEstimate.from_estimate(estimate, rounded), model=one.model)

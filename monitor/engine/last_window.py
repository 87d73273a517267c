"""What is shown of a series between two windows: the last one's estimates and charts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from monitor.base.results import Estimate, Result, TooFew, Unknown
from monitor.reports.views import ChartView, ClassEstimate, MetricEstimate
from monitor.stats.charts.base import Verdict
from monitor.stats.pairwise.ranking import RankInterval


@dataclass(frozen=True, slots=True)
class LastWindow:
    """The last closed window, as far as exporters show it.

    Parameters
    ----------
    end_time : float
        Seconds since the epoch.
    estimates : tuple of MetricEstimate
    charts : tuple of ChartView
    classes : tuple of ClassEstimate
    """

    end_time: float
    estimates: tuple[MetricEstimate, ...]
    charts: tuple[ChartView, ...]
    classes: tuple[ClassEstimate, ...] = ()

    def snapshot(self) -> dict[str, Any]:
        """The window as plain values."""
        return {
            "end_time": self.end_time,
            "estimates": plain_estimates(self.estimates),
            "classes": [[e.metric, e.estimator, e.of_class, _plain(e.result)] for e in self.classes],
            "charts": [
                [c.metric, v.center, v.lower, v.upper, list(v.rules), v.out_of_control]
                for c in self.charts
                for v in (c.verdict,)
            ],
        }

    @classmethod
    def from_snapshot(cls, state: Mapping[str, Any]) -> LastWindow:
        """The window that a snapshot holds."""
        return cls(
            state["end_time"],
            estimates_from(state["estimates"]),
            tuple(
                ChartView(metric, Verdict(center, lower, upper, tuple(rules), out))
                for metric, center, lower, upper, rules, out in state["charts"]
            ),
            tuple(
                ClassEstimate(metric, tag, of_class, _result(found))
                for metric, tag, of_class, found in state.get("classes", ())
            ),
        )


def plain_estimates(estimates: Sequence[MetricEstimate]) -> list[list[Any]]:
    """Estimates as plain values."""
    return [[e.metric, e.estimator, _plain(e.result), *_more(e)] for e in estimates]


def _more(e: MetricEstimate) -> list[int]:
    """What few estimates have: labels, and ranks behind them, of which the second may be missing."""
    ranks = [end for rank in (e.rank, e.rank_chi_square) if rank for end in (rank.best, rank.worst)]
    return [e.labels, *ranks] if e.labels or ranks else []


def estimates_from(state: Sequence[Sequence[Any]]) -> tuple[MetricEstimate, ...]:
    """The estimates that `plain_estimates` gave."""
    return tuple(
        MetricEstimate(metric, tag, _result(found), *_of_few(*more)) for metric, tag, found, *more in state
    )


def _of_few(labels: int = 0, *ends: int) -> tuple[int, *tuple[RankInterval, ...]]:
    """What `_more` gave."""
    return labels, *(RankInterval(*ends[at : at + 2]) for at in range(0, len(ends), 2))


def _result(found: Sequence[Any]) -> Result:
    if not isinstance(found[0], str):
        return Estimate(*found)
    return Unknown(*found) if len(found) == 1 else TooFew(*found)


def _plain(result: Result) -> list[Any]:
    if isinstance(result, Unknown):
        return [str(result.reason), result.n] if isinstance(result, TooFew) else [str(result.reason)]
    return [result.value, result.lower, result.upper, result.level, result.n]

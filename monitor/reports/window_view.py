"""What is shown of one window of a series: estimates, charts, objectives, the calibration, the state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from monitor.base.names import AVERAGE_CONFIDENCE, CORRECTED
from monitor.base.results import Estimate, Result
from monitor.stats.charts.base import Verdict
from monitor.stats.pairwise.ranking import RankInterval


class SeriesState(StrEnum):
    """The state of a model, or of a group of one."""

    WARMING_UP = "warming_up"
    IN_CONTROL = "in_control"
    OUT_OF_CONTROL = "out_of_control"
    UNTRUSTED = "untrusted"
    SILENT = "silent"


class ObjectiveState(StrEnum):
    """Where the pooled interval, and the estimate in it, lie beside the floor or ceiling."""

    MET = "met"
    NOT_PROVEN = "not_proven"
    AT_RISK = "at_risk"
    BREACHED = "breached"


@dataclass(frozen=True, slots=True)
class MetricEstimate:
    """One estimator's answer for one metric of a window.

    Parameters
    ----------
    metric, estimator : str
    result : Estimate or Unknown
    labels : int
        Labelled rows that a `corrected` accuracy rests on beside the confidences, or that widen the interval
        of another metric; 0 if there are none.
    rank : RankInterval or None
        The ranks that the model may have among those of its refit, by Bonferroni's intervals; None where
        they are not ranked.
    rank_chi_square : RankInterval or None
        The same by the χ² set; None where it is not known how the models' errors go together.
    at_close : Estimate or None
        What a `corrected` accuracy was when the window closed, where later labels have revised it.
    """

    metric: str
    estimator: str
    result: Result
    labels: int = 0
    rank: RankInterval | None = None
    rank_chi_square: RankInterval | None = None
    at_close: Estimate | None = None


def leading_estimate(
    estimates: Iterable[MetricEstimate], metric: str, judged: str = AVERAGE_CONFIDENCE
) -> MetricEstimate | None:
    """Return the estimate of a metric that is shown first: corrected by labels where there are any.

    Parameters
    ----------
    estimates : iterable of MetricEstimate
        Of a window.
    metric : str
    judged : str
        The estimator that the chart judges, which is shown without labels.

    Examples
    --------
    >>> known = Estimate(0.9, 0.88, 0.92, 0.95, 500)
    >>> both = [MetricEstimate("accuracy", tag, known) for tag in ("average_confidence", "corrected")]
    >>> [leading_estimate(some, "accuracy").estimator for some in (both, both[:1])]
    ['corrected', 'average_confidence']
    """
    of_metric = {e.estimator: e for e in estimates if e.metric == metric}
    corrected = of_metric.get(CORRECTED)
    if corrected is not None and isinstance(corrected.result, Estimate):
        return corrected
    return of_metric.get(judged)


@dataclass(frozen=True, slots=True)
class ClassEstimate:
    """One estimator's answer for one class of a metric that is otherwise a mean over classes."""

    metric: str
    estimator: str
    of_class: str
    result: Result


@dataclass(frozen=True, slots=True)
class AlarmByLabels:
    """What labels say where they decide on the alarm of the accuracy: see `monitor.engine.label_alarm`.

    Parameters
    ----------
    value : float
        The corrected accuracy of the window and the four before it together.
    lower, upper : float
        The band within which the accuracy has not changed.
    labels : int
        Labelled rows of these windows.
    confidences_moved : bool
        Whether the chart of the confidences shows a change, which is no alarm then.
    """

    value: float
    lower: float
    upper: float
    labels: int
    confidences_moved: bool

    def __str__(self) -> str:
        where = "below" if self.value < self.lower else "above" if self.value > self.upper else "within"
        return (
            f"by {self.labels:,} labels the accuracy of the newest five windows is {self.value:.1%}, "
            f"{where} the {self.lower:.1%} to {self.upper:.1%} of the baseline"
        )


@dataclass(frozen=True, slots=True)
class ChartView:
    """What the control chart of one metric said of the last closed window.

    Parameters
    ----------
    metric : str
    verdict : Verdict
        Centre, limits and rules are those of the chart. Alarm and improvement are by labels where these
        decide.
    estimator : str
        Whose value the chart judges.
    by_labels : AlarmByLabels or None
        None where the estimates decide on the alarm.
    """

    metric: str
    verdict: Verdict
    estimator: str = "average_confidence"
    by_labels: AlarmByLabels | None = None

    @property
    def confidences_moved(self) -> bool:
        """Whether the confidences show a change on whose alarm labels decide."""
        return self.by_labels is not None and self.by_labels.confidences_moved


@dataclass(frozen=True, slots=True)
class ObjectiveView:
    """The objective of one metric: its bound, its state, and the pooled interval judged (None: unknown)."""

    metric: str
    bound: float
    is_floor: bool
    state: ObjectiveState | None
    pooled: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Rebaselined:
    """A new baseline that an operator asked for, by metric, and why."""

    metric: str
    reason: str


EXACT, PREDICTIVE = "poisson_binomial", "predictive"
"""What intervals hold: chance alone, or the calibration's error and what varies between windows too."""


@dataclass(frozen=True, slots=True)
class CovariatesView:
    """What a window's own calibration rests on: see `monitor.stats.calibration.covariates`.

    Parameters
    ----------
    effective_rows : float
        So many rows of the reference, weighted alike, would tell as much; 0 where nothing was fitted.
    missing, unseen : mapping of str to int
        By feature, the window's rows without it, and those with a text that no row of the reference has.
    """

    effective_rows: float
    missing: Mapping[str, int]
    unseen: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class CalibrationView:
    """The calibration that windows of a series use.

    Parameters
    ----------
    method : str
        Key in `monitor.stats.calibration.CALIBRATIONS`; where `auto` was asked for, the one that it chose.
    version : int
        Counts the fits, from 1; 0 where nothing was fitted.
    foreign : bool
        It was fitted on answers of another version of the model.
    fitted_time : float or None
        Newest record that it was fitted on, seconds since the epoch.
    interval : {"poisson_binomial", "predictive"}
        What the intervals that rest on it hold.
    short_reference : int or None
        Rows of a reference that is too short to learn what varies between windows; None where it is not.
    covariates : CovariatesView or None
        Of the newest closed window, where each has its own calibration.
    """

    method: str
    version: int
    foreign: bool
    fitted_time: float | None
    interval: str = EXACT
    short_reference: int | None = None
    covariates: CovariatesView | None = None


@dataclass(frozen=True, slots=True)
class Coverage:
    """How many audited batches of labelled rows lay in their interval: see `monitor.engine.labels.audit`.

    Parameters
    ----------
    ratio : float
        Share of the batches, 0 to 1.
    rows : int
        Labelled rows in those batches.
    level : float
        What the intervals claim.
    """

    ratio: float
    rows: int
    level: float

"""Parts of views and reports: estimates, charts, objectives, calibrations, and states of series."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from monitor.base.names import AVERAGE_CONFIDENCE, CORRECTED
from monitor.base.results import Estimate, RankInterval, Result
from monitor.stats.charts.base import Verdict


class SeriesState(StrEnum):
    """The state of a model or of one of its groups."""

    WARMING_UP = "warming_up"
    IN_CONTROL = "in_control"
    OUT_OF_CONTROL = "out_of_control"
    UNTRUSTED = "untrusted"
    SILENT = "silent"


class ObjectiveState(StrEnum):
    """The state of an objective: the result of comparing its pooled interval and estimate with its bound."""

    MET = "met"
    NOT_PROVEN = "not_proven"
    AT_RISK = "at_risk"
    BREACHED = "breached"


@dataclass(frozen=True, slots=True)
class MetricEstimate:
    """The result of one estimator for one metric of a window.

    Parameters
    ----------
    metric, estimator : str
    result : Estimate or Unknown
    labels : int
        Number of labelled rows that the estimate uses: those of a `corrected` accuracy, or those that widen
        the interval of another metric. 0 if it uses none.
    rank : RankInterval or None
        The possible ranks of the model among the models of its refit, by Bonferroni intervals. None if the
        models are not ranked.
    rank_chi_square : RankInterval or None
        The possible ranks by the χ² ellipsoid. None if the covariance of the models' errors is unknown.
    at_close : Estimate or None
        The `corrected` accuracy at the time when the window closed, if later labels have revised it;
        otherwise None.
    unit : str or None
        The unit of a metric of errors, such as minutes; ``""`` if it has no name. None for a ratio.
    """

    metric: str
    estimator: str
    result: Result
    labels: int = 0
    rank: RankInterval | None = None
    rank_chi_square: RankInterval | None = None
    at_close: Estimate | None = None
    unit: str | None = None


def leading_estimate(
    estimates: Iterable[MetricEstimate], metric: str, judged: str = AVERAGE_CONFIDENCE
) -> MetricEstimate | None:
    """Return the estimate of a metric to show first.

    The result is the estimate corrected by labels, or the estimate of `judged` if there is no corrected one.

    Parameters
    ----------
    estimates : iterable of MetricEstimate
        The estimates of a window.
    metric : str
    judged : str
        The estimator whose values the chart judges.

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
    """The result of one estimator for one class. A `MetricEstimate` of the metric is a mean over classes."""

    metric: str
    estimator: str
    of_class: str
    result: Result


@dataclass(frozen=True, slots=True)
class ConfusionView:
    """The expected confusion matrix of a window, without labels.

    Parameters
    ----------
    classes : tuple of str
        The K classes of the task.
    shares : tuple of tuple of Estimate or Unknown
        (K, K), true class by predicted class: the share of the true class among the answers of the predicted
        class, whose number is the estimate's `n`. A class that was not predicted has unknown shares.
    """

    classes: tuple[str, ...]
    shares: tuple[tuple[Result, ...], ...]


@dataclass(frozen=True, slots=True)
class AlarmByLabels:
    """The corrected accuracy, which decides about the accuracy's alarm if there are enough labels.

    Without enough labels, the chart of the estimates decides: see `monitor.engine.label_alarm`.

    Parameters
    ----------
    value : float
        The corrected accuracy over the window and the four windows before it.
    lower, upper : float
        The range of accuracies that count as unchanged.
    labels : int
        Number of labelled rows in these windows.
    confidences_moved : bool
        Whether the chart of the confidences shows a change. This change raises no alarm while labels decide.
    """

    value: float
    lower: float
    upper: float
    labels: int
    confidences_moved: bool

    def __str__(self) -> str:
        where = "below" if self.value < self.lower else "above" if self.value > self.upper else "within"
        return (
            f"by {self.labels:,} labels {self.value:.1%} are right in the newest five windows, "
            f"{where} the {self.lower:.1%} to {self.upper:.1%} of the baseline"
        )


@dataclass(frozen=True, slots=True)
class ChartView:
    """The verdict of one metric's control chart on the last closed window.

    Parameters
    ----------
    metric : str
    verdict : Verdict
        The chart's centre, limits and broken rules, with its alarm and improvement. Labels decide about the
        alarm and the improvement if `by_labels` is not None; otherwise the estimates decide.
    estimator : str
        The estimator whose values the chart judges.
    by_labels : AlarmByLabels or None
        The corrected accuracy if labels decide about the alarm; None if the estimates decide.
    unit : str or None
        The unit of the limits of a metric of errors, as in `MetricEstimate`; None for a ratio.
    """

    metric: str
    verdict: Verdict
    estimator: str = "average_confidence"
    by_labels: AlarmByLabels | None = None
    unit: str | None = None

    @property
    def confidences_moved(self) -> bool:
        """True if the confidences show a change that raises no alarm, because labels decide about it."""
        return self.by_labels is not None and self.by_labels.confidences_moved


@dataclass(frozen=True, slots=True)
class ObjectiveView:
    """The objective of one metric: its bound, its state, and its pooled interval (None if unknown).

    `unit` is the unit of a metric of errors, as in `MetricEstimate`; None for a ratio. `labels` is the number
    of labelled rows if they alone breach the objective of such a metric, and `pooled` is then their interval;
    otherwise 0.
    """

    metric: str
    bound: float
    is_floor: bool
    state: ObjectiveState | None
    pooled: tuple[float, float] | None = None
    unit: str | None = None
    labels: int = 0


@dataclass(frozen=True, slots=True)
class Rebaselined:
    """An operator's request for a new baseline of one metric, with the reason."""

    metric: str
    reason: str


@dataclass(frozen=True, slots=True)
class BaselineProgress:
    """The progress of a new baseline that an operator requested.

    Parameters
    ----------
    metric, reason : str
    windows, needed : int
        The number of windows that the baseline has, and the number that it needs.
    """

    metric: str
    reason: str
    windows: int
    needed: int

    def __str__(self) -> str:
        reason = f" ({self.reason})" if self.reason else ""
        return f"new baseline{reason}: {self.windows:,} of {self.needed:,} windows"


@dataclass(frozen=True, slots=True)
class SeasonView:
    """The state of the centre and limits by hour of the week of one metric's chart.

    Parameters
    ----------
    metric, time_zone : str
    waits : str
        The reason why there are none yet, with the date when they begin if it is known; ``""`` if there are.
    """

    metric: str
    time_zone: str
    waits: str = ""

    def __str__(self) -> str:
        if self.waits:
            return f"no limits by hour of the week yet: {self.waits}"
        return f"limits by hour of the week ({self.time_zone})"


EXACT, PREDICTIVE = "poisson_binomial", "predictive"
"""The kinds of interval: `EXACT` covers chance alone, `PREDICTIVE` also the calibration's error and the
variation between windows.
"""


@dataclass(frozen=True, slots=True)
class CovariatesView:
    """The data behind a calibration for one window: see `monitor.stats.calibration.covariates`.

    Parameters
    ----------
    effective_rows : float
        Number of equally weighted rows of the reference that would give as much information as the weighted
        rows of the fit; 0 if nothing was fitted.
    missing, unseen : mapping of str to int
        By feature: the number of rows of the window that lack the feature, and the number of rows whose value
        is beyond the reference (another text, or a number outside its range).
    """

    effective_rows: float
    missing: Mapping[str, int]
    unseen: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class CalibrationView:
    """The calibration that the windows of a series use.

    Parameters
    ----------
    method : str
        Key in `monitor.stats.calibration.CALIBRATIONS`. If `auto` is configured, it is the method that `auto`
        selected.
    version : int
        Number of the fit, from 1; 0 if nothing was fitted.
    foreign : bool
        Whether the calibration was fitted on answers of another version of the model.
    fitted_time : float or None
        Time of the newest record in the fit, seconds since the epoch; None if nothing was fitted.
    interval : {"poisson_binomial", "predictive"}
        The kind of the intervals around the calibrated estimates.
    short_reference : int or None
        Number of rows of the reference, if there are too few to estimate the variation between windows;
        otherwise None.
    covariates : CovariatesView or None
        The data behind the newest window's calibration, if a calibration is fitted for each window.
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
    """The measured coverage of intervals on batches of labelled rows: see `monitor.engine.labels.audit`.

    Parameters
    ----------
    ratio : float
        Share of the batches whose accuracy lies in their interval, 0 to 1.
    rows : int
        Number of labelled rows in the batches.
    level : float
        Nominal level of the intervals.
    """

    ratio: float
    rows: int
    level: float

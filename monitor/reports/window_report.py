"""The report of a closed window, and its JSON line. The same window always gives the same bytes.

The line is the public format of reports files. `WindowLine` and the structs in it define the names and the
order of the fields, the rounding of numbers, and how a line is read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import numpy as np

from monitor.base.names import AVERAGE_CONFIDENCE, DOUBLY_ROBUST, ClosedBy
from monitor.base.records import FIRST_MILLISECOND, LAST_MILLISECOND
from monitor.base.registry import SHARES
from monitor.base.results import Estimate, RankInterval, Result, TooFew, Unknown
from monitor.reports.attribution import Attribution
from monitor.reports.features import BrokenFeature
from monitor.reports.trust import ERRORS_TESTED, Trust, TrustLine, join_tests
from monitor.reports.views import (
    AlarmByLabels,
    CalibrationView,
    ChartView,
    ClassEstimate,
    CovariatesView,
    MetricEstimate,
    ObjectiveState,
    ObjectiveView,
    Rebaselined,
    TaskView,
)
from monitor.reports.window_view import EXACT
from monitor.stats.charts.base import Verdict

NOT_A_NUMBER = "not a number"
"""The reason of a result that replaces NaN or an infinity, which is an error of the estimator."""

_DECIMALS = 6  # a window of 1,000,000 rows moves an accuracy by 1e-6 a row; more digits would be noise
_EPOCH = datetime(1970, 1, 1)  # naive, because the offset is always UTC and isoformat is then faster


def _from_numpy(value: Any) -> Any:
    """Return a numpy scalar as a number of Python. Estimators compute with numpy."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"a window report holds plain numbers and text, got {type(value).__name__}")


_encode = msgspec.json.Encoder(enc_hook=_from_numpy).encode


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowReport:
    """The report of one closed window, with all fields of its JSON line.

    Parameters
    ----------
    task, model : str
    group : str
        ``""`` for the whole model, otherwise a group such as ``region=eu``.
    version : str
        The model's version; ``""`` if the records name none.
    window : int
        Number of the window, from 0, counted for each task, model and group.
    revision : int
        0 for the line that is written when the window closes. A later revision repeats the whole line, with
        the realised accuracy by all labels so far. The highest revision of a window is valid.
    size : int
        Rows in the window.
    closed_by : {"size", "age", "version", "end"}
        The reason why the window closed. `end` means that the input ended and the window is incomplete.
    start_time, end_time : float
        Times of the first and the last record, seconds since the epoch.
    calibration : CalibrationView
    estimates, charts, objectives : tuple
        The results of this window, as in `SeriesView`.
    positions : mapping of str to tuple of int
        The first and the last position of the window's records, by partition. If another agent used some of
        the records between them, the tuple contains the first and the last position of each contiguous range.
    rebaselined : tuple of Rebaselined
        Requests for new baselines since the previous window. Each baseline is computed from this window and
        later windows.
    trust : Trust or None
        The result of the test of trust, if labels contradicted the accuracy when the window closed; otherwise
        None.
    trust_in_errors : Trust or None
        The same for the metrics of errors in `values`.
    classes : tuple of ClassEstimate
        The estimates by class, for metrics that are estimated by class.
    attributions : tuple of Attribution
        The split of the change into parts, for each metric whose chart broke a rule in this window, or whose
        objective is breached.
    broken_features : tuple of BrokenFeature
        The faults of features in this window.
    values : tuple of MetricEstimate
        The metrics of errors, with their units; empty if predictions are no numbers.

    Attributes
    ----------
    line : bytes
        The result of `to_json`, or ``b""`` before the first call of `to_json`. All sinks and the store write
        this line. `dataclasses.replace` does not copy it.
    """

    task: str
    model: str
    group: str
    version: str
    window: int
    revision: int = 0
    size: int
    closed_by: ClosedBy
    start_time: float
    end_time: float
    calibration: CalibrationView
    estimates: tuple[MetricEstimate, ...] = ()
    charts: tuple[ChartView, ...] = ()
    objectives: tuple[ObjectiveView, ...] = ()
    positions: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    rebaselined: tuple[Rebaselined, ...] = ()
    trust: Trust | None = None
    classes: tuple[ClassEstimate, ...] = ()
    attributions: tuple[Attribution, ...] = ()
    broken_features: tuple[BrokenFeature, ...] = ()
    values: tuple[MetricEstimate, ...] = ()
    trust_in_errors: Trust | None = None
    line: bytes = field(default=b"", init=False, repr=False, compare=False)

    @property
    def share(self) -> str:
        """The name of the first estimated metric that is a share of right answers; accuracy without one."""
        return next((each.metric for each in self.estimates if each.metric in SHARES), SHARES[0])

    def known(self, metric: str, estimator: str) -> Estimate | None:
        """Return the estimate of a metric by an estimator; None if it is unknown."""
        for e in (*self.estimates, *self.values):
            if e.metric == metric and e.estimator == estimator and isinstance(e.result, Estimate):
                return e.result
        return None

    def task_view(self, before: TaskView | None) -> TaskView | None:
        """Return the view of the task after this window; None if the task's models have separate windows.

        Parameters
        ----------
        before : TaskView or None
            The view before this window; None if this window is the first one.
        """
        return None


def finite(result: Result) -> Result:
    """Return the result, or `Unknown` if one of its numbers is NaN or infinite.

    The agent passes each result through this function before export, because readers of JSON and Prometheus
    could mistake a NaN for a value.

    Examples
    --------
    >>> finite(Estimate(value=float("nan"), lower=0.0, upper=1.0, level=0.95, n=3))
    Unknown(reason='not a number')
    """
    if isinstance(result, Unknown):
        return result
    # A sum is not finite if any term is not; three tests would cost three times as much.
    return result if math.isfinite(result.value + result.lower + result.upper) else Unknown(NOT_A_NUMBER)


def rfc3339(seconds: float) -> str:
    """Format seconds since the epoch as RFC 3339 in UTC, rounded to milliseconds.

    The function never raises an error, because one invalid time must not stop the agent.

    Parameters
    ----------
    seconds : float
        The time. The format has only the years 1 to 9999. An earlier or later time is replaced by the nearest
        possible time, and NaN by the start of the year 1. Such results mislead, but they are rare, because
        the decoder rejects records with such times.

    Returns
    -------
    str
        24 characters. Sorted texts are in the order of time.

    Examples
    --------
    >>> rfc3339(1795168800.12), rfc3339(float("inf")), rfc3339(float("nan"))
    ('2026-11-20T10:00:00.120Z', '9999-12-31T23:59:59.999Z', '0001-01-01T00:00:00.000Z')
    """
    # NaN must be the second argument of `max`, which then returns the first.
    within = min(max(FIRST_MILLISECOND, float(seconds) * 1000), LAST_MILLISECOND)
    # Round to an integer first, because isoformat truncates digits and 0.12 is stored as 0.11999….
    return (_EPOCH + timedelta(milliseconds=round(within))).isoformat(timespec="milliseconds") + "Z"


def seconds_of(time: str) -> float:
    """Return the seconds since the epoch of a text that `rfc3339` wrote.

    The number is computed from whole milliseconds, so `rfc3339` of it gives the same text.
    """
    since = datetime.fromisoformat(time) - _EPOCH.replace(tzinfo=UTC)
    return since // timedelta(milliseconds=1) / 1000


def rounded(x: float) -> float:
    """Return a number rounded to six decimals, without a negative zero, as in JSON lines."""
    # + 0.0 turns -0.0 into 0.0. NaN and infinities stay, and the encoder writes them as null.
    return round(x, _DECIMALS) + 0.0


def significant(x: float) -> float:
    """Return a number with a unit, rounded to nine significant digits, as in JSON lines."""
    return float(f"{x:.9g}") + 0.0


class AtClose(msgspec.Struct, frozen=True):
    """An estimate at the time when its window closed, in the form of a JSON line."""

    value: float
    lower: float
    upper: float

    @classmethod
    def from_estimate(cls, estimate: Estimate, number: Callable[[float], float] = float) -> AtClose:
        """Return the estimate in its written form. `number` converts each number."""
        return cls(number(estimate.value), number(estimate.lower), number(estimate.upper))


class WrittenEstimate(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An estimate in JSON lines and messages: a value with its interval, or the reason why there is no value.

    `model` is set only in lines about several models, `of_class` only for an estimate of one class, and
    `unit` only for a metric of errors.
    """

    model: str | None = None
    of_class: str | None = msgspec.field(default=None, name="class")
    metric: str
    estimator: str
    unit: str | None = None
    unknown: str | None = None
    value: float = math.nan
    lower: float = math.nan
    upper: float = math.nan
    level: float = math.nan
    size: int | None = None
    labels: int = 0
    rank: RankInterval | None = None
    rank_chi_square: RankInterval | None = None
    at_close: AtClose | None = None

    def __post_init__(self) -> None:
        if self.unknown is None and self.size is None:
            raise ValueError(
                f"the estimate of {self.metric} by {self.estimator} has neither value nor reason"
            )

    @classmethod
    def from_estimate(cls, e: MetricEstimate, number: Callable[[float], float] = float) -> WrittenEstimate:
        """Return the estimate in its written form. `number` converts each number."""
        result = finite(e.result)
        if isinstance(result, Unknown):
            size = result.n if isinstance(result, TooFew) else None
            return cls(metric=e.metric, estimator=e.estimator, unit=e.unit, unknown=result.reason, size=size)
        return cls(
            metric=e.metric,
            estimator=e.estimator,
            unit=e.unit,
            value=number(result.value),
            lower=number(result.lower),
            upper=number(result.upper),
            level=number(result.level),
            size=result.n,
            labels=e.labels or 0,
            rank=e.rank,
            rank_chi_square=e.rank_chi_square,
            at_close=None if e.at_close is None else AtClose.from_estimate(e.at_close, number),
        )

    @property
    def result(self) -> Result:
        """The value with its interval, or the reason why there is no value."""
        if self.unknown is not None:
            return Unknown(self.unknown) if self.size is None else TooFew(self.unknown, self.size)
        return Estimate(self.value, self.lower, self.upper, self.level, self.size or 0)

    def read(self) -> MetricEstimate:
        """Return the estimate that this entry describes."""
        ranks = self.rank, self.rank_chi_square
        closed, before = self.at_close, None
        if closed is not None:
            before = Estimate(closed.value, closed.lower, closed.upper, self.level, self.size or 0)
        return MetricEstimate(
            self.metric, self.estimator, self.result, self.labels, *ranks, before, self.unit
        )


class CalibrationLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """The entry in a window's JSON line for the calibration."""

    method: str
    version: int
    foreign: bool = False
    interval: str | None = None
    effective_rows: float | None = None
    missing: dict[str, int] = {}
    unseen: dict[str, int] = {}

    @classmethod
    def from_view(cls, view: CalibrationView) -> CalibrationLine:
        """Return the entry of a window's JSON line for a calibration.

        Features without missing or unseen values are left out.
        """
        interval = None if view.interval == EXACT else view.interval
        line = cls(view.method, view.version, bool(view.foreign), interval)
        if (own := view.covariates) is None:
            return line
        missing, unseen = ({name: n for name, n in each.items() if n} for each in (own.missing, own.unseen))
        effective = rounded(own.effective_rows)
        return msgspec.structs.replace(line, effective_rows=effective, missing=missing, unseen=unseen)

    def read(self) -> CalibrationView:
        """Return the calibration that this entry describes. The time of its fit is missing."""
        own = None
        if self.effective_rows is not None:
            own = CovariatesView(self.effective_rows, self.missing, self.unseen)
        interval = self.interval or EXACT
        return CalibrationView(self.method, self.version, self.foreign, None, interval, covariates=own)


class AlarmByLabelsLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """The entry in a window's JSON line for the corrected accuracy, if it decides about an alarm.

    `confidences_moved` is left out if it is false.
    """

    value: float | None
    lower: float | None
    upper: float | None
    labels: int
    confidences_moved: bool = False

    @classmethod
    def from_view(cls, alarm: AlarmByLabels) -> AlarmByLabelsLine:
        """Return the entry of a window's JSON line for an alarm that labels decide."""
        numbers = rounded(alarm.value), rounded(alarm.lower), rounded(alarm.upper)
        return cls(*numbers, alarm.labels, alarm.confidences_moved)

    def read(self) -> AlarmByLabels:
        """Return the alarm that this entry describes. A null becomes NaN."""
        numbers = self.value, self.lower, self.upper
        value, lower, upper = (math.nan if one is None else one for one in numbers)
        return AlarmByLabels(value, lower, upper, self.labels, self.confidences_moved)


class ChartLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """The entry in a window's JSON line for the control chart of a metric.

    A limit that is not a number is written as None. `improved` is left out if it is false. `by_labels` is
    left out if the estimates decide about the alarm. `unit` is set only for a metric of errors.
    """

    metric: str
    center: float | None
    lower: float | None
    upper: float | None
    rules: tuple[str, ...]
    out_of_control: bool
    improved: bool = False
    by_labels: AlarmByLabelsLine | None = None
    unit: str | None = None

    @classmethod
    def from_view(cls, chart: ChartView) -> ChartLine:
        """Return the entry of a window's JSON line for a control chart."""
        v = chart.verdict
        number = rounded if chart.unit is None else significant
        limits = number(v.center), number(v.lower), number(v.upper)
        by_labels = None if chart.by_labels is None else AlarmByLabelsLine.from_view(chart.by_labels)
        return cls(chart.metric, *limits, v.rules, v.out_of_control, v.improved, by_labels, chart.unit)

    def read(self) -> ChartView:
        """Return the control chart that this entry describes. A limit of None becomes NaN."""
        limits = self.center, self.lower, self.upper
        center, lower, upper = (math.nan if limit is None else limit for limit in limits)
        verdict = Verdict(center, lower, upper, self.rules, self.out_of_control, self.improved)
        by_labels = None if self.by_labels is None else self.by_labels.read()
        estimator = AVERAGE_CONFIDENCE if self.unit is None else DOUBLY_ROBUST
        return ChartView(self.metric, verdict, estimator, by_labels, self.unit)


class ObjectiveLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """The entry in a window's JSON line for the objective of a metric; `unit` is as in `ChartLine`."""

    metric: str
    floor: float | None = None
    ceiling: float | None = None
    state: ObjectiveState | None = None
    unit: str | None = None

    @classmethod
    def from_view(cls, objective: ObjectiveView) -> ObjectiveLine:
        """Return the entry of a window's JSON line for an objective."""
        bound = rounded(objective.bound) if objective.unit is None else significant(objective.bound)
        floor, ceiling = (bound, None) if objective.is_floor else (None, bound)
        return cls(objective.metric, floor, ceiling, objective.state, objective.unit)

    def read(self) -> ObjectiveView:
        """Return the objective that this entry describes. Its pooled interval is missing."""
        bound = self.ceiling if self.floor is None else self.floor
        if bound is None:
            raise ValueError(f"the objective of {self.metric} has neither floor nor ceiling")
        return ObjectiveView(self.metric, bound, self.floor is not None, self.state, unit=self.unit)


class WindowLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The JSON line of a model's window. The fields are written in the order of this class."""

    task: str
    model: str
    group: str
    version: str
    window: int
    revision: int
    size: int
    closed_by: ClosedBy
    start_time: str
    end_time: str
    calibration: CalibrationLine
    estimates: tuple[WrittenEstimate, ...]
    classes: tuple[WrittenEstimate, ...] = ()
    values: tuple[WrittenEstimate, ...] = ()
    charts: tuple[ChartLine, ...]
    objectives: tuple[ObjectiveLine, ...]
    positions: Mapping[str, tuple[int, ...]]
    rebaselined: tuple[Rebaselined, ...] = ()
    untrusted: tuple[TrustLine, ...] = ()
    broken_features: tuple[BrokenFeature, ...] = ()
    attributions: tuple[Attribution, ...] = ()

    @classmethod
    def from_report(cls, report: WindowReport) -> WindowLine:
        """Return the JSON line of a report, as a struct that can be encoded."""
        lost = () if report.trust_in_errors is None else report.trust_in_errors.lost
        return cls(
            task=report.task,
            model=report.model,
            group=report.group,
            version=report.version,
            window=report.window,
            revision=report.revision,
            size=report.size,
            closed_by=report.closed_by,
            start_time=rfc3339(report.start_time),
            end_time=rfc3339(report.end_time),
            calibration=CalibrationLine.from_view(report.calibration),
            estimates=tuple([WrittenEstimate.from_estimate(e, rounded) for e in report.estimates]),
            classes=tuple([_of_class(e) for e in report.classes]),
            values=tuple([WrittenEstimate.from_estimate(e, significant) for e in report.values]),
            charts=tuple(map(ChartLine.from_view, report.charts)),
            objectives=tuple(map(ObjectiveLine.from_view, report.objectives)),
            positions=report.positions,
            rebaselined=tuple(report.rebaselined),
            untrusted=tuple(
                TrustLine.from_trust(metric, trust, rounding)
                for metric, trust, rounding in (
                    (report.share, report.trust, rounded),
                    *((each.metric, each, significant) for each in lost),
                )
                if trust is not None
            ),
            broken_features=report.broken_features,
            attributions=report.attributions,
        )

    @property
    def series(self) -> tuple[str, str, str]:
        """The task, model and group of the window."""
        return self.task, self.model, self.group

    def stretches(self, partition: str) -> list[tuple[int, int]]:
        """Return the (first, last) positions of each contiguous range of a partition that the window used.

        There are several ranges if another member of a consumer group read records between them.
        """
        ends = self.positions[partition]
        return list(zip(ends[::2], ends[1::2], strict=True))

    def read(self) -> WindowReport:
        """Return the report that this line describes. Its numbers are rounded as in the line."""
        return WindowReport(
            task=self.task,
            model=self.model,
            group=self.group,
            version=self.version,
            window=self.window,
            revision=self.revision,
            size=self.size,
            closed_by=self.closed_by,
            start_time=seconds_of(self.start_time),
            end_time=seconds_of(self.end_time),
            calibration=self.calibration.read(),
            estimates=tuple(e.read() for e in self.estimates),
            classes=tuple(
                ClassEstimate(e.metric, e.estimator, e.of_class or "", e.result) for e in self.classes
            ),
            charts=tuple(chart.read() for chart in self.charts),
            objectives=tuple(objective.read() for objective in self.objectives),
            positions=self.positions,
            rebaselined=self.rebaselined,
            trust=next((each.read() for each in self.untrusted if each.metric not in ERRORS_TESTED), None),
            trust_in_errors=join_tests(
                each.read() for each in self.untrusted if each.metric in ERRORS_TESTED
            ),
            attributions=self.attributions,
            broken_features=self.broken_features,
            values=tuple(e.read() for e in self.values),
        )


def _of_class(e: ClassEstimate) -> WrittenEstimate:
    written = WrittenEstimate.from_estimate(MetricEstimate(e.metric, e.estimator, e.result), rounded)
    return msgspec.structs.replace(written, of_class=e.of_class)


class RestoreMark(msgspec.Struct, frozen=True, kw_only=True):
    """A line that records that the state of a series was restored from a backup.

    Parameters
    ----------
    task, model, group : str
    window : int
        The number of the first window that may have been reported before the restore. This and later windows
        are reported again, perhaps with other rows.
    revision : int
        A number below the revision of every window. So a reader who keeps the highest revision of a window
        does not keep this line.
    backup_time : str
        The time of the backup, RFC 3339.
    """

    task: str
    model: str
    group: str
    kind: str = "restore"
    window: int
    revision: int = -1
    backup_time: str


def to_json(report: WindowReport) -> bytes:
    """Return one window as one line of JSON, without the newline.

    The same report always gives the same bytes. The order of the fields is fixed, numbers are rounded to six
    decimals, and times are in UTC, rounded to milliseconds. A limit that is not a number is written as null,
    and an estimate that is not a number as unknown. These fields are left out if they do not apply:

    - `state` of an objective that cannot be judged;
    - `labels` of an estimate that used no labels, and `rank` if models are not ranked;
    - `foreign` if the calibration was fitted on answers of this version of the model, and `interval` if its
      intervals are exact;
    - `classes` if no metric is estimated by class, and `values` if predictions are no numbers;
    - `rebaselined` if nobody requested a new baseline;
    - `untrusted` if labels contradict no estimate, and `broken_features` if no feature is broken;
    - `attributions` if no chart broke a rule and no objective is breached;
    - `improved` if a chart shows no improvement, and `by_labels` if labels do not decide about its alarm.

    Parameters
    ----------
    report : WindowReport

    Returns
    -------
    bytes
        UTF-8; characters that UTF-8 cannot encode (lone surrogates) are written as question marks.

    Examples
    --------
    >>> from monitor.reports.views import CalibrationView
    >>> window = WindowReport(task="toxicity", model="erm", group="", version="", window=0, size=500,
    ...     closed_by="size", start_time=0.0, end_time=60.5, calibration=CalibrationView("none", 0, False, None),
    ...     estimates=(MetricEstimate("auroc", "average_confidence", Unknown("one class only")),))
    >>> print(to_json(window).decode())
    {"task":"toxicity","model":"erm","group":"","version":"","window":0,"revision":0,"size":500,"closed_by":"size","start_time":"1970-01-01T00:00:00.000Z","end_time":"1970-01-01T00:01:00.500Z","calibration":{"method":"none","version":0},"estimates":[{"metric":"auroc","estimator":"average_confidence","unknown":"one class only"}],"charts":[],"objectives":[],"positions":{}}
    """  # noqa: E501 - the line is the thing shown
    if not report.line:
        # The line is the one field of the frozen report that is set after its creation.
        object.__setattr__(report, "line", encoded(WindowLine.from_report(report)))
    return report.line


def encoded(value: Any) -> bytes:
    """Return a value as JSON. Text that UTF-8 cannot encode is replaced by question marks."""
    try:
        return _encode(value)
    except UnicodeEncodeError:
        return _encode(_encodable(msgspec.to_builtins(value, enc_hook=_from_numpy)))


def revised(
    report: WindowReport,
    line: bytes,
    estimator: str,
    result: Result,
    corrected: MetricEstimate | None = None,
    errors: Callable[[str], Result] | None = None,
) -> WindowReport | None:
    """Return the next revision of a window with a new result of one estimator.

    The new line is a copy of the previous line. Only the changed fields are encoded again.

    Parameters
    ----------
    report : WindowReport
    line : bytes
        The result of `to_json` for the report.
    estimator : str
        The estimator whose estimates get the result.
    result : Result
    corrected : MetricEstimate, optional
        The new corrected estimate. It replaces the report's corrected estimate, whose first result is kept in
        `at_close`. If the report has no corrected estimate, the new one is inserted after the first estimate.
        If the first estimate of the same metric is unknown, the new one is ignored.
    errors : callable, optional
        Returns the estimator's new result for a metric of errors, by the metric's name.

    Returns
    -------
    WindowReport or None
        None if the new line, with rounded numbers, would equal the previous line.

    Examples
    --------
    >>> from monitor.reports.views import CalibrationView
    >>> window = WindowReport(task="t", model="erm", group="", version="", window=3, size=500,
    ...     closed_by="size", start_time=0.0, end_time=60.5,
    ...     calibration=CalibrationView("none", 0, False, None),
    ...     estimates=(MetricEstimate("accuracy", "realised", Unknown("no labels yet")),))
    >>> later = revised(window, to_json(window), "realised", Estimate(1.0, 0.2, 1.0, 0.95, 1))
    >>> later.revision, later.line == to_json(replace(later))
    (1, True)
    """
    estimates: list[MetricEstimate] = []
    values = report.values
    spliced = line
    if errors is not None:
        values = tuple(replace(e, result=errors(e.metric)) if e.estimator == estimator else e for e in values)
        for old, new in zip(report.values, values, strict=True):
            spliced = _spliced(spliced, [old], [new], significant)
    if corrected is not None and isinstance(_first_of(report, corrected.metric), Unknown):
        corrected = None
    known = {e.estimator for e in report.estimates}
    for before in report.estimates:
        after = [before]
        if before.estimator == estimator:
            after = [MetricEstimate(before.metric, estimator, result)]
        elif corrected is not None and before.estimator == corrected.estimator:
            after = [_revised(before, corrected)]
        elif corrected is not None and not estimates and corrected.estimator not in known:
            after = [before, corrected]
        estimates += after
        if after != [before]:
            spliced = _spliced(spliced, [before], after, rounded)
    if spliced == line:
        return None
    was, now = (b'"revision":%d,' % number for number in (report.revision, report.revision + 1))
    revision_report = replace(report, revision=report.revision + 1, estimates=tuple(estimates), values=values)
    object.__setattr__(revision_report, "line", spliced.replace(was, now, 1))
    return revision_report


def _spliced(
    line: bytes,
    before: list[MetricEstimate],
    after: list[MetricEstimate],
    number: Callable[[float], float],
) -> bytes:
    """Return the line with estimates replaced by others."""
    was, now = (
        b",".join(encoded(WrittenEstimate.from_estimate(e, number)) for e in some) for some in (before, after)
    )
    # No text contains these bytes, because JSON writes a backslash before each quote in a text.
    return line.replace(was, now, 1)


def _first_of(report: WindowReport, metric: str) -> Result | None:
    return next((e.result for e in report.estimates if e.metric == metric), None)


def _revised(before: MetricEstimate, after: MetricEstimate) -> MetricEstimate:
    """Return the later estimate with the first result attached; the former estimate if nothing changed."""
    was, now = (
        WrittenEstimate.from_estimate(replace(e, labels=0, at_close=None), rounded) for e in (before, after)
    )
    if was == now or not isinstance(before.result, Estimate):
        return before if was == now else after
    return replace(after, at_close=before.at_close or before.result)


def _encodable(value: Any) -> Any:
    """Return the same JSON value. Each text in it is valid in UTF-8."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_encodable(k): _encodable(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_encodable(v) for v in value]
    return value

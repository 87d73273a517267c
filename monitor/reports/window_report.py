"""A closed window as it is written down: one line of JSON, the same bytes for the same window.

The line is the contract with everyone who reads the reports file (SPEC, section 7), so this is the one
place that knows its field names, their order and how numbers are rounded.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import msgspec
import numpy as np

from monitor.base.names import ClosedBy
from monitor.base.records import FIRST_MILLISECOND, LAST_MILLISECOND
from monitor.base.results import Estimate, Result, TooFew, Unknown
from monitor.reports.trust import Trust, untrusted
from monitor.reports.views import (
    CalibrationView,
    ChartView,
    ClassEstimate,
    MetricEstimate,
    ObjectiveView,
    Rebaselined,
)
from monitor.reports.window_view import EXACT
from monitor.stats.pairwise.ranking import RankInterval

NOT_A_NUMBER = "not a number"
"""Reason given where an estimator answered NaN or an infinity: an error of the estimator, told as such."""

_DECIMALS = 6  # a window of 1,000,000 rows moves an accuracy by 1e-6 a row; more digits would be noise
_EPOCH = datetime(1970, 1, 1)  # naive, as the offset is always UTC and isoformat is faster so


def _from_numpy(value: Any) -> Any:
    """A numpy scalar as Python's own: estimators count and divide with numpy."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"a window report holds plain numbers and text, got {type(value).__name__}")


_encode = msgspec.json.Encoder(enc_hook=_from_numpy).encode


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowReport:
    """Everything that is written of one closed window.

    Parameters
    ----------
    task, model : str
    group : str
        ``""`` for the whole model, else ``region=eu``.
    version : str
        Of the model; ``""`` where the records name none.
    window : int
        Counts from 0 for each task, model and group.
    revision : int
        0 for the line written when the window closed, one more for each later one, which holds all of the
        former with the realised accuracy as it is by then: of the lines of a window, the highest counts.
    size : int
        Rows in the window.
    closed_by : {"size", "age", "version", "end"}
        `end`: the input ended, the window is incomplete.
    start_time, end_time : float
        Times of the first and the last record, seconds since the epoch.
    calibration : CalibrationView
    estimates, charts, objectives : tuple
        As in `SeriesView`.
    positions : mapping of str to tuple of int
        For each source partition, the first and the last position that the window used; where another
        agent used records in between, the first and the last of each stretch, in turn.
    rebaselined : tuple of Rebaselined
        New baselines that were asked for since the window before: the windows from this one on make them.
    trust : Trust or None
        Where labels contradict the accuracy: by how much, as known when the window closed.
    classes : tuple of ClassEstimate
        Where each class is estimated by itself.

    Attributes
    ----------
    line : bytes
        What `to_json` made of it, ``b""`` before: every sink and the store write the same line. It is not
        carried over by `dataclasses.replace`.
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
    line: bytes = field(default=b"", init=False, repr=False, compare=False)


def finite(result: Result) -> Result:
    """The result, or `Unknown` where any of its numbers is NaN or infinite.

    What leaves the agent passes through here: readers of JSON and of Prometheus take a NaN for a value.

    Examples
    --------
    >>> finite(Estimate(value=float("nan"), lower=0.0, upper=1.0, level=0.95, n=3))
    Unknown(reason='not a number')
    """
    if isinstance(result, Unknown):
        return result
    # A sum is not finite if any term is not, and three tests would cost three times as much.
    return result if math.isfinite(result.value + result.lower + result.upper) else Unknown(NOT_A_NUMBER)


def rfc3339(seconds: float) -> str:
    """Seconds since the epoch as RFC 3339 in UTC, rounded to milliseconds. It never raises.

    Parameters
    ----------
    seconds : float
        What lies outside the years 1 to 9999 becomes the nearest end of them, and NaN the beginning: the
        form has four digits for the year, and one odd time must not stop the agent. Such a line misleads
        who takes it for a moment; the decoder lets none in.

    Returns
    -------
    str
        24 characters, in the order of time.

    Examples
    --------
    >>> rfc3339(1795168800.12), rfc3339(float("inf")), rfc3339(float("nan"))
    ('2026-11-20T10:00:00.120Z', '9999-12-31T23:59:59.999Z', '0001-01-01T00:00:00.000Z')
    """
    # NaN is neither below nor above: it must be the second of `max`, which then keeps the first.
    within = min(max(FIRST_MILLISECOND, float(seconds) * 1000), LAST_MILLISECOND)
    # Rounded as an integer first: isoformat cuts digits off, and 0.12 is stored as 0.11999….
    return (_EPOCH + timedelta(milliseconds=round(within))).isoformat(timespec="milliseconds") + "Z"


def to_json(report: WindowReport) -> bytes:
    """One window as one line of JSON, without the newline.

    The same report gives the same bytes: fields stand in the order of SPEC section 7, numbers are
    rounded to six decimals, times to milliseconds in UTC. A field that does not apply is left out
    (`state` while an objective cannot be judged, `labels` where none moved an estimate's interval, `rank` where
    models are not ranked, `foreign` where the calibration is the model's own, `interval` where its intervals are
    exact, `classes` where none is estimated by itself, `rebaselined` where nobody asked for a new baseline,
    `untrusted` where labels contradict nothing); an estimate that is not a number is written as unknown, a limit
    as null.

    Parameters
    ----------
    report : WindowReport

    Returns
    -------
    bytes
        UTF-8; characters beyond it (lone surrogates) are written as question marks.

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
        object.__setattr__(report, "line", encoded(_fields(report)))  # frozen, but for this
    return report.line


def _fields(report: WindowReport) -> dict[str, Any]:
    """What the line holds, in its order."""
    line = {
        "task": report.task,
        "model": report.model,
        "group": report.group,
        "version": report.version,
        "window": report.window,
        "revision": report.revision,
        "size": report.size,
        "closed_by": report.closed_by,
        "start_time": rfc3339(report.start_time),
        "end_time": rfc3339(report.end_time),
        "calibration": _calibration(report.calibration),
        "estimates": [estimate_fields(e) for e in report.estimates],
        **({"classes": [_of_class(e) for e in report.classes]} if report.classes else {}),
        "charts": [_chart(c) for c in report.charts],
        "objectives": [_objective(o) for o in report.objectives],
        "positions": report.positions,
    }
    if report.rebaselined:
        line["rebaselined"] = [{"metric": r.metric, "reason": r.reason} for r in report.rebaselined]
    if report.trust is not None:
        line["untrusted"] = [untrusted("accuracy", report.trust)]
    return line


def encoded(value: Any) -> bytes:
    """A line's fields as JSON; text that is none in UTF-8 with question marks."""
    try:
        return _encode(value)
    except UnicodeEncodeError:
        return _encode(_encodable(value))


def revised(report: WindowReport, line: bytes, estimator: str, result: Result) -> WindowReport | None:
    """The next revision of a window, in which one estimator has another result.

    Its line is the former one but for the bytes that change: most of it is as it was.

    Parameters
    ----------
    report : WindowReport
    line : bytes
        What `to_json` makes of it.
    estimator : str
        Each of its estimates gets the result.
    result : Result

    Returns
    -------
    WindowReport or None
        None where the line would say what the former one says, as numbers are rounded there.

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
    estimates = tuple(
        MetricEstimate(e.metric, estimator, result) if e.estimator == estimator else e
        for e in report.estimates
    )
    spliced = line
    for before, after in zip(report.estimates, estimates, strict=True):
        if before is not after:
            # No text can hold these bytes: inside one, each quote has a backslash before it.
            spliced = spliced.replace(encoded(estimate_fields(before)), encoded(estimate_fields(after)), 1)
    if spliced == line:
        return None
    was, now = (b'"revision":%d,' % number for number in (report.revision, report.revision + 1))
    found = replace(report, revision=report.revision + 1, estimates=estimates)
    object.__setattr__(found, "line", spliced.replace(was, now, 1))
    return found


def _calibration(view: CalibrationView) -> dict[str, Any]:
    found: dict[str, Any] = {"method": view.method, "version": view.version}
    found |= {"foreign": True} if view.foreign else {}
    return found if view.interval == EXACT else found | {"interval": view.interval}


def estimate_fields(e: MetricEstimate) -> dict[str, Any]:
    """An estimate as lines have it."""
    result = finite(e.result)
    if isinstance(result, Estimate):
        return {
            "metric": e.metric,
            "estimator": e.estimator,
            "value": rounded(result.value),
            "lower": rounded(result.lower),
            "upper": rounded(result.upper),
            "level": rounded(result.level),
            "size": result.n,
            **({"labels": e.labels} if e.labels else {}),
            **rank_fields(e.rank, e.rank_chi_square),
        }
    size = {"size": result.n} if isinstance(result, TooFew) else {}
    return {"metric": e.metric, "estimator": e.estimator, "unknown": result.reason, **size}


def rank_fields(rank: RankInterval | None, chi_square: RankInterval | None) -> dict[str, dict[str, int]]:
    """Rank intervals as lines have them, those that there are.

    Examples
    --------
    >>> rank_fields(RankInterval(1, 2), None)
    {'rank': {'best': 1, 'worst': 2}}
    """
    named = {"rank": rank, "rank_chi_square": chi_square}
    return {name: {"best": r.best, "worst": r.worst} for name, r in named.items() if r is not None}


def _of_class(e: ClassEstimate) -> dict[str, Any]:
    return {"class": e.of_class} | estimate_fields(MetricEstimate(e.metric, e.estimator, e.result))


def _chart(chart: ChartView) -> dict[str, Any]:
    verdict = chart.verdict
    return {
        "metric": chart.metric,
        "center": rounded(verdict.center),
        "lower": rounded(verdict.lower),
        "upper": rounded(verdict.upper),
        "rules": verdict.rules,
        "out_of_control": verdict.out_of_control,
    }


def _objective(objective: ObjectiveView) -> dict[str, Any]:
    bound = {"floor" if objective.is_floor else "ceiling": rounded(objective.bound)}
    state = {} if objective.state is None else {"state": objective.state.value}
    return {"metric": objective.metric} | bound | state


def rounded(x: float) -> float:
    """A number as lines have it."""
    # + 0.0 turns -0.0 into 0.0. NaN and infinities pass: the encoder writes both as null.
    return round(x, _DECIMALS) + 0.0


def _encodable(value: Any) -> Any:
    """The same JSON value with every text fit for UTF-8."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, Mapping):
        return {_encodable(k): _encodable(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_encodable(v) for v in value]
    return value

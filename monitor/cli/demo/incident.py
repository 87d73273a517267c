"""The demo's incident: its alarm, the airport that the alarm named, the true accuracy, and the labels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np

from monitor.base.records import Ints
from monitor.base.results import Estimate
from monitor.cli.demo.stream import TASK, WINDOW_SIZE, DemoData
from monitor.cli.demo.training import INCIDENT
from monitor.export.charts.pictures import Alarm
from monitor.export.page.period import Period
from monitor.reports.attribution import sentence
from monitor.reports.window_report import WindowReport

_METRIC = "accuracy"
_NEW_YORK = 4 * 3600
"""The seconds by which New York's summer time is behind UTC."""

WHY = (
    "The alarm needs no label: a wrong feature makes a model that uses it less sure. Where it makes a model "
    "surer instead, only labels can tell."
)


@dataclass(frozen=True, slots=True)
class IncidentStory:
    """One model during the incident: its alarm, its estimates and its true accuracy.

    Parameters
    ----------
    model : str
    estimated, turned_out : tuple of float
        The estimated and the true accuracy at the incident's airport, 0 to 1, before and during the incident,
        over the same windows.
    alarm : Alarm or None
        The first alarm of the whole model's accuracy during the incident.
    where : str
        The parts of the stream, such as an airport, to which the window of the alarm attributed the change;
        empty without an alarm.
    labelled : tuple of float and int
        The accuracy of the labelled answers in the airport's windows during the incident, 0 to 1, and the
        number of these answers. Labels that arrived later are included.
    """

    model: str
    estimated: tuple[float, float]
    turned_out: tuple[float, float]
    alarm: Alarm | None
    where: str
    labelled: tuple[float, int]


def incident_time() -> tuple[float, float]:
    """Return the times when the incident began and was repaired, in seconds since the epoch."""
    first, repaired = (
        datetime.strptime(str(date), "%Y%m%d").replace(tzinfo=UTC).timestamp() + _NEW_YORK
        for date in (INCIDENT.first, INCIDENT.repaired)
    )
    return first, repaired


def incident_days() -> str:
    """Return the first and the last day of the incident in words.

    Examples
    --------
    >>> incident_days()
    'Tuesday, 3 September, to 9 September'
    """
    first, repaired = (datetime.fromtimestamp(time - _NEW_YORK, UTC) for time in incident_time())
    return f"{first:%A, %-d %B}, to {repaired - timedelta(days=1):%-d %B}"


def first_label(data: DemoData) -> float:
    """Return the time of the first label of the incident's flights, in seconds since the epoch."""
    first, repaired = incident_time()
    hit = (data.origin == data.origins.index(INCIDENT.origin)) & data.labelled
    return float(data.reported[hit & (data.time >= first) & (data.time < repaired)].min())


def incident_stories(data: DemoData, reports: Sequence[WindowReport]) -> Iterator[IncidentStory]:
    """Yield the story of each model.

    Parameters
    ----------
    data : DemoData
        The data of the weeks with the incident.
    reports : sequence of WindowReport
        All windows of these weeks.
    """
    group, (first, repaired) = f"origin={INCIDENT.origin}", incident_time()
    period = Period({TASK: "average_confidence"})
    period.add(reports)
    alarms = period.histories.alarms()
    closed = [report for report in reports if not report.revision]
    rows = np.flatnonzero(data.origin == data.origins.index(INCIDENT.origin))
    for column, model in enumerate(data.models):
        own = [report for report in closed if report.model == model]
        at_airport = [report for report in own if report.group == group and report.size == WINDOW_SIZE]
        before = [report for report in at_airport if report.end_time <= first]
        during = [
            report for report in at_airport if report.start_time >= first and report.end_time <= repaired
        ]
        parts = [(_estimated(each), _turned_out(data, column, rows, each)) for each in (before, during)]
        estimated, turned_out = zip(*parts, strict=True)
        raised = alarms.get((TASK, model, ""), {}).get(_METRIC, ())
        alarm = next((each for each in raised if first <= each.time <= repaired), None)
        numbers = {each.window for each in during}
        all_revisions = [each for each in reports if each.model == model and each.group == group]
        labelled = _labelled([each for each in all_revisions if each.window in numbers])
        yield IncidentStory(model, estimated, turned_out, alarm, _where(own, alarm), labelled)


def alarm_sentence(data: DemoData, story: IncidentStory) -> str:
    """Return a sentence on the alarm: which part changed, how long before the first label, and its end."""
    assert story.alarm is not None
    hours = (first_label(data) - story.alarm.time) / 3600
    ended = f"; in control again from {moment(story.alarm.ended_time)}" if story.alarm.ended_time else ""
    return f"{story.model}: {story.where}. The first label came {hours:.0f} hours later{ended}."


def moment(seconds: float) -> str:
    """Return a day and time in UTC.

    Examples
    --------
    >>> moment(1378232000.0)
    '3 September 18:13'
    """
    return datetime.fromtimestamp(seconds, UTC).strftime("%-d %B %H:%M")


def _estimated(reports: Sequence[WindowReport]) -> float:
    return float(np.mean([estimate.value for estimate in _accuracy(reports, "average_confidence")]))


def _labelled(reports: Sequence[WindowReport]) -> tuple[float, int]:
    """Return the share of right answers among the labelled ones, and their number, by newest revisions."""
    known = _accuracy(list({report.window: report for report in reports}.values()), "realised")
    rows = sum(estimate.n for estimate in known)
    return sum(estimate.value * estimate.n for estimate in known) / rows, rows


def _accuracy(reports: Sequence[WindowReport], estimator: str) -> list[Estimate]:
    return [
        each.result
        for report in reports
        for each in report.estimates
        if (each.metric, each.estimator) == (_METRIC, estimator) and isinstance(each.result, Estimate)
    ]


def _turned_out(data: DemoData, column: int, rows: Ints, reports: Sequence[WindowReport]) -> float:
    """Return the share of right answers among the windows' flights with a known outcome."""
    numbers = np.array([report.window for report in reports], dtype=np.int64)
    own = rows[(numbers[:, None] * WINDOW_SIZE + np.arange(WINDOW_SIZE)).ravel()]
    known = own[data.late[own] >= 0]
    return float(((data.scores[known, column] > 0.5) == (data.late[known] == 1)).mean())


def _where(reports: Sequence[WindowReport], alarm: Alarm | None) -> str:
    """Return the sentence on where the change is, from the window of a whole model's alarm."""
    named = (
        sentence(attribution)
        for report in reports
        if alarm is not None and not report.group and report.window == alarm.window
        for attribution in report.attributions
        if attribution.metric == _METRIC
    )
    return next(named, "")

"""The log of `run`: each change of an alarm, objective, trust or feature, and the counts of rejects.

An improvement, or a change of the confidences, is logged like an alarm. A reject is a record that could not
be used.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from monitor.base.names import AVERAGE_CONFIDENCE, DOUBLY_ROBUST
from monitor.base.records import Chunk, Reject
from monitor.base.results import Estimate
from monitor.export.sinks.sinks import AgentSinks, SinkSet
from monitor.reports import features
from monitor.reports.attribution import sentence as said_where
from monitor.reports.statements import RATIOS, error_sentence, three_digits
from monitor.reports.trust import ERRORS_TESTED, sentence
from monitor.reports.views import ChartView, EngineView, ObjectiveState, ObjectiveView
from monitor.reports.window_report import WindowReport, rfc3339

log = logging.getLogger("blindsight")

_REJECTS_SECONDS = 60.0  # limits the log if no record of a source can be used

_CALM = (ObjectiveState.MET, ObjectiveState.NOT_PROVEN)
_Place = tuple[str, str, str, str]
"""The task, model, group and metric of a chart."""


@dataclass(slots=True)
class _Unused:
    """The records of one source that could not be used since the last line about them."""

    said_at: float = -float("inf")
    reasons: Counter[str] = field(default_factory=Counter)
    first: str = ""


class Journal:
    """A log of alarms, improvements, objectives, trust, broken features, and records that could not be used.

    A line is logged when a state changes, and at most once a minute for the unusable records of a source. The
    log remembers only the present states of each series, so the limit on series bounds its memory. The log
    computes no values, because all values are in the reports.

    Parameters
    ----------
    clock : callable
        A monotonic clock: a function that returns seconds.

    Examples
    --------
    >>> journal = Journal()
    >>> journal.windows([])
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._alarmed: set[_Place] = set()
        self._improved: set[_Place] = set()
        self._moved: set[_Place] = set()
        self._standing: dict[_Place, ObjectiveState] = {}
        self._untrusted: set[_Place] = set()
        self._broken: dict[tuple[str, str, str], set[tuple[str, str]]] = {}
        self._unused: dict[str, _Unused] = {}

    def resume(self, engine: EngineView) -> None:
        """Start from the state before a restart, so that nothing is logged twice."""
        for one in engine.series:
            series = (one.task, one.model, one.group)
            self._alarmed.update((*series, metric) for metric in one.alarmed_since)
            self._improved.update((*series, chart.metric) for chart in one.charts if chart.verdict.improved)
            self._moved.update((*series, chart.metric) for chart in one.charts if chart.confidences_moved)
            for objective in one.objectives:
                if objective.state is not None:
                    self._standing[*series, objective.metric] = objective.state
            if one.contradicted:
                self._untrusted.add((*series, one.share))
            if (in_errors := one.lost_trust_in_errors) is not None:
                self._untrusted.update((*series, each.metric) for each in in_errors.lost)
            self._broken[series] = {(each.feature, each.fault) for each in one.broken_features}

    def windows(self, reports: Sequence[WindowReport]) -> None:
        """Log the changes of state in closed windows, and the counts of rejects that are due.

        The agent calls this method every second, even without windows. Revisions are ignored, because they
        repeat the charts and objectives of the time when the window closed.
        """
        for report in reports:
            if report.revision:
                continue
            for chart in report.charts:
                self._chart(report, chart)
            for objective in report.objectives:
                self._objective(report, objective)
            self._trust(report)
            self._features(report)
        self._log_unused(_REJECTS_SECONDS)

    def rejects(self, chunk: Chunk) -> None:
        """Count records that could not be used, and log the counts at most once a minute for each source."""
        unused = self._unused.setdefault(chunk.source, _Unused())
        for reject in chunk.rejects:
            unused.first = unused.first or _place_of(reject)
            unused.reasons[reject.reason.value] += 1
        self._log_unused(_REJECTS_SECONDS)

    def close(self) -> None:
        """Log the rejects that have not been logged yet."""
        self._log_unused(0.0)

    def _chart(self, report: WindowReport, chart: ChartView) -> None:
        place = (report.task, report.model, report.group, chart.metric)
        alarm, improved = chart.verdict.out_of_control, chart.verdict.improved
        if improved != (place in self._improved):
            (self._improved.add if improved else self._improved.discard)(place)
            self._log_chart(report, chart, logging.INFO, "Improved" if improved else "No longer improved")
        if alarm != (place in self._alarmed):
            (self._alarmed.add if alarm else self._alarmed.discard)(place)
            level, words = (logging.WARNING, "raised") if alarm else (logging.INFO, "released")
            self._log_chart(report, chart, level, f"Alarm {words}")
        if chart.by_labels is None:
            self._moved.discard(place)  # alarm and improvement cover it
        elif chart.confidences_moved != (place in self._moved):
            (self._moved.add if chart.confidences_moved else self._moved.discard)(place)
            words = "Confidences moved" if chart.confidences_moved else "Confidences no longer moved"
            self._log_chart(report, chart, logging.INFO, words)

    def _log_chart(self, report: WindowReport, chart: ChartView, level: int, words: str) -> None:
        verdict = chart.verdict
        log.log(
            level,
            "%s: %s; limits %s%s%s%s.",
            words,
            _what(report, chart.metric, chart.estimator),
            _limits(chart),
            f"; broken: {', '.join(verdict.rules)}" if verdict.rules else "",
            "" if chart.by_labels is None else f"; {chart.by_labels}",
            _where(report, chart.metric),
        )

    def _trust(self, report: WindowReport) -> None:
        in_errors = report.trust_in_errors
        lost_by = {each.metric: each for each in in_errors.lost} if in_errors is not None else {}
        for metric, lost, words in (
            (report.share, report.trust, partial(sentence, share=report.share)),
            *((metric, lost_by.get(metric), partial(error_sentence, report)) for metric in ERRORS_TESTED),
        ):
            place = (report.task, report.model, report.group, metric)
            if (lost is None) == (place not in self._untrusted):
                continue
            if lost is None:
                self._untrusted.discard(place)
                log.info("Trusted again: %s.", _what(report, metric))
            else:
                self._untrusted.add(place)
                log.warning("Not trusted: %s; %s.", _what(report, metric), words(lost))

    def _features(self, report: WindowReport) -> None:
        place = report.task, report.model, report.group
        before = self._broken.get(place, set())
        broken: set[tuple[str, str]] = {(each.feature, each.fault) for each in report.broken_features}
        if broken == before:
            return
        self._broken[place] = broken
        where = f"model {report.model}, task {report.task}, window {report.window}"
        if new := [each for each in report.broken_features if (each.feature, each.fault) not in before]:
            log.warning("Feature broken: %s; %s.", where, features.sentence(new))
        for feature, fault in sorted(before - broken):
            log.info("Feature normal again: %s; %s was %s.", where, feature, fault.replace("_", " "))

    def _objective(self, report: WindowReport, objective: ObjectiveView) -> None:
        place = (report.task, report.model, report.group, objective.metric)
        # An objective that is met from its first window on is not logged.
        before = self._standing.get(place, ObjectiveState.MET)
        if objective.state is None or objective.state is before:
            return
        self._standing[place] = objective.state
        log.log(
            logging.INFO if objective.state in _CALM else logging.WARNING,
            "Objective %s: %s: %s over the windows pooled; its %s is %.4g%s%s.",
            objective.state.value.replace("_", " "),
            _which(report, objective.metric),
            " to ".join(_numbers(objective.unit, *objective.pooled)) if objective.pooled else "unknown",
            "floor" if objective.is_floor else "ceiling",
            objective.bound,
            _unit(objective.unit),
            _where(report, objective.metric),
        )

    def _log_unused(self, pause_seconds: float) -> None:
        now = self._clock()
        for source, unused in self._unused.items():
            if not unused.reasons or now - unused.said_at < pause_seconds:
                continue
            total = unused.reasons.total()
            counts = ", ".join(f"{count} {reason}" for reason, count in unused.reasons.most_common())
            were = "record was" if total == 1 else "records were"
            log.warning("%s: %d %s not used (%s). The first: %s", source, total, were, counts, unused.first)
            self._unused[source] = _Unused(said_at=now)


def _where(report: WindowReport, metric: str) -> str:
    """Return a semicolon and the parts of the window that changed the metric most; ``""`` if unknown."""
    return "".join(f"; {said_where(each)}" for each in report.attributions if each.metric == metric)


def _place_of(reject: Reject) -> str:
    """Return the place of a reject, and its fault if that may be logged."""
    return f"{reject.partition}, position {reject.position}{': ' if reject.message else ''}{reject.message}"


def _which(report: WindowReport, metric: str) -> str:
    """Return the series, the metric and the window as text."""
    names = [report.task, report.model, *([report.group] if report.group else []), metric]
    return f"{', '.join(names)}, window {report.window} (until {rfc3339(report.end_time)})"


def _what(report: WindowReport, metric: str, estimator: str = AVERAGE_CONFIDENCE) -> str:
    """Return the series, the metric, the window and its estimate as text."""
    value = "unknown"
    for each in (*report.estimates, *report.values):
        shown, result = estimator if each.unit is None else DOUBLY_ROBUST, each.result
        if (each.metric, each.estimator) == (metric, shown) and isinstance(result, Estimate):
            number, lower, upper = _numbers(each.unit, result.value, result.lower, result.upper)
            value = f"{number} ({lower} to {upper}){_unit(each.unit)}"
    return f"{_which(report, metric)}: {value}"


def _limits(chart: ChartView) -> str:
    verdict = chart.verdict
    lower, upper, center = _numbers(chart.unit, verdict.lower, verdict.upper, verdict.center)
    return f"{lower} to {upper}{_unit(chart.unit)} around {center}"


def _numbers(unit: str | None, *values: float) -> list[str]:
    """Format ratios with four decimals, and numbers in a unit with three digits."""
    return [f"{value:.4f}" for value in values] if unit in RATIOS else three_digits(*values)


def _unit(unit: str | None) -> str:
    return "" if unit in RATIOS else f" {unit}".rstrip()


class JournalSinks(AgentSinks):
    """Sinks that also pass all windows and rejects to a journal.

    Parameters
    ----------
    sinks : SinkSet
    journal : Journal
    watch : callable, optional
        The same as for `AgentSinks`.
    """

    def __init__(
        self,
        sinks: SinkSet,
        journal: Journal,
        watch: Callable[[Sequence[WindowReport]], None] | None = None,
    ) -> None:
        super().__init__(sinks, watch)
        self._journal = journal

    def reports(self, reports: Sequence[WindowReport]) -> None:
        """Log the changes in closed windows, and pass the windows on to the sinks."""
        self._journal.windows(reports)
        super().reports(reports)

    def rejects(self, chunk: Chunk) -> None:
        """Log records that could not be used, and pass the records on to the sinks."""
        self._journal.rejects(chunk)
        super().rejects(chunk)

    def close(self) -> None:
        """Log the remaining rejects, and close the sinks."""
        self._journal.close()
        super().close()

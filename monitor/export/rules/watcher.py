"""Alerts on the agent itself: whoever watches models must be watched."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from monitor.export.rules.alerts import Alert
from monitor.export.rules.pace import Pace
from monitor.export.rules.promql import REPLICA, Scope, parted, without
from monitor.export.rules.quality import LAST_SECONDS, last

_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86_400.0
_KEEP_SECONDS = 15 * _MINUTE

_LEAST_LAG_RECORDS = 1000  # two windows of the default size: less is no lag, but what is under way
_LEAST_LABELS = 50  # in an hour: of fewer, half may miss by chance
_COLLAPSED = 0.5  # of the day before
_REJECTED_SHARE = 0.01
_LEAST_REJECTED = 10  # in ten minutes
_FAILED_REFITS = 1.5  # two: `increase` extrapolates a little to either side

_SOURCE = "{{ with $labels.source }}Source {{ . }}{{ end }}{{ with $labels.task }}Task {{ . }}{{ end }}"


def agent_alerts(scope: Scope) -> list[Alert]:
    """Those that know no window."""
    return [
        *_down(scope),
        _lag_growing(scope),
        _labels_not_joined(scope),
        _rejected(scope),
        _shed(scope),
        _unaccounted(scope),
    ]


def paced_alerts(scope: Scope, pace: Pace) -> list[Alert]:
    """Those that wait for windows, or for refits."""
    found = [_no_window_closed(scope, pace), _refit_failing(scope, pace)]
    return [replace(alert, task=pace.task) for alert in found]


def _down(scope: Scope) -> list[Alert]:
    """One that is gone is a warning; where none is left, the models' alerts mean nothing.

    A target that service discovery took away leaves no `up` behind: absence counts where all of them are.
    """
    up = f"up{{{scope.selector}}}"
    silent = scope.over("max_over_time", 2 * _MINUTE, up)
    shared: dict[str, Any] = {
        "name": "BlindsightAgentDown",
        "for_seconds": 3 * _MINUTE,
        "keep_seconds": 5 * _MINUTE,
    }
    none_left = f"{without('max', REPLICA, silent)} == 0\nor\n"
    none_known = f"{scope.over('absent_over_time', 5 * _MINUTE, up)} == 1"
    return [
        Alert(
            **shared,
            severity="critical",
            expr=none_left + none_known,
            summary="No Blindsight agent answers.",
            description="No agent of job {{ $labels.job }} could be scraped for five minutes: nobody watches "
            "its models, and what their alerts say is old.",
        ),
        Alert(
            **shared,
            severity="warning",
            expr=f"{silent} == 0",
            summary="A Blindsight agent does not answer.",
            description="{{ $labels.instance }} of job {{ $labels.job }} could not be scraped for five "
            "minutes.",
        ),
    ]


def _no_window_closed(scope: Scope, pace: Pace) -> Alert:
    """Over all replicas: where traffic is shared out, one of them may well have none.

    Where no model has ever been seen there is no count of windows that could stand still, but an agent.
    """
    periods = 2 * pace.slowest_seconds
    agent = replace(scope, task="").series("build_info")

    def closed(function: str, seconds: float, offset: float = 0.0) -> str:
        names = ("windows_closed_total", "arena_windows_closed_total")
        return "\nor\n".join(scope.over(function, seconds, scope.series(name), offset) for name in names)

    stands_still = f"{without('sum', REPLICA, closed('increase', periods))} == 0"
    known = without("sum", REPLICA, closed("last_over_time", LAST_SECONDS, periods))
    before = scope.over("last_over_time", LAST_SECONDS, agent, offset_seconds=periods)
    running = without("max", f"{REPLICA}, version", f"{before} and {agent}")
    seen = without("max", REPLICA, closed("last_over_time", LAST_SECONDS))
    none_ever = f"{running}\nunless ignoring (task, model) {seen}"
    return Alert(
        name="BlindsightNoWindowClosed",
        severity="warning",
        expr=f"{stands_still}\nand\n{known}\nor\n{parted(none_ever)}",
        for_seconds=5 * _MINUTE,
        keep_seconds=_KEEP_SECONDS,
        summary="No window of a model, or of an arena, has closed for two periods.",
        description="{{ with $labels.model }}Model {{ . }}{{ else }}Any model{{ end }}"
        "{{ with $labels.task }}, task {{ . }}{{ end }}: no window has closed for twice as long as one takes "
        "at most. What is shown is old.",
    )


def _lag_growing(scope: Scope) -> Alert:
    """The least of the last ten minutes is above the most of ten minutes before them: growth, not noise."""
    lag = scope.series("source_lag_records")
    now = scope.over("min_over_time", 10 * _MINUTE, lag)
    before = scope.over("max_over_time", 10 * _MINUTE, lag, offset_seconds=20 * _MINUTE)
    return Alert(
        name="BlindsightLagGrowing",
        severity="warning",
        expr=f"{now} > {before}\nand\n{now} > {_LEAST_LAG_RECORDS}",
        for_seconds=10 * _MINUTE,
        keep_seconds=_KEEP_SECONDS,
        summary="An agent does not keep up with its source.",
        description="Source {{ $labels.source }} of {{ $labels.instance }}: {{ $value | humanize }} records "
        "wait, more than half an hour ago.",
    )


def _labels_not_joined(scope: Scope) -> Alert:
    """Of labels that were tried: those that wait for ever get no outcome, so that their number counts too."""

    def joined(seconds: float, offset: float) -> str:
        matched = scope.series("labels_total", 'outcome=~"matched|conflicting"')
        return without("sum", f"{REPLICA}, outcome", scope.over("increase", seconds, matched, offset))

    def tried(seconds: float, offset: float) -> str:
        ended = scope.series("labels_total", 'outcome=~"matched|conflicting|expired|rejected"')
        waiting = scope.over("delta", seconds, scope.series("labels_waiting"), offset)
        return (
            without("sum", f"{REPLICA}, outcome", scope.over("increase", seconds, ended, offset))
            + " + "
            + without("sum", REPLICA, waiting)
        )

    now = f"{joined(_HOUR, 0.0)} / {parted(tried(_HOUR, 0.0))}"
    before = f"{joined(_DAY, _HOUR)} / {parted(tried(_DAY, _HOUR))}"
    return Alert(
        name="BlindsightLabelJoinCollapsed",
        severity="warning",
        expr=f"{now}\n< {_COLLAPSED:g} * {parted(before)}\nand\n{tried(_HOUR, 0.0)} >= {_LEAST_LABELS}",
        for_seconds=15 * _MINUTE,
        keep_seconds=_KEEP_SECONDS,
        summary="Labels no longer find their predictions.",
        description="Task {{ $labels.task }}: {{ $value | humanizePercentage }} of the last hour's labels "
        "found their prediction, less than half of what did the day before.",
    )


def _rejected(scope: Scope) -> Alert:
    rejected = scope.over("increase", 10 * _MINUTE, scope.series("rejected_total"))
    received = scope.over("increase", 10 * _MINUTE, scope.series("answers_received_total"))
    bad = without("sum", f"{REPLICA}, reason", rejected)
    all_received = without("sum", REPLICA, received)
    return Alert(
        name="BlindsightAnswersRejected",
        severity="warning",
        expr=f"{bad} / {all_received} > {_REJECTED_SHARE:g}\nand\n{bad} > {_LEAST_REJECTED}",
        # Longer than the range, or one bad minute would fire.
        for_seconds=15 * _MINUTE,
        keep_seconds=_KEEP_SECONDS,
        summary="Answers come in that cannot be used.",
        description="Source {{ $labels.source }}: {{ $value | humanizePercentage }} of the last ten minutes' "
        "answers were rejected; the rejects sink and the log say why.",
    )


def _shed(scope: Scope) -> Alert:
    answers = scope.over("increase", 5 * _MINUTE, scope.series("shed_total"))
    labels = scope.over("increase", 5 * _MINUTE, scope.series("labels_total", 'outcome="shed"'))
    all_answers, all_labels = without("sum", REPLICA, answers), without("sum", f"{REPLICA}, outcome", labels)
    return Alert(
        name="BlindsightAnswersShed",
        severity="warning",
        expr=f"{all_answers} > 0\nor\n{all_labels} > 0",
        # Longer than the range, or one burst would fire.
        for_seconds=10 * _MINUTE,
        keep_seconds=_KEEP_SECONDS,
        summary="Answers or labels are dropped unread.",
        description=f"{_SOURCE}: about {{{{ $value | humanize }}}} answers or labels were dropped within "
        "five minutes, because there was no room for them.",
    )


def _refit_failing(scope: Scope, pace: Pace) -> Alert:
    """The failures themselves must still be there: a task that is gone would fire on for the whole range."""
    failed = scope.series("refit_failures_total")
    lately = scope.over("increase", pace.refit_seconds, failed)
    there = scope.over("last_over_time", LAST_SECONDS, failed)
    failures = without("sum", REPLICA, f"{lately}\nand\n{there}")
    good = without("max", REPLICA, last(scope, "refit_last_success_timestamp_seconds"))
    within = f"{scope.seconds(pace.refit_seconds):g}"
    return Alert(
        name="BlindsightRefitFailing",
        severity="warning",
        expr=f"{failures} > {_FAILED_REFITS:g}\nunless\ntime() - {good} < {within}",
        for_seconds=5 * _MINUTE,
        keep_seconds=_KEEP_SECONDS,
        summary="Refits from labels fail again and again.",
        description="Task {{ $labels.task }}: about {{ $value | humanize }} refits failed and none brought "
        "anything to publish. The last good one holds, and grows old.",
    )


def _unaccounted(scope: Scope) -> Alert:
    """Per agent: what came less what became of it. Series that were cut cannot be summed."""

    def total(name: str, labels: str) -> str:
        # A shorter look back than elsewhere: what has ended must not be counted for long.
        values = scope.over("last_over_time", 5 * _MINUTE, scope.series(name))
        return f"sum without ({labels}) ({values})"

    received = total("answers_received_total", "source")

    def used(name: str, labels: str) -> str:
        # Absent where nothing is scored, or nothing compared, which would take the whole sum away.
        return parted(f"{total(name, labels)}\nor\n0 * {received}")

    scored = ("predictions_total", "answers_pending", "duplicates_total")
    compared = ("comparisons_total", "comparisons_pending", "comparison_duplicates_total")
    answers = "\n- ".join(
        [
            received,
            *(used(name, "task, model") for name in scored),
            *(used(name, "task") for name in compared),
            total("rejected_total", "source, reason"),
            total("shed_total", "source"),
        ]
    )
    labels = "\n- ".join(
        [
            total("labels_received_total", "source"),
            total("labels_total", "task, outcome"),
            total("labels_waiting", "task"),
        ]
    )
    unless_cut = f"\nunless\n{last(scope, 'series_dropped_total')} > 0"
    return Alert(
        name="BlindsightAccountingBroken",
        severity="warning",
        expr=f"{parted(f'{parted(answers)} != 0{unless_cut}')}\nor\n{parted(labels)} != 0",
        for_seconds=10 * _MINUTE,
        keep_seconds=_KEEP_SECONDS,
        summary="Answers or labels came that nothing became of.",
        description="{{ $labels.instance }}: {{ $value | humanize }} more answers or labels were received "
        "than were used, kept, or counted as not used. That is a fault of the agent.",
    )

"""Alerts on the models: objectives, control charts, estimates that mislead, ranks that are lost."""

from __future__ import annotations

from dataclasses import replace

from monitor.export.rules.alerts import Alert
from monitor.export.rules.pace import Pace
from monitor.export.rules.promql import REPLICA, Scope, duration, without

LAST_SECONDS = 900.0
"""A gauge's last value stands for so long where scrapes fail: they must not reset `for`, nor resolve."""

_RANKED_SECONDS = 86_400.0  # so long ago at most a model of an arena had its coefficient
_RULES_SECONDS = 86_400.0
"""A latched chart broke a rule among its last eight windows; a day holds them, and a quiet night too."""

_WHO = "{{ $labels.metric }} of model {{ $labels.model }}, task {{ $labels.task }}"
_GROUP = "{{ with $labels.group }}, group {{ . }}{{ end }}"


def quality_alerts(scope: Scope, pace: Pace) -> list[Alert]:
    """Those of a pace; they wait for two windows, and stay for two more.

    None says anything of a model that is warming up: there is nothing yet to hold it against.
    """
    wait = 2 * pace.window_seconds
    found = [_breached, _at_risk, _out_of_control, _untrusted, _unranked]
    return [replace(alert(scope, wait), task=pace.task) for alert in found]


def last(scope: Scope, name: str, *matchers: str) -> str:
    """The newest value of each series of the last quarter of an hour."""
    return scope.over("last_over_time", LAST_SECONDS, scope.series(name, *matchers))


def _warm(scope: Scope, condition: str, group: str = "") -> str:
    """A condition on a model, or on groups, where it is not warming up.

    A model that has gone silent shows that state instead: it had still been warming up where no chart
    had been drawn.
    """
    warming = last(scope, f"{group}state", 'state="warming_up"')
    silent = last(scope, f"{group}state", 'state="silent"')
    charted = last(scope, f"{group}out_of_control")
    return without(
        "max",
        f"{REPLICA}, state",
        f"{condition}\n"
        f"unless ignoring (metric, state) {warming} == 1\n"
        f"unless ignoring (metric, state) ({silent} == 1 unless ignoring (metric, state) {charted})",
    )


def _or_group(of_model: str, of_group: str) -> str:
    return f"{of_model}\nor\n{of_group}"


def _breached(scope: Scope, wait: float) -> Alert:
    breached = last(scope, "objective_state", 'state="breached"')
    return Alert(
        name="BlindsightObjectiveBreached",
        severity="critical",
        expr=_warm(scope, f"{breached} == 1"),
        for_seconds=wait,
        keep_seconds=wait,
        summary="A model does not meet its objective.",
        description=f"{_WHO} is on the wrong side of its objective ({_objective(scope)}) with its whole "
        f"interval, pooled over the last windows. Estimates of the last window:{_estimates(scope)}.",
    )


def _at_risk(scope: Scope, wait: float) -> Alert:
    """Breached is at risk too: else the warning would resolve on the way down."""
    worse = 'state=~"at_risk|breached"'
    model, group = (
        _warm(scope, f"{last(scope, f'{prefix}objective_state', worse)} == 1", prefix)
        for prefix in ("", "group_")
    )
    return Alert(
        name="BlindsightObjectiveAtRisk",
        severity="warning",
        expr=_or_group(model, group),
        for_seconds=wait,
        keep_seconds=wait,
        summary="A model or a group of its requests may not meet its objective.",
        description=f"{_WHO}{_GROUP} may be on the wrong side of its objective ({_objective(scope)}): the "
        "interval, pooled over the last windows, reaches there.",
    )


def _out_of_control(scope: Scope, wait: float) -> Alert:
    """By rule of the chart, while its alarm is latched."""

    def expr(prefix: str) -> str:
        broken = scope.over("increase", _RULES_SECONDS, scope.series(f"{prefix}control_violations_total"))
        alarm = last(scope, f"{prefix}out_of_control")
        return without("max", REPLICA, f"{broken} > 0\nand ignoring (rule) {alarm} == 1")

    return Alert(
        name="BlindsightOutOfControl",
        severity="warning",
        expr=_or_group(expr(""), expr("group_")),
        for_seconds=wait,
        keep_seconds=wait,
        summary="A control chart says that a model has changed.",
        description=f"{_WHO}{_GROUP} is out of control by rule {{{{ $labels.rule }}}}, which about "
        f"{{{{ $value | humanize }}}} windows of the last {duration(scope.seconds(_RULES_SECONDS))} broke. "
        "The alarm is latched until eight windows in a row are in control.",
    )


def _untrusted(scope: Scope, wait: float) -> Alert:
    return Alert(
        name="BlindsightEstimateUntrusted",
        severity="warning",
        expr=_warm(scope, f"{last(scope, 'estimate_trusted')} == 0"),
        for_seconds=wait,
        keep_seconds=wait,
        summary="Labels contradict what is estimated without them.",
        description=f"{_WHO} is not what the estimate says: the share of labelled answers that were right, "
        f"less what was promised for them:{_bias(scope)}. Go by the realised values until it is calibrated "
        "anew.",
    )


def _unranked(scope: Scope, wait: float) -> Alert:
    """Only of a model that had been ranked: a new one waits for its first verdicts."""
    unknown = without("max", f"{REPLICA}, reason", f"{last(scope, 'arena_unknown')} == 1")
    ranked = scope.over("last_over_time", _RANKED_SECONDS, scope.series("arena_coefficient"))
    return Alert(
        name="BlindsightModelUnranked",
        severity="warning",
        expr=f"{unknown}\nand\n{without('max', REPLICA, ranked)}",
        for_seconds=wait,
        keep_seconds=wait,
        summary="A model of an arena has lost its rank.",
        description="Model {{ $labels.model }} of arena {{ $labels.task }} had a coefficient within the last "
        f"{duration(scope.seconds(_RANKED_SECONDS))} and has none any more; blindsight_arena_unknown says "
        "why.",
    )


def _asked(scope: Scope, name: str, shown: str, labels: str = "task=%q,model=%q,metric=%q") -> str:
    """A template that looks a value up when the alert fires: values belong in no label."""
    series = f"blindsight_{name}{{{scope.selector},{labels}}}"
    values = scope.over("last_over_time", LAST_SECONDS, series)
    wanted = "$labels.task $labels.model $labels.metric"
    order = ' | sortByLabel "estimator"' if "estimator" in shown else ""
    return f"{{{{ range query (printf `{_of_replicas(values)}` {wanted}){order} }}}}{shown}{{{{ end }}}}"


def _of_replicas(values: str) -> str:
    """The greatest among replicas, on one line."""
    return f"max without ({REPLICA}) ({values})"


def _objective(scope: Scope) -> str:
    return _asked(scope, "objective_ratio", "{{ .Value | humanizePercentage }}")


def _estimates(scope: Scope) -> str:
    shown = " {{ .Labels.estimator }} {{ .Value | humanizePercentage }}"
    return _asked(scope, "estimate_ratio", shown)


def _bias(scope: Scope) -> str:
    return _asked(scope, "estimate_bias_ratio", " {{ .Value | humanizePercentage }}")

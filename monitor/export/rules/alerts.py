"""The alerts: `alerts.yaml` holds them as PromQL and templates; here they are made for a user's agents."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from monitor.export.rules.pace import Pace
from monitor.export.rules.promql import REPLICA, Scope, duration, seconds_of
from monitor.export.rules.settings import RuleSettings

_FILLED_IN = re.compile(r"<(\w+)>")


@dataclass(frozen=True, slots=True)
class Alert:
    """One alerting rule.

    Parameters
    ----------
    name : str
        ``Blindsight…``; the page of `deploy/runbooks` that explains it has the same name.
    severity : {"critical", "warning"}
        Critical wakes somebody; a warning waits until the morning.
    expr : str
        PromQL. What it leaves of the labels is the alert's identity: no pod, no window, no value.
    for_seconds : float
        How long it must hold before the alert fires.
    keep_seconds : float
        How long the alert fires on once it no longer holds, or nobody can tell.
    summary : str
        A sentence without templates.
    description : str
        A template of Prometheus: who, how much.
    task : str
        The only task that it is about, where tasks differ in their pace. As a label it changes no alert, but
        keeps two rules of one name apart.
    """

    name: str
    severity: Literal["critical", "warning"]
    expr: str
    for_seconds: float
    keep_seconds: float
    summary: str
    description: str
    task: str = ""


@dataclass(frozen=True, slots=True)
class Group:
    """Alerts that are evaluated together."""

    name: str
    alerts: tuple[Alert, ...]


def rule_groups(settings: RuleSettings) -> tuple[Group, ...]:
    """The alerts on models and on the agent; those that wait for windows once for each pace of the tasks.

    Examples
    --------
    >>> for group in rule_groups(RuleSettings()):
    ...     print(group.name, len({alert.name for alert in group.alerts}))
    blindsight-models 5
    blindsight-agent 9
    """
    groups: dict[str, list[Alert]] = {}
    for entry in _written()["alerts"]:
        for pace in settings.paces if entry.get("each_pace") else (Pace(),):
            groups.setdefault(entry["group"], []).append(_alert(entry, settings.scope(pace), pace))
    return tuple(Group(name, tuple(alerts)) for name, alerts in groups.items())


@cache
def _written() -> dict[str, Any]:
    # Not at the top: who only reads the rules needs no YAML.
    import yaml

    text = files("monitor.export.rules").joinpath("alerts.yaml").read_text(encoding="utf-8")
    written: dict[str, Any] = yaml.safe_load(text)
    return written


def _alert(entry: dict[str, Any], scope: Scope, pace: Pace) -> Alert:
    times = {
        "two_windows": 2 * pace.window_seconds,
        "two_periods": 2 * pace.slowest_seconds,
        "refits": pace.refit_seconds,
    }
    values = {name: duration(scope.seconds(seconds)) for name, seconds in times.items()}
    values["refit_seconds"] = f"{scope.seconds(pace.refit_seconds):g}"
    values |= {"replica": REPLICA, "selector": scope.selector, "agents": scope.agents}

    def real_seconds(name: str) -> float:
        return times[name] if name in times else seconds_of(name)

    return Alert(
        name=entry["name"],
        severity=entry["severity"],
        expr=_filled(entry["expr"], values, scope),
        for_seconds=real_seconds(entry["for"]),
        keep_seconds=real_seconds(entry["keep"]),
        summary=entry["summary"],
        description=_filled(entry["description"], values, scope),
        task=pace.task,
    )


def _filled(text: str, values: dict[str, str], scope: Scope) -> str:
    """With everything in angle brackets filled in; the lines of a piece stand as far in as its first."""
    pieces = _written()["pieces"]
    lines = []
    for line in text.split("\n"):
        margin = line[: len(line) - len(line.lstrip())]

        def value(match: re.Match[str], margin: str = margin) -> str:
            name = match[1]
            if name in pieces:
                return _filled(pieces[name], values, scope).replace("\n", f"\n{margin}")
            return values[name] if name in values else duration(scope.seconds(seconds_of(name)))

        lines.append(_FILLED_IN.sub(value, line))
    return "\n".join(lines)

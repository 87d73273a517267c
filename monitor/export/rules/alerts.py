"""What an alert is, before it is written down for anyone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


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
    """Alerts that are evaluated together.

    Parameters
    ----------
    name : str
    alerts : tuple of Alert
    """

    name: str
    alerts: tuple[Alert, ...]

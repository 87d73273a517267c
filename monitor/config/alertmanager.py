"""The section `alertmanager`: the Alertmanagers to which the agent sends alerts."""

from __future__ import annotations

import re
from collections.abc import Iterable

from pydantic import Field, model_validator

from monitor.config.access import HttpAccess
from monitor.config.section import Problem, demand, unique, without_login

_URL = re.compile(r"https?://[^\s/@?#]+(?:/(?!api/v2/alerts)[^\s?#]*)?")
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_OWN_LABELS = ("alertname", "severity", "task", "model", "group", "metric")


class Alertmanager(HttpAccess):
    """The Alertmanagers to which the agent sends alerts directly, without rules in Prometheus."""

    urls: tuple[str, ...] = Field(
        min_length=1,
        description="http://host:port of each Alertmanager of the cluster; the agent sends to all.",
        examples=[["https://alertmanager.example:9093"]],
    )
    resend_seconds: float = Field(
        default=60.0,
        ge=1,
        le=600,
        description="Time after which the agent sends an alert again. Alertmanager ends an alert that was "
        "not sent again for four times this time.",
        examples=[30],
    )
    labels: dict[str, str] = Field(
        default={"job": "blindsight"},
        description="Additional labels of every alert.",
        examples=[{"job": "models"}],
    )
    runbooks: str = Field(
        default="deploy/runbooks",
        min_length=1,
        description="The part of runbook_url before /NAME.md. If absent and export.external_url is set, "
        "the agent's own pages.",
        examples=["https://wiki.example/runbooks"],
    )
    external_url: str | None = Field(
        default=None,
        min_length=1,
        description="The public address of the page, for generatorURL. If absent, export.external_url, or "
        "else http:// (https:// with export.tls) and export.listen.",
        examples=["https://blindsight.example"],
    )

    @model_validator(mode="after")
    def _fits(self) -> Alertmanager:
        demand(self._problems())
        return self

    def _problems(self) -> Iterable[Problem | None]:
        yield unique("urls", [without_login(url) for url in self.urls])
        yield from map(_an_alertmanager, self.urls)
        yield from map(_a_label, self.labels)
        yield from self._access_problems("among urls", self.urls)


def _an_alertmanager(url: str) -> Problem | None:
    """Return a problem if a text is not the address of an Alertmanager."""
    if _URL.fullmatch(url):
        return None
    return "urls", (
        "expected addresses such as 'http://127.0.0.1:9093', without a user, a query and /api/v2/alerts, "
        f"got {without_login(url)!r}"
    )


def _a_label(name: str) -> Problem | None:
    """Return a problem if a text is not a valid name of a label."""
    if _LABEL.fullmatch(name) and name not in _OWN_LABELS:
        return None
    own = ", ".join(_OWN_LABELS)
    return "labels", (
        f"expected names of letters, digits and underscores other than {own}, which the alerts have "
        f"themselves, got {name!r}"
    )

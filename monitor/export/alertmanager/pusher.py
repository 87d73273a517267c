"""Tells one Alertmanager of the alerts that are on, again and again, by its API of version 2."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from monitor.config.alertmanager import Alertmanager
from monitor.export.alertmanager.holding import holding, rule
from monitor.export.alertmanager.ledger import AlertLedger, Told
from monitor.export.page.addresses import external_address
from monitor.export.push.access import Access, Endpoint
from monitor.export.push.pusher import Pusher
from monitor.export.rules import RuleSettings
from monitor.reports.views import AgentView

ALERTMANAGER = Endpoint("alertmanager", "urls", "the alerts", "labels, or the address")

_LOOK_SECONDS = 1.0


class AlertPusher(Pusher):
    """Looks at the agent every second, and keeps one Alertmanager informed; its items are alerts.

    After an outage Alertmanager hears of everything that is on, and of what ended meanwhile. When the agent
    stops, what is on stays on for four intervals more: a restart is no recovery.

    Parameters
    ----------
    url : str
        Of the Alertmanager, without ``/api/v2/alerts``.
    settings : Alertmanager
    view : callable
        Gives the newest view.
    page : str
        Address of the agent's page, for `generatorURL`.
    rules : RuleSettings
        Where the runbooks are, and the address of the page from outside.
    patience_seconds : callable
        How long two windows of a task take: see `AlertLedger`.
    name : str
        The label `sink` of the metrics.
    """

    def __init__(
        self,
        url: str,
        settings: Alertmanager,
        view: Callable[[], AgentView],
        page: str,
        rules: RuleSettings,
        patience_seconds: Callable[[str], float],
        name: str = "alertmanager",
    ) -> None:
        super().__init__(name, Access(settings, ALERTMANAGER), url, "alerts", seconds=_LOOK_SECONDS)
        self._url = url
        self._settings = settings
        self._look_at = view
        self._page, self._rules = page, rules
        self._ledger = AlertLedger(settings.resend_seconds, patience_seconds)

    def push(self, now: float) -> None:
        view = self._look_at()
        closed = {(s.task, s.model, s.group): s.windows_closed for s in view.engine.series}
        self._ledger.look(holding(view), closed, now)
        due = self._ledger.due(now)
        self._waiting = self._ledger.waiting
        if due:
            body = json.dumps([self._body(told) for told in due]).encode()
            self._access.post(self._url.rstrip("/"), body, self._timeout, path="/api/v2/alerts")
            self._ledger.delivered(due, now)
            self._delivered += len(due)
            self._waiting = self._ledger.waiting
            self._succeeded()

    def _body(self, told: Told) -> dict[str, Any]:
        identity = dict(told.identity)
        own_page = {}
        if self._rules.external_url:
            names = {name: identity.get(name, "") for name in ("task", "model", "group", "metric")}
            own_page = {"page_url": external_address(self._rules.external_url, **names)}
        return {
            "labels": {**self._settings.labels, **identity},
            "annotations": {
                "summary": rule(told.name).summary,
                "description": told.text,
                "runbook_url": self._rules.runbook_url(told.name),
                **own_page,
            },
            "startsAt": _rfc3339(told.starts),
            "endsAt": _rfc3339(told.ends),
            "generatorURL": self._settings.external_url or self._page,
        }


def _rfc3339(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")

"""Sends active alerts to one Alertmanager, by version 2 of its API."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

from monitor.config.alertmanager import Alertmanager
from monitor.export.alertmanager.holding import active_conditions, closed_windows
from monitor.export.alertmanager.ledger import AlertLedger, PushedAlert
from monitor.export.page.addresses import external_address
from monitor.export.push.access import Access, Endpoint
from monitor.export.push.pusher import Pusher
from monitor.export.rules import RuleSettings, with_links
from monitor.reports.views import AgentView

ALERTMANAGER = Endpoint("alertmanager", "urls", "the alerts", "labels, or the address")

_LOOK_SECONDS = 1.0


class AlertPusher(Pusher):
    """A thread that checks the alert conditions every second, and sends alerts to one Alertmanager.

    All alerts are sent when one has changed, and otherwise every `resend_seconds`. After an outage,
    Alertmanager receives all active alerts, and the alerts that ended during the outage. When the agent
    stops, alerts stay active for four times `resend_seconds`, because a restart does not mean that a problem
    is solved.

    Parameters
    ----------
    url : str
        Address of the Alertmanager, without ``/api/v2/alerts``.
    settings : Alertmanager
    view : callable
        A function that returns the agent's newest state.
    page : str
        Address of the agent's page, for `generatorURL`.
    rules : RuleSettings
        The addresses of the runbooks and of the public page.
    patience_seconds : callable
        A function from the name of a task to the time that two of its windows take, in seconds: see
        `AlertLedger`.
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
        self._newest_view = view
        self._page, self._rules = page, rules
        self._ledger = AlertLedger(settings.resend_seconds, patience_seconds)

    def push(self, now: float) -> None:
        """Send the alerts that are due."""
        view = self._newest_view()
        self._ledger.update(active_conditions(view), closed_windows(view), now)
        due = self._ledger.due(now)
        self._waiting = self._ledger.waiting
        if due:
            body = json.dumps([self._body(alert) for alert in due]).encode()
            self._access.post(self._url.rstrip("/"), body, self._timeout, path="/api/v2/alerts")
            self._ledger.delivered(due, now)
            self._delivered += len(due)
            self._waiting = self._ledger.waiting
            self._succeeded()

    def _body(self, alert: PushedAlert) -> dict[str, Any]:
        identity = dict(alert.identity)
        names = {name: identity.get(name, "") for name in ("task", "model", "group", "metric")}
        page = external_address(self._rules.external_url, **names) if self._rules.external_url else ""
        query = urlencode(
            {key: names[key] for key in ("task", "model", "group") if names[key]}, errors="replace"
        )
        runbook = self._rules.runbook_url(alert.name, f"?{query}")
        return {
            "labels": {**self._settings.labels, **identity},
            "annotations": {
                "summary": str(alert.statement),
                "description": with_links(alert.statement.explanation, page, runbook),
                "runbook_url": runbook,
                **({"page_url": page} if page else {}),
            },
            "startsAt": _rfc3339(alert.starts),
            "endsAt": _rfc3339(alert.ends),
            "generatorURL": self._settings.external_url or self._page,
        }


def _rfc3339(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")

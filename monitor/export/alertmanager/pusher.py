"""Tells one Alertmanager of the alerts that are on, again and again, by its API of version 2."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from monitor.base.errors import SinkError
from monitor.config.alertmanager import Alertmanager
from monitor.export.alertmanager.access import Access
from monitor.export.alertmanager.holding import holding, rule
from monitor.export.alertmanager.ledger import AlertLedger, Told
from monitor.export.sinks.destination import CLOSE_SECONDS
from monitor.reports.views import AgentView, SinkView

log = logging.getLogger("blindsight")

_LOOK_SECONDS = 1.0
_TIMEOUT_SECONDS = 5.0
_LONGEST_WAIT_SECONDS = 30.0


class AlertPusher:
    """A thread that looks at the agent every second, and keeps one Alertmanager informed.

    It waits for nobody and nobody waits for it. Nothing is queued: what is told is how things stand, so
    that after an outage Alertmanager hears of everything that is on, and of what ended meanwhile.

    Parameters
    ----------
    url : str
        Of the Alertmanager, without ``/api/v2/alerts``.
    settings : Alertmanager
    view : callable
        Gives the newest view.
    page : str
        Address of the agent's page, for `generatorURL`.
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
        patience_seconds: Callable[[str], float],
        name: str = "alertmanager",
    ) -> None:
        self._url = url
        self._settings = settings
        self._look_at = view
        self._page = page
        self._name = name
        self._ledger = AlertLedger(settings.resend_seconds, patience_seconds)
        self._access = Access(settings)
        self._delivered = self._waiting = 0
        self._trouble: str | None = None
        self._failing_since: float | None = None
        self._wait, self._timeout = _LOOK_SECONDS, _TIMEOUT_SECONDS
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"blindsight-{name}", daemon=True)

    @property
    def view(self) -> SinkView:
        """How it stands, as one of the agent's sinks; items are alerts."""
        return SinkView(self._name, self._waiting, self._delivered, 0, self._trouble, self._failing_since)

    def start(self) -> None:
        """Begin; an Alertmanager that is away is waited for.

        Raises
        ------
        SinkError
            A file of its login or of its certificates cannot be used.
        """
        self._access.check()
        self._thread.start()

    def stop(self) -> None:
        """Tell what is new, and end, within two seconds.

        What is on stays on for four intervals more: a restart is no recovery.
        """
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(2 * _LOOK_SECONDS)

    def _run(self) -> None:
        while not self._stopping.wait(self._wait):
            try:
                self._step(time.time())
            except SinkError as error:
                self._failed(str(error))
            except Exception as error:
                log.exception("alertmanager.urls: telling %s has failed; it is tried again.", self._url)
                self._failed(str(error))
        self._timeout = CLOSE_SECONDS
        if self._trouble is None:
            # What the last windows brought; what cannot be told now is told after the next start.
            with suppress(SinkError):
                self._step(time.time())

    def _step(self, now: float) -> None:
        view = self._look_at()
        closed = {(s.task, s.model, s.group): s.windows_closed for s in view.engine.series}
        self._ledger.look(holding(view), closed, now)
        due = self._ledger.due(now)
        self._waiting = self._ledger.waiting
        if due:
            self._post([self._body(told) for told in due])
            self._ledger.delivered(due, now)
            self._delivered += len(due)
            self._waiting = self._ledger.waiting
            self._succeeded()

    def _body(self, told: Told) -> dict[str, Any]:
        return {
            "labels": {**self._settings.labels, **dict(told.identity)},
            "annotations": {
                "summary": rule(told.name).summary,
                "description": told.text,
                "runbook_url": f"{self._settings.runbooks.rstrip('/')}/{told.name}.md",
            },
            "startsAt": _rfc3339(told.starts),
            "endsAt": _rfc3339(told.ends),
            "generatorURL": self._settings.external_url or self._page,
        }

    def _post(self, alerts: Sequence[dict[str, Any]]) -> None:
        url = f"{self._url.rstrip('/')}/api/v2/alerts"
        self._access.post(url, json.dumps(alerts).encode(), self._timeout)

    def _failed(self, why: str) -> None:
        if self._trouble is None:
            self._failing_since = time.time()
            log.warning("%s; it is tried again, with all that is on by then", why)
        self._trouble = why
        self._wait = min(2 * self._wait, _LONGEST_WAIT_SECONDS)

    def _succeeded(self) -> None:
        if self._trouble is not None:
            log.warning("%s takes alerts again", self._url)
        self._trouble = self._failing_since = None
        self._wait = _LOOK_SECONDS


def _rfc3339(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")

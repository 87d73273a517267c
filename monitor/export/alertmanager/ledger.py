"""The ledger of active alerts, which decides what to send to Alertmanager and when."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from monitor.export.alertmanager.holding import Condition, Identity
from monitor.reports.statements import Statement

RESOLVED_SECONDS = 300.0
"""The time for which a resolved alert is sent, because Alertmanager may have been down when it ended."""

_LIVES_RESENDS = 4
"""The number of resend intervals after which Alertmanager ends an alert that is not sent again."""

_WINDOWS = 2


@dataclass(frozen=True, slots=True)
class PushedAlert:
    """An alert in the form that Alertmanager receives.

    Parameters
    ----------
    identity : Identity
        The labels that identify the alert.
    name : str
    statement : Statement
        The sentences of the alert.
    starts, ends : float
        Seconds since the epoch; `ends` of an active alert lies in the future.
    """

    identity: Identity
    name: str
    statement: Statement
    starts: float
    ends: float


@dataclass(frozen=True, slots=True)
class _Entry:
    condition: Condition  # its newest form
    windows: int  # closed windows when the condition was first true
    seen: float  # the time at which the condition was first true
    held: float  # the time at which the condition was last true
    fired: float | None = None
    resolved: float | None = None
    delivered: bool = True  # Alertmanager knows the present state

    @property
    def task(self) -> str:
        return dict(self.condition.labels)["task"]


class AlertLedger:
    """The part of the pusher that decides when alerts begin, end and are sent, without a clock or a network.

    A condition that is `patient` becomes an alert when it is true in two windows, and the alert ends when the
    condition is false in two windows. If no window follows because answers stop, the time of two windows is
    enough. Other conditions begin and end an alert at once. A condition that is also `at_once` begins it at
    once.

    In the first update, all true conditions become alerts at once. After a restart, they were probably alerts
    before, and an alert must be sent again before it expires in Alertmanager.

    Parameters
    ----------
    resend_seconds : float
        Time between two deliveries of the same alert.
    patience_seconds : callable
        A function from the name of a task to the time that two windows of the task take, in seconds.

    Examples
    --------
    >>> ledger = AlertLedger(60.0, lambda task: 1800.0)
    >>> ledger.update([], {}, now=0.0)
    >>> who = (("task", "t"), ("model", "m"))
    >>> low = Condition("BlindsightObjectiveBreached", who, Statement("t/m", "too low"), windows=7)
    >>> ledger.update([low], {("t", "m", ""): 7}, now=1.0)
    >>> ledger.due(now=1.0)
    []
    >>> ledger.update([replace(low, windows=8)], {("t", "m", ""): 8}, now=2.0)
    >>> [(str(alert.statement), alert.starts, alert.ends) for alert in ledger.due(now=2.0)]
    [('t/m: too low', 2.0, 242.0)]
    """

    def __init__(self, resend_seconds: float, patience_seconds: Callable[[str], float]) -> None:
        self._resend = resend_seconds
        self._patience = patience_seconds
        self._entries: dict[Identity, _Entry] = {}
        self._first = True
        self._delivered_at = float("-inf")

    @property
    def waiting(self) -> int:
        """The number of alerts whose beginning or end Alertmanager has not received yet."""
        return sum(entry.fired is not None and not entry.delivered for entry in self._entries.values())

    def update(
        self, conditions: Iterable[Condition], closed: Mapping[tuple[str, str, str], int], now: float
    ) -> None:
        """Update the alerts from the conditions that are true now.

        Parameters
        ----------
        conditions : iterable of Condition
        closed : mapping of (task, model, group) to int
            The number of closed windows of every existing series and task: see `closed_windows`.
        now : float
            Seconds since the epoch.
        """
        true_now = {each.identity: each for each in conditions}
        for identity, condition in true_now.items():
            self._entries[identity] = self._held(self._entries.get(identity), condition, now)
        for identity in [each for each in self._entries if each not in true_now]:
            entry = self._gone(self._entries[identity], closed, now)
            if entry is None:
                del self._entries[identity]
            else:
                self._entries[identity] = entry
        self._first = False

    def due(self, now: float) -> list[PushedAlert]:
        """Return the alerts to send now.

        All alerts are sent if any has changed, or if `resend_seconds` have passed. Otherwise none are sent.
        """
        shown = [entry for entry in self._entries.values() if entry.fired is not None]
        if all(entry.delivered for entry in shown) and now - self._delivered_at < self._resend:
            return []
        return [self._to_alert(entry, now) for entry in shown]

    def delivered(self, delivered: Iterable[PushedAlert], now: float) -> None:
        """Record that Alertmanager has received these alerts.

        If an alert ended after it was sent, its end must still be sent.
        """
        self._delivered_at = now
        for each in delivered:
            entry = self._entries.get(each.identity)
            if entry is not None and (entry.resolved is None or entry.resolved == each.ends):
                self._entries[each.identity] = replace(entry, delivered=True)

    def _held(self, entry: _Entry | None, condition: Condition, now: float) -> _Entry:
        if entry is None or entry.resolved is not None:
            # A condition that returns soon is the same incident, but must be confirmed again.
            entry = _Entry(condition, condition.windows, now, now)
        entry = replace(entry, condition=condition, held=now)
        if entry.fired is not None:
            return entry
        at_once = self._first or not condition.patient or condition.at_once
        confirmed = condition.windows - entry.windows >= _WINDOWS - 1
        if at_once or confirmed or now - entry.seen >= self._patience(entry.task):
            return replace(entry, fired=now, delivered=False)
        return entry

    def _gone(self, entry: _Entry, closed: Mapping[tuple[str, str, str], int], now: float) -> _Entry | None:
        """Return the entry of an alert whose condition is no longer true, or None to drop it."""
        if entry.fired is None:
            return None
        if entry.resolved is not None:
            old = now - entry.resolved > RESOLVED_SECONDS
            return None if old and entry.delivered else entry
        labels = dict(entry.condition.labels)
        who = (labels["task"], labels.get("model", ""), labels.get("group", ""))
        since = closed.get(who, entry.condition.windows + _WINDOWS) - entry.condition.windows
        lately = now - entry.held < self._patience(entry.task)
        if entry.condition.patient and since < _WINDOWS and lately:
            return entry
        return replace(entry, resolved=now, delivered=False)

    def _to_alert(self, entry: _Entry, now: float) -> PushedAlert:
        assert entry.fired is not None
        ends = now + _LIVES_RESENDS * self._resend if entry.resolved is None else entry.resolved
        condition = entry.condition
        return PushedAlert(condition.identity, condition.name, condition.statement, entry.fired, ends)

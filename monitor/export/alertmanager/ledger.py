"""Which alerts are on, and which of them Alertmanager must be told of again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from monitor.export.alertmanager.holding import Condition, Identity

RESOLVED_SECONDS = 300.0
"""A resolved alert is told for so long: Alertmanager may have been away when it ended."""

_LIVES_RESENDS = 4
"""An alert that is not told again ends by itself after so many intervals, as Prometheus' own do."""

_WINDOWS = 2


@dataclass(frozen=True, slots=True)
class Told:
    """One alert, as Alertmanager is to hear of it.

    Parameters
    ----------
    identity : Identity
    name, text : str
        The alert's, and how much.
    starts, ends : float
        Seconds since the epoch; `ends` of one that is on lies ahead.
    """

    identity: Identity
    name: str
    text: str
    starts: float
    ends: float


@dataclass(frozen=True, slots=True)
class _Entry:
    condition: Condition  # as it was when it last held
    windows: int  # that were closed when it was first seen
    seen: float  # when that was
    held: float  # when it was last seen
    fired: float | None = None
    resolved: float | None = None
    told: bool = True  # Alertmanager knows how it stands

    @property
    def task(self) -> str:
        return dict(self.condition.labels)["task"]


class AlertLedger:
    """Conditions in, alerts out. Knows no clock and no network.

    A condition must be there in two windows before it is an alert, and be gone for two before that ends, or
    for as long as two take: where answers stop, none follows that could confirm it.

    What holds in the first look fires at once: after a restart it held before, and an alert that was told
    must be told again before it ends by itself.

    Parameters
    ----------
    resend_seconds : float
        Between two times that the same alert is told.
    patience_seconds : callable
        How long two windows of a task take.

    Examples
    --------
    >>> ledger = AlertLedger(60.0, lambda task: 1800.0)
    >>> ledger.look([], {}, now=0.0)
    >>> low = Condition("BlindsightObjectiveBreached", (("task", "t"), ("model", "m")), "too low", windows=7)
    >>> ledger.look([low], {("t", "m", ""): 7}, now=1.0)
    >>> ledger.due(now=1.0)
    []
    >>> ledger.look([replace(low, windows=8)], {("t", "m", ""): 8}, now=2.0)
    >>> [(alert.text, alert.starts, alert.ends) for alert in ledger.due(now=2.0)]
    [('too low', 2.0, 242.0)]
    """

    def __init__(self, resend_seconds: float, patience_seconds: Callable[[str], float]) -> None:
        self._resend = resend_seconds
        self._patience = patience_seconds
        self._entries: dict[Identity, _Entry] = {}
        self._first = True
        self._told_at = float("-inf")

    @property
    def waiting(self) -> int:
        """Alerts that began or ended and that Alertmanager has not been told of."""
        return sum(entry.fired is not None and not entry.told for entry in self._entries.values())

    def look(
        self, conditions: Iterable[Condition], closed: Mapping[tuple[str, str, str], int], now: float
    ) -> None:
        """Take what holds now.

        Parameters
        ----------
        conditions : iterable of Condition
        closed : mapping of (task, model, group) to int
            Windows that have closed, of every series that there is.
        now : float
            Seconds since the epoch.
        """
        found = {each.identity: each for each in conditions}
        for identity, condition in found.items():
            self._entries[identity] = self._held(self._entries.get(identity), condition, now)
        for identity in [each for each in self._entries if each not in found]:
            entry = self._gone(self._entries[identity], closed, now)
            if entry is None:
                del self._entries[identity]
            else:
                self._entries[identity] = entry
        self._first = False

    def due(self, now: float) -> list[Told]:
        """What Alertmanager must be told now: everything, once anything changed or the interval is over."""
        shown = [entry for entry in self._entries.values() if entry.fired is not None]
        if all(entry.told for entry in shown) and now - self._told_at < self._resend:
            return []
        return [self._as_told(entry, now) for entry in shown]

    def delivered(self, told: Iterable[Told], now: float) -> None:
        """Alertmanager has taken these; what changed meanwhile stays due."""
        self._told_at = now
        for each in told:
            entry = self._entries.get(each.identity)
            if entry is not None and (entry.resolved is None or entry.resolved == each.ends):
                self._entries[each.identity] = replace(entry, told=True)

    def _held(self, entry: _Entry | None, condition: Condition, now: float) -> _Entry:
        if entry is None or entry.resolved is not None:
            # One that comes back soon is the same incident, but must hold anew before it is told.
            entry = _Entry(condition, condition.windows, now, now)
        entry = replace(entry, condition=condition, held=now)
        if entry.fired is not None:
            return entry
        at_once = self._first or not condition.patient
        confirmed = condition.windows - entry.windows >= _WINDOWS - 1
        if at_once or confirmed or now - entry.seen >= self._patience(entry.task):
            return replace(entry, fired=now, told=False)
        return entry

    def _gone(self, entry: _Entry, closed: Mapping[tuple[str, str, str], int], now: float) -> _Entry | None:
        """What becomes of an alert whose condition no longer holds; None to forget it."""
        if entry.fired is None:
            return None
        if entry.resolved is not None:
            old = now - entry.resolved > RESOLVED_SECONDS
            return None if old and entry.told else entry
        labels = dict(entry.condition.labels)
        who = (labels["task"], labels["model"], labels.get("group", ""))
        since = closed.get(who, entry.condition.windows + _WINDOWS) - entry.condition.windows
        lately = now - entry.held < self._patience(entry.task)
        if entry.condition.patient and since < _WINDOWS and lately:
            return entry
        return replace(entry, resolved=now, told=False)

    def _as_told(self, entry: _Entry, now: float) -> Told:
        assert entry.fired is not None
        ends = now + _LIVES_RESENDS * self._resend if entry.resolved is None else entry.resolved
        condition = entry.condition
        return Told(condition.identity, condition.name, condition.text, entry.fired, ends)

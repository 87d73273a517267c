"""The new baselines that operators asked for of one series: what is kept, and what is still to be told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from monitor.reports.views import Rebaselined

_KEPT = 20


class Rebaselines:
    """The newest 20 of a series.

    Parameters
    ----------
    state : mapping
        What `snapshot` gave, or anything that holds it; empty from the start.

    Examples
    --------
    >>> asked = Rebaselines({})
    >>> asked.note("accuracy", "new camera", time=60.0, window=3)
    >>> asked.take_untold(), asked.take_untold()
    ((Rebaselined(metric='accuracy', reason='new camera'),), ())
    """

    def __init__(self, state: Mapping[str, Any]) -> None:
        self._noted: list[dict[str, Any]] = list(state.get("rebaselines", ()))
        self._untold: list[Rebaselined] = [Rebaselined(*each) for each in state.get("untold", ())]

    def note(self, metric: str, reason: str, time: float, window: int) -> None:
        """One was asked for, while this window was open."""
        self._untold = [*self._untold, Rebaselined(metric, reason)][-_KEPT:]
        noted = {"metric": metric, "reason": reason, "time": time, "window": window}
        self._noted = [*self._noted, noted][-_KEPT:]

    def take_untold(self) -> tuple[Rebaselined, ...]:
        """Those that no report has told yet; it does now."""
        untold, self._untold = self._untold, []
        return tuple(untold)

    def snapshot(self) -> dict[str, Any]:
        """For the series' snapshot."""
        return {
            "rebaselines": [dict(each) for each in self._noted],
            "untold": [[each.metric, each.reason] for each in self._untold],
        }

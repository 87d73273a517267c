"""Which version of a model its answers come from, and when a new one has taken over."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from monitor.records import Ints

_REMEMBERED = 16  # superseded versions; one that is older than these counts as new when it comes back


class VersionTracker:
    """Follows the version through a series of answers.

    A version not seen before takes over at once. While it is rolled out, answers of the one before it
    still come: such stragglers do not turn the series back and forth. Only when `rollback` of them have
    come in a row has the model been rolled back. Answers without a version belong to the current one.

    Parameters
    ----------
    rollback : int
        Answers in a row of superseded versions, at least 1, of which the last makes its own version the
        current one again. Answers that name no version break the row.

    Raises
    ------
    ValueError
        `rollback` is below 1.

    Examples
    --------
    >>> tracker = VersionTracker(rollback=3)
    >>> codes = np.array([0, 0, 1, 0, 1, 1])
    >>> list(tracker.stretches(codes, ("v1", "v2")))  # (start, stop, version, whether it took over)
    [(0, 2, 'v1', False), (2, 3, 'v2', True), (3, 4, 'v2', False), (4, 6, 'v2', False)]
    >>> list(tracker.stretches(np.zeros(5, dtype=int), ("v1",)))
    [(0, 2, 'v2', False), (2, 5, 'v1', True)]
    """

    def __init__(self, rollback: int, resume: Mapping[str, Any] | None = None) -> None:
        if rollback < 1:
            raise ValueError(f"rollback must be at least 1 answer, got {rollback}")
        state: Mapping[str, Any] = resume or {"current": None, "superseded": [], "stragglers": 0}
        self._rollback = rollback
        self._current: str | None = state["current"]
        self._superseded: list[str] = list(state["superseded"])
        self._stragglers: int = state["stragglers"]

    @property
    def current(self) -> str:
        """The version in charge; ``""`` before the first answer, or where none is named."""
        return self._current or ""

    def stretches(self, version: Ints, names: tuple[str, ...]) -> Iterator[tuple[int, int, str, bool]]:
        """Cut rows into stretches of one version in charge.

        Yields
        ------
        start, stop : int
        version : str
            In charge of these rows.
        took_over : bool
            Whether it replaces the version of the rows before.
        """
        if not len(version):
            return
        inner = np.flatnonzero(np.diff(version)) + 1 if len(names) > 1 else np.zeros(0, dtype=np.int64)
        cuts = [0, *inner.tolist(), len(version)]
        for start, stop in itertools.pairwise(cuts):
            yield from self._stretch(start, stop, names[int(version[start])])

    def snapshot(self) -> dict[str, Any]:
        """The version in charge and what it superseded."""
        return {
            "current": self._current,
            "superseded": list(self._superseded),
            "stragglers": self._stragglers,
        }

    def _stretch(self, start: int, stop: int, name: str) -> Iterator[tuple[int, int, str, bool]]:
        if not self._current and name:
            self._current = name
        if name in ("", self._current):
            self._stragglers = 0
            yield start, stop, self.current, False
            return
        turn = start
        if name in self._superseded:
            turn = min(stop, start + max(0, self._rollback - 1 - self._stragglers))
            self._stragglers += stop - start
        if turn > start:
            yield start, turn, self.current, False
        if turn < stop:
            self._take_over(name)
            yield turn, stop, name, True

    def _take_over(self, name: str) -> None:
        kept = [old for old in self._superseded if old != name]
        self._superseded = [*kept, self.current][-_REMEMBERED:]
        self._current = name
        self._stragglers = 0

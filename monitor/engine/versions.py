"""Tracks which version of a model answers, and when a new version becomes current."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from monitor.base.records import Ints

_REMEMBERED = 16  # superseded versions; an older one counts as new when it returns
_AT_ONCE = 16  # take-overs in quick succession before a take-over needs more than one answer
_FEWEST = 20  # successive answers that are unlikely by chance among a few versions that alternate

_OWN, _OLD, _NEW = 0, 1, 2  # a version's relation: current or none, superseded, new


class VersionState(msgspec.Struct, frozen=True):
    """The stored state of a `VersionTracker`.

    It contains the current version, superseded versions, and the counters that limit how often the current
    version changes.
    """

    current: str | None = None
    superseded: list[str] = []
    stragglers: int = 0
    debt: int = 0
    last: str = ""
    in_a_row: int = 0


class VersionTracker:
    """Decides for each answer of a model which version of the model is current.

    A new version becomes current at once (a take-over). During its roll-out, answers of the previous version
    still arrive. A single answer of a superseded version changes nothing. After `rollback` such answers in a
    row, the version of the last one becomes current again, because the model was rolled back. Answers without
    a version count as answers of the current version.

    Versions may change without end, for example if each answer has its own version, or if dozens of versions
    alternate. Then each take-over would close a window of a few rows. So the tracker limits take-overs by a
    debt. Each take-over adds `patience` = max(`rollback`, 20) to the debt, and each answer reduces the debt
    by 1. After 16 take-overs in quick succession, the debt is above 15 times `patience`, and the tracker is
    `restless`. The current version then stays until another version has sent `patience` answers in a row.
    That version becomes current, and the debt falls to 15 times `patience`. Therefore n answers cause at most
    16 + 2 n / `patience` take-overs. Occasional deployments are never delayed.

    The result depends only on the order of the answers, not on their division into batches.

    Parameters
    ----------
    rollback : int
        The number of successive answers of superseded versions, at least 1, after which the version of the
        last one becomes current again. An answer without a version interrupts the succession.

    Raises
    ------
    ValueError
        `rollback` is below 1.

    Examples
    --------
    >>> tracker = VersionTracker(rollback=3)
    >>> codes = np.array([0, 0, 1, 0, 1, 1])
    >>> list(tracker.stretches(codes, ("v1", "v2")))  # (start, stop, version, whether it took over)
    [(0, 2, 'v1', False), (2, 6, 'v2', True)]
    >>> list(tracker.stretches(np.zeros(5, dtype=int), ("v1",)))
    [(0, 2, 'v2', False), (2, 5, 'v1', True)]

    Each answer has a version of its own:

    >>> names = tuple(f"build-{i}" for i in range(1000))
    >>> stretches = list(VersionTracker(rollback=50).stretches(np.arange(1000), names))
    >>> len(stretches), stretches[-1]
    (17, (16, 1000, 'build-16', True))
    """

    def __init__(self, rollback: int, resume: VersionState | None = None) -> None:
        if rollback < 1:
            raise ValueError(f"rollback must be at least 1 answer, got {rollback}")
        state = resume or VersionState()
        self._rollback = rollback
        self._patience = max(rollback, _FEWEST)
        self._allowed = (_AT_ONCE - 1) * self._patience
        self._current, self._superseded = state.current, list(state.superseded)
        self._stragglers, self._debt = state.stragglers, state.debt
        self._last, self._in_a_row = state.last, state.in_a_row

    @property
    def current(self) -> str:
        """The current version; ``""`` if no answer has named a version."""
        return self._current or ""

    @property
    def restless(self) -> bool:
        """True if versions change so fast that a new version does not become current at once."""
        return self._debt > self._allowed

    def keeps(self, name: str, count: int) -> bool:
        """Count answers that have the same version, and return True if the current version does not change.

        If the current version may change, count nothing and return False. The caller must then call
        `stretches` with the answers. This method is faster than `stretches`. With many models, most calls
        have only rows of the current version.

        Parameters
        ----------
        name : str
            The version of the answers.
        count : int
            The number of answers.
        """
        if self._debt > self._allowed or (self._current and name not in ("", self._current)):
            return False
        if not self._current:
            if not name:
                return True
            self._current = name
        self._stragglers, self._debt = 0, max(0, self._debt - count)
        return True

    def stretches(self, version: Ints, names: tuple[str, ...]) -> Iterator[tuple[int, int, str, bool]]:
        """Divide answers into runs of successive answers with the same current version of the model.

        Parameters
        ----------
        version : (n,) int64
            The index of each answer's version in `names`.
        names : tuple of str
            The names of versions; ``""`` for answers without a version.

        Yields
        ------
        start, stop : int
            The run, as a range of indices.
        version : str
            The version that is current during the run.
        took_over : bool
            Whether this version has replaced the version of the previous answers.
        """
        start = at = self._adopt(version, names)
        if start:
            yield 0, start, "", False
        took_over = False
        places = {name: place for place, name in enumerate(names)}
        relations = np.array([self._relation(name) for name in names], dtype=np.int64)
        while at < len(version):
            turn = self._next_turn(version[at:], names, relations)
            if turn is None:
                break
            at += turn
            name = names[int(version[at])]
            if name != self._current:
                if at > start:
                    yield start, at, self.current, took_over
                moved = {*self._superseded, self.current, name}
                self._take_over(name)
                for one in moved & places.keys():
                    relations[places[one]] = self._relation(one)
                start, took_over = at, True
            at += 1
        if start < len(version):
            yield start, len(version), self.current, took_over

    def snapshot(self) -> VersionState:
        """Return the current version, the superseded versions, and the counters that limit its changes."""
        return VersionState(
            current=self._current,
            superseded=list(self._superseded),
            stragglers=self._stragglers,
            debt=self._debt,
            last=self._last,
            in_a_row=self._in_a_row,
        )

    def _adopt(self, version: Ints, names: tuple[str, ...]) -> int:
        """Make the first version that is named the current one; return the number of rows before it."""
        if self._current:
            return 0
        named = np.flatnonzero(np.array([bool(name) for name in names], dtype=bool)[version])
        if not len(named):
            return len(version)
        self._current = names[int(version[named[0]])]
        return int(named[0])

    def _next_turn(self, version: Ints, names: tuple[str, ...], relations: Ints) -> int | None:
        """Return the index of the first row whose version takes over.

        If no version takes over, count all rows and return None.
        """
        if self.restless:
            return self._turn_when_restless(version, names)
        return self._turn(version, names, relations)

    def _turn(self, version: Ints, names: tuple[str, ...], relations: Ints) -> int | None:
        if not relations.any():
            self._stragglers, self._debt = 0, max(0, self._debt - len(version))
            return None
        relation = relations[version]
        # The ends of runs of stragglers; the first run began before these answers.
        edges = np.flatnonzero(np.r_[True, relation != _OLD, True]) - 1
        edges[0] -= self._stragglers
        lengths = np.diff(edges) - 1
        turns = [
            *np.flatnonzero(relation == _NEW)[:1].tolist(),
            *(edges[:-1][lengths >= self._rollback][:1] + self._rollback).tolist(),
        ]
        if not turns:
            self._stragglers, self._debt = int(lengths[-1]), max(0, self._debt - len(version))
            return None
        turn: int = min(turns)
        self._stragglers, self._debt = 0, max(0, self._debt - turn - 1) + self._patience
        if self.restless:
            self._last, self._in_a_row = names[int(version[turn])], 1
        return turn

    def _turn_when_restless(self, version: Ints, names: tuple[str, ...]) -> int | None:
        starts = np.flatnonzero(np.r_[True, np.diff(version) != 0])
        named = np.array([bool(name) for name in names], dtype=bool)[version[starts]]
        lengths = np.diff(np.r_[starts, len(version)])
        if names[int(version[0])] == self._last:
            starts[0] -= self._in_a_row
            lengths[0] += self._in_a_row
        proved = np.flatnonzero(named & (lengths >= self._patience))
        if len(proved):
            self._debt, self._last, self._in_a_row = self._allowed, "", 0
            return int(starts[proved[0]]) + self._patience - 1
        self._last = names[int(version[-1])]
        self._in_a_row = int(lengths[-1])
        return None

    def _relation(self, name: str) -> int:
        if name in ("", self._current):
            return _OWN
        return _OLD if name in self._superseded else _NEW

    def _take_over(self, name: str) -> None:
        kept = [old for old in self._superseded if old != name]
        self._superseded = [*kept, self.current][-_REMEMBERED:]
        self._current = name

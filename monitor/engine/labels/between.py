"""The labels of a model's groups beside each other: how far each group's bias is from its model's.

Rows of windows before the group's calibration came are passed over. Where labels cost a group its trust, only
those since the change count: the ones before say what was.
"""

from __future__ import annotations

import math

import msgspec
import numpy as np
from numpy.typing import NDArray

from monitor.base.records import Floats, Ints
from monitor.stats.estimate.between_groups import SPREADS, Deviation, deviation, seen_from_model
from monitor.stats.estimate.bias_law import LATTICE, NODES, UNIT, gains_of, on_lattice


class DeviationState(msgspec.Struct, frozen=True, omit_defaults=True):
    """The log-likelihood of a group's labels, (17,) int64, since a window; None: no label.

    Before `shifted` the group's confidences were shifted in another way than now.
    """

    since: int = 0
    gains: Ints | None = None
    labels: int = 0
    shifted: int = 0


class GroupLabels:
    """The labels of one group under its present calibration.

    Parameters
    ----------
    state : DeviationState, optional
        What `snapshot` gave.

    Attributes
    ----------
    since : int
        First window whose rows count.
    shift, spread : float
        Of its calibration: see `monitor.engine.calibration.ActiveCalibration`.
    """

    def __init__(self, state: DeviationState | None = None) -> None:
        state = state or DeviationState()
        self.since, self._labels, self._shifted = state.since, state.labels, state.shifted
        self.shift = self.spread = 0.0
        self.gains: Ints = np.zeros(len(NODES), dtype=np.int64) if state.gains is None else state.gains.copy()
        self.changed = True
        self.seen: Ints = np.zeros((1 + len(SPREADS), len(LATTICE)), dtype=np.int64)

    def add(self, gains: Ints, labels: int) -> None:
        """Count (17,) of `monitor.stats.estimate.bias_law.gains_of`, summed over so many labels."""
        self.gains, self.changed = self.gains + gains, True
        self._labels += labels

    def calibrated(self, shift: float, spread: float, window: int | None = None) -> None:
        """The group's calibration is shifted so; from this window on, if that is new."""
        if window is not None and shift != self.shift:
            self._shifted = window
        self.shift, self.spread = shift, spread

    def announced(self, window: Ints, confidence: Floats) -> Floats:
        """What the group announced for rows, (n,), by what its model did; NaN where that is not known."""
        if not self.shift and not self._shifted:
            return confidence
        factor = math.exp(self.shift)
        found: Floats = confidence * factor / (1 - confidence + confidence * factor)
        return np.where(window >= self._shifted, found, np.nan)

    def favour(self, beyond: Deviation, trusted: bool) -> bool:
        """Whether the group's own labels favour the shift by `beyond`.

        By any gain where its trust is lost; else by ln n nats, as `monitor.engine.refit.recalibration` asks
        of a calibration.
        """
        if not self._labels:
            return False
        gains = on_lattice(self.gains.astype(np.float64) * UNIT)
        at = np.interp([beyond.model, beyond.model + beyond.mean], LATTICE, gains)
        return bool(at[1] - at[0] > (math.log(max(self._labels, 2)) if trusted else 0.0))

    def begin_anew(self, window: int) -> None:
        """Another calibration or version from this window on."""
        self.since, self.gains, self.changed = window, np.zeros_like(self.gains), True
        self._labels = 0

    def count_only(self, confidence: Floats, right: NDArray[np.bool_]) -> None:
        """Of all labels so far only these count."""
        self.gains, self.changed = gains_of(confidence, right).sum(axis=0), True
        self._labels = len(right)

    def snapshot(self) -> DeviationState:
        """The labels."""
        gains = self.gains.copy() if self._labels else None
        return DeviationState(self.since, gains, self._labels, self._shifted)


class BetweenGroups:
    """The groups of one model by one of its fields, such as all of its regions.

    Examples
    --------
    >>> between, groups = BetweenGroups(), [GroupLabels() for _ in range(4)]
    >>> for group, wrong in zip(groups, (0, 0, 0, 3)):
    ...     between.join(group)
    ...     group.add(gains_of(np.full(400, 0.9), np.arange(400) % 10 > wrong).sum(axis=0), 400)
    >>> [round(between.of(group).mean, 2) for group in groups]
    [0.63, 0.63, 0.63, -1.12]
    """

    def __init__(self) -> None:
        self._groups: list[GroupLabels] = []
        self._total: Ints = np.zeros((1 + len(SPREADS), len(LATTICE)), dtype=np.int64)

    def join(self, group: GroupLabels) -> None:
        """One more group."""
        self._groups.append(group)

    def of(self, group: GroupLabels) -> Deviation | None:
        """The deviation of a group that has joined; None where labels do not say that groups differ."""
        changed = [each for each in self._groups if each.changed]
        if changed:
            seen = seen_from_model(np.stack([each.gains for each in changed]))
            for each, now in zip(changed, seen, strict=True):
                self._total += now - each.seen
                each.seen, each.changed = now, False
        return deviation(group.gains, group.seen, self._total)

"""When a model's calibration is fitted again on labels, and on which of them."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from monitor.base.names import OUTCOMES
from monitor.reports.views import RecalibrationsView

_SHARE = 4  # at least this part of the rows is new in each fit
_FEWEST_REPLACED = 5  # of few labels, one or two that were corrected say nothing of the others


def too_many_replaced(replaced: NDArray[np.bool_], max_share: float) -> str | None:
    """Why no fit may rest on these labels, a sentence; None where it may.

    Labels that replace each other come from hands that contradict each other: a fit would take the side of
    the one that wrote last. A label that is wrong and the only one for its id is not found so.

    Parameters
    ----------
    replaced : (n,) bool
        Of each labelled row, whether its label replaced another class.
    max_share : float
        Of the rows, 0 to 1, that may have. Up to four always may.

    Examples
    --------
    >>> too_many_replaced(np.arange(100) < 5, 0.05) is None
    True
    >>> too_many_replaced(np.arange(100) < 6, 0.05)
    '6 of 100 labels replaced another class for their id, labels.max_replaced allows 5 %; find who sends them'
    """
    count = int(replaced.sum())
    if count < _FEWEST_REPLACED or count <= max_share * len(replaced):
        return None
    return (
        f"{count} of {len(replaced)} labels replaced another class for their id, labels.max_replaced allows "
        f"{100 * max_share:g} %; find who sends them"
    )


@dataclass(frozen=True, slots=True)
class RecalibrationSchedule:
    """Settings of one model's schedule.

    Parameters
    ----------
    every_labels : int
        Rows with their first label after which it is due, at least 1; more where the last fit rested on
        more than four times as many, for a fit on nearly the same rows says nearly the same. As labels
        cost the trust it is due at once.

    Raises
    ------
    ValueError
        `every_labels` is below 1.

    Examples
    --------
    >>> schedule = RecalibrationSchedule(every_labels=50).build()
    >>> schedule.labels_came(49, cost_trust=False), schedule.due
    (None, False)
    >>> schedule.labels_came(1, cost_trust=False), schedule.due
    (None, True)
    >>> schedule.begin(rows=50), schedule.due
    (None, False)
    """

    every_labels: int

    def __post_init__(self) -> None:
        if self.every_labels < 1:
            raise ValueError(f"every_labels must be at least 1, got {self.every_labels}")

    def build(self, resume: RecalibrationState | None = None) -> RecalibrationScheduleLogic:
        """The schedule, from the start or from where a snapshot left it."""
        return RecalibrationScheduleLogic(self, resume)


class RecalibrationState(msgspec.Struct, frozen=True):
    """What one model's schedule has counted; the attributes of `RecalibrationScheduleLogic` and more."""

    due: bool = False
    lost: bool = False
    since: int = 0
    first: int = 0
    seen: int = -1
    outcomes: dict[str, int] = {}
    refused: str | None = None
    labels: int = 0
    rows: int = 0
    held: bool = False

    def begun_anew(self, window: int) -> RecalibrationState:
        """That of a schedule for which another reference holds from this window on.

        That reference may hold the very rows that came before.
        """
        logic = RecalibrationSchedule(1).build(self)
        logic.begin_anew(window)
        return msgspec.structs.replace(logic.snapshot(), seen=-1, first=0)


class RecalibrationScheduleLogic:
    """The schedule of one model at work.

    Attributes
    ----------
    due : bool
        Whether a fit is to begin; it stays so until one does.
    under_way : bool
        One has begun and not ended. Not part of the snapshot: a restart loses it, so that it is due again.
    lost : bool
        Trust has been lost since the last fit began: the labels since that change are to carry the next.
    since : int
        First window whose rows belong to the present version of the model, or to the present reference.
    first : int
        Sequence of the oldest answer that a fit may use: those before the change that cost the trust say
        nothing of what holds now.
    seen : int
        Sequence of the newest answer that the calibration in force was fitted on; −1 for none: only later
        ones may judge it.
    outcomes : dict of str to int
        How many fits ended how, by `OUTCOMES`.
    refused : str or None
        Why the newest one that could be was not made; None where it was.
    held : bool
        It was not because too many labels replaced another class.
    """

    def __init__(self, settings: RecalibrationSchedule, resume: RecalibrationState | None = None) -> None:
        state = resume or RecalibrationState()
        self._every = settings.every_labels
        self.due, self.under_way, self.lost = state.due, False, state.lost
        self.since, self.first, self.seen = state.since, state.first, state.seen
        self.outcomes = dict.fromkeys(OUTCOMES, 0) | state.outcomes
        self.refused, self.held = state.refused, state.held
        self._labels = state.labels
        self._rows = state.rows  # of the last fit

    def labels_came(self, count: int, cost_trust: bool) -> None:
        """So many rows have got their first label.

        Parameters
        ----------
        count : int
        cost_trust : bool
            Whether one of them cost the trust: a loss that stands already makes nothing due again.
        """
        self._labels += count
        self.lost |= cost_trust
        self.due |= cost_trust or self._labels >= max(self._every, self._rows // _SHARE)

    def wait(self, why: str, held: bool = False) -> None:
        """What is due cannot begin yet: it will be due again after as many labels."""
        self.due, self._labels, self.refused, self.held = False, 0, why, held

    def begin(self, rows: int) -> None:
        """A fit on so many labelled rows begins; labels count anew."""
        self._rows = rows
        self.due, self.under_way, self.lost, self.held = False, True, False, False
        self._labels = 0

    def end(self, outcome: str, refused: str | None = None, seen: int = -1) -> None:
        """The fit under way has ended so; where it was taken, it rests on answers up to `seen`."""
        self.under_way = False
        self.outcomes[outcome] += 1
        self.refused = refused
        self.seen = max(self.seen, seen)

    def begin_anew(self, window: int) -> None:
        """Another version of the model: rows of earlier windows, and a fit on them, are of no use."""
        self.due = self.under_way = self.lost = self.held = False
        self.since, self._labels, self._rows = window, 0, 0

    def view(self) -> RecalibrationsView:
        """What the outside may see."""
        return RecalibrationsView(dict(self.outcomes), self.refused, self.under_way, self.held)

    def snapshot(self) -> RecalibrationState:
        """All but the settings."""
        return RecalibrationState(
            due=self.due or self.under_way,
            lost=self.lost,
            since=self.since,
            first=self.first,
            seen=self.seen,
            outcomes=dict(self.outcomes),
            refused=self.refused,
            labels=self._labels,
            rows=self._rows,
            held=self.held,
        )


def schedule_of(
    every_labels: int | None, group: str, state: RecalibrationState | None
) -> RecalibrationScheduleLogic | None:
    """That of a series, by what its snapshot holds; None for a group, which has its model's calibration."""
    return None if every_labels is None or group else RecalibrationSchedule(every_labels).build(state)

"""The schedule of a model's recalibrations: when its calibration is fitted again, and on which labels."""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

from monitor.base.names import OUTCOMES
from monitor.reports.views import RecalibrationsView

_SHARE = 4  # at least a quarter of the rows is new in each fit
_FEWEST_REPLACED = 5  # one or two corrections among few labels do not make the others wrong


def too_many_replaced(replaced: NDArray[np.bool_], max_share: float) -> str | None:
    """Return a sentence if too many labels replaced another label, otherwise None.

    A label that replaces another class comes from senders that contradict each other. A fit on such labels
    would agree with the last sender. A wrong label is not detected if it is the only label for its id.

    Parameters
    ----------
    replaced : (n,) bool
        For each labelled row, whether its label replaced another label.
    max_share : float
        The allowed share of such rows, 0 to 1. Up to four rows are always allowed.

    Examples
    --------
    >>> too_many_replaced(np.arange(100) < 5, 0.05) is None
    True
    >>> too_many_replaced(np.arange(100) < 6, 0.05)
    '6 of 100 labels replaced another label for their id, labels.max_replaced allows 5 %; find who sends them'
    """
    count = int(replaced.sum())
    if count < _FEWEST_REPLACED or count <= max_share * len(replaced):
        return None
    return (
        f"{count} of {len(replaced)} labels replaced another label for their id, labels.max_replaced allows "
        f"{100 * max_share:g} %; find who sends them"
    )


class RecalibrationState(msgspec.Struct, frozen=True):
    """The stored state of `RecalibrationSchedule`, whose attributes have the same names.

    `labels` is the number of newly labelled rows since the last fit. `rows` is the number of rows in the last
    fit.
    """

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

    def restarted(self, window: int) -> RecalibrationState:
        """Return the state of a schedule that restarts with this window, because the reference is new.

        Fits do not use earlier rows, because the new reference may contain them.
        """
        outcomes = dict.fromkeys(OUTCOMES, 0) | self.outcomes
        return RecalibrationState(since=window, outcomes=outcomes, refused=self.refused)


class RecalibrationSchedule:
    """The schedule of one model, which counts labels and decides when its calibration is fitted again.

    Parameters
    ----------
    every_labels : int
        A fit is due after this number of newly labelled rows, at least 1. If the last fit used more than four
        times as many rows, a fit is due after a quarter of its rows, because a fit on nearly the same rows
        changes little. If new labels contradict the confidences (a loss of trust), a fit is due immediately.
    resume : RecalibrationState, optional
        A snapshot.

    Attributes
    ----------
    due : bool
        Whether a fit is due and has not begun.
    under_way : bool
        Whether a fit has begun and not ended. The snapshot does not include this attribute. After a restart
        of the agent, the lost fit is due again.
    lost : bool
        Whether trust was lost since the last fit began, because labels contradicted the confidences. If so,
        the next fit uses only labels since the change.
    since : int
        The first window whose rows a fit may use. Earlier windows belong to another version or reference.
    first : int
        The sequence number of the oldest answer that a fit may use. Answers before the change that caused a
        loss of trust no longer apply.
    seen : int
        The sequence number of the newest answer in the fit of the present calibration; −1 if there was no
        fit. Only later answers may evaluate this calibration.
    outcomes : dict of str to int
        The number of fits by outcome. The outcomes are `OUTCOMES`.
    refused : str or None
        The reason why the last fit could not be made or used; otherwise None.
    held : bool
        Whether `refused` says that too many labels replaced another label.

    Raises
    ------
    ValueError
        `every_labels` is below 1.

    Examples
    --------
    >>> schedule = RecalibrationSchedule(every_labels=50)
    >>> schedule.labels_came(49, cost_trust=False), schedule.due
    (None, False)
    >>> schedule.labels_came(1, cost_trust=False), schedule.due
    (None, True)
    >>> schedule.begin(rows=50), schedule.due
    (None, False)
    """

    def __init__(self, every_labels: int, resume: RecalibrationState | None = None) -> None:
        if every_labels < 1:
            raise ValueError(f"every_labels must be at least 1, got {every_labels}")
        state = resume or RecalibrationState()
        self._every = every_labels
        self.due, self.under_way, self.lost = state.due, False, state.lost
        self.since, self.first, self.seen = state.since, state.first, state.seen
        self.outcomes = dict.fromkeys(OUTCOMES, 0) | state.outcomes
        self.refused, self.held = state.refused, state.held
        self._labels = state.labels
        self._rows = state.rows  # of the last fit

    def labels_came(self, count: int, cost_trust: bool) -> None:
        """Count newly labelled rows.

        Parameters
        ----------
        count : int
            The number of rows that got their first label.
        cost_trust : bool
            Whether trust was lost at one of these labels. A loss of trust makes only one fit due, even if it
            lasts.
        """
        self._labels += count
        self.lost |= cost_trust
        self.due |= cost_trust or self._labels >= max(self._every, self._rows // _SHARE)

    def wait(self, why: str, held: bool = False) -> None:
        """Postpone a due fit that cannot begin now; it becomes due again when enough labels have come.

        Parameters
        ----------
        why : str
            The reason, a sentence.
        held : bool
            Whether the reason is that too many labels replaced another label.
        """
        self.due, self._labels, self.refused, self.held = False, 0, why, held

    def begin(self, rows: int) -> None:
        """Begin a fit on `rows` labelled rows, and reset the count of labels."""
        self._rows = rows
        self.due, self.under_way, self.lost, self.held = False, True, False, False
        self._labels = 0

    def end(self, outcome: str, refused: str | None = None, seen: int = -1) -> None:
        """End the running fit, and count its outcome.

        Parameters
        ----------
        outcome : str
            One of `OUTCOMES`. ``"taken"``: the model uses the new calibration. ``"kept"``: the labels do not
            favour the new calibration over the present one. ``"refused"``: nothing could be fitted, or the
            new calibration cannot be used.
        refused : str, optional
            The reason of a refused fit.
        seen : int
            The sequence number of the newest answer in the fit, if the model uses it; otherwise −1.
        """
        self.under_way = False
        self.outcomes[outcome] += 1
        self.refused = refused
        self.seen = max(self.seen, seen)

    def restart(self, window: int) -> None:
        """Restart with this window for a new version of the model. Fits do not use earlier rows."""
        self.due = self.under_way = self.lost = self.held = False
        self.since, self._labels, self._rows = window, 0, 0

    def view(self) -> RecalibrationsView:
        """Return the counts and the state of the recalibrations for exporters."""
        return RecalibrationsView(dict(self.outcomes), self.refused, self.under_way, self.held)

    def snapshot(self) -> RecalibrationState:
        """Return the state of the schedule, without the settings."""
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
) -> RecalibrationSchedule | None:
    """Return the schedule of a series.

    The result is None if `every_labels` is None. It is also None for a group, because a group uses the
    calibration of its model.
    """
    return None if every_labels is None or group else RecalibrationSchedule(every_labels, state)

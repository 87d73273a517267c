"""The correction of a series' estimated accuracy by labels: see `monitor.stats.estimate.corrected`.

With many models, each step has only one or two labelled rows of a model. To save time, these rows are
collected until the correction is read.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import msgspec
import numpy as np
from numpy.typing import NDArray

from monitor.base.records import Floats, Ints
from monitor.base.results import Result
from monitor.stats.estimate.corrected import (
    Correction,
    CorrectionLogic,
    CorrectionState,
    Forecast,
    logit_change,
)

_MOST_WAITING = 64  # steps
_CHANGES = 16  # the newest changes of the calibration that are kept


class CorrectingState(msgspec.Struct, frozen=True, omit_defaults=True):
    """The stored settings and state of the correction of one series.

    Both are empty before the first closed window or label.
    """

    settings: Correction | None = None
    logic: CorrectionState | None = None
    forecast: tuple[float, float] | None = None
    changes: tuple[tuple[int, int, float], ...] = ()  # first and last row, logits
    changing: tuple[int, int] | None = None  # first and last row of changes in the open window


class Correcting:
    """The running correction of one series' estimated accuracy by labels.

    Parameters
    ----------
    settings : callable
        Returns the settings. It takes some milliseconds, so it is called only at the first use.
    block_rows : int
        The number of rows of a full block. The correction estimates one bias for each block. A saved
        correction with another number is dropped.
    first_row : int
        The number in the series of the open window's first row.
    state : CorrectingState, optional
        A snapshot.

    Examples
    --------
    >>> correcting = Correcting(lambda: Correction.unknown(100), block_rows=25, first_row=0)
    >>> correcting.add(np.repeat([0, 25, 50, 75], 10), np.full(40, 0.9), np.arange(40) % 5 > 0)
    >>> correcting.close(0, np.full(100, 0.9))
    >>> round(correcting.estimate(0).value, 2)
    0.82
    """

    def __init__(
        self,
        settings: Callable[[], Correction],
        block_rows: int,
        first_row: int,
        state: CorrectingState | None = None,
    ) -> None:
        self._settings = settings
        self._first_row = first_row
        self._built: tuple[Correction, CorrectionLogic] | None = None
        self._waiting: list[tuple[Ints, Floats, NDArray[np.bool_]]] = []
        self._forecast: Forecast | None = None
        self._block_rows = block_rows
        self._changes = () if state is None else state.changes
        self._changing = None if state is None else state.changing
        if state is not None and state.settings is not None and state.logic is not None:
            known = state.settings.block_rows == block_rows and state.logic.rows == first_row
            if known:
                self._built = state.settings, state.settings.build(state.logic)
                self._forecast = state.forecast and Forecast(*state.forecast)

    @property
    def logic(self) -> CorrectionLogic:
        """The logic that estimates the correction, after it has used all labels so far."""
        _, logic = self._build()
        if self._waiting:
            block, confidence, right = map(np.concatenate, zip(*self._waiting, strict=True))
            self._waiting.clear()
            logic.push(block, confidence, right)
        return logic

    def _build(self) -> tuple[Correction, CorrectionLogic]:
        if self._built is None:
            settings = self._settings()
            self._built = settings, settings.build(CorrectionState.beginning_at(self._first_row))
        return self._built

    @property
    def labelled(self) -> int:
        """The number of labelled rows of the model's present version."""
        return 0 if self._built is None and not self._waiting else self.logic.labelled

    def learn(self) -> bool:
        """Compute the settings in advance; return False if they are already known."""
        known = self._built is not None
        return not known and self.logic is not None

    def add(self, block: Ints, confidence: Floats, right: NDArray[np.bool_]) -> None:
        """Add n rows that have just got their first labels.

        `block` contains a number for each row: the number in the series of the first row of its block. A
        block is a run of successive rows for which the correction estimates one bias. Rows with -1 (unknown)
        are ignored.
        """
        if len(block) and block.min() < 0:
            known = block >= 0
            block, confidence, right = block[known], confidence[known], right[known]
        if len(block):
            self._waiting.append((block, confidence, right))
            if len(self._waiting) == _MOST_WAITING:
                self.logic  # noqa: B018

    def close(self, window: int, confidence: Floats) -> None:
        """Add the rows of a window that has closed, by their calibrated confidences, (n,)."""
        self.logic.close(window, confidence)

    @property
    def stretch(self) -> float:
        """The factor by which the correction multiplies the logits of confidences."""
        return self._build()[0].stretch

    @property
    def forecast(self) -> Forecast:
        """The forecast of the bias of future rows, made when the newest window closed."""
        if self._forecast is None:
            self._forecast = self._build()[0].forecast
        return self._forecast

    def predict(self) -> bool:
        """Make a new forecast from all labels so far; return False if there are no labels."""
        known = self.labelled > 0
        self._forecast = self.logic.forecast() if known else None
        return known

    def announce(self, row: int) -> None:
        """Record that a new calibration gives the confidences from row number `row` on.

        The row may be in the open window. The correction adapts when `change_calibration` is called.
        """
        first = row if self._changing is None else self._changing[0]
        self._changing = first, row

    def moved(self, block: Ints) -> Floats:
        """Return how much later calibrations have changed the confidence of each row, in logits, (n,).

        The change is NaN (unknown) in three cases: the row's block (a run of successive rows) is unknown, the
        calibration changed within the block, or the row is in the open window and its confidence comes from a
        new calibration.

        Parameters
        ----------
        block : (n,) int64
            The number of the first row of each row's block; -1 if unknown.
        """
        moved, end = np.where(block < 0, np.nan, 0.0), block + self._block_rows
        for first, last, change in self._changes:
            moved[end <= first] += change
            moved[(end > first) & (block < last)] = np.nan
        if self._changing is not None:
            moved[end > self._changing[0]] = np.nan
        return moved

    def change_calibration(self, before: Floats, after: Floats, within: bool = False) -> Floats:
        """Adapt the correction to a new calibration, beginning with the window that closes next.

        Parameters
        ----------
        before, after : (n,) float64
            The confidences of that window's rows by the previous and by the new calibration.
        within : bool
            True if the new calibration applies only to rows after it came (see `announce`). By default it
            applies to the whole window.

        Returns
        -------
        (n,) float64
            The confidences of the window's rows, to be passed to `close`.
        """
        if not len(before):
            return after
        change, variance = logit_change(before, after)
        first = self.logic.rows
        row = self._changing[0] if within and self._changing is not None else first
        self.logic.recalibrated(change, variance, row)
        if self._changing is not None:
            self._note(*self._changing, change)
        return np.where(np.arange(first, first + len(after)) < row, before, after)

    def _note(self, first: int, last: int, change: float) -> None:
        self._changing = None
        if len(self._changes) == _CHANGES:
            _, (start, stop, _), *rest = self._changes
            self._changes = (start, stop, math.nan), *rest  # the changes before it are no longer known
        self._changes = *self._changes, (first, last, change)

    def restart(self) -> None:
        """Restart with the window that closes next. This window belongs to another version of the model."""
        if self._built is not None or self._waiting:
            self.logic.restarted()
        self._forecast, self._changes, self._changing = None, (), None

    def estimate(self, window: int, level: float = 0.95, pooled: int = 1) -> Result | None:
        """Return the corrected accuracy of a window, or of several successive windows together.

        Parameters
        ----------
        window : int
            The number of the last window.
        level : float
            The level of the interval.
        pooled : int
            The number of windows. Windows that are no longer stored are left out.

        Returns
        -------
        Estimate or Unknown or None
            None if there is no label, or if the window is not stored.
        """
        if not self.labelled or window not in (kept := self.logic.windows):
            return None
        return self.logic.estimate(window, level, min(pooled, kept.index(window) + 1))

    def labels_in(self, window: int, pooled: int) -> int:
        """Return the number of labelled rows in `pooled` successive windows. The last of them is `window`.

        The result is 0 if `window` is no longer stored.
        """
        if not self.labelled or window not in self.logic.windows:
            return 0
        return self.logic.labels_in(window, pooled)

    def snapshot(self) -> CorrectingState:
        """Return the settings and the state of the correction."""
        if self._built is None and not self._waiting:
            return CorrectingState(changes=self._changes, changing=self._changing)
        state = self.logic.snapshot()
        return CorrectingState(self._build()[0], state, self._forecast, self._changes, self._changing)

"""The bias of a model's confidences, followed window by window by the labels that come.

The filter (`monitor.stats.estimate.bias_filter`) counts rows; of a label the join knows the window that its
answer
is in. So a window's rows all count as of the window's middle, and windows that an age or a version closed
early as if they were full: time that did not pass makes the filter a little less sure, never surer.

A calibration that replaces another, another version of the model and another baseline begin anew with the
next window that has none of the former's confidences; rows of windows before it are passed over.
"""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

from monitor.base.records import Floats, Ints
from monitor.stats.estimate.between_groups import Deviation
from monitor.stats.estimate.bias_filter import BLOCK_ROWS, BiasFilter, BiasFilterLogic, BiasFilterState
from monitor.stats.estimate.bias_law import BiasLaw
from monitor.stats.estimate.filtered import law_of_window
from monitor.stats.estimate.predictive import Predictive
from monitor.stats.estimate.variance_components import Components


class BiasState(msgspec.Struct, frozen=True, omit_defaults=True):
    """A filter with its settings, and the rows of the windows that it counts in; nothing before one is."""

    window_rows: int = 0
    settings: BiasFilter | None = None
    filter: BiasFilterState | None = None


class BiasFollower:
    """The filter of one model at work; it follows nothing before `calibrated_on` was called.

    Parameters
    ----------
    window_rows : int
        Rows of a full window.
    state : BiasState, optional
        What `snapshot` gave; another number of rows begins anew.

    Examples
    --------
    >>> follower, hundred = BiasFollower(100), np.full(100, 0.9)
    >>> follower.calibrated_on(np.full(4000, 0.9), None)
    >>> follower.add(np.arange(1000) // 10, np.full(1000, 0.9), np.arange(1000) % 10 > 1)
    >>> law = follower.law(101, hundred, Predictive((np.zeros(0),), np.zeros((1, 1)), None))
    >>> round(law.mean, 1)
    -0.8
    """

    def __init__(self, window_rows: int, state: BiasState | None = None) -> None:
        self._rows = window_rows
        self._settings: BiasFilter | None = None
        self._logic: BiasFilterLogic | None = None
        if state is not None and state.settings is not None and state.window_rows == window_rows:
            self._settings, self._logic = state.settings, state.settings.build(state.filter)

    @property
    def labelled(self) -> int:
        """Rows taken since it began, or began anew."""
        return self._logic.labelled if self._logic is not None else 0

    @property
    def follows(self) -> bool:
        """Whether it knows of a calibration whose bias it could follow."""
        return self._logic is not None

    def calibrated_on(self, confidence: Floats, components: Components | None, window: int = 0) -> None:
        """The calibration in force from this window on was fitted on rows with these confidences, (N,)."""
        self._begin(BiasFilter.of_reference(confidence, components, self._block_rows, window * self._rows))

    def begin_anew(self, window: int, epsilon: float | None = None) -> None:
        """Another version, baseline or calibration from this window on.

        Parameters
        ----------
        window : int
        epsilon : float, optional
            Standard error of the calibration's bias in logits; if absent it is as sure as the last.
        """
        if self._settings is None:
            return
        old, variance = self._settings, self._settings.variance
        if epsilon is not None:
            variance = epsilon**2 + (old.components.lasting if old.components else 0.0)
        self._begin(BiasFilter(variance, old.components, old.block_rows, window * self._rows))

    def stop(self) -> None:
        """Follow nothing until `calibrated_on` is called again."""
        self._settings = self._logic = None

    def add(self, window: Ints, confidence: Floats, right: NDArray[np.bool_]) -> None:
        """Take rows that have just got their first labels: see `monitor.engine.labels.audit`."""
        if self._logic is not None:
            self._logic.push(window * self._rows + self._rows // 2, confidence, right)

    def law(
        self, window: int, confidence: Floats, model: Predictive, predicted: Ints | None = None
    ) -> BiasLaw | None:
        """What may be believed of a window, (n,) calibrated confidences; None before any label."""
        if self._logic is None or not self._logic.labelled or not len(confidence):
            return None
        return law_of_window(model, self._logic, confidence, window * self._rows, predicted)

    def law_of_group(
        self,
        closed: int,
        confidence: Floats,
        model: Predictive,
        predicted: Ints | None,
        beyond: Deviation | None,
        unknown: float,
    ) -> BiasLaw | None:
        """As `law`, of a group's window that closes as this model has closed so many windows.

        Parameters
        ----------
        model : Predictive
            The group's.
        beyond : Deviation or None
            The group's.
        unknown : float
            Variance of what is not known of its calibration's shift.
        """
        if self._logic is None or not self._logic.labelled or not len(confidence):
            return None
        start = self._start(closed, len(confidence))
        return law_of_window(model, self._logic, confidence, start, predicted, True, beyond, unknown)

    def speaks(self, closed: int, rows: int) -> bool:
        """Whether labels speak against the calibration, in a group's window of so many rows."""
        return self._logic is not None and self._logic.speaks(self._start(closed, rows), rows)

    def _start(self, closed: int, rows: int) -> int:
        return max(closed * self._rows - rows, 0)

    def snapshot(self) -> BiasState:
        """The filter; an empty one where it follows nothing."""
        if self._logic is None:
            return BiasState()
        return BiasState(self._rows, self._settings, self._logic.snapshot())

    @property
    def _block_rows(self) -> int:
        """A whole number of windows, 500 rows or more."""
        return self._rows * -(-BLOCK_ROWS // self._rows)

    def _begin(self, settings: BiasFilter) -> None:
        self._settings, self._logic = settings, settings.build()

"""Decides the accuracy alarm of a series by labels instead of confidences, if there are enough labels.

**Who decides.** Labels decide if there are enough of them and the baseline's labelled accuracy is known.
There are enough with 100 labelled rows in the newest five windows, and 20 in the newest two (`FEWEST`).
Otherwise the confidences decide, because they may show a sudden change earlier than few or late labels. Once
labels decide, they continue to decide until two conditions are met: there are less than half as many labels,
and the alarm or improvement has ended. So an alarm never ends because labels stop, and the decision does not
switch back and forth around the threshold.

**How labels decide.** Accuracies within a band count as unchanged. The band is the baseline's accuracy plus
and minus the larger of two numbers: three standard deviations of the pooled windows, and `chart.min_change`.
The corrected accuracy of the newest five windows is pooled. An alarm begins when this accuracy lies below the
band with a probability of `SURE`. It ends after eight windows in a row that are in control: the first pooled
accuracy that is not below the band counts for its five windows, and each later one counts for one more.
Improvements are detected in the same way above the band.

**When labels take over,** an alarm by the confidences continues if the pooled accuracy lies below the band.
Otherwise it ends at once, because labels show that nothing has changed.

**The baseline's labelled accuracy** is the accuracy of the reference's windows. If windows of the stream make
the baseline, their confidences may already have been wrong. So the baseline is then the corrected accuracy of
the windows that have enough labels. When a season begins, the windows of its four weeks make this baseline
again, without the season. The baseline of a reference stays.

`SURE` was chosen on simulated streams, on the rain data, and on the first half of the demo's flights (`python
-m tests.fidelity.alarms choice`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import msgspec

from monitor.base.results import Estimate
from monitor.engine.labels.correcting import Correcting
from monitor.reports.views import AlarmByLabels
from monitor.stats.charts.base import Verdict
from monitor.stats.charts.latch import Latch

POOLED = 5
"""The number of windows that are judged together."""

FEWEST = ((5, 100), (2, 20))
"""The labels that are needed: pairs of a number of newest windows and the labelled rows in these windows."""

SURE = 0.75
"""An alarm begins when the accuracy lies beyond the band with this probability."""

_SIGMAS = 3.0


class LabelBaseline(NamedTuple):
    """The labelled accuracy of a baseline: its mean, and the variance of a single row."""

    center: float
    row_variance: float

    @classmethod
    def from_windows(cls, accuracy: Sequence[float], sizes: Sequence[int]) -> LabelBaseline:
        """Return the baseline of two or more windows from their accuracies and numbers of rows.

        The variance of a row is the variance of independent rows. If the windows differ by more than
        independent rows would, the variance is larger.

        Examples
        --------
        >>> LabelBaseline.from_windows([0.75, 0.75, 0.75], [500, 500, 500])
        LabelBaseline(center=0.75, row_variance=0.1875)
        """
        rows = sum(sizes)
        center = math.fsum(share * size for share, size in zip(accuracy, sizes, strict=True)) / rows
        away = [size * (share - center) ** 2 for share, size in zip(accuracy, sizes, strict=True)]
        return cls(center, max(center * (1 - center), math.fsum(away) / (len(away) - 1)))

    def band(self, rows: int, least: float) -> tuple[float, float]:
        """Return the lowest and the highest accuracy that still count as no change from the baseline.

        Parameters
        ----------
        rows : int
            The number of rows of the accuracy that is compared with the band.
        least : float
            The smallest change of the accuracy that matters.
        """
        away = max(_SIGMAS * math.sqrt(self.row_variance / rows), least)
        return max(self.center - away, 0.0), min(self.center + away, 1.0)


class LabelAlarmState(msgspec.Struct, frozen=True, omit_defaults=True):
    """The stored state of a `LabelAlarm`.

    Parameters
    ----------
    baseline : LabelBaseline or None
    accuracy, sizes : list
        The accuracy and the size of each window collected for the baseline; empty once there is a baseline.
    decides : bool
        True if labels decided about the newest window, False if confidences did.
    quiet_windows, quiet_improved : int or None
        The states of the alarm and of the improvement; see `Latch`.
    from_reference : bool
        True if the baseline is that of the reference.
    """

    baseline: LabelBaseline | None = None
    accuracy: list[float] = []
    sizes: list[int] = []
    decides: bool = False
    quiet_windows: int | None = None
    quiet_improved: int | None = None
    from_reference: bool = False


class LabelAlarm:
    """The alarm about the accuracy of one series, if labels decide about it.

    Parameters
    ----------
    least : float
        The smallest change of the accuracy that matters.
    windows : int
        The number of windows of the stream that make a baseline.
    state : LabelAlarmState, optional
    sure : float
        An alarm begins when the accuracy lies outside the band with this probability, above 0.5.
    """

    def __init__(
        self, least: float, windows: int, state: LabelAlarmState | None = None, sure: float = SURE
    ) -> None:
        state = state or LabelAlarmState()
        self._least, self._windows = least, windows
        self._level = 2 * sure - 1  # of the interval whose end has this probability
        self._baseline, self._decides = state.baseline, state.decides
        self._accuracy, self._sizes = list(state.accuracy), list(state.sizes)
        self._alarm, self._improvement = Latch(state.quiet_windows), Latch(state.quiet_improved)
        self._from_reference = state.from_reference

    @property
    def on(self) -> bool:
        """True while labels hold the alarm."""
        return self._alarm.on

    def start_season(self, accuracy: Sequence[float], sizes: Sequence[int]) -> None:
        """Make the baseline of labelled windows without the season; keep the baseline of a reference.

        If the windows are too few, wait for more.
        """
        if not self._from_reference:
            self._baseline, self._improvement = None, Latch()
            self._accuracy, self._sizes = list(accuracy), list(sizes)
            self._complete()

    def estimate(self, correction: Correcting, window: int) -> Estimate | None:
        """Return the corrected accuracy of a window, None if there are too few labels."""
        own = correction.estimate(window) if _enough(correction, window) else None
        return own if isinstance(own, Estimate) else None

    def collect(self, correction: Correcting, window: int, offset: float = 0.0) -> None:
        """Add a closed window to the windows from which the baseline of the labelled accuracy is made.

        Do nothing if the baseline is complete, or if there are too few labels. `offset` is the deviation of
        the window's hour of the week, which is no part of the baseline.
        """
        if self._baseline is None and (own := self.estimate(correction, window)) is not None:
            self._accuracy.append(min(max(own.value - offset, 0.0), 1.0))
            self._sizes.append(own.n)
            self._complete()

    def _complete(self) -> None:
        """Make the baseline if there are enough windows."""
        if len(self._accuracy) >= self._windows:
            self._baseline = LabelBaseline.from_windows(self._accuracy, self._sizes)
            self._accuracy, self._sizes = [], []

    def judge(
        self, by_confidences: Verdict, correction: Correcting, window: int, offset: float = 0.0
    ) -> tuple[Verdict, AlarmByLabels | None]:
        """Judge a closed window by labels, if there are enough labels and a baseline by labels.

        Parameters
        ----------
        by_confidences : Verdict
            The verdict of the chart of the estimated accuracy.
        correction : Correcting
        window : int
            The window's number, which increases from call to call.
        offset : float
            The mean deviation of the hours of the pooled windows, by which the band moves.

        Returns
        -------
        Verdict
            The verdict by labels, or `by_confidences` if the confidences decide.
        AlarmByLabels or None
            The numbers behind a verdict by labels; None if the confidences decide.
        """
        decided = self._decides
        on = self._alarm.on or self._improvement.on
        enough = on or _enough(correction, window, 0.5 if decided else 1.0)
        pooled = correction.estimate(window, self._level, POOLED) if enough else None
        self._decides = self._baseline is not None and isinstance(pooled, Estimate)
        if self._baseline is None or not isinstance(pooled, Estimate):
            self._alarm, self._improvement = Latch(), Latch()
            return by_confidences, None
        moved = by_confidences.out_of_control, by_confidences.improved
        alarmed, improved = (self._alarm.on, self._improvement.on) if decided else moved
        band = self._baseline.band(pooled.n, self._least)
        low, high = (min(max(end + offset, 0.0), 1.0) for end in band)
        self._alarm.update(pooled.upper < low or (alarmed and pooled.value < low), POOLED)
        self._improvement.update(pooled.lower > high or (improved and pooled.value > high), POOLED)
        verdict = replace(
            by_confidences,
            out_of_control=self._alarm.on,
            improved=self._improvement.on and not self._alarm.on,
        )
        labels = correction.labels_in(window, POOLED)
        return verdict, AlarmByLabels(pooled.value, low, high, labels, any(moved))

    def snapshot(self) -> LabelAlarmState:
        """Return the state, from which another `LabelAlarm` can resume."""
        return LabelAlarmState(
            self._baseline,
            list(self._accuracy),
            list(self._sizes),
            self._decides,
            self._alarm.snapshot(),
            self._improvement.snapshot(),
            self._from_reference,
        )


def _enough(correction: Correcting, window: int, share: float = 1.0) -> bool:
    """Return whether there are enough labels: at least `share` times the numbers in `FEWEST`."""
    return all(correction.labels_in(window, windows) >= share * labels for windows, labels in FEWEST)

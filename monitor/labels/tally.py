"""How many rows of each window are labelled, and how many of those were right."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from monitor.estimate.proportion import wilson
from monitor.result import Result


class Tally:
    """Labelled and correct rows by window, of one series.

    Parameters
    ----------
    keep : int
        How far back from the newest labelled window counts are kept, at least 1; of older windows
        nothing more is learnt.

    Attributes
    ----------
    labelled, correct : int
        Over all windows that there ever were.

    Raises
    ------
    ValueError
        `keep` is below 1.

    Examples
    --------
    >>> tally = Tally(keep=100)
    >>> tally.add(window=3, labelled=20, correct=19)
    >>> tally.realised(3, level=0.95).value
    0.95
    >>> print(tally.realised(4, level=0.95).reason)
    no labels yet
    """

    def __init__(self, keep: int, resume: Mapping[str, Any] | None = None) -> None:
        if keep < 1:
            raise ValueError(f"keep must be at least 1 window, got {keep}")
        self._keep = keep
        self._windows: dict[int, tuple[int, int]] = {}
        self._highest = -1
        self.labelled = self.correct = 0
        for window, labelled, correct in resume["windows"] if resume else ():
            self.add(window, labelled, correct)
        if resume:
            self.labelled, self.correct = resume["labelled"], resume["correct"]

    def add(self, window: int, labelled: int, correct: int) -> None:
        """Add to a window's counts; a corrected label may take away."""
        self.labelled += labelled
        self.correct += correct
        if window <= self._highest - self._keep:
            return
        n, k = self._windows.get(window, (0, 0))
        self._windows[window] = (n + labelled, k + correct)
        if window > self._highest:
            self._forget_up_to(window - self._keep)
            self._highest = window

    def _forget_up_to(self, oldest: int) -> None:
        """Each window once, so that adding stays cheap however many are kept; a long leap looks at all."""
        leap = range(max(0, self._highest - self._keep + 1), oldest + 1)
        for window in leap if len(leap) < len(self._windows) else list(self._windows):
            if window <= oldest:
                self._windows.pop(window, None)

    def counts(self, window: int) -> tuple[int, int]:
        """Labelled and correct rows of a window."""
        return self._windows.get(window, (0, 0))

    def windows(self) -> dict[int, tuple[int, int]]:
        """Labelled and correct rows of every window kept, by its number."""
        return dict(self._windows)

    def realised(self, window: int, level: float) -> Result:
        """Accuracy over the labelled rows of a window, with its Wilson interval."""
        labelled, correct = self.counts(window)
        return wilson(correct, labelled, level)

    def newest(self, before: int) -> int | None:
        """The newest window below this number that has labelled rows; None without one.

        Looks back from the newest labelled window, which is nearly always the answer.
        """
        for window in range(min(before - 1, self._highest), max(-1, self._highest - self._keep), -1):
            if self.counts(window)[0]:
                return window
        return None

    def snapshot(self) -> dict[str, Any]:
        """The counts."""
        windows = [[window, n, k] for window, (n, k) in self._windows.items()]
        return {"windows": windows, "labelled": self.labelled, "correct": self.correct}

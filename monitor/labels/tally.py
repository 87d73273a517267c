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
        Windows kept; of older ones nothing more is learnt.

    Examples
    --------
    >>> tally = Tally(keep=100)
    >>> tally.add(window=3, labelled=20, correct=19)
    >>> tally.realised(3, level=0.95).value
    0.95
    >>> tally.realised(4, level=0.95).reason
    'no labels yet'
    """

    def __init__(self, keep: int, resume: Mapping[str, Any] | None = None) -> None:
        self._keep = keep
        self._windows: dict[int, tuple[int, int]] = {}
        if resume is not None:
            self._windows = {window: (n, k) for window, n, k in resume["windows"]}

    def add(self, window: int, labelled: int, correct: int) -> None:
        """Add to a window's counts; a corrected label may take away."""
        n, k = self._windows.get(window, (0, 0))
        self._windows[window] = (n + labelled, k + correct)
        if len(self._windows) > self._keep:
            del self._windows[min(self._windows)]

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
        """The newest window below this number that has labelled rows; None without one."""
        return max(
            (window for window, (n, _) in self._windows.items() if n and window < before), default=None
        )

    def snapshot(self) -> dict[str, Any]:
        """The counts."""
        return {"windows": [[window, n, k] for window, (n, k) in self._windows.items()]}

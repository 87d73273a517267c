"""What the outside may see of an arena."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from monitor.stats.pairwise.standing import Standing


@dataclass(frozen=True, slots=True)
class ArenaView:
    """An arena as of its last closed window.

    Parameters
    ----------
    task : str
    window_size : int
        Configured size.
    windows_closed, comparisons, duplicates : int
        Counts since the start; comparisons are those in closed windows.
    pending : int
        Comparisons in the open window.
    window_end_time : float or None
        Time of the last record of the last closed window, seconds since the epoch.
    standing : Standing or None
        None before the first window has closed.
    """

    task: str
    window_size: int
    windows_closed: int = 0
    comparisons: int = 0
    duplicates: int = 0
    pending: int = 0
    window_end_time: float | None = None
    standing: Standing | None = None

"""How long a window takes, which is the unit that alerts on windows wait in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from monitor.config.root import Config, Task

_DAY = 86_400.0
_LEAST_SECONDS = 60.0  # Prometheus' own evaluation interval: nothing shorter is ever seen
_REFIT_SECONDS = 6 * 3600.0  # no refit is due more often than a few times a day, however fast windows close


@dataclass(frozen=True, slots=True)
class Pace:
    """The times of a task.

    Parameters
    ----------
    task : str
        Its name; empty where it holds of any.
    window_seconds : float
        How long a window of the slowest model takes at its expected traffic.
    slowest_seconds : float
        How long one takes at most while there is traffic: in a quiet hour windows close by their age.
    refit_seconds : float
        Within which several refits were due.

    Examples
    --------
    >>> Pace()
    Pace(task='', window_seconds=900.0, slowest_seconds=900.0, refit_seconds=54000.0)
    """

    task: str = ""
    window_seconds: float = 900.0
    slowest_seconds: float = 900.0
    refit_seconds: float = 54_000.0


def paces(config: Config) -> tuple[Pace, ...]:
    """The paces of a configuration's tasks; one for any task where all are alike.

    A window is expected to take what its rows take at the model's `answers_per_day`, and `max_age_seconds`
    where that is less or not known. Where a day's traffic comes within a few hours, the rest of the day is
    slower: `slowest_seconds` allows for that.

    Examples
    --------
    >>> from monitor.config.root import Config
    >>> busy = {"window": {"size": 500}, "models": {"erm": {"answers_per_day": 144_000}}}
    >>> paces(Config(tasks={"spam": busy, "ham": {}}))[0]
    Pace(task='spam', window_seconds=300.0, slowest_seconds=900.0, refit_seconds=21600.0)
    """
    found = {name: _pace(task) for name, task in config.scored_tasks.items()}
    refits = {times[:2]: times[2] for times in found.values()}
    for name, arena in config.arenas.items():
        age = float(max(_LEAST_SECONDS, arena.window.max_age_seconds))
        # An arena has no refits: it is like any task with windows like its own.
        found[name] = (age, age, refits.get((age, age), _REFIT_SECONDS))
    if len(set(found.values())) == 1:
        return (Pace("", *next(iter(found.values()))),)
    return tuple(Pace(name, *times) for name, times in found.items())


def _pace(task: Task) -> tuple[float, float, float]:
    known = [each.answers_per_day for each in task.models.values() if each.answers_per_day]
    window, age = task.window, task.window.max_age_seconds
    expected, slowest = age, age
    if known and len(known) == len(task.models):
        second = min(known) / _DAY
        slowest = max(age, window.min_size / second)
        expected = min(window.size / second, slowest)
    expected, slowest = (float(max(_LEAST_SECONDS, each)) for each in (expected, slowest))
    # Windows of all models together make a refit due; three that brought nothing are no accident.
    refit = 3 * (task.ssme.every_seconds or task.ssme.every_windows * expected)
    return expected, slowest, max(_REFIT_SECONDS, refit)

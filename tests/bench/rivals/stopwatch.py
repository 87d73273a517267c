"""The measurements of every script, with the standard library and numpy alone, for other environments."""

from __future__ import annotations

import json
import resource
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass
class Measured:
    """The cost of some work, and its result.

    Parameters
    ----------
    fit : float
        Seconds of the processor, in all threads: what else the machine does changes them less.
    estimate : float
        Seconds over all windows, the best round.
    megabytes : float
        What the process grew by at most.
    intervals : dict of str to list
        By metric, a window's lower and upper end; empty where the library gives none.
    drifted : dict of str to list
        By data set, the features of each window that the library calls drifted; empty for other work.
    """

    fit: float
    estimate: float
    megabytes: float
    intervals: dict[str, list[list[float]]] = field(default_factory=dict)
    drifted: dict[str, list[list[str]]] = field(default_factory=dict)


def peak() -> float:
    """Return the process's largest resident memory so far, in megabytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measured(
    fit: Callable[[], Any],
    estimate: Callable[[Any], Any],
    intervals: Callable[[Any], dict[str, list[list[float]]]],
    rounds: int,
) -> Measured:
    """Fit once, estimate `rounds` times, and read the intervals off the last."""
    before = peak()
    began = time.process_time()
    fitted = fit()
    fit_seconds = time.process_time() - began
    best, results = float("inf"), None
    for _ in range(rounds):
        began = time.process_time()
        results = estimate(fitted)
        best = min(best, time.process_time() - began)
    return Measured(fit_seconds, best, peak() - before, intervals(results))


def tell(results: dict[str, Measured]) -> None:
    """Print them for the process that asked."""
    print(json.dumps({name: asdict(result) for name, result in results.items()}))

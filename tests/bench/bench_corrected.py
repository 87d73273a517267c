"""Time of the corrected accuracy of a window: its closing, its labels, one estimate.

    python -m tests.bench.bench_corrected [--n 500] [--share 0.2]

Simulated drift of 20,000 rows (`tests.fidelity.predictive`), labels that come some windows late. `and pooled`
also estimates the newest five windows together, as an objective does. Milliseconds of the processor for a
window; the reference is not counted.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from monitor.stats.estimate.corrected import Correction
from tests.fidelity.predictive import simulated
from tests.fidelity.streams import Stream, calibrated, corrected
from tests.harness import in_turns, run

LATE = (0, 1, 2, 4, 10, 20)


def table(n: int = 500, share: float = 0.2) -> Iterator[str]:
    """Yield a line a delay."""
    life = simulated("OU drift", 5000, 1)
    stream = calibrated(life.scores, life.predicted, life.labels, life.reference)
    settings = Correction.from_reference(stream.crossed, stream.held, n)
    yield f"Milliseconds a window of {n:,}, labels of {100 * share:g} %"
    yield f"{'windows late':14s}{'corrected':>11s}{'and pooled':>12s}"
    for late in LATE:
        one, both = _times(stream, settings, n, share, late)
        yield f"{late:<14d}{one:11.2f}{both:12.2f}"


def _times(stream: Stream, settings: Correction, n: int, share: float, late: int) -> list[float]:
    windows = len(stream.right) // n
    picked = np.flatnonzero(np.random.default_rng(1).random(windows * n) < share)
    known = picked // n + late
    spent = in_turns(
        lambda: corrected(stream, n, picked, known, settings=settings),
        lambda: corrected(stream, n, picked, known, settings=settings, pooled=5),
        repeats=1,
        rounds=5,
    )
    return [1e3 * each / windows for each in spent]


if __name__ == "__main__":
    run(table, keep=False)

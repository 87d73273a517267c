"""The false shifts of a group whose confidences are right: how far labels move its accuracy.

    python -m tests.fidelity.group_shift [--draws 200]

A group of simulated rows (Kivimäki et al., Table 2) that are right with the probability that their
confidence says: 500 or 2,500 of them are its part of its model's reference, and 30 windows of 500 follow,
with labels of 2 % or 20 % one window late. The group is corrected by its own labels
(`Correction.from_group`). A draw is shifted where the corrected accuracy of any window lies more than three
points from the mean confidence. The confidences of a group are never shifted: it has the calibration of its
model.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from monitor.base.results import Estimate
from monitor.stats.estimate.corrected import Correction
from tests.fidelity.simulated import ORIGINAL, confidences
from tests.harness import run

REFERENCES = (500, 2500)
SHARES = (0.02, 0.2)
WINDOWS, SIZE = 30, 500
FAR = 0.03


def largest_shift(reference: int, share: float, seed: int) -> float:
    """Return the largest shift among the windows of one group."""
    rng = np.random.default_rng([seed, reference, 37])
    known, chance = confidences(rng, ORIGINAL, (reference,)), confidences(rng, ORIGINAL, (WINDOWS, SIZE))
    logic = Correction.from_group(known, rng.random(reference) < known, SIZE).build()
    right, labelled = rng.random(chance.shape) < chance, rng.random(chance.shape) < share
    shifts, before = [], np.zeros(0, dtype=np.int64)
    for window, confidence in enumerate(chance):
        blocks = logic.close(window, confidence)
        if window:
            late = labelled[window - 1]
            logic.push(before[late], chance[window - 1, late], right[window - 1, late])
        before = blocks
        estimate = logic.estimate(window)
        assert isinstance(estimate, Estimate)
        shifts.append(abs(estimate.value - float(confidence.mean())))
    return max(shifts)


def shifted(reference: int, share: float, draws: int, seed: int = 1) -> tuple[float, float]:
    """Return share of draws with a shift of more than three points, and the median of the largest shift."""
    shifts = [largest_shift(reference, share, 1000 * seed + draw) for draw in range(draws)]
    return float(np.mean(np.array(shifts) > FAR)), float(np.median(shifts))


def table(draws: int = 200) -> Iterator[str]:
    """Yield all of it, a line at a time."""
    yield f"Right groups that labels shift, {draws} draws a row (python -m tests.fidelity.group_shift)"
    yield "reference   labels   by more than 3 points   largest of 30 windows, median"
    for reference in REFERENCES:
        for share in SHARES:
            far, median = shifted(reference, share, draws)
            yield f"{reference:9,} {100 * share:6.0f} % {100 * far:22.1f} % {100 * median:24.2f} points"


if __name__ == "__main__":
    run(table)

"""Coverage of the weighted share's interval if rows are picked with unequal probabilities.

    python -m tests.fidelity.hajek [--trials 10000]

Of the answers, 20 % have a low score and are right 75 times in 100; the others 98 times: 93.4 % in all. Each
is picked for labelling independently, with a probability that depends on its score, or on whether it is right
(as when users report errors). For each design and number of answers it prints, in percent, how often the
interval contains the 93.4 %:

* `hajek`: Blindsight's interval, and its mean width;
* `plain`: the same at the effective number without the two virtual rows (see `monitor.stats.estimate.hajek`);
* `counts`: Wilson's interval of the labelled rows, without weights.

Samples without a labelled row have no interval and are drawn again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import sqrt

import numpy as np

from monitor import WeightedCounts, hajek, wilson
from monitor.base.records import Ints
from monitor.base.results import Estimate
from monitor.stats.estimate.hajek import ONE, excess
from monitor.stats.estimate.proportion import wilson_interval
from tests.harness import run

LEVEL = 0.95
ANSWERS = (500, 2000, 8000)
SHARES = np.array([0.2 * 0.75, 0.2 * 0.25, 0.8 * 0.98, 0.8 * 0.02])
"""Of answers: low score and right, low and wrong, high and right, high and wrong."""
TRUTH = float(SHARES[0] + SHARES[2])
DESIGNS = {
    "all alike": (0.05, 0.05, 0.05, 0.05),
    "low scores 4x": (0.20, 0.20, 0.05, 0.05),
    "low scores 25x": (0.50, 0.50, 0.02, 0.02),
    "high scores 5x": (0.02, 0.02, 0.10, 0.10),
    "wrong ones 10x": (0.05, 0.50, 0.05, 0.50),
    "right ones 2.5x": (0.05, 0.02, 0.05, 0.02),
}
"""The probability of being picked, for each of the shares."""


@dataclass(frozen=True)
class Row:
    """Shares from 0 to 1 for one design and number of answers; `labelled` is a mean number of rows."""

    design: str
    answers: int
    trials: int
    labelled: float
    hajek: float
    width: float
    plain: float
    counts: float

    @property
    def allowed(self) -> float:
        """Three binomial errors of the trials around the level."""
        return 3 * sqrt(LEVEL * (1 - LEVEL) / self.trials)


def picked(rng: np.random.Generator, design: str, answers: int, trials: int) -> Ints:
    """Return labelled rows by share, (trials, 4): at least one in each sample."""
    counts = np.zeros((0, 4), dtype=np.int64)
    while len(counts) < trials:
        draws = rng.binomial(rng.multinomial(answers, SHARES, size=trials), DESIGNS[design])
        counts = np.concatenate([counts, draws[draws.sum(axis=1) > 0]])
    return counts[:trials]


def sums(design: str, rows: Ints) -> WeightedCounts:
    """Return the weighted counts of one sample."""
    total = WeightedCounts()
    for k, (probability, n) in enumerate(zip(DESIGNS[design], rows.tolist(), strict=True)):
        right = n if k % 2 == 0 else 0
        total = total.plus(WeightedCounts(n, right, excess(1 / probability, n, right)))
    return total


def plain_interval(counts: WeightedCounts) -> tuple[float, float]:
    """Return Wilson's at p(1 - p) over the linearised variance; at Kish's number where that is 0."""
    w, squares = counts.n * ONE + counts.excess.weight, counts.n * ONE**2 + counts.excess.squares
    share = (counts.successes * ONE + counts.excess.weighted_successes) / w
    good = counts.successes * ONE**2 + counts.excess.squared_successes
    variance = ((1 - share) ** 2 * good + share**2 * (squares - good)) / w**2
    mixed = 0 < counts.successes < counts.n
    return wilson_interval(share, share * (1 - share) / variance if mixed else w * w / squares, LEVEL)


def measure(design: str, answers: int, trials: int, seed: int = 1) -> Row:
    """Return coverage over independent samples."""
    rng = np.random.default_rng([seed, answers, list(DESIGNS).index(design)])
    rows = picked(rng, design, answers, trials)
    held = np.zeros(4)
    for sample in rows:
        counts = sums(design, sample)
        weighted, naive = hajek(counts, LEVEL), wilson(counts.successes, counts.n, LEVEL)
        assert isinstance(weighted, Estimate)
        assert isinstance(naive, Estimate)
        lower, upper = plain_interval(counts)
        held += (
            weighted.lower <= TRUTH <= weighted.upper,
            weighted.upper - weighted.lower,
            lower <= TRUTH <= upper,
            naive.lower <= TRUTH <= naive.upper,
        )
    return Row(design, answers, trials, float(rows.sum(axis=1).mean()), *(held / trials).tolist())


def table(trials: int = 10_000) -> Iterator[str]:
    """Yield a line a design and number of answers, in percent."""
    error = 300 * sqrt(LEVEL * (1 - LEVEL) / trials)
    yield (
        f"Coverage in % of {LEVEL:.0%} intervals, {trials:,} samples each, ±{error:.2f} "
        "(python -m tests.fidelity.hajek)"
    )
    yield (
        f"{'picked more often':17s} {'answers':>7s} {'labels':>7s} {'hajek':>6s} {'width':>6s} {'plain':>6s} "
        f"{'counts':>6s}"
    )
    for r in (measure(design, answers, trials) for design in DESIGNS for answers in ANSWERS):
        yield (
            f"{r.design:17s} {r.answers:7d} {r.labelled:7.1f} {100 * r.hajek:6.1f} {100 * r.width:6.1f} "
            f"{100 * r.plain:6.1f} {100 * r.counts:6.1f}"
        )


if __name__ == "__main__":
    run(table)

"""Coverage of the exact interval on the paper's simulated data (Kivimäki et al., Figure 4).

    python -m tests.fidelity.coverage [--trials 10000]

For each mixture and window size it prints, in percent, how often the realised accuracy lies in

* `exact`: the central quantiles of the Poisson binomial, Blindsight's interval, and beside it `mass`: the
  probability that the exact distribution itself puts between them. They must agree within three binomial
  errors of the trials: then the calculation is right, and the difference to 95 % comes from discrete counts;
* `F-range`: the paper's words taken literally (section 4.2): counts whose CDF is from 0.025 to 0.975;
* `mid-P`: counts whose CDF less half their own probability is from 0.025 to 0.975;
* `SEM`: the mean confidence ± 1.96 standard errors from the labels of the reference (equation 3), for
  comparison in Figure 4.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from math import sqrt

import numpy as np

from monitor import average_confidence_many, pmf_many
from monitor.base.records import Floats
from tests.fidelity.simulated import MIXTURES, ORIGINAL, confidences, expected_accuracy, outcomes
from tests.harness import run

SIZES = (100, 200, 300, 400, 500)
LEVEL = 0.95
_BATCH = 1000  # windows whose whole distributions are held at once


@dataclass(frozen=True)
class Row:
    """Shares from 0 to 1 for one mixture and window size."""

    mixture: str
    n: int
    trials: int
    exact: float
    mass: float
    f_range: float
    mid_p: float
    sem: float
    width: float

    @property
    def allowed(self) -> float:
        """Three binomial errors of the trials around `mass`."""
        return 3 * sqrt(self.mass * (1 - self.mass) / self.trials)


@cache
def measure(mixture: str, n: int, trials: int, seed: int = 1) -> Row:
    """Return coverage over independent windows of n rows."""
    rng = np.random.default_rng([seed, n, sorted(MIXTURES).index(mixture)])
    reference = expected_accuracy(ORIGINAL)
    sem = 1.96 * sqrt(reference * (1 - reference) / n)
    sums = np.zeros(6)
    for first in range(0, trials, _BATCH):
        windows = min(_BATCH, trials - first)
        confidence = confidences(rng, MIXTURES[mixture], (windows, n))
        right = outcomes(rng, confidence).sum(axis=1).astype(np.int64)
        sums += _counts(confidence, right, sem)
    return Row(mixture, n, trials, *(sums / trials).tolist())


def _counts(confidence: Floats, right: np.ndarray, sem: float) -> Floats:
    n = confidence.shape[1]
    tail = (1 - LEVEL) / 2
    value, lower, upper = average_confidence_many(confidence, LEVEL).T
    pmf = pmf_many(confidence)
    cdf = np.minimum(np.cumsum(pmf, axis=1), 1.0)
    counts = np.arange(n + 1) / n
    inside = (counts >= lower[:, None]) & (counts <= upper[:, None])
    at = np.arange(len(right)), right
    mid = cdf[at] - pmf[at] / 2
    accuracy = right / n
    return np.array(
        [
            ((accuracy >= lower) & (accuracy <= upper)).sum(),
            (pmf * inside).sum(),
            ((cdf[at] >= tail) & (cdf[at] <= 1 - tail)).sum(),
            ((mid >= tail) & (mid <= 1 - tail)).sum(),
            (np.abs(accuracy - value) <= sem).sum(),
            (upper - lower).sum(),
        ]
    )


def table(trials: int = 10_000) -> Iterator[str]:
    """Yield a line a mixture and size, in percent."""
    yield (
        f"Coverage in % of {LEVEL:.0%} intervals, {trials:,} windows each (python -m tests.fidelity.coverage)"
    )
    yield (
        f"{'data':9s} {'n':>4s} {'exact':>7s} {'mass':>7s} {'±3 err':>7s} {'F-range':>8s} {'mid-P':>7s} "
        f"{'SEM':>7s} {'width':>6s}"
    )
    for r in (measure(mixture, n, trials) for mixture in MIXTURES for n in SIZES):
        yield (
            f"{r.mixture:9s} {r.n:4d} {100 * r.exact:7.2f} {100 * r.mass:7.2f} {100 * r.allowed:7.2f} "
            f"{100 * r.f_range:8.2f} {100 * r.mid_p:7.2f} {100 * r.sem:7.2f} {100 * r.width:6.2f}"
        )


if __name__ == "__main__":
    run(table)

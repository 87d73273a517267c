"""Point estimates under gradual shift (Kivimäki et al., section 5.1.2, Figure 3).

    python -m tests.fidelity.point_estimates [--trials 1000]

The share of rows from the shifted mixture grows from 0 to 100 % in steps of 5 %. It prints mean and standard
deviation of the error, estimate minus realised accuracy, in percentage points, for

* `AC`: Average Confidence;
* `ATC`: the share of confidences above a threshold, chosen on a labelled reference so that the share
  below it is the error rate there (Garg et al., in the paper's section 3);
* `binomial`: always the accuracy of the original distribution.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from monitor import ATC, average_confidence_many
from monitor.base.records import Floats
from tests.fidelity.simulated import ORIGINAL, confidences, expected_accuracy, mixed, outcomes
from tests.harness import run

SIZES = (100, 500)
SHIFTS = np.arange(21) / 20
REFERENCE_ROWS = 100_000
ESTIMATORS = ("AC", "ATC", "binomial")


@dataclass(frozen=True)
class Row:
    """Error of each estimator at one window size and shift: (3,) each, as a share."""

    n: int
    shift: float
    mean: Floats
    sd: Floats


def threshold(rng: np.random.Generator) -> float:
    """Return ATC's threshold, fitted on a labelled reference of the original mixture."""
    confidence = confidences(rng, ORIGINAL, (REFERENCE_ROWS,))
    return ATC.fit(confidence, outcomes(rng, confidence)).threshold


def measure(n: int, shift: float, trials: int, seed: int = 1) -> Row:
    """Return errors over independent windows of n rows."""
    cut = threshold(np.random.default_rng(seed))
    rng = np.random.default_rng([seed, n, round(100 * shift)])
    confidence = mixed(rng, shift, (trials, n))
    realised = outcomes(rng, confidence).mean(axis=1)
    estimates = np.stack(
        [
            average_confidence_many(confidence)[:, 0],
            (confidence > cut).mean(axis=1),
            np.full(trials, expected_accuracy(ORIGINAL)),
        ]
    )
    errors = estimates - realised
    return Row(n, shift, errors.mean(axis=1), errors.std(axis=1, ddof=1))


def table(trials: int = 1000) -> Iterator[str]:
    """Yield a line a size and shift, in percentage points."""
    yield (
        f"Mean and standard deviation of the error in points, {trials:,} windows each "
        "(python -m tests.fidelity.point_estimates)"
    )
    yield f"{'n':>4s} {'shift %':>8s} " + " ".join(f"{name:>16s}" for name in ESTIMATORS)
    for row in (measure(n, float(shift), trials) for n in SIZES for shift in SHIFTS):
        cells = " ".join(f"{100 * m:+8.2f} ±{100 * s:6.2f}" for m, s in zip(row.mean, row.sd, strict=True))
        yield f"{row.n:4d} {100 * row.shift:8.0f} {cells}"


if __name__ == "__main__":
    run(table)

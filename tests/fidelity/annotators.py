"""Dawid and Skene beside crowd-kit's, and Bayesian calibration beside the paper's rows, on civilcomments.

    python -m tests.fidelity.annotators [--runs 50] [--answers FOLDER]

The SSME paper's protocol (`tests.fidelity.ssme.protocol`), reporting half. crowd-kit, a second implementation
of Dawid and Skene by Toloka, is in the extra `test`. Here it always makes 400 iterations. By its own rule it
would stop after two if rows are labelled, as its bound falls then, though the likelihood still rises. Ours
stops by its own rule, after at most 100.

The calibration's table is mean absolute error in points over models and runs, with its standard deviation
over runs, beside what Shanmugam et al. print (Tables 1, S3, S4 and S5). Both are beta calibrations of Ji et
al. (2020), for each model separately. Ours is nearer to the truth, as it follows the labels more. In the
per-model tables (`python -m tests.fidelity.ssme models`) the paper's estimates of six models scatter by 1
point of AUROC, far from the truth, and ours by 3 to 5 around a mean that is nearer to it; the paper gives no
prior.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from monitor import DawidSkene
from monitor.base.records import Floats
from tests.fidelity.ssme import civilcomments
from tests.fidelity.ssme.compare import SHOWN, measure
from tests.fidelity.ssme.printed import printed_error
from tests.fidelity.ssme.protocol import Pool, Run
from tests.harness import run

RUNS = 50
WITNESSED_RUNS = 5
LABELS = (20, 50, 100)
THEIR_ITERATIONS = 400
TAG = "bayesian_calibration"


def theirs(run: Run, iterations: int) -> Floats:
    """Return (n, 2) crowd-kit's class probabilities of the rows of a run.

    Raises
    ------
    ImportError
        crowd-kit is not installed.
    """
    import pandas
    from crowdkit.aggregation import DawidSkene as Other

    votes = run.scores.argmax(axis=2)
    rows, models = (index.ravel() for index in np.indices(votes.shape))
    table = pandas.DataFrame({"task": rows, "worker": models, "label": votes.ravel()})
    known = {row: int(label) for row, label in enumerate(run.labels) if label >= 0}
    other: Any = Other(n_iter=iterations, tol=-np.inf)
    other.fit(table, true_labels=pandas.Series(known) if known else None)
    probabilities: Floats = other.probas_.sort_index()[[0, 1]].to_numpy()
    return probabilities


def witnessed(
    pool: Pool, labels: int, runs: int, iterations: int = THEIR_ITERATIONS
) -> tuple[float, float, float]:
    """Return largest and mean difference of a row's chance between the two, and the share of ours that
    converged.
    """
    apart, converged = [], []
    for seed in range(runs):
        run = pool.run(labels, seed)
        fit = DawidSkene(seed=seed).fit(run.scores, run.labels)
        apart.append(np.abs(fit.posterior - theirs(run, iterations)))
        converged.append(fit.converged)
    return float(np.max(apart)), float(np.mean(apart)), float(np.mean(converged))


def witness_lines(pool: Pool, runs: int) -> list[str]:
    """Return the first table."""
    lines = [
        f"dawid_skene beside crowd-kit, {pool.name}, {runs} runs: difference of a row's chance, and how many "
        "of ours converged in %",
        "labels  largest      mean  converged",
    ]
    for labels in LABELS:
        largest, mean, converged = witnessed(pool, labels, runs)
        lines.append(f"{labels:6d}  {largest:7.1e}  {mean:8.1e}  {100 * converged:9.0f}")
    return lines


def calibration_lines(pool: Pool, runs: int, kept: Path | None = None) -> list[str]:
    """Return the second table."""
    lines = [
        f"{TAG}, {pool.name}, {runs} runs: mean absolute error in points, in brackets the paper's",
        "labels" + "".join(f"{metric:>24s}" for metric in SHOWN),
    ]
    for labels in LABELS:
        one, cells = measure(pool, [TAG], labels, runs, kept=kept)[TAG], ""
        for metric in SHOWN:
            errors = 100 * one.mean_error(metric)
            cells += (
                f"{errors.mean():9.2f} ± {errors.std(ddof=1):5.2f} ({printed_error(metric, TAG, labels)})"
            )
        lines.append(f"{labels:6d}{cells}")
    return lines


def table(runs: int = RUNS, answers: Path | None = None) -> Iterator[str]:
    """Yield both; `answers` is a folder that keeps each run's answers, so that a run can go on."""
    pool = civilcomments.pool("reporting")
    yield from witness_lines(pool, min(runs, WITNESSED_RUNS))
    yield ""
    yield from calibration_lines(pool, runs, answers)


if __name__ == "__main__":
    run(table, data=True)

"""SSME-KDE with 50 iterations of EM (the paper's section 4) and with 1,000 (its appendix E.3)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from monitor import METRICS, SSMEPaper
from monitor.base.records import Floats
from tests.fidelity.ssme.compare import SHOWN, answers
from tests.fidelity.ssme.protocol import Pool

EPOCHS = (50, 1000)
LABELS = (20, 50, 100)


@dataclass(frozen=True)
class Fits:
    """One setting over all runs.

    Parameters
    ----------
    error : (runs, len(SHOWN), M) float64
        Estimate less truth.
    iterations : (runs,) float64
    converged : (runs,) float64
        1 where EM stopped before the last iteration allowed.
    """

    error: Floats
    iterations: Floats
    converged: Floats


def fits(pool: Pool, labels: int, epochs: int, runs: int) -> Fits:
    """Return values of the paper's method on the runs that all estimators get."""
    rows = [METRICS.index(metric) for metric in SHOWN]
    errors, health = [], []
    for seed in range(runs):
        run = pool.run(labels, seed)
        fit = SSMEPaper(seed=seed, epochs=epochs).fit(run.scores, run.labels)
        values = answers(fit, range(run.scores.shape[1]), False, SHOWN)[:, :, 0]
        errors.append((values - pool.truth)[rows])
        health.append((fit.iterations, fit.converged))
    iterations, converged = np.array(health, dtype=np.float64).T
    return Fits(np.stack(errors), iterations, converged)


def table(pool: Pool, runs: int) -> str:
    """Return a line for each number of labels and of iterations, and how far apart the two are."""
    lines = [
        f"{pool.name}, ssme_paper, {runs} runs: mean absolute error in points by most iterations of EM; fits "
        "that converged in %, median iterations, and the largest difference of any estimate between the two",
        f"{'labels':>6s} {'most':>5s}"
        + "".join(f"{metric:>18s}" for metric in SHOWN)
        + f"{'converged':>10s} {'median':>7s} {'largest':>8s}",
    ]
    for labels in LABELS:
        both = [fits(pool, labels, epochs, runs) for epochs in EPOCHS]
        apart = 100 * float(np.abs(both[0].error - both[1].error).max())
        for epochs, one in zip(EPOCHS, both, strict=True):
            errors = 100 * np.abs(one.error).mean(axis=(0, 2))
            lines.append(
                f"{labels:6d} {epochs:5d}"
                + "".join(f"{error:18.2f}" for error in errors)
                + f"{100 * one.converged.mean():10.0f} {np.median(one.iterations):7.0f} {apart:8.2f}"
            )
    return "\n".join(lines) + "\n"

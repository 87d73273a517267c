"""Effective sample size as the SSME paper's appendix B.4 has it: how many labels alone would do as well.

For each number of labels from 10 to 1,000 in steps of 5, 50 samples; the mean absolute error of labels alone
over samples and models. The effective sample size of an estimator is the number of labels whose error is
nearest to its own. The paper prints no figure for the toxicity task alone: over its five tasks, 20
labels, SSME-KDE is worth 539 labels for its ECE, the next best method 110.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from monitor import METRICS
from monitor.base.records import Floats
from tests.fidelity.ssme.compare import SHOWN, known_mean, measure
from tests.fidelity.ssme.protocol import Pool, metrics_of

SIZES = tuple(range(10, 1001, 5))
SAMPLES = 50
LABELS = (20, 50, 100)
TAGS = (
    "ssme",
    "ssme_paper",
    "ensemble",
    "labelled",
    "pseudo_label",
    "majority_vote",
    "dawid_skene",
    "bayesian_calibration",
    "spe",
    "rectified",
    "autoeval",
    "active_testing",
)


def alone(pool: Pool, sizes: Sequence[int] = SIZES, samples: int = SAMPLES) -> Floats:
    """Return (len(sizes), len(SHOWN)) mean absolute error of labels alone, from 0 to 1.

    Parameters
    ----------
    pool : Pool
    sizes : sequence of int
    samples : int
        Of each size.
    """
    means = np.empty((len(sizes), len(SHOWN)))
    rows = [METRICS.index(metric) for metric in SHOWN]
    for at, size in enumerate(sizes):
        errors = []
        for sample in range(samples):
            run = pool.run(size, 1_000 + sample, unlabelled=0)
            errors.append(np.abs(metrics_of(run.scores, run.labels) - pool.truth)[rows])
        means[at] = known_mean(np.stack(errors, axis=1).reshape(len(SHOWN), -1), axis=1)
    return means


def nearest(error: float, errors: Floats, sizes: Sequence[int] = SIZES) -> int:
    """Return the size whose error (sizes,) is nearest; the smallest such.

    Examples
    --------
    >>> nearest(0.021, np.array([0.05, 0.03, 0.02, 0.01]), [10, 20, 40, 80])
    40
    """
    return sizes[int(np.argmin(np.abs(errors - error)))]


def table(pool: Pool, runs: int, kept: Path | None = None) -> str:
    """Return a line for each estimator and number of labels.

    Parameters
    ----------
    pool : Pool
    runs : int
        Of the estimators.
    kept : Path, optional
        See `measure`.
    """
    curve = alone(pool)
    lines = [
        f"Labels that alone are as near to the truth ({pool.name}, {runs} runs; {SIZES[-1]:,}: or more)",
        f"{'labels':>6s} {'estimator':20s}" + "".join(f"{metric:>18s}" for metric in SHOWN),
    ]
    for labels in LABELS:
        by_tag = measure(pool, TAGS, labels, runs, kept=kept)
        for tag, one in by_tag.items():
            cells = ""
            for at, metric in enumerate(SHOWN):
                known = one.unknown(metric) < 1.0
                size = nearest(float(one.mean_error(metric).mean()), curve[:, at]) if known else 0
                cells += f"{size or '–':>18}"
            lines.append(f"{labels:6d} {tag:20s}{cells}")
    return "\n".join(lines) + "\n"

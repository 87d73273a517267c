"""Cost of a calibration weighted by features, for each window.

    python -m tests.bench.bench_covariates [--reference 5000] [--keep]

Milliseconds of the processor for `CovariateReference.adapt` and of `Adapted.predictive` (the calibration's
error, for predictive intervals) by features, rows of the window and shift. With a shift, numbers move by
half a standard deviation, two turn their correlation, and one category comes in more than half of the
rows. Half of the features are numbers, half texts of ten categories. Beside them the estimates of eight
metrics of such a window, with plain predictive intervals.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np

from monitor.base.records import FeatureKind, Floats
from monitor.engine.evaluate import EstimationRequest, evaluate
from monitor.stats.calibration.covariates import MOST_ROWS, CovariateReference
from monitor.stats.calibration.isotonic import IsotonicCalibrator
from monitor.stats.estimate.predictive_fit import fit_predictive
from tests.harness import run

FEATURES = (4, 8, 16)
WINDOWS = (500, 1000, 5000)
METRICS = (
    "accuracy", "precision", "recall", "specificity", "f1", "auroc", "average_precision", "ece",
)  # fmt: skip


def features_of(rng: np.random.Generator, n: int, many: int, shifted: bool) -> Floats:
    """Return numbers, then texts."""
    numbers = rng.standard_normal((n, many // 2)) + 0.5 * shifted
    numbers[:, 1] += (-0.5 if shifted else 0.5) * numbers[:, 0]
    texts = rng.integers(0, 10, (n, many // 2)).astype(np.float64)
    if shifted:
        texts[rng.random(n) < 0.5, 0] = 1.0
    return np.concatenate([numbers, texts], axis=1)


def seconds(reference: int, many: int, n: int, shifted: bool) -> tuple[float, float, float]:
    """Return the seconds of a window of n rows with `many` features."""
    rng = np.random.default_rng(many)
    kinds: list[FeatureKind] = ["number"] * (many // 2) + ["text"] * (many // 2)
    score = rng.random(reference)
    rows = np.column_stack((1 - score, score)), (score > 0.5) * 1, (rng.random(reference) < score) * 1
    features = features_of(rng, reference, many, shifted=False)
    prepared = CovariateReference.from_rows(*rows, features, kinds, [str(k) for k in range(many)])
    base, plain = fit_predictive(IsotonicCalibrator(), *rows), IsotonicCalibrator().fit(*rows)
    window, claimed = features_of(rng, n, many, shifted), rng.random(n)
    scores = np.column_stack((1 - claimed, claimed))
    adapted = prepared.adapt(window)
    request = EstimationRequest(
        scores, (claimed > 0.5) * 1, plain.apply(scores), METRICS, 1, 0.95, 0, predictive=base
    )
    return (
        processor(lambda: prepared.adapt(window)),
        processor(lambda: adapted.predictive(base, prepared, 1)),
        processor(lambda: evaluate([request])),
    )


def processor(work: Callable[[], object]) -> float:
    """Return seconds of the processor in the quickest of nine calls."""
    times = []
    for _ in range(9):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def table(reference: int = MOST_ROWS) -> Iterator[str]:
    """Yield milliseconds."""
    yield (
        f"Milliseconds of the processor a window, reference of {reference:,} rows "
        "(python -m tests.bench.bench_covariates)"
    )
    yield f"{'features':>8s}{'rows':>8s}{'shift':>8s}{'adapt':>8s}{'error':>8s}{'estimates':>11s}"
    for many in FEATURES:
        for n in WINDOWS:
            for shifted in (False, True):
                costs = zip(seconds(reference, many, n, shifted), (8, 8, 11), strict=True)
                cells = "".join(f"{1e3 * one:{width}.1f}" for one, width in costs)
                yield f"{many:8d}{n:8,}{'yes' if shifted else 'no':>8s}{cells}"


if __name__ == "__main__":
    run(table, keep=False)

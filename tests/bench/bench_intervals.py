"""Speed of predictive intervals, compared with intervals of chance alone, in the same run.

    python -m tests.bench.bench_intervals

It measures twenty windows of 500 and of 2,000 rows in one call of `evaluate`, as in the engine; the fit of
the intervals' variances, compared with the fit of the isotonic calibration.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from monitor import CALIBRATORS
from monitor.base.records import Floats, Ints
from monitor.engine.evaluate import EstimationRequest, evaluate
from monitor.stats.estimate.predictive_fit import fit_predictive
from tests.harness import best, run

METRICS = (
    ("accuracy",),
    ("accuracy", "ece"),
    ("accuracy", "precision", "recall", "specificity", "f1"),
    ("accuracy", "auroc", "average_precision"),
)
WINDOWS = 20
REFERENCES = (1000, 40_000)


def rows(seed: int, n: int) -> tuple[Floats, Ints, Ints]:
    """Return scores, predicted classes and labels of two classes."""
    rng = np.random.default_rng(seed)
    chance = rng.beta(1.2, 0.8, n)
    scores = np.column_stack((1 - chance, chance))
    return scores, scores.argmax(axis=1), (rng.random(n) < chance).astype(np.int64)


def table() -> Iterator[str]:
    """Yield all of it, a line at a time."""
    calibrator = CALIBRATORS["isotonic"]()
    yield f"{'fit on a reference, ms':50s} {'isotonic':>10s} {'predictive':>10s} {'ratio':>7s}"
    for n in REFERENCES:
        known = rows(0, n)
        alone = best(lambda k=known: calibrator.fit(*k), 3)  # type: ignore[misc]
        seconds = best(lambda k=known: fit_predictive(calibrator, *k), 3)  # type: ignore[misc]
        yield f"{f'{n:,} rows':50s} {1e3 * alone:10.2f} {1e3 * seconds:10.1f} {seconds / alone:7.1f}"
    calibration, model = calibrator.fit(*known), fit_predictive(calibrator, *known)
    yield f"{'a window, ms':50s} {'exact':>10s} {'predictive':>10s} {'ratio':>7s}"
    for n in (500, 2000):
        windows = [rows(seed, n)[:2] for seed in range(1, WINDOWS + 1)]
        for metrics in METRICS:
            seconds = []
            for used in (None, model):
                requests = [
                    EstimationRequest(s, p, calibration.apply(s), metrics, 1, 0.95, i, predictive=used)
                    for i, (s, p) in enumerate(windows)
                ]
                seconds.append(best(lambda r=requests: evaluate(r), 5) / WINDOWS)  # type: ignore[misc]
            name = f"{n:,} rows, " + (metrics[0] if len(metrics) == 1 else f"accuracy and {_rest(metrics)}")
            alone, with_model = seconds
            yield f"{name:50s} {1e3 * alone:10.2f} {1e3 * with_model:10.2f} {with_model / alone:7.2f}"


def _rest(metrics: tuple[str, ...]) -> str:
    return metrics[1] if len(metrics) == 2 else f"{metrics[1]} … {metrics[-1]}"


if __name__ == "__main__":
    run(table, keep=False)

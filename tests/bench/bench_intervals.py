"""Speed of predictive intervals, compared with intervals of chance alone, in the same run.

    python -m tests.bench.bench_intervals

It measures twenty windows of 500 and of 2,000 rows in one call of `evaluate`, as in the engine; the fit of
the intervals' variances, compared with the fit of the isotonic calibration; and the cost of labels of 5 % of
the rows for a window, which grows with their delay.
"""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter

import numpy as np

from monitor import CALIBRATORS
from monitor.base.records import Floats, Ints
from monitor.engine.evaluate import EstimationRequest, evaluate
from monitor.engine.labels.follow import BiasFollower
from monitor.stats.estimate.bias_law import biased
from monitor.stats.estimate.poisson_binomial import trimmed_pmf_many
from monitor.stats.estimate.predictive import Predictive, mid_p_estimate, predictive_windows
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
    """Scores, predicted classes and labels of two classes."""
    rng = np.random.default_rng(seed)
    chance = rng.beta(1.2, 0.8, n)
    scores = np.column_stack((1 - chance, chance))
    return scores, scores.argmax(axis=1), (rng.random(n) < chance).astype(np.int64)


def table() -> Iterator[str]:
    """All of it, a line at a time."""
    calibrator = CALIBRATORS["isotonic"]()
    yield f"{'fit on a reference, ms':50s} {'isotonic':>10s} {'predictive':>10s} {'ratio':>7s}"
    for n in REFERENCES:
        known = rows(0, n)
        alone = best(lambda k=known: calibrator.fit(*k), 3)  # type: ignore[misc]
        took = best(lambda k=known: fit_predictive(calibrator, *k), 3)  # type: ignore[misc]
        yield f"{f'{n:,} rows':50s} {1e3 * alone:10.2f} {1e3 * took:10.1f} {took / alone:7.1f}"
    calibration, model = calibrator.fit(*known), fit_predictive(calibrator, *known)
    yield f"{'a window, ms':50s} {'exact':>10s} {'predictive':>10s} {'ratio':>7s}"
    for n in (500, 2000):
        windows = [rows(seed, n)[:2] for seed in range(1, WINDOWS + 1)]
        for metrics in METRICS:
            took = []
            for used in (None, model):
                requests = [
                    EstimationRequest(s, p, calibration.apply(s), metrics, 1, 0.95, i, predictive=used)
                    for i, (s, p) in enumerate(windows)
                ]
                took.append(best(lambda r=requests: evaluate(r), 5) / WINDOWS)  # type: ignore[misc]
            name = f"{n:,} rows, " + (metrics[0] if len(metrics) == 1 else f"accuracy and {_rest(metrics)}")
            yield f"{name:50s} {1e3 * took[0]:10.2f} {1e3 * took[1]:10.2f} {took[1] / took[0]:7.2f}"
    yield from by_labels(calibration.apply(known[0]).max(axis=1), model)


def by_labels(reference: Floats, model: Predictive) -> Iterator[str]:
    """What the labels of a window and its interval by them take, beside the interval without."""
    scores, predicted, _ = rows(1, 500)
    confidence = scores.max(axis=1)
    alone = best(lambda: predictive_windows([confidence], model, predicted=[predicted]), 20)
    yield f"{'500 rows, accuracy, labels of 5 %, ms':50s} {'without':>10s} {'with':>10s} {'ratio':>7s}"
    for late in (1, 8, 20, 60):
        took = _window_by_labels(reference, model, confidence, predicted, late)
        name = "as they come" if late == 1 else f"up to {late} windows late"
        yield f"{name:50s} {1e3 * alone:10.2f} {1e3 * took:10.2f} {took / alone:7.2f}"


def _window_by_labels(
    reference: Floats, model: Predictive, confidence: Floats, predicted: Ints, late: int
) -> float:
    follower, rng, times = BiasFollower(500), np.random.default_rng(0), []
    follower.calibrated_on(reference, model.components)
    [pmf] = trimmed_pmf_many(confidence[None])
    for window in range(200):
        of = np.maximum(window - rng.integers(0, late, 25), 0)
        right = rng.random(25) < confidence[:25]
        start = perf_counter()
        follower.add(of, confidence[:25], right)
        law = follower.law(window, confidence, model, predicted)
        assert law is not None
        mid_p_estimate(float(confidence.mean()), biased(pmf, confidence, law), 0.95)
        times.append(perf_counter() - start)
    return float(np.median(times[100:]))


def _rest(metrics: tuple[str, ...]) -> str:
    return metrics[1] if len(metrics) == 2 else f"{metrics[1]} … {metrics[-1]}"


if __name__ == "__main__":
    run(table, keep=False)

"""Coverage of the interval of every metric on calibrated simulated data.

    python -m tests.fidelity.metrics_coverage [--trials 1000]

A row's probability of being positive is drawn from a beta distribution with the stated prevalence, and its
label with that probability. It is predicted positive at or above a threshold (0.5; 0.2 at a prevalence of 5
%). It prints, in percent of the windows whose labels define the metric,

* `cover`: how often the realised metric of the window lies in the 95 % interval, among those known, and `±3
  err`, three binomial errors of the trials around the mass;
* `mass`: the probability of the interval under the exact distribution: more than 95 because counts are
  discrete. AUROC and average precision have none: 95 is their level;
* `sem`: how often it lies within ±3 standard errors of the estimate, NannyML's band, from the spread of the
  metric over labelled rows of the same distribution;
* `width` of both, in points; `undef`: windows whose labels leave the metric undefined, of all trials, and
  `unknown`: windows with an unknown estimate.

The second table is of objectives: the interval of five windows together, as pooled for an objective, and the
realised metric of their rows, or of AUROC and average precision the mean of the windows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from math import nan, sqrt

import numpy as np

from monitor import (
    CLASSIFICATION_METRICS,
    ClassificationEstimate,
    cbpe_sem,
    classification_details,
    classification_details_many,
)
from monitor.base.records import Floats, Ints
from monitor.base.results import Estimate
from monitor.config.root import Bound
from monitor.engine.objective import BootstrapDraws, Objective, Poolable
from monitor.stats.estimate._one_class import COUNTED
from monitor.stats.estimate.ranking import Ranking
from tests.harness import run

SIZES = (100, 500, 2000)
PREVALENCES = (0.5, 0.05)
BETA = {0.5: (0.4, 0.4), 0.05: (0.15, 2.85)}
THRESHOLD = {0.5: 0.5, 0.05: 0.2}
REFERENCE_ROWS = 50_000
POOLED = 5


@dataclass(frozen=True)
class Row:
    """Shares, 0 to 1, of one metric, window size and prevalence; NaN where there is none."""

    metric: str
    n: int
    prevalence: float
    trials: int
    judged: int
    cover: float
    mass: float
    sem: float
    width: float
    sem_width: float
    undefined: int
    unknown: int

    @property
    def allowed(self) -> float:
        """Three binomial errors around the mass (or 95 % where there is none)."""
        mass = 0.95 if np.isnan(self.mass) else self.mass
        return 3 * sqrt(mass * (1 - mass) / max(self.judged, 1))


def window(rng: np.random.Generator, n: int, prevalence: float) -> tuple[Floats, Ints, Floats]:
    """Return scores, predicted classes and certain scores of the labels."""
    chance = rng.beta(*BETA[prevalence], n)
    label = (rng.random(n) < chance).astype(np.float64)
    predicted = (chance >= THRESHOLD[prevalence]).astype(np.int64)
    return np.column_stack([1 - chance, chance]), predicted, np.column_stack([1 - label, label])


def spreads(prevalence: float, seed: int) -> dict[str, float]:
    """Return the spread that one labelled row adds to each realised metric: the standard error times √n."""
    scores, predicted, truth = window(np.random.default_rng([seed, 9]), REFERENCE_ROWS, prevalence)
    details = classification_details(truth, predicted, CLASSIFICATION_METRICS, ranking=scores)
    return {metric: each.row_sd or nan for metric, each in details.items()}


def realised_values(scores: Floats, predicted: Ints, truth: Floats) -> dict[str, float | None]:
    """Return each metric of the labels, None where they leave it undefined."""
    details = classification_details(truth, predicted, COUNTED)
    values: dict[str, float | None] = {
        metric: each.result.value if isinstance(each.result, Estimate) else None
        for metric, each in details.items()
    }
    ranking, label = Ranking.from_scores(scores[:, 1]), truth[:, 1]
    values["auroc"] = ranking.auroc(label)[0] if 0 < label.sum() < len(label) else None
    values["average_precision"] = ranking.average_precision(label)[0] if label.any() else None
    return values


@cache
def measure(n: int, prevalence: float, trials: int, seed: int = 1) -> list[Row]:
    """Return every metric over independent windows of n rows."""
    rng = np.random.default_rng([seed, n, round(100 * prevalence)])
    sd = spreads(prevalence, seed)
    kept: dict[str, list[tuple[float, ...]]] = {metric: [] for metric in CLASSIFICATION_METRICS}
    undefined = dict.fromkeys(CLASSIFICATION_METRICS, 0)
    unknown = dict.fromkeys(CLASSIFICATION_METRICS, 0)
    for trial in range(trials):
        scores, predicted, truth = window(rng, n, prevalence)
        details = classification_details(scores, predicted, CLASSIFICATION_METRICS, seed=trial)
        real = realised_values(scores, predicted, truth)
        for metric in CLASSIFICATION_METRICS:
            realised, estimate = real[metric], details[metric].result
            undefined[metric] += realised is None
            unknown[metric] += not isinstance(estimate, Estimate)
            if realised is not None and isinstance(estimate, Estimate):
                kept[metric].append(judged(details[metric], estimate, realised, sd[metric]))
    return [
        Row(metric, n, prevalence, trials, len(rows), *means(rows), undefined[metric], unknown[metric])
        for metric, rows in kept.items()
    ]


def judged(
    detail: ClassificationEstimate, estimate: Estimate, realised: float, row_sd: float
) -> tuple[float, ...]:
    """Return whether both intervals hold the realised value, the mass inside, and both widths."""
    near = 1e-9  # a ratio that equals an end, but for rounding
    inside = estimate.lower - near <= realised <= estimate.upper + near
    band = cbpe_sem(estimate, row_sd)
    assert isinstance(band, Estimate)
    mass = nan if detail.counts is None else detail.counts.holds(estimate.lower, estimate.upper)
    covered = band.lower <= realised <= band.upper
    return inside, mass, covered, estimate.upper - estimate.lower, band.upper - band.lower


def means(rows: list[tuple[float, ...]]) -> list[float]:
    """Return the mean of each column; NaN without rows."""
    if not rows:
        return [nan] * 5
    averages: list[float] = np.mean(np.array(rows, dtype=np.float64).reshape(-1, 5), axis=0).tolist()
    return averages


def pooled(n: int, prevalence: float, pools: int, seed: int = 1) -> list[Row]:
    """Return every metric but the accuracy over pools of five windows of n rows; all windows are defined."""
    rng = np.random.default_rng([seed, n, round(100 * prevalence), POOLED])
    metrics = [metric for metric in CLASSIFICATION_METRICS if metric != "accuracy"]
    kept: dict[str, list[tuple[float, ...]]] = {metric: [] for metric in metrics}
    for pool in range(pools):
        windows = [window(rng, n, prevalence) for _ in range(POOLED)]
        scores, predicted, truth = (list(each) for each in zip(*windows, strict=True))
        details = classification_details_many(
            scores, predicted, metrics, seeds=range(pool * POOLED, (pool + 1) * POOLED)
        )
        each = [realised_values(*one) for one in windows]
        whole = realised_values(*(np.concatenate(column) for column in (scores, predicted, truth)))
        for metric in metrics:
            logic = Objective(Bound(min=0.5), windows=POOLED).build()
            verdicts = [logic.update(poolable(one[metric], n)) for one in details]
            own = [one[metric] for one in each]
            if any(value is None for value in own) or verdicts[-1].windows < POOLED:
                continue
            real = whole[metric] if metric in COUNTED else float(np.mean(np.array(own, dtype=np.float64)))
            lower, upper = verdicts[-1].lower, verdicts[-1].upper
            assert real is not None
            assert lower is not None
            assert upper is not None
            kept[metric].append((lower - 1e-9 <= real <= upper + 1e-9, nan, nan, upper - lower, nan))
    return [Row(m, n, prevalence, pools, len(rows), *means(rows), 0, 0) for m, rows in kept.items()]


def poolable(estimate: ClassificationEstimate, n: int) -> Poolable | None:
    """Return the part of an estimate that an objective pools."""
    if estimate.draws is None or not isinstance(estimate.result, Estimate):
        return estimate.counts or estimate.cumulants
    return BootstrapDraws(estimate.result.value, estimate.draws, n)


def table(trials: int = 1000, pools: int = 400) -> Iterator[str]:
    """Yield a line a prevalence, size and metric, in percent."""
    yield (
        f"Coverage in % of 95 % intervals without labels, {trials:,} windows each "
        "(python -m tests.fidelity.metrics_coverage)"
    )
    yield (
        f"{'prev %':>6s} {'n':>5s} {'metric':18s} {'cover':>6s} {'mass':>6s} {'±3 err':>6s} {'sem':>6s} "
        f"{'width':>6s} {'sem width':>9s} {'undef':>6s} {'unknown':>7s}"
    )
    for prevalence in PREVALENCES:
        for n in SIZES:
            for row in measure(n, prevalence, trials):
                yield f"{100 * prevalence:6.0f} {row_text(row)}"
    yield f"Five windows together, {pools:,} times; those whose labels leave no window undefined"
    yield f"{'prev %':>6s} {'n':>5s} {'metric':18s} {'cover':>6s} {'±3 err':>6s} {'width':>6s} {'pools':>6s}"
    for prevalence in PREVALENCES:
        for n in SIZES[:2]:
            for r in pooled(n, prevalence, pools):
                yield (
                    f"{100 * prevalence:6.0f} {r.n:5d} {r.metric:18s} {100 * r.cover:6.2f} "
                    f"{100 * r.allowed:6.2f} {100 * r.width:6.2f} {r.judged:6d}"
                )


def row_text(r: Row) -> str:
    """Return a row from its window size on, in percent."""
    mass = f"{'-':>6s}" if np.isnan(r.mass) else f"{100 * r.mass:6.2f}"
    return (
        f"{r.n:5d} {r.metric:18s} {100 * r.cover:6.2f} {mass} "
        f"{100 * r.allowed:6.2f} {100 * r.sem:6.2f} {100 * r.width:6.2f} {100 * r.sem_width:9.2f} "
        f"{r.undefined:6d} {r.unknown:7d}"
    )


if __name__ == "__main__":
    run(table)

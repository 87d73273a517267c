"""`ssme` on a stratified sample of a pool, compared with the whole pool and an even draw: error, width, time.

    python -m tests.fidelity.sampling [--pools 4]

Pools of 30,000 simulated requests of three models (an overconfident one among them), a tenth of them of the
last class, 200 of them labelled: in half of the pools at random, in the others at the requests with the least
confidence, with known probabilities. A sample keeps every label. Errors are against the whole pool's true
accuracy and AUROC, in points, means over pools and models; "off the whole" is the distance of the value from
that of the fit on the whole pool. Seconds are processor time, of a fit and of its intervals.

The second table is of accuracy: what a sample adds to its standard deviation, in points, as told (of strata,
`monitor.stats.sampling.stratified.sampling_variance`; of rows drawn evenly beside it) and as measured: eight
samples of
the same pool with the same labels, each fitted with three seeds, whose own share of the variance is taken
off: a fit answers from 100 draws. What remains of a fit's own noise is that it solves for the models' claims
on 1,024 of its rows, other ones for each sample: of one pool's samples of 10,000 values lie 0.28 points apart
with that, 0.15 where it takes all rows. Behind ± is the standard error, from the number of samples. "Wider"
is what either makes of a 95 % interval; "told" is `blindsight_refit_sampling_widening_ratio`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from monitor import METRICS, SSME, Estimate
from monitor.base.records import Floats, Ints, mix
from monitor.stats.sampling.stratified import sample, sampling_variance, strata, widening
from tests.fidelity.ssme.protocol import metrics_of
from tests.fidelity.ssme.suite import Design, simulate
from tests.harness import run

POOLS = 4
ROWS = 30_000
LABELLED = 200
SIZES = (1000, 3000, 10_000)
DESIGN = Design(models=3, prevalence=0.1, shared=0.3, powers=(1.0, 1.6, 0.8))
SAMPLES = 8
SEEDS = 3
SHOWN = ("accuracy", "auroc")
Z = float(ndtri(0.975))

Chosen = Callable[[Floats, NDArray[np.bool_], int], Ints]


def stratified(scores: Floats, labelled: NDArray[np.bool_], many: int, number: int = 0) -> Ints:
    """Return the rows that a refit takes; another number gives another sample."""
    keys = mix(np.arange(1, len(scores) + 1).astype(np.uint64) + np.uint64(number * len(scores)))
    return sample(strata(scores, labelled), labelled, keys, many, int((~labelled).sum()))


def evenly(scores: Floats, labelled: NDArray[np.bool_], many: int) -> Ints:
    """Return every label, and others with equal chances."""
    others = np.random.default_rng(many).choice(np.flatnonzero(~labelled), many, replace=False)
    return np.sort(np.concatenate([np.flatnonzero(labelled), others]))


def simulated(seed: int, rows: int, labelled: int) -> tuple[Floats, Ints, Ints, Floats]:
    """Return scores, truth, labels (−1 for none) and weights of a pool."""
    rng = np.random.default_rng([seed, rows])
    scores, truth = simulate(DESIGN, rng, rows)
    doubt = 1 - scores.mean(axis=1).max(axis=1) + 0.02 if seed % 2 else np.ones(rows)
    chance = np.minimum(labelled * doubt / doubt.sum(), 1.0)
    return scores, truth, np.where(rng.random(rows) < chance, truth, -1), 1 / chance


def fit_of(scores: Floats, labels: Ints, weights: Floats, seed: int = 0) -> SSME:
    """Fit as a refit does."""
    return SSME(seed=seed).fit(scores, labels, weights=None if np.ptp(weights) == 0 else weights)


def fitted(scores: Floats, labels: Ints, weights: Floats) -> tuple[Floats, Floats, float]:
    """Return (asked, M) values and widths of a fit; seconds."""
    began = time.process_time()
    fit = fit_of(scores, labels, weights)
    models = range(scores.shape[1])
    estimates = np.array([[fit.estimate(metric, m) for m in models] for metric in SHOWN])
    seconds = time.process_time() - began
    values = np.vectorize(lambda e: e.value, otypes=[float])(estimates)
    widths = np.vectorize(lambda e: e.upper - e.lower, otypes=[float])(estimates)
    return values, widths, seconds


def measured(seeds: Sequence[int], rows: int, labelled: int, sizes: Sequence[int]) -> dict[str, list[Floats]]:
    """Return, by way and size, one row of figures a pool, as in the table."""
    by_way: dict[str, list[Floats]] = {}
    for seed in seeds:
        scores, truth, labels, weights = simulated(seed, rows, labelled)
        right = metrics_of(scores, truth)[[METRICS.index(metric) for metric in SHOWN]]
        whole = fitted(scores, labels, weights)
        ways: dict[str, Ints] = {"the whole": np.arange(rows)}
        for many in sizes:
            for name, way in (("stratified", stratified), ("even draw", evenly)):
                ways[f"{name} {many:,}"] = way(scores, labels >= 0, many)
        for name, sampled in ways.items():
            values, widths, seconds = (
                whole if len(sampled) == rows else fitted(scores[sampled], labels[sampled], weights[sampled])
            )
            figures = [
                100 * np.abs(values - right).mean(axis=1), 100 * np.abs(values - whole[0]).mean(axis=1),
                100 * widths.mean(axis=1), 100 * (widths / whole[1]).mean(axis=1) - 100,
                [seconds],
            ]  # fmt: skip
            by_way.setdefault(name, []).append(np.concatenate(figures))
    return by_way


@dataclass(frozen=True, slots=True)
class Cost:
    """The variance that a sample adds to an accuracy, means over pools and models, in points².

    Parameters
    ----------
    claimed, evenly : float
        By the strata, and by the spread of all rows.
    measured, error : float
        Between samples, less what seeds make of it; its standard error.
    claimed_wider, wider : float
        What `claimed` and `measured` make of the width of an interval, in per cent.
    """

    claimed: float
    evenly: float
    measured: float
    error: float
    claimed_wider: float
    wider: float


def cost(pools: int, rows: int, labelled: int, many: int, samples: int, seeds: int) -> Cost:
    """Draw samples of `many` unlabelled rows of the same pools, again and again."""
    figures = [_of_pool(seed, rows, labelled, many, samples, seeds) for seed in range(pools)]
    claimed, evenly, between, within, variance, claimed_wider = np.mean(figures, axis=0)
    measured = between - within / seeds
    # The models of a pool count as one: their values go together.
    error = between * np.sqrt(2 / (pools * (samples - 1)))
    wider = 100 * (np.sqrt(1 + max(measured, 0.0) / (variance - evenly)) - 1)
    return Cost(claimed, evenly, measured, error, claimed_wider, wider)


def _of_pool(seed: int, rows: int, labelled: int, many: int, samples: int, seeds: int) -> Floats:
    """Return means over models: told, drawn evenly, between samples, between fits, of the interval; told
    wider.
    """
    scores, _, labels, weights = simulated(seed, rows, labelled)
    values, claims = np.empty((samples, seeds, scores.shape[1])), []
    for number in range(samples):
        sampled = stratified(scores, labels >= 0, many, number)
        for k in range(seeds):
            fit = fit_of(scores[sampled], labels[sampled], weights[sampled], k)
            chances = right_of(fit, scores[sampled])
            values[number, k] = 100 * chances.mean(axis=1)
        if number == 0:
            claims = [
                _claims(fit, scores[sampled], labels[sampled], rows, m, each)
                for m, each in enumerate(chances)
            ]
    means = values.mean(axis=1)
    spread = means.var(axis=0, ddof=1).mean(), values.var(axis=1, ddof=1).mean()
    strata_, evenly, variance, wider = np.mean(claims, axis=0)
    return np.array([strata_, evenly, *spread, variance, wider])


def right_of(fit: SSME, scores: Floats) -> Floats:
    """Return (M, n) chance of each answer to be right; its mean over rows is the accuracy."""
    rows = np.arange(len(scores))
    return np.stack([fit.posterior[rows, scores[:, m].argmax(axis=1)] for m in range(scores.shape[1])])


def _claims(fit: SSME, scores: Floats, labels: Ints, pool: int, model: int, chance: Floats) -> list[float]:
    estimate = fit.estimate("accuracy", model)
    assert isinstance(estimate, Estimate)
    known, n, half = labels >= 0, len(labels), (estimate.upper - estimate.lower) / 2
    sampling = sampling_variance(strata(scores, known), known, chance, pool)
    evenly = chance.var() / n * (1 - n / pool)
    wider = widening(sampling, n, pool, chance, half, Z)
    return [1e4 * sampling, 1e4 * evenly, 1e4 * (half / Z) ** 2, 100 * wider]


def table(
    pools: int = POOLS, rows: int = ROWS, labelled: int = LABELLED, sizes: Sequence[int] = SIZES
) -> str:
    """Return one line a way and size; then one a size."""
    results = measured(range(pools), rows, labelled, sizes)
    heads = ("error", "off the whole", "width", "wider, %")
    lines = [
        f"{rows:,} requests, 3 models, about {labelled} labelled; means over {pools} pools; accuracy, AUROC",
        f"{'unlabelled rows':20}" + "".join(f"{head:>15}" for head in heads) + "  seconds",
    ]
    for name, each in results.items():
        mean = np.mean(each, axis=0)
        pairs = "".join(f"{mean[i]:8.2f}{mean[i + 1]:7.2f}" for i in range(0, 8, 2))
        lines.append(f"{name:20}{pairs}{mean[8]:9.2f}")
    lines += [
        "",
        f"accuracy, {SAMPLES} samples of each pool: what the sample adds",
        f"{'unlabelled rows':20}{'drawn evenly':>14}{'told':>8}{'measured':>10}{'':8}"
        f"{'told wider, %':>15}{'measured':>10}",
    ]
    for many in sizes:
        one = cost(pools, rows, labelled, many, SAMPLES, SEEDS)
        sd = np.sqrt(max(one.measured, 0.0))
        error = one.error / (2 * sd) if sd > 0 else np.sqrt(one.error)
        lines.append(
            f"{f'stratified {many:,}':20}{np.sqrt(one.evenly):14.2f}{np.sqrt(one.claimed):8.2f}"
            f"{sd:10.2f}{f' ± {error:.2f}':8}{one.claimed_wider:15.1f}{one.wider:10.1f}"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    run(table)

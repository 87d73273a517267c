"""The reason for SPE's error on the toxicity task: the assumed shape, or a fault of our code.

    python -m tests.fidelity.spe_form [--runs 10]

`own` are civilcomments' scores, reporting half, by the paper's protocol. `drawn` are the same rows with other
scores: those of each model and class are drawn from the likeliest of SPE's eight families, fitted to that
class's scores. `drawn` shows SPE's method and our code with the right form; the difference to `own` comes
from the form. `contradicted`: fits of a model that its labels contradict
(`monitor.stats.rivals.spe.checks`); refits do not publish them.

Above it, for each model and class the family and its Kolmogorov-Smirnov distance from the scores, the largest
gap between the two distribution functions: samples of as many scores that are of the family have less than
0.03 in 999 of 1,000 cases.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, logit

from monitor import METRICS, SPE
from monitor.base.records import Floats
from monitor.stats.rivals.spe import FAMILIES, DensityFamily
from tests.fidelity.ssme import civilcomments
from tests.fidelity.ssme.compare import answers
from tests.fidelity.ssme.protocol import Pool
from tests.harness import run

SHOWN = ("accuracy", "auroc", "average_precision")
LABELS = (20, 50, 100)
FITTED_ON = 4000
"""Scores of a class at most that a family is fitted to."""
_AXIS = np.linspace(0.0, 1.0, 4001)[1:]
_MARGIN = 0.05
_CUT = 1e-6


@dataclass(frozen=True)
class Likeliest:
    """The family of the highest likelihood of one class's scores.

    Parameters
    ----------
    name : str
    cumulative : (4000,) float64
        Its distribution function over `_AXIS`.
    distance : float
        Kolmogorov and Smirnov's, from the scores.
    """

    name: str
    cumulative: Floats
    distance: float


def likeliest(scores: Floats) -> Likeliest:
    """Return the likeliest family of scores in (0, 1]."""

    def cost(parameters: Floats, family: DensityFamily) -> float:
        return -float(family.log_density(parameters[None], scores).sum())

    fits = []
    for family in FAMILIES.values():
        start = family.start(scores, np.ones(len(scores)))
        done = minimize(cost, start, args=(family,), method="L-BFGS-B", bounds=family.bounds)
        fits.append((float(done.fun), family.name, family, done.x))
    _, name, family, parameters = min(fits, key=lambda one: one[:2])
    density = np.exp(family.log_density(parameters[None], _AXIS)[0])
    cumulative = np.cumsum(density) / density.sum()
    below = np.searchsorted(np.sort(scores), _AXIS, side="right") / len(scores)
    return Likeliest(name, cumulative, float(np.abs(below - cumulative).max()))


def redrawn(pool: Pool, rng: np.random.Generator) -> tuple[Pool, list[list[Likeliest]]]:
    """Return the pool with scores drawn from the families, and those by model and class; two classes."""
    scores = np.empty_like(pool.scores)
    families = []
    for model in range(pool.scores.shape[1]):
        odds = logit(np.clip(pool.scores[:, model, 1], _CUT, 1.0 - _CUT))
        low, width = odds.min(), np.ptp(odds)
        line = ((odds - low) / width + _MARGIN) / (1.0 + _MARGIN)
        of_model = []
        for kind in (0, 1):
            rows = np.flatnonzero(pool.labels == kind)
            of_model.append(likeliest(line[rng.permutation(rows)[:FITTED_ON]]))
            line[rows] = np.interp(rng.random(len(rows)), of_model[kind].cumulative, _AXIS)
        chance = expit((line * (1.0 + _MARGIN) - _MARGIN) * width + low)
        scores[:, model] = np.stack([1.0 - chance, chance], axis=1)
        families.append(of_model)
    return Pool(f"{pool.name} drawn", scores, pool.labels), families


@dataclass(frozen=True)
class Row:
    """One line; shares from 0 to 1, by `SHOWN`."""

    scores: str
    labels: int
    error: Floats
    covered: Floats
    contradicted: float


def measured(name: str, pool: Pool, labels: int, runs: int) -> Row:
    """Return SPE on some runs of a pool."""
    models = range(pool.scores.shape[1])
    rows = [METRICS.index(metric) for metric in SHOWN]
    truth = pool.truth[rows]
    errors, covered, contradicted = [], [], []
    for seed in range(runs):
        run = pool.run(labels, seed)
        fit = SPE(seed=seed).fit(run.scores, run.labels)
        estimates = answers(fit, models, True, SHOWN)[rows]
        errors.append(np.abs(estimates[..., 0] - truth).mean(axis=1))
        covered.append(((estimates[..., 1] <= truth) & (truth <= estimates[..., 2])).mean(axis=1))
        contradicted.append(np.mean([fit.contradicted(model) for model in models]))
    return Row(name, labels, np.mean(errors, axis=0), np.mean(covered, axis=0), float(np.mean(contradicted)))


def table(runs: int = 10) -> str:
    """Return both tables."""
    own = civilcomments.pool("reporting")
    simulated, families = redrawn(own, np.random.default_rng(0))
    rows = [
        measured(name, pool, labels, runs)
        for name, pool in (("own", own), ("drawn", simulated))
        for labels in LABELS
    ]
    return "\n".join([*family_lines(families), "", *lines(rows, runs)]) + "\n"


def family_lines(families: Sequence[Sequence[Likeliest]]) -> list[str]:
    """Return the likeliest family of each model and class."""
    head = "likeliest family of each class's scores (distance from them)"
    return [
        head,
        *(
            f"{name:10s}"
            + "".join(f"  {kind} {one.name:17s} ({one.distance:.2f})" for kind, one in enumerate(of))
            for name, of in zip(civilcomments.NAMES, families, strict=True)
        ),
    ]


def lines(rows: Sequence[Row], runs: int) -> list[str]:
    """Return errors, coverage and contradicted fits."""
    out = [
        f"SPE, civilcomments, {runs} runs: mean absolute error in points / coverage in % of 95 % intervals",
        f"{'scores':7s}{'labels':>6s}" + "".join(f"{metric:>20s}" for metric in SHOWN) + "  contradicted %",
    ]
    for row in rows:
        cells = "".join(
            f"{100 * e:14.2f} / {100 * c:3.0f}" for e, c in zip(row.error, row.covered, strict=True)
        )
        out.append(f"{row.scores:7s}{row.labels:6d}{cells}{100 * row.contradicted:16.0f}")
    return out


if __name__ == "__main__":
    run(table, data=True)

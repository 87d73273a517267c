"""Simulated arenas: coverage, width and value of Bradley-Terry by PPI++, compared with humans alone, by
judge.

    python -m tests.fidelity.arena [--trials 250]

20 models as in the paper's Chatbot Arena (its data are not here), their coefficients normal quantiles times
0.6, the first the reference; 16,000 random pairs of two models in each trial, all judged, n of them by humans
too, who follow the Bradley-Terry model. A judge repeats the human's verdict with the stated probability;
else it picks the model that it favours (10 of the 20, for their longer answers, say), or tosses a coin where
it favours both or none: in all it agrees with the human in 97, 90, 82 or 70 %. `chances` is a judge that
gives a probability: its logit is 2 for the human's verdict, blurred by a standard deviation of 1.5.

* coverage in % of the 19 coefficients' 95 % intervals, on average over trials: of humans alone (classical),
  of PPI (λ = 1) and of PPI++; width of PPI++'s interval over the classical one's;
* ESS: n times the ratio of the classical to PPI++'s mean squared error of the coefficients; `told`: the mean
  of `effective_comparisons`, which a user sees; the paper prints + 20 to 25 % (20 to 35 % by judge, n = 200);
* ranks: share of trials in which all 20 rank intervals hold the true rank, at 90 %, Bonferroni's and the
  chi-square set's; and the mean number of ranks in Bonferroni's, of 20;
* none: trials in which humans alone, and PPI++, have no finite estimate; they count nowhere else.

The second table is for windows: humans only, 8 models, by comparisons for each model. It is the reason for
the least number in `monitor.stats.pairwise.standing`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np
from scipy.special import expit
from scipy.stats import norm

from monitor import BradleyTerry
from monitor.base.records import Floats
from tests.harness import run

COMPARISONS = 16_000
JUDGES = ("agrees 95 %", "agrees 80 %", "agrees 65 %", "chances", "coin", "agrees 40 %")
HUMANS = (200, 500, 1000, 2000)
PER_MODEL = (5, 10, 20, 40, 80, 160)
PAPER = "paper's Table S5, level 95 %: classical 96, PPI 97; Figure 4: ESS + 20 to 25 %"


def strengths(models: int) -> Floats:
    """Return (models,) coefficients in an order without pattern, that of the first 0."""
    quantiles = 0.6 * norm.ppf((np.arange(models) + 0.5) / models)
    mixed = quantiles[np.random.default_rng(20_261).permutation(models)]
    values: Floats = mixed - mixed[0]
    return values


@dataclass(frozen=True, eq=False)
class Arena:
    """Comparisons as columns: what `BradleyTerry.fit_columns` takes."""

    names: tuple[str, ...]
    a: np.ndarray
    b: np.ndarray
    human: Floats
    judge: Floats

    def fit(self, lam: float | None) -> BradleyTerry | None:
        """Return the fit, or None where there is no finite estimate."""
        try:
            return BradleyTerry(lam=lam).fit_columns(self.names, self.a, self.b, self.human, self.judge)
        except ValueError:
            return None


def simulate_arena(
    strength: Floats, judge: str, humans: int, comparisons: int, rng: np.random.Generator
) -> Arena:
    """Return a random arena; humans decided the first `humans` comparisons too."""
    m = len(strength)
    a = rng.integers(0, m, comparisons)
    b = (a + rng.integers(1, m, comparisons)) % m
    chance = expit(strength[b] - strength[a])
    won = (rng.random(comparisons) < chance).astype(np.float64)
    human = np.where(np.arange(comparisons) < humans, won, np.nan)
    names = tuple(f"m{k:02d}" for k in range(m))
    return Arena(names, a, b, human, _judged(judge, won, a, b, rng))


def _judged(judge: str, won: Floats, a: np.ndarray, b: np.ndarray, rng: np.random.Generator) -> Floats:
    coin = rng.integers(0, 2, len(won)).astype(np.float64)
    if judge == "chances":
        blurred: Floats = expit(2.0 * (2.0 * won - 1.0) + 1.5 * rng.normal(size=len(won)))
        return blurred
    if judge == "coin":
        return coin
    favours = np.where(a % 2 == b % 2, coin, b % 2)  # every second model writes long answers
    agree = float(judge.split()[1]) / 100
    return np.where(rng.random(len(won)) < agree, won, favours)


@dataclass(frozen=True)
class Row:
    """One line; shares from 0 to 1."""

    judge: str
    humans: int
    trials: int
    lam: float
    classical: float
    ppi: float
    tuned: float
    width: float
    worth: float
    effective: float
    bonferroni: float
    chi_square: float
    open_ranks: float
    none_alone: int
    none: int

    @property
    def allowed(self) -> float:
        """Three binomial errors around 95 %, as if a trial were one interval: its 19 share the reference."""
        return 3 * sqrt(0.95 * 0.05 / self.trials)


def measure(judge: str, humans: int, trials: int, seed: int = 1, comparisons: int = COMPARISONS) -> Row:
    """Repeat an arena of 20 models."""
    strength = strengths(20)
    true_rank = (strength[None, :] > strength[:, None]).sum(axis=1) + 1
    figures: list[Sequence[float]] = []
    none_alone = none = 0
    for trial in range(trials):
        rng = np.random.default_rng([seed, humans, JUDGES.index(judge), trial])
        arena = simulate_arena(strength, judge, humans, comparisons, rng)
        alone, plain, tuned = (arena.fit(lam) for lam in (0.0, 1.0, None))
        none_alone, none = none_alone + (alone is None), none + (tuned is None)
        if alone is None or tuned is None:
            continue
        ranks = [_holds(tuned, true_rank, method) for method in ("bonferroni", "chi_square")]
        figures.append(
            (
                tuned.lam,
                _inside(alone, strength),
                np.nan if plain is None else _inside(plain, strength),
                _inside(tuned, strength),
                float(
                    np.ptp(tuned.interval()[1:], axis=1).mean() / np.ptp(alone.interval()[1:], axis=1).mean()
                ),
                float(((alone.coefficients - strength) ** 2).sum()),
                float(((tuned.coefficients - strength) ** 2).sum()),
                tuned.effective_comparisons,
                *ranks,
                float(np.mean([r.worst - r.best + 1 for r in tuned.ranks()])),
            )
        )
    lam, classical, ppi, ours, width, before, after, effective, bonferroni, chi, open_ranks = np.nanmean(
        figures, axis=0
    )
    return Row(
        judge, humans, trials, lam, classical, ppi, ours, width, humans * before / after, effective,
        bonferroni, chi, open_ranks, none_alone, none,
    )  # fmt: skip


def _inside(fit: BradleyTerry, strength: Floats) -> float:
    low, high = fit.interval(0.95)[1:].T
    return float(((low <= strength[1:]) & (strength[1:] <= high)).mean())


def _holds(fit: BradleyTerry, rank: np.ndarray, method: str) -> float:
    ranks = fit.ranks(0.9, method)  # type: ignore[arg-type]
    return float(all(r.best <= k <= r.worst for r, k in zip(ranks, rank.tolist(), strict=True)))


@dataclass(frozen=True)
class Few:
    """One line of the second table."""

    per_model: int
    trials: int
    inside: float
    none: int


def measure_few(per_model: int, trials: int, seed: int = 2) -> Few:
    """Return humans alone on 8 models, each compared about so often."""
    strength = strengths(8)
    humans, held, none = per_model * 8 // 2, [], 0
    for trial in range(trials):
        fit = simulate_arena(
            strength, "coin", humans, humans, np.random.default_rng([seed, per_model, trial])
        ).fit(0.0)
        if fit is None or len(fit.models) < 8:
            none += 1
        else:
            held.append(_inside(fit, strength))
    return Few(per_model, trials, float(np.mean(held)) if held else float("nan"), none)


def table(trials: int = 250) -> Iterator[str]:
    """Yield both tables, a line at a time."""
    allowed = 300 * sqrt(0.95 * 0.05 / trials)
    yield (
        f"Simulated arenas of 20 models and 16,000 comparisons, {trials:,} trials "
        "(python -m tests.fidelity.arena)"
    )
    yield f"Three binomial errors of a coverage: at most {allowed:.1f} points. The {PAPER}"
    yield (
        f"{'judge':12s} {'n':>5s} {'lambda':>6s} | {'classical':>9s} {'PPI':>5s} {'PPI++':>5s} "
        f"{'width':>5s} | {'ESS':>5s} {'gain':>6s} {'told':>5s} | {'Bonf.':>5s} {'chi2':>5s} {'open':>5s} "
        f"| {'none':>7s}"
    )
    for r in (measure(judge, n, trials) for judge in JUDGES for n in HUMANS):
        yield (
            f"{r.judge:12s} {r.humans:5d} {r.lam:6.2f} | {100 * r.classical:9.1f} {100 * r.ppi:5.1f} "
            f"{100 * r.tuned:5.1f} {r.width:5.2f} | {r.worth:5.0f} {100 * (r.worth / r.humans - 1):+5.0f}% "
            f"{r.effective:5.0f} | {100 * r.bonferroni:5.1f} {100 * r.chi_square:5.1f} {r.open_ranks:5.1f} "
            f"| {r.none_alone:3d} {r.none:3d}"
        )
    yield f"\nHumans alone, 8 models, {4 * trials:,} trials: coverage in % of 95 % intervals"
    yield f"{'per model':>9s} {'n':>5s} {'coverage':>8s} {'no finite estimate, % of trials':>32s}"
    for f in (measure_few(n, 4 * trials) for n in PER_MODEL):
        yield (f"{f.per_model:9d} {4 * f.per_model:5d} {100 * f.inside:8.1f} {100 * f.none / f.trials:32.1f}")


if __name__ == "__main__":
    run(table)

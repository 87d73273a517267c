"""Bradley-Terry by PPI++: the numbers of ppi-python, coverage, weights, ranks, and what has no estimate."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from monitor.labels import BradleyTerry, Comparison, RankInterval, rank_intervals, simultaneous_intervals
from monitor.records import Floats

MODELS = ("a", "b", "c", "d")
STRENGTH = np.array([0.0, 0.5, -0.4, 1.0])


def arena(
    seed: int, human: int, alone: int, agree: float = 0.85, strength: Floats = STRENGTH
) -> list[Comparison]:
    """Comparisons of random pairs; the judge agrees with the human so often, and else favours model d."""
    rng = np.random.default_rng([seed, human])
    games = []
    for k in range(human + alone):
        a, b = rng.choice(len(strength), 2, replace=False)
        won = "b" if rng.random() < 1 / (1 + np.exp(strength[a] - strength[b])) else "a"
        judge = (
            won if rng.random() < agree else ("a" if a == 3 else "b" if b == 3 else rng.choice(["a", "b"]))
        )
        games.append(Comparison(MODELS[a], MODELS[b], won if k < human else None, str(judge)))
    return games


@pytest.mark.parametrize("lam", [0.5, 1.0, None])
def test_coefficients_and_intervals_are_those_of_ppi_python(lam: float | None) -> None:
    with warnings.catch_warnings():  # importing it silences every warning of the process
        warnings.simplefilter("ignore")
        ppi = pytest.importorskip("ppi_py", reason="install the extra test")
        games = arena(0, 200, 800)
        x = np.array([[(g.b == m) - float(g.a == m) for m in MODELS[1:]] for g in games])
        human = np.array([float(g.human == "b") for g in games[:200]])
        judge = np.array([float(g.judge == "b") for g in games])
        given = (x[:200], human, judge[:200], x[200:], judge[200:])
        low, high = ppi.ppi_logistic_ci(*given, alpha=0.1, lam=lam, optimizer_options={"gtol": 1e-12})
    fit = BradleyTerry(lam=lam).fit(games)
    # Its optimiser stops at a change of the loss, so a coefficient is good to the root of that.
    np.testing.assert_allclose(fit.interval(0.9)[1:], np.stack([low, high], axis=1), rtol=0, atol=1e-6)


def test_intervals_hold_the_coefficients_and_the_judge_narrows_them() -> None:
    # 150 trials of 3 coefficients, a biased judge: three binomial errors at 0.9 are 7.3 points a coefficient.
    inside, widths = np.zeros(3), []
    for seed in range(150):
        games = arena(seed, 200, 1800)
        fit = BradleyTerry().fit(games)
        low, high = fit.interval(0.9)[1:].T
        inside += (low <= STRENGTH[1:]) & (STRENGTH[1:] <= high)
        alone = BradleyTerry(lam=0.0).fit(games).interval(0.9)[1:]
        widths.append(((high - low) / (alone[:, 1] - alone[:, 0])).mean())
    assert (inside / 150 >= 0.9 - 0.073).all()
    assert np.mean(widths) < 0.9


def test_weights_stand_on_both_terms_not_on_the_human_alone_as_in_8() -> None:
    """Games of d are judged by humans five times as often; weights of 1/5 take that off, judge or not."""
    found = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        games = arena(seed, 3000, 0)
        chance = np.array([0.5 if "d" in (g.a, g.b) else 0.1 for g in games])
        asked = rng.random(len(games)) < chance
        mixed = [
            g if known else Comparison(g.a, g.b, None, g.judge) for g, known in zip(games, asked, strict=True)
        ]
        # All games stand for the population, as the judge sees them; humans' are weighted back to it.
        everyone = [Comparison(g.a, g.b, None, g.judge) for g in games]
        kept = [g for g in mixed if g.human] + everyone
        weights = [*(1 / chance[asked]), *np.ones(len(everyone))]
        found.append(BradleyTerry(lam=1.0).fit(kept, weights=weights).coefficients[1:])
    mean, error = np.mean(found, axis=0), np.std(found, axis=0) / np.sqrt(40)
    assert (np.abs(mean - STRENGTH[1:]) < 4 * error + 0.02).all()


def test_ranks_of_clear_and_of_equal_models() -> None:
    clear = BradleyTerry().fit(arena(1, 4000, 0, strength=np.array([0.0, 2.0, -2.0, 4.0])))
    assert clear.ranks() == tuple(RankInterval(r, r) for r in (3, 2, 4, 1))
    equal = BradleyTerry().fit(arena(1, 200, 0, agree=1.0, strength=np.zeros(4)))
    assert equal.ranks(method="chi_square") == (RankInterval(1, 4),) * 4


def test_a_model_that_only_wins_has_no_coefficient() -> None:
    with pytest.raises(ValueError, match="the coefficients have no finite estimate: a model won or lost all"):
        BradleyTerry().fit([Comparison("a", "b", human="a")] * 5)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("a", "a", "a"), "a and b must be two models, got 'a' twice"),
        (("a", "b", "c"), "human must be 'a' or 'b', who won, or None, got 'c'"),
        (("a", "b"), "human or judge must say who won, got neither"),
    ],
)
def test_wrong_comparisons_are_named(given, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Comparison(*given)


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(ValueError, match=r"lam must lie from 0 \(humans alone\) to 1 \(plain PPI\), got 3"):
        BradleyTerry(lam=3)
    with pytest.raises(ValueError, match="comparisons must hold some that a human judged, got none"):
        BradleyTerry().fit([Comparison("a", "b", judge="a")])
    with pytest.raises(ValueError, match="weights must be positive numbers, one a comparison"):
        BradleyTerry().fit([Comparison("a", "b", human="a")], weights=[0.0])
    with pytest.raises(ValueError, match="method must be 'bonferroni' or 'chi_square', got 'holm'"):
        simultaneous_intervals([0.5], [[0.1]], method="holm")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"value must have the shape \(M,\) and covariance \(M, M\)"):
        simultaneous_intervals([0.5, 0.5], [[0.1]])


@pytest.mark.parametrize("method", ["bonferroni", "chi_square"])
def test_ranks_hold_all_models_at_once(method) -> None:
    # 1,000 trials: three binomial errors at 0.9 are 2.9 points; correlated errors, two models tied.
    value = np.array([0.5, 0.5, 0.6, 0.8])
    covariance = 0.01 * (0.5 * np.eye(4) + 0.5)
    drawn = np.random.default_rng(0).multivariate_normal(value, covariance, size=1000)
    inside = 0
    for found in drawn:
        ranks = rank_intervals(simultaneous_intervals(found, covariance, 0.9, method))
        # Of tied models each may have any of the tied ranks.
        inside += all(
            r.best <= worst and r.worst >= best
            for r, best, worst in zip(ranks, (3, 3, 2, 1), (4, 4, 2, 1), strict=True)
        )
    assert inside / 1000 >= 0.9 - 0.029

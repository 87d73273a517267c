"""Bradley-Terry by PPI++: the numbers of ppi-python, coverage, weights, ranks, and what has no estimate."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit

from monitor import BradleyTerry, Comparison, RankInterval, simultaneous_intervals, simultaneous_ranks
from monitor.base.records import Floats, Ints
from tests.nearly import nearly

Bools = NDArray[np.bool_]

MODELS = ("a", "b", "c", "d")
STRENGTH = np.array([0.0, 0.5, -0.4, 1.0])


def arena(
    seed: int, human: int, alone: int, agree: float = 0.85, strength: Floats = STRENGTH
) -> list[Comparison]:
    """Return comparisons of random pairs; the judge agrees with the human so often, and else favours model
    d.
    """
    rng = np.random.default_rng([seed, human])
    games, models = human + alone, len(strength)
    a = rng.integers(0, models, games)
    b = (a + rng.integers(1, models, games)) % models
    won = np.where(rng.random(games) < expit(strength[b] - strength[a]), "b", "a")
    favoured = np.where(a == 3, "a", np.where(b == 3, "b", rng.choice(["a", "b"], games)))
    judge = np.where(rng.random(games) < agree, won, favoured).tolist()
    return [
        Comparison(MODELS[a[k]], MODELS[b[k]], str(won[k]) if k < human else None, judge[k])
        for k in range(games)
    ]


@pytest.mark.filterwarnings("ignore::FutureWarning")  # its own, of scikit-learn
@pytest.mark.parametrize("lam", [0.5, 1.0, None])
def test_coefficients_and_intervals_are_those_of_ppi_python(ppi: ModuleType, lam: float | None) -> None:
    games = arena(0, 200, 800)
    x = np.array([[(g.b == m) - float(g.a == m) for m in MODELS[1:]] for g in games])
    human = np.array([float(g.human == "b") for g in games[:200]])
    judge = np.array([float(g.judge == "b") for g in games])
    inputs = (x[:200], human, judge[:200], x[200:], judge[200:])
    low, high = ppi.ppi_logistic_ci(*inputs, alpha=0.1, lam=lam, optimizer_options={"gtol": 1e-12})
    fit = BradleyTerry(lam=lam).fit(games)
    # Its optimiser stops at a change of the loss, so a coefficient is good to the root of that.
    np.testing.assert_allclose(fit.interval(0.9)[1:], np.stack([low, high], axis=1), rtol=0, atol=1e-6)


@pytest.mark.simulation
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


def shifted(seed: int, games: int = 3000) -> tuple[Ints, Ints, Floats, Floats, Bools, Floats]:
    """Return models a and b of each game, the share of b by humans and by the judge, whom humans see, its
    chance.

    The judge agrees in 85 % and else favours model d, whose games humans see five times as often.
    """
    rng = np.random.default_rng([8, seed])
    a = rng.integers(0, 4, games)
    b = (a + rng.integers(1, 4, games)) % 4
    human = (rng.random(games) < expit(STRENGTH[b] - STRENGTH[a])).astype(float)
    favoured = np.where(a == 3, 0.0, np.where(b == 3, 1.0, rng.integers(0, 2, games)))
    judge = np.where(rng.random(games) < 0.85, human, favoured)
    chance = np.where((a == 3) | (b == 3), 0.5, 0.1)
    return a, b, human, judge, rng.random(games) < chance, chance


def printed_equation_8(a: Ints, b: Ints, human: Floats, judge: Floats, seen: Bools, w: Floats) -> Floats:
    """Coefficients of b, c and d at λ = 1 by (8) as it is printed: the weight on the human's loss alone."""
    x = (np.eye(4)[b] - np.eye(4)[a])[:, 1:]
    own, heavy = x[seen], w / w.mean()

    def loss(zeta: Floats) -> tuple[float, Floats]:
        line, far = own @ zeta, x @ zeta
        by_human = heavy * (np.logaddexp(0, line) - human[seen] * line)
        by_judge = np.logaddexp(0, line) - judge[seen] * line
        value = (by_human - by_judge).mean() + (np.logaddexp(0, far) - judge * far).mean()
        slope = heavy * (expit(line) - human[seen]) - (expit(line) - judge[seen])
        return float(value), own.T @ slope / len(own) + x.T @ (expit(far) - judge) / len(x)

    optimum = minimize(loss, np.zeros(3), jac=True, method="BFGS")
    return np.asarray(optimum.x)


@pytest.mark.simulation
def test_weights_stand_on_both_terms_not_on_the_human_alone_as_in_8() -> None:
    # d beats a in 73 % of games; as printed (8) says 8.6 points less. 100 trials; four standard errors.
    ours, printed = [], []
    for seed in range(100):
        a, b, human, judge, seen, chance = shifted(seed)
        everyone = np.full(len(a), np.nan)  # all games stand for the population, as the judge sees them
        fit = BradleyTerry(lam=1.0).fit_columns(
            MODELS,
            np.r_[a[seen], a],
            np.r_[b[seen], b],
            np.r_[human[seen], everyone],
            np.r_[judge[seen], judge],
            weights=np.r_[1 / chance[seen], np.ones(len(a))],
        )
        ours.append(expit(fit.coefficients[3]))
        printed.append(expit(printed_equation_8(a, b, human, judge, seen, 1 / chance[seen])[2]))
    for estimates, off in ((ours, 0.0), (printed, -0.086)):
        error = np.std(estimates) / 10
        assert error < 0.004
        assert np.mean(estimates) - expit(1.0) == pytest.approx(off, abs=4 * error)


def test_the_reference_is_a_choice_of_origin_and_nothing_else() -> None:
    games = arena(3, 300, 900)
    first, other = BradleyTerry().fit(games), BradleyTerry(reference="c").fit(games)
    assert other.coefficients[2] == 0.0
    assert other.covariance[2, 2] == 0.0
    # λ is tuned for the coefficients' variances, which depend on the origin; at a fixed λ nothing does.
    fixed = [BradleyTerry(lam=0.6, reference=name).fit(games) for name in (None, "c")]
    shifted = fixed[0].coefficients - fixed[0].coefficients[2]
    np.testing.assert_allclose(fixed[1].coefficients, shifted, rtol=0, atol=1e-7)
    assert fixed[0].ranks() == fixed[1].ranks()
    assert abs(first.lam - other.lam) < 0.1


def test_a_tie_is_half_a_win_for_each() -> None:
    ties = [Comparison("x", "y", human="tie")] * 40 + [Comparison("x", "y", human="b")] * 60
    wins = [Comparison("x", "y", human="b")] * 80 + [Comparison("x", "y", human="a")] * 20
    assert BradleyTerry().fit(ties).coefficients == pytest.approx(BradleyTerry().fit(wins).coefficients)
    # Ties scatter less than wins and losses, and the sandwich knows it.
    assert BradleyTerry().fit(ties).covariance[1, 1] < BradleyTerry().fit(wins).covariance[1, 1]


def test_a_judge_may_give_chances_and_those_that_are_0_or_1_are_verdicts() -> None:
    games = arena(4, 200, 800)
    same = [Comparison(g.a, g.b, g.human, {"a": 0.0, "b": 1.0}[g.judge]) for g in games]
    assert BradleyTerry().fit(same).coefficients == nearly(BradleyTerry().fit(games).coefficients)


def test_a_judge_worth_nothing_is_not_trusted_and_a_good_one_is_worth_many_comparisons() -> None:
    rng = np.random.default_rng(5)
    games = arena(5, 300, 3000, agree=0.95)
    noise = [Comparison(g.a, g.b, g.human, float(rng.random())) for g in games]
    good, useless = BradleyTerry().fit(games), BradleyTerry().fit(noise)
    assert useless.lam < 0.2
    assert useless.effective_comparisons < 1.1 * 300
    assert good.effective_comparisons > 1.5 * 300


def test_where_the_judge_leaves_no_finite_estimate_humans_do_alone() -> None:
    # By the judge c wins all games; by humans it does not.
    rng = np.random.default_rng(0)
    games = [
        Comparison(a, b, str(rng.choice(["a", "b"])) if k < 90 else None, "b" if b == "c" else "a")
        for k in range(400)
        for a, b in [(("x", "y"), ("x", "c"), ("y", "c"))[k % 3]]
    ]
    fit = BradleyTerry().fit(games)
    assert np.isfinite(fit.interval()).all()
    with pytest.raises(ValueError, match="the coefficients have no finite estimate"):
        BradleyTerry().fit([Comparison(g.a, g.b, g.judge, g.judge) for g in games])


def test_ranks_of_clear_and_of_equal_models() -> None:
    clear = BradleyTerry().fit(arena(1, 4000, 0, strength=np.array([0.0, 2.0, -2.0, 4.0])))
    assert clear.ranks() == tuple(RankInterval(r, r) for r in (3, 2, 4, 1))
    equal = BradleyTerry().fit(arena(1, 200, 0, agree=1.0, strength=np.zeros(4)))
    assert equal.ranks(method="chi_square") == (RankInterval(1, 4),) * 4


def test_a_model_that_only_wins_has_no_coefficient() -> None:
    with pytest.raises(ValueError, match="the coefficients have no finite estimate: a model won or lost all"):
        BradleyTerry().fit([Comparison("a", "b", human="a")] * 5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("a", "a", "a"), "a and b must be two different models, got 'a' for both"),
        (("a", "b", "c"), "human must be 'a', 'b', 'tie' or None, got 'c'"),
        (("a", "b"), "a comparison needs a verdict of human or judge, got neither"),
        (("a", "b", None, 1.5), "judge must be 'a', 'b', 'tie', None or the probability that b won"),
        (("a", "b", None, True), "judge must be 'a', 'b', 'tie', None or the probability that b won"),
    ],
)
def test_wrong_comparisons_are_named(arguments, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Comparison(*arguments)


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(ValueError, match=r"lam must lie from 0 \(humans alone\) to 1 \(plain PPI\), got 3"):
        BradleyTerry(lam=3)
    with pytest.raises(ValueError, match="reference must be a model with a comparison, got 'z'"):
        BradleyTerry(reference="z").fit([Comparison("a", "b", human="a")])
    with pytest.raises(ValueError, match="comparisons must include some with a human verdict, got none"):
        BradleyTerry().fit([Comparison("a", "b", judge="a")])
    with pytest.raises(ValueError, match="weights must be positive numbers, one for each comparison"):
        BradleyTerry().fit([Comparison("a", "b", human="a")], weights=[0.0])
    with pytest.raises(ValueError, match="method must be 'bonferroni' or 'chi_square', got 'holm'"):
        simultaneous_intervals([0.5], [[0.1]], method="holm")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"value must have the shape \(M,\) and covariance \(M, M\)"):
        simultaneous_intervals([0.5, 0.5], [[0.1]])
    for method, name in (("chi_square", "value must"), ("holm", "method must")):
        with pytest.raises(ValueError, match=name):
            simultaneous_ranks([0.5, 0.5], [[0.1]] if name == "value must" else np.eye(2), method=method)


@pytest.mark.parametrize("method", ["bonferroni", "chi_square"])
def test_ranks_hold_all_models_at_once(method) -> None:
    # 1,000 trials: three binomial errors at 0.9 are 2.9 points; correlated errors, two models tied.
    value = np.array([0.5, 0.5, 0.6, 0.8])
    covariance = 0.01 * (0.5 * np.eye(4) + 0.5)
    draws = np.random.default_rng(0).multivariate_normal(value, covariance, size=1000)
    inside = 0
    for draw in draws:
        ranks = simultaneous_ranks(draw, covariance, 0.9, method)
        # Of tied models each may have any of the tied ranks.
        inside += all(
            r.best <= worst and r.worst >= best
            for r, best, worst in zip(ranks, (3, 3, 2, 1), (4, 4, 2, 1), strict=True)
        )
    assert inside / 1000 >= 0.9 - 0.029


@pytest.mark.parametrize(
    ("models", "shared", "sharper"), [(2, 0.0, "chi_square"), (3, 0.8, "chi_square"), (20, 0.0, "bonferroni")]
)
def test_the_set_tells_more_where_models_are_few_or_err_alike(
    models: int, shared: float, sharper: str
) -> None:
    """Neighbours are 3.5 errors apart; of 2 independent models intervals ask for 3.92, the set for 3.03."""
    value = 0.035 * np.arange(models)
    covariance = 0.01**2 * (shared + (1 - shared) * np.eye(models))
    ranks = {m: simultaneous_ranks(value, covariance, method=m) for m in ("bonferroni", "chi_square")}
    open_ranks = {m: sum(r.worst - r.best for r in model_ranks) for m, model_ranks in ranks.items()}
    assert min(open_ranks, key=lambda m: open_ranks[m]) == sharper
    assert open_ranks["bonferroni"] != open_ranks["chi_square"]
    for left, right in zip(*ranks.values(), strict=True):
        assert max(left.best, right.best) <= min(left.worst, right.worst), "both hold the order as it is"


def test_the_set_does_not_hang_on_the_origin() -> None:
    fit = BradleyTerry().fit(arena(3, 300, 900))
    assert fit.ranks(method="chi_square") == simultaneous_ranks(
        fit.coefficients, fit.covariance, 0.9, "chi_square"
    )
    assert simultaneous_ranks([0.3], [[0.0]], method="chi_square") == (RankInterval(1, 1),)
    tied = simultaneous_ranks([0.3, 0.3], np.zeros((2, 2)), method="chi_square")
    assert tied == (RankInterval(1, 2), RankInterval(1, 2)), "equal values without any error are a tie"

"""The standing of an arena's models: which ones have a rank, against which, and its numbers."""

from __future__ import annotations

import numpy as np
import pytest

from monitor import BradleyTerry
from monitor.base.records import Floats
from monitor.base.results import Estimate, Reason, TooFew
from monitor.stats.pairwise.standing import FEWEST, Comparisons, standing
from tests.nearly import nearly

NAMES = ("x", "y", "z", "w")
STRENGTH = np.array([0.0, 0.6, -0.4, 1.0])


def simulated(rng: np.random.Generator, n: int, human: float = 0.4, models: int = 4) -> Comparisons:
    a = rng.integers(0, models, n)
    b = (a + rng.integers(1, models, n)) % models
    won = (rng.random(n) < 1 / (1 + np.exp(STRENGTH[a] - STRENGTH[b]))).astype(np.float64)
    judge = np.where(rng.random(n) < 0.8, won, 1.0)
    return Comparisons(a, b, np.where(rng.random(n) < human, won, np.nan), judge, np.ones(n))


def joined(*parts: Comparisons) -> Comparisons:
    columns = ("a", "b", "human", "judge", "weight")
    return Comparisons(*(np.concatenate([getattr(part, name) for part in parts]) for name in columns))


def against(a: int, b: int, n: int, human: float) -> Comparisons:
    """Return the same verdict n times, by humans and the judge."""
    ones = np.ones(n)
    return Comparisons(ones.astype(int) * a, ones.astype(int) * b, human * ones, human * ones, ones)


def test_the_numbers_are_those_of_bradley_terry() -> None:
    rows = simulated(np.random.default_rng(0), 1500)
    result = standing(NAMES, rows, "z", 0.9)
    fit = BradleyTerry(reference="z").fit_columns(NAMES, rows.a, rows.b, rows.human, rows.judge)
    assert [m.coefficient.value for m in result.models] == fit.coefficients.tolist()
    ends = [[m.coefficient.lower, m.coefficient.upper] for m in result.models]
    np.testing.assert_array_equal(ends, fit.interval(0.9))
    assert tuple(m.rank for m in result.models) == fit.ranks(0.9)
    assert tuple(m.rank_chi_square for m in result.models) == fit.ranks(0.9, "chi_square")
    assert (result.reference, result.judge_weight) == ("z", fit.lam)
    assert result.effective_comparisons == fit.effective_comparisons > (~np.isnan(rows.human)).sum()
    assert result.models[2].coefficient == Estimate(0.0, 0.0, 0.0, 0.9, result.models[2].coefficient.n)


def test_a_model_with_too_few_verdicts_is_not_placed_and_does_not_hinder_the_others() -> None:
    rng = np.random.default_rng(1)
    three = simulated(rng, 900, models=3)
    rows = joined(three, against(0, 3, FEWEST - 1, human=1.0))
    result = standing(NAMES, rows, None, 0.95)
    assert result.models[3].coefficient == TooFew(Reason.TOO_FEW_COMPARISONS, FEWEST - 1)
    assert result.models[3].rank is None
    assert result.models[:3] == nearly(standing(NAMES[:3], three, None, 0.95).models)
    assert result.comparisons["human"] == standing(NAMES[:3], three, None, 0.95).comparisons["human"]
    assert result.comparisons["both"] == standing(NAMES[:3], three, None, 0.95).comparisons["both"] + 19


def test_a_model_that_won_all_its_comparisons_is_not_placed_whatever_the_judge_says() -> None:
    rows = joined(simulated(np.random.default_rng(2), 900, models=3), against(0, 3, 60, human=1.0))
    result = standing(NAMES, rows, None, 0.95)
    assert str(result.models[3].coefficient.reason) == Reason.NO_FINITE_ESTIMATE
    assert [m.rank is None for m in result.models] == [False, False, False, True]
    # One tie, half a loss, is enough; 60.5 of 61 wins are a log odds of 4.8, known as badly as that.
    compared = standing(NAMES, joined(rows, against(0, 3, 1, human=0.5)), None, 0.95)
    assert compared.models[3].coefficient.value == pytest.approx(np.log(60.5 / 0.5), abs=0.05)
    assert compared.models[3].coefficient.upper > 8


def test_whoever_is_left_out_takes_its_comparisons_from_the_others() -> None:
    """Model w has enough, but most of them against z, which has lost all."""
    rng = np.random.default_rng(5)
    two = simulated(rng, 400, models=2)
    rows = joined(two, against(2, 3, 40, human=1.0), against(0, 3, 5, 0.5), against(0, 3, 5, 1.0))
    result = standing(NAMES, rows, None, 0.95)
    assert str(result.models[2].coefficient.reason) == Reason.NO_FINITE_ESTIMATE
    assert result.models[3].coefficient == TooFew(Reason.TOO_FEW_COMPARISONS, 10)
    assert result.models[:2] == nearly(standing(NAMES[:2], two, None, 0.95).models)


def test_verdicts_of_humans_alone_count_where_the_judge_decided_few_of_them() -> None:
    rng = np.random.default_rng(6)
    rows = simulated(rng, 600, human=1.0)
    for share, with_judge in ((0.6, True), (0.4, False)):
        judge = np.where(np.arange(600) < share * 600, rows.judge, np.nan)
        few = Comparisons(rows.a, rows.b, rows.human, judge, rows.weight)
        fresh = simulated(rng, 600, human=0.0)
        result = standing(NAMES, joined(few, fresh), None, 0.95)
        n = sum(m.coefficient.n for m in result.models) // 2
        assert (n, result.judge_weight > 0) == ((360, True) if with_judge else (600, False))


def test_models_that_were_never_compared_with_the_reference_are_not_placed() -> None:
    rng = np.random.default_rng(3)
    first, second = simulated(rng, 300, models=2), simulated(rng, 300, models=2)
    apart = Comparisons(second.a + 2, second.b + 2, second.human, second.judge, second.weight)
    result = standing(NAMES, joined(first, apart), None, 0.95)
    assert [m.rank is None for m in result.models] == [False, False, True, True]
    other = standing(NAMES, joined(first, apart), "w", 0.95)
    assert [m.rank is None for m in other.models] == [True, True, False, False]


@pytest.mark.parametrize(
    ("names", "reference", "reasons"),
    [
        ((), None, []),
        (("x",), None, [Reason.TOO_FEW_COMPARISONS]),
        (("x", "y"), "z", [Reason.REFERENCE_TOO_FEW, Reason.REFERENCE_TOO_FEW]),
    ],
)
def test_where_nothing_can_be_compared_it_says_why(names, reference, reasons) -> None:
    rows = simulated(np.random.default_rng(4), 300, models=2) if len(names) == 2 else against(0, 0, 0, 0.0)
    result = standing(names, rows, reference, 0.95)
    assert [m.coefficient.reason for m in result.models] == reasons
    assert result.effective_comparisons == 0.0


def test_comparisons_are_counted_by_who_decided_them() -> None:
    nan = np.nan
    human, judge = np.array([1.0, nan, 0.0, nan]), np.array([nan, 0.5, 1.0, nan])
    zeros = np.zeros(4, dtype=np.int64)
    rows = Comparisons(zeros, zeros + 1, human, judge, np.ones(4))
    assert rows.by_verdict() == {"human": 1, "judge": 1, "both": 1, "none": 1}


@pytest.mark.slow
def test_humans_who_are_asked_about_some_models_more_often_are_weighed_back() -> None:
    """The judge is biased and verdicts depend on the prompt, so that who is asked what matters."""
    errors: dict[bool, list[Floats]] = {True: [], False: []}
    for seed in range(30):
        rng = np.random.default_rng(seed)
        n = 4000
        a = rng.integers(0, 3, n)
        b = (a + rng.integers(1, 3, n)) % 3
        hard = rng.random(n) < 0.5  # where the models are equal
        won = (rng.random(n) < 1 / (1 + np.exp(np.where(hard, 0.0, a - b)))).astype(np.float64)
        chance = np.where(hard, 0.4, 0.05)
        human = np.where(rng.random(n) < chance, won, np.nan)
        judge = np.where(rng.random(n) < 0.8, won, 0.0)
        whole = BradleyTerry().fit_columns(("x", "y", "z"), a, b, won, np.full(n, np.nan)).coefficients
        for weighed in (True, False):
            weight = 1 / chance if weighed else np.ones(n)
            rows = standing(("x", "y", "z"), Comparisons(a, b, human, judge, weight), None, 0.95)
            errors[weighed].append(np.array([m.coefficient.value for m in rows.models]) - whole)
    right, wrong = (np.array(errors[weighed]) for weighed in (True, False))
    error = right.std(axis=0)[1:] / np.sqrt(30)
    assert (np.abs(right.mean(axis=0)[1:]) < 4 * error + 0.02).all()
    assert (wrong.mean(axis=0)[1:] < -0.1).all()

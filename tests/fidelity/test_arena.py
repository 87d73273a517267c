"""The short form of `tests.fidelity.arena`, seeded."""

from __future__ import annotations

from tests.fidelity.arena import measure, measure_few

TRIALS = 40
COMPARISONS = 4000


def test_ppi_holds_what_it_says_whoever_judges_and_a_good_judge_is_worth_many_humans() -> None:
    # 40 trials of 19 coefficients that share a reference: three binomial errors of 40 are 10.3 points.
    good, bad = (measure(judge, 500, TRIALS, comparisons=COMPARISONS) for judge in ("agrees 80 %", "coin"))
    for row in (good, bad):
        assert row.tuned >= 0.95 - row.allowed
        assert row.bonferroni >= 0.9 - 3 * (0.9 * 0.1 / TRIALS) ** 0.5
    assert good.lam > 0.4 > 0.1 > bad.lam
    assert good.width < 0.85
    assert good.worth > 1.2 * 500
    assert 0.95 < bad.width <= 1.0
    assert good.open_ranks < bad.open_ranks


def test_ten_comparisons_a_model_are_too_few_to_have_an_estimate_and_forty_are_not() -> None:
    few, enough = measure_few(10, 200), measure_few(40, 200)
    assert few.none > 10
    assert enough.none == 0
    assert enough.inside >= 0.95 - 3 * (0.95 * 0.05 / 200) ** 0.5

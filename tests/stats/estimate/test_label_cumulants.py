"""Cumulants of a metric over the labels that rows may have: term by term, by draws, and pooled."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from monitor import (
    ClassificationEstimate,
    Cumulants,
    Estimate,
    classification_details,
    classification_details_many,
)
from monitor.base.records import Floats
from monitor.config.root import Bound
from monitor.engine.objective import BootstrapDraws, Objective
from monitor.stats.estimate._label_draws import drawn_values
from monitor.stats.estimate._one_class import OneClass
from monitor.stats.estimate.label_cumulants import FEWEST_EXPECTED, Expansion, label_cumulants
from tests.plain_state import through_msgpack

METRICS = ("precision", "recall", "specificity", "f1", "auroc", "average_precision")
RANKED = METRICS[4:]


def one_class(chance: Floats, score: Floats | None = None) -> OneClass:
    """Return a window, which predicts the class at a half and above."""
    return OneClass(chance[None], (chance >= 0.5)[None], (chance if score is None else score)[None])


def parts(metric: str, label: Floats, score: Floats) -> tuple[float, float]:
    """Numerator and denominator of a metric of labels, row by row and pair by pair."""
    n, acted = len(label), score >= 0.5
    if metric == "auroc":
        pairs = [(i, j) for i in range(n) for j in range(n) if i != j]
        above = sum(
            label[i] * (1 - label[j]) * ((score[i] > score[j]) + 0.5 * (score[i] == score[j]))
            for i, j in pairs
        )
        return above, sum(label[i] * (1 - label[j]) for i, j in pairs)
    above = sum(
        label[i]
        / (score >= score[i]).sum()
        * (1 + sum(label[j] for j in range(n) if j != i and score[j] >= score[i]))
        for i in range(n)
    )
    if metric == "average_precision":
        return above, label.sum()
    hits = label[acted].sum()
    return {
        "precision": (hits, float(acted.sum())),
        "recall": (hits, label.sum()),
        "specificity": (n - acted.sum() - label.sum() + hits, n - label.sum()),
        "f1": (2 * hits, label.sum() + acted.sum()),
    }[metric]


@pytest.mark.parametrize("metric", METRICS)
def test_second_derivatives_are_those_of_the_sums_term_by_term(metric: str) -> None:
    """Numerator and denominator have a degree of one in each label, so mixed differences are exact."""
    rng = np.random.default_rng(1)
    p, n = rng.random(7), 7
    score = np.round(p, 1)  # with ties
    one = OneClass(p[None], (score >= 0.5)[None], score[None])
    expansion = Expansion(one, metric)
    value, below = expansion.value[0], parts(metric, p, score)[1]

    def u(label: Floats) -> float:
        above, under = parts(metric, label, score)
        return (above - value * under) / below

    mixed = np.zeros((n, n))
    for i, j in combinations(range(n), 2):
        for a, b in ((0.0, 0.0), (0.0, 1.0), (1.0, 0.0), (1.0, 1.0)):
            label = p.copy()
            label[[i, j]] = a, b
            mixed[i, j] += u(label) if a == b else -u(label)
        mixed[j, i] = mixed[i, j]
    x, y, s = rng.normal(size=n), rng.normal(size=n), p * (1 - p)
    assert expansion.form(x[None], y[None])[0] == pytest.approx(x @ mixed @ y, abs=1e-12)
    assert expansion.squares(s[None])[0] == pytest.approx(s @ mixed**2 @ s, abs=1e-12)
    step = np.eye(n) * 1e-6
    log = [np.log(parts(metric, p + by, score)[1] / parts(metric, p - by, score)[1]) / 2e-6 for by in step]
    assert expansion.below[0] == pytest.approx(log, abs=1e-8)


WINDOWS = {
    "half": np.random.default_rng(2).beta(0.4, 0.4, 120),
    "few positives": np.random.default_rng(3).beta(0.15, 2.0, 300),
    "few negatives": np.random.default_rng(4).beta(3.0, 0.25, 300),
    "ties": np.round(np.random.default_rng(5).beta(1.0, 2.0, 150), 1).clip(0.01),
}
DRAWN_ALONE = [("few positives", "precision")]
"""Where too few rows are expected for theory."""
DRAWS = 40_000


def simulated(chance: Floats, metric: str) -> Floats:
    """Its values in labels drawn one window at a time, by scikit-learn's definitions."""
    one = OneClass(chance, chance >= 0.5, chance)
    scores = np.column_stack([1 - chance, chance])
    seeds = range(DRAWS // 1000)
    return np.concatenate([drawn_values(scores, [one], [1], [metric], seed)[metric][0] for seed in seeds])


def test_theory_serves_all_of_these_windows_but_one() -> None:
    drawn_alone = [
        (name, metric)
        for name, window in WINDOWS.items()
        for metric in METRICS
        if label_cumulants([Expansion(one_class(window), metric)])[0] is None
    ]
    assert drawn_alone == DRAWN_ALONE


@pytest.mark.parametrize(
    ("window", "metric"),
    [(name, metric) for name in WINDOWS for metric in METRICS if (name, metric) not in DRAWN_ALONE],
)
def test_cumulants_and_ends_are_those_of_draws(window: str, metric: str) -> None:
    [cumulants] = label_cumulants([Expansion(one_class(WINDOWS[window]), metric)])
    assert cumulants is not None
    values = simulated(WINDOWS[window], metric)
    sd = float(values.std())
    assert abs(cumulants.mean - values.mean()) < 4 * sd / np.sqrt(DRAWS) + 0.01 * sd
    assert np.sqrt(cumulants.variance) == pytest.approx(sd, rel=0.02)  # that of the draws errs by 0.4 %
    # The skewness of draws errs by 0.012; its own next order is left out.
    assert cumulants.third / cumulants.variance**1.5 == pytest.approx(
        ((values - values.mean()) ** 3).mean() / sd**3, abs=0.12
    )
    lower, upper = cumulants.interval(0.95)
    # Three binomial errors are 0.0023. Ratios of counts have steps of a few per mill of the mass, or percent.
    steps = 0.0 if metric in RANKED else float(np.unique(values, return_counts=True)[1].max()) / DRAWS
    outside = float((values < lower).mean()), float((values > upper).mean())
    assert outside == pytest.approx((0.025, 0.025), abs=0.0045 + steps / 2)


@pytest.mark.parametrize("metric", METRICS)
def test_means_over_classes_are_those_of_draws(metric: str) -> None:
    scores = np.random.default_rng(6).dirichlet([0.8, 0.7, 0.3], 200)
    predicted = scores.argmax(axis=1)
    classes = [OneClass(scores[:, k], predicted == k, scores[:, k]) for k in range(3)]
    together = [OneClass(scores[None, :, k], (predicted == k)[None], scores[None, :, k]) for k in range(3)]
    [cumulants] = label_cumulants([Expansion(each, metric) for each in together])
    assert cumulants is not None
    values = np.concatenate(
        [drawn_values(scores, classes, range(3), [metric], seed)[metric].mean(axis=0) for seed in range(20)]
    )
    sd, many = float(values.std()), len(values)
    assert abs(cumulants.mean - values.mean()) < 4 * sd / np.sqrt(many) + 0.01 * sd
    assert np.sqrt(cumulants.variance) == pytest.approx(sd, rel=0.025)
    lower, upper = cumulants.interval(0.95)
    outside = float((values < lower).mean()), float((values > upper).mean())
    assert outside == pytest.approx((0.025, 0.025), abs=0.006)  # three binomial errors are 0.0033


@pytest.mark.parametrize("metric", RANKED)
def test_labels_are_drawn_where_few_positives_are_expected_or_one_label_moves_much(metric: str) -> None:
    rng = np.random.default_rng(7)

    def details(chance: Floats):
        return classification_details(np.column_stack([1 - chance, chance]), chance >= 0.5, [metric])[metric]

    few = rng.beta(1, 9, 100)
    few *= (FEWEST_EXPECTED - 1) / few.sum()
    many = few * (FEWEST_EXPECTED + 1) / (FEWEST_EXPECTED - 1)
    assert details(few).cumulants is None
    assert details(few).draws is not None
    assert details(many).cumulants is not None
    assert details(many).draws is None
    sharp = np.repeat([1e-4, 0.5, 1 - 1e-4], [60, 2, 60])
    assert details(sharp).draws is not None
    sure = details(np.repeat([0.0, 1.0], 50))
    assert sure.result == Estimate(1.0, 1.0, 1.0, 0.95, 100)
    assert sure.cumulants == Cumulants(1.0, 1.0, 0.0, 0.0, 100)


@pytest.mark.parametrize("width", [2, 3])
def test_windows_together_are_each_alone_to_the_last_bit(width: int) -> None:
    rng = np.random.default_rng(8)
    scores = [
        rng.dirichlet(np.full(width, a), n)
        for a, n in ((0.5, 90), (1.0, 90), (0.2, 90), (0.5, 61), (0.02, 90))
    ]
    predicted = [each.argmax(axis=1) for each in scores]
    together = classification_details_many(scores, predicted, METRICS)
    for seed, (s, p, estimates) in enumerate(zip(scores, predicted, together, strict=True)):
        for metric, alone in classification_details(s, p, METRICS, seed=seed).items():
            assert numbers(estimates[metric]) == numbers(alone), metric


def numbers(estimate: ClassificationEstimate) -> list[object]:
    """Return all that there is in an estimate."""
    counts = estimate.counts
    masses = [] if counts is None else [counts.hits.mass.tolist(), counts.rest.mass.tolist(), counts.value]
    arrays = [None if each is None else each.tolist() for each in (estimate.draws, estimate.slope)]
    return [
        estimate.result,
        estimate.undefined,
        estimate.row_sd,
        estimate.cumulants,
        estimate.weight,
        *arrays,
        *masses,
    ]


def test_a_higher_level_widens_and_the_ends_stay_within_0_and_1() -> None:
    window = Cumulants(0.97, 0.97, 0.0004, -9e-6, 500)
    narrow, wide = window.interval(0.8), window.interval(0.999)
    assert 0.0 <= wide[0] < narrow[0] < 0.97 < narrow[1] < wide[1] <= 1.0
    with pytest.raises(ValueError, match="level must lie between 0 and 1"):
        window.interval(1.0)


def test_pooled_cumulants_are_those_of_the_mean_of_draws() -> None:
    rng = np.random.default_rng(9)
    first, second = 0.8 + 0.02 * rng.standard_normal(100_000), 1 - rng.gamma(4.0, 0.02, 100_000)
    joined = Cumulants.from_draws(0.8, first, 500).joined(Cumulants.from_draws(0.92, second, 250))
    of_mean = Cumulants.from_draws((500 * 0.8 + 250 * 0.92) / 750, (500 * first + 250 * second) / 750, 750)
    assert joined.value == pytest.approx(of_mean.value)
    assert joined.mean == pytest.approx(of_mean.mean)
    assert joined.variance == pytest.approx(
        of_mean.variance, rel=0.02
    )  # the draws' error: 0.4 %, and their product
    assert joined.third == pytest.approx(of_mean.third, rel=0.25)
    assert joined.interval(0.95) == pytest.approx(
        tuple(np.quantile(of_mean_draws(first, second), [0.025, 0.975])), abs=6e-4
    )


def of_mean_draws(first: Floats, second: Floats) -> Floats:
    return (500 * first + 250 * second) / 750


def test_an_objective_pools_windows_with_cumulants_and_with_draws_and_goes_on_from_its_state() -> None:
    rng = np.random.default_rng(10)
    items = [
        Cumulants(0.9, 0.9, 0.0004, -4e-6, 500),
        BootstrapDraws(0.88, 0.88 + 0.03 * rng.standard_normal(1000), 100),  # of a window with few positives
        Cumulants(0.91, 0.911, 0.0003, -2e-6, 400),
        Cumulants(0.93, 0.93, 0.0002, 0.0, 500),
    ]
    settings = Objective(Bound(min=0.85), windows=3)
    logic = settings.build()
    whole = [logic.update(item) for item in items]
    assert [v.rows for v in whole] == [500, 600, 1000, 1000]
    cumulants = [
        i if isinstance(i, Cumulants) else Cumulants.from_draws(i.value, i.draws, i.size) for i in items
    ]
    assert (whole[1].lower, whole[1].upper) == cumulants[0].joined(cumulants[1]).interval(0.95)
    for cut in range(4):
        first = settings.build()
        for item in items[:cut]:
            first.update(item)
        second = settings.build(through_msgpack(first.snapshot()))
        assert [second.update(item) for item in items[cut:]] == whole[cut:]

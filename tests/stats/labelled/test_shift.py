"""Weights of labels that are no random sample, estimated from the scores: when they mend it, and when not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from msgspec.structs import replace
from scipy.special import logit

from monitor import AutoEval, LabelEstimator, Labelled
from monitor.base.records import Floats, Ints
from monitor.base.registry import BY_LABELS
from monitor.base.results import Estimate, Reason, Unknown
from monitor.config.root import Config
from monitor.engine.refit.fit import refit
from monitor.stats.labelled.inputs import effective_number
from monitor.stats.labelled.shift import FEWEST_EFFECTIVE, LARGEST_IMBALANCE, chance_weights, imbalance, ratio
from tests.engine.refit.jobs import job
from tests.nearly import nearly
from tests.streams import CLASSES

ROWS = 2000
Chance = Callable[[Floats, Floats], Floats]


def test_the_ratio_of_densities_follows_the_known_one() -> None:
    rng = np.random.default_rng(2)
    own, fresh = rng.beta(4, 2, 3000), rng.beta(2, 4, 6000)
    columns = [np.stack([logit(score), logit(score) ** 2], axis=1) for score in (own, fresh)]
    known, weight = ((1 - own) / own) ** 2, ratio(*columns)
    inner = (own > 0.2) & (own < 0.9)
    assert np.corrcoef(np.log(weight[inner]), np.log(known[inner]))[0, 1] > 0.99
    assert float((weight * own).mean()) == pytest.approx(1 / 3, abs=0.03)


def by_score(score: Floats, right: Floats) -> Floats:
    """Return labels where the first model says yes: 11 times as often as where it surely says no."""
    return 0.1 + score


def by_doubt(score: Floats, right: Floats) -> Floats:
    """Return labels where it is not sure."""
    return 0.1 + 4 * score * (1 - score)


def by_lot(score: Floats, right: Floats) -> Floats:
    """Return a random sample."""
    return np.ones(len(score))


def by_complaint(score: Floats, right: Floats) -> Floats:
    """Wrong answers three times as often as right ones, whatever the score."""
    return np.where(right > 0, 1.0, 3.0)


def simulated(seed: int, labelled: int, chance: Chance) -> tuple[Floats, Ints, Floats]:
    """Return two models' scores, labels as `chance` has them, and whether the first model is right.

    It is right in 79 % of rows where it says no and in 63 % of those where it says yes, whatever it claims.
    """
    rng = np.random.default_rng([seed, labelled])
    logit = rng.normal(-0.5, 2.0, size=(ROWS, 1)) + rng.normal(0.0, 0.5, size=(ROWS, 2))
    score = 1 / (1 + np.exp(-logit))
    positive = score[:, 0] >= 0.5
    right = (rng.random(ROWS) < np.where(positive, 0.63, 0.79)).astype(np.float64)
    truth = np.where(right > 0, positive, ~positive).astype(np.int64)
    density = chance(score[:, 0], right)
    picked = rng.choice(ROWS, labelled, replace=False, p=density / density.sum())
    labels = np.full(ROWS, -1)
    labels[picked] = truth[picked]
    return np.stack([1 - score, score], axis=2), labels, right


def share_held(make: type[LabelEstimator], chance: Chance, trials: int, weigh: bool = True) -> float:
    """Return the share of 95 % intervals, with 200 labels, that hold the accuracy of all rows."""
    held = 0
    for trial in range(trials):
        scores, labels, right = simulated(trial, 200, chance)
        weights = chance_weights(scores, labels) if weigh else None
        estimate = make().fit(scores, labels, weights=weights).estimate("accuracy", 0)
        held += estimate.lower <= right.mean() <= estimate.upper
    return held / trials


@pytest.mark.simulation
@pytest.mark.parametrize("make", [Labelled, AutoEval])
@pytest.mark.parametrize("chance", [by_score, by_doubt, by_lot])
def test_intervals_hold_where_the_scores_show_who_was_labelled(
    make: type[LabelEstimator], chance: Chance
) -> None:
    """Three binomial errors of 100 trials at 95 % are 6.5 points."""
    assert share_held(make, chance, 100) >= 0.95 - 0.065


@pytest.mark.simulation
def test_without_weights_they_do_not() -> None:
    """Accuracy among labelled rows is some 6 points lower; the interval reaches about as far."""
    assert share_held(Labelled, by_score, 100, weigh=False) < 0.85
    assert share_held(Labelled, by_lot, 100, weigh=False) >= 0.95 - 0.065


def test_labels_that_came_because_the_answer_was_wrong_stay_misleading() -> None:
    """The scores say nothing of it: 74 % right among all rows, about 50 % among the labelled."""
    assert share_held(Labelled, by_complaint, 20) == 0.0


def test_a_random_sample_loses_little() -> None:
    ratio, lost = [], []
    for trial in range(20):
        scores, labels, _ = simulated(trial, 200, by_lot)
        weight = chance_weights(scores, labels)
        ends = [Labelled().fit(scores, labels, weights=w).estimate("accuracy", 0) for w in (None, weight)]
        ratio.append((ends[1].upper - ends[1].lower) / (ends[0].upper - ends[0].lower))
        lost.append(effective_number(weight[labels >= 0]))
    assert np.mean(ratio) < 1.03
    assert np.mean(lost) > 190


def test_the_labelled_rows_stand_for_all_rows() -> None:
    scores, labels, _ = simulated(0, 200, by_score)
    before = scores.copy(), labels.copy()
    weight = chance_weights(scores, labels)
    known = labels >= 0
    assert weight[known].sum() == pytest.approx(ROWS)
    assert weight[known].min() >= 1.0
    assert (weight[~known] == 1.0).all()
    score = scores[:, 0, 1]
    assert score[known].mean() > score.mean() + 0.15
    assert np.average(score[known], weights=weight[known]) == pytest.approx(score.mean(), abs=0.05)
    np.testing.assert_array_equal(scores, before[0])
    np.testing.assert_array_equal(labels, before[1])


def test_models_that_answered_some_rows_alone_and_many_classes_take_part() -> None:
    rng = np.random.default_rng(0)
    scores = rng.dirichlet(np.ones(6), size=(600, 3))
    scores[rng.random(600) < 0.3, 1] = np.nan
    labels = np.where(rng.random(600) < 0.05 + 0.5 * scores[:, 0, 2], 0, -1)
    weight, known = chance_weights(scores, labels), labels >= 0
    assert known.sum() < 3 * 2 * 15, "the mean of the models stands for them"
    assert weight[known].sum() == pytest.approx(600)
    assert np.corrcoef(weight[known], np.nanmean(scores[known], axis=1)[:, 2])[0, 1] < -0.2


@pytest.mark.parametrize("labelled", [0, 40])
def test_where_all_or_none_are_labelled_there_is_nothing_to_weigh(labelled: int) -> None:
    scores = np.tile([[[0.2, 0.8]]], (40, 1, 1))
    labels = np.where(np.arange(40) < labelled, 1, -1)
    assert chance_weights(scores, labels).tolist() == [1.0] * 40


def make_job(
    chance: Chance = by_score, labelled: int = 200, label_weights: str = "estimated", **more: object
):
    scores, labels, _ = simulated(3, labelled, chance)
    return replace(
        job(models=2, rows=ROWS, calibrate=False),
        **{"estimators": ("autoeval", "labelled", "pseudo_label")} | more, scores=scores, labels=labels,
        predicted=scores.argmax(axis=2), label_weights=label_weights,
    )  # fmt: skip


def answers(of: object) -> dict[str, Estimate | Unknown]:
    return {e.estimator: e.result for e in refit(of).models["a"].estimates}


def test_a_refit_weighs_labels_for_the_estimators_that_rest_on_them_alone() -> None:
    plain, weighed = answers(make_job(label_weights="given")), answers(make_job())
    of = make_job()
    weights = chance_weights(of.scores, of.labels)
    for tag, make in (("autoeval", AutoEval), ("labelled", Labelled)):
        fit = make(seed=of.seed, positive=1).fit(
            of.scores, of.labels, predicted=of.predicted, weights=weights
        )
        assert weighed[tag] == nearly(fit.estimate("accuracy", 0))
        assert weighed[tag].upper - weighed[tag].lower > plain[tag].upper - plain[tag].lower
    assert weighed["pseudo_label"] == nearly(plain["pseudo_label"]), (
        "it models labels by scores, as whoever chose did"
    )


@pytest.mark.parametrize("drawn_by_lot", [1, 200])
def test_a_refit_keeps_the_probabilities_that_labels_bring(drawn_by_lot: int) -> None:
    """One label that brings one is enough: the others then stand for themselves, as without this setting."""
    weights = np.ones(ROWS)
    weights[np.flatnonzero(make_job().labels >= 0)[:drawn_by_lot]] = np.linspace(7.0, 9.0, drawn_by_lot)
    expected = answers(make_job(weights=weights, label_weights="given"))
    assert answers(make_job(weights=weights)) == nearly(expected)
    assert expected != answers(make_job())


@pytest.mark.slow
def test_labels_that_were_drawn_make_good_what_complaints_did() -> None:
    """120 wrong answers more often than right ones, then 80 of the rest by lot; 100 trials: 6.5 points."""
    held = 0
    for trial in range(100):
        scores, labels, right = simulated(trial, 120, by_complaint)
        rest = np.flatnonzero(labels < 0)
        more = np.random.default_rng(trial).choice(rest, 80, replace=False)
        acted = scores[more, 0].argmax(axis=1)
        labels[more] = np.where(right[more] > 0, acted, 1 - acted)
        weights = np.ones(ROWS)
        weights[more] = len(rest) / 80
        estimate = Labelled().fit(scores, labels, weights=weights).estimate("accuracy", 0)
        held += estimate.lower <= right.mean() <= estimate.upper
    assert held / 100 >= 0.95 - 0.065


def rare(score: Floats, right: Floats) -> Floats:
    """Next to nobody where the model says no."""
    return np.where(score > 0.9, 1.0, 1e-4)


def seldom(score: Floats, right: Floats) -> Floats:
    """Next to never where the model says no."""
    return np.where(score > 0.5, 1.0, 0.002)


@pytest.mark.parametrize(
    ("chance", "labelled", "reason"),
    [
        (rare, 40, Reason.LABELS_UNLIKE),
        (seldom, 60, Reason.LABELS_UNLIKE),
        (by_lot, 9, Reason.TOO_FEW_LABELS),
    ],
)
def test_labels_that_say_too_little_of_the_rest_are_unknown_with_the_reason(
    chance: Chance, labelled: int, reason: Reason
) -> None:
    """Nobody labels a part of the rows: labels are all alike, but far away. Or few of them carry it all."""
    of = make_job(chance, labelled, estimators=("pseudo_label", "autoeval", "rectified", "labelled"))
    results = answers(of)
    assert [results[tag] for tag in BY_LABELS] == [Unknown(reason)] * 3
    assert isinstance(results["pseudo_label"], Estimate)
    plain = replace(of, label_weights="given", estimators=("labelled",))
    assert answers(plain)["labelled"].n == labelled


@pytest.mark.parametrize("labelled", [0, ROWS])
def test_without_labels_or_with_all_of_them_a_refit_is_what_it_was(labelled: int) -> None:
    tags = ("ensemble", "autoeval", "labelled")
    results = [answers(make_job(by_lot, labelled, how, estimators=tags)) for how in ("given", "estimated")]
    assert results[0] == nearly(results[1])
    assert (results[0]["labelled"] == Unknown(Reason.NO_LABELS)) == (labelled == 0)


@pytest.mark.parametrize("chance", [by_score, by_doubt, by_lot])
def test_labels_that_have_their_like_everywhere_are_not_refused(chance: Chance) -> None:
    for trial in range(20):
        scores, labels, _ = simulated(trial, 200, chance)
        weight = chance_weights(scores, labels)
        assert effective_number(weight[labels >= 0]) >= FEWEST_EFFECTIVE
        assert imbalance(scores, labels, weight) <= LARGEST_IMBALANCE
    far = imbalance(*simulated(0, 100, rare)[:2], np.ones(ROWS))
    assert far > LARGEST_IMBALANCE


def test_estimated_weights_that_nobody_reads_are_refused() -> None:
    base = {"classes": CLASSES, "models": {"a": {}}, "labels": {"weights": "estimated"}}
    with pytest.raises(ValueError) as error:
        Config(tasks={"t": base | {"estimators": ["average_confidence", "dawid_skene"]}})
    assert (
        "labels.weights: expected given if estimators has none that uses weights (labelled, "
        "rectified, autoeval), got 'estimated': list one of them, or leave labels.weights out"
    ) in str(error.value)
    for tag in ("labelled", "ssme"):  # which brings labelled along
        Config(tasks={"t": base | {"estimators": ["average_confidence", tag]}})

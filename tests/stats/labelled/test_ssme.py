"""SSME: laws of the fit, bad input, and errors on simulated models with known truth."""

from __future__ import annotations

import numpy as np
import pytest

from monitor.base.results import Estimate, Reason, Unknown
from monitor.stats.calibration.isotonic import IsotonicCalibrator
from monitor.stats.labelled.ensemble import Ensemble
from monitor.stats.labelled.ssme import FEWEST_ROWS, SSME
from monitor.stats.labelled.ssme_curve import distil


def simulated(seed, n=600, models=3, classes=2, power=1.0, labelled=60, strength=1.5):
    """Calibrated models with noise half shared, raised to a power; the first rows are labelled."""
    rng = np.random.default_rng(seed)
    truth = rng.choice(classes, n, p=np.arange(1, classes + 1)[::-1] * 2.0 / classes / (classes + 1))
    noise = np.sqrt(0.5) * (rng.normal(size=(n, 1, classes)) + rng.normal(size=(n, models, classes)))
    evidence = strength * np.eye(classes)[truth][:, None] + noise
    shares = np.bincount(truth, minlength=classes) / n
    scores = (np.exp(strength * evidence) * shares) ** power
    scores /= scores.sum(axis=2, keepdims=True)
    return scores, truth, np.where(np.arange(n) < labelled, truth, -1)


def accuracy(scores, truth, model=0):
    return float((scores[:, model].argmax(axis=1) == truth).mean())


def errors(runs, **settings):
    """Mean absolute errors of accuracy: SSME, mean of the classifiers, labelled rows alone."""
    distances = []
    for seed in range(runs):
        scores, truth, labels = simulated(seed, **settings)
        known = labels >= 0
        right = accuracy(scores, truth)
        answers = (
            SSME().fit(scores, labels).point("accuracy"),
            Ensemble().fit(scores, labels).point("accuracy"),
        )
        distances.append([abs(a - right) for a in (*answers, accuracy(scores[known], truth[known]))])
    return np.mean(distances, axis=0)


@pytest.mark.slow
@pytest.mark.parametrize("power", [0.3, 4.0])
def test_scores_that_are_off_by_a_power_are_seen_through(power):
    """6 runs with 100 labels, which alone are off by 2.1 points; the fit by 1."""
    ours, ensemble, labelled = errors(6, power=power, labelled=100)
    assert ours < 0.75 * labelled
    assert ours < ensemble


def test_twenty_labels_and_the_claims_are_better_than_either():
    """6 runs: 4.2 points, 5.0 for the mean of the classifiers, 5.3 for the labels alone."""
    ours, ensemble, labelled = errors(6, labelled=20)
    assert ours < min(ensemble, labelled)


@pytest.mark.slow
def test_many_labels_are_followed_where_every_model_is_wrong():
    """6 runs with 400 labels: the mean of the classifiers is off by 16 points, the fit by less than 1."""
    ours, ensemble, labelled = errors(6, n=1400, power=0.25, labelled=400)
    assert ours < labelled
    assert ours < 0.1 * ensemble


def test_a_single_model_works():
    """6 runs: 1.8 points where 40 labels alone are off by 4.6."""
    ours, _, labelled = errors(6, models=1, labelled=40)
    assert ours < 0.6 * labelled


@pytest.mark.slow
@pytest.mark.parametrize("classes", [3, 9])
def test_more_classes(classes):
    """5 runs, underconfident by a power of 0.4: the mean of the classifiers is off by 17 and 29 points."""
    ours, ensemble, labelled = errors(5, classes=classes, power=0.4, labelled=100, strength=2.0)
    assert ours < 0.2 * ensemble
    assert ours < 0.9 * labelled


def test_a_broken_model_is_found_out_and_does_not_spoil_the_others():
    scores, truth, labels = simulated(3, models=6, strength=2.0, labelled=100)
    broken = scores.copy()
    broken[:, 5] = scores[np.random.default_rng(0).permutation(len(scores)), 5]
    fit = SSME().fit(broken, labels)
    assert abs(fit.point("accuracy", 5) - accuracy(broken, truth, 5)) < 0.05
    assert abs(fit.point("accuracy", 0) - accuracy(broken, truth, 0)) < 0.04
    assert fit.point("accuracy", 5) < fit.point("accuracy", 0) - 0.2


def test_copies_of_a_model_do_not_count_twice():
    scores, _, labels = simulated(4, n=1000, models=4)
    copied = np.concatenate([scores] + [scores[:, :1]] * 5, axis=1)
    plain, with_copies = SSME().fit(scores, labels), SSME().fit(copied, labels)
    for model in range(4):
        assert abs(plain.point("accuracy", model) - with_copies.point("accuracy", model)) < 0.02


def test_labelled_rows_keep_their_labels_and_rows_sum_to_one():
    scores, truth, labels = simulated(5, classes=3)
    posterior = SSME().fit(scores, labels).posterior
    assert np.array_equal(posterior[:60], np.eye(3)[truth[:60]])
    np.testing.assert_allclose(posterior.sum(axis=1), 1.0, atol=1e-9)
    assert posterior.min() >= 0.0


def test_all_labels_give_the_observed_accuracy():
    scores, truth, _ = simulated(6)
    fit = SSME().fit(scores, truth)
    for model in range(3):
        assert fit.point("accuracy", model) == pytest.approx(accuracy(scores, truth, model), abs=1e-12)


def test_no_labels_is_flagged_and_rests_on_the_claims():
    scores, truth, _ = simulated(7)
    fit = SSME().fit(scores, np.full(len(truth), -1))
    assert fit.flags == ("no labels",)
    estimate = fit.estimate("accuracy")
    assert isinstance(estimate, Estimate)
    assert abs(estimate.value - accuracy(scores, truth)) < 0.1
    assert estimate.lower < accuracy(scores, truth) < estimate.upper


def test_labels_narrow_the_interval():
    scores, truth, _ = simulated(8, n=1000)
    widths = []
    for labelled in (0, 50, 400):
        estimate = SSME().fit(scores, np.where(np.arange(1000) < labelled, truth, -1)).estimate("accuracy")
        assert isinstance(estimate, Estimate)
        widths.append(estimate.upper - estimate.lower)
    assert widths[0] > widths[1] > widths[2] > 0.0


def test_a_class_without_labels_is_flagged():
    scores, truth, _ = simulated(9, classes=3)
    labels = np.where(truth < 2, truth, -1)
    labels[60:] = -1
    fit = SSME().fit(scores, labels)
    assert fit.flags == ("a class without labels",)
    assert 0.0 < fit.prevalence[2] < 1.0


def test_new_rows_are_predicted_as_the_fitted_ones():
    scores, _, labels = simulated(10)
    fit = SSME().fit(scores, labels)
    unlabelled = labels < 0
    np.testing.assert_allclose(fit.predict(scores)[unlabelled], fit.posterior[unlabelled], atol=1e-9)
    alone = fit.predict(scores[100:101])
    np.testing.assert_allclose(alone[0], fit.posterior[100], atol=1e-9)


@pytest.mark.parametrize("classes", [2, 3])
def test_scores_of_exactly_0_and_1_and_constant_scores(classes):
    scores, truth, labels = simulated(11, classes=classes)
    hard = np.eye(classes)[scores.argmax(axis=2)]
    constant = np.broadcast_to(np.full(classes, 1.0 / classes), scores.shape)
    for table in (hard, constant):
        fit = SSME().fit(table, labels)
        assert np.isfinite(fit.posterior).all()
        value = fit.point("accuracy")
        assert abs(value - accuracy(table, truth)) < 0.12


def test_missing_models_take_part_and_an_absent_one_changes_nothing_else():
    scores, truth, labels = simulated(12, models=4)
    gone = scores.copy()
    gone[np.random.default_rng(0).random((600, 4)) < 0.3] = np.nan
    gone[0] = np.nan  # a row that no model answered
    fit = SSME().fit(gone, labels)
    rows = ~np.isnan(gone[:, 0, 0])
    assert abs(fit.point("accuracy") - accuracy(gone[rows], truth[rows])) < 0.06
    assert np.isfinite(fit.posterior).all()
    absent = np.concatenate([scores, np.full((600, 1, 2), np.nan)], axis=1)
    assert fit.fit(absent, labels).estimate("accuracy", 4) == Unknown(Reason.NO_ROWS)
    assert abs(fit.point("accuracy") - accuracy(scores, truth)) < 0.05


def test_more_dimensions_than_rows():
    scores, truth, labels = simulated(13, n=40, models=7, classes=9, labelled=15, strength=3.0)
    fit = SSME().fit(scores, labels)
    assert abs(fit.point("accuracy") - accuracy(scores, truth)) < 0.25
    assert np.isfinite(fit.posterior).all()


def test_too_few_rows_are_refused():
    scores, _, labels = simulated(14, n=FEWEST_ROWS - 1, labelled=10)
    fit = SSME().fit(scores, labels)
    assert fit.estimate("accuracy") == Unknown(Reason.TOO_FEW_ROWS)
    assert not fit.converged
    with pytest.raises(RuntimeError, match=r"the fit was refused \(too few rows\), so it cannot predict"):
        fit.predict(scores)
    with pytest.raises(RuntimeError, match="so it gives no calibration"):
        fit.calibration()


def test_weights_undo_a_choice_of_rows_that_depends_on_the_label():
    """Positive rows labelled five times as often: the weights bring the prevalence back."""
    scores, truth, _ = simulated(15, n=3000, strength=1.0)
    chance = np.where(truth == 1, 0.25, 0.05)
    labels = np.where(np.random.default_rng(1).random(3000) < chance, truth, -1)
    off = abs(SSME().fit(scores, labels).prevalence[1] - truth.mean())
    weighted = abs(SSME().fit(scores, labels, weights=1.0 / chance).prevalence[1] - truth.mean())
    assert off > 0.08
    assert weighted < 0.6 * off


def test_the_same_seed_gives_the_same_numbers_and_leaves_its_input():
    scores, _, labels = simulated(16)
    before = scores.copy(), labels.copy()
    first, second = (SSME(seed=4).fit(scores, labels) for _ in range(2))
    assert np.array_equal(first.posterior, second.posterior)
    assert first.estimate("auroc", 1) == second.estimate("auroc", 1)
    assert np.array_equal(before[0], scores)
    assert np.array_equal(before[1], labels)


@pytest.mark.simulation
def test_intervals_of_accuracy_cover():
    """30 runs at 100 labels: fewer than 25 hits happen once in 300 series where 95 % is true."""
    population, population_truth, _ = simulated(9000, n=20_000, power=1.7)
    hits = 0
    for seed in range(30):
        rows = np.random.default_rng(seed).choice(20_000, 600, replace=False)
        labels = np.where(np.arange(600) < 100, population_truth[rows], -1)
        estimate = SSME(seed=seed).fit(population[rows], labels).estimate("accuracy")
        assert isinstance(estimate, Estimate)
        hits += estimate.lower <= accuracy(population, population_truth) <= estimate.upper
        assert estimate.upper - estimate.lower < 0.2
    assert hits >= 25


def test_the_distilled_curve_of_labelled_rows_is_isotonic_regression():
    scores, truth, _ = simulated(17)
    ours = SSME().fit(scores, truth).calibration(1)
    theirs = IsotonicCalibrator().fit(scores[:, 1], scores[:, 1].argmax(axis=1), truth)
    np.testing.assert_allclose(ours.apply(scores[:, 1]), theirs.apply(scores[:, 1]), atol=1e-12)


def test_the_distilled_curve_carries_the_fit_into_average_confidence():
    scores, truth, labels = simulated(18, n=2000, power=3.0, labelled=150)
    fit = SSME().fit(scores, labels)
    calibrated = fit.calibration(0).apply(scores[:, 0])
    predicted = scores[:, 0].argmax(axis=1)
    confidence = calibrated[np.arange(2000), predicted].mean()
    raw = scores[:, 0].max(axis=1).mean()
    assert abs(raw - accuracy(scores, truth)) > 0.05
    assert abs(confidence - fit.point("accuracy")) < 0.01
    assert calibrated[:, 1].mean() == pytest.approx(fit.posterior[:, 1].mean())
    assert (np.diff(calibrated[np.argsort(scores[:, 0, 1]), 1]) >= 0.0).all()


def test_a_curve_of_three_classes_and_of_missing_rows():
    scores, _, labels = simulated(19, classes=3)
    scores[5:50, 0] = np.nan
    fit = SSME().fit(scores, labels)
    curve = fit.calibration(0)
    assert curve.width == 3
    np.testing.assert_allclose(curve.apply(scores[60:, 0]).sum(axis=1), 1.0)
    assert (
        type(curve).from_snapshot(curve.snapshot()).apply(scores[60:, 0]).tolist()
        == curve.apply(scores[60:, 0]).tolist()
    )


def test_a_curve_refuses_what_it_cannot_be_drawn_from():
    with pytest.raises(ValueError, match=r"same shape \(n, K\), got \(2, 2\) and \(2, 3\)"):
        distil(np.ones((2, 2)), np.ones((2, 3)))
    with pytest.raises(ValueError, match="scores are missing in every row"):
        distil(np.full((2, 2), np.nan), np.ones((2, 2)))

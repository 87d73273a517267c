"""The parts of SSME: pooled evidence, families of curves, corrections."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from monitor.stats.labelled.ssme_adjust import (
    FACTORS,
    SCALES,
    Adjustment,
    CorrectionRows,
    Corrections,
)
from monitor.stats.labelled.ssme_evidence import Pooling, agreement_weights, centred_logs
from monitor.stats.labelled.ssme_families import (
    RankBinormal,
    ScaledSoftmax,
    claimed_shares,
    log_likelihoods,
    mid_ranks,
    softmax,
)
from monitor.stats.labelled.ssme_hypotheses import (
    claimed_error_ratio,
    claimed_slope,
    disagreement,
    hypotheses,
    shares_agree,
)
from monitor.stats.labelled.ssme_mixture import MixtureData, PosteriorMixture, systematic
from tests.nearly import nearly

WEIGHTS = (0.4, 0.1, 0.15, 0.175, 0.175)  # of the corrections' factors


def scored(seed, n=400, models=4, classes=2):
    rng = np.random.default_rng(seed)
    truth = rng.choice(classes, n)
    logits = 1.5 * np.eye(classes)[truth][:, None] + rng.normal(size=(n, models, classes))
    scores = np.exp(logits)
    return scores / scores.sum(axis=2, keepdims=True), truth


def everything(scores):
    pooling = Pooling.from_scores(scores)
    evidence = pooling.evidence(scores)
    families = {one.family.name: one.family for one in hypotheses(evidence, scores, pooling.weights, 0.3)}
    return pooling, evidence, families


def test_a_model_at_random_has_no_voice():
    scores, _ = scored(0, n=2000, models=5)
    scores[:, 2] = np.random.default_rng(1).permutation(scores[:, 2])
    weights = Pooling.from_scores(scores).weights
    assert weights[2] == 0.0
    np.testing.assert_allclose(np.delete(weights, 2), 0.25, atol=0.03)


def test_an_inverted_model_has_no_voice():
    scores, _ = scored(0, n=2000, models=5)
    scores[:, 4] = scores[:, 4, ::-1]
    assert Pooling.from_scores(scores).weights[4] == 0.0


def test_three_copies_weigh_less_than_three_models():
    scores, _ = scored(2, n=4000, models=4)
    copied = np.concatenate([scores, scores[:, :1], scores[:, :1]], axis=1)
    weights = Pooling.from_scores(copied).weights
    together = weights[[0, 4, 5]].sum()
    assert weights[1] < together < 2.0 * weights[1]  # a plain mean: three times


def test_weights_do_not_depend_on_how_sharp_a_model_is():
    scores, _ = scored(3, models=4)
    sharp = scores.copy()
    sharp[:, 1] = scores[:, 1] ** 2 / (scores[:, 1] ** 2).sum(axis=1, keepdims=True)
    each, known = centred_logs(scores), np.ones((400, 4), dtype=bool)
    np.testing.assert_allclose(
        agreement_weights(each, known), agreement_weights(centred_logs(sharp), known), atol=1e-9
    )


@pytest.mark.parametrize("models", [1, 2])
def test_one_or_two_models_weigh_the_same(models):
    scores, _ = scored(4, models=models)
    assert Pooling.from_scores(scores).weights.tolist() == nearly([1.0 / models] * models)


def test_rows_rest_on_the_models_that_answered():
    scores, _ = scored(5, models=4)
    scores[0, 1:] = np.nan
    scores[1] = np.nan
    evidence = Pooling.from_scores(scores).evidence(scores)
    np.testing.assert_allclose(evidence.pooled[0], centred_logs(scores[:1])[0, 0])
    assert evidence.pooled[1].tolist() == [0.0, 0.0]


def test_the_rank_binormal_sees_through_any_rising_distortion():
    scores, _ = scored(6)
    _, evidence, families = everything(scores)
    plain = families["binormal"]
    assert isinstance(plain, RankBinormal)
    odds = evidence.pooled[:, 1] - evidence.pooled[:, 0]
    bent = np.sign(odds) * np.abs(odds) ** 3
    twisted = type(evidence)(
        np.stack([-bent, bent], 1) / 2, evidence.each, evidence.present, evidence.votes, evidence.mean
    )
    other = RankBinormal(plain.prevalence, plain.separation, plain.spread, np.sort(bent))
    every = np.arange(plain.size)
    np.testing.assert_allclose(plain.logits(evidence, every), other.logits(twisted, every), atol=1e-9)


def test_the_rank_binormal_is_bayes_rule_where_its_assumptions_hold():
    """Evidence drawn from the two normals themselves: the posterior by hand, up to the noise of ranks."""
    rng = np.random.default_rng(7)
    truth = rng.random(20_000) < 0.3
    t = np.where(truth, 2.0 + 1.2 * rng.normal(size=20_000), rng.normal(size=20_000))
    by_hand = 0.3 * norm.pdf(t, 2.0, 1.2)
    by_hand /= by_hand + 0.7 * norm.pdf(t)
    family = RankBinormal(np.array([0.3]), np.array([2.0]), np.array([1.2]), np.sort(t))
    evidence = Pooling.from_scores(np.full((20_000, 1, 2), 0.5)).evidence(np.full((20_000, 1, 2), 0.5))
    evidence.pooled[:] = np.stack([-t, t], axis=1) / 2
    family = RankBinormal(family.prevalence, family.separation, family.spread, np.sort(t))
    central = (t > -1.0) & (t < 4.0)
    chance = softmax(family.logits(evidence, np.array([0])))[0, :, 1]
    np.testing.assert_allclose(chance[central], by_hand[central], atol=0.04)


@pytest.mark.parametrize("spread", [0.7, 1.4])
def test_the_rank_binormal_never_falls(spread):
    scores, _ = scored(8)
    _, evidence, _ = everything(scores)
    odds = evidence.pooled[:, 1] - evidence.pooled[:, 0]
    family = RankBinormal(np.array([0.4]), np.array([0.5]), np.array([spread]), np.sort(odds))
    chance = softmax(family.logits(evidence, np.array([0])))[0, np.argsort(odds), 1]
    assert (np.diff(chance) >= -1e-12).all()


@pytest.mark.parametrize("classes", [2, 3, 9])
def test_offsets_reach_the_shares_that_were_drawn(classes):
    """The mean posterior is within the claimed shares' prior, and every row is a distribution."""
    scores, _ = scored(9, classes=classes)
    pooling, evidence, families = everything(scores)
    family = families["softmax"]
    means = softmax(family.logits(evidence, np.arange(family.size))).mean(axis=1)
    np.testing.assert_allclose(means.sum(axis=1), 1.0)
    centre, _ = claimed_shares(scores, pooling.weights)
    claimed = np.exp(centre) / np.exp(centre).sum()
    np.testing.assert_allclose(np.median(means, axis=0), claimed, atol=0.02)


def test_likelihood_prefers_the_particle_that_made_the_labels():
    scores, _ = scored(10, n=3000)
    _, evidence, families = everything(scores)
    family = families["softmax"]
    assert isinstance(family, ScaledSoftmax)
    chosen = int(np.argmax(family.slope))
    chance = softmax(family.logits(evidence, np.array([chosen])))[0, :, 1]
    labels = (np.random.default_rng(0).random(3000) < chance).astype(int)
    logs = log_likelihoods(family, evidence, labels, np.ones(3000))
    assert family.slope[np.argmax(logs)] == pytest.approx(family.slope[chosen], rel=0.25)


@pytest.mark.parametrize("classes", [2, 3])
def test_mean_logits_are_those_of_the_particles_one_by_one(classes):
    scores, _ = scored(17, n=300, classes=classes)
    _, evidence, families = everything(scores)
    particles = np.array([3, 3, 40, 200])
    for family in (one for one in families.values() if one.size > 1):
        each = [np.log(softmax(family.logits(evidence, particles[[at]]))[0]) for at in range(4)]
        witness = np.mean(each, axis=0)
        witness -= witness.mean(axis=1, keepdims=True)
        np.testing.assert_allclose(family.mean_logits(evidence, particles), witness, atol=1e-12)


def test_rows_that_differ_by_their_last_bits_have_one_rank():
    """Their models say the same in another order, so sums of their logits differ by rounding."""
    scores, _ = scored(18, n=200)
    pooling, evidence, _ = everything(scores)
    apart = evidence.pooled * (1.0 + 1e-15 * np.arange(200) / 10)[:, None]
    twice = np.concatenate([evidence.pooled, apart])
    reach = Corrections.from_rows(evidence, twice, pooling.scales).reach
    assert len(np.unique(reach)) == len(np.unique(reach[::2])) == 200


def test_mid_ranks_of_the_reference_itself():
    values = np.array([3.0, 1.0, 1.0, 2.0])
    assert mid_ranks(np.sort(values), values).tolist() == [0.875, 0.25, 0.25, 0.625]


@pytest.mark.parametrize("classes", [2, 3])
def test_wide_corrections_rectify_the_right_answers_of_every_model(classes):
    """The docstring of `Corrections` says so: without a prior, fitted right answers equal those observed."""
    scores, truth = scored(11, n=2000, classes=classes)
    pooling, evidence, _ = everything(scores)
    wrong = 0.3 * evidence.pooled  # logits that are far too flat
    corrections = Corrections.from_rows(evidence, wrong, pooling.scales)
    features = corrections.features(evidence, wrong)
    rows = CorrectionRows(features, truth, np.ones(2000))
    logits = wrong + features @ _mode_of(rows, wrong, features.shape[2])
    chance = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    for model in range(4):
        votes = scores[:, model].argmax(axis=1)
        fitted = chance[np.arange(2000), votes].mean()
        assert fitted == pytest.approx((votes == truth).mean(), abs=1e-4)
    mode = Adjustment.fit(rows, wrong, np.full(features.shape[2], 25.0), WEIGHTS).modes[-1].coefficients
    np.testing.assert_allclose(
        features @ mode, features @ _mode_of(rows, wrong, features.shape[2]), atol=5e-3
    )


def _mode_of(rows, logits, size):
    """Newton's method with the exact Hessian, a loop that shares nothing with the code's own."""
    mode, precision = np.zeros(size), np.full(size, 1e-4)
    for _ in range(30):
        gradient, chance = rows.gradient(logits, mode, precision)
        mode = mode + np.linalg.lstsq(rows.curvature(chance, precision), gradient, rcond=None)[0]
    return mode


def test_without_labels_corrections_are_drawn_from_their_prior():
    """4,000 draws of each factor; spreads within 7 %, and draws in pairs, so that means are exactly 0."""
    scores, _ = scored(12)
    pooling, evidence, _ = everything(scores)
    scales = Corrections.from_rows(evidence, evidence.pooled, pooling.scales).prior_scales
    rows = CorrectionRows(np.empty((0, 2, len(scales))), np.empty(0, dtype=int), np.empty(0))
    adjustment = Adjustment.fit(rows, np.empty((0, 2)), scales, WEIGHTS)
    np.testing.assert_allclose(np.exp(adjustment.log_weights), WEIGHTS, atol=1e-12)
    for place, factor in enumerate(FACTORS):
        corrections = adjustment.draw(np.full(4000, place), np.empty((4000, 0, 2)), np.random.default_rng(0))
        np.testing.assert_allclose(corrections.std(axis=0), factor * scales, rtol=0.07)
        np.testing.assert_allclose(corrections.mean(axis=0), 0.0, atol=1e-12)


def test_labels_that_contradict_ask_for_corrections_and_others_for_none():
    """2,000 rows whose logits are half or exactly as large as they should be."""
    scores, truth = scored(15, n=2000, models=1)
    pooling, evidence, _ = everything(scores)
    right = np.log(scores[:, 0]) - np.log(scores[:, 0]).mean(axis=1, keepdims=True)
    weight = {}
    for scale in (1.5, 0.5):  # 1.5: the log odds of this simulation
        logits = scale * right
        corrections = Corrections.from_rows(evidence, logits, pooling.scales)
        rows = CorrectionRows(corrections.features(evidence, logits), truth, np.ones(2000))
        logs = Adjustment.fit(rows, logits, corrections.prior_scales, WEIGHTS).log_weights
        weight[scale] = np.exp(logs - logs.max())[0] / np.exp(logs - logs.max()).sum()
    assert weight[1.5] > 0.6
    assert weight[0.5] < 1e-6


def weights_of(scores, truth, labelled):
    """Posterior weights of the hypotheses with the first rows labelled."""
    pooling = Pooling.from_scores(scores)
    evidence, rows = pooling.evidence(scores), np.arange(labelled)
    known = pooling.evidence(scores[rows])
    seen = MixtureData(evidence, known, truth[rows], np.ones(labelled), pooling.scales)
    differ = disagreement(evidence.votes, evidence.present)
    families = hypotheses(evidence, scores, pooling.weights, differ)
    return PosteriorMixture.fit(families, seen, 100, np.random.default_rng(0))


def calibrated(seed, n=3000, models=1, power=1.0):
    """Models whose scores are exact given their own evidence, with noise half shared, raised to a power."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 2, n)
    noise = np.sqrt(0.5) * (rng.normal(size=(n, 1)) + rng.normal(size=(n, models)))
    odds = 2.0 * (2 * truth[:, None] - 1 + noise)  # N(±1, 1): log-odds are twice the value
    positive = 1.0 / (1.0 + np.exp(-power * odds))
    return np.stack([1.0 - positive, positive], axis=2), truth


@pytest.mark.slow
def test_a_calibrated_model_keeps_its_word_and_an_overconfident_one_loses_it():
    """Ten samples of 50 labels each: the median weight of the claim to be right as it is."""
    right = [weights_of(*calibrated(seed, 1000), 50).shares["mean"] for seed in range(10)]
    wrong = [weights_of(*calibrated(seed, 1000, power=4.0), 50).shares["mean"] for seed in range(10)]
    assert np.median(right) > 0.5
    assert np.median(wrong) < 0.01


def test_models_that_are_each_calibrated_are_told_from_their_mean():
    """400 labels: the mean of five calibrated models is underconfident, what they say together is not."""
    shares = weights_of(*calibrated(3, models=5), 400).shares
    assert shares["each"] > 0.9
    assert shares["mean"] < 1e-3
    assert sum(shares.values()) == pytest.approx(1.0)


def test_the_claimed_slope_makes_confidences_come_true():
    """For one model the claim is the model itself: a scale of 1; for five that half agree it is above."""
    for models, power in ((1, 1.0), (1, 0.5), (5, 1.0)):
        scores, _ = calibrated(4, models=models, power=power)
        pooling = Pooling.from_scores(scores)
        evidence = pooling.evidence(scores)
        slope = claimed_slope(evidence, scores, pooling.weights)
        if models == 1:
            assert slope == pytest.approx(1.0, abs=0.03)
        else:
            chance = 1.0 / (1.0 + np.exp(-slope * (evidence.pooled[:, 1] - evidence.pooled[:, 0])))
            right = np.where(scores.argmax(axis=2) == 1, chance[:, None], 1.0 - chance[:, None]).mean(axis=0)
            assert slope > 1.1
            assert right.mean() == pytest.approx(scores.max(axis=2).mean(), abs=0.01)


def test_models_that_disagree_about_the_shares_are_not_all_calibrated():
    scores, _ = calibrated(5, models=4)
    assert shares_agree(scores) > 2.5
    odds = np.log(scores[:, :, 1] / scores[:, :, 0]) + np.array([-1.0, -0.3, 0.3, 1.0])
    moved = np.stack([1.0 / (1.0 + np.exp(odds)), 1.0 / (1.0 + np.exp(-odds))], axis=2)
    assert shares_agree(moved) < 0.01
    assert shares_agree(moved[:, ::-1]) == pytest.approx(shares_agree(moved))


def test_disagreement_counts_the_pairs_that_answered():
    """Three models on four rows, written out: pairs differ on 2 of 4, 1 of 3 and 2 of 3 of their rows."""
    positive = np.array([[0.9, 0.8, 0.7], [0.9, 0.1, np.nan], [0.2, 0.6, 0.3], [0.4, 0.3, 0.9]])
    scores = np.stack([1.0 - positive, positive], axis=2)
    evidence = Pooling.from_scores(scores).evidence(scores)
    votes, present = evidence.votes, evidence.present
    assert disagreement(votes, present) == pytest.approx((2 / 4 + 1 / 3 + 2 / 3) / 3)
    claimed = [0.1 + 0.1 + 0.2 + 0.4, 0.2 + 0.1 + 0.4 + 0.3, (0.3 + 0.3 + 0.1) * 4 / 3]
    assert claimed_error_ratio(scores, disagreement(votes, present)) == pytest.approx(sum(claimed) / 12 / 0.5)
    assert disagreement(votes[:, :1], present[:, :1]) == 0.0


def test_claims_that_cannot_be_cost_the_mean_its_weight():
    """Five calibrated models, and the same sharpened: these claim less than half of their disagreement."""
    weight = {}
    for power in (1.0, 5.0):
        scores, truth = calibrated(7, models=5, power=power)
        weight[power] = weights_of(scores, truth, 0).shares
        ratio = claimed_error_ratio(
            scores, disagreement(scores.argmax(axis=2), np.ones((3000, 5), dtype=bool))
        )
        assert (ratio < 0.5) == (power == 5.0)
    assert weight[5.0]["mean"] < 0.3 * weight[1.0]["mean"]
    free = {power: one["binormal"] + one["softmax"] for power, one in weight.items()}
    assert free[5.0] > 10.0 * free[1.0]


def test_draws_are_as_many_as_asked_and_fall_to_the_weights():
    scores, truth = calibrated(6, models=3)
    mixture = weights_of(scores, truth, 100)
    assert sum(len(part.particles) for part in mixture.parts) == 100
    for part in mixture.parts:
        assert len(part.particles) == pytest.approx(100 * mixture.shares[part.family.name], abs=1.0)
    assert systematic(np.array([0.25, 0.75]), 8, 0.5).tolist() == [0, 0, 1, 1, 1, 1, 1, 1]


def test_corrections_have_one_scale_for_each_feature():
    for models, classes in ((1, 2), (4, 2), (1, 3), (4, 9)):
        scores, _ = scored(13, models=models, classes=classes)
        pooling, evidence, _ = everything(scores)
        corrections = Corrections.from_rows(evidence, evidence.pooled, pooling.scales)
        features = corrections.features(evidence, evidence.pooled)
        assert features.shape == (400, classes, len(corrections.prior_scales))
        np.testing.assert_allclose(features.sum(axis=1), 0.0, atol=1e-9)
        assert set(corrections.prior_scales) <= set(SCALES.values())


def test_the_gradient_and_curvature_are_those_of_the_log_posterior():
    """Against finite differences of the log posterior, written out here."""
    rng = np.random.default_rng(14)
    features, labels = rng.normal(size=(30, 3, 4)), rng.integers(0, 3, 30)
    weights, logits, precision = rng.uniform(0.5, 2.0, 30), rng.normal(size=(30, 3)), np.full(4, 2.0)
    rows = CorrectionRows(features, labels, weights)

    def log_posterior(at):
        values = logits + features @ at
        fitted = values[np.arange(30), labels] - np.log(np.exp(values).sum(axis=1))
        return weights @ fitted - 0.5 * precision @ at**2

    at, step = rng.normal(size=4), 1e-5 * np.eye(4)
    gradient, chance = rows.gradient(logits, at, precision)
    by_hand = [(log_posterior(at + e) - log_posterior(at - e)) / 2e-5 for e in step]
    np.testing.assert_allclose(gradient, by_hand, rtol=1e-5)
    slopes = [(rows.gradient(logits, at + e, precision)[0] - gradient) / 1e-5 for e in step]
    np.testing.assert_allclose(rows.curvature(chance, precision), -np.array(slopes), rtol=1e-3, atol=1e-3)

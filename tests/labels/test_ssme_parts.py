"""The parts of SSME: pooled evidence, families of curves, corrections."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from monitor.labels.estimators.ssme_adjust import SCALES, Corrections, LabelledRows, draw_coefficients
from monitor.labels.estimators.ssme_evidence import Pooling, agreement_weights, centred_logs
from monitor.labels.estimators.ssme_families import (
    RankBinormal,
    ScaledSoftmax,
    claimed_shares,
    families,
    log_likelihoods,
    mid_ranks,
)


def scored(seed, n=400, models=4, classes=2):
    rng = np.random.default_rng(seed)
    truth = rng.choice(classes, n)
    logits = 1.5 * np.eye(classes)[truth][:, None] + rng.normal(size=(n, models, classes))
    scores = np.exp(logits)
    return scores / scores.sum(axis=2, keepdims=True), truth


def everything(scores):
    pooling = Pooling.of(scores)
    evidence = pooling.evidence(scores)
    return pooling, evidence, families(evidence, scores, pooling.weights)


def test_a_model_at_random_has_no_voice():
    scores, _ = scored(0, n=2000, models=5)
    scores[:, 2] = np.random.default_rng(1).permutation(scores[:, 2])
    weights = Pooling.of(scores).weights
    assert weights[2] == 0.0
    np.testing.assert_allclose(np.delete(weights, 2), 0.25, atol=0.03)


def test_an_inverted_model_has_no_voice():
    scores, _ = scored(0, n=2000, models=5)
    scores[:, 4] = scores[:, 4, ::-1]
    assert Pooling.of(scores).weights[4] == 0.0


def test_three_copies_weigh_less_than_three_models():
    scores, _ = scored(2, n=4000, models=4)
    copied = np.concatenate([scores, scores[:, :1], scores[:, :1]], axis=1)
    weights = Pooling.of(copied).weights
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
    assert Pooling.of(scores).weights.tolist() == [1.0 / models] * models


def test_rows_rest_on_the_models_that_answered():
    scores, _ = scored(5, models=4)
    scores[0, 1:] = np.nan
    scores[1] = np.nan
    evidence = Pooling.of(scores).evidence(scores)
    np.testing.assert_allclose(evidence.pooled[0], centred_logs(scores[:1])[0, 0])
    assert evidence.pooled[1].tolist() == [0.0, 0.0]


def test_the_rank_binormal_sees_through_any_rising_distortion():
    scores, _ = scored(6)
    _, evidence, found = everything(scores)
    plain = found[0]
    assert isinstance(plain, RankBinormal)
    odds = evidence.pooled[:, 1] - evidence.pooled[:, 0]
    bent = np.sign(odds) * np.abs(odds) ** 3
    twisted = type(evidence)(
        np.stack([-bent, bent], 1) / 2, evidence.each, evidence.present, evidence.votes, evidence.mean
    )
    other = RankBinormal(plain.prevalence, plain.separation, plain.spread, np.sort(bent), 1.0)
    np.testing.assert_allclose(plain.logits(evidence, 7), other.logits(twisted, 7), atol=1e-9)


def test_the_rank_binormal_is_bayes_rule_where_its_assumptions_hold():
    """Evidence drawn from the two normals themselves: the posterior by hand, up to the noise of ranks."""
    rng = np.random.default_rng(7)
    truth = rng.random(20_000) < 0.3
    t = np.where(truth, 2.0 + 1.2 * rng.normal(size=20_000), rng.normal(size=20_000))
    by_hand = 0.3 * norm.pdf(t, 2.0, 1.2)
    by_hand /= by_hand + 0.7 * norm.pdf(t)
    family = RankBinormal(np.array([0.3]), np.array([2.0]), np.array([1.2]), np.sort(t), 1.0)
    evidence = Pooling.of(np.full((20_000, 1, 2), 0.5)).evidence(np.full((20_000, 1, 2), 0.5))
    evidence.pooled[:] = np.stack([-t, t], axis=1) / 2
    family = RankBinormal(family.prevalence, family.separation, family.spread, np.sort(t), 1.0)
    central = (t > -1.0) & (t < 4.0)
    np.testing.assert_allclose(np.exp(family.logits(evidence, 0))[central, 1], by_hand[central], atol=0.04)


@pytest.mark.parametrize("spread", [0.7, 1.4])
def test_the_rank_binormal_never_falls(spread):
    scores, _ = scored(8)
    _, evidence, _ = everything(scores)
    odds = evidence.pooled[:, 1] - evidence.pooled[:, 0]
    family = RankBinormal(np.array([0.4]), np.array([0.5]), np.array([spread]), np.sort(odds), 1.0)
    chance = family.logits(evidence, 0)[np.argsort(odds), 1]
    assert (np.diff(chance) >= -1e-12).all()


@pytest.mark.parametrize("classes", [2, 3, 9])
def test_offsets_reach_the_shares_that_were_drawn(classes):
    """The mean posterior is within the claimed shares' prior, and every row is a distribution."""
    scores, _ = scored(9, classes=classes)
    pooling, evidence, found = everything(scores)
    softmax = next(f for f in found if isinstance(f, ScaledSoftmax) and not f.of_mean)
    means = np.array([np.exp(softmax.logits(evidence, j)).mean(axis=0) for j in range(softmax.size)])
    np.testing.assert_allclose(means.sum(axis=1), 1.0)
    centre, _ = claimed_shares(scores, pooling.weights)
    claimed = np.exp(centre) / np.exp(centre).sum()
    np.testing.assert_allclose(np.median(means, axis=0), claimed, atol=0.02)


def test_likelihood_prefers_the_particle_that_made_the_labels():
    scores, _ = scored(10, n=3000)
    _, evidence, found = everything(scores)
    softmax = found[1]
    chosen = int(np.argmax(softmax.slope))
    chance = np.exp(softmax.logits(evidence, chosen))[:, 1]
    labels = (np.random.default_rng(0).random(3000) < chance).astype(int)
    logs = log_likelihoods(softmax, evidence, labels, np.ones(3000))
    assert softmax.slope[np.argmax(logs)] == pytest.approx(softmax.slope[chosen], rel=0.25)


def test_mid_ranks_of_the_reference_itself():
    values = np.array([3.0, 1.0, 1.0, 2.0])
    assert mid_ranks(np.sort(values), values).tolist() == [0.875, 0.25, 0.25, 0.625]


@pytest.mark.parametrize("classes", [2, 3])
def test_wide_corrections_rectify_the_right_answers_of_every_model(classes):
    """What `Corrections` claims: without a prior, fitted right answers equal those observed."""
    scores, truth = scored(11, n=2000, classes=classes)
    pooling, evidence, _ = everything(scores)
    wrong = 0.3 * evidence.pooled  # logits that are far too flat
    corrections = Corrections.of(evidence, wrong, pooling.scales)
    features = corrections.features(evidence, wrong)
    rows = LabelledRows(features, truth, np.ones(2000))
    drawn = draw_coefficients(rows, wrong[None], np.full(features.shape[2], 1e3), np.random.default_rng(0))
    logits = wrong + features @ _mode_of(rows, wrong, features.shape[2])
    chance = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    for model in range(4):
        votes = scores[:, model].argmax(axis=1)
        fitted = chance[np.arange(2000), votes].mean()
        assert fitted == pytest.approx((votes == truth).mean(), abs=1e-4)
    assert drawn.shape == (1, features.shape[2])


def _mode_of(rows, logits, size):
    """Newton's method with the exact Hessian, a loop that shares nothing with the code's own."""
    found, precision = np.zeros(size), np.full(size, 1e-4)
    for _ in range(30):
        gradient, chance = rows.gradient(logits, found, precision)
        found = found + np.linalg.lstsq(rows.curvature(chance, precision), gradient, rcond=None)[0]
    return found


def test_without_labels_corrections_are_drawn_from_their_prior():
    """4,000 draws; the spread of each coefficient within 5 %: the four factors' root mean square."""
    scores, _ = scored(12)
    pooling, evidence, _ = everything(scores)
    corrections = Corrections.of(evidence, evidence.pooled, pooling.scales)
    width = len(corrections.prior_scales)
    rows = LabelledRows(np.empty((0, 2, width)), np.empty(0, dtype=int), np.empty(0))
    drawn = draw_coefficients(
        rows, np.empty((4000, 0, 2)), corrections.prior_scales, np.random.default_rng(0)
    )
    expected = corrections.prior_scales * np.sqrt(np.mean(np.square([0.5, 1.0, 2.0, 4.0])))
    np.testing.assert_allclose(drawn.std(axis=0), expected, rtol=0.07)
    np.testing.assert_allclose(drawn.mean(axis=0), 0.0, atol=0.06 * expected.max())


def test_corrections_have_one_scale_for_each_feature():
    for models, classes in ((1, 2), (4, 2), (1, 3), (4, 9)):
        scores, _ = scored(13, models=models, classes=classes)
        pooling, evidence, _ = everything(scores)
        corrections = Corrections.of(evidence, evidence.pooled, pooling.scales)
        features = corrections.features(evidence, evidence.pooled)
        assert features.shape == (400, classes, len(corrections.prior_scales))
        np.testing.assert_allclose(features.sum(axis=1), 0.0, atol=1e-9)
        assert set(corrections.prior_scales) <= set(SCALES.values())


def test_the_gradient_and_curvature_are_those_of_the_log_posterior():
    """Against finite differences of the log posterior, written out here."""
    rng = np.random.default_rng(14)
    features, labels = rng.normal(size=(30, 3, 4)), rng.integers(0, 3, 30)
    weights, logits, precision = rng.uniform(0.5, 2.0, 30), rng.normal(size=(30, 3)), np.full(4, 2.0)
    rows = LabelledRows(features, labels, weights)

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

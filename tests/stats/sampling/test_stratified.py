"""The stratified sample of a pool: its shares, what it keeps, and what it costs an interval."""

from __future__ import annotations

import numpy as np
import pytest

from monitor.base.records import mix
from monitor.stats.sampling.stratified import DECILES, sample, sampling_variance, strata, widening
from tests.fidelity.simulated import ORIGINAL, confidences


def pool(n: int, seed: int = 0, models: int = 3) -> np.ndarray:
    """Return (n, models, 2) scores; a tenth of the answers missing, but for the first model's."""
    rng = np.random.default_rng(seed)
    score = np.stack([confidences(rng, ORIGINAL, (n,)) for _ in range(models)], axis=1)
    scores = np.stack([1 - score, score], axis=2).astype(np.float32)
    scores[:, 1:][rng.random((n, models - 1)) < 0.1] = np.nan
    return scores


def keys(n: int) -> np.ndarray:
    return mix(np.arange(1, n + 1).astype(np.uint64))


def test_a_stratum_is_a_class_and_a_tenth_of_its_rows_by_their_mean_score():
    scores, labelled = pool(2000), np.arange(2000) < 100
    numbers = strata(scores, labelled)
    mean = np.nanmean(scores.astype(float), axis=1)
    top, confidence = mean.argmax(axis=1), mean.max(axis=1)
    for k in range(2):
        known = np.sort(confidence[(top == k) & ~labelled])
        edges = [known[tenth * len(known) // DECILES] for tenth in range(1, DECILES)]
        for row in np.flatnonzero(top == k)[:300]:
            assert numbers[row] == k * DECILES + sum(edge <= confidence[row] for edge in edges)


def test_labelled_rows_stay_and_all_together_have_the_pools_shares():
    """Labels only where models are unsure: with the others drawn alike these would count for too much."""
    scores = pool(20_000)
    mean = np.nanmean(scores.astype(float), axis=1)
    labelled = (mean.max(axis=1) < 0.8) & (np.arange(20_000) % 5 == 0)
    stratum = strata(scores, labelled)
    sampled = sample(stratum, labelled, keys(20_000), 4000, unlabelled=int((~labelled).sum()))
    assert np.isin(np.flatnonzero(labelled), sampled).all()
    assert len(sampled) == 4000 + labelled.sum()
    shares = np.bincount(stratum[sampled], minlength=20) / len(sampled)
    wanted = np.bincount(stratum, minlength=20) / 20_000
    assert np.abs(shares - wanted).max() < 1.5 / len(sampled), (
        "whole rows, and no stratum has too many labels"
    )
    assert mean[sampled, 1].mean() == pytest.approx(mean[:, 1].mean(), abs=0.003)
    alike = np.flatnonzero(labelled | (np.arange(20_000) % 5 == 1))
    assert abs(mean[alike].max(axis=1).mean() - mean.max(axis=1).mean()) > 0.005


def test_a_stratum_with_more_labels_than_its_share_gets_no_more():
    stratum = np.repeat([0, 1], [500, 9500])
    labelled = np.zeros(10_000, dtype=bool)
    labelled[:400] = True
    sampled = sample(stratum, labelled, keys(10_000), 1000, unlabelled=9600)
    assert np.bincount(stratum[sampled]).tolist() == [400, 1000]


def test_which_rows_are_taken_hangs_on_their_keys_and_not_on_their_order():
    scores, key = pool(3000), keys(3000)
    labelled = np.arange(3000) % 50 == 0
    order = np.random.default_rng(1).permutation(3000)
    one = sample(strata(scores, labelled), labelled, key, 300, unlabelled=2940)
    other = sample(strata(scores[order], labelled[order]), labelled[order], key[order], 300, unlabelled=2940)
    assert np.array_equal(np.sort(key[one]), np.sort(key[order][other]))


@pytest.mark.parametrize("many", [2940, 5000])
def test_what_fits_is_taken_whole(many):
    labelled = np.arange(3000) % 50 == 0
    assert len(sample(strata(pool(3000), labelled), labelled, keys(3000), many, 2940)) == 3000


@pytest.mark.parametrize("many", [1, 7, 100, 999])
def test_there_are_as_many_as_asked_for_whatever_the_strata(many):
    rng = np.random.default_rng(many)
    stratum = rng.integers(0, 40, 1000) ** 2 // 40
    labelled = rng.random(1000) < 0.3
    wanted = min(many, int((~labelled).sum()))
    sampled = sample(stratum, labelled, keys(1000), many, unlabelled=100_000)
    assert len(sampled) == wanted + labelled.sum()
    assert len(np.unique(sampled)) == len(sampled)


@pytest.mark.slow
def test_the_variance_told_is_that_of_samples_drawn_again_and_again():
    """400 samples of one pool: a variance of them is known to within 7 %, and three such are allowed."""
    rng = np.random.default_rng(5)
    scores, labelled = pool(6000), np.arange(6000) % 60 == 0
    chance = np.clip(np.nanmean(scores.astype(float), axis=1).max(axis=1) + rng.normal(0, 0.1, 6000), 0, 1)
    stratum = strata(scores, labelled)
    means, variances, drawn_evenly = [], [], []
    for number in range(400):
        key = mix(np.arange(6000, dtype=np.uint64) + np.uint64(1 + 6000 * number))
        rows = sample(stratum, labelled, key, 500, unlabelled=5900)
        means.append(chance[rows].mean())
        own = strata(scores[rows], labelled[rows])
        variances.append(sampling_variance(own, labelled[rows], chance[rows], 6000))
        drawn_evenly.append(chance[rows].var() / 500 * (1 - 500 / 6000))
    assert np.mean(variances) == pytest.approx(np.var(means), rel=0.21)
    assert np.mean(drawn_evenly) > 1.5 * np.var(means), "what strata save"


def test_what_is_taken_whole_or_is_labelled_brings_no_variance():
    chance, stratum = np.random.default_rng(2).random(100), np.arange(100) % 5
    none, all_of_them = np.zeros(100, dtype=bool), np.ones(100, dtype=bool)
    assert sampling_variance(stratum, none, chance, 100) == 0.0
    assert sampling_variance(stratum, all_of_them, chance, 10_000) == 0.0
    assert sampling_variance(stratum, none, np.repeat(0.7, 100), 10_000) == pytest.approx(0.0, abs=1e-30)
    alone = sampling_variance(np.arange(100), none, chance, 10**9)
    assert alone == pytest.approx(chance.var() / 100, rel=1e-6), "one row tells of no spread"


def test_an_interval_is_wider_by_what_the_missing_rows_would_have_told():
    """The mean is of rows alone, not in strata: on the whole pool its variance is rows / pool of it."""
    chance = np.random.default_rng(2).random(4000)
    half = 1.96 * chance.std() / np.sqrt(4000)
    evenly = chance.var() / 4000 * (1 - 4000 / 64_000)
    assert widening(evenly, 4000, 64_000, chance, half, 1.96) == pytest.approx(3.0, rel=1e-6), "four times"
    assert widening(evenly / 4, 4000, 64_000, chance, half, 1.96) == pytest.approx(4.75**0.5 - 1, rel=1e-6)
    assert widening(0.0, 4000, 4000, chance, half, 1.96) == 0.0
    labels_leave_open = [widening(evenly, 4000, 64_000, chance, times * half, 1.96) for times in (1, 2, 4)]
    assert labels_leave_open == sorted(labels_leave_open, reverse=True)
    assert labels_leave_open[-1] < 0.035
    assert widening(0.1, 100, 1000, np.ones(100), 0.0, 1.96) == 0.0

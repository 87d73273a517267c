"""The predictive interval: its parts against slow witnesses, laws, short references, and what it covers."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from monitor import CALIBRATORS
from monitor.base.results import Unknown
from monitor.stats.calibration.base import cross_fit_in_time
from monitor.stats.estimate.average_confidence import average_confidence
from monitor.stats.estimate.poisson_binomial import PoissonBinomial, TrimmedPmf
from monitor.stats.estimate.predictive import (
    Predictive,
    predictive_interval,
    predictive_windows,
)
from monitor.stats.estimate.predictive_fit import fit_predictive, two_folds_vary
from monitor.stats.estimate.variance_components import Components, remembered, variance_components
from monitor.stats.estimate.widening import mid_p_interval, widened
from tests.fidelity.predictive import ornstein_uhlenbeck
from tests.fidelity.simulated import ORIGINAL, confidences
from tests.nearly import nearly
from tests.plain_state import through_msgpack

SHARP = Predictive((np.zeros(0),), np.zeros((1, 1)), None)
ISOTONIC = CALIBRATORS["isotonic"]()


def whole(p):
    return TrimmedPmf(offset=0, mass=PoissonBinomial(p).pmf, n=len(p))


def fitted(n, seed=1, **more):
    rng = np.random.default_rng(seed)
    chance = confidences(rng, ORIGINAL, (n,))
    wrong = (rng.random(n) >= chance).astype(np.int64)
    return fit_predictive(ISOTONIC, chance[:, None], np.zeros(n, dtype=np.int64), wrong, **more)


@pytest.mark.parametrize("variance", [0.5, 4.0, 100.0])
def test_the_widened_distribution_is_the_sum_with_a_normal_put_on_whole_counts(variance):
    p = np.random.default_rng(2).random(60)
    pmf, counts = PoissonBinomial(p).pmf, np.arange(61)
    slow = np.zeros(61)
    for k, mass in enumerate(pmf):  # density at whole counts; what lies outside goes to the nearer end
        reach = np.arange(-200, 261)
        kernel = norm.pdf(reach, k, np.sqrt(variance))
        slow += mass * np.bincount(np.clip(reach, 0, 60), kernel / kernel.sum(), minlength=61)
    distribution = widened(whole(p), variance)
    fast = np.zeros(61)
    fast[distribution.offset : distribution.offset + len(distribution.mass)] = distribution.mass
    # At half a count the sampled density and its transform differ in the third digit, later in none.
    assert np.allclose(fast, slow, atol=2e-3 if variance < 1 else 1e-8)
    assert counts @ fast == pytest.approx(p.sum(), abs=0.05)


def test_no_variance_changes_nothing_and_mass_never_leaves_the_counts():
    one = whole(np.full(20, 0.95))
    assert widened(one, 0.0) is one
    wide = widened(one, 1e4)
    assert (wide.offset, len(wide.mass), round(float(wide.mass.sum()), 12)) == (0, 21, 1.0)
    assert wide.mass.min() >= 0


def test_mid_p_limits_cover_about_their_level_where_exact_ones_cover_more():
    """Exactly summed over 200 windows of 100 rows."""
    rng, mids, exacts = np.random.default_rng(3), [], []
    for _ in range(200):
        pmf = whole(confidences(rng, ORIGINAL, (100,)))
        for kept, (low, high) in ((mids, mid_p_interval(pmf, 0.95)), (exacts, pmf.interval(0.95))):
            kept.append(pmf.mass[low : high + 1].sum())
    assert np.mean(mids) == pytest.approx(0.95, abs=0.006)
    assert np.mean(exacts) > 0.96


def test_without_extra_variance_it_lies_inside_the_exact_interval():
    confidence = confidences(np.random.default_rng(4), ORIGINAL, (300,))
    exact, mid = average_confidence(confidence), predictive_interval(confidence, SHARP)
    assert exact.lower <= mid.lower <= mid.value <= mid.upper <= exact.upper


def test_it_widens_with_level_and_components_and_stays_within_zero_and_one():
    confidence = confidences(np.random.default_rng(5), ORIGINAL, (200,))
    widths = []
    for variance in (0.0, 0.05, 0.5, 50.0):
        model = Predictive((np.zeros(0),), np.zeros((1, 1)), Components(0.0, ((1000.0, variance),), 10_000))
        intervals = [predictive_interval(confidence, model, level) for level in (0.8, 0.95)]
        assert intervals[0].upper - intervals[0].lower <= intervals[1].upper - intervals[1].lower
        assert all(0 <= each.lower <= each.value <= each.upper <= 1 for each in intervals)
        widths.append(intervals[1].upper - intervals[1].lower)
    assert widths == sorted(widths)
    assert widths[0] < widths[2]


def test_many_windows_of_any_sizes_are_each_as_if_alone_and_order_is_no_matter():
    model, rng = fitted(800), np.random.default_rng(6)
    windows = [confidences(rng, ORIGINAL, (n,)) for n in (100, 0, 37, 100, 1)]
    together = [interval for interval, _ in predictive_windows(windows, model)]
    assert together == [nearly(predictive_interval(one, model)) for one in windows]
    assert isinstance(together[1], Unknown)
    turned = predictive_interval(windows[0][::-1].copy(), model)
    assert (turned.lower, turned.upper) == (together[0].lower, together[0].upper)


@pytest.mark.parametrize("wrong", [np.array([0.5, 1.5]), np.array([np.nan])])
def test_confidences_that_are_none_are_refused(wrong):
    with pytest.raises(ValueError, match=r"confidences\[0\]"):
        predictive_windows([wrong], SHARP)


class TestFit:
    def test_seeded_runs_are_equal_and_the_snapshot_gives_the_same_interval(self):
        a, b = fitted(1500, seed=9), fitted(1500, seed=9)
        window = confidences(np.random.default_rng(7), ORIGINAL, (400,))
        again = through_msgpack(a)
        assert a.variance(window) == b.variance(window) == again.variance(window)

    def test_the_calibrations_variance_is_what_refits_on_other_references_show(self):
        """60 references of 1,000; the variance of a variance is 2/59 of its square: 18 %, and some more."""
        window = confidences(np.random.default_rng(8), ORIGINAL, (20_000,))
        means, variances = [], []
        for seed in range(60):
            rng = np.random.default_rng([seed, 11])
            chance = confidences(rng, ORIGINAL, (1000,))
            wrong = (rng.random(1000) >= chance).astype(np.int64)
            zeros = np.zeros(1000, dtype=np.int64)
            calibrated = ISOTONIC.fit(chance[:, None], zeros, wrong).apply(window[:, None])[:, 0]
            means.append(calibrated.mean())
            if seed < 6:
                model = fit_predictive(ISOTONIC, chance[:, None], zeros, wrong)
                variances.append(Predictive(model.edges, model.directions, None).variance(calibrated))
        assert np.mean(variances) == pytest.approx(np.var(means), rel=0.5)

    def test_a_reference_too_short_to_be_folded_has_no_components_and_still_a_calibration_error(self):
        model = fitted(150)
        assert model.components is None
        assert model.variance(np.full(100, 0.9)) > 0
        assert fitted(200).components is not None

    def test_drift_inside_the_reference_is_found_and_a_stable_one_has_little(self):
        rng, n = np.random.default_rng(12), 20_000
        chance = confidences(rng, ORIGINAL, (n,)).clip(1e-6, 1 - 1e-6)
        logit = np.log(chance / (1 - chance))
        variances = []
        for bias in (np.zeros(n), ornstein_uhlenbeck(rng, n, 2000.0, 0.3)):
            wrong = (rng.random(n) >= 1 / (1 + np.exp(-logit - bias))).astype(np.int64)
            zeros = np.zeros(n, dtype=np.int64)
            folded = {k: cross_fit_in_time(ISOTONIC, chance[:, None], zeros, wrong, k)[:, 0] for k in (2, 8)}
            variances.append(variance_components(folded, wrong == 0).of_bias(500, 500 * 0.04))
        stable, drifting = variances
        assert stable < 0.02
        assert 0.04 < drifting < 0.25  # 0.3² is 0.09, of which 500 rows keep nine tenths

    def test_no_block_at_all_is_none(self):
        assert variance_components({2: np.full(40, 0.9)}, np.ones(40, dtype=bool)) is None

    def test_each_row_stands_in_the_bin_of_its_stratums_edges_counted_through_all_strata(self):
        edges = (np.array([0.25, 0.5]), np.zeros(0), np.array([0.5, 0.75, 1.0]))
        model = Predictive(edges, np.arange(16.0).reshape(2, 8), None, strata=np.array([2, 0, 1]))
        rng = np.random.default_rng(6)
        confidence, predicted = rng.integers(0, 9, 300) / 8, rng.integers(0, 4, 300)  # 3 counts as 2
        placement, first = model.place(confidence, predicted), (0, 3, 4)
        slow = [
            first[k] + sum(edge <= c for edge in edges[k])
            for c, k in zip(confidence, [(2, 0, 1, 1)[p] for p in predicted], strict=True)
        ]
        assert placement.bins.tolist() == slow
        shares = np.bincount(slow, minlength=8) / 300
        np.testing.assert_allclose(model.exposure(placement).along, model.directions @ shares)

    def test_weights_give_any_sum_of_rows(self):
        model, window = fitted(1000), confidences(np.random.default_rng(13), ORIGINAL, (300,))
        plain = model.variance(window)
        assert model.variance(window, np.full(300, 1 / 300)) == pytest.approx(plain)
        assert model.variance(window, np.full(300, 2 / 300)) == pytest.approx(4 * plain)
        assert model.variance(window[:0]) == 0.0


def test_what_is_remembered_falls_with_length_and_has_no_gap_where_the_formula_changes():
    shares = [remembered(n, 1000.0) for n in (0.01, 0.0999, 0.1001, 1, 100, 10_000)]
    assert shares == sorted(shares, reverse=True)
    assert shares[1] == pytest.approx(shares[2], abs=1e-6)
    # The mean of exp(-|i - j| / 50) over all pairs of 200 rows.
    places = np.arange(200)
    slow = np.exp(-np.abs(places[:, None] - places) / 50).mean()
    assert remembered(200, 50) == pytest.approx(slow, rel=0.01)


def test_certain_answers_and_single_rows_give_an_interval():
    model = fitted(600)
    for confidence in (np.ones(50), np.zeros(50), np.array([0.7])):
        estimate = predictive_interval(confidence, model)
        assert 0 <= estimate.lower <= estimate.value <= estimate.upper <= 1


@pytest.mark.parametrize(
    ("name", "rows", "settled"),
    [
        ("isotonic", 3000, True),
        ("platt", 200, True),
        ("none", 1000, True),
        ("isotonic, one half of one class", 1000, False),
        ("isotonic, all certain", 1000, False),
    ],
)
def test_two_folds_tell_that_there_are_components_or_leave_it_open(name, rows, settled):
    """Two folds that see components agree with `fit_predictive`, which asks all folds."""
    rng, method = np.random.default_rng(4), name.split(",")[0]
    second = confidences(rng, ORIGINAL, (rows,))
    labels = (rng.random(rows) < second).astype(np.int64)
    if "one half" in name:
        labels[: rows // 2] = 0
    if "certain" in name:
        second = labels.astype(float)
    scores = np.column_stack([1 - second, second])
    fitted_on = CALIBRATORS[method](), scores, scores.argmax(axis=1), labels
    assert two_folds_vary(*fitted_on) is settled
    model = fit_predictive(*fitted_on)
    assert (model.components is not None) is (settled or "one half" in name)

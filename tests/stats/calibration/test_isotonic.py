"""Isotonic calibration against three witnesses, and what it does at the edges."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import scipy.optimize
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.isotonic import IsotonicRegression

from monitor import IsotonicCalibrator, calibration_error, confidence_of
from monitor.base.records import Floats, Ints
from monitor.stats.calibration.isotonic import fit_curve, pool_adjacent_violators

SEQUENCE = arrays(np.float64, st.integers(1, 40), elements=st.sampled_from([0.0, 0.25, 0.5, 1.0]))


def no_predicted(n: int) -> Ints:
    return np.zeros(n, dtype=np.int64)


def by_min_max(y: Floats, weight: Floats) -> Floats:
    """Return the min-max formula: each value is the largest, over starts, of the smallest mean over ends."""
    n = len(y)
    mean = lambda a, b: float(np.average(y[a:b], weights=weight[a:b]))  # noqa: E731
    return np.array(
        [max(min(mean(a, b) for b in range(i + 1, n + 1)) for a in range(i + 1)) for i in range(n)]
    )


@given(SEQUENCE, st.integers(0, 3))
def test_equals_the_min_max_formula_and_scipy(y: Floats, seed: int) -> None:
    weight = np.random.default_rng(seed).integers(1, 5, len(y)).astype(float)
    starts, values = pool_adjacent_violators(y, weight)
    fitted = np.repeat(values, np.diff(np.append(starts, len(y))))
    np.testing.assert_allclose(fitted, scipy.optimize.isotonic_regression(y, weights=weight).x, atol=1e-12)
    if len(y) <= 12:
        np.testing.assert_allclose(fitted, by_min_max(y, weight), atol=1e-12)
    assert all(a < b for a, b in pairwise(values))


@given(st.lists(SEQUENCE, min_size=1, max_size=6), st.integers(0, 3))
def test_many_sequences_at_once_are_each_fitted_alone(sequences: list[Floats], seed: int) -> None:
    rng = np.random.default_rng(seed)
    weights = [rng.integers(1, 5, len(y)).astype(float) for y in sequences]
    of = np.repeat(np.arange(len(sequences)), [len(y) for y in sequences])
    starts, values = pool_adjacent_violators(np.concatenate(sequences), np.concatenate(weights), of)
    fitted = np.repeat(values, np.diff(np.append(starts, len(of))))
    for number, (y, weight) in enumerate(zip(sequences, weights, strict=True)):
        alone = scipy.optimize.isotonic_regression(y, weights=weight).x
        np.testing.assert_allclose(fitted[of == number], alone, atol=1e-12)


def test_a_rise_with_a_fall_at_its_end_takes_one_pass_and_not_one_a_row() -> None:
    y, weight = np.append(np.linspace(0.5, 1.0, 100_000), 0.0), np.append(np.ones(100_000), 1e6)
    starts, values = pool_adjacent_violators(y, weight)
    assert starts.tolist() == [0]
    assert values == pytest.approx(75_000 / 1.1e6)


@pytest.mark.parametrize("decimals", [1, 2, 16])
def test_the_curve_is_that_of_scikit_learn(decimals: int) -> None:
    rng = np.random.default_rng(decimals)
    score = np.round(rng.beta(4, 2, 2000), decimals)
    success = (rng.random(2000) < score**2).astype(float)
    theirs = IsotonicRegression(out_of_bounds="clip").fit(score, success)
    grid = np.linspace(0, 1, 501)
    np.testing.assert_allclose(fit_curve(score, success)(grid), theirs.predict(grid), atol=1e-9)


@given(SEQUENCE, st.integers(0, 100))
def test_on_the_fitted_rows_the_mean_is_the_observed_frequency(score: Floats, seed: int) -> None:
    success = np.random.default_rng(seed).integers(0, 2, len(score)).astype(float)
    curve = fit_curve(score, success)
    assert curve(score).mean() == pytest.approx(success.mean(), abs=1e-12)
    assert (np.diff(curve.x) > 0).all()
    assert (np.diff(curve.y) >= 0).all()


def test_two_classes_keep_the_accuracy_of_the_reference() -> None:
    rng = np.random.default_rng(3)
    positive = rng.random(5000)
    labels = (rng.random(5000) < positive**2).astype(np.int64)
    scores = np.stack([1 - positive, positive], axis=1)
    fitted = IsotonicCalibrator().fit(scores, no_predicted(5000), labels)
    assert fitted.apply(scores)[:, 1].mean() == pytest.approx(labels.mean(), abs=1e-12)
    fresh = rng.random(5000)
    calibrated = fitted.apply(np.stack([1 - fresh, fresh], axis=1))[:, 1]
    before = calibration_error(fresh, fresh**2).result.value  # type: ignore[union-attr]
    after = calibration_error(calibrated, fresh**2).result.value  # type: ignore[union-attr]
    assert before == pytest.approx(1 / 6, abs=0.005)  # the integral of s − s²
    assert after < 0.03


def test_a_confidence_is_fitted_against_being_right() -> None:
    confidence = np.array([[0.2], [0.4], [0.6], [0.8]])
    labels = np.array([1, 1, 0, 0])  # 0 is correct
    fitted = IsotonicCalibrator().fit(confidence, no_predicted(4), labels)
    calibrated = fitted.apply(confidence)
    assert confidence_of(calibrated, no_predicted(4)).tolist() == [0.0, 0.0, 1.0, 1.0]


def test_a_threshold_does_not_change_the_map() -> None:
    """The predicted class comes from outside; calibration never changes it, nor is changed by it."""
    rng = np.random.default_rng(4)
    positive = rng.random(300)
    scores = np.stack([1 - positive, positive], axis=1)
    labels = (rng.random(300) < positive).astype(np.int64)
    low = IsotonicCalibrator().fit(scores, (positive > 0.3).astype(np.int64), labels)
    high = IsotonicCalibrator().fit(scores, (positive > 0.7).astype(np.int64), labels)
    assert low.snapshot() == high.snapshot()


def test_beyond_the_reference_the_curve_stays_at_its_ends() -> None:
    curve = fit_curve(np.array([0.3, 0.4, 0.5, 0.6]), np.array([0.0, 1.0, 0.0, 1.0]))
    assert curve(np.array([0.0, 0.1, 0.3, 0.9, 1.0])).tolist() == [0.0, 0.0, 0.0, 1.0, 1.0]


def test_a_class_that_never_occurs_gets_probability_zero() -> None:
    rng = np.random.default_rng(5)
    scores = rng.dirichlet(np.ones(3), 200)
    labels = (rng.random(200) < 0.5).astype(np.int64)
    calibrated = IsotonicCalibrator().fit(scores, no_predicted(200), labels).apply(scores)
    assert calibrated[:, 2].tolist() == [0.0] * 200


def test_a_row_that_is_zero_for_every_class_becomes_uniform() -> None:
    scores = np.array([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8], [0.34, 0.33, 0.33]])
    fitted = IsotonicCalibrator().fit(scores, no_predicted(4), np.array([0, 1, 2, 0]))
    assert fitted.apply(np.array([[0.1, 0.1, 0.1]])).tolist() == [[1 / 3] * 3]


def test_one_outcome_only_is_refused_with_the_way_out() -> None:
    scores = np.full((5, 2), 0.5)
    with pytest.raises(
        ValueError, match="at least two different outcomes, got 5 rows with only the label 1;"
    ):
        IsotonicCalibrator().fit(scores, no_predicted(5), np.ones(5, dtype=np.int64))
    with pytest.raises(ValueError, match=r"label 0 \(0 correct, 1 wrong\); .* calibration.method to none"):
        IsotonicCalibrator().fit(scores[:, :1], no_predicted(5), no_predicted(5))


def test_all_scores_equal_gives_the_frequency() -> None:
    fitted = IsotonicCalibrator().fit(np.full((4, 2), 0.5), no_predicted(4), np.array([0, 1, 1, 1]))
    assert fitted.apply(np.array([[0.9, 0.1]])).tolist() == [[0.25, 0.75]]

"""Platt, beta, temperature and vector scaling against witnesses that maximise the likelihood otherwise."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize
from scipy.special import expit, log_softmax
from sklearn.calibration import _sigmoid_calibration
from sklearn.linear_model import LogisticRegression

from monitor import (
    BetaCalibrator,
    IsotonicCalibrator,
    PlattCalibrator,
    TemperatureCalibrator,
    VectorCalibrator,
)
from monitor.base.records import Floats, Ints
from monitor.stats.calibration.newton import PRIOR, logistic_fit, minimise
from monitor.stats.calibration.rows import CLIP


def two_classes(n: int, seed: int = 0) -> tuple[Floats, Ints, Floats]:
    """Return scores, labels, and the score of the second class, distorted unlike at its two ends."""
    rng = np.random.default_rng(seed)
    truth = rng.beta(1.2, 0.8, n)
    labels = (rng.random(n) < truth).astype(np.int64)
    score = expit(1.8 * np.log(truth) - 0.7 * np.log1p(-truth) - 0.4)
    return np.column_stack((1 - score, score)), labels, score


def classes_of(width: int, n: int, seed: int = 1) -> tuple[Floats, Ints]:
    rng = np.random.default_rng(seed)
    truth = rng.dirichlet(np.ones(width), n)
    labels = (rng.random((n, 1)) > np.cumsum(truth, axis=1)).sum(axis=1).clip(0, width - 1)
    scores = truth**1.7 * np.linspace(1, 3, width)
    return scores / scores.sum(axis=1, keepdims=True), labels


def test_platt_is_scikit_learns_sigmoid_of_the_logit() -> None:
    scores, labels, score = two_classes(3000)
    margin = np.log(score) - np.log1p(-score)
    a, b = _sigmoid_calibration(margin, labels)
    (curve,) = PlattCalibrator().fit(scores, labels, labels).curves
    assert (curve.slope, curve.intercept) == pytest.approx((-a, -b), abs=1e-3)


def test_platts_targets_are_what_they_are() -> None:
    """All scores equal: the curve is the mean of the targets, (N₊ + 1)/(N₊ + 2) and 1/(N₋ + 2)."""
    labels = np.repeat([1, 0], [30, 10])
    scores = np.full((40, 2), 0.5)
    calibrated = PlattCalibrator().fit(scores, labels, labels).apply(scores[:1])[0, 1]
    assert calibrated == pytest.approx((30 * 31 / 32 + 10 / 12) / 40, abs=5e-4)
    assert abs(calibrated - 0.75) > 2e-3


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_beta_is_the_largest_likelihood_that_a_derivative_free_search_finds(seed: int) -> None:
    scores, labels, score = two_classes(2000, seed)
    log, rest = np.log(score), np.log1p(-score)

    def loss(at: Floats) -> float:
        line = at[0] * log - at[1] * rest + at[2]
        return float(np.logaddexp(0, line).sum() - line[labels == 1].sum())

    search = scipy.optimize.minimize(
        loss, [1.0, 1.0, 0.0], method="Nelder-Mead", options={"xatol": 1e-8, "fatol": 1e-10, "maxiter": 5000}
    )
    (curve,) = BetaCalibrator().fit(scores, labels, labels).curves
    ours = np.array([curve.a, curve.b, curve.c])
    np.testing.assert_allclose(ours, search.x, atol=2e-3)
    assert loss(ours) <= search.fun + 1e-4  # the prior, a hundredth of a row, is all that is between them


@pytest.mark.parametrize("dropped", ["a", "b"])
def test_where_a_coefficient_would_be_negative_beta_is_the_papers_second_fit(dropped: str) -> None:
    """Section 4 of the paper: drop the column, fit the other again; scikit-learn's fit is the witness."""
    rng = np.random.default_rng(3)
    score = rng.uniform(0.01, 0.99, 4000)
    line = -0.4 * np.log(score) - 2 * np.log1p(-score) - 1.5
    if dropped == "b":
        line = 2 * np.log(score) + 0.4 * np.log1p(-score) + 1.5
    labels = (rng.random(4000) < expit(line)).astype(np.int64)
    columns = {"a": np.log(score), "b": -np.log1p(-score)}
    both = LogisticRegression(C=np.inf, tol=1e-10).fit(np.column_stack(tuple(columns.values())), labels)
    assert both.coef_[0]["ab".index(dropped)] < 0
    kept = "b" if dropped == "a" else "a"
    again = LogisticRegression(C=np.inf, tol=1e-10).fit(columns[kept][:, None], labels)
    (curve,) = BetaCalibrator().fit(np.column_stack((1 - score, score)), labels, labels).curves
    assert getattr(curve, dropped) == 0.0
    assert getattr(curve, kept) == pytest.approx(again.coef_[0, 0], abs=2e-3)
    assert curve.c == pytest.approx(again.intercept_[0], abs=2e-3)


@pytest.mark.parametrize("width", [2, 3, 6])
def test_the_temperature_is_the_one_that_a_scalar_search_finds(width: int) -> None:
    scores, labels = classes_of(width, 2000)
    logs = np.log(scores)

    def loss(sharpness: float) -> float:
        return -float(log_softmax(sharpness * logs, axis=1)[np.arange(2000), labels].sum())

    optimum = scipy.optimize.minimize_scalar(loss, bounds=(0, 5), method="bounded", options={"xatol": 1e-9})
    ours = TemperatureCalibrator().fit(scores, labels, labels).sharpness
    assert ours == pytest.approx(optimum.x, abs=1e-4)


@pytest.mark.parametrize("width", [3, 6])
def test_vector_scaling_is_what_a_search_without_our_gradient_finds(width: int) -> None:
    scores, labels = classes_of(width, 1500)
    logs = np.log(np.clip(scores, CLIP, 1 - CLIP))

    def loss(at: Floats) -> float:
        away = at - np.repeat([1.0, 0.0], width)
        line = log_softmax(logs * at[:width] + at[width:], axis=1)
        return float(PRIOR / 2 * away @ away - line[np.arange(1500), labels].sum())

    search = scipy.optimize.minimize(
        loss,
        np.repeat([1.0, 0.0], width),
        method="L-BFGS-B",
        bounds=[(0, None)] * width + [(None, None)] * width,
    )
    fitted = VectorCalibrator().fit(scores, labels, labels)
    ours = np.concatenate((fitted.slopes, fitted.intercepts))
    assert loss(ours) <= search.fun + 1e-9
    np.testing.assert_allclose(ours, search.x, atol=5e-3)
    assert fitted.intercepts.sum() == pytest.approx(0.0, abs=1e-6)  # what the prior leaves of a free constant


def test_for_two_classes_vector_scaling_is_beta_and_temperature_is_a_sigmoid_without_shift() -> None:
    scores, labels, score = two_classes(5000)
    vector = VectorCalibrator().fit(scores, labels, labels)
    beta = BetaCalibrator().fit(scores, labels, labels)
    np.testing.assert_allclose(vector.apply(scores), beta.apply(scores), atol=1e-4)
    temperature = TemperatureCalibrator().fit(scores, labels, labels)
    margin = np.log(score) - np.log1p(-score)
    np.testing.assert_allclose(
        temperature.apply(scores)[:, 1], expit(temperature.sharpness * margin), atol=1e-12
    )


def test_a_confidence_is_fitted_like_the_second_of_two_classes() -> None:
    scores, labels, score = two_classes(2000)
    for calibrator in (
        IsotonicCalibrator,
        PlattCalibrator,
        BetaCalibrator,
        VectorCalibrator,
        TemperatureCalibrator,
    ):
        alone = calibrator().fit(score[:, None], labels * 0, 1 - labels).apply(score[:, None])
        both = calibrator().fit(scores, labels, labels).apply(scores)
        np.testing.assert_allclose(alone[:, 0], both[:, 1], atol=1e-9)


def test_temperature_and_vector_find_the_distortion_they_can_undo() -> None:
    """Scores made by a known scaling of calibrated ones; tolerances of four standard errors at n = 40,000."""
    rng = np.random.default_rng(5)
    truth = rng.dirichlet(np.ones(3), 40_000)
    labels = (rng.random((40_000, 1)) > np.cumsum(truth, axis=1)).sum(axis=1)
    sharp = truth**2 / (truth**2).sum(axis=1, keepdims=True)
    assert TemperatureCalibrator().fit(sharp, labels, labels).sharpness == pytest.approx(0.5, abs=0.02)
    bent = truth * np.array([1.0, 2.0, 4.0])
    bent /= bent.sum(axis=1, keepdims=True)
    calibrated = VectorCalibrator().fit(bent, labels, labels).apply(bent)
    assert np.abs(calibrated - truth).mean() < 0.01


def test_a_minimum_on_two_floors_and_one_that_does_not_settle() -> None:
    target = np.array([-1.0, 2.0, -3.0])
    shape = np.array([[2.0, 0.9, 0.3], [0.9, 1.0, 0.2], [0.3, 0.2, 1.0]])

    def bowl(at: Floats) -> tuple[float, Floats, Floats]:
        away = at - target
        return float(away @ shape @ away) / 2, shape @ away, shape

    minimum = minimise(bowl, np.ones(3), np.zeros(3))
    witness = scipy.optimize.minimize(lambda at: bowl(at)[0], np.ones(3), bounds=[(0, None)] * 3, tol=1e-12)
    np.testing.assert_allclose(minimum, witness.x, atol=1e-5)
    assert (minimum == 0).sum() == 2
    with pytest.raises(ValueError, match="has not settled after 1 steps of Newton's method; last at"):
        minimise(bowl, np.ones(3), np.zeros(3), iterations=1)


def test_the_prior_is_a_hundredth_of_a_row() -> None:
    one = np.ones(1)
    coefficient = logistic_fit(one[:, None], 0 * one, one, 0 * one, -np.inf * one)[0]
    assert expit(coefficient) + PRIOR * coefficient == pytest.approx(0.0, abs=1e-12)

"""Calibration error: a slow witness, its laws, its interval, and the bias that labels bring."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from monitor import (
    CLASS_ECE_BINS,
    ECE_BINS,
    CalibrationErrorEstimate,
    Estimate,
    Unknown,
    calibration_error,
    labelled_calibration_error,
)
from monitor.base.records import Floats
from monitor.base.results import Reason
from tests.fidelity.simulated import ORIGINAL, confidences, outcomes


def by_loop(raw: Floats, other: Floats, bins: int) -> float:
    """Bins one by one; scores must be distinct."""
    order = np.argsort(raw)
    total = 0.0
    for b in range(bins):
        members = order[b * len(raw) // bins : (b + 1) * len(raw) // bins]
        total += len(members) / len(raw) * abs(raw[members].mean() - other[members].mean())
    return total


def value(estimate: CalibrationErrorEstimate) -> float:
    assert isinstance(estimate.result, Estimate)
    return estimate.result.value


def simulated(n: int, seed: int) -> tuple[Floats, Floats]:
    """Return raw scores of the paper's data, and a calibrated chance that is lower by up to 6 points."""
    raw = confidences(np.random.default_rng(seed), ORIGINAL, (n,))
    return raw, raw - 0.3 * raw * (1 - raw) - 0.02 * raw


@pytest.mark.parametrize("bins", [ECE_BINS, CLASS_ECE_BINS, 1])
@pytest.mark.parametrize("n", [20, 37, 500, 4096, 4097])
def test_equals_the_loop_over_bins(n: int, bins: int) -> None:
    raw, calibrated = simulated(n, n)
    assert value(calibration_error(raw, calibrated, bins)) == pytest.approx(by_loop(raw, calibrated, bins))


def test_a_calibrated_model_reads_zero() -> None:
    raw, _ = simulated(500, 1)
    estimate = calibration_error(raw, raw)
    assert value(estimate) == 0.0
    assert estimate.standard_error == 0.0


def test_tied_scores_share_the_bins_that_they_span() -> None:
    """Four rows tied over two bins count by half in each: the gaps +0.2 and −0.2 cancel in both."""
    estimate = calibration_error([0.5] * 4, [0.3, 0.3, 0.7, 0.7], bins=2)
    assert value(estimate) == pytest.approx(0.0, abs=1e-15)
    # Rows 0.4 | 0.6 0.6 0.6 in bins of two: the first holds 0.4 and a third of the three tied gaps.
    tied = calibration_error([0.4, 0.6, 0.6, 0.6], [0.3, 0.6, 0.6, 0.3], bins=2)
    assert value(tied) == pytest.approx((abs(0.1 + 0.1) + abs(0.2)) / 4)


GRID = arrays(np.float64, st.integers(20, 60), elements=st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0]))


@given(GRID, st.integers(0, 5), st.randoms(use_true_random=False))
def test_order_of_rows_is_irrelevant_even_with_ties(raw: Floats, seed: int, random) -> None:  # type: ignore[no-untyped-def]
    calibrated = np.random.default_rng(seed).random(len(raw))
    order = list(range(len(raw)))
    random.shuffle(order)
    first = calibration_error(raw, calibrated, 10, seed=seed)
    second = calibration_error(raw[order], calibrated[order], 10, seed=seed)
    assert value(first) == pytest.approx(value(second), abs=1e-12)
    assert first.draws is not None
    np.testing.assert_allclose(first.draws, second.draws, atol=1e-6)  # weights are single precision


@given(GRID)
def test_the_error_lies_in_its_interval_and_within_zero_and_one(raw: Floats) -> None:
    for estimate in (
        calibration_error(raw, 1 - raw),
        labelled_calibration_error(raw, raw < 0.3).plain,
        labelled_calibration_error(raw, raw < 0.3).corrected,
    ):
        assert isinstance(estimate.result, Estimate)
        assert 0.0 <= estimate.result.lower <= estimate.result.value <= estimate.result.upper <= 1.0


def test_equal_scores_everywhere_are_one_gap() -> None:
    estimate = calibration_error([0.9] * 500, [0.8] * 500)
    assert value(estimate) == pytest.approx(0.1)
    assert estimate.standard_error == pytest.approx(0.0, abs=1e-6)


def test_the_mean_gap_is_a_lower_bound() -> None:
    raw, calibrated = simulated(500, 2)
    assert value(calibration_error(raw, calibrated)) >= abs(raw.mean() - calibrated.mean()) - 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("n", [500, 6000])
def test_the_interval_covers_the_value_of_the_population(n: int) -> None:
    """Trials: 400; allowed: three binomial errors at 95 %, and 2 points for fixed bins."""
    raw, calibrated = simulated(300_000, 3)
    truth = value(calibration_error(raw, calibrated))
    held = 0
    for trial in range(400):
        some = np.random.default_rng(trial).integers(0, len(raw), n)
        estimate = calibration_error(raw[some], calibrated[some], seed=trial).result
        assert isinstance(estimate, Estimate)
        held += estimate.lower <= truth <= estimate.upper
    assert abs(held / 400 - 0.95) <= 3 * sqrt(0.95 * 0.05 / 400) + 0.02


def test_the_standard_error_is_the_scatter_between_windows() -> None:
    windows = [calibration_error(*simulated(500, seed), seed=seed) for seed in range(300)]
    scatter = np.std([value(window) for window in windows], ddof=1)
    stated = np.mean([window.standard_error for window in windows])
    assert stated == pytest.approx(scatter, rel=0.15)  # three standard errors of a deviation from 300


def test_draws_of_different_seeds_pool_like_independent_windows() -> None:
    """The average of four windows would scatter as much as one, if draws were paired up."""
    estimates = [calibration_error(*simulated(500, seed), seed=seed) for seed in range(40)]
    draws = np.array([f.draws for f in estimates])
    pooled = draws.mean(axis=0).std(ddof=1)
    independent = sqrt(float((draws.std(axis=1, ddof=1) ** 2).sum())) / 40
    assert pooled == pytest.approx(independent, rel=0.2)


def test_same_seed_same_numbers_and_another_seed_the_same_spread() -> None:
    raw, calibrated = simulated(500, 4)
    first, again, other = (calibration_error(raw, calibrated, seed=s) for s in (1, 1, 2))
    assert first.result == again.result
    assert first.draws is not None
    assert other.draws is not None
    np.testing.assert_array_equal(first.draws, again.draws)
    assert first.draws.tolist() != other.draws.tolist()
    assert sorted(first.draws) == pytest.approx(sorted(other.draws))


def test_input_is_left_alone() -> None:
    raw, calibrated = simulated(200, 5)
    raw.flags.writeable = calibrated.flags.writeable = False
    calibration_error(raw, calibrated)
    labelled_calibration_error(raw, raw > 0.5)


def test_too_few_rows_are_unknown() -> None:
    assert calibration_error([], []).result == Unknown(Reason.NO_ROWS)
    estimate = calibration_error([0.5] * 19, [0.5] * 19)
    assert estimate.result == Unknown(Reason.TOO_FEW_ROWS)
    assert estimate.draws is None
    assert estimate.standard_error is None
    assert labelled_calibration_error([], []).corrected.result == Unknown(Reason.NO_LABELS)
    assert labelled_calibration_error([0.5], [True]).plain.result == Unknown(Reason.TOO_FEW_ROWS)


@pytest.mark.slow
@pytest.mark.parametrize("n", [500, 2000])
def test_label_noise_is_taken_off_a_calibrated_model(n: int) -> None:
    """Trials: 300. Plain reads 3.4 points at n = 500; the rest is below 1.1 points."""
    rng = np.random.default_rng(6)
    plain, corrected = [], []
    for _ in range(300):
        raw = confidences(rng, ORIGINAL, (n,))
        estimate = labelled_calibration_error(raw, outcomes(rng, raw))
        plain.append(value(estimate.plain))
        corrected.append(value(estimate.corrected))
    scale = sqrt(500 / n)
    assert np.mean(plain) == pytest.approx(0.0336 * scale, abs=0.0015)
    assert np.mean(corrected) < 0.011 * scale
    assert np.median(corrected) < 0.009 * scale


CURVES = {
    "overconfident": lambda s: s**0.6 / (s**0.6 + (1 - s) ** 0.6),
    "underconfident": lambda s: s**1.5 / (s**1.5 + (1 - s) ** 1.5),
    "too high": lambda s: np.maximum(s - 0.05, 0.0),
    "far too high": lambda s: np.maximum(s - 0.2, 0.0),
}


@pytest.mark.slow
@pytest.mark.parametrize("curve", CURVES)
def test_a_miscalibrated_model_still_reads_right(curve: str) -> None:
    """Trials: 300 at n = 500. Within a point of the truth, and no farther from it than the plain value."""
    rng = np.random.default_rng(9)
    many = confidences(rng, ORIGINAL, (300_000,))
    truth = value(calibration_error(many, CURVES[curve](many)))
    plain, corrected = [], []
    for _ in range(300):
        raw = confidences(rng, ORIGINAL, (500,))
        estimate = labelled_calibration_error(raw, outcomes(rng, CURVES[curve](raw)))
        plain.append(value(estimate.plain))
        corrected.append(value(estimate.corrected))
    assert np.mean(corrected) == pytest.approx(truth, abs=0.010)
    assert abs(np.mean(corrected) - truth) <= abs(np.mean(plain) - truth) + 0.004


@pytest.mark.slow
def test_the_corrected_interval_holds_the_truth() -> None:
    """Trials: 300; at least 95 % less three binomial errors, for a model that is 5 points too high."""
    rng = np.random.default_rng(10)
    many = confidences(rng, ORIGINAL, (300_000,))
    truth = value(calibration_error(many, CURVES["too high"](many)))
    held = 0
    for trial in range(300):
        raw = confidences(rng, ORIGINAL, (500,))
        estimate = labelled_calibration_error(raw, outcomes(rng, CURVES["too high"](raw)), seed=trial)
        assert isinstance(estimate.corrected.result, Estimate)
        held += estimate.corrected.result.lower <= truth <= estimate.corrected.result.upper
    assert held / 300 >= 0.95 - 3 * sqrt(0.95 * 0.05 / 300)


def test_perfect_and_certain_answers_need_no_correction() -> None:
    estimate = labelled_calibration_error(np.ones(100), np.ones(100))
    assert value(estimate.plain) == value(estimate.corrected) == 0.0


def test_bad_input_is_named() -> None:
    with pytest.raises(ValueError, match=r"raw\[0\] must be a probability from 0 to 1, got -3\.0"):
        calibration_error([-3.0], [0.5])
    with pytest.raises(ValueError, match="raw and calibrated must have the same length, got 2 and 1"):
        calibration_error([0.5, 0.5], [0.5])
    with pytest.raises(ValueError, match=r"correct\[1\] must be a probability from 0 to 1, got 2\.0"):
        labelled_calibration_error([0.5, 0.5], [1, 2])
    with pytest.raises(ValueError, match="bins must be at least 1, got 0"):
        calibration_error([0.5], [0.5], bins=0)
    with pytest.raises(ValueError, match="level must lie between 0 and 1"):
        calibration_error([0.5], [0.5], level=1.0)

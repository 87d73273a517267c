"""DoC-Feat, ATC and NannyML's band: what they are fitted to, and where they fail."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom

from monitor import ATC, DoCFeat, Estimate, Unknown, average_confidence, cbpe_sem, classification_details
from monitor.stats.estimate.reference import binomial_estimate
from tests.fidelity.simulated import ORIGINAL, SHIFTED, confidences, outcomes
from tests.nearly import nearly

N = 20_000


def reference(scale: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Return confidences, and outcomes with `scale` times the chance that they state."""
    rng = np.random.default_rng(1)
    confidence = confidences(rng, ORIGINAL, (N,))
    return confidence, outcomes(rng, confidence * scale)


@pytest.mark.parametrize("estimator", [ATC, DoCFeat])
def test_the_reference_itself_is_estimated_exactly(estimator: type[ATC] | type[DoCFeat]) -> None:
    confidence, correct = reference(0.9)
    estimate = estimator.fit(confidence, correct).estimate(confidence)
    assert isinstance(estimate, Estimate)
    assert estimate.value == pytest.approx(correct.mean(), abs=1e-12)
    assert estimate.n == N
    ends = binom.ppf([0.025, 0.975], N, correct.mean()) / N
    assert (estimate.lower, estimate.upper) == pytest.approx(tuple(ends))


@pytest.mark.parametrize("n", [1, 2, 50, 500, 20_000])
def test_the_quantiles_are_those_of_scipys_binomial(n: int) -> None:
    for value in (0.0, 1e-9, 0.1, 0.5, 0.8317, 1.0 - 1e-9, 1.0):
        for level in (0.5, 0.9, 0.95, 0.999):
            estimate = binomial_estimate(value, n, level)
            assert isinstance(estimate, Estimate)
            low, high = binom.ppf([(1 - level) / 2, (1 + level) / 2], n, value) / n
            ends = min(low, value), max(high, value)
            assert (estimate.lower, estimate.upper) == pytest.approx(ends, rel=0, abs=1e-12)


def test_doc_is_average_confidence_less_the_bias_of_the_reference() -> None:
    confidence, correct = reference(0.9)
    shifted = confidences(np.random.default_rng(2), SHIFTED, (500,))
    estimate, mean = DoCFeat.fit(confidence, correct).estimate(shifted), average_confidence(shifted)
    assert isinstance(estimate, Estimate)
    assert isinstance(mean, Estimate)
    assert estimate.value - mean.value == pytest.approx(correct.mean() - confidence.mean())


def test_atc_reads_too_low_under_the_papers_shift_though_the_confidences_are_calibrated() -> None:
    shifted = confidences(np.random.default_rng(3), SHIFTED, (N,))
    estimate = ATC.fit(*reference()).estimate(shifted)
    assert isinstance(estimate, Estimate)
    assert estimate.value < shifted.mean() - 0.02


@pytest.mark.parametrize("estimator", [ATC, DoCFeat])
def test_no_rows_certain_references_and_widening(estimator: type[ATC] | type[DoCFeat]) -> None:
    assert estimator.fit([0.5], [True]).estimate([]) == Unknown("no rows")
    perfect = estimator.fit([0.7, 0.9], [True, True]).estimate([0.95, 1.0])
    assert isinstance(perfect, Estimate)
    assert (perfect.lower, perfect.value, perfect.upper) == (1.0, 1.0, 1.0)
    nothing_right = estimator.fit([0.7, 0.9], [False, False]).estimate([0.1, 0.2])
    assert isinstance(nothing_right, Estimate)
    assert nothing_right.value == 0.0
    fitted = estimator.fit(*reference())
    window = confidences(np.random.default_rng(4), ORIGINAL, (100,))
    widths = []
    for level in (0.5, 0.8, 0.95):
        estimate = fitted.estimate(window, level)
        assert isinstance(estimate, Estimate)
        assert 0.0 <= estimate.lower <= estimate.value <= estimate.upper <= 1.0
        widths.append(estimate.upper - estimate.lower)
    assert widths == sorted(widths)
    assert fitted.estimate(window[::-1]) == nearly(fitted.estimate(window))


@pytest.mark.parametrize(
    ("confidence", "correct", "message"),
    [
        ([0.5, 0.6], [True], r"correct must have the shape \(2,\), like the confidences, got \(1,\)"),
        ([], [], "the reference has no labelled rows to fit on; give some"),
        ([0.5], [2], "correct must hold true and false, or 1 and 0, only"),
        ([1.5], [1], r"confidence\[0\] must be a probability from 0 to 1, got 1.5"),
    ],
)
@pytest.mark.parametrize("estimator", [ATC, DoCFeat])
def test_a_reference_that_cannot_be_fitted_on_is_refused(
    estimator: type[ATC] | type[DoCFeat], confidence: list[float], correct: list[int], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        estimator.fit(confidence, correct)
    with pytest.raises(ValueError, match="bias must be a difference of two shares, from -1 to 1, got 2"):
        DoCFeat(2.0)


def test_the_band_is_three_standard_errors_of_labelled_rows_for_the_accuracy_and_precision() -> None:
    rng = np.random.default_rng(5)
    chance = rng.random(4000)
    label, acted = (rng.random(4000) < chance).astype(int), (chance > 0.5).astype(int)
    labelled = classification_details(np.eye(2)[label], acted, ["accuracy", "precision"])
    right, among = label == acted, label[acted == 1]
    assert labelled["accuracy"].row_sd == pytest.approx(right.std())
    # NannyML's standard error of the precision: that of the labels among the predicted positives.
    precision_error = among.std() / np.sqrt(len(among) * 500 / 4000)
    assert labelled["precision"].row_sd == pytest.approx(precision_error * np.sqrt(500))
    window = Estimate(0.8, 0.7, 0.9, 0.95, 500)
    band = cbpe_sem(window, labelled["precision"].row_sd or 0.0)
    assert isinstance(band, Estimate)
    assert (band.upper - band.value, band.value) == pytest.approx((3 * precision_error, 0.8))
    assert cbpe_sem(Unknown("no rows"), 0.1) == Unknown("no rows")
    wide = cbpe_sem(window, 30.0)
    assert isinstance(wide, Estimate)
    assert (wide.lower, wide.upper) == (0.0, 1.0)


def test_the_band_refuses_what_is_no_spread() -> None:
    window = Estimate(0.8, 0.7, 0.9, 0.95, 500)
    with pytest.raises(ValueError, match="row_sd must be a number of 0 or more, got -1"):
        cbpe_sem(window, -1.0)
    with pytest.raises(ValueError, match=r"standard_errors must be above 0 \(3 is NannyML's\), got 0"):
        cbpe_sem(window, 0.1, 0.0)

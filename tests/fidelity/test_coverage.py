"""The short form of `tests.fidelity.coverage`: 2,000 windows each, seeded."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest

from monitor import average_confidence_many
from tests.fidelity.coverage import SIZES, measure
from tests.fidelity.simulated import MIXTURES, ORIGINAL, SHIFTED, confidences, expected_accuracy, outcomes

TRIALS = 2000


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("mixture", MIXTURES)
def test_coverage_is_the_mass_between_the_exact_quantiles(mixture: str, n: int) -> None:
    row = measure(mixture, n, TRIALS)
    assert abs(row.exact - row.mass) <= row.allowed  # three binomial errors of 2,000 trials: about 1.2 points
    assert row.mass >= 0.95


@pytest.mark.parametrize("mixture", MIXTURES)
def test_discreteness_makes_small_windows_cover_more(mixture: str) -> None:
    small, large = measure(mixture, 100, TRIALS), measure(mixture, 500, TRIALS)
    # The mass is an average over windows, far steadier than the coverage itself.
    assert small.mass == pytest.approx(0.969, abs=0.003)
    assert large.mass == pytest.approx(0.960, abs=0.003)


@pytest.mark.parametrize("mixture", MIXTURES)
def test_the_rivals_miss_on_their_own_side(mixture: str) -> None:
    row = measure(mixture, 100, TRIALS)
    three_errors = 3 * sqrt(0.95 * 0.05 / TRIALS)
    assert row.f_range < row.mid_p < row.exact < row.sem + three_errors
    assert abs(row.mid_p - 0.95) < three_errors
    assert row.sem > 0.95 + three_errors / 2  # far too wide: Figure 4


def test_an_overconfident_model_breaks_the_promise() -> None:
    """The assumption is calibration; without it the interval fails, and the failure is known beforehand."""
    rng = np.random.default_rng(7)
    confidence = confidences(rng, ORIGINAL, (TRIALS, 500))
    accuracy = outcomes(rng, confidence * 0.95).mean(axis=1)
    _, lower, upper = average_confidence_many(confidence).T
    coverage = ((accuracy >= lower) & (accuracy <= upper)).mean()
    # A bias of 4.5 points against a standard deviation of about 1.4 (realised) and limits at ±2.1.
    assert coverage < 0.15


def test_the_mixtures_have_the_accuracies_that_the_paper_states() -> None:
    assert expected_accuracy(ORIGINAL) == pytest.approx(0.897, abs=0.002)
    assert expected_accuracy(SHIFTED) == pytest.approx(0.838, abs=0.002)

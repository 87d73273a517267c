"""The short form of `tests.fidelity.metrics_coverage`: 200 windows, seeded."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest

from tests.fidelity.metrics_coverage import PREVALENCES, measure

TRIALS = 200


@pytest.mark.parametrize("prevalence", PREVALENCES)
def test_coverage_is_the_mass_in_the_interval(prevalence: float) -> None:
    for row in measure(100, prevalence, TRIALS):
        assert row.judged + max(row.undefined, row.unknown) >= TRIALS
        if np.isnan(row.mass):
            # Three binomial errors, and one more point for the draws and the discreteness of few positives.
            assert row.cover >= 0.95 - 3 * sqrt(0.95 * 0.05 / row.judged) - 0.01, row.metric
            continue
        assert row.mass >= 0.95, row.metric
        assert abs(row.cover - row.mass) <= row.allowed, row.metric


def test_three_standard_errors_are_wide_where_a_window_knows_itself() -> None:
    accuracy = measure(100, 0.5, TRIALS)[0]
    assert accuracy.metric == "accuracy"
    assert accuracy.sem > 0.99
    assert accuracy.sem_width > 1.2 * accuracy.width

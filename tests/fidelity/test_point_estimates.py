"""The short form of `tests.fidelity.point_estimates`: 400 windows of 500, seeded."""

from __future__ import annotations

from math import sqrt

import pytest

from tests.fidelity.point_estimates import measure
from tests.fidelity.simulated import ORIGINAL, SHIFTED, expected_accuracy

TRIALS = 400


@pytest.mark.parametrize("shift", [0.0, 0.5, 1.0])
def test_average_confidence_is_unbiased_and_the_steadiest(shift: float) -> None:
    row = measure(500, shift, TRIALS)
    assert abs(row.mean[0]) < 3 * row.sd[0] / sqrt(TRIALS)
    assert row.sd[0] < row.sd[1]
    assert row.sd[0] < row.sd[2]


def test_under_full_shift_atc_reads_too_low_and_the_binomial_too_high() -> None:
    row = measure(500, 1.0, TRIALS)
    assert row.mean[1] < -0.02
    lost = expected_accuracy(ORIGINAL) - expected_accuracy(SHIFTED)
    assert abs(row.mean[2] - lost) < 3 * row.sd[2] / sqrt(TRIALS)


def test_a_larger_window_has_smaller_errors() -> None:
    small, large = measure(100, 0.5, TRIALS), measure(500, 0.5, TRIALS)
    assert (large.sd < small.sd).all()

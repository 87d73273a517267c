"""Average Confidence: its three doors agree, and it says Unknown where there is nothing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from monitor import (
    Estimate,
    PoissonBinomial,
    Unknown,
    average_confidence,
    average_confidence_many,
    average_confidence_windows,
)
from monitor.base.records import Floats
from monitor.base.results import Reason
from tests.nearly import nearly

CONFIDENCES = arrays(np.float64, st.integers(1, 60), elements=st.floats(0.0, 1.0))


def test_the_estimate_is_the_mean_and_the_interval_the_exact_quantiles() -> None:
    confidence = np.random.default_rng(0).beta(20, 1, 500)
    estimate = average_confidence(confidence)
    low, high = PoissonBinomial(confidence).interval(0.95)
    assert estimate == nearly(Estimate(float(confidence.mean()), low / 500, high / 500, 0.95, 500))


def test_no_rows_is_unknown() -> None:
    assert average_confidence([]) == Unknown(Reason.NO_ROWS)


@given(CONFIDENCES, st.floats(0.5, 0.98))
def test_an_estimate_lies_in_its_interval_and_the_interval_widens(confidence: Floats, level: float) -> None:
    estimate, wider = average_confidence(confidence, level), average_confidence(confidence, level + 0.01)
    assert isinstance(estimate, Estimate)
    assert isinstance(wider, Estimate)
    assert 0.0 <= wider.lower <= estimate.lower <= estimate.value <= estimate.upper <= wider.upper <= 1.0


def test_where_all_quantiles_lie_above_the_mean_the_lower_end_is_the_mean() -> None:
    estimate = average_confidence([0.9999] * 50)
    assert isinstance(estimate, Estimate)
    assert PoissonBinomial([0.9999] * 50).interval(0.95) == (50, 50)
    assert (estimate.lower, estimate.upper) == (estimate.value, 1.0)


def test_many_windows_are_what_each_is_alone() -> None:
    confidence = np.random.default_rng(1).beta(9, 1, (2000, 80))  # more than one batch
    estimates = average_confidence_many(confidence, 0.9)
    for row, window in zip(estimates[::97], confidence[::97], strict=True):
        alone = average_confidence(window, 0.9)
        assert isinstance(alone, Estimate)
        assert row.tolist() == nearly([alone.value, alone.lower, alone.upper])


def test_many_windows_may_be_strided() -> None:
    confidence = np.random.default_rng(4).random((30, 6))
    assert average_confidence_many(confidence.T) == nearly(average_confidence_many(confidence.T.copy()))


def test_windows_of_many_sizes_keep_their_order_and_their_distribution() -> None:
    rng = np.random.default_rng(2)
    windows = [rng.beta(9, 1, n) for n in (500, 3, 500, 0, 77, 3, 3000)]
    for window, (result, pmf) in zip(windows, average_confidence_windows(windows, 0.9), strict=True):
        assert result == nearly(average_confidence(window, 0.9))
        if pmf is None:
            assert len(window) == 0
        else:
            assert pmf.n == len(window)
            assert pmf.interval(0.9) == PoissonBinomial(window).interval(0.9)


def test_no_windows() -> None:
    assert average_confidence_windows([]) == []
    assert average_confidence_many(np.zeros((0, 5))).shape == (0, 3)


def test_input_is_left_alone() -> None:
    confidence = np.random.default_rng(3).random((4, 20))
    before = confidence.copy()
    confidence.flags.writeable = False
    average_confidence_many(confidence)
    average_confidence_windows(list(confidence))
    average_confidence(confidence[0])
    np.testing.assert_array_equal(confidence, before)


def test_bad_input_is_named() -> None:
    with pytest.raises(ValueError, match=r"confidence\[1\] must be a probability from 0 to 1, got 95\.0"):
        average_confidence([0.9, 95.0])
    with pytest.raises(ValueError, match=r"confidences\[1\]\[0\] must be a probability from 0 to 1, got nan"):
        average_confidence_windows([[0.9], [float("nan")]])
    with pytest.raises(ValueError, match=r"confidence must have at least one row in each window, .*\(2, 0\)"):
        average_confidence_many(np.zeros((2, 0)))
    with pytest.raises(ValueError, match=r"level must lie between 0 and 1, .* got 95"):
        average_confidence([], 95)

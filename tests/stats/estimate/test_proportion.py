"""Wilson's interval against scipy's, and its edges."""

from __future__ import annotations

import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from monitor import Estimate, Unknown, wilson
from monitor.base.results import Reason


@given(
    st.integers(1, 5000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), st.floats(0.5, 0.999)
)
def test_equals_scipy(counts: tuple[int, int], level: float) -> None:
    successes, n = counts
    estimate = wilson(successes, n, level)
    witness = scipy.stats.binomtest(successes, n).proportion_ci(level, method="wilson")
    assert isinstance(estimate, Estimate)
    assert estimate.value == successes / n
    assert (estimate.lower, estimate.upper) == pytest.approx((witness.low, witness.high), abs=1e-12)
    assert 0.0 <= estimate.lower <= estimate.value <= estimate.upper <= 1.0


def test_a_worked_example() -> None:
    # With z = 1.95996: centre (45 + z²/2)/(50 + z²) = 46.9207/53.8415 = 0.87146,
    # half width z·√(45·5/50 + z²/4)/(50 + z²) = 1.95996·√5.46036/53.8415 = 0.08506.
    estimate = wilson(45, 50)
    assert isinstance(estimate, Estimate)
    assert (estimate.lower, estimate.upper) == pytest.approx((0.78640, 0.95652), abs=1e-5)


def test_nothing_but_successes_still_has_an_interval() -> None:
    estimate = wilson(20, 20)
    assert isinstance(estimate, Estimate)
    assert 0.8 < estimate.lower < 0.9
    assert estimate.upper == 1.0


def test_no_labels_is_unknown() -> None:
    assert wilson(0, 0) == Unknown(Reason.NO_LABELS)


def test_bad_input_is_named() -> None:
    with pytest.raises(ValueError, match="successes must lie from 0 to n = 5, got 6"):
        wilson(6, 5)
    with pytest.raises(ValueError, match="n must be 0 or more trials, got -1"):
        wilson(0, -1)
    with pytest.raises(ValueError, match=r"level must lie between 0 and 1, .* got 1\.0"):
        wilson(1, 2, 1.0)

"""Our solvers beside scipy's."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.optimize

from monitor.stats.solvers import brentq, non_negative_least_squares
from tests.nearly import nearly


def test_a_zero_is_scipys() -> None:
    for seed in range(40):
        a, b, c = 3 * np.random.default_rng(seed).standard_normal(3)
        for f in (
            lambda x, a=a, b=b, c=c: x**3 + a * x * x + b * x + c,
            lambda x, a=a, b=b: math.exp((0.3 + abs(a)) * x) - 2 - b * b,
            lambda x, a=a: math.tanh(5 * (x - a)),
            lambda x, c=c: x - c,
        ):
            for xtol in (2e-12, 1e-9):
                expected = scipy.optimize.brentq(f, -20.0, 20.0, xtol=xtol)
                assert brentq(f, -20.0, 20.0, xtol) == nearly(expected), seed


def test_a_zero_at_an_end_is_that_end() -> None:
    assert brentq(lambda x: x - 1, 1.0, 2.0) == nearly(1.0)
    assert brentq(lambda x: x - 2, 1.0, 2.0) == nearly(2.0)


def test_ends_of_one_sign_are_refused() -> None:
    with pytest.raises(ValueError, match=r"f must have different signs at start and end, got 1.0 and 2.0"):
        brentq(lambda x: x, 1.0, 2.0)


def test_non_negative_least_squares_are_scipys() -> None:
    for seed in range(40):
        rng = np.random.default_rng(seed)
        a, b = rng.random((12, 1 + seed % 7)) ** 3, rng.standard_normal(12) + (seed % 3)
        solution, expected = non_negative_least_squares(a, b), scipy.optimize.nnls(a, b)[0]
        np.testing.assert_allclose(solution, expected, atol=1e-9, err_msg=f"seed {seed}")


def test_where_nothing_helps_all_are_zero() -> None:
    np.testing.assert_array_equal(non_negative_least_squares(np.ones((3, 2)), -np.ones(3)), [0.0, 0.0])

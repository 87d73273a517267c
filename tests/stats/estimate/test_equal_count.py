"""Rows are sorted into bins of equal count as by both keys, whatever way is taken to it."""

from __future__ import annotations

import numpy as np
import pytest

from monitor.stats.estimate.equal_count import equal_count_bins


@pytest.mark.parametrize("decimals", [0, 1, 2, 6, 16])  # from all tied to none
@pytest.mark.parametrize("values", [1, 16])
def test_ties_of_the_score_are_in_the_order_of_their_values_and_equal_rows_in_their_own(decimals, values):
    rng = np.random.default_rng(decimals)
    raw, value = rng.random(500).round(decimals), rng.random(500).round(values)
    cut, order = equal_count_bins(raw, value, 20)
    np.testing.assert_array_equal(order, np.lexsort((value, raw)))
    np.testing.assert_array_equal(cut.values, value[order])
    assert cut.rows.tolist() == [25.0] * 20

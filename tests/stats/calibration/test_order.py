"""The evidence that scores are in the wrong order, beside scipy's statistic of the same."""

from __future__ import annotations

import re

import numpy as np
import pytest
from scipy.stats import mannwhitneyu

from monitor.stats.calibration.order import refuse_reversed_scores


@pytest.mark.parametrize("decimals", [1, 2, 6])  # many ties, some, hardly any
def test_the_chance_told_is_the_share_of_pairs_in_order_ties_a_half(decimals):
    rng = np.random.default_rng(decimals)
    score = rng.random(400).round(decimals)
    right = rng.random(400) > score  # the likelier right, the smaller the score
    with pytest.raises(ValueError, match="would reverse the order") as refused:
        refuse_reversed_scores("platt", score[:, None], np.where(right, 0, 1))
    [chance] = re.findall(r"with a chance of ([\d.]+%) only", str(refused.value))
    area = mannwhitneyu(score[right], score[~right]).statistic / (right.sum() * (~right).sum())
    assert chance == f"{area:.1%}"

"""The table of samples in short: two pools of 4,000 requests."""

from __future__ import annotations

import numpy as np

from tests.fidelity.sampling import cost, measured, table
from tests.harness import kept


def test_a_sample_gives_about_what_the_whole_does_and_says_what_it_costs() -> None:
    by_way = measured(range(2), rows=4000, labelled=100, sizes=(1000,))
    whole, stratified = (np.mean(by_way[name], axis=0) for name in ("the whole", "stratified 1,000"))
    assert whole[2:4].tolist() == [0.0, 0.0]
    assert stratified[2] < 1.0, "points of accuracy; the standard error of 1,000 rows drawn evenly is 0.9"
    assert abs(stratified[6]) < 20, "per cent of the width"
    assert stratified[8] < whole[8]


def test_what_a_sample_is_told_to_cost_is_what_samples_differ_by() -> None:
    """Three standard errors of a variance of six samples of each of two pools."""
    costs = cost(2, rows=4000, labelled=100, many=600, samples=6, seeds=2)
    assert abs(costs.claimed - costs.measured) < 3 * costs.error
    assert costs.claimed < 0.6 * costs.evenly
    assert 0 < costs.claimed_wider < 10


def test_the_kept_table_is_of_a_run_in_full() -> None:
    text = kept(table)
    assert "means over 4 pools" in text
    assert all(f"stratified {size}" in text for size in ("1,000", "3,000", "10,000"))

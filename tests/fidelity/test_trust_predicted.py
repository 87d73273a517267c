"""The short form of `tests.fidelity.trust_predicted`: a few lives a case, seeded; and what it printed."""

from __future__ import annotations

import re

import numpy as np
from scipy.stats import binom

from tests.fidelity.trust_predicted import Case, life, table
from tests.harness import kept


def test_a_stream_without_a_change_keeps_its_trust() -> None:
    """More than 2 of 12 at 5 % have a chance of 2 %."""
    assert binom.sf(2, 12, 0.05) < 0.025
    found = [life(Case("stable", 5000, 10_000, 0.2), 100 + seed) for seed in range(12)]
    assert sum(one.losses > 0 for one in found) <= 2


def test_a_lasting_bias_is_found_and_costs_trust_for_a_few_windows_at_most() -> None:
    """28 windows after the change, 700 labels."""
    found = [life(Case("5 points", 5000, 20_000, 0.05), 100 + seed) for seed in range(4)]
    assert all(one.biased for one in found)
    assert np.mean([one.untrusted for one in found]) <= 0.1


def test_a_change_that_no_prediction_could_foresee_costs_the_trust_and_is_followed() -> None:
    found = [life(Case("20 points", 5000, 20_000, 0.2), 100 + seed) for seed in range(3)]
    assert all(one.losses >= 1 for one in found)
    assert max(one.untrusted for one in found) < 0.6, "28 of 40 windows come after the change"


def test_changes_in_every_window_cost_the_trust() -> None:
    assert life(Case("every window", 5000, 12_000, 0.2), 100).losses >= 1


def test_the_kept_table_says_so_too() -> None:
    rows = re.findall(
        r"^([\w ]+?) +[\d,]+ +[\d,]+ +\d+ +([\d.]+) % +[\d.]+ +([\d.]+) % +([\d.]+) %$",
        kept(table),
        re.MULTILINE,
    )
    assert len(rows) == 10
    for stream, lost, untrusted, biased in rows:
        if stream == "stable":
            assert float(lost) <= 5.0
        elif stream == "5 points":
            assert float(untrusted) <= 2.0
            assert float(biased) == 100.0
        elif stream in ("20 points", "every window"):
            assert float(lost) == 100.0

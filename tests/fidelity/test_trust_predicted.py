"""The short form of `tests.fidelity.trust_predicted`: a few lives a case, seeded; and what it printed."""

from __future__ import annotations

import re

import numpy as np
from scipy.stats import binom

from tests.fidelity.trust_predicted import CASES, Case, life, table
from tests.harness import kept


def test_a_stream_without_a_change_keeps_its_trust() -> None:
    """More than 2 of 12 at 5 % have a chance of 2 %."""
    assert binom.sf(2, 12, 0.05) < 0.025
    lives = [life(Case("stable", 5000, 10_000, 0.2), 100 + seed) for seed in range(12)]
    assert sum(len(one.losses) > 0 for one in lives) <= 2


def test_a_lasting_bias_is_found_and_costs_trust_for_a_few_windows_at_most() -> None:
    """28 windows after the change, 700 labels."""
    lives = [life(Case("5 points", 5000, 20_000, 0.05), 100 + seed) for seed in range(4)]
    assert all(one.biased for one in lives)
    assert np.mean([~one.trusted for one in lives]) <= 0.1


def test_a_change_that_no_prediction_could_foresee_costs_the_trust_for_a_window_or_two() -> None:
    """8 lives with 100 labels a window; tested against no bias, half of them took five windows or more."""
    lives = [life(Case("20 points", 5000, 20_000, 0.2), 100 + seed) for seed in range(8)]
    assert all(len(one.losses) >= 1 for one in lives)
    assert max(one.until_back for one in lives) <= 2
    assert sum(len(one.losses) for one in lives) <= 9, "it does not flap"


def test_trust_comes_back_too_after_a_bias_has_gone() -> None:
    lives = [life(Case("20 points gone", 5000, 20_000, 1.0), 100 + seed) for seed in range(3)]
    assert all(len(one.losses) >= 2 for one in lives), "it comes and it goes"
    assert max((~one.trusted).sum() for one in lives) <= 5


def test_changes_in_every_window_cost_the_trust() -> None:
    assert len(life(Case("every window", 5000, 12_000, 0.2), 100).losses) >= 1


def test_the_kept_table_says_so_too() -> None:
    number = r"([\d.]+|-)"
    rows = re.findall(
        rf"^([\w ]+?) +[\d,]+ +\d+ +\d+ +(\d+) % +(?:[\d.]+|-) +{number} +{number} +([\d.]+) +\d+"
        r" +([\d.]+) % +(\d+) %$",
        kept(table),
        re.MULTILINE,
    )
    assert len(rows) == len(CASES)
    for stream, lost, back, nine_of_ten, flaps, untrusted, biased in rows:
        if stream == "stable":
            assert float(lost) <= 5.0
        elif stream == "5 points":
            assert float(untrusted) <= 2.0
        elif stream in ("20 points", "every window", "20 points gone"):
            assert float(back) <= 2
            assert float(nine_of_ten) <= 3
        if "points" in stream:
            assert float(biased) == 100.0
            assert float(flaps) <= 0.1 or "gone" in stream

"""The short form of `tests.fidelity.trust`: 60 lives a case, seeded; and what it printed in full."""

from __future__ import annotations

import re

from scipy.stats import binom

from tests.fidelity.trust import alarms, calibrated_alarms, e_process, table
from tests.harness import kept

LIVES = 60


def test_at_most_five_percent_of_good_lives_alarm_and_five_points_are_found() -> None:
    """More than 7 of 60 at 5 % have a chance of 1.4 %; five points are found in every life in full."""
    assert binom.sf(7, LIVES, 0.05) < 0.02
    assert alarms(e_process, 0.0, LIVES, seed=5)[0] <= 7 / LIVES
    share, labels = alarms(e_process, 0.05, LIVES, seed=5)
    assert share >= 0.9
    assert labels is not None
    assert 150 < labels < 900


def test_what_the_reference_excuses_keeps_the_promise_with_a_calibration_on_a_thousand_rows() -> None:
    assert calibrated_alarms(1000, 0.0, LIVES, seed=5)[0] <= 7 / LIVES


def test_the_kept_table_says_so_too() -> None:
    rows = re.findall(r"^(e-process|[\d,]+ rows \(\d+ lives\)) +([\d.]+) % ", kept(table), re.MULTILINE)
    assert len(rows) == 4
    assert all(float(share) <= 5.0 for _, share in rows)

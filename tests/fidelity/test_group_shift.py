"""The short form of `tests.fidelity.group_shift`: 30 draws, seeded; and what it printed of 200."""

from __future__ import annotations

import re

from scipy.stats import binom

from tests.fidelity.group_shift import shifted, table
from tests.harness import kept


def test_labels_leave_a_right_group_where_it_is() -> None:
    """More than 2 of 30 at 1 % have a chance of 0.3 %."""
    assert binom.sf(2, 30, 0.01) < 0.005
    far, median = shifted(2500, 0.02, draws=30, seed=7)
    assert far <= 2 / 30
    assert median < 0.01


def test_the_kept_table_says_so_of_two_hundred_draws() -> None:
    rows = re.findall(r"^ +[\d,]+ +\d+ % +([\d.]+) % +[\d.]+ points$", kept(table), re.MULTILINE)
    assert len(rows) == 4
    assert all(float(far) <= 1.0 for far in rows)

"""The short form of `tests.fidelity.feature_health`: 60 streams, seeded; and what it printed of 2,000."""

from __future__ import annotations

import re

from tests.fidelity.feature_health import broken_by_chance, share_noticed, table
from tests.harness import kept


def test_a_feature_missing_in_a_tenth_of_the_rows_is_named_in_its_first_window() -> None:
    assert share_noticed(0.1, 0.01, streams=60) >= 59 / 60


def test_chance_breaks_no_sound_feature() -> None:
    broken, windows = broken_by_chance(years=0.005)
    assert (broken, windows) == (0, 180)


def test_the_kept_table_says_so() -> None:
    text = kept(table)
    shares = re.search(r"^ +10 % +([\d.]+) % +([\d.]+) % +([\d.]+) %$", text, re.MULTILINE)
    assert shares is not None
    assert min(map(float, shares.groups())) >= 99.0
    yearly = [float(each) for each in re.findall(r"a year: ([\d.]+)$", text, re.MULTILINE)]
    assert len(yearly) == 3
    assert max(yearly) < 1
    assert "simulated: 0 in" in text

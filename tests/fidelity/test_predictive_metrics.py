"""The short form of `tests.fidelity.predictive_metrics`: two references a case; and what it printed."""

from __future__ import annotations

import re

import pytest

from tests.fidelity.predictive_metrics import METRICS, coverage, table
from tests.harness import kept

COUNTED = ("accuracy", "precision", "recall", "specificity", "f1")


def test_a_short_reference_is_covered_for_every_metric() -> None:
    """3 references of 1,000: 36 windows of 500 rows; in full 93 to 96 % of the counted metrics."""
    cells = coverage("stable", 1000, lives=3, seed=7, sizes=(500,))
    for metric in METRICS:
        assert cells["predictive", metric, 500][0] >= cells["exact", metric, 500][0], metric
    assert sum(cells["predictive", metric, 500][0] for metric in COUNTED) / len(COUNTED) >= 0.85
    assert cells["predictive", "ece", 500][0] >= 0.8
    assert min(cells["exact", metric, 500][0] for metric in ("ece", "class_ece")) < 0.5


def test_what_moves_the_prevalence_widens_what_hangs_on_it() -> None:
    """2 references of 5,000 with drift: accuracy hardly moves, precision and recall do."""
    cells = coverage("OU drift", 5000, lives=2, seed=8, sizes=(2000,))

    def wider(metric: str) -> float:
        return float(cells["predictive", metric, 2000][1] - cells["exact", metric, 2000][1])

    assert wider("precision") > 2 * wider("accuracy")
    assert wider("recall") > 2 * wider("accuracy")


def test_the_kept_table_holds_what_is_said_of_stable_streams() -> None:
    """192 windows of 500 rows, 12 on each reference: two binomial errors are 3 points at least."""
    rows = re.findall(r"^stable +[\d,]+  (\w+) +(.+)$", kept(table), re.MULTILINE)
    assert len(rows) == 3 * len(METRICS)
    shares = [float(row.split()[8]) for metric, row in rows if metric in COUNTED]
    assert min(shares) == pytest.approx(96, abs=5)

"""The short form of `tests.fidelity.audit`: 2,000 batches of 30, seeded; and what it printed in full."""

from __future__ import annotations

import re
from math import sqrt

import pytest

from monitor.base.names import BATCH_ROWS
from tests.fidelity.audit import coverage_of, table
from tests.harness import kept

ERROR = sqrt(0.95 * 0.05 / 2000)  # of the trials


@pytest.mark.parametrize("mixture", ["original", "shifted"])
def test_calibrated_confidences_are_covered_at_least_as_often_as_promised(mixture: str) -> None:
    assert coverage_of(mixture, bias=0.0, batches=2000, seed=5) > 0.95 + 2 * ERROR  # 98.2 and 97.5 in full


def test_a_bias_of_ten_points_is_seen_and_one_of_three_hardly() -> None:
    ten, three = (coverage_of("original", bias=bias, batches=2000, seed=5) for bias in (0.10, 0.03))
    assert ten == pytest.approx(0.577, abs=3 * sqrt(0.577 * 0.423 / 2000))
    assert three == pytest.approx(0.923, abs=3 * sqrt(0.923 * 0.077 / 2000))


def test_on_the_flights_the_intervals_of_the_newest_calibration_on_labels_hold() -> None:
    """The printed shares of the whole year lie within two binomial errors of its batches."""
    rows = re.findall(r"^\w+ +([\d.]+)  by ([\d,]+) labels$", kept(table), re.MULTILINE)
    assert len(rows) == 4
    for share, labels in rows:
        batches = int(labels.replace(",", "")) / BATCH_ROWS
        assert float(share) > 95 - 200 * sqrt(0.95 * 0.05 / batches)

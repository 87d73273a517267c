"""The short form of `tests.fidelity.classes_coverage`: 60 windows of 100 rows, seeded; the kept table."""

from __future__ import annotations

import re
from math import sqrt

import numpy as np
import pytest

from monitor import CLASSIFICATION_METRICS, classification_estimates
from monitor.base.results import Estimate
from tests.fidelity.classes_coverage import CASES, confusion_counts, measure, table
from tests.harness import kept

TRIALS = 60


@pytest.mark.parametrize("name", CASES)
def test_coverage_is_the_mass_in_the_interval(name: str) -> None:
    """Four binomial errors, as 28 are looked at; below 95 % a point for the draws of those without a mass."""
    for row in measure(name, 100, TRIALS):
        assert row.judged + max(row.undefined, row.unknown) >= TRIALS
        exact = not np.isnan(row.mass)
        aim = row.mass if exact else 0.95
        slack = 4 * sqrt(aim * (1 - aim) / row.judged) + (0.0 if exact else 0.01)
        assert row.cover >= aim - slack, row.metric
        if exact:
            assert row.mass >= 0.95, row.metric


@pytest.mark.parametrize("name", CASES)
def test_what_was_realised_is_what_labels_give(name: str) -> None:
    """The estimate from certain scores is the metric of the labels."""
    case = CASES[name]
    window = case.draw(np.random.default_rng(8), 300)
    scores, predicted, truth = window
    estimates = classification_estimates(
        truth, predicted, CLASSIFICATION_METRICS, ranking=scores, **case.options
    )
    for metric, realised in case.realised(window).items():
        answer = estimates[metric]
        assert isinstance(answer, Estimate)
        assert answer.value == pytest.approx(realised, abs=1e-9), metric


def test_counts_of_the_confusion_matrix_are_covered_as_their_mass_says() -> None:
    """Nine counts, four binomial errors; few rows are of the rarest class, so that its mass is near 1."""
    cover, mass, width = np.moveaxis(confusion_counts(100, 200), -1, 0)
    assert (mass >= 0.95).all()
    assert (np.abs(cover - mass) <= 4 * np.sqrt(mass * (1 - mass) / 200) + 0.005).all()
    assert width[0, 0] > width[2, 0]


def test_the_kept_table_covers_what_is_aimed_at() -> None:
    """84 rows of 400 windows: none further from its mass than four binomial errors."""
    rows = re.findall(
        r"^(\w+) +(\d+) \w+ +([\d.]+) +([\d.]+|-) +([\d.]+) ",
        kept(table),
        re.MULTILINE,
    )
    assert len(rows) == 3 * 7 * len(CASES)
    for name, n, cover, mass, three in rows:
        aim = 95.0 if mass == "-" else float(mass)
        assert float(cover) >= aim - 4 / 3 * float(three) - (0.5 if mass == "-" else 0.01), (name, n)

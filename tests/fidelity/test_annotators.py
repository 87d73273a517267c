"""The short form of `tests.fidelity.annotators`: two runs, seeded, and the kept tables."""

from __future__ import annotations

import re

import pytest

from tests.fidelity import annotators
from tests.fidelity.ssme.compare import measure
from tests.fidelity.ssme.protocol import Pool
from tests.fidelity.ssme.suite import tasks
from tests.harness import kept


@pytest.fixture(scope="module")
def small() -> Pool:
    return next(task.pool for task in tasks("reporting") if task.name == "2c-3m-independent")


def test_the_calibrations_errors_stand_beside_the_papers(small: Pool) -> None:
    lines = annotators.calibration_lines(small, 2)
    errors = 100 * measure(small, ["bayesian_calibration"], 20, 2)["bayesian_calibration"].mean_error("auroc")
    assert len(lines) == 2 + len(annotators.LABELS)
    assert f"{errors.mean():.2f} ± {errors.std(ddof=1):5.2f} (5.22)" in lines[2]


@pytest.mark.filterwarnings("ignore::Warning")  # its own, of pandas
def test_a_second_implementation_says_the_same(small: Pool) -> None:
    """50 of its iterations: on three models the differences after 400 are the same to 1e-6."""
    largest, mean, _ = annotators.witnessed(small, 50, 2, iterations=50)
    assert largest < 0.01
    assert mean < 1e-3


def test_the_kept_difference_from_the_second_implementation_is_small() -> None:
    """Ours stops where all changes together are below 1e-5: the chances are nearer than a hundredth."""
    text = kept(annotators.table).split("\n\n")[0]
    rows = [re.split(r"\s+", line.strip()) for line in text.splitlines()[2:]]
    assert [int(row[0]) for row in rows] == list(annotators.LABELS)
    assert all(float(row[1]) < 0.01 and float(row[2]) < 1e-3 for row in rows)

"""The short form of `tests.fidelity.spe_digits`: two digits, three samples of 20 labels, seeded."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from tests.fidelity.spe_digits import TRUE_AUROC, best_three, measured_form, sampled, simulated


def test_the_curve_is_nearer_than_that_of_20_labels_alone() -> None:
    curves = [sampled(digit, 20, 3) for digit in (3, 6)]
    assert np.mean([one.area for one in curves]) < np.mean([one.naive for one in curves])
    assert all(((one.held >= 0.0) & (one.held <= 1.0)).all() for one in curves)


def test_the_simulated_scores_have_the_auroc_that_is_taken_for_true() -> None:
    """100,000 rows: the standard error of an AUROC of 0.97 is 0.06 points."""
    scores, truth = simulated(0.0, np.random.default_rng(0), 100_000)
    assert roc_auc_score(truth, scores[:, 0, 1]) == pytest.approx(TRUE_AUROC, abs=0.002)


def test_a_second_mode_is_what_the_intervals_do_not_know_and_labels_may_tell() -> None:
    """Three trials of 100 labels: ten points off and outside, where the right form is off by one or less."""
    right, wrong = (measured_form(second, 100, 3) for second in (0.0, 0.4))
    assert right.error < 0.015
    assert right.flagged == 0.0
    assert wrong.error > 0.05
    assert wrong.covered < 0.5


def test_the_families_that_fit_best_are_near_each_other() -> None:
    top = best_three(9, 0)
    assert len({short for short, _ in top}) == 3
    assert top[0][1] == 1.0
    assert all(0.8 < relative <= 1.0 for _, relative in top)

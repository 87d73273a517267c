"""The short form of `tests.fidelity.spe_digits`: two digits, three samples of 20 labels, seeded."""

from __future__ import annotations

import numpy as np

from tests.fidelity.spe_digits import areas, best_three


def test_the_curve_is_nearer_than_that_of_20_labels_alone() -> None:
    found = np.concatenate([areas(digit, 20, 3) for digit in (3, 6)])
    spe, naive = found.mean(axis=0)
    assert spe < naive


def test_the_families_that_fit_best_are_near_each_other() -> None:
    top = best_three(9, 0)
    assert len({short for short, _ in top}) == 3
    assert top[0][1] == 1.0
    assert all(0.8 < relative <= 1.0 for _, relative in top)

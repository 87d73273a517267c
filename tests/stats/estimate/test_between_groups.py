"""Partial pooling of the groups' biases: a slow witness, its laws, and what it does where nothing differs."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.special import expit, logit
from scipy.stats import binom, norm

from monitor.stats.estimate.between_groups import (
    ALONE,
    ALONE_SHARE,
    SPREADS,
    Deviation,
    beside,
    deviation,
    seen_from_model,
)
from monitor.stats.estimate.bias_law import LATTICE, STEP, BiasLaw, gains_of


def rows(n: int, shift: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    confidence = rng.beta(20, 2, n)
    return confidence, rng.random(n) < expit(logit(confidence) + shift)


def sums(groups: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    return np.stack([gains_of(*each).sum(axis=0) for each in groups])


def told(groups: list[tuple[np.ndarray, np.ndarray]], group: int) -> Deviation | None:
    gains = sums(groups)
    seen = seen_from_model(gains)
    return deviation(gains[group], seen[group], seen.sum(axis=0))


def slowly(groups: list[tuple[np.ndarray, np.ndarray]], group: int) -> Deviation | None:
    """By the docstring of the module: sums over all biases of the model and of each group, in floats."""
    likelihood = [
        np.array([math.exp(sum(np.log(np.where(right, p := expit(logit(c) + b), 1 - p)))) for b in LATTICE])
        for c, right in groups
    ]

    def prior(tau: float) -> np.ndarray:
        """(129, 129) of the group's bias given the model's."""
        apart = LATTICE[None] - LATTICE[:, None]
        far = norm.pdf(apart / ALONE)
        near = norm.pdf(apart / tau) if tau else (apart == 0).astype(float)
        near, far = (each / each.sum(axis=1, keepdims=True) for each in (near, far))
        return (1 - ALONE_SHARE) * near + ALONE_SHARE * far

    nothing = np.prod(likelihood, axis=0)
    weights, laws = [], []
    for tau in SPREADS:
        given = [prior(tau) @ each for each in likelihood]
        others = np.prod([each for i, each in enumerate(given) if i != group], axis=0)
        weights.append((others * given[group]).sum())
        joint = (others @ prior(tau)) * likelihood[group]
        laws.append(joint / joint.sum())
    if np.mean(weights) < 20 * nothing.sum():
        return None
    law = np.average(laws, axis=0, weights=weights)
    of_group, of_model = BiasLaw(law / law.sum()), BiasLaw(nothing / nothing.sum())
    return Deviation(of_group.mean - of_model.mean, max(of_group.variance - of_model.variance, 0.0))


@pytest.mark.parametrize("shifts", [(0.0, 0.0, 0.0), (-1.2, 0.3, 0.9), (0.0, 0.0, -1.5)])
def test_the_lattice_says_what_sums_over_all_biases_say(shifts: tuple[float, ...]) -> None:
    groups = [rows(n, shift, seed) for seed, (n, shift) in enumerate(zip((60, 150, 90), shifts, strict=True))]
    for group in range(3):
        found, expected = told(groups, group), slowly(groups, group)
        if expected is None:
            assert found is None
        else:
            assert found is not None
            # The lattice's normal is a walk, and ends at 3.2: a little off at the ends.
            assert found.mean == pytest.approx(expected.mean, abs=0.02)
            assert math.sqrt(found.variance) == pytest.approx(math.sqrt(expected.variance), abs=0.02)


def test_groups_that_are_alike_are_left_alone_in_nineteen_of_twenty_sets_at_least() -> None:
    """40 sets of six groups of 60 labels; at one in twenty more than 5 have a chance of 1.4 %."""
    assert binom.sf(5, 40, 1 / 20) < 0.02
    spoke = [told([rows(60, 0.0, 100 * i + k) for k in range(6)], 0) is not None for i in range(40)]
    assert sum(spoke) <= 5


def test_the_more_labels_a_group_has_the_more_its_own_decide() -> None:
    others = [rows(1500, shift, k) for k, shift in enumerate((-0.5, 0.4, 0.2, -0.3, 0.3))]
    found = [told([*others, rows(n, -0.8, 9)], 5) for n in (0, 20, 200, 5000)]
    means, spreads = zip(*((one.mean, math.sqrt(one.variance)) for one in found if one), strict=True)
    assert abs(means[0]) < 0.1
    assert spreads[0] == pytest.approx(0.4, abs=0.2), "without labels: as much as groups differ"
    assert all(one > other for one, other in itertools.pairwise(spreads))
    # The mean over labels is drawn by the group's own 5,000: its bias is 0.8 below none.
    assert means[1] > means[2] > -1.0


def test_one_group_that_jumps_among_many_alike_is_told_and_the_others_are_not_moved() -> None:
    alike = [rows(100, 0.0, k) for k in range(30)]
    lone, other = (told([*alike, rows(100, -1.5, 99)], place) for place in (30, 0))
    assert lone is not None
    assert other is not None
    assert lone.mean < -1.0
    assert abs(other.mean) < 0.2
    assert other.variance < 0.04


def test_neither_the_order_of_rows_nor_that_of_groups_can_be_seen() -> None:
    groups = [rows(200, shift, k) for k, shift in enumerate((-1.0, 0.5, 1.0))]
    turned = [(c[::-1], right[::-1]) for c, right in groups]
    assert told(groups, 0) == told(turned, 0) == told(groups[::-1], 2)


def test_a_law_is_moved_and_widened_by_just_the_deviation() -> None:
    law = BiasLaw(np.where(np.isclose(LATTICE, 0.5), 1.0, 0.0))
    for mean, variance in ((0.0, 0.0), (0.3, 0.01), (-0.512, 0.2)):
        found = beside(law, Deviation(mean, variance))
        assert found.mean == pytest.approx(0.5 + mean, abs=1e-6)
        assert found.variance == pytest.approx(variance, abs=STEP**2 / 4 + 1e-6)
    far = beside(law, Deviation(50.0, 0.0))
    assert far.mean == pytest.approx(LATTICE[-1], abs=0.01)

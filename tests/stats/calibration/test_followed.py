"""Following a curve through drift: a slow witness by integration, laws, and results of simulations."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import trapezoid
from scipy.special import expit, logit

from monitor.base.records import Floats
from monitor.stats.calibration.followed import STILL, STILL_PRIOR, WALKS, WORTH, FollowedCurves, Walk, follow
from monitor.stats.calibration.isotonic import Curve

LINE = Curve(np.array([0.0, 1.0]), np.array([0.0, 1.0]))


def labels(n: int, shift: float = 0.0, stretch: float = 1.0, seed: int = 0) -> tuple[Floats, Floats]:
    """Claimed chances (n, 1), and what came of chances with other log-odds."""
    rng = np.random.default_rng(seed)
    chance = expit(rng.normal(0.5, 1.5, (n, 1)))
    return chance, (rng.random((n, 1)) < expit(shift + stretch * logit(chance))) * 1.0


def followed(chance: Floats, happened: Floats, **more: object) -> FollowedCurves:
    return follow(chance, happened, np.ones(len(chance)), **more)  # type: ignore[arg-type]


def test_a_constant_shift_agrees_with_integration_over_a_grid() -> None:
    """The posterior mode and the evidence of one walk, within what the normal approximation may be off."""
    chance, happened = labels(200, shift=-0.5)
    walk = Walk(0.05, 0.0, 0.0, 0.0)
    grid = np.linspace(-2, 2, 4001)
    came = np.where(happened == 1, expit(logit(chance) + grid), expit(-logit(chance) - grid))
    logs = WORTH * np.log(came).sum(axis=0)
    prior = np.exp(-(grid**2) / (2 * 0.05)) / np.sqrt(2 * np.pi * 0.05)
    posterior = followed(chance, happened, walks=(STILL, walk))
    assert posterior.shift[1, 0] == pytest.approx(grid[np.argmax(np.log(prior) + logs)], abs=0.02)
    alone = WORTH * np.log(np.where(happened == 1, chance, 1 - chance)).sum()
    ratio = np.log(trapezoid(prior * np.exp(logs - alone), grid))
    assert np.log(posterior.weight[1] / posterior.weight[0]) == pytest.approx(ratio, abs=0.25)


@pytest.mark.slow
@pytest.mark.parametrize(("shift", "stretch"), [(-0.6, 1.0), (0.6, 1.0), (0.0, 0.4)])
def test_what_has_changed_is_found(shift: float, stretch: float) -> None:
    """10 streams of 500 labels: nearer to the true chances than the reference, by a third and more."""
    still, new, old = [], [], []
    for seed in range(10):
        chance, happened = labels(500, shift, stretch, seed)
        posterior = followed(chance, happened)
        true = expit(shift + stretch * logit(chance))
        still.append(posterior.still)
        new.append(np.abs(posterior.curve(LINE, 0)(chance) - true).mean())
        old.append(np.abs(chance - true).mean())
    assert np.mean(still) < 0.2
    assert np.mean(new) < 0.67 * np.mean(old)


@pytest.mark.simulation
def test_without_change_the_reference_is_believed_more_and_more() -> None:
    """8 streams each: the mean chance of no change rises with the labels."""
    means = [np.mean([followed(*labels(n, seed=seed)).still for seed in range(8)]) for n in (0, 200, 2000)]
    assert means[0] == pytest.approx(STILL_PRIOR)
    assert means == sorted(means)
    assert means[-1] > 0.6


def test_a_walk_that_turns_around_is_followed() -> None:
    first, second = labels(500, shift=0.8, seed=1), labels(500, shift=-0.8, seed=2)
    posterior = followed(*(np.concatenate(pair) for pair in zip(first, second, strict=True)))
    assert posterior.weight @ posterior.shift[:, 0] < -0.3


def test_a_row_of_weight_two_is_nearly_the_row_twice() -> None:
    chance, happened = labels(100, shift=-0.5)
    still = WALKS[:2]
    doubled = follow(chance, happened, np.full(100, 2.0), walks=still)
    twice = followed(np.repeat(chance, 2, axis=0), np.repeat(happened, 2, axis=0), walks=still)
    assert doubled.shift[1] == pytest.approx(twice.shift[1], abs=0.01)
    assert doubled.log_evidence == pytest.approx(twice.log_evidence, rel=0.02)


def test_curves_that_are_alike_count_once_and_missing_ones_not_at_all() -> None:
    chance, happened = labels(200, shift=-0.5)
    alone = followed(chance, happened)
    both = followed(np.repeat(chance, 2, axis=1), np.repeat(happened, 2, axis=1))
    np.testing.assert_allclose(both.weight, alone.weight)
    silent = np.concatenate([chance, np.full_like(chance, np.nan)], axis=1)
    posterior = followed(silent, np.repeat(happened, 2, axis=1))
    np.testing.assert_allclose(posterior.weight, alone.weight)
    assert not posterior.shift[:, 1].any()
    nothing = np.full((3, 1), np.nan)
    longer = followed(np.concatenate([chance, nothing]), np.concatenate([happened, np.zeros((3, 1))]))
    assert longer.log_evidence == pytest.approx(alone.log_evidence)


def test_curves_rise_and_stay_chances_whatever_the_labels() -> None:
    """Labels that contradict the scores flatten the curve, and never turn it around."""
    chance, happened = labels(500)
    steps = Curve(np.array([0.2, 0.4, 0.41, 0.8]), np.array([0.0, 0.1, 0.6, 1.0]))
    moved = followed(chance, 1.0 - happened).curve(steps, 0)
    assert (np.diff(moved.x) > 0).all()
    assert (np.diff(moved.y) >= 0).all()
    assert 0.0 <= moved.y[0] <= moved.y[-1] <= 1.0


def test_certain_claims_that_fail_are_no_infinite_surprise() -> None:
    posterior = followed(np.array([[0.0], [1.0]]), np.array([[1.0], [0.0]]))
    assert np.isfinite(posterior.log_evidence)
    assert posterior.weight.sum() == pytest.approx(1.0)

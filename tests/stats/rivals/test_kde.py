"""Kernel densities against scipy's and a slow loop; bandwidths against their formulas."""

from __future__ import annotations

import numpy as np
import pytest
from KDEpy.bw_selection import improved_sheather_jones
from scipy.special import logsumexp
from scipy.stats import gaussian_kde, norm

from monitor.base.records import Floats
from monitor.stats.rivals import kde
from monitor.stats.rivals.kde import ClassDensities, bandwidths
from tests.nearly import nearly


def slow(points: Floats, width: Floats, weights: Floats, at: Floats) -> Floats:
    """Return log densities (m, K), pair by pair in log space."""
    log_density = np.empty((len(at), weights.shape[1]))
    for i, x in enumerate(at):
        kernels = norm.logpdf(x, points, width).sum(axis=1)
        for k in range(weights.shape[1]):
            log_density[i, k] = logsumexp(kernels, b=weights[:, k]) - np.log(weights[:, k].sum())
    return log_density


@pytest.mark.parametrize("dimensions", [1, 3, 14])
def test_densities_are_those_of_a_slow_loop(dimensions: int) -> None:
    rng = np.random.default_rng(dimensions)
    points, width = rng.normal(size=(60, dimensions)), rng.uniform(0.1, 0.9, dimensions)
    weights = rng.dirichlet(np.ones(3), 60)
    densities = ClassDensities(points, width)
    np.testing.assert_allclose(densities.at_points(weights), slow(points, width, weights, points), rtol=1e-9)
    others = rng.normal(size=(11, dimensions))
    np.testing.assert_allclose(densities.at(others, weights), slow(points, width, weights, others), rtol=1e-9)


def test_one_dimension_is_scipys() -> None:
    rng = np.random.default_rng(1)
    points, weights = rng.normal(size=(80, 1)), rng.uniform(size=(80, 1))
    witness = gaussian_kde(points[:, 0], bw_method=1.0, weights=weights[:, 0])
    width = np.sqrt(witness.covariance[0])
    log_density = ClassDensities(points, width).at(np.linspace(-3, 3, 20)[:, None], weights)
    np.testing.assert_allclose(log_density[:, 0], witness.logpdf(np.linspace(-3, 3, 20)), rtol=1e-9)


def test_points_far_from_all_others_keep_their_digits() -> None:
    points = np.array([[0.0], [1.0], [2.0]])
    weights = np.array([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]])
    far = np.array([[500.0], [-900.0]])
    densities = ClassDensities(points, np.array([1.0]))
    np.testing.assert_allclose(
        densities.at(far, weights), slow(points, np.array([1.0]), weights, far), rtol=1e-9
    )


def test_a_class_without_weight_has_no_density() -> None:
    log_density = ClassDensities(np.zeros((4, 2)), np.ones(2)).at_points(np.array([[1.0, 0.0]] * 4))
    assert log_density[:, 0] == pytest.approx(-np.log(2 * np.pi))
    assert np.isneginf(log_density[:, 1]).all()


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    points, weights = rng.normal(size=(50, 4)), rng.dirichlet(np.ones(2), 50)
    whole = ClassDensities(points, np.full(4, 0.5)).at_points(weights)
    monkeypatch.setattr(kde, "_BLOCK_BYTES", 8 * 50 * 7)
    monkeypatch.setattr(kde, "_KEPT_BYTES", 0)
    np.testing.assert_allclose(ClassDensities(points, np.full(4, 0.5)).at_points(weights), whole, rtol=1e-12)


def test_bandwidths_are_kdepys_dimension_by_dimension() -> None:
    points = np.random.default_rng(4).normal(size=(300, 3)) * [1.0, 5.0, 0.1]
    widths, failed = bandwidths(points)
    assert failed == 0
    assert widths.tolist() == nearly([improved_sheather_jones(points[:, [d]]) for d in range(3)])


def test_rules_of_thumb() -> None:
    column = np.random.default_rng(5).standard_t(3, 500)
    points = column[:, None]
    assert bandwidths(points, "scott")[0][0] == pytest.approx(1.06 * column.std(ddof=1) * 500**-0.2)
    quartiles = np.subtract(*np.quantile(column, [0.75, 0.25])) / 1.349
    assert quartiles < column.std(ddof=1)
    assert bandwidths(points, "silverman")[0][0] == pytest.approx(0.9 * quartiles * 500**-0.2)


def test_columns_that_the_equation_cannot_solve_get_a_rule_of_thumb_or_1() -> None:
    points = np.stack(
        [np.zeros(40), np.repeat([0.0, 1.0], 20), np.random.default_rng(6).normal(size=40)], axis=1
    )
    widths, failed = bandwidths(points)
    assert widths[0] == 1.0
    assert failed == 1
    assert widths[1] == bandwidths(points, "silverman")[0][1] > 0
    assert 0 < widths[2] < 1


def test_an_unknown_rule_is_named() -> None:
    with pytest.raises(ValueError, match="bandwidth must be one of isj, silverman, scott, got 'sj'"):
        bandwidths(np.zeros((3, 1)), "sj")  # type: ignore[arg-type]

"""The normalizing flow: its mixture against scipy, its early stop, its extra; not the contract."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from monitor import SSMEFlow
from monitor.base.errors import MissingExtraError
from monitor.base.records import Floats, Ints
from monitor.cli.trial import ReferenceTrial
from monitor.config.file import config_from
from monitor.stats.rivals.flow import NormalMixture, Training, train_flow


def bent(rows: int = 600, seed: int = 0) -> tuple[Floats, Ints]:
    """Return two classes on two moons, standardised: no two normal distributions."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 2, rows)
    angle = np.pi * rng.random(rows)
    points = np.stack([np.cos(angle), np.sin(angle)], axis=1) * np.where(truth, -1, 1)[:, None]
    points += np.where(truth, 1.0, 0.0)[:, None] * [1.0, 0.5] + 0.1 * rng.normal(size=(rows, 2))
    return (points - points.mean(axis=0)) / points.std(axis=0), truth


def test_the_mixture_is_that_of_scipy() -> None:
    points, truth = bent()
    mixture = NormalMixture.fit(points, np.eye(2)[truth])
    for k in range(2):
        own = points[truth == k]
        covariance = np.cov(own.T, bias=True) + 1e-3 * np.eye(2)
        expected = multivariate_normal(own.mean(axis=0), covariance).logpdf(points) + np.log(
            (truth == k).mean()
        )
        np.testing.assert_allclose(mixture.joint(points)[:, k], expected, atol=1e-9)


@pytest.mark.parametrize("name", ["couplings", "width", "epochs"])
def test_a_setting_below_one_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must be at least 1, got 0"):
        SSMEFlow(**{name: 0})


def test_without_the_extra_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jax", None)
    points, truth = bent(40)
    odds = np.stack([1 / (1 + np.exp(-points)), 1 / (1 + np.exp(points))], axis=2)
    with pytest.raises(
        MissingExtraError, match=r"ssme_flow needs an optional package: pip install .*\[flow\]"
    ):
        SSMEFlow().fit(odds, np.where(np.arange(40) < 10, truth, -1))


def test_a_configuration_that_names_it_without_the_extra_is_refused_before_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    task = {"classes": ["ok", "toxic"], "estimators": ["average_confidence", "ssme_flow"]}
    config = config_from({"tasks": {"toxicity": task | {"ssme": {"models": ["a", "b"]}}}})
    assert ReferenceTrial(config).engine_settings().tasks.keys() == {"toxicity"}
    monkeypatch.setitem(sys.modules, "flowjax", None)
    with pytest.raises(
        MissingExtraError,
        match=r"^tasks\.toxicity\.estimators: ssme_flow needs an optional package: pip install .*\[flow\]",
    ):
        ReferenceTrial(config).engine_settings()


@pytest.mark.simulation
def test_a_flow_makes_bent_classes_normal_and_stops_when_held_out_rows_say_so() -> None:
    """Two moons with all labels: the flow misjudges fewer than half as many rows as a mixture alone."""
    points, truth = bent()
    known = np.eye(2)[truth]
    mixture = NormalMixture.fit(points, known)
    alone = (mixture.chances(points).argmax(axis=1) != truth).mean()
    training = Training(couplings=3, width=32, epochs=300)
    latent, epochs = train_flow(points, known > 0, mixture, training, np.random.default_rng(0))
    assert (mixture.chances(latent(points)).argmax(axis=1) != truth).mean() < alone / 2
    assert 20 <= epochs <= 300
    short = replace(training, epochs=10)
    once, again = (
        train_flow(points, known > 0, mixture, short, np.random.default_rng(0))[0] for _ in range(2)
    )
    np.testing.assert_array_equal(again(points), once(points))

"""SPE on scores drawn from known mixtures, and its public curves, thresholds and recalibration."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad
from sklearn.metrics import average_precision_score, roc_auc_score

from monitor import Estimate, Unknown
from monitor.labels import SPE
from monitor.labels.estimators.spe import FAMILIES, Curve, Threshold
from monitor.labels.estimators.spe.curves import Rates
from monitor.labels.estimators.spe.mixture import Points
from monitor.records import Floats, Ints

ROWS = 900
FAST = ("truncated_normal", "gamma")


def drawn(seed: int = 0, labelled: int = 30) -> tuple[Floats, Ints, Ints]:
    """Scores whose log odds are normal in each class, labels of the first rows, and the truth."""
    rng = np.random.default_rng(seed)
    truth = (rng.random(ROWS) < 0.3).astype(np.int64)
    odds = np.where(truth == 1, rng.normal(1.0, 1.0, ROWS), rng.normal(-2.0, 1.2, ROWS))
    chance = 1.0 / (1.0 + np.exp(-odds))
    scores = np.stack([1.0 - chance, chance], axis=1)[:, None]
    return scores, np.where(np.arange(ROWS) < labelled, truth, -1), truth


@pytest.fixture(scope="module")
def fit() -> SPE:
    scores, labels, _ = drawn()
    return SPE(families=FAST).fit(scores, labels)


@pytest.fixture(scope="module")
def sample() -> SPE:
    scores, labels, _ = drawn()
    return SPE(families=FAST, scope="sample").fit(scores, labels)


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_each_density_integrates_to_its_survival(name: str) -> None:
    family = FAMILIES[name]
    at = family.start(np.linspace(0.3, 0.9, 50), np.ones(50))[None]
    density = quad(lambda s: float(np.exp(family.log_density(at, np.array([s]))[0, 0])), 0.4, 0.8)[0]
    ends = family.survival(at, np.array([0.4, 0.8]))[0]
    assert density == pytest.approx(ends[0] - ends[1], abs=1e-7)
    assert 0.3 < density < 0.9


@pytest.mark.parametrize("name", ["truncated_normal", "truncated_t", "gompertz"])
def test_a_truncated_density_keeps_all_its_mass_above_zero(name: str) -> None:
    family = FAMILIES[name]
    at = np.array([[0.1, np.log(0.3), np.log(8.0)]])[:, : len(family.bounds)]
    assert family.survival(at, np.zeros(1))[0, 0] == pytest.approx(1.0)


def test_points_keep_the_rows_and_their_mean() -> None:
    rng = np.random.default_rng(0)
    scores, labels = rng.random(1000), rng.integers(-1, 2, 1000)
    points = Points.of(scores, labels, 50)
    assert points.unlabelled.sum() == (labels == -1).sum()
    assert points.scores @ points.positive == pytest.approx(scores[labels == 1].sum())


def test_metrics_of_a_mixture_are_found_from_30_labels(fit: SPE) -> None:
    scores, _, truth = drawn()
    wanted = {
        "auroc": roc_auc_score(truth, scores[:, 0, 1]),
        "average_precision": average_precision_score(truth, scores[:, 0, 1]),
    }
    for metric, value in wanted.items():
        found = fit.estimate(metric)
        assert isinstance(found, Estimate)
        assert found.lower <= value <= found.upper
        assert abs(found.value - value) < 0.04
    assert fit.estimate("ece") == Unknown("not defined for this task")
    assert fit.details["effective_draws"] > 100


@pytest.mark.parametrize("kind", ["precision_recall", "roc"])
def test_curves_have_bands_that_widen_with_their_level(kind: str, fit: SPE, sample: SPE) -> None:
    for of in (fit, sample):
        narrow, wide = (of.curve(kind, level=level) for level in (0.5, 0.95))  # type: ignore[arg-type]
        assert isinstance(narrow, Curve)
        assert isinstance(wide, Curve)
        assert (wide.lower <= narrow.lower).all()
        assert (narrow.upper <= wide.upper).all()
        assert (wide.lower <= wide.value).all()
        assert ((wide.lower >= 0) & (wide.upper <= 1)).all()
        assert (wide.upper - wide.lower).max() > 0.01


def test_the_sample_curve_with_all_labels_is_the_realised_one() -> None:
    scores, _, truth = drawn()
    fit = SPE(families=FAST[:1], scope="sample").fit(scores, truth)
    curve = fit.curve()
    assert isinstance(curve, Curve)
    np.testing.assert_array_equal(curve.lower, curve.upper)
    realised = Rates.of_labels(scores[:, 0, 1], truth[None].astype(float)).on_grid("precision_recall")[0]
    np.testing.assert_allclose(curve.value, realised)
    found = fit.estimate("auroc")
    assert isinstance(found, Estimate)
    assert found.upper - found.lower == pytest.approx(0.0, abs=1e-12)


def test_precision_at_a_recall_and_the_equal_error_rate_hold_the_truth(fit: SPE, sample: SPE) -> None:
    scores, _, truth = drawn()
    rates = Rates.of_labels(scores[:, 0, 1], truth[None].astype(float))
    for of in (fit, sample):
        at = of.precision_at_recall(0.8)
        error = of.equal_error_rate()
        assert isinstance(at, Estimate)
        assert isinstance(error, Estimate)
        assert at.lower <= rates.at_recall(np.array([0.8]))[0, 0] <= at.upper
        assert error.lower <= rates.equal_error()[0] <= error.upper


def test_a_threshold_meets_what_it_promises_or_is_unknown(fit: SPE, sample: SPE) -> None:
    scores, _, truth = drawn()
    for of in (fit, sample):
        found = of.threshold(0.7, 0.7)
        assert isinstance(found, Threshold)
        acted = scores[:, 0, 1] >= found.value
        assert truth[acted].mean() >= 0.7
        assert acted[truth == 1].mean() >= 0.7
        assert found.probability >= 0.9
        refused = of.threshold(1.0, 0.999)
        assert isinstance(refused, Unknown)
        assert "the highest is 0.0" in refused.reason


def test_recalibration_gives_the_chances_of_the_mixture(fit: SPE) -> None:
    odds = np.linspace(-2.5, 1.5, 9)
    chance = 1 / (1 + np.exp(-odds))
    high = 0.3 * np.exp(-0.5 * (odds - 1.0) ** 2)
    low = 0.7 * np.exp(-0.5 * ((odds + 2.0) / 1.2) ** 2) / 1.2
    found = fit.recalibrated(np.stack([1 - chance, chance], axis=1))
    np.testing.assert_allclose(found[:, 1], high / (high + low), atol=0.12)
    np.testing.assert_allclose(found.sum(axis=1), 1.0)


def test_each_model_has_a_fit_of_its_own(fit: SPE) -> None:
    scores, labels, _ = drawn()
    other = np.concatenate([scores[::-1], scores], axis=1)
    both = SPE(families=FAST).fit(other, labels)
    found, alone = both.estimate("auroc", 1), fit.estimate("auroc")
    assert isinstance(found, Estimate)
    assert isinstance(alone, Estimate)
    assert found.value == pytest.approx(alone.value, abs=0.01)
    assert len(both.families) == 2


def test_equal_scores_are_refused_with_the_reason() -> None:
    fit = SPE(families=FAST).fit(np.full((20, 1, 2), 0.5), np.tile([0, 1], 10))
    assert fit.refused == "scores all equal"
    assert fit.curve() == fit.equal_error_rate() == Unknown("scores all equal")


def test_bad_settings_and_questions_are_named(fit: SPE) -> None:
    with pytest.raises(ValueError, match="scope must be one of population, sample, got 'all'"):
        SPE(scope="all")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="scale must be one of logit, identity, got 'log'"):
        SPE(scale="log")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"families must be one of truncated_normal, .* got 'beta'"):
        SPE(families=["beta"])
    with pytest.raises(ValueError, match=r"families must be a list of at least one of .* got \[\]"):
        SPE(families=[])
    with pytest.raises(ValueError, match="kind must be one of precision_recall, roc, got 'pr'"):
        fit.curve("pr")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"recall must lie above 0 and be at most 1, got 90; 90 % is 0\.9"):
        fit.precision_at_recall(90)
    with pytest.raises(ValueError, match="probability must lie above 0 and be at most 1, got 0"):
        fit.threshold(0.5, 0.5, 0)
    with pytest.raises(ValueError, match="level must lie between 0 and 1"):
        fit.curve(level=95)

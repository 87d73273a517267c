"""SPE on scores drawn from known mixtures, and its public curves, thresholds and recalibration."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace
from scipy.integrate import quad
from sklearn.metrics import average_precision_score, roc_auc_score

from monitor import SPE, Estimate, Unknown
from monitor.base.records import Floats, Ints
from monitor.base.results import Reason
from monitor.engine.refit.fit import refit
from monitor.stats.rivals.spe import FAMILIES, PerformanceCurve, Threshold
from monitor.stats.rivals.spe.checks import labels_z
from monitor.stats.rivals.spe.curves import Rates
from monitor.stats.rivals.spe.mixture import Points, allotted
from tests.engine.refit.jobs import job
from tests.nearly import nearly

ROWS = 900
FAST = ("truncated_normal", "gamma")


def simulated(seed: int = 0, labelled: int = 30) -> tuple[Floats, Ints, Ints]:
    """Return scores whose log odds are normal in each class, labels of the first rows, and the truth."""
    rng = np.random.default_rng(seed)
    truth = (rng.random(ROWS) < 0.3).astype(np.int64)
    odds = np.where(truth == 1, rng.normal(1.0, 1.0, ROWS), rng.normal(-2.0, 1.2, ROWS))
    chance = 1.0 / (1.0 + np.exp(-odds))
    scores = np.stack([1.0 - chance, chance], axis=1)[:, None]
    return scores, np.where(np.arange(ROWS) < labelled, truth, -1), truth


def with_a_second_mode() -> tuple[Floats, Ints, Ints]:
    """Return the rows of `simulated` with a second model: three in ten of its positive rows score like
    negative ones.
    """
    scores, labels, truth = simulated(labelled=60)
    rng = np.random.default_rng(1)
    hidden = rng.random(ROWS) < 0.3
    positive = np.where(hidden, rng.normal(-2.5, 0.5, ROWS), rng.normal(3.0, 1.0, ROWS))
    chance = 1.0 / (1.0 + np.exp(-np.where(truth == 1, positive, rng.normal(-2.5, 1.0, ROWS))))
    return np.concatenate([scores, np.stack([1.0 - chance, chance], axis=1)[:, None]], axis=1), labels, truth


@pytest.fixture(scope="module")
def fit() -> SPE:
    scores, labels, _ = simulated()
    return SPE(families=FAST).fit(scores, labels)


@pytest.fixture(scope="module")
def sample() -> SPE:
    scores, labels, _ = simulated()
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
    points = Points.from_scores(scores, labels, 50)
    assert points.unlabelled.sum() == nearly(float((labels == -1).sum()))
    assert points.scores @ points.positive == pytest.approx(scores[labels == 1].sum())


@pytest.mark.slow
def test_metrics_of_a_mixture_are_found_from_30_labels(fit: SPE) -> None:
    scores, _, truth = simulated()
    wanted = {
        "auroc": roc_auc_score(truth, scores[:, 0, 1]),
        "average_precision": average_precision_score(truth, scores[:, 0, 1]),
    }
    for metric, value in wanted.items():
        estimate = fit.estimate(metric)
        assert isinstance(estimate, Estimate)
        assert estimate.lower <= value <= estimate.upper
        assert abs(estimate.value - value) < 0.04
    assert fit.estimate("ece") == Unknown("not defined for this task")
    assert fit.details["effective_draws"] > 100


@pytest.mark.parametrize("kind", ["precision_recall", "roc"])
def test_curves_have_bands_that_widen_with_their_level(kind: str, fit: SPE, sample: SPE) -> None:
    for of in (fit, sample):
        narrow, wide = (of.curve(kind, level=level) for level in (0.5, 0.95))  # type: ignore[arg-type]
        assert isinstance(narrow, PerformanceCurve)
        assert isinstance(wide, PerformanceCurve)
        assert (wide.lower <= narrow.lower).all()
        assert (narrow.upper <= wide.upper).all()
        assert (wide.lower <= wide.value).all()
        assert ((wide.lower >= 0) & (wide.upper <= 1)).all()
        assert (wide.upper - wide.lower).max() > 0.01


def test_the_sample_curve_with_all_labels_is_the_realised_one() -> None:
    scores, _, truth = simulated()
    fit = SPE(families=FAST[:1], scope="sample").fit(scores, truth)
    curve = fit.curve()
    assert isinstance(curve, PerformanceCurve)
    np.testing.assert_array_equal(curve.lower, curve.upper)
    realised = Rates.from_labels(scores[:, 0, 1], truth[None].astype(float)).on_grid("precision_recall")[0]
    np.testing.assert_allclose(curve.value, realised)
    estimate = fit.estimate("auroc")
    assert isinstance(estimate, Estimate)
    assert estimate.upper - estimate.lower == pytest.approx(0.0, abs=1e-12)


def test_precision_at_a_recall_and_the_equal_error_rate_hold_the_truth(fit: SPE, sample: SPE) -> None:
    scores, _, truth = simulated()
    rates = Rates.from_labels(scores[:, 0, 1], truth[None].astype(float))
    for of in (fit, sample):
        at = of.precision_at_recall(0.8)
        error = of.equal_error_rate()
        assert isinstance(at, Estimate)
        assert isinstance(error, Estimate)
        assert at.lower <= rates.at_recall(np.array([0.8]))[0, 0] <= at.upper
        assert error.lower <= rates.equal_error()[0] <= error.upper


def test_a_threshold_meets_what_it_promises_or_is_unknown(fit: SPE, sample: SPE) -> None:
    scores, _, truth = simulated()
    for of in (fit, sample):
        threshold = of.threshold(0.7, 0.7)
        assert isinstance(threshold, Threshold)
        acted = scores[:, 0, 1] >= threshold.value
        assert truth[acted].mean() >= 0.7
        assert acted[truth == 1].mean() >= 0.7
        assert threshold.probability >= 0.9
        refused = of.threshold(1.0, 0.999)
        assert isinstance(refused, Unknown)
        assert "the highest is 0.0" in refused.reason


def test_recalibration_gives_the_chances_of_the_mixture(fit: SPE) -> None:
    odds = np.linspace(-2.5, 1.5, 9)
    chance = 1 / (1 + np.exp(-odds))
    high = 0.3 * np.exp(-0.5 * (odds - 1.0) ** 2)
    low = 0.7 * np.exp(-0.5 * ((odds + 2.0) / 1.2) ** 2) / 1.2
    recalibrated = fit.recalibrated(np.stack([1 - chance, chance], axis=1))
    np.testing.assert_allclose(recalibrated[:, 1], high / (high + low), atol=0.12)
    np.testing.assert_allclose(recalibrated.sum(axis=1), 1.0)


@pytest.mark.slow
def test_each_model_has_a_fit_of_its_own(fit: SPE) -> None:
    scores, labels, _ = simulated()
    other = np.concatenate([scores[::-1], scores], axis=1)
    both = SPE(families=FAST).fit(other, labels)
    estimate, alone = both.estimate("auroc", 1), fit.estimate("auroc")
    assert isinstance(estimate, Estimate)
    assert isinstance(alone, Estimate)
    assert estimate.value == pytest.approx(alone.value, abs=0.01)
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


@pytest.mark.slow
def test_labels_that_contradict_the_fit_of_a_model_are_flagged(fit: SPE) -> None:
    """Three in ten of the positive rows score like the negative ones: that fit is too sure, and flagged."""
    assert Reason.CONTRADICTED not in fit.flags
    assert fit.details["labels_z"] < 3.0
    scores, labels, truth = with_a_second_mode()
    both = SPE(families=FAST).fit(scores, labels)
    estimate = both.estimate("auroc", 1)
    assert isinstance(estimate, Estimate)
    assert estimate.lower > roc_auc_score(truth, scores[:, 1, 1]) + 0.05
    assert Reason.CONTRADICTED in both.flags
    assert both.details["labels_z"] > 3.0
    assert [both.contradicted(model) for model in (0, 1)] == [False, True]
    with pytest.raises(ValueError, match="model must be a column of the scores, from 0 to 1, got 2"):
        both.contradicted(2)
    assert not both.fit(np.full_like(scores, 0.5), labels).contradicted(1)


@pytest.mark.slow
def test_a_refit_publishes_nothing_of_a_model_whose_fit_is_contradicted() -> None:
    scores, labels, _ = with_a_second_mode()
    refit_job = replace(
        job(rows=len(labels), models=2, estimators=("spe", "labelled"), calibrate=False),
        scores=scores.astype(np.float32),
        labels=labels,
        predicted=scores.argmax(axis=2),
    )
    results = {name: [e.result for e in of.estimates] for name, of in refit(refit_job).models.items()}
    assert all(isinstance(result, Estimate) for result in (*results["a"], results["b"][1]))
    assert results["b"][0] == Unknown("labels contradict the fit")


def test_the_z_of_labels_is_standard_normal_where_the_chances_are_right() -> None:
    """4,000 draws: the standard error of the deviation is 1.1 %, of the mean 1.6 %; four of them."""
    rng = np.random.default_rng(5)
    chance = rng.beta(1, 3, (4000, 60))
    z = [labels_z(p, (u < p).astype(float)) for p, u in zip(chance, rng.random(chance.shape), strict=True)]
    assert np.mean(z) == pytest.approx(0.0, abs=0.064)
    assert np.std(z) == pytest.approx(1.0, abs=0.045)
    assert labels_z(np.full(5, 0.5), np.ones(5)) == 0.0
    assert labels_z(np.array([0.0, 1.0]), np.array([1.0, 0.0])) > 1e5


def test_pairs_share_the_draws_by_what_speaks_for_them() -> None:
    """e² against 1: 88 of 100 draws; all are given out."""
    assert allotted(np.array([-7.0, -9.0]), 100).tolist() == [88, 12]
    assert allotted(np.array([0.0, -800.0]), 100).tolist() == [100, 0]
    assert allotted(np.log([0.335, 0.333, 0.332]), 10).sum() == 10


@pytest.mark.slow
def test_the_interval_holds_the_doubt_between_families() -> None:
    """Rightly normal log odds: that alone, and the same among four families whose fits are about as good."""
    scores, labels, _ = simulated(3)
    sure = SPE(families=FAST[:1]).fit(scores, labels).estimate("auroc")
    fit = SPE(families=(*FAST, "gumbel_left", "log_normal")).fit(scores, labels)
    doubtful = fit.estimate("auroc")
    assert isinstance(sure, Estimate)
    assert isinstance(doubtful, Estimate)
    assert doubtful.upper - doubtful.lower > 1.1 * (sure.upper - sure.lower)
    curve = fit.curve()
    assert isinstance(curve, PerformanceCurve)
    assert (curve.lower <= curve.upper).all()

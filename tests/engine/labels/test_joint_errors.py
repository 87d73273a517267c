"""The joint errors of several models' accuracies, on which the χ² set of their ranks rests."""

from __future__ import annotations

import numpy as np
import pytest

from monitor import ESTIMATORS, AutoEval, Labelled, prediction_powered
from monitor.base.records import Floats, Ints
from monitor.stats.labelled.base import LabelEstimator
from monitor.stats.labelled.powered import effective_trials
from tests.stats.labelled.contract import KNOW_THEIR_ERRORS, problem, usual


@pytest.mark.parametrize("tag", sorted(KNOW_THEIR_ERRORS))
def test_models_in_another_order_are_the_same_models(tag: str) -> None:
    scores, labels = problem()
    covariance = usual(tag).covariance("accuracy")
    order = [2, 0, 1]
    moved = ESTIMATORS[tag]().fit(scores[:, order], labels).covariance("accuracy")
    np.testing.assert_allclose(moved, covariance[np.ix_(order, order)], rtol=1e-9)


def test_the_variance_of_each_model_is_that_behind_its_own_interval() -> None:
    """An effective number of labels gives it, beside p(1 − p) with the same two rows more."""
    rng = np.random.default_rng(0)
    scores, labels = problem()
    weights = rng.uniform(1.0, 5.0, len(labels))
    fit = AutoEval(lam=0.7).fit(scores, labels, weights=weights)
    covariance = fit.covariance("accuracy")
    known = labels >= 0
    for m in range(3):
        right = (scores[:, m].argmax(axis=1) == labels)[known].astype(float)
        expected, w = scores[:, m].max(axis=1), weights[known]
        heavy = float(w @ w / w.sum())
        share = (float(w @ right) + heavy) / (w.sum() + 2 * heavy)
        more = np.r_[w, heavy, heavy]
        alone = share * (1 - share) * float(more @ more) / float(more.sum()) ** 2
        kish = float(w.sum() ** 2 / (w @ w))
        trials = effective_trials(right, expected[known], expected, w, 0.7)
        assert covariance[m, m] == pytest.approx(kish * alone / trials)


def simulated(rng: np.random.Generator, shared: float, rows: int, labelled: int) -> tuple[Floats, Ints]:
    """Return three models of which the second and third see much of the same noise; labels of a random
    sample.
    """
    truth = rng.integers(0, 2, rows)
    own = rng.normal(size=(rows, 3))
    own[:, 2] = shared * own[:, 1] + np.sqrt(1 - shared**2) * own[:, 2]
    logit = (2 * truth - 1)[:, None] * 0.8 + own
    chance = 1 / (1 + np.exp(-1.6 * logit))
    return np.stack([1 - chance, chance], axis=2), np.where(np.arange(rows) < labelled, truth, -1)


@pytest.mark.simulation
@pytest.mark.parametrize(
    ("make", "trials", "labelled"),
    [
        (Labelled, 400, 60),
        (AutoEval, 400, 60),
        (lambda: AutoEval(annotator="mean"), 400, 60),
    ],
)
def test_it_is_the_scatter_of_the_estimates(make, trials: int, labelled: int) -> None:
    """The scatter is of differences between models, over seeded data sets: an sd is known to 1 / √(2 ·
    trials).

    The two rows more make it wider: by 1 / 60 of the sums, and by their own variance.
    """
    values, variances = np.empty((trials, 3)), np.empty((trials, 2))
    for trial in range(trials):
        fit: LabelEstimator = make().fit(*simulated(np.random.default_rng(trial), 0.95, 600, labelled))
        values[trial] = [fit.estimate("accuracy", m).value for m in range(3)]
        c = fit.covariance("accuracy")
        variances[trial] = c[0, 0] + c[1, 1] - 2 * c[0, 1], c[1, 1] + c[2, 2] - 2 * c[1, 2]
    for pair, at in (((0, 1), 0), ((1, 2), 1)):
        ratio = float(np.sqrt(variances[:, at].mean()) / (values[:, pair[0]] - values[:, pair[1]]).std())
        allowed = 3 / np.sqrt(2 * trials)
        assert 1.0 - allowed <= ratio <= 1.25 + allowed, (pair, ratio)
    assert variances[:, 1].mean() < 0.7 * variances[:, 0].mean(), (
        "models that err alike are told apart more easily"
    )


def test_a_few_labels_that_are_all_alike_do_not_tell_models_apart() -> None:
    """One is right on all of 3 labels, the other on none: no row differs from another, and it is little."""
    rows = 200
    scores = np.tile([[[0.2, 0.8], [0.8, 0.2]]], (rows, 1, 1))
    labels = np.where(np.arange(rows) < 3, 1, -1)
    c = Labelled().fit(scores, labels).covariance("accuracy")
    assert c[0, 0] + c[1, 1] - 2 * c[0, 1] > 0.2**2
    plain = prediction_powered(np.ones((3, 1)), np.ones((3, 1)), np.ones((9, 1)), lam=0.0)
    assert plain.covariance[0, 0] == 0.0


def test_a_model_without_a_labelled_row_has_no_error_that_is_known_and_takes_it_from_no_other() -> None:
    scores, labels = problem()
    whole = Labelled().fit(scores, labels).covariance("accuracy")
    scores[labels >= 0, 1] = np.nan
    covariance = Labelled().fit(scores, labels).covariance("accuracy")
    assert np.isnan(covariance[1]).all()
    assert np.isnan(covariance[:, 1]).all()
    np.testing.assert_allclose(covariance[np.ix_([0, 2], [0, 2])], whole[np.ix_([0, 2], [0, 2])])


def test_models_that_answered_other_rows_have_independent_errors() -> None:
    scores, labels = problem(models=2, labelled=80)
    scores[::2, 0], scores[1::2, 1] = np.nan, np.nan
    c = Labelled().fit(scores, labels).covariance("accuracy")
    assert abs(c[0, 1]) < 0.05 * np.sqrt(c[0, 0] * c[1, 1])
    assert Labelled().fit(scores, np.full(len(labels), -1)).covariance("accuracy") is None

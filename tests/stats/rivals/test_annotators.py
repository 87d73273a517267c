"""The paper's rivals: pseudo-labels, votes, Dawid and Skene, Bayesian calibration; against other code."""

from __future__ import annotations

import numpy as np
import pandas
import pytest
from scipy.special import expit
from sklearn import linear_model

from monitor import BayesianCalibration, DawidSkene, Estimate, MajorityVote, PseudoLabel, Unknown
from monitor.base.records import Floats, Ints
from monitor.base.results import Reason
from monitor.stats.rivals import dawid_skene
from monitor.stats.rivals.bayesian_calibration import CLIP, PRIOR
from monitor.stats.rivals.dawid_skene import ITERATIONS, TOLERANCE
from tests.nearly import nearly


def softmax_scores(classes: int, rows: int = 300, models: int = 3, seed: int = 0) -> tuple[Floats, Ints]:
    rng = np.random.default_rng([seed, classes])
    truth = rng.integers(0, classes, rows)
    logits = 2.0 * np.eye(classes)[truth][:, None] + rng.normal(size=(rows, models, classes))
    return np.exp(logits) / np.exp(logits).sum(axis=2, keepdims=True), truth


def first(truth: Ints, labelled: int) -> Ints:
    return np.where(np.arange(len(truth)) < labelled, truth, -1)


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("weighted", [False, True])
def test_pseudo_labels_are_scikit_learns_default_logistic_regression(classes: int, weighted: bool) -> None:
    scores, truth = softmax_scores(classes)
    labels = first(truth, 60)
    weights = np.where(np.arange(300) % 2 == 0, 1.0, 3.0) if weighted else None
    fit = PseudoLabel().fit(scores, labels, weights=weights)
    features = scores[:, :, 1] if classes == 2 else scores.reshape(300, -1)
    used = None if weights is None else weights[:60] * weights[:60].sum() / (weights[:60] @ weights[:60])
    other = linear_model.LogisticRegression(tol=1e-10, max_iter=10_000)
    other.fit(features[:60], truth[:60], sample_weight=used)
    np.testing.assert_allclose(fit.predict(scores), other.predict_proba(features), atol=2e-5)


def test_pseudo_labels_need_two_classes_and_give_none_to_one_without_labels() -> None:
    scores, truth = softmax_scores(3)
    fit = PseudoLabel()
    assert fit.fit(scores, np.full(300, -1)).estimate("accuracy") == Unknown(Reason.NO_LABELS)
    assert fit.fit(scores, np.where(truth == 1, 1, -1)).estimate("accuracy") == Unknown(Reason.TOO_FEW_LABELS)
    two = fit.fit(scores, np.where(truth == 1, -1, truth))
    assert two.flags == ("a class without labels",)
    assert two.predict(scores)[:, 1].max() == 0.0


@pytest.mark.slow
def test_the_spread_of_pseudo_labels_shrinks_with_the_labels() -> None:
    """Laplace: the standard error of a logistic regression falls with the root of the labels."""
    scores, truth = softmax_scores(2, rows=4000, models=1)
    widths = []
    for labelled in (50, 800):
        estimate = PseudoLabel().fit(scores, first(truth, labelled)).estimate("accuracy")
        assert isinstance(estimate, Estimate)
        widths.append(estimate.upper - estimate.lower)
    assert widths[1] < widths[0] / 2


def test_votes_weigh_as_their_models_are_right_on_the_labelled_rows() -> None:
    votes = np.array([[1, 1, 0], [1, 1, 0], [0, 0, 1], [0, 1, 1], [1, 0, 1]])
    truth = np.array([0, 0, 1, -1, -1])  # the third model is always right, the others never
    fit = MajorityVote().fit(np.eye(2)[votes], truth)
    assert fit.posterior.argmax(axis=1).tolist() == [0, 0, 1, 1, 1]
    tied = MajorityVote().fit(np.eye(2)[votes[:, :2]], np.full(5, -1))
    assert tied.posterior == nearly(np.array([[0, 1], [0, 1], [1, 0], [0.5, 0.5], [0.5, 0.5]]))
    assert tied.flags == ("no labels",)


def test_a_model_without_labelled_answers_votes_like_the_mean_of_the_others() -> None:
    votes = np.eye(2)[np.array([[0, 1, 0], [0, 1, 0], [0, 1, 1], [1, 0, 0]])]
    votes[:2, 2] = np.nan
    fit = MajorityVote().fit(votes, np.array([0, 0, -1, -1]))  # weights 1, 0 and their mean, ½
    assert fit.posterior[2:].argmax(axis=1).tolist() == [0, 1]


def annotated(models: int = 4, rows: int = 250, classes: int = 3, worst: float = 0.6) -> tuple[Ints, Ints]:
    """Return answers of annotators, right in 85 % to `worst` of the rows and −1 where missing, and the
    truth.
    """
    rng = np.random.default_rng(3)
    truth = rng.choice(classes, rows, p=[0.5, 0.3, 0.2] if classes == 3 else [0.6, 0.4])
    wrong = (truth[:, None] + rng.integers(1, classes, (rows, models))) % classes
    votes = np.where(rng.random((rows, models)) < np.linspace(0.85, worst, models), truth[:, None], wrong)
    return np.where(rng.random((rows, models)) < 0.1, -1, votes), truth


def as_scores(votes: Ints, classes: int = 3) -> Floats:
    scores = np.eye(classes)[votes]
    scores[votes < 0] = np.nan
    return scores


def slow_em(votes: Ints, labels: Ints, classes: int) -> tuple[Floats, int]:
    """Dawid and Skene's equations as they are printed, row by row, and the iterations until they settle."""
    rows, models = votes.shape

    def clamp(chance: Floats) -> Floats:
        return np.array([np.eye(classes)[y] if y >= 0 else r for r, y in zip(chance, labels, strict=True)])

    def maximise(chance: Floats) -> tuple[Floats, Floats]:
        answers = np.zeros((models, classes, classes))
        for i in range(rows):
            for m in range(models):
                if votes[i, m] >= 0:
                    answers[m, :, votes[i, m]] += chance[i]
        return chance.mean(axis=0), answers / answers.sum(axis=2, keepdims=True)

    def expect(shares: Floats, answers: Floats) -> Floats:
        chance = np.tile(shares, (rows, 1))
        for i in range(rows):
            for m in range(models):
                if votes[i, m] >= 0:
                    chance[i] *= answers[m, :, votes[i, m]]
        return clamp(chance / chance.sum(axis=1, keepdims=True))

    counts = np.array([[np.sum(row == k) for k in range(classes)] for row in votes], dtype=float)
    answered = counts.sum(axis=1, keepdims=True)
    shares, answers = maximise(clamp(np.where(answered > 0, counts / np.maximum(answered, 1), 1 / classes)))
    iteration, before = 0, (np.inf * shares, answers)
    while (
        iteration < ITERATIONS
        and max(np.abs(shares - before[0]).sum(), np.abs(answers - before[1]).sum()) >= TOLERANCE
    ):
        iteration, before = iteration + 1, (shares, answers)
        shares, answers = maximise(expect(shares, answers))
    return expect(shares, answers), iteration


@pytest.mark.slow
@pytest.mark.parametrize("labelled", [0, 40])
def test_dawid_and_skene_equal_a_slow_witness(labelled: int) -> None:
    votes, truth = annotated()
    labels = first(truth, labelled)
    fit = DawidSkene().fit(as_scores(votes), labels)
    expected, iterations = slow_em(votes, labels, 3)
    np.testing.assert_allclose(fit.posterior, expected, atol=1e-9)
    assert fit.iterations == iterations
    assert fit.converged == (iterations < ITERATIONS)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::Warning")  # its own, of pandas
def test_dawid_and_skene_equal_crowd_kit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second implementation, by Toloka. Both run until they stand still: they stop by different rules, and
    where a chance goes to 0, crowd-kit's smallest one, 1e-10, lets its bound stand still first. With good
    annotators both do so soon."""
    from crowdkit import aggregation  # it imports nltk, so not at the top: each worker imports all modules

    monkeypatch.setattr(dawid_skene, "ITERATIONS", 5000)
    monkeypatch.setattr(dawid_skene, "TOLERANCE", 1e-12)
    votes, truth = annotated(models=5, rows=250, classes=2, worst=0.8)
    for labels, enough in ((first(truth, 0), 60), (first(truth, 40), 40)):
        rows, models = np.nonzero(votes >= 0)
        table = pandas.DataFrame({"task": rows, "worker": models, "label": votes[rows, models]})
        known = pandas.Series({i: y for i, y in enumerate(labels) if y >= 0 and (votes[i] >= 0).any()})
        other = aggregation.DawidSkene(n_iter=enough, tol=0.0)
        other.fit(table, true_labels=known if len(known) else None)
        theirs = other.probas_[[0, 1]]
        fit = DawidSkene().fit(as_scores(votes, 2), labels)
        np.testing.assert_allclose(fit.posterior[theirs.index], theirs.to_numpy(), atol=1e-6)


@pytest.mark.slow
def test_independent_annotators_are_told_apart_without_labels() -> None:
    """4,000 rows: an accuracy has a binomial standard error of 0.8 points; three of them are allowed."""
    rng = np.random.default_rng(0)
    truth = (rng.random(4000) < 0.4).astype(int)
    chance = np.array([0.95, 0.85, 0.75, 0.6])
    votes = np.where(rng.random((4000, 4)) < chance, truth[:, None], 1 - truth[:, None])
    fit = DawidSkene().fit(np.eye(2)[votes], np.full(4000, -1))
    for model, right in enumerate((votes == truth[:, None]).mean(axis=0)):
        estimate = fit.estimate("accuracy", model)
        assert isinstance(estimate, Estimate)
        assert estimate.value == pytest.approx(right, abs=0.024)
        assert estimate.lower < right < estimate.upper


def test_copies_of_a_model_are_taken_for_the_truth() -> None:
    """The assumption broken: three copies of a model with 70 % are said to be nearly perfect."""
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 2, 1000)
    one = np.where(rng.random(1000) < 0.7, truth, 1 - truth)
    votes = np.stack([one, one, one, np.where(rng.random(1000) < 0.8, truth, 1 - truth)], axis=1)
    estimate = DawidSkene().fit(np.eye(2)[votes], first(truth, 20)).estimate("accuracy", 0)
    assert isinstance(estimate, Estimate)
    assert estimate.lower > 0.9


def curved(rows: int, seed: int, a: float = 0.7, b: float = 0.6, c: float = 0.5) -> tuple[Floats, Ints]:
    """Return scores whose calibration curve is in the family, on the range that is not clipped."""
    rng = np.random.default_rng(seed)
    s = np.clip(rng.beta(0.7, 0.9, rows), CLIP, 1 - CLIP)
    chance = expit(a * np.log(s) - b * np.log1p(-s) + c)
    return np.stack([1 - s, s], axis=1)[:, None], (rng.random(rows) < chance).astype(int)


@pytest.mark.slow
def test_the_drawn_curves_are_the_posterior_on_a_grid() -> None:
    """Mean and standard deviation of the chance at five scores; 100 systematic draws of 2,000 proposals."""
    scores, truth = curved(400, 1)
    fit = BayesianCalibration(seed=2).fit(scores, first(truth, 60))
    axes = [np.linspace(-4 * sd, 4 * sd, 61) for sd in PRIOR]
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 3)
    s, sign = scores[:60, 0, 1], 2 * truth[:60] - 1
    logs = -0.5 * ((grid / PRIOR) ** 2).sum(axis=1)
    for one, way in zip(s, sign, strict=True):
        line = np.exp(grid[:, 0]) * np.log(one) - np.exp(grid[:, 1]) * np.log1p(-one) + grid[:, 2]
        logs -= np.logaddexp(0.0, -way * line)
    weight = np.exp(logs - logs.max())
    at = np.array([0.05, 0.25, 0.5, 0.75, 0.95])
    inputs = np.stack([1 - at, at], axis=1)[:, None]
    for score, predicted in zip(at, fit.predict(inputs)[:, 1], strict=True):
        line = np.exp(grid[:, 0]) * np.log(score) - np.exp(grid[:, 1]) * np.log1p(-score) + grid[:, 2]
        chance = expit(line)
        mean = weight @ chance / weight.sum()
        spread = np.sqrt(weight @ (chance - mean) ** 2 / weight.sum())
        assert predicted == pytest.approx(mean, abs=0.2 * spread + 1e-3)


@pytest.mark.simulation
def test_bayesian_calibration_covers_where_its_family_holds() -> None:
    """100 trials of 50 labels and 500 rows, curves from the prior; the truth is that of 20,000 other rows.

    95 of 100 are meant to be covered; three binomial standard errors (6.5) below that are 88.
    """
    covered = 0
    for seed in range(100):
        a, b, c = PRIOR * np.random.default_rng([seed, 7]).standard_normal(3)
        curve = float(np.exp(a)), float(np.exp(b)), float(c)
        scores, truth = curved(20_000, 1000 + seed, *curve)
        right = ((scores[:, 0, 1] > 0.5) == truth).mean()
        some, labels = curved(500, seed, *curve)
        estimate = BayesianCalibration(seed=seed).fit(some, first(labels, 50)).estimate("accuracy")
        assert isinstance(estimate, Estimate)
        covered += estimate.lower <= right <= estimate.upper
    assert covered >= 88


def test_bayesian_calibration_is_of_each_model_by_itself() -> None:
    scores, truth = curved(300, 5)
    other = np.concatenate([scores, curved(300, 6)[0]], axis=1)
    labels = first(truth, 50)
    alone = BayesianCalibration().fit(scores, labels).estimate("auroc")
    beside = BayesianCalibration().fit(other, labels).estimate("auroc")
    assert isinstance(alone, Estimate)
    assert isinstance(beside, Estimate)
    assert beside.value == pytest.approx(alone.value, abs=1e-9)
    assert BayesianCalibration().fit(scores, np.full(300, -1)).flags == ("no labels",)

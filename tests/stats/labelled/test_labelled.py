"""Labelled only: its intervals against other code, its weights, its fall-back; the ensemble; draws."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest

from monitor import Ensemble, Estimate, Fitted, Labelled, LabelledScores, PosteriorEstimator, Unknown, wilson
from monitor.base.records import Floats, Ints
from monitor.base.results import Result
from monitor.stats.labelled.labelled import newcombe_ends
from tests.nearly import nearly


def made(rows: int = 400, seed: int = 0) -> tuple[Floats, Ints]:
    rng = np.random.default_rng(seed)
    p = rng.beta(0.8, 1.2, rows)
    return np.stack([1 - p, p], axis=1)[:, None], (rng.random(rows) < p).astype(int)


def known(result: Result) -> Estimate:
    assert isinstance(result, Estimate)
    return result


def test_accuracy_precision_and_recall_have_the_interval_of_their_counts() -> None:
    scores, labels = made()
    labels[100:] = -1
    fit = Labelled().fit(scores, labels)
    acted, truth = scores[:100, 0].argmax(axis=1) == 1, labels[:100] == 1
    for metric, right, of in (
        ("accuracy", acted == truth, np.ones(100, dtype=bool)),
        ("precision", acted & truth, acted),
        ("recall", acted & truth, truth),
    ):
        estimate, expected = known(fit.estimate(metric)), known(wilson(int(right.sum()), int(of.sum())))
        assert (estimate.lower, estimate.value, estimate.upper) == pytest.approx(
            (expected.lower, expected.value, expected.upper)
        )
        assert estimate.n == 100


@pytest.mark.parametrize(("auroc", "positives", "negatives"), [(0.9, 10, 30), (0.55, 40, 12), (0.999, 5, 5)])
def test_newcombes_ends_lie_z_standard_errors_away(auroc: float, positives: int, negatives: int) -> None:
    for end in newcombe_ends(auroc, positives, negatives, 0.95):
        size = (positives + negatives) / 2 - 1
        spread = end * (1 - end) * (1 + size * ((1 - end) / (2 - end) + end / (1 + end)))
        assert abs(auroc - end) == pytest.approx(
            1.959964 * np.sqrt(spread / (positives * negatives)), rel=1e-5
        )


def test_a_perfect_ranking_of_few_labels_is_not_certain() -> None:
    assert newcombe_ends(1.0, 3, 3, 0.95)[0] < 0.65
    assert newcombe_ends(0.0, 3, 3, 0.95) == (0.0, pytest.approx(1 - newcombe_ends(1.0, 3, 3, 0.95)[0]))


@pytest.mark.slow
def test_weights_undo_a_preference_for_hard_rows() -> None:
    """Rows near 0.5 labelled nine times as often: unweighted accuracy is too low, weighted is not.

    300 pools of 600 rows; both means have a standard error near 0.2 points.
    """
    plain, weighted, truth = [], [], []
    for seed in range(300):
        scores, labels = made(600, seed)
        rng = np.random.default_rng([1, seed])
        chance = np.where(np.abs(scores[:, 0, 1] - 0.5) < 0.25, 0.45, 0.05)
        seen = np.where(rng.random(600) < chance, labels, -1)
        truth.append((scores[:, 0].argmax(axis=1) == labels).mean())
        plain.append(known(Labelled().fit(scores, seen).estimate("accuracy")).value)
        weighted.append(known(Labelled().fit(scores, seen, weights=1 / chance).estimate("accuracy")).value)
    assert np.mean(plain) < np.mean(truth) - 0.08
    assert np.mean(weighted) == pytest.approx(np.mean(truth), abs=0.01)


def test_weights_reduce_the_effective_labels_and_widen_the_interval() -> None:
    scores, labels = made(100)
    even = Labelled().fit(scores, labels)
    uneven = Labelled().fit(scores, labels, weights=np.where(np.arange(100) < 50, 1.0, 9.0))
    assert even.effective_labels == nearly(100.0)
    assert uneven.effective_labels == pytest.approx(500**2 / (50 + 50 * 81))
    widths = [known(fit.estimate("accuracy")) for fit in (even, uneven)]
    assert widths[1].upper - widths[1].lower > 1.1 * (widths[0].upper - widths[0].lower)


def test_a_subgroup_without_labels_gets_the_value_of_all() -> None:
    scores, labels = made()
    labels[100:] = -1
    fit = Labelled().fit(scores, labels)
    late, early = np.arange(400) >= 100, np.arange(400) < 30
    assert fit.estimate("accuracy", 0, late) == nearly(fit.estimate("accuracy"))
    assert known(fit.estimate("accuracy", 0, early)).n == 30


def test_no_labels_are_no_answer() -> None:
    scores, _ = made(50)
    fit = Labelled().fit(scores, np.full(50, -1))
    assert fit.estimate("accuracy") == Unknown("no labels yet")
    assert fit.prevalence.tolist() == [0.5, 0.5]


def test_the_share_of_classes_follows_the_weights() -> None:
    scores, _ = made(4)
    fit = Labelled().fit(scores, [0, 1, -1, -1], weights=[1.0, 3.0, 1.0, 1.0])
    assert fit.prevalence == pytest.approx([0.25, 0.75])
    assert fit.posterior[2] == pytest.approx([0.25, 0.75])


@cache
def fitted() -> tuple[Labelled, list[Labelled]]:
    """Fits on 200,000 rows, and on 400 samples of 100."""
    whole = Labelled().fit(*made(200_000, 99))
    return whole, [Labelled().fit(*made(100, 1000 + seed)) for seed in range(400)]


@pytest.mark.simulation
@pytest.mark.parametrize(
    "metric", ["accuracy", "precision", "recall", "specificity", "f1", "auroc", "average_precision"]
)
def test_intervals_cover_at_100_labels(metric: str) -> None:
    """400 samples of 100 labels; at a true coverage of 95 % fewer than 92 % have a chance of 0.6 %."""
    whole, samples = fitted()
    truth = known(whole.estimate(metric)).value
    inside = 0
    for fit in samples:
        estimate = known(fit.estimate(metric))
        inside += estimate.lower <= truth <= estimate.upper
    assert inside >= 0.92 * 400


def test_the_ensemble_is_right_where_the_mean_of_the_classifiers_is() -> None:
    scores, labels = made(20_000, 5)
    fit = Ensemble().fit(scores, np.full(20_000, -1))
    assert fit.flags == ("no labels",)
    assert fit.point("accuracy") == pytest.approx((scores[:, 0].argmax(axis=1) == labels).mean(), abs=0.01)
    assert fit.point("class_ece") < 1e-12  # against its own scores


class Drawing(PosteriorEstimator):
    """Two equally likely posteriors that disagree on every row."""

    tag = "drawing"
    draws = 2
    bias = 0.0

    def _fit(self, data: LabelledScores) -> Fitted:
        return Fitted(data.clamp(np.full((data.rows, data.classes), 1 / data.classes)))

    def _draw_posteriors(self, rng: np.random.Generator) -> Iterator[Floats]:
        for share in (0.3, 0.5):
            yield np.tile([share, 1 - share], (self._done()[0].rows, 1))

    def _bias(self, metric: str, model: int, where: object) -> float:
        return self.bias if metric == "accuracy" else 0.0

    def _predict(self, scores: Floats) -> Floats:
        raise NotImplementedError


def test_draws_and_bias_widen_the_interval() -> None:
    scores = np.tile([[[0.1, 0.9]]], (5000, 1, 1))
    fit = Drawing().fit(scores, np.full(5000, -1))
    estimate = known(fit.estimate("accuracy"))
    assert estimate.value == pytest.approx(0.6)  # the median of 0.5 and 0.7
    assert (estimate.lower, estimate.upper) == pytest.approx(
        (0.5, 0.7), abs=1e-9
    )  # equal rows: no sampling noise
    biased = Drawing()
    biased.bias = 0.05
    wider = known(biased.fit(scores, np.full(5000, -1)).estimate("accuracy"))
    assert wider.lower < 0.46
    assert wider.upper > 0.74
    assert wider.value == estimate.value


def test_confusion_matrices_are_expectations_with_an_interval_a_cell() -> None:
    scores, labels = made(500, 7)
    predicted = (scores[:, :, 1] > 0.3).astype(int)
    fit = Ensemble().fit(scores, np.where(np.arange(500) < 200, labels, -1), predicted=predicted)
    confusion = fit.confusion()
    assert not isinstance(confusion, Unknown)
    chance = np.where(np.arange(500) < 200, labels, scores[:, 0, 1])
    expected = [
        [((t == 1) * chance + (t == 0) * (1 - chance)) @ (predicted[:, 0] == p) for p in (0, 1)]
        for t in (0, 1)
    ]
    np.testing.assert_allclose(confusion.value, np.array(expected) / 500, atol=1e-12)
    assert (confusion.lower < confusion.value).all()
    assert (confusion.value < confusion.upper).all()
    errors = np.sqrt(
        confusion.value * (1 - confusion.value) / 500
    )  # wider than needed: chances vary less than counts
    assert (confusion.upper - confusion.lower < 2 * 1.96 * errors * 1.3).all()
    assert np.trace(confusion.value) == pytest.approx(fit.point("accuracy"), abs=1e-12)
    assert fit.confusion(where=np.zeros(500, dtype=bool)) == Unknown("no rows")


def test_the_sampling_of_the_rows_is_in_the_interval() -> None:
    """Width of the accuracy's interval against ±1.96 standard errors of the mean confidence."""
    scores, _ = made(800, 6)
    estimate = known(Ensemble().fit(scores, np.full(800, -1)).estimate("accuracy"))
    confidence = scores[:, 0].max(axis=1)
    expected = 2 * 1.96 * confidence.std() / np.sqrt(800)
    assert estimate.upper - estimate.lower == pytest.approx(expected, rel=0.25)  # of 200 resamplings

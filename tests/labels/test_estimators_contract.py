"""The contract of every estimator that uses labels, over all of `ESTIMATORS`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from monitor import Estimate, Unknown
from monitor.labels import ESTIMATORS, METRICS, LabelEstimator
from monitor.records import Floats, Ints
from monitor.result import Reason

ROWS = 160
TAGS = sorted(tag for tag in ESTIMATORS if tag != "ssme_flow" or find_spec("flowjax"))
QUICK: dict[str, dict[str, int]] = {"ssme_flow": {"couplings": 2, "width": 8, "epochs": 2}}
"""Settings under which the contract, not the estimate, is the same."""
EXACT = 1e-9
"""Sums over rows in another order differ by rounding, and iterations carry that along."""


def problem(classes: int = 2, models: int = 3, labelled: int = 40, rows: int = ROWS) -> tuple[Floats, Ints]:
    """Scores of models that see the truth through noise, some of it shared, and partial labels."""
    rng = np.random.default_rng([classes, models])
    truth = rng.integers(0, classes, rows)
    noise = rng.normal(size=(rows, 1, classes)) + rng.normal(size=(rows, models, classes))
    logits = 2.0 * np.eye(classes)[truth][:, None] + noise
    scores = np.exp(logits) / np.exp(logits).sum(axis=2, keepdims=True)
    return scores, np.where(np.arange(rows) < labelled, truth, -1)


def new(tag: str, seed: int = 0) -> LabelEstimator:
    return ESTIMATORS[tag](seed=seed, **QUICK.get(tag, {}))


def fitted(fresh: LabelEstimator, scores: Floats, labels: Ints, **more: Ints) -> LabelEstimator:
    """Fit, with the draws numbered where the estimator needs that: as if all were equally likely."""
    rows = np.arange(len(labels), dtype=float)
    drawn = np.where(labels < 0, -1, np.cumsum(labels >= 0) - 1)
    given = {"acquisition": drawn, "weights": len(rows) - np.maximum(drawn, 0.0)}
    return fresh.fit(scores, labels, **{key: given[key] for key in sorted(fresh.needs)}, **more)


def answers(fit: LabelEstimator, models: int) -> Iterator[tuple[str, int, object]]:
    for metric in METRICS:
        for model in range(models):
            yield metric, model, fit.estimate(metric, model)


def assert_sound(found: object) -> None:
    """An answer is a reason, or a value inside an interval inside [0, 1]."""
    if isinstance(found, Unknown):
        assert found.reason
        return
    assert isinstance(found, Estimate)
    assert 0.0 <= found.lower <= found.value <= found.upper <= 1.0
    assert found.level == 0.95
    assert found.n > 0


def same(left: object, right: object) -> bool:
    if isinstance(left, Estimate) and isinstance(right, Estimate):
        ends = [(e.value, e.lower, e.upper) for e in (left, right)]
        return ends[0] == pytest.approx(ends[1], abs=EXACT) and left.n == right.n
    return left == right


def test_the_registry_knows_each_estimator_by_its_tag() -> None:
    assert {
        "ssme",
        "ssme_paper",
        "ensemble",
        "labelled",
        "pseudo_label",
        "majority_vote",
        "dawid_skene",
        "bayesian_calibration",
        "ssme_flow",
        "spe",
    } <= set(ESTIMATORS)
    assert all(estimator.tag == tag and estimator.__doc__ for tag, estimator in ESTIMATORS.items())
    assert all(estimator.metrics <= set(METRICS) for estimator in ESTIMATORS.values())


def test_importing_the_estimators_brings_nothing_heavy() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import sys, monitor.labels; print(*sys.modules)"],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        check=True,
    )
    loaded = set(done.stdout.split())
    assert "monitor.labels" in loaded
    assert loaded & {"KDEpy", "jax", "sklearn", "pandas", "matplotlib"} == set()


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("tag", TAGS)
def test_a_usual_fit_answers_soundly_and_reports_its_health(tag: str, classes: int) -> None:
    scores, labels = problem(classes)
    fit = fitted(new(tag), scores, labels)
    if classes > 2 and fit.two_classes_only:
        assert {found for _, _, found in answers(fit, 3)} == {Unknown(Reason.NOT_DEFINED)}
        return
    for metric, model, found in answers(fit, 3):
        assert_sound(found)
        assert isinstance(found, Estimate) == (metric in fit.metrics), (metric, model, found)
    assert fit.posterior.shape == (ROWS, classes)
    np.testing.assert_allclose(fit.posterior.sum(axis=1), 1.0, atol=EXACT)
    assert fit.posterior.min() >= 0.0
    np.testing.assert_array_equal(fit.posterior[labels >= 0], np.eye(classes)[labels[labels >= 0]])
    assert fit.prevalence.sum() == pytest.approx(1.0)
    assert fit.effective_labels == 40.0
    assert fit.iterations >= 0
    assert isinstance(fit.converged, bool)
    assert fit.refused is None
    predicted = fit.predict(scores[:7])
    assert predicted.shape == (7, classes)
    np.testing.assert_allclose(predicted.sum(axis=1), 1.0, atol=EXACT)


@pytest.mark.parametrize("tag", TAGS)
def test_what_is_given_is_not_changed_and_may_be_changed_afterwards(tag: str) -> None:
    scores, labels = problem()
    extra = {
        "predicted": scores.argmax(axis=2),
        "weights": np.ones(ROWS),
        "acquisition": np.where(labels < 0, -1, np.arange(ROWS)),
    }
    kept = [array.copy() for array in (scores, labels, *extra.values())]
    fit = new(tag).fit(scores, labels, **extra)
    fit.predict(scores)
    before = list(answers(fit, 3))
    for array, copy in zip((scores, labels, *extra.values()), kept, strict=True):
        np.testing.assert_array_equal(array, copy)
    scores[:], labels[:] = 0.5, -1
    assert list(answers(fit, 3)) == before


@pytest.mark.parametrize("tag", TAGS)
def test_the_same_seed_gives_the_same_numbers_and_a_fit_forgets_the_one_before(tag: str) -> None:
    scores, labels = problem()
    first = list(answers(fitted(new(tag, 3), scores, labels), 3))
    used = fitted(new(tag, 3), *problem(classes=3))
    used.estimate("accuracy")
    assert list(answers(fitted(used, scores, labels), 3)) == first


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("tag", TAGS)
def test_permuted_rows_give_the_same_answers(tag: str, classes: int) -> None:
    scores, labels = problem(classes)
    order = np.random.default_rng(1).permutation(ROWS)
    where = np.arange(ROWS) % 3 == 0
    plain, moved = fitted(new(tag), scores, labels), fitted(new(tag), scores[order], labels[order])
    np.testing.assert_allclose(moved.posterior, plain.posterior[order], atol=EXACT)
    for metric in METRICS:
        assert same(moved.estimate(metric, 1), plain.estimate(metric, 1)), metric
        assert same(moved.estimate(metric, 1, where[order]), plain.estimate(metric, 1, where)), metric


@pytest.mark.parametrize("tag", TAGS)
def test_permuted_models_give_their_own_answers(tag: str) -> None:
    scores, labels = problem()
    plain, moved = fitted(new(tag), scores, labels), fitted(new(tag), scores[:, [2, 0, 1]], labels)
    np.testing.assert_allclose(moved.posterior, plain.posterior, atol=EXACT)
    for metric in METRICS:
        for at, model in enumerate((2, 0, 1)):
            assert same(moved.estimate(metric, at), plain.estimate(metric, model)), metric
    np.testing.assert_allclose(moved.predict(scores[:9, [2, 0, 1]]), plain.predict(scores[:9]), atol=EXACT)


@pytest.mark.parametrize("tag", TAGS)
def test_intervals_widen_with_their_level(tag: str) -> None:
    fit = fitted(new(tag), *problem())
    for metric in fit.metrics:
        widths = [
            found.upper - found.lower
            for level in (0.5, 0.8, 0.95, 0.99)
            if isinstance(found := fit.estimate(metric, 0, level=level), Estimate)
        ]
        assert len(widths) == 4
        assert widths == sorted(widths)
        assert widths[0] < widths[-1]


def odd(kind: str) -> tuple[Floats, Ints]:
    """Input that no estimator may crash on, or answer nonsense to."""
    scores, labels = problem()
    rng = np.random.default_rng(9)
    if kind == "equal scores":
        scores = np.full_like(scores, 0.5)
    elif kind == "scores of 0 and 1":
        scores = np.eye(2)[scores.argmax(axis=2)]
    elif kind == "duplicated models":
        scores = np.repeat(scores[:, :1], 3, axis=1)
    elif kind == "a class without labels":
        labels = np.where(labels == 1, -1, labels)
    elif kind == "labels of one class, all rows":
        labels = np.zeros(ROWS, dtype=int)
    elif kind == "no labels":
        labels = np.full(ROWS, -1)
    elif kind == "all labels":
        labels = problem(labelled=ROWS)[1]
    elif kind == "one model":
        scores = scores[:, :1].repeat(1, axis=1)
    elif kind == "missing models":
        scores[rng.random((ROWS, 3)) < 0.4] = np.nan  # some rows lose all three
    elif kind == "a model that never answers":
        scores[:, 2] = np.nan
    elif kind == "fewer rows than dimensions":
        scores, labels = problem(classes=4, models=5, labelled=3, rows=6)
    elif kind == "one row":
        scores, labels = scores[:1], labels[:1]
    elif kind == "one row without a label":
        scores, labels = scores[-1:], labels[-1:]
    elif kind == "nine classes":
        scores, labels = problem(classes=9, models=2)
    else:
        raise AssertionError(kind)
    return scores, labels


KINDS = [
    "equal scores",
    "scores of 0 and 1",
    "duplicated models",
    "a class without labels",
    "labels of one class, all rows",
    "no labels",
    "all labels",
    "one model",
    "missing models",
    "a model that never answers",
    "fewer rows than dimensions",
    "one row",
    "one row without a label",
    "nine classes",
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tag", TAGS)
def test_odd_input_gets_a_sound_answer_or_a_reason(tag: str, kind: str) -> None:
    scores, labels = odd(kind)
    fit = fitted(new(tag), scores, labels)
    for _, _, found in answers(fit, scores.shape[1]):
        assert_sound(found)
    assert np.isfinite(fit.posterior).all()
    np.testing.assert_allclose(fit.posterior.sum(axis=1), 1.0, atol=EXACT)
    if fit.refused is None:
        assert np.isfinite(fit.predict(scores)).all()
    else:
        assert all(isinstance(found, Unknown) for _, _, found in answers(fit, scores.shape[1]))
        with pytest.raises(RuntimeError, match=r"the fit was refused \(.*\), so nothing can be predicted"):
            fit.predict(scores)


@pytest.mark.parametrize("tag", TAGS)
def test_a_model_that_never_answers_has_no_rows(tag: str) -> None:
    fit = fitted(new(tag), *odd("a model that never answers"))
    assert {found for _, model, found in answers(fit, 3) if model == 2} <= {
        Unknown("no rows"),
        Unknown("not defined for this task"),
    }


@pytest.mark.parametrize("tag", [tag for tag in TAGS if ESTIMATORS[tag].needs])
def test_without_a_keyword_that_it_needs_an_estimator_answers_with_the_reason(tag: str) -> None:
    fit = new(tag).fit(*problem())
    assert fit.estimate("accuracy") == Unknown("draws not numbered")


@pytest.mark.parametrize("labelled", [0, 40])
@pytest.mark.parametrize("tag", TAGS)
def test_rows_that_no_model_answered_are_a_reason_and_no_nan(tag: str, labelled: int) -> None:
    scores, labels = problem(labelled=labelled)
    fit = fitted(new(tag), np.full_like(scores, np.nan), labels)
    assert fit.refused == Reason.NO_ROWS
    assert np.isfinite(fit.prevalence).all()
    assert fit.posterior.shape == (ROWS, 2)
    for metric, _, found in answers(fit, 3):
        assert found == Unknown(Reason.NO_ROWS if metric in fit.metrics else Reason.NOT_DEFINED)


@pytest.mark.parametrize("tag", TAGS)
def test_no_rows_at_all_are_a_reason(tag: str) -> None:
    fit = fitted(new(tag), np.empty((0, 2, 3)), np.empty(0, dtype=int))
    assert fit.estimate("accuracy", 1) == Unknown("no rows")
    assert fit.posterior.shape == (0, 3)


@pytest.mark.parametrize("tag", TAGS)
def test_no_new_rows_have_no_prediction(tag: str) -> None:
    assert fitted(new(tag), *problem()).predict(np.empty((0, 3, 2))).shape == (0, 2)


@pytest.mark.parametrize("tag", TAGS)
def test_no_labels_are_flagged_or_refused(tag: str) -> None:
    fit = fitted(new(tag), *odd("no labels"))
    assert fit.effective_labels == 0.0
    assert fit.refused == "no labels yet" or "no labels" in fit.flags


@pytest.mark.parametrize("tag", TAGS)
def test_all_labels_give_the_realised_accuracy(tag: str) -> None:
    scores, labels = odd("all labels")
    fit = fitted(new(tag), scores, labels)
    for model in range(3):
        found = fit.estimate("accuracy", model)
        assert isinstance(found, Estimate)
        assert found.value == pytest.approx((scores[:, model].argmax(axis=1) == labels).mean(), abs=EXACT)


@pytest.mark.parametrize("tag", TAGS)
def test_the_class_acted_on_counts_not_the_argmax(tag: str) -> None:
    scores, labels = odd("all labels")
    fit = fitted(new(tag), scores, labels, predicted=np.ones((ROWS, 3), dtype=int))
    found = fit.estimate("accuracy", 0)
    assert isinstance(found, Estimate)
    assert found.value == pytest.approx(labels.mean(), abs=EXACT)


@pytest.mark.parametrize("tag", TAGS)
def test_a_subgroup_of_all_rows_is_the_whole(tag: str) -> None:
    fit = fitted(new(tag), *problem())
    for metric in METRICS:
        assert fit.estimate(metric, 0, np.ones(ROWS, dtype=bool)) == fit.estimate(metric, 0)
    assert fit.estimate("accuracy", 0, np.zeros(ROWS, dtype=bool)) == Unknown("no rows")


@pytest.mark.parametrize("tag", TAGS)
def test_bad_questions_are_named(tag: str) -> None:
    fresh = new(tag)
    with pytest.raises(RuntimeError, match=r"has nothing to answer from: call fit\(scores, labels\) first"):
        fresh.estimate("accuracy")
    fit = fitted(fresh, *problem())
    with pytest.raises(ValueError, match=r"metric must be one of accuracy, ece, .* got 'auc'"):
        fit.estimate("auc")
    with pytest.raises(ValueError, match="model must be a column of the scores, from 0 to 2, got 3"):
        fit.estimate("accuracy", 3)
    with pytest.raises(ValueError, match=r"where must be a mask of 160 booleans, .* of int64 of the shape"):
        fit.estimate("accuracy", 0, np.array([0, 1, 2]))
    with pytest.raises(ValueError, match=r"level must lie between 0 and 1, .* got 95"):
        fit.estimate("accuracy", level=95)
    with pytest.raises(ValueError, match=r"scores must have the shape \(n, 3, 2\).* got \(2, 1, 2\)"):
        fit.predict(np.full((2, 1, 2), 0.5))
    with pytest.raises(ValueError, match=r"seed must be a whole number of 0 or more, got -1"):
        ESTIMATORS[tag](seed=-1)
    with pytest.raises(ValueError, match=r"positive must be a class index from 0 to 1, got 2"):
        ESTIMATORS[tag](positive=2, **QUICK.get(tag, {})).fit(*problem())


@pytest.mark.parametrize("tag", TAGS)
def test_the_positive_class_can_be_the_first(tag: str) -> None:
    scores, labels = odd("all labels")
    found = fitted(ESTIMATORS[tag](positive=0, **QUICK.get(tag, {})), scores, labels).estimate("recall", 0)
    if "recall" not in ESTIMATORS[tag].metrics:
        assert found == Unknown(Reason.NOT_DEFINED)
        return
    assert isinstance(found, Estimate)
    expected = (scores[:, 0].argmax(axis=1)[labels == 0] == 0).mean()
    assert found.value == pytest.approx(expected, abs=EXACT)

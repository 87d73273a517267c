"""The contract of every estimator that uses labels, over all of `ESTIMATORS`."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from monitor import ESTIMATORS, METRICS, Estimate, Unknown
from monitor.base.results import Reason
from tests.nearly import nearly
from tests.stats.labelled.contract import (
    EXACT,
    KINDS,
    KNOW_THEIR_ERRORS,
    QUICK,
    ROWS,
    TAGS,
    answers,
    assert_sound,
    fitted,
    new,
    odd,
    odd_fit,
    problem,
    usual,
)


def test_the_registry_knows_each_estimator_by_its_tag() -> None:
    assert set(ESTIMATORS) == {
        "ssme",
        "ssme_paper",
        "ensemble",
        "labelled",
        "pseudo_label",
        "majority_vote",
        "dawid_skene",
        "bayesian_calibration",
        "autoeval",
        "active_testing",
        "rectified",
        "ssme_flow",
        "spe",
    }
    assert all(estimator.tag == tag and estimator.__doc__ for tag, estimator in ESTIMATORS.items())
    assert all(estimator.metrics <= set(METRICS) for estimator in ESTIMATORS.values())


@pytest.mark.parametrize("tag", TAGS)
def test_each_says_what_it_assumes_and_stands_on_the_page_of_estimators(tag: str) -> None:
    told = ESTIMATORS[tag].__doc__ or ""
    assert re.search(r"\bassum|\bas long as\b|\bright where\b", told, re.IGNORECASE)
    assert "References\n" in told
    page = (Path(__file__).parents[3] / "docs" / "estimators.md").read_text(encoding="utf-8")
    assert f"| `{tag}` | " in page


def test_importing_the_estimators_brings_nothing_heavy() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import sys, monitor.stats.labelled; print(*sys.modules)"],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[3],
        check=True,
    )
    loaded = set(done.stdout.split())
    assert "monitor.stats.labelled" in loaded
    assert loaded & {"KDEpy", "jax", "sklearn", "pandas", "matplotlib"} == set()


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("tag", TAGS)
def test_a_usual_fit_answers_soundly_and_reports_its_health(tag: str, classes: int) -> None:
    scores, labels = problem(classes)
    fit = usual(tag, classes)
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
    assert fit.effective_labels == nearly(40.0)
    assert fit.iterations >= 0
    assert isinstance(fit.converged, bool)
    assert fit.refused is None
    predicted = fit.predict(scores[:7])
    assert predicted.shape == (7, classes)
    np.testing.assert_allclose(predicted.sum(axis=1), 1.0, atol=EXACT)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tag", TAGS)
def test_odd_input_gets_a_sound_answer_or_a_reason(tag: str, kind: str) -> None:
    scores, _ = odd(kind)
    fit = odd_fit(tag, kind)
    for _, _, found in answers(fit, scores.shape[1]):
        assert_sound(found)
    assert np.isfinite(fit.posterior).all()
    np.testing.assert_allclose(fit.posterior.sum(axis=1), 1.0, atol=EXACT)
    if fit.refused is None:
        assert np.isfinite(fit.predict(scores)).all()
    else:
        assert all(isinstance(found, Unknown) for _, _, found in answers(fit, scores.shape[1]))
        with pytest.raises(RuntimeError, match=r"the fit was refused \(.*\), so it cannot predict"):
            fit.predict(scores)


@pytest.mark.parametrize("tag", TAGS)
def test_a_model_that_never_answers_has_no_rows(tag: str) -> None:
    fit = odd_fit(tag, "a model that never answers")
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
    assert usual(tag).predict(np.empty((0, 3, 2))).shape == (0, 2)


@pytest.mark.parametrize("tag", TAGS)
def test_no_labels_are_flagged_or_refused(tag: str) -> None:
    fit = odd_fit(tag, "no labels")
    assert fit.effective_labels == 0.0
    assert fit.refused == "no labels yet" or "no labels" in fit.flags


@pytest.mark.parametrize("tag", TAGS)
def test_all_labels_give_the_realised_accuracy(tag: str) -> None:
    scores, labels = odd("all labels")
    fit = odd_fit(tag, "all labels")
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
    fit = usual(tag)
    for metric in METRICS:
        assert fit.estimate(metric, 0, np.ones(ROWS, dtype=bool)) == nearly(fit.estimate(metric, 0))
    assert fit.estimate("accuracy", 0, np.zeros(ROWS, dtype=bool)) == Unknown("no rows")


@pytest.mark.parametrize("tag", TAGS)
def test_bad_questions_are_named(tag: str) -> None:
    fresh = new(tag)
    with pytest.raises(RuntimeError, match=r"has no fit yet: call fit\(scores, labels\) first"):
        fresh.estimate("accuracy")
    fit = usual(tag)
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


@pytest.mark.parametrize("tag", TAGS)
def test_only_estimators_whose_error_is_that_of_labels_know_it_and_of_accuracy_alone(tag: str) -> None:
    fit = usual(tag)
    found = fit.covariance("accuracy")
    assert (found is not None) == (tag in KNOW_THEIR_ERRORS)
    assert fit.covariance("auroc") is None
    if found is not None:
        assert found == nearly(found.T)
        assert np.linalg.eigvalsh(found).min() > 0
    with pytest.raises(ValueError, match=r"metric must be one of .*, got 'acuracy'"):
        fit.covariance("acuracy")

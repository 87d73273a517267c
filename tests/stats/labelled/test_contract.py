"""The contract of every estimator that uses labels, over all of `ESTIMATORS`: soundness, and laws.

One file, so that one process makes each shared fit once.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from monitor import ESTIMATORS, METRICS, Estimate, LabelEstimator, Unknown
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
    ends_of,
    fitted,
    new,
    odd,
    odd_fit,
    problem,
    rich,
    rich_fit,
    same,
    usual,
)

ORDER = np.random.default_rng(1).permutation(ROWS)
MODELS = (2, 0, 1)
THIRD = np.arange(ROWS) % 3 == 0
MASKS = {
    "all rows": np.ones(ROWS, dtype=bool),
    "a third": THIRD,
    "labelled rows": np.arange(ROWS) < 40,
    "rows without labels": np.arange(ROWS) >= 40,
    "one labelled row": np.arange(ROWS) == 0,
    "one row without a label": np.arange(ROWS) == 150,
}


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
    docstring = ESTIMATORS[tag].__doc__ or ""
    assert re.search(r"\bassum|\bas long as\b|\bright where\b", docstring, re.IGNORECASE)
    assert "References\n" in docstring
    page = (Path(__file__).parents[3] / "docs" / "estimators.md").read_text(encoding="utf-8")
    assert f"| `{tag}` | " in page.split("\n## ")[0]


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
        assert {result for _, _, result in answers(fit, 3)} == {Unknown(Reason.NOT_DEFINED)}
        return
    for metric, model, result in answers(fit, 3):
        assert_sound(result)
        assert isinstance(result, Estimate) == (metric in fit.metrics), (metric, model, result)
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
    for _, _, result in answers(fit, scores.shape[1]):
        assert_sound(result)
    assert np.isfinite(fit.posterior).all()
    np.testing.assert_allclose(fit.posterior.sum(axis=1), 1.0, atol=EXACT)
    if fit.refused is None:
        assert np.isfinite(fit.predict(scores)).all()
    else:
        assert all(isinstance(result, Unknown) for _, _, result in answers(fit, scores.shape[1]))
        with pytest.raises(RuntimeError, match=r"the fit was refused \(.*\), so it cannot predict"):
            fit.predict(scores)


@pytest.mark.parametrize("tag", TAGS)
def test_a_model_that_never_answers_has_no_rows(tag: str) -> None:
    fit = odd_fit(tag, "a model that never answers")
    assert {result for _, model, result in answers(fit, 3) if model == 2} <= {
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
    for metric, _, result in answers(fit, 3):
        assert result == Unknown(Reason.NO_ROWS if metric in fit.metrics else Reason.NOT_DEFINED)


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
        estimate = fit.estimate("accuracy", model)
        assert isinstance(estimate, Estimate)
        assert estimate.value == pytest.approx((scores[:, model].argmax(axis=1) == labels).mean(), abs=EXACT)


@pytest.mark.parametrize("tag", TAGS)
def test_the_class_acted_on_counts_not_the_argmax(tag: str) -> None:
    scores, labels = odd("all labels")
    fit = fitted(new(tag), scores, labels, predicted=np.ones((ROWS, 3), dtype=int))
    estimate = fit.estimate("accuracy", 0)
    assert isinstance(estimate, Estimate)
    assert estimate.value == pytest.approx(labels.mean(), abs=EXACT)


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
    estimate = fitted(ESTIMATORS[tag](positive=0, **QUICK.get(tag, {})), scores, labels).estimate("recall", 0)
    if "recall" not in ESTIMATORS[tag].metrics:
        assert estimate == Unknown(Reason.NOT_DEFINED)
        return
    assert isinstance(estimate, Estimate)
    expected = (scores[:, 0].argmax(axis=1)[labels == 0] == 0).mean()
    assert estimate.value == pytest.approx(expected, abs=EXACT)


@pytest.mark.parametrize("tag", TAGS)
def test_only_estimators_whose_error_is_that_of_labels_know_it_and_of_accuracy_alone(tag: str) -> None:
    fit = usual(tag)
    covariance = fit.covariance("accuracy")
    assert (covariance is not None) == (tag in KNOW_THEIR_ERRORS)
    assert fit.covariance("auroc") is None
    if covariance is not None:
        assert covariance == nearly(covariance.T)
        assert np.linalg.eigvalsh(covariance).min() > 0
    with pytest.raises(ValueError, match=r"metric must be one of .*, got 'acuracy'"):
        fit.covariance("acuracy")


@pytest.mark.parametrize("tag", TAGS)
def test_what_is_given_is_not_changed_and_may_be_changed_afterwards(tag: str) -> None:
    scores, labels, more = rich(2)
    mask, queries = THIRD.copy(), problem()[0]
    arrays = {"scores": scores, "labels": labels, "where": mask, "asked": queries, **more}
    kept = {name: array.copy() for name, array in arrays.items()}
    for array in arrays.values():
        array.flags.writeable = False
    fit = new(tag).fit(scores, labels, **more)
    if fit.refused is None:
        fit.predict(queries)
    before = list(answers(fit, 3)), fit.estimate("accuracy", 0, mask), fit.posterior
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, kept[name], err_msg=name)
        array.flags.writeable = True
        array[...] = 0
    after = list(answers(fit, 3)), fit.estimate("accuracy", 0, kept["where"]), fit.posterior
    assert after[:2] == before[:2]
    np.testing.assert_array_equal(after[2], before[2])


@pytest.mark.parametrize("tag", TAGS)
def test_the_same_seed_gives_the_same_numbers_and_a_fit_forgets_the_one_before(tag: str) -> None:
    scores, labels = problem()
    first = usual(tag)
    used = fitted(new(tag), *problem(classes=3))
    used.estimate("accuracy")
    again = fitted(used, scores, labels)
    assert list(answers(again, 3)) == list(answers(first, 3))
    np.testing.assert_array_equal(again.posterior, first.posterior)


SAID = """
import json
from tests.stats.labelled.contract import TAGS, ends_of, usual

print(json.dumps({tag: ends_of(usual(tag)) for tag in TAGS}))
"""


def test_another_process_with_other_hashes_gives_the_same_numbers() -> None:
    """Python orders sets of strings by hashes that differ between processes."""
    done = subprocess.run(
        [sys.executable, "-c", SAID],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[3],
        check=True,
    )
    for tag, reported in json.loads(done.stdout).items():
        expected = ends_of(usual(tag))
        assert reported.keys() == expected.keys(), tag
        for metric, ends in reported.items():
            assert tuple(ends) == pytest.approx(expected[metric], abs=EXACT), (tag, metric)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("tag", TAGS)
def test_permuted_rows_give_the_same_answers(tag: str, classes: int) -> None:
    scores, labels, more = rich(classes)
    plain = rich_fit(tag, classes)
    moved = new(tag).fit(scores[ORDER], labels[ORDER], **{name: array[ORDER] for name, array in more.items()})
    assert moved.refused == plain.refused
    np.testing.assert_allclose(moved.posterior, plain.posterior[ORDER], atol=EXACT)
    for metric in METRICS:
        for model in range(3):
            assert same(moved.estimate(metric, model), plain.estimate(metric, model)), metric
        assert same(moved.estimate(metric, 1, THIRD[ORDER]), plain.estimate(metric, 1, THIRD)), metric


@pytest.mark.parametrize("tag", TAGS)
def test_permuted_models_give_their_own_answers(tag: str) -> None:
    scores, labels, more = rich(2)
    plain = rich_fit(tag, 2)
    more["predicted"] = more["predicted"][:, MODELS]
    moved = new(tag).fit(scores[:, MODELS], labels, **more)
    np.testing.assert_allclose(moved.posterior, plain.posterior, atol=EXACT)
    for metric in METRICS:
        for at, model in enumerate(MODELS):
            assert same(moved.estimate(metric, at), plain.estimate(metric, model)), metric
            assert same(moved.estimate(metric, at, THIRD), plain.estimate(metric, model, THIRD)), metric
    if plain.refused is None:
        rows = problem()[0][:9]
        np.testing.assert_allclose(moved.predict(rows[:, MODELS]), plain.predict(rows), atol=EXACT)


def test_all_families_of_spe_keep_the_contract() -> None:
    """Rows and models are permuted, with the default settings: 64 pairs of densities."""
    scores, labels = problem(models=2)
    plain = ESTIMATORS["spe"]().fit(scores, labels)
    moved = ESTIMATORS["spe"]().fit(scores[ORDER][:, ::-1], labels[ORDER])
    np.testing.assert_allclose(moved.posterior, plain.posterior[ORDER], atol=EXACT)
    for metric in METRICS:
        result = plain.estimate(metric, 1)
        assert_sound(result)
        assert same(moved.estimate(metric, 0), result), metric


def assert_nested(fit: LabelEstimator, metric: str, where: Any, must_widen: bool) -> None:
    """Check that intervals lie in [0, 1], around one value, each inside that of the next level."""
    levels = (0.01, 0.5, 0.8, 0.95, 0.99, 0.999999)
    by_level = [fit.estimate(metric, 0, where, level=level) for level in levels]
    if isinstance(by_level[0], Unknown):
        assert set(by_level) == {by_level[0]}
        return
    estimates = [one for one in by_level if isinstance(one, Estimate)]
    assert [one.level for one in estimates] == list(levels)
    assert len({one.value for one in estimates}) == len({one.n for one in estimates}) == 1
    lowers, uppers = [one.lower for one in estimates], [one.upper for one in estimates]
    assert lowers == sorted(lowers, reverse=True)
    assert uppers == sorted(uppers)
    assert 0.0 <= lowers[-1] <= lowers[0] <= estimates[0].value <= uppers[0] <= uppers[-1] <= 1.0
    if must_widen:
        assert uppers[0] - lowers[0] < uppers[3] - lowers[3]


@pytest.mark.parametrize("tag", TAGS)
def test_intervals_widen_with_their_level_for_all_rows_and_for_subgroups(tag: str) -> None:
    for fit in (usual(tag), rich_fit(tag, 2)):
        for metric in fit.metrics:
            for name, mask in MASKS.items():
                assert_nested(fit, metric, mask, must_widen=name == "all rows")


@pytest.mark.parametrize("tag", TAGS)
def test_a_subgroup_rests_on_its_own_rows(tag: str) -> None:
    fit = usual(tag)
    whole = fit.estimate("accuracy", 0)
    parts = [fit.estimate("accuracy", 0, mask) for mask in (THIRD, ~THIRD)]
    assert isinstance(whole, Estimate)
    assert all(isinstance(part, Estimate) for part in parts)
    assert sum(part.n for part in parts if isinstance(part, Estimate)) == whole.n
    assert not same(parts[0], parts[1])


@pytest.mark.parametrize("kind", ["duplicated models", "equal scores"])
@pytest.mark.parametrize("tag", TAGS)
def test_copies_of_a_model_get_the_same_answers(tag: str, kind: str) -> None:
    fit = odd_fit(tag, kind)
    for metric in METRICS:
        first = fit.estimate(metric, 0)
        assert all(same(fit.estimate(metric, model), first) for model in (1, 2)), metric


@pytest.mark.parametrize("tag", TAGS)
def test_rows_without_labels_that_are_alike_get_the_same_chances(tag: str) -> None:
    _, labels = odd("equal scores")
    chances = odd_fit(tag, "equal scores").posterior[labels < 0]
    np.testing.assert_allclose(chances, np.broadcast_to(chances[0], chances.shape), atol=EXACT)


@pytest.mark.parametrize("tag", TAGS)
def test_all_labels_give_every_metric_its_realised_value(tag: str) -> None:
    fit, labelled = odd_fit(tag, "all labels"), odd_fit("labelled", "all labels")
    for metric in fit.metrics:
        for model in range(3):
            estimate, realised = fit.estimate(metric, model), labelled.estimate(metric, model)
            assert isinstance(estimate, Estimate)
            assert isinstance(realised, Estimate)
            assert estimate.value == pytest.approx(realised.value, abs=EXACT), metric


@pytest.mark.parametrize("tag", TAGS)
def test_where_all_are_of_one_class_what_needs_two_is_unknown(tag: str) -> None:
    scores, _ = odd("labels of one class, all rows")
    fit = odd_fit(tag, "labels of one class, all rows")
    for metric in fit.metrics & {"auroc", "average_precision", "recall", "f1"}:
        assert fit.estimate(metric, 0) == Unknown(fit.refused or Reason.ONE_CLASS), metric
    estimate = fit.estimate("accuracy", 0)
    if fit.refused is None:
        assert isinstance(estimate, Estimate)
        assert estimate.value == pytest.approx((scores[:, 0].argmax(axis=1) == 0).mean(), abs=EXACT)

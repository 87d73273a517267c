"""The refit: what it publishes, when it refuses, and that one estimator takes no other along."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from monitor.calibration import SSMECalibration, calibration_from_snapshot, confidence_of
from monitor.labels import ESTIMATORS, LabelEstimator
from monitor.records import Floats
from monitor.refit import fit as fit_module
from monitor.refit.fit import FAILED, refit, reported
from monitor.refit.job import RefitResult
from monitor.refit.tags import REFITTED
from monitor.result import Estimate, Reason, Unknown
from tests.refit.jobs import job, simulated


def by_name(done: RefitResult, model: str) -> dict[tuple[str, str], Any]:
    return {(e.metric, e.estimator): e.result for e in done.models[model].estimates}


def test_it_answers_for_every_model_metric_and_estimator() -> None:
    asked = job(metrics=("accuracy", "ece"))
    done = refit(asked)
    assert done.refused is None
    assert (done.task, done.number, done.sequence, done.time) == ("t", 7, 900, 1.7e9)
    assert (done.rows, done.labelled, done.effective_labels) == (600, 60, 60.0)
    assert list(done.models) == ["a", "b", "c"]
    tags = ("ssme", "ensemble", "labelled")
    for model in done.models:
        found = by_name(done, model)
        assert list(found) == [(metric, tag) for metric in ("accuracy", "ece") for tag in tags]
        assert all(isinstance(result, Estimate) for result in found.values())
    assert sum(done.prevalence) == pytest.approx(1.0)


def test_the_estimates_are_those_of_the_estimator_itself() -> None:
    asked = job()
    own = ESTIMATORS["ssme"](seed=3, positive=1).fit(asked.scores, asked.labels, predicted=asked.predicted)
    assert by_name(refit(asked), "b")["accuracy", "ssme"] == own.estimate("accuracy", 1)


def test_every_estimator_is_refitted_by_its_name() -> None:
    tags = tuple(tag for tag in REFITTED if tag != "ssme_flow")  # which needs an extra, and a minute
    done = refit(job(estimators=tags, calibrate=False))
    assert done.refused is None
    for model in done.models:
        found = {tag: result for (_, tag), result in by_name(done, model).items()}
        assert set(found) == set(tags)
        unknown = {tag for tag, result in found.items() if not isinstance(result, Estimate)}
        assert unknown == {tag for tag in tags if ESTIMATORS[tag].needs}  # numbered draws, not on the wire


def test_the_same_job_gives_the_same_answer_and_is_left_alone() -> None:
    asked = job()
    before = [array.copy() for array in (asked.scores, asked.labels, asked.predicted, asked.weights)]
    assert refit(asked) == refit(asked)
    after = (asked.scores, asked.labels, asked.predicted, asked.weights)
    for left, right in zip(before, after, strict=True):
        np.testing.assert_array_equal(left, right)


def test_a_calibration_of_each_model_reads_back_and_gives_the_fits_accuracy() -> None:
    asked = job(rows=2000, labelled=300)
    done = refit(asked)
    for at, model in enumerate(asked.models):
        snapshot = done.models[model].calibration
        assert snapshot is not None
        calibration = calibration_from_snapshot(snapshot)
        assert isinstance(calibration, SSMECalibration)
        scores = asked.scores[:, at].astype(np.float64)
        mean = confidence_of(calibration.apply(scores), asked.predicted[:, at]).mean()
        assert mean == pytest.approx(by_name(done, model)["accuracy", "ssme"].value, abs=0.02)


def test_no_calibration_where_none_is_asked_for_or_no_row_has_scores_of_the_model() -> None:
    assert {m.calibration for m in refit(job(calibrate=False)).models.values()} == {None}
    asked = job()
    asked.scores[:, 1], asked.predicted[:, 1] = np.nan, -1
    done = refit(asked)
    assert [m.calibration is None for m in done.models.values()] == [False, True, False]
    assert by_name(done, "b")["accuracy", "ssme"] == Unknown(Reason.NO_ROWS)


def test_every_metric_of_the_configuration_is_defined_and_another_says_that_it_is_not() -> None:
    done = refit(job(metrics=("specificity", "nonsense"), rows=400))
    found = by_name(done, "a")
    for tag in ("ssme", "ensemble", "labelled"):
        assert isinstance(found["specificity", tag], Estimate)
        assert found["nonsense", tag] == Unknown(Reason.NOT_DEFINED)


def test_a_calibration_alone_is_fitted_without_estimates() -> None:
    done = refit(job(estimators=()))
    assert done.refused is None
    assert all(m.calibration is not None and m.estimates == () for m in done.models.values())


def test_answers_that_are_missing_and_acted_classes_other_than_the_argmax_take_part() -> None:
    asked = job()
    asked.scores[::3, 2], asked.predicted[::3, 2] = np.nan, -1
    asked.predicted[:, 0] = 1
    done = refit(asked)
    assert by_name(done, "c")["accuracy", "ssme"].n == 400
    flipped = by_name(done, "a")["accuracy", "labelled"].value
    assert flipped == pytest.approx((asked.labels[:60] == 1).mean())


def test_weights_of_labels_reach_the_estimators() -> None:
    asked = job()
    weighted = replace(asked, weights=np.where(np.arange(600) < 30, 10.0, 1.0))
    done = refit(weighted)
    assert done.effective_labels == pytest.approx(330**2 / (30 * 100 + 30))
    assert by_name(done, "a")["accuracy", "labelled"] != by_name(refit(asked), "a")["accuracy", "labelled"]


def test_a_broken_model_among_good_ones_neither_breaks_the_fit_nor_hides() -> None:
    asked = job(rows=2000, labelled=200)
    noise = np.random.default_rng(5).random(2000).astype(np.float32)
    asked.scores[:, 2] = np.stack([1 - noise, noise], axis=1)
    asked.predicted[:, 2] = noise > 0.5
    done = refit(asked)
    _, truth = simulated(2000, 3)
    for at, model in enumerate(asked.models):
        real = (asked.predicted[:, at] == truth).mean()
        assert by_name(done, model)["accuracy", "ssme"].value == pytest.approx(real, abs=0.06), model


def test_no_labels_at_all_is_a_fit_and_says_so() -> None:
    done = refit(job(labelled=0))
    assert done.refused is None
    assert (done.labelled, done.effective_labels) == (0, 0.0)
    assert by_name(done, "a")["accuracy", "labelled"] == Unknown(Reason.NO_LABELS)
    assert isinstance(by_name(done, "a")["accuracy", "ssme"], Estimate)


@pytest.mark.parametrize(
    ("rows", "reason"), [(0, "ssme: no rows"), (1, "ssme: too few rows"), (12, "ssme: too few rows")]
)
def test_too_few_rows_are_refused(rows: int, reason: str) -> None:
    done = refit(job(rows=rows, labelled=0))
    assert (done.refused, done.models, done.rows) == (reason, {}, rows)


def test_a_bad_score_is_refused_with_its_place() -> None:
    asked = job()
    asked.scores[17, 1] = [0.5, 1.5]
    refused = refit(asked).refused
    assert refused is not None
    assert refused.startswith(f"ssme: {FAILED} (ValueError: scores[17, 1, 1] must be a probability")


def test_a_fit_that_has_collapsed_onto_one_class_is_refused() -> None:
    asked = job(labelled=600)
    asked.labels[:] = 0
    assert refit(asked).refused == "ssme: fit collapsed"


class Failing(LabelEstimator):
    """Raises what it is told to."""

    tag = "labelled"
    error: Exception = ZeroDivisionError("0 of 0")

    def _fit(self, data: object) -> Any:
        raise self.error

    def _estimate(self, metric: str, model: int, where: object, level: float) -> Any:
        raise NotImplementedError

    def _predict(self, scores: Floats) -> Floats:
        raise NotImplementedError


def test_an_estimator_that_fails_takes_no_other_along(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(fit_module, "ESTIMATORS", {**ESTIMATORS, "labelled": Failing})
    done = refit(job())
    assert done.refused is None
    assert by_name(done, "a")["accuracy", "labelled"] == Unknown(FAILED)
    assert isinstance(by_name(done, "a")["accuracy", "ssme"], Estimate)
    assert "tasks.t: the estimator labelled failed in refit 7." in caplog.text


def test_where_the_main_estimator_fails_nothing_is_published(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fit_module, "ESTIMATORS", {**ESTIMATORS, "ssme": Failing})
    assert refit(job()).refused == "ssme: the estimator failed (ZeroDivisionError: 0 of 0)"


def test_want_of_memory_is_for_the_caller_to_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hungry(Failing):
        error = MemoryError("all of it")

    monkeypatch.setattr(fit_module, "ESTIMATORS", {**ESTIMATORS, "labelled": Hungry})
    with pytest.raises(MemoryError):
        refit(job())


def test_an_unknown_estimator_is_refused_by_name() -> None:
    asked = replace(job(calibrate=False), estimators=("nonsense",))
    assert "is no estimator that uses labels (ssme, " in str(refit(asked).refused)


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        (("ssme",), ("ssme", "ensemble", "labelled")),
        (("ssme_paper", "ensemble"), ("ssme_paper", "ensemble", "labelled")),
        (("labelled",), ("labelled",)),
        (("average_confidence", "realised"), ()),
    ],
)
def test_what_stands_beside_ssme(asked: tuple[str, ...], found: tuple[str, ...]) -> None:
    assert reported(asked) == found


@pytest.mark.parametrize("classes", [2, 3, 9])
@pytest.mark.parametrize("models", [1, 3])
def test_any_number_of_models_and_classes(models: int, classes: int) -> None:
    asked = job(models=models, classes=classes)
    done = refit(asked)
    assert done.refused is None
    assert len(done.models) == models
    assert len(done.prevalence) == classes


@pytest.mark.parametrize("models", [1, 2])
@pytest.mark.parametrize("labelled", [0, 60])
def test_rows_that_none_of_the_models_answered_publish_no_nan(models: int, labelled: int) -> None:
    """Labelled rows outlive the model they were for: another list of models, and no answer yet."""
    whole = job(rows=150, labelled=labelled, models=models)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        done = refit(
            replace(whole, scores=np.full_like(whole.scores, np.nan), predicted=whole.predicted * 0 - 1)
        )
    assert done.refused == f"ssme: {Reason.NO_ROWS}"

"""The refit: what it publishes, when it refuses, and that one estimator takes no other along."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from monitor import (
    ESTIMATORS,
    LabelEstimator,
    RankInterval,
    SSMECalibration,
    calibration_from_snapshot,
    confidence_of,
    rank_intervals,
    simultaneous_ranks,
)
from monitor.base.records import Floats
from monitor.base.registry import REFITTED
from monitor.base.results import Estimate, Reason, Unknown
from monitor.engine.refit import fit as fit_module
from monitor.engine.refit.fit import FAILED, refit, reported
from monitor.engine.refit.job import RefitResult
from tests.engine.refit.jobs import job, simulated
from tests.nearly import nearly


@cache
def usual() -> RefitResult:
    """Return the refit of the usual job, for the tests that only look at it."""
    return refit(job())


def by_name(done: RefitResult, model: str) -> dict[tuple[str, str], Any]:
    return {(e.metric, e.estimator): e.result for e in done.models[model].estimates}


def test_it_answers_for_every_model_metric_and_estimator() -> None:
    refit_job = job(metrics=("accuracy", "ece"))
    done = refit(refit_job)
    assert done.refused is None
    assert (done.task, done.number, done.sequence, done.time) == ("t", 7, 900, 1.7e9)
    assert (done.rows, done.labelled, done.effective_labels) == nearly((600, 60, 60.0))
    assert list(done.models) == ["a", "b", "c"]
    tags = ("ssme", "ensemble", "labelled")
    for model in done.models:
        results = by_name(done, model)
        assert list(results) == [(metric, tag) for metric in ("accuracy", "ece") for tag in tags]
        assert all(isinstance(result, Estimate) for result in results.values())
    assert sum(done.prevalence) == pytest.approx(1.0)


def test_the_estimates_are_those_of_the_estimator_itself() -> None:
    refit_job = job()
    own = ESTIMATORS["ssme"](seed=3, positive=1).fit(
        refit_job.scores, refit_job.labels, predicted=refit_job.predicted
    )
    assert by_name(usual(), "b")["accuracy", "ssme"] == nearly(own.estimate("accuracy", 1))


@pytest.mark.slow
def test_every_estimator_is_refitted_by_its_name() -> None:
    tags = tuple(tag for tag in REFITTED if tag != "ssme_flow")  # which needs an extra, and a minute
    done = refit(job(rows=200, estimators=tags, calibrate=False))
    assert done.refused is None
    for model in done.models:
        results = {tag: result for (_, tag), result in by_name(done, model).items()}
        assert set(results) == set(tags)
        unknown = {tag for tag, result in results.items() if not isinstance(result, Estimate)}
        assert unknown == {tag for tag in tags if ESTIMATORS[tag].needs}  # numbered draws, not on the wire


def test_the_same_job_gives_the_same_answer_and_is_left_alone() -> None:
    refit_job = job()
    before = [
        array.copy() for array in (refit_job.scores, refit_job.labels, refit_job.predicted, refit_job.weights)
    ]
    assert refit(refit_job) == usual()
    after = (refit_job.scores, refit_job.labels, refit_job.predicted, refit_job.weights)
    for left, right in zip(before, after, strict=True):
        np.testing.assert_array_equal(left, right)


def test_a_calibration_of_each_model_reads_back_and_gives_the_fits_accuracy() -> None:
    refit_job = job(rows=2000, labelled=300)
    done = refit(refit_job)
    for at, model in enumerate(refit_job.models):
        snapshot = done.models[model].calibration
        assert snapshot is not None
        calibration = calibration_from_snapshot(snapshot)
        assert isinstance(calibration, SSMECalibration)
        scores = refit_job.scores[:, at].astype(np.float64)
        mean = confidence_of(calibration.apply(scores), refit_job.predicted[:, at]).mean()
        assert mean == pytest.approx(by_name(done, model)["accuracy", "ssme"].value, abs=0.02)


def test_no_calibration_where_none_is_asked_for_or_no_row_has_scores_of_the_model() -> None:
    assert {m.calibration for m in refit(job(calibrate=False)).models.values()} == {None}
    refit_job = job()
    refit_job.scores[:, 1], refit_job.predicted[:, 1] = np.nan, -1
    done = refit(refit_job)
    assert [m.calibration is None for m in done.models.values()] == [False, True, False]
    assert by_name(done, "b")["accuracy", "ssme"] == Unknown(Reason.NO_ROWS)


def test_every_metric_of_the_configuration_is_defined_and_another_says_that_it_is_not() -> None:
    done = refit(job(metrics=("specificity", "nonsense"), rows=400))
    results = by_name(done, "a")
    for tag in ("ssme", "ensemble", "labelled"):
        assert isinstance(results["specificity", tag], Estimate)
        assert results["nonsense", tag] == Unknown(Reason.NOT_DEFINED)


def test_a_calibration_alone_is_fitted_without_estimates() -> None:
    done = refit(job(estimators=()))
    assert done.refused is None
    assert all(m.calibration is not None and m.estimates == () for m in done.models.values())


def test_answers_that_are_missing_and_acted_classes_other_than_the_argmax_take_part() -> None:
    refit_job = job()
    refit_job.scores[::3, 2], refit_job.predicted[::3, 2] = np.nan, -1
    refit_job.predicted[:, 0] = 1
    done = refit(refit_job)
    assert by_name(done, "c")["accuracy", "ssme"].n == 400
    flipped = by_name(done, "a")["accuracy", "labelled"].value
    assert flipped == pytest.approx((refit_job.labels[:60] == 1).mean())


def test_weights_of_labels_reach_the_estimators() -> None:
    refit_job = job()
    weighted = replace(refit_job, weights=np.where(np.arange(600) < 30, 10.0, 1.0))
    done = refit(weighted)
    assert done.effective_labels == pytest.approx(330**2 / (30 * 100 + 30))
    assert by_name(done, "a")["accuracy", "labelled"] != by_name(usual(), "a")["accuracy", "labelled"]


def test_a_broken_model_among_good_ones_neither_breaks_the_fit_nor_hides() -> None:
    refit_job = job(rows=2000, labelled=200)
    noise = np.random.default_rng(5).random(2000).astype(np.float32)
    refit_job.scores[:, 2] = np.stack([1 - noise, noise], axis=1)
    refit_job.predicted[:, 2] = noise > 0.5
    done = refit(refit_job)
    _, truth = simulated(2000, 3)
    for at, model in enumerate(refit_job.models):
        real = (refit_job.predicted[:, at] == truth).mean()
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
    refit_job = job()
    refit_job.scores[17, 1] = [0.5, 1.5]
    refused = refit(refit_job).refused
    assert refused is not None
    assert refused.startswith(f"ssme: {FAILED} (ValueError: scores[17, 1, 1] must be a probability")


def test_a_fit_that_has_collapsed_onto_one_class_is_refused() -> None:
    refit_job = job(labelled=600)
    refit_job.labels[:] = 0
    assert refit(refit_job).refused == "ssme: fit collapsed"


class Failing(LabelEstimator):
    """An estimator that raises a set exception."""

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
    refit_job = replace(job(calibrate=False), estimators=("nonsense",))
    assert "is no estimator that uses labels (ssme, " in str(refit(refit_job).refused)


@pytest.mark.parametrize(
    ("estimators", "expected"),
    [
        (("ssme",), ("ssme", "ensemble", "labelled")),
        (("ssme_paper", "ensemble"), ("ssme_paper", "ensemble", "labelled")),
        (("labelled",), ("labelled",)),
        (("average_confidence", "realised"), ()),
    ],
)
def test_what_stands_beside_ssme(estimators: tuple[str, ...], expected: tuple[str, ...]) -> None:
    assert reported(estimators) == expected


@pytest.mark.parametrize("classes", [2, 3, 9])
@pytest.mark.parametrize("models", [1, 3])
def test_any_number_of_models_and_classes(models: int, classes: int) -> None:
    refit_job = job(rows=200, models=models, classes=classes)
    done = refit(refit_job)
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


def test_a_sample_says_what_it_stands_for_and_what_that_costs_in_width() -> None:
    """An ensemble's interval is of which rows there are alone; of labels' they are the least part."""
    whole = refit(job(estimators=("ensemble",), calibrate=False))
    assert (whole.pool_rows, whole.widening) == (600, 0.0)
    sampled = refit(replace(job(estimators=("ensemble",), calibrate=False), pool_rows=60_000))
    assert (sampled.rows, sampled.pool_rows) == (600, 60_000)
    assert 1.0 < sampled.widening < 8.0, "nine times as wide, were it drawn evenly"
    by_labels = refit(replace(job(), pool_rows=60_000))
    assert 0.0 < by_labels.widening < 1.0, "what the labels leave open is in its interval too"
    assert by_name(by_labels, "a") == by_name(usual(), "a")


@pytest.mark.slow
def test_models_are_ranked_by_the_estimators_that_rest_on_labels() -> None:
    """Intervals that all hold at once with 90 % rank them: model c answers at random, and is the last."""
    refit_job = job(
        rows=1200, labelled=300, estimators=("autoeval", "rectified", "labelled", "ssme", "ensemble")
    )
    refit_job.scores[:, 2] = np.random.default_rng(0).dirichlet([1, 1], 1200)
    refit_job = replace(refit_job, predicted=refit_job.scores.argmax(axis=2))
    done = refit(refit_job)
    ranks = {
        tag: [
            next(e.rank for e in done.models[model].estimates if e.estimator == tag)
            for model in refit_job.models
        ]
        for tag in refit_job.estimators
    }
    for tag in ("autoeval", "rectified", "labelled"):
        assert ranks[tag] == [RankInterval(1, 2), RankInterval(1, 2), RankInterval(3, 3)], tag
    assert ranks["ssme"] == ranks["ensemble"] == [None] * 3
    wide = [
        ESTIMATORS["autoeval"](seed=3, positive=1)
        .fit(refit_job.scores, refit_job.labels, predicted=refit_job.predicted)
        .estimate("accuracy", m, level=1 - 0.1 / 3)
        for m in range(3)
    ]
    assert rank_intervals([(e.lower, e.upper) for e in wide]) == tuple(ranks["autoeval"])


@pytest.mark.slow
def test_the_set_that_knows_how_errors_go_together_tells_apart_what_intervals_do_not() -> None:
    """Model b is a, but wrong where a is right and right where it is wrong in every twentieth answer."""
    tags = ("autoeval", "rectified", "labelled")
    refit_job = job(models=2, rows=1500, labelled=300, estimators=tags, metrics=("accuracy", "auroc"))
    refit_job.scores[:, 1] = refit_job.scores[:, 0]
    refit_job.scores[::20, 1] = refit_job.scores[::20, 1, ::-1]
    refit_job = replace(refit_job, predicted=refit_job.scores.argmax(axis=2), calibrate=False)
    done = refit(refit_job)
    estimates = {(m, e.metric, e.estimator): e for m in refit_job.models for e in done.models[m].estimates}
    for tag in tags:
        of_both = [estimates[m, "accuracy", tag] for m in refit_job.models]
        fit = ESTIMATORS[tag](seed=refit_job.seed, positive=1)
        fit.fit(refit_job.scores, refit_job.labels, predicted=refit_job.predicted)
        value, covariance = [e.result.value for e in of_both], fit.covariance("accuracy")
        expected = simultaneous_ranks(value, covariance, 0.9, "chi_square")
        assert tuple(e.rank_chi_square for e in of_both) == expected
        if tag != "rectified":  # whose intervals are narrower
            assert [e.rank for e in of_both] == [RankInterval(1, 2)] * 2
        assert expected == (RankInterval(1, 1), RankInterval(2, 2))
        assert all(estimates[m, "auroc", tag].rank_chi_square is None for m in refit_job.models)


def test_a_smaller_calibration_error_ranks_higher_and_one_model_alone_is_not_ranked() -> None:
    refit_job = job(rows=1500, labelled=1500, estimators=("labelled",), metrics=("ece",), calibrate=False)
    far = refit_job.scores.copy()
    far[:, 1] = np.where(far[:, 1] > 0.5, 0.999, 0.001)  # as bold as it is wrong
    done = refit(replace(refit_job, scores=far, predicted=far.argmax(axis=2)))
    best = {m: done.models[m].estimates[0].rank for m in refit_job.models}
    assert best["b"] == RankInterval(3, 3)
    assert best["a"].worst == best["c"].worst == 2
    alone = refit(job(models=1, estimators=("labelled",), calibrate=False))
    assert alone.models["a"].estimates[0].rank is None


@pytest.mark.slow
def test_ranks_hold_all_models_at_once() -> None:
    # 150 draws of 100 labels; of the equal models a and b each may have either rank: at 90 % three binomial
    # errors are 7.3 points.
    scores, truth = simulated(3000, 3)
    scores[:, 1] = scores[:, 0]
    right = (scores.argmax(axis=2) == truth[:, None]).mean(axis=0)
    assert right[0] == right[1]
    truly = {0: (1, 2), 1: (1, 2), 2: (3, 3)} if right[2] < right[0] else {0: (2, 3), 1: (2, 3), 2: (1, 1)}
    held, by_set = 0, 0
    for trial in range(150):
        picked = np.random.default_rng(trial).choice(3000, 100, replace=False)
        labels = np.full(3000, -1)
        labels[picked] = truth[picked]
        refit_job = replace(
            job(rows=3000, estimators=("autoeval",), calibrate=False),
            scores=scores, labels=labels, predicted=scores.argmax(axis=2),
        )  # fmt: skip
        done = refit(refit_job)
        estimates = [done.models[m].estimates[0] for m in refit_job.models]
        ends = [(truly[k], e.rank, e.rank_chi_square) for k, e in enumerate(estimates)]
        held += all(r.best <= true[0] and r.worst >= true[1] for true, r, _ in ends)
        by_set += all(r.best <= true[0] and r.worst >= true[1] for true, _, r in ends)
    assert held / 150 >= 0.9 - 0.073
    assert by_set / 150 >= 0.9 - 0.073

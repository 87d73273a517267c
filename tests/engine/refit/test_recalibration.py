"""One recalibration: what it is judged by, what it refuses, and its way to the worker and back."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import fields, replace

from monitor import CALIBRATORS, LabelledRows, calibration_from_snapshot
from monitor.agent.refit_child import answer
from monitor.agent.refit_process import ProcessLimits, RefitWorker
from monitor.base.records import Floats
from monitor.engine.refit import recalibration
from monitor.engine.refit.recalibration import (
    FIRST_LABELS,
    RecalibrationJob,
    RecalibrationResult,
    recalibrate,
)
from monitor.engine.refit.wire import job_from_bytes, job_to_bytes, result_from_bytes, result_to_bytes

TRIALS = 60


def rows(rng: np.random.Generator, n: int, shift: float = 0.0, start: float = 0.0) -> LabelledRows:
    """Return rows whose logit promises too much by `shift`."""
    score = np.clip(rng.beta(0.6, 0.6, n), 0.01, 0.99)
    logit = np.log(score) - np.log1p(-score)
    labels = (rng.random(n) < 1 / (1 + np.exp(shift * np.sign(logit) - logit))).astype(np.int64)
    scores = np.column_stack((1 - score, score))
    return LabelledRows(scores, scores.argmax(axis=1), labels, start + np.arange(n), np.ones(n))


def job(labels: int = 500, shift: float = 0.0, seed: int = 0, trusted: bool = True) -> RecalibrationJob:
    rng = np.random.default_rng(seed)
    before, now = rows(rng, 2000), rows(rng, labels, shift, 1e5)
    old = CALIBRATORS["platt"]().fit(*before[:3])
    every = np.ones(labels, dtype=bool)
    return RecalibrationJob("t", "m", 3, 77, "platt", now, every, before, old.snapshot(), trusted)


def test_where_nothing_has_changed_the_calibration_in_force_stays() -> None:
    """ln 500 nats are passed by chance in far fewer than 5 % of 60 trials: none or one."""
    replaced = [recalibrate(job(seed=seed)).calibration is not None for seed in range(TRIALS)]
    assert sum(replaced) <= 1


def test_labels_that_speak_clearly_replace_it_and_the_gain_says_so() -> None:
    done = recalibrate(job(shift=1.0))
    assert done.refused is None
    assert done.calibration is not None
    assert done.gain > np.log(500)
    assert (done.rows, done.number, done.sequence, done.time) == (500, 3, 77, 1e5 + 499)
    calibration = calibration_from_snapshot(done.calibration)
    confident: Floats = np.array([[0.1, 0.9]])
    assert abs(calibration.apply(confident)[0, 1] - 1 / (1 + np.exp(1 - np.log(9)))) < 0.06


def test_once_trust_is_lost_a_small_gain_is_enough() -> None:
    """A shift for which 500 labels seldom bring ln 500 nats: of 30 trials more are taken without trust."""
    replaced = {
        trusted: sum(
            recalibrate(job(shift=0.35, seed=seed, trusted=trusted)).calibration is not None
            for seed in range(30)
        )
        for trusted in (True, False)
    }
    assert replaced[False] >= 20
    assert replaced[True] <= replaced[False] - 8


def test_while_trusted_the_new_one_is_as_sure_or_joins_the_whole_reference() -> None:
    """500 labels against a reference of 2,000: without trust the shift leaves the reference no weight."""
    recalibration_job = job(shift=1.0)
    assert recalibration_job.reference is not None
    in_force = recalibration.epsilon_of(recalibration_job.reference.scores.max(axis=1))
    sure, lost = (
        recalibrate(replace(recalibration_job, trusted=each, epsilon=in_force)) for each in (True, False)
    )
    assert lost.weight < 0.1
    assert sure.weight > lost.weight
    assert sure.epsilon <= recalibration.AS_SURE * in_force < lost.epsilon
    assert recalibrate(replace(recalibration_job, epsilon=1e-9)).weight == 1.0


def test_only_rows_that_the_one_in_force_has_not_seen_judge() -> None:
    recalibration_job = job(shift=1.0)
    seen = np.arange(500) < 500
    done = recalibrate(replace(recalibration_job, fresh=~seen))
    assert (done.gain, done.calibration) == (0.0, None)


def test_what_the_uncertainty_excuses_grows_with_fewer_labels() -> None:
    few, many = (recalibrate(job(n, shift=1.5, trusted=False)).epsilon for n in (100, 1600))
    assert 0 < many < few < 1


def test_a_reversed_order_is_refused_with_that_sentence() -> None:
    recalibration_job = job()
    wrong = recalibration_job.labelled._replace(labels=1 - recalibration_job.labelled.labels)
    refusal = str(recalibrate(replace(recalibration_job, labelled=wrong)).refused)
    assert refusal.startswith(
        "platt calibration would reverse the order of the scores: among the 500 labelled"
    )
    assert "are these classes (0 to 1, in the order of `classes`) the wrong way round?" in refusal


@pytest.mark.parametrize("reference", [True, False])
def test_labels_of_one_class_are_refused(reference: bool) -> None:
    recalibration_job = job()
    same = recalibration_job.labelled._replace(labels=np.ones(500, dtype=np.int64))
    done = recalibrate(
        replace(
            recalibration_job, labelled=same, reference=recalibration_job.reference if reference else None
        )
    )
    assert done.refused == (
        "the 500 labelled rows are all of class 1, counted from 0: label answers independently of the "
        "outcome; wait for labels of another class"
    )
    assert done.calibration is None


def test_too_few_labels_are_refused() -> None:
    assert str(recalibrate(job(30)).refused).startswith("labelled must have at least 50 rows")
    first = replace(job(FIRST_LABELS - 1), reference=None, in_force={"method": "none", "width": 2})
    assert recalibrate(first).refused == (
        "a first calibration needs 200 labelled rows, got 199; wait for more labels"
    )


@pytest.mark.parametrize("method", sorted(CALIBRATORS.keys() - {"none"}))
def test_without_a_reference_labels_carry_it(method: str) -> None:
    none = {"method": "none", "width": 2}
    recalibration_job = replace(job(400, shift=1.0), reference=None, in_force=none, method=method)
    done = recalibrate(recalibration_job)
    assert done.refused is None
    assert done.calibration is not None
    assert done.calibration["method"] in CALIBRATORS.keys() - {"none", "auto"}


def test_the_same_job_gives_the_same_and_is_left_as_it_was() -> None:
    recalibration_job, other = job(shift=0.5), job(shift=0.5)
    assert recalibrate(recalibration_job) == recalibrate(recalibration_job)
    for mine, before in zip(recalibration_job.labelled, other.labelled, strict=True):
        np.testing.assert_array_equal(mine, before)


@pytest.mark.parametrize("reference", [True, False])
def test_a_job_comes_back_to_the_last_bit(reference: bool) -> None:
    recalibration_job = job(120)
    recalibration_job = recalibration_job if reference else replace(recalibration_job, reference=None)
    back, memory_bytes = job_from_bytes(job_to_bytes(recalibration_job, 1e9))
    assert isinstance(back, RecalibrationJob)
    assert memory_bytes == 1e9
    for each in fields(RecalibrationJob):
        np.testing.assert_equal(getattr(back, each.name), getattr(recalibration_job, each.name))


@pytest.mark.parametrize("job", [job(shift=1.0), job(30), job()], ids=["taken", "refused", "kept"])
def test_a_result_comes_back_equal(job: RecalibrationJob) -> None:
    done = recalibrate(job)
    assert result_from_bytes(result_to_bytes(done)) == done


def test_the_worker_process_answers_what_is_answered_here() -> None:
    recalibration_job = job(shift=1.0)
    with RefitWorker() as worker:
        result = worker.run(recalibration_job, ProcessLimits(60.0, 1e9))
        assert isinstance(result, RecalibrationResult)
        assert replace(result, seconds=0.0) == answer(recalibration_job)


def test_a_worker_that_is_too_slow_or_answers_the_other_kind_is_a_refusal_of_the_job() -> None:
    program = (
        "from monitor.agent.refit_child import *; from monitor.engine.refit.job import RefitResult\n"
        "read_frame(sys.stdin.buffer)\n"
        "write_frame(sys.stdout.buffer, result_to_bytes(RefitResult('t', 3, 0, 0.0)))\n"
    )
    with RefitWorker(("-c", program)) as worker:
        result = worker.run(job(), ProcessLimits(60.0, 1e9))
    assert isinstance(result, RecalibrationResult)
    assert result.refused == "the worker answered refit 3 of t, asked for refit 3 of t"

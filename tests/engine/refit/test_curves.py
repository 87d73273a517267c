"""The calibrations of a refit where models have references: kept, moved by the labels, or without any."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from monitor import IsotonicCalibrator, calibration_from_snapshot, confidence_of
from monitor.base.records import Floats, Ints
from monitor.engine.refit.fit import refit
from monitor.engine.refit.job import RefitJob
from tests.engine.refit.jobs import job
from tests.nearly import nearly


def references(models: int, classes: int = 2, rows: int = 3000) -> tuple[dict[str, Any], ...]:
    """Return fitted on rows like those of `stream` before any drift."""
    scores, truth = stream(rows, models, classes, seed=99)
    return tuple(
        dict(IsotonicCalibrator().fit(old, old.argmax(axis=1), truth).snapshot())
        for old in scores.swapaxes(0, 1)
    )


def stream(
    rows: int, models: int, classes: int = 2, worth: float = 1.0, seed: int = 0
) -> tuple[Floats, Ints]:
    """Return scores of models that claim what they know, and truths drawn from `worth` times those
    log-odds.
    """
    rng = np.random.default_rng([seed, classes])
    known = rng.normal(0.0, 1.5, (rows, 1, classes))
    claimed = known + rng.normal(0.0, 0.3, (rows, models, classes))
    chance = np.exp(worth * known[:, 0])
    chance /= chance.sum(axis=1, keepdims=True)
    truth = (rng.random((rows, 1)) > np.cumsum(chance, axis=1)).sum(axis=1).clip(max=classes - 1)
    scores = np.exp(claimed)
    return scores / scores.sum(axis=2, keepdims=True), truth


def make_job(
    labelled: int, models: int = 2, classes: int = 2, worth: float = 1.0, seed: int = 0, rows: int = 2000
) -> tuple[RefitJob, Ints]:
    """Return a job whose first rows are labelled, with references; and all labels."""
    scores, truth = stream(rows, models, classes, worth, seed)
    refit_job = replace(
        job(rows=rows, labelled=0, models=models, classes=classes, estimators=()),
        scores=scores.astype(np.float32),
        predicted=scores.argmax(axis=2),
        labels=np.where(np.arange(rows) < labelled, truth, -1),
        references=references(models, classes),
    )
    return refit_job, truth


def error(wanted: RefitJob, truth: Ints, snapshots: Iterable[Mapping[str, Any] | None]) -> float:
    """Return largest error of the mean confidence over the models."""
    errors = []
    for at, snapshot in enumerate(snapshots):
        assert snapshot is not None
        acted = wanted.predicted[:, at]
        calibrated = calibration_from_snapshot(snapshot).apply(wanted.scores[:, at].astype(np.float64))
        errors.append(abs(confidence_of(calibrated, acted).mean() - (acted == truth).mean()))
    return float(max(errors))


def errors(wanted: RefitJob, truth: Ints) -> tuple[float, float]:
    """Return the errors by the refit's calibrations and by the references."""
    done = refit(wanted)
    new = [model.calibration for model in done.models.values()]
    return error(wanted, truth, new), error(wanted, truth, wanted.references)


@pytest.mark.parametrize("classes", [2, 3])
def test_where_models_grow_overconfident_a_third_of_the_error_goes_and_more(classes: int) -> None:
    new, old = errors(*make_job(300, classes=classes, worth=0.4))
    assert old > 0.08
    assert new < 0.67 * old


@pytest.mark.simulation
def test_where_nothing_has_changed_little_is_lost_and_the_reference_often_stays() -> None:
    """8 streams: a correction by 300 labels alone would be off by 2.4 points (one standard error)."""
    gaps, kept = [], 0
    for seed in range(8):
        wanted, truth = make_job(300, models=1, seed=seed)
        calibration = refit(wanted).models["a"].calibration
        gaps.append((error(wanted, truth, [calibration]), error(wanted, truth, wanted.references)))
        kept += calibration == wanted.references[0]
    assert np.mean([new - old for new, old in gaps]) < 0.005
    assert max(new for new, _ in gaps) < max(old for _, old in gaps) + 0.02
    assert 2 <= kept < 8  # one label more or less may tip it


def test_a_model_without_a_reference_gets_the_fits_own_curve() -> None:
    wanted, _ = make_job(300, worth=0.4)
    first = (wanted.references[0], None)
    done = refit(replace(wanted, references=first))
    alone = refit(replace(wanted, references=()))
    assert done.models["b"].calibration == nearly(alone.models["b"].calibration)
    assert done.models["a"].calibration not in (first[0], alone.models["a"].calibration)


def test_without_labels_a_reference_keeps_its_calibration() -> None:
    wanted, _ = make_job(0, models=1)
    assert refit(wanted).models["a"].calibration == wanted.references[0]


def test_a_model_without_answers_has_no_calibration_and_troubles_no_other() -> None:
    wanted, _ = make_job(300, worth=0.4)
    wanted.scores[:, 1], wanted.predicted[:, 1] = np.nan, -1
    done = refit(wanted)
    assert done.models["b"].calibration is None
    assert done.models["a"].calibration not in (None, wanted.references[0])


def test_a_model_that_answered_some_of_the_labelled_rows_is_followed_by_those() -> None:
    wanted, truth = make_job(400, worth=0.4)
    wanted.scores[:200, 1], wanted.predicted[:200, 1] = np.nan, -1
    done = refit(wanted).models["b"].calibration
    assert done is not None
    rows = slice(200, None)
    calibrated = calibration_from_snapshot(done).apply(wanted.scores[rows, 1].astype(np.float64))
    acted = wanted.predicted[rows, 1]
    assert confidence_of(calibrated, acted).mean() == pytest.approx((acted == truth[rows]).mean(), abs=0.04)


def test_weights_of_labels_move_the_curve() -> None:
    """Wrong rows that were picked for labelling ten times as often count for a tenth."""
    wanted, truth = make_job(0, models=1)
    wrong = wanted.predicted[:, 0] != truth
    chance = np.where(wrong, 1.0, 0.1)
    picked = np.random.default_rng(3).random(len(truth)) < chance
    labelled = replace(wanted, labels=np.where(picked, truth, -1))
    believed, _ = errors(labelled, truth)
    weighed, _ = errors(replace(labelled, weights=1.0 / chance), truth)
    assert believed > 0.1
    assert weighed < 0.04

"""Recalibration on labels in the engine: when, on which rows, what it brings, and what it leaves alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from monitor.base.results import Estimate
from monitor.config.root import Task
from monitor.engine.refit.recalibration import RecalibrationJob, RecalibrationResult, recalibrate
from monitor.reports.views import SeriesState, SeriesView
from monitor.reports.window_report import WindowReport, to_json
from tests.engine.labels.test_audit import labels_of
from tests.engine.test_engine import reference
from tests.streams import CLASSES, Record, Rig, answers, lines, task

METHODS = ("auto", "beta", "isotonic", "platt", "temperature", "vector")
DRIFT_AT, REQUESTS = 400, 1200


def settings(method: str = "isotonic", **changes: Any) -> Task:
    calibration = {"method": method, "refit_labels": changes.pop("refit_labels", 50)}
    return task(**({"reference": {"path": "r.ndjson"}, "calibration": calibration} | changes))


def stream(requests: int = REQUESTS, drift: float = 0.25, start: float = 1.7e9, **more: Any) -> list[Record]:
    """Return answers, each followed by its label; after `DRIFT_AT` of them right less often than
    confident.
    """
    records = [one | more for one in answers(np.random.default_rng(3), requests, start=start)]
    rng = np.random.default_rng(4)
    right = [rng.random() < max(one["scores"]) - drift * (i >= DRIFT_AT) for i, one in enumerate(records)]
    return [one for pair in zip(records, labels_of(records, right), strict=True) for one in pair]


class Recorder:
    """Recalibrates, and keeps each job and each result."""

    def __init__(
        self, change: Callable[[RecalibrationResult], RecalibrationResult] = lambda one: one
    ) -> None:
        self.jobs: list[RecalibrationJob] = []
        self.done: list[RecalibrationResult] = []
        self._change = change

    def __call__(self, job: RecalibrationJob) -> RecalibrationResult:
        self.jobs.append(job)
        self.done.append(recalibrate(job))
        return self.done[-1]


def rig(task_settings: Task, recorder: Callable[[RecalibrationJob], RecalibrationResult] | None) -> Rig:
    references = reference(settings(), 1000, seed=5) if task_settings.reference.path else {}
    return Rig(task_settings, references, recalibrate=recorder)


def first_lines(reports: list[WindowReport]) -> list[dict[str, Any]]:
    return [msgspec.json.decode(to_json(report)) for report in reports if not report.revision]


def versions(reports: list[WindowReport]) -> list[int]:
    return [line["calibration"]["version"] for line in first_lines(reports) if not line["group"]]


@pytest.fixture(scope="module")
def drifted() -> tuple[Rig, list[WindowReport], Recorder]:
    recorder = Recorder()
    engine_rig = rig(settings(), recorder)
    return engine_rig, engine_rig.feed(stream()), recorder


@pytest.mark.slow
def test_trust_lost_to_drift_comes_back_after_a_recalibration_on_labels(
    drifted: tuple[Rig, list[WindowReport], Recorder],
) -> None:
    rig, reports, _ = drifted
    untrusted = ["untrusted" in line for line in first_lines(reports)]
    assert not any(untrusted[:4]), "nothing has changed in the first 400 answers"
    assert any(untrusted[4:])
    assert not untrusted[-1]
    (series,) = rig.engine.view().series
    assert series.trust is not None
    assert series.trust.trusted
    assert series.state is not SeriesState.UNTRUSTED
    assert versions(reports)[:4] == [1, 1, 1, 1]
    assert versions(reports)[-1] > 1
    # The last 500 answers' estimates against their labels: 25 points off before, a few after.
    last = [{e["estimator"]: e["value"] for e in line["estimates"]} for line in first_lines(reports)[-5:]]
    off = np.mean([one["average_confidence"] - one["realised"] for one in last])
    assert abs(off) < 0.08


@pytest.mark.slow
def test_the_chart_of_the_calibration_error_is_that_of_the_reference_whatever_recalibrations_come() -> None:
    """Witness: the same answers without labels, so that the calibration stays the reference's."""
    both = settings(metrics=["accuracy", "ece"], chart={"sigmas": 1.5})
    records = stream()
    moved, fixed = (
        first_lines(rig(both, recalibrate).feed(each))
        for each in (records, [one for one in records if "scores" in one])
    )
    last = moved[-1]["calibration"]["version"], fixed[-1]["calibration"]["version"]
    assert last[0] > last[1] == 1
    apart = []
    for one, other in zip(moved, fixed, strict=True):
        seen, chart = _ece(one)
        by_reference, witness = _ece(other)
        assert [chart[key] for key in ("rules", "out_of_control")] == [
            witness[key] for key in ("rules", "out_of_control")
        ]
        if chart["lower"] > 0 and witness["lower"] > 0:
            assert seen - chart["lower"] == pytest.approx(by_reference - witness["lower"], abs=2e-6)
        assert seen - chart["upper"] == pytest.approx(by_reference - witness["upper"], abs=2e-6)
        apart.append(abs(seen - by_reference))
    assert max(apart) > 0.02, "the calibration in force gives another error"
    assert any(_ece(one)[1]["rules"] for one in moved)


def _ece(line: dict[str, Any]) -> tuple[float, dict[str, Any]]:
    """Return the estimated error of a window, and its chart."""
    [value] = [each["value"] for each in line["estimates"] if each["metric"] == "ece"]
    [chart] = [each for each in line["charts"] if each["metric"] == "ece"]
    return value, chart


@pytest.mark.slow
def test_the_calibration_of_the_baseline_outlives_a_restart() -> None:
    both = settings(metrics=["accuracy", "ece"], chart={"sigmas": 1.5})
    records = stream()
    through = rig(both, recalibrate)
    lines = first_lines(through.feed(records))
    halted = rig(both, recalibrate)
    before = first_lines(halted.feed(records[:1800]))
    assert before[-1]["calibration"]["version"] > 1
    halted.restart()
    assert before + first_lines(halted.feed(records[1800:])) == lines


def test_no_window_rests_on_a_calibration_that_has_seen_one_of_its_rows(
    drifted: tuple[Rig, list[WindowReport], Recorder],
) -> None:
    _, reports, recorder = drifted
    replacing = [
        job for job, done in zip(recorder.jobs, recorder.done, strict=True) if done.calibration is not None
    ]
    assert replacing
    windows = [report for report in reports if not report.revision]
    for version, job in enumerate(replacing, start=2):
        estimated = [window for window in windows if window.calibration.version >= version]
        assert min(window.start_time for window in estimated) > job.labelled.time.max()


def test_a_fit_is_judged_only_by_rows_that_the_one_in_force_has_not_seen(
    drifted: tuple[Rig, list[WindowReport], Recorder],
) -> None:
    jobs, done = drifted[2].jobs, drifted[2].done
    assert jobs[0].fresh.all()
    seen = -np.inf
    for job, result in zip(jobs, done, strict=True):
        np.testing.assert_array_equal(job.fresh, job.labelled.time > seen)
        if result.calibration is not None:
            seen = max(seen, float(job.labelled.time.max()))


def test_after_a_loss_of_trust_a_fit_rests_on_the_rows_since_the_change(
    drifted: tuple[Rig, list[WindowReport], Recorder],
) -> None:
    lost = next(job for job in drifted[2].jobs if not job.trusted)
    assert len(lost.labelled.labels) == 200  # at the least; all before were pooled
    before = drifted[2].jobs[drifted[2].jobs.index(lost) - 1]
    assert len(before.labelled.labels) > 200


@pytest.mark.slow
def test_where_nothing_changes_the_windows_are_those_without_recalibration_byte_for_byte() -> None:
    recorder = Recorder()
    with_it = rig(settings("platt"), recorder)
    without = rig(settings("platt", refit_labels=None), None)
    records = stream(drift=0.0)
    assert lines(with_it.feed(records)) == lines(without.feed(records))
    assert len(recorder.jobs) > 5
    assert {done.refused for done in recorder.done} == {None}


def contradicted(records: list[Record]) -> list[Record]:
    """Return answers and labels, each label followed by another hand's, which says that the answer was
    right.
    """
    acted = {one["id"]: CLASSES[int(one["scores"][1] > 0.5)] for one in records if "scores" in one}
    return [
        each
        for one in records
        for each in ([one] if "scores" in one else [one, one | {"label": acted[one["id"]]}])
    ]


@pytest.mark.slow
def test_while_labels_replace_each_other_no_recalibration_begins_also_after_a_restart() -> None:
    """Labels that say that all was right would take the estimate to 1; without the maximum they do."""
    # From the first answer on right less often than confident, so that a recalibration is due at once.
    attack = contradicted(stream(800, drift=0.12, start=1.7e9)[2 * DRIFT_AT :])
    rigs: dict[float, tuple[Rig, Recorder]] = {}
    for allowed in (0.05, 1.0):
        rigs[allowed] = rig(settings(labels={"max_replaced": allowed}), recorder := Recorder()), recorder
        rigs[allowed][0].feed(attack)
    (series,) = rigs[1.0][0].engine.view().series
    assert estimate_of(series) > 0.97
    attacked, recorder = rigs[0.05]
    assert not recorder.jobs
    for _ in range(2):
        (series,) = attacked.engine.view().series
        assert estimate_of(series) < 0.95
        assert series.recalibrations is not None
        assert series.recalibrations.held
        assert "labels replaced another label for their id" in str(series.recalibrations.refused)
        attacked.restart()
    attacked.feed(stream(2500, drift=0.0, start=1.8e9))
    (series,) = attacked.engine.view().series
    assert series.recalibrations is not None
    assert not series.recalibrations.held, "the newest 2,000 labelled answers are clean again"
    assert recorder.jobs


def estimate_of(series: SeriesView) -> float:
    """Return the estimated accuracy of its last window."""
    (value,) = [
        one.result.value
        for one in series.estimates
        if one.estimator == "average_confidence" and isinstance(one.result, Estimate)
    ]
    return value


def test_a_few_corrections_hold_nothing_back() -> None:
    recorder = Recorder()
    corrected = rig(settings(), recorder)
    records = stream(400, drift=0.0)
    corrected.feed(records)
    done = len(recorder.jobs)
    corrected.feed(contradicted(records[-40:]))
    corrected.feed(stream(200, drift=0.0, start=1.8e9))
    assert len(recorder.jobs) > done
    (series,) = corrected.engine.view().series
    assert series.recalibrations is not None
    assert not series.recalibrations.held


@pytest.mark.slow
def test_trust_lost_again_among_the_first_labels_after_a_fit_makes_one_due_however_these_are_cut() -> None:
    records = stream(900)
    whole, pieces = rig(settings(), recalibrate), rig(settings(), recalibrate)
    reports = pieces.feed_in_pieces(records, [*range(201, len(records), 201)])
    assert lines(reports) == lines(whole.feed(records))


@pytest.mark.slow
@pytest.mark.parametrize("cuts", [[1], [801, 1111], list(range(0, 2400, 171))])
def test_how_the_stream_is_cut_cannot_be_seen(
    drifted: tuple[Rig, list[WindowReport], Recorder], cuts: list[int]
) -> None:
    engine_rig = rig(settings(), recalibrate)
    assert lines(engine_rig.feed_in_pieces(stream(), cuts)) == lines(drifted[1])
    assert engine_rig.engine.view() == drifted[0].engine.view()


@pytest.mark.slow
@pytest.mark.parametrize("cuts", [[800], [800, 900], list(range(800, 2000, 171))])
def test_labels_that_came_before_their_answers_make_later_answers_wait_however_the_stream_is_cut(
    cuts: list[int],
) -> None:
    records = stream()
    early = [*records[1:1600:2], *records[0::2]]
    once, cut = rig(settings(), recalibrate), rig(settings(), recalibrate)

    reports = once.feed(early)

    assert lines(cut.feed_in_pieces(early, cuts)) == lines(reports)
    assert versions(reports)[-1] >= 3


def of_models(requests: int, seed: int) -> list[Record]:
    """Return three models answer the same requests in records of their own; labels come along, later or
    changed.
    """
    rng = np.random.default_rng(seed)
    scores, truth = rng.random((requests, 3)).round(4), rng.random(requests)
    records: list[tuple[float, Record]] = []
    for i in range(requests):
        label = CLASSES[int(truth[i] < scores[i].mean() ** 2)]
        for m, score in enumerate(scores[i].tolist()):
            at = i + rng.exponential((0.1, 3.0, 6.0)[m])
            one = {
                "id": f"r{i}",
                "model": f"m{m}",
                "scores": [1 - score, score],
                "groups": {"region": f"{i % 2}"},
            }
            records.append((at, one | ({"label": label} if rng.random() < 0.3 else {})))
        if rng.random() < 0.5:
            outcome = CLASSES[1 - CLASSES.index(label)] if rng.random() < 0.03 else label
            whose = {"model": "m1"} if rng.random() < 0.3 else {}
            records.append((i + rng.exponential(20.0), {"id": f"r{i}", "label": outcome} | whose))
    return [one | {"time": 1.7e9 + at} for at, one in sorted(records, key=lambda each: each[0])]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_records_that_do_not_wait_for_a_window_leave_what_its_fit_rests_on(seed: int) -> None:
    records, written, recorders = of_models(150, seed), [], [Recorder(), Recorder()]
    for recorder, cuts in zip(recorders, [[], range(1, len(records))], strict=True):
        fed = rig(settings(groups=["region"], window={"size": 50}), recorder)
        written.append(lines(fed.feed_in_pieces(records, cuts)))
    assert written[0] == written[1], "one record at a time, each fit is done as its window closes"
    jobs = [
        [(job.number, job.model, job.sequence, len(job.fresh)) for job in each.jobs] for each in recorders
    ]
    assert len(jobs[0]) >= 3
    assert jobs[0] == jobs[1]


def test_windows_that_close_one_after_the_other_are_taken_together(monkeypatch: pytest.MonkeyPatch) -> None:
    fed = rig(settings(window={"size": 50}), recalibrate)
    scored = zip(
        *(answers(np.random.default_rng(i), 500, f"m{i}", labelled=True) for i in range(3)), strict=True
    )
    sizes: list[int] = []
    take = fed.engine._take
    monkeypatch.setattr(
        fed.engine, "_take", lambda piece, now: sizes.append(piece.answers) or take(piece, now)
    )
    fed.feed([one for each in scored for one in each])
    assert sum(sizes) == 1500
    assert len(sizes) < 15, "there are 30 windows"


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_every_method_is_fitted_again(method: str) -> None:
    recorder = Recorder()
    reports = rig(settings(method), recorder).feed(stream(700))
    assert versions(reports)[-1] > 1
    used = {job.method for job in recorder.jobs}
    assert used == {first_lines(reports)[0]["calibration"]["method"]}
    assert "auto" not in used


@pytest.mark.parametrize("task_settings", [settings("none"), settings(refit_labels=None)])
def test_scores_as_they_are_and_a_calibration_that_is_to_stay_are_left_alone(task_settings: Task) -> None:
    engine_rig = rig(task_settings, Recorder())
    assert set(versions(engine_rig.feed(stream()))) <= {0, 1}
    assert engine_rig.engine.refits() == []


def test_without_a_reference_the_first_calibration_comes_with_200_labels_and_begins_a_baseline() -> None:
    recorder = Recorder()
    engine_rig = rig(settings("platt", reference={"first_windows": 5}), recorder)
    reports = engine_rig.feed(stream(drift=0.0))
    assert [done.refused is None for done in recorder.done[:4]] == [False, False, True, True]
    assert recorder.done[0].refused == (
        "a first calibration needs 200 labelled rows, got 99; wait for more labels"
    ), "the answer with which the first window closed has no label yet"
    assert versions(reports)[:4] == [0, 0, 0, 1]
    assert first_lines(reports)[0]["calibration"]["method"] == "none"
    charts = [bool(line["charts"]) and line["charts"][0]["center"] for line in first_lines(reports)]
    assert not any(charts[:8]), "the first five windows with a calibration make the baseline"
    assert all(charts[9:])


def test_a_task_of_confidences_only_is_recalibrated_too() -> None:
    task_settings = task(classes=[], calibration={"method": "platt"}, reference={"first_windows": 5})
    rng = np.random.default_rng(1)
    records: list[Record] = []
    for i, confidence in enumerate(rng.uniform(0.5, 1.0, 600).tolist()):
        head = {"id": f"r{i}", "time": 1.7e9 + i, "model": "erm"}
        records += [head | {"confidence": confidence}, head | {"correct": rng.random() < confidence - 0.2}]
    reports = rig(task_settings, recalibrate).feed(records)
    assert versions(reports)[-1] >= 1


@pytest.mark.slow
def test_groups_have_the_calibration_of_their_model_also_where_they_come_later() -> None:
    engine_rig = rig(settings(groups=["region"]), recalibrate)
    reports = engine_rig.feed(stream(groups={"region": "eu"}))
    reports += engine_rig.feed(stream(200, start=1.7e9 + 9000, groups={"region": "us"}))
    found_series = engine_rig.engine.view().series
    assert [one.group for one in found_series] == ["", "region=eu", "region=us"]
    assert len({dataclasses.replace(one.calibration, version=0) for one in found_series}) == 1
    assert found_series[0].calibration.version > 1
    assert all(one.calibration.version >= found_series[0].calibration.version for one in found_series)


def due_rig() -> tuple[Rig, RecalibrationJob]:
    engine_rig = rig(settings(), None)
    engine_rig.feed(stream(500))
    [job] = engine_rig.engine.refits()
    assert isinstance(job, RecalibrationJob)
    return engine_rig, job


def test_one_under_way_is_due_again_after_a_restart_and_its_answer_is_dropped() -> None:
    rig, job = due_rig()
    assert rig.engine.refits() == [], "one at a time"
    rig.restart()
    assert not rig.engine.publish(recalibrate(job), now=1.0)
    [again] = rig.engine.refits()
    assert isinstance(again, RecalibrationJob)
    assert again.number == job.number + 1
    for mine, other in zip(again.labelled, job.labelled, strict=True):
        np.testing.assert_array_equal(mine, other)
    assert rig.engine.publish(recalibrate(again), now=1.0)


def test_another_version_of_the_model_drops_it_and_is_not_fitted_on_rows_before() -> None:
    rig, job = due_rig()
    rig.feed(stream(300, start=1.7e9 + 9000, version="v2"))
    rig.feed(stream(300, start=1.7e9 + 19000, version="v3"))
    assert not rig.engine.publish(recalibrate(job), now=1.0)
    [again] = rig.engine.refits()
    assert isinstance(again, RecalibrationJob)
    assert again.labelled.time.min() >= 1.7e9 + 19000


def test_a_new_reference_is_not_joined_by_rows_that_it_may_hold() -> None:
    rig, _ = due_rig()
    state = rig.engine.snapshot()
    state.tasks["t"] = state.tasks["t"].without_baseline()
    rig.engine = rig.settings.build(state)
    assert rig.engine.refits() == []
    rig.feed(stream(300, start=1.7e9 + 9000))
    [job] = rig.engine.refits()
    assert isinstance(job, RecalibrationJob)
    assert job.labelled.time.min() >= 1.7e9 + 9000


@pytest.mark.parametrize("broken", [{"method": "bogus"}, {"method": "none", "width": 3}, {}])
def test_an_answer_that_is_no_calibration_is_a_refusal_and_the_one_in_force_stays(
    broken: dict[str, Any],
) -> None:
    rig, job = due_rig()
    assert rig.engine.publish(replace(recalibrate(job), calibration=broken), now=1.0)
    assert rig.engine.view().series[0].calibration.version == 1
    schedule = rig.engine.series["t"][0].recalibration
    assert schedule is not None
    assert schedule.outcomes == {"taken": 0, "kept": 0, "refused": 1}
    assert str(schedule.refused).startswith("what the fit brought cannot be read: ")


def test_labels_of_open_windows_wait_and_the_reason_is_kept() -> None:
    engine_rig = rig(settings(), None)
    engine_rig.feed(stream(90))
    assert engine_rig.engine.refits() == []
    schedule = engine_rig.engine.series["t"][0].recalibration
    assert schedule is not None
    assert schedule.refused == ("0 labelled answers in closed windows, 50 are needed; wait for more labels")


def test_what_became_of_fits_is_seen_from_outside() -> None:
    engine_rig, job = due_rig()
    before = engine_rig.engine.view().series[0].recalibrations
    assert before is not None
    assert (before.outcomes, before.under_way) == ({"taken": 0, "kept": 0, "refused": 0}, True)
    assert engine_rig.engine.publish(job.refused("of one class"), now=1.0)
    after = engine_rig.engine.view().series[0].recalibrations
    assert after is not None
    assert (after.outcomes["refused"], after.refused, after.under_way) == (1, "of one class", False)
    still = rig(settings(refit_labels=None), None)
    still.feed(stream(200))
    assert still.engine.view().series[0].recalibrations is None


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 3, 4])
def test_a_change_that_lasts_is_one_alarm_however_often_the_calibration_is_fitted_again(seed: int) -> None:
    """Seeds without a false alarm before the change, which one series in eight or so has."""
    rng = np.random.default_rng(seed)
    records = list(answers(rng, 2200, start=1.7e9))
    right = [rng.random() < max(one["scores"]) - 0.15 * (i >= 1000) for i, one in enumerate(records)]
    pairs = zip(records, labels_of(records, right), strict=True)
    known = reference(settings(), 2000, seed=seed + 50)
    written = first_lines(
        Rig(settings(), known, recalibrate=recalibrate).feed([one for pair in pairs for one in pair])
    )
    latched = [line["charts"][0]["out_of_control"] for line in written]
    raised = [i for i, (before, now) in enumerate(pairwise([False, *latched])) if now and not before]
    assert len(raised) == 1
    assert raised[0] >= 10, "the change is in window 10"
    assert all(latched[raised[0] :]), "and stays as long as the change does"
    assert written[-1]["calibration"]["version"] > 1


@pytest.mark.slow
def test_after_a_fit_on_labels_intervals_hold_the_error_of_so_many_rows_in_groups_too() -> None:
    recorder = Recorder()
    engine_rig = rig(settings(groups=["region"]), recorder)
    engine_rig.feed(stream(groups={"region": "eu"}))
    whole, group = (series.active for series in engine_rig.engine.series["t"])
    assert whole.predictive is not None
    assert group.predictive is not None
    fits = zip(recorder.jobs, recorder.done, strict=True)
    job, done = [one for one in fits if one[1].calibration is not None][-1]
    assert job.reference is not None
    confidence = engine_rig.engine.series["t"][0].active.confidence(
        job.labelled.scores, job.labelled.predicted
    )
    # Right by chance alone, as the confidences say: the mean of a curve is known as well as that.
    chance = float((confidence * (1 - confidence)).mean())
    share, one = np.full(len(confidence), 1 / len(confidence)), np.zeros(len(confidence), dtype=np.int64)
    variance = whole.predictive.curve_variances(
        whole.predictive.place(confidence, job.labelled.predicted), share, one, 1
    )[0]
    rows = len(confidence) + done.weight * len(job.reference.labels)
    assert variance == pytest.approx(chance / rows, rel=0.35), "200 draws, two curves"
    np.testing.assert_array_equal(group.predictive.directions, whole.predictive.directions)
    assert group.predictive.number == whole.predictive.number == whole.view.version


def of_groups(off: dict[str, float], requests: int = 4000) -> list[Record]:
    """Return answers of groups in turn, each followed by its label: right by so much less than confident."""
    names = list(off)
    records = answers(np.random.default_rng(6), requests)
    rng = np.random.default_rng(7)
    records = [one | {"groups": {"region": names[i % len(names)]}} for i, one in enumerate(records)]
    right = [rng.random() < max(one["scores"]) - off[one["groups"]["region"]] for one in records]
    return [one for pair in zip(records, labels_of(records, right), strict=True) for one in pair]


OFF = {"eu": 0.0, "us": 0.2, "asia": 0.0, "africa": 0.0}


@pytest.fixture(scope="module")
def grouped() -> tuple[Rig, list[WindowReport]]:
    engine_rig = rig(settings(groups=["region"]), recalibrate)
    return engine_rig, engine_rig.feed(of_groups(OFF))


@pytest.mark.slow
def test_a_group_that_differs_has_its_models_calibration_and_is_corrected_by_its_own_labels(
    grouped: tuple[Rig, list[WindowReport]],
) -> None:
    rig, reports = grouped
    whole, *groups = rig.engine.series["t"]
    assert whole.active.view.version > 1
    fits = [each.active.calibration.snapshot() for each in groups]
    assert fits == [whole.active.calibration.snapshot()] * len(OFF)
    us = {each.settings.group: each.view().trust for each in groups}["region=us"]
    assert us is not None
    assert us.trusted
    assert us.confidences is not None
    assert us.confidences.upper < 0
    for group in OFF:
        last = [line for line in first_lines(reports) if line["group"] == f"region={group}"][-5:]
        values = [{e["estimator"]: e["value"] for e in line["estimates"]} for line in last]
        assert abs(np.mean([one["corrected"] - one["realised"] for one in values])) < 0.07


@pytest.mark.slow
@pytest.mark.parametrize("cuts", [[1], [401, 555, 3000], list(range(0, 8000, 271))])
def test_neither_cuts_nor_restarts_can_be_seen_of_a_groups_calibration(
    grouped: tuple[Rig, list[WindowReport]], cuts: list[int]
) -> None:
    engine_rig = rig(settings(groups=["region"]), recalibrate)
    assert lines(engine_rig.feed_in_pieces(of_groups(OFF), cuts, restart=True)) == lines(grouped[1])
    assert engine_rig.engine.view() == grouped[0].engine.view()


def test_answers_that_become_surer_are_an_improvement_and_no_alarm() -> None:
    """The first 500 answers are as in the reference, the others have higher confidences."""
    rng = np.random.default_rng(11)
    records = answers(rng, 500, weights=(0.6, 0.3, 0.1))
    surer = answers(rng, 700, weights=(0.97, 0.0, 0.03), start=1.75e9)
    better = [one | {"id": f"b{i}"} for i, one in enumerate(surer)]
    rig = Rig(task(reference={"first_windows": 5}, calibration={"method": "none"}, chart={"sigmas": 3}))
    written = first_lines(rig.feed([*records, *better[:300]]))
    rig.restart()
    written += first_lines(rig.feed(better[300:]))
    charts = [chart for line in written for chart in line["charts"]]
    assert [chart["out_of_control"] for chart in charts] == [False] * 7
    assert all(chart.get("improved") for chart in charts)
    assert any(line.get("attributions") for line in written), "where it improved"
    (series,) = rig.engine.view().series
    assert (series.state, series.alarmed_since) == (SeriesState.IN_CONTROL, {})
    assert [chart.verdict.improved for chart in series.charts] == [True]

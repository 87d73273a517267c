"""Refits in the engine: when they are due, what they rest on, and what becomes of their answers."""

from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from monitor import ESTIMATORS
from monitor.base.records import id_keys
from monitor.base.registry import REFITTED
from monitor.base.results import Estimate, Unknown
from monitor.base.state_changes import assemble
from monitor.engine.refit.fit import refit
from monitor.engine.refit.job import ModelRefit, RefitJob, RefitResult
from monitor.reports.window_report import WindowReport
from monitor.store import Store
from tests.examples import examples
from tests.refits import cheap_refit
from tests.streams import CLASSES, Record, Rig, answers, confidences, lines, reference_of, task

MODELS = ("erm", "irm")
SSME = {"models": list(MODELS), "every_windows": 3, "every_labels": 20}
TASK: dict[str, Any] = {
    "estimators": ["average_confidence", "realised", "ensemble", "labelled"],
    "calibration": {"method": "ssme"},
    "metrics": ["accuracy", "ece"],
    "window": {"size": 60, "min_size": 20, "max_age_seconds": 120},
    "ssme": SSME,
}


@cache
def stream(seed: int, requests: int = 400) -> list[Record]:
    """Return two models' answers by id, in one record or in two; labels early, late, changed, and by a
    chance.
    """
    rng = np.random.default_rng(seed)
    records: list[Record] = []
    late: list[tuple[int, Record]] = []
    time = 1.7e9
    for i, score in enumerate(confidences(rng, requests).tolist()):
        time += float(rng.exponential(1.0)) + 150 * (rng.random() < 0.01)
        records += [label for due, label in late if due == i]
        other = float(np.clip(score + rng.normal(0, 0.1), 0, 1).round(6))
        both = {"erm": [1 - score, score], "irm": [1 - other, other]}
        head = {"id": f"r{i}", "time": time, "version": "v1" if i < requests // 2 else "v2"}
        label = {
            "id": f"r{i}",
            "label": CLASSES[int(rng.random() < score)],
            "time": time,
            "probability": 0.25,
        }
        chance = rng.random()
        if chance < 0.05:
            records.append(label)  # before its answers
        if chance < 0.3:
            records.append(head | {"models": both, "groups": {"region": "eu"}})
        else:
            records += [head | {"model": model, "scores": scores} for model, scores in both.items()]
        if chance < 0.25:
            late.append((i + int(rng.integers(1, 60)), label))
        if chance < 0.02:
            late.append((i + 70, label | {"label": CLASSES[0]}))
        if chance > 0.98:
            records.append(records[-1])
    return records


def rig(**changes: Any) -> Rig:
    return Rig(task(**(TASK | changes)), refit=cheap_refit)


@pytest.fixture(scope="module")
def whole() -> tuple[list[bytes], Any]:
    engine_rig = rig()
    reports = engine_rig.feed(stream(1))
    return lines(reports), engine_rig.engine.view()


@pytest.mark.slow
def test_the_stream_of_these_tests_has_all_that_matters(whole: tuple[list[bytes], Any]) -> None:
    reports = rig().feed(stream(1))
    first = [report for report in reports if not report.revision]
    assert {report.closed_by for report in first} == {"size", "age", "version"}
    assert len({report.calibration.version for report in first}) > 4
    state = whole[1].refits["t"]
    assert state.number >= 5
    assert 50 < state.labelled < state.rows < 400


@pytest.mark.slow
@examples(15)
@given(cuts=st.lists(st.integers(0, 700), max_size=12))
def test_reports_do_not_depend_on_how_the_stream_is_cut(
    whole: tuple[list[bytes], Any], cuts: list[int]
) -> None:
    engine_rig = rig()
    records = stream(1)
    reports = engine_rig.feed_in_pieces(records, [min(cut, len(records)) for cut in cuts])
    assert (lines(reports), engine_rig.engine.view()) == whole


@pytest.mark.slow
def test_nor_when_every_record_comes_alone(whole: tuple[list[bytes], Any]) -> None:
    engine_rig, records = rig(), stream(1)
    assert lines(engine_rig.feed_in_pieces(records, range(1, len(records)))) == whole[0]


@pytest.mark.parametrize("cut", [1, 150, 333, 600])
def test_a_restart_from_the_snapshot_changes_nothing(whole: tuple[list[bytes], Any], cut: int) -> None:
    engine_rig, records = rig(), stream(1)
    reports = engine_rig.feed(records[:cut])
    engine_rig.restart()
    assert lines(reports + engine_rig.feed(records[cut:])) == whole[0]


def test_a_restart_from_the_store_changes_nothing(whole: tuple[list[bytes], Any], tmp_path: Any) -> None:
    engine_rig, records = rig(), stream(1)
    store = Store(tmp_path)
    reports: list[WindowReport] = []
    for start in range(0, 600, 100):
        new = engine_rig.feed(records[start : start + 100])
        store.commit(engine_rig.engine.changes(), new)
        engine_rig.engine.confirm()
        reports += new
    saved = store.load()
    store.close()
    assert "pool/t" in saved.rings
    engine_rig.engine = engine_rig.settings.build(assemble(saved.parts, saved.rings))
    assert lines(reports + engine_rig.feed(records[600:])) == whole[0]


def test_refits_that_are_switched_on_and_off_find_what_was_saved_without_them(tmp_path: Any) -> None:
    """The saved rings gain and lose columns; answers from before have no scores, and take no part."""
    store, counts = Store(tmp_path), []
    plain = {"estimators": ["average_confidence"], "calibration": {"method": "none"}}
    engine_rig = Rig(task(**(TASK | plain)))
    for turn, changes in enumerate([plain, {}, plain, {}]):
        engine_rig.settings = rig(**changes).settings
        saved = store.load()
        engine_rig.engine = engine_rig.settings.build(assemble(saved.parts, saved.rings))
        start = 1.7e9 + 10_000 * turn
        engine_rig.feed([{**r, "label": "ok"} for r in answers(np.random.default_rng(3), 130, start=start)])
        store.commit(engine_rig.engine.changes())
        engine_rig.engine.confirm()
        assert ("pool/t" in store.load().rings) == (changes != plain), "what is of no use does not stay"
        state = engine_rig.engine.view().refits.get("t")
        counts.append(state and (state.labelled, engine_rig.engine.view().series[0].duplicates))
    store.close()
    assert counts[0] is counts[2] is None
    assert counts[1] == counts[3] == (130, 0), "the last record closed a window"


def live(**changes: Any) -> Rig:
    return Rig(task(**(TASK | changes)))


def both(n: int, start: int = 0, labelled: bool = True, **more: Any) -> list[Record]:
    """Return requests that both models answer alike, every fifth of the first class."""
    scores = confidences(np.random.default_rng(start), n).tolist()
    return [
        {"id": f"b{i}", "time": 1.7e9 + i, "models": {m: [1 - s, s] for m in MODELS}}
        | ({"label": CLASSES[int(i % 5 > 0)]} if labelled else {})
        | more
        for i, s in enumerate(scores, start)
    ]


def by_tag(report: WindowReport, tag: str) -> list[Any]:
    return [estimate.result for estimate in report.estimates if estimate.estimator == tag]


def test_live_a_job_is_given_out_once_and_nothing_waits_for_it() -> None:
    rig = live()
    before = rig.feed(both(200))
    [job] = rig.engine.refits()
    assert (job.number, job.models, job.sequence, job.calibrate) == (1, MODELS, 399, True)
    assert (job.estimators, job.metrics) == (("ensemble", "labelled"), ("accuracy", "ece"))
    assert job.scores.shape == (200, 2, 2)
    assert job.time == 1.7e9 + 199
    during = rig.feed(both(200, 200))
    assert rig.engine.refits() == [], "one is under way"
    assert {str(result.reason) for report in before + during for result in by_tag(report, "labelled")} == {
        "no fit yet"
    }
    assert rig.engine.view().refits["t"].under_way
    assert rig.engine.publish(cheap_refit(job), now=1.8e9)
    [after, *_] = rig.feed(both(60, 400))
    assert all(isinstance(result, Estimate) for result in by_tag(after, "labelled"))
    assert (during[-1].calibration.version, after.calibration.version) == (0, 1)
    state = rig.engine.view().refits["t"]
    assert (state.success_time, state.rows, state.labelled, state.failures) == (1.8e9, 200, 200, 0)
    assert state.prevalence == {"ok": 0.2, "bad": 0.8}
    [job] = rig.engine.refits()
    assert (job.number, len(job.labels)) == (2, 460), "what came due meanwhile begins at once"


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        ({"refused": "the fit needed more than 60 s"}, "the fit needed more than 60 s"),
        ({"models": {"erm": ModelRefit((), {"method": "tea leaves"})}}, "cannot be read: snapshot.method"),
        ({"prevalence": (1.0,)}, "cannot be read: "),
        ({"models": {"erm": ModelRefit((), {"method": "none", "width": 3})}}, "is for 3 classes"),
    ],
)  # fmt: skip
def test_a_refused_or_unreadable_answer_is_counted_and_the_last_fit_stays(broken: Any, reason: str) -> None:
    rig = live()
    rig.feed(both(200))
    [job] = rig.engine.refits()
    good = cheap_refit(job)
    rig.engine.publish(good, now=5.0)
    rig.feed(both(200, 200))
    [job] = rig.engine.refits()
    assert rig.engine.publish(replace(cheap_refit(job), **broken), now=6.0)
    state = rig.engine.view().refits["t"]
    assert (state.failures, state.success_time, state.labelled) == (1, 5.0, 200)
    assert state.refused is not None
    assert reason in state.refused
    [report, *_] = rig.feed(both(60, 400))
    assert tuple(e for e in report.estimates if e.estimator == "labelled") == tuple(
        e.read() for e in good.models["erm"].estimates if e.estimator == "labelled"
    )
    assert report.calibration.version == 1
    assert len(rig.engine.refits()) == 1, "the next one is not held up"


def test_an_answer_that_nobody_waits_for_is_dropped() -> None:
    rig = live()
    rig.feed(both(200))
    [job] = rig.engine.refits()
    rig.restart()
    assert not rig.engine.publish(cheap_refit(job), now=1.0), "the one who asked is gone"
    [again] = rig.engine.refits()
    assert again.number == 2, "what was under way is due again"
    assert not rig.engine.publish(cheap_refit(job), now=1.0)
    assert not rig.engine.publish(RefitResult("other", 2, 0, 0.0), now=1.0)
    assert rig.engine.publish(cheap_refit(again), now=1.0)


@pytest.mark.slow
def test_while_labels_replace_each_other_no_refit_begins() -> None:
    records = stream(3)
    labels = [one for one in records if "label" in one and "models" not in one]
    other = [one | {"label": CLASSES[1 - CLASSES.index(one["label"])]} for one in labels]
    held = Rig(task(**TASK), refit=cheap_refit)
    held.feed(records[: len(records) // 2])
    held.feed([*labels, *other])
    begun = held.engine.view().refits["t"].number
    held.feed(records[len(records) // 2 :])
    view = held.engine.view().refits["t"]
    assert (view.number, view.held) == (begun, True)
    assert "labels replaced another label for their id" in str(view.refused)
    held.restart()
    assert held.engine.view().refits["t"].held
    allowed = Rig(task(**TASK, labels={"max_replaced": 1}), refit=cheap_refit)
    allowed.feed([*records, *labels, *other, *stream(4)])
    assert not allowed.engine.view().refits["t"].held


def test_too_few_rows_begin_no_refit_and_time_alone_does() -> None:
    rig = live(ssme=SSME | {"every_windows": 1})
    rig.feed(both(99))
    assert rig.engine.refits() == []
    rig.feed(both(1, 99))
    assert [len(job.labels) for job in rig.engine.refits()] == [100]
    by_time = SSME | {"every_windows": 99, "every_labels": 999, "every_seconds": 60}
    timed = Rig(task(**(TASK | {"ssme": by_time})), event_time=False)
    timed.feed(both(130), now=1000.0)
    timed.engine.tick(1059.0)
    assert timed.engine.refits() == []
    timed.engine.tick(1060.0)
    assert len(timed.engine.refits()) == 1


def test_the_first_curve_begins_a_new_baseline_and_one_after_the_references_does_not() -> None:
    steady = {
        "window": {"size": 60, "min_size": 20, "max_age_seconds": 1e9},
        "reference": {"first_windows": 5},
        "ssme": SSME | {"every_windows": 99, "every_labels": 400},
    }
    reference = {"t": {"erm": batch_reference()}}
    states = []
    for references in ({}, reference):
        rig = Rig(task(**(TASK | steady)), references)
        rig.feed(both(420))
        charted = rig.engine.view().series[0].charts != ()
        [job] = rig.engine.refits()
        rig.engine.publish(cheap_refit(job), now=1.0)
        view = rig.engine.view().series[0]
        states.append((charted, view.state.value, view.charts != (), view.calibration.version))
    assert states == [(True, "warming_up", False, 1), (True, states[1][1], True, 2)]
    assert states[1][1] != "warming_up"


def test_rows_that_came_before_the_first_curve_are_not_held_against_it() -> None:
    """Their confidences are raw scores; 90 of them, all wrong, stand in the window that is open then."""
    rig = live(window={"size": 200, "min_size": 20, "max_age_seconds": 1e9})
    rig.feed(both(200))
    [job] = rig.engine.refits()
    rig.feed(both(90, start=200, labelled=False))
    rig.engine.publish(cheap_refit(job), now=1.0)
    wrong = [{"id": f"b{i}", "label": CLASSES[0], "time": 1.7e9 + 300} for i in range(200, 290)]
    rig.feed(both(200, start=290, labelled=False) + wrong)
    assert rig.engine.view().series[0].coverage is None
    rig.feed([{"id": f"b{i}", "label": CLASSES[1], "time": 1.7e9 + 500} for i in range(400, 460)])
    coverage = rig.engine.view().series[0].coverage
    assert coverage is not None
    assert coverage.rows == 60


def batch_reference() -> Any:
    return reference_of(task(**TASK), answers(np.random.default_rng(8), 600, labelled=True))["erm"]


def test_what_is_forgotten_by_id_is_in_no_later_fit(tmp_path: Any) -> None:
    rig, store = live(), Store(tmp_path)
    rig.feed(both(150))
    rig.feed(both(50, 150, labelled=False))
    store.commit(rig.engine.changes())
    rig.engine.confirm()
    gone = id_keys(["b3", "b160"])
    rig.engine.forget(gone)
    store.commit(rig.engine.changes())
    rig.engine.confirm()
    saved = store.load()
    store.close()
    for engine in (rig.engine, rig.settings.build(assemble(saved.parts, saved.rings))):
        pool = engine.snapshot().tasks["t"].refits.pool
        assert len(pool.keys) == 150
        assert not np.isin(gone, pool.keys).any()
        [job] = engine.refits()
        assert (len(job.labels), int((job.labels >= 0).sum())) == (198, 149)


def test_answers_without_an_id_are_counted_and_take_no_part() -> None:
    rig = live()
    rig.feed([{k: v for k, v in r.items() if k != "id"} for r in both(70)])
    rig.feed(both(130, 100))
    [job] = rig.engine.refits()
    assert (len(job.labels), rig.engine.view().refits["t"].without_id) == (130, 140)


def test_a_reload_that_begins_anew_fits_anew() -> None:
    rig = live()
    rig.feed(both(200))
    [job] = rig.engine.refits()
    rig.engine.publish(cheap_refit(job), now=1.0)
    assert rig.engine.refits() == []
    rig.settings = live(chart={"sigmas": 2}).settings
    rig.engine, _ = rig.engine.reconfigured(rig.settings, {"t"})
    assert rig.engine.view().series[0].calibration.method == "none"
    assert [job.number for job in rig.engine.refits()] == [2]


def test_the_tags_of_the_configuration_are_those_that_there_are() -> None:
    assert [*ESTIMATORS] == [*REFITTED]
    assert task(**TASK).refit_estimators == ("ensemble", "labelled")
    assert task(**(TASK | {"estimators": ["average_confidence", "ssme"]})).refit_estimators == (
        "ssme", "ensemble", "labelled",
    )  # fmt: skip
    assert not task().refits


def test_groups_and_other_models_have_no_estimates_of_a_refit() -> None:
    rig = live(groups=["region"])
    reports = rig.feed(both(70, groups={"region": "eu"}))
    reports += rig.feed(answers(np.random.default_rng(1), 70, model="other"))
    assert {(r.model, bool(r.group)): len(by_tag(r, "ensemble")) for r in reports} == {
        ("erm", False): 2, ("irm", False): 2, ("erm", True): 0, ("irm", True): 0, ("other", False): 0,
    }  # fmt: skip
    assert all(isinstance(result, Unknown) for report in reports for result in by_tag(report, "ensemble"))


def test_a_job_shares_nothing_with_the_engine() -> None:
    rig = live()
    rig.feed(both(200))
    [job] = rig.engine.refits()
    copy = {name: getattr(job, name).copy() for name in ("scores", "labels", "predicted", "weights")}
    rig.feed([{"id": f"b{i}", "label": "bad", "time": 1.7e9} for i in range(200)])
    assert all(np.array_equal(getattr(job, name), value, equal_nan=True) for name, value in copy.items())
    assert isinstance(job, RefitJob)


@pytest.mark.slow
def test_with_ssme_itself_the_same_records_give_the_same_bytes_and_a_broken_model_does_not_hide() -> None:
    records = stream(2, 300)
    for i, record in enumerate(records):
        if "models" in record:  # a third model, upside down
            confidence = record["models"]["erm"][1]
            records[i] = record | {"models": record["models"] | {"broken": [confidence, 1 - confidence]}}
    rare = {"models": [*MODELS, "broken"], "every_windows": 5, "every_labels": 999}
    changes = {"estimators": ["average_confidence", "ssme"], "metrics": ["accuracy"], "ssme": rare}
    runs = []
    for cuts in ([], [17, 200, 201, 350]):
        rig = Rig(task(**(TASK | changes)), refit=refit)
        runs.append((lines(rig.feed_in_pieces(records, cuts)), rig.engine.view()))
    assert runs[0] == runs[1]
    view = runs[0][1]
    assert view.refits["t"].failures < view.refits["t"].number
    accuracy = {
        (one.model, estimate.estimator): estimate.result for one in view.series for estimate in one.estimates
    }  # fmt: skip
    beside = {"ensemble", "labelled", "realised_cohort"}
    assert {tag for _, tag in accuracy} == {"average_confidence", "corrected", "ssme", *beside}
    assert accuracy["broken", "ssme"].upper < 0.5 < accuracy["erm", "ssme"].lower
    assert view.series[0].calibration.method == "ssme"

from __future__ import annotations

import copy
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.formats.decode.decoder import Decoder
from connectors.formats.wires.choice import compiled
from connectors.formats.wires.kserve import RESPONSE
from monitor.base.codec import plain
from monitor.base.results import Estimate, Unknown
from monitor.config.layouts import layouts
from monitor.config.mapping import FieldMapping
from monitor.engine.engine import SNAPSHOT_FORMAT
from monitor.reports.views import LabelOutcome, ObjectiveState, SeriesState
from monitor.stats.estimate.hajek import WeightedCounts
from tests.examples import examples
from tests.numbers import as_numbers, rig_of_numbers
from tests.streams import CLASSES, Rig, answers, confidences, lines, reference_of, task


def reference(settings, n=3000, seed=7, model="erm", **more):
    """Return a labelled reference as the shell would read it."""
    records = answers(np.random.default_rng(seed), n, model, labelled=True, start=1.6e9, **more)
    return {"t": reference_of(settings, records)}


def stream(seed=1, n=900):
    """Return two models with shared ids, late, early, wrong and repeated labels, duplicates and rubbish."""
    rng = np.random.default_rng(seed)
    records = []
    for i, score in enumerate(rng.random(n).round(4).tolist()):
        both = {"erm": [1 - score, score], "irm": [score, 1 - score]}
        records.append(
            {"id": f"r{i}", "time": 1.7e9 + i, "models": both, "version": "1" if i < n // 2 else "2"}
        )
        if rng.random() < 0.3:
            at = int(max(0, i + rng.integers(-150, 20)))
            label = CLASSES[int(rng.random() < 0.5)]
            records.append({"id": f"r{at}", "label": label, "time": 1.7e9 + i})
        if rng.random() < 0.05:
            records.append(records[int(rng.integers(len(records)))])
        if rng.random() < 0.02:
            records.append(b"{ no json")
    return records


def stream_of_numbers():
    """Return the stream with predicted numbers in place of scores."""
    return as_numbers(stream())


def test_windows_close_in_order_of_arrival_and_count_from_zero():
    reports = Rig().feed(answers(np.random.default_rng(0), 250))
    assert [(r.window, r.size, r.closed_by) for r in reports] == [(0, 100, "size"), (1, 100, "size")]
    assert reports[0].positions == {"part-0": (0, 99)}
    assert reports[1].positions == {"part-0": (100, 199)}


def test_the_rest_is_reported_as_incomplete_at_the_end():
    rig = Rig()
    rig.feed(answers(np.random.default_rng(0), 130))
    (last,) = rig.engine.finish()
    assert (last.window, last.size, last.closed_by) == (1, 30, "end")


@cache
def uncut(make_rig, make_records):
    """Return the records, and a rig that took them in one piece with its lines."""
    records, whole = make_records(), make_rig()
    return records, whole, lines(whole.feed(records) + whole.engine.finish())


@pytest.mark.slow
@examples(25)
@given(
    kind=st.sampled_from([(Rig, stream), (rig_of_numbers, stream_of_numbers)]),
    cuts=st.lists(st.integers(0, 1100), max_size=12),
    restart=st.booleans(),
)
def test_neither_the_cuts_of_the_stream_nor_a_restart_can_be_seen_in_the_reports(kind, cuts, restart):
    (records, whole, expected), pieces = uncut(*kind), kind[0]()
    reports = pieces.feed_in_pieces(records, cuts, restart)
    assert lines(reports + pieces.engine.finish()) == expected
    assert pieces.engine.view().labels == whole.engine.view().labels
    assert pieces.engine.labelled() == whole.engine.labelled()


def numbered() -> Rig:
    """Return a rig whose source numbers the rows of its requests."""
    rig = Rig()
    rig.settings = replace(rig.settings, numbered=True)
    rig.engine = rig.settings.build()
    wire = compiled(FieldMapping(format="kserve"))
    rig.decode = Decoder(layouts({"t": task()}, numbered=True), "test", wire=wire).decode
    return rig


def requests(seed=2, n=500):
    """Return events of one or two rows by two models, labels by the request's id or the row's, early and
    late.
    """
    rng = np.random.default_rng(seed)
    records = []
    for i in range(n):
        scores = rng.random((1 + int(rng.random() < 0.3), 1)).round(4)
        event = {
            "specversion": "1.0",
            "type": RESPONSE,
            "id": f"r{i}",
            "data": {"predictions": scores.tolist()},
        }
        model = ("erm", "irm")[int(rng.random() < 0.5)]
        at = datetime.fromtimestamp(1.7e9 + i, UTC).isoformat()
        records.append(event | {"inferenceservicename": model, "time": at})
        if rng.random() < 0.05:
            records.append({"id": f"r{i}", "model": model, "scores": 0.5, "time": 1.7e9 + i})
        if rng.random() < 0.6:
            row = ("", "", ":0", ":1")[int(rng.integers(4))]
            label = CLASSES[int(rng.random() < 0.5)]
            id_ = f"r{int(max(0, i + rng.integers(-50, 20)))}{row}"
            records.append({"id": id_, "label": label, "time": 1.7e9 + i})
    return records


@pytest.mark.slow
@examples(25)
@given(cuts=st.lists(st.integers(0, 1100), max_size=12), restart=st.booleans())
def test_labels_by_the_requests_id_join_however_the_stream_is_cut_or_restarted(cuts, restart):
    (records, whole, expected), pieces = uncut(numbered, requests), numbered()
    reports = pieces.feed_in_pieces(records, cuts, restart)
    assert lines(reports + pieces.engine.finish()) == expected
    assert pieces.engine.view().labels == whole.engine.view().labels
    assert pieces.engine.labelled() == whole.engine.labelled()
    assert whole.engine.view().labels["t", LabelOutcome.MATCHED] > 150
    assert whole.engine.view().labels["t", LabelOutcome.AMBIGUOUS] > 20


def test_a_state_from_before_rows_were_told_apart_goes_on():
    old, new = Rig(), numbered()
    old.decode = new.decode
    records = requests()
    old.feed(records[:400])
    new.engine = new.settings.build(old.engine.snapshot())
    new.feed(records[400:])
    assert new.engine.view().labels["t", LabelOutcome.MATCHED] > 100


@pytest.mark.slow
def test_a_snapshot_shares_nothing_with_the_engine():
    rig = Rig()
    records = stream()
    rig.feed(records[:700])
    state = rig.engine.snapshot()
    before = copy.deepcopy(state)
    rig.feed(records[700:])
    np.testing.assert_equal(plain(state), plain(before))


def test_a_snapshot_of_another_format_is_refused():
    rig = Rig()
    state = msgspec.structs.replace(rig.engine.snapshot(), format=SNAPSHOT_FORMAT + 1)
    with pytest.raises(
        ValueError,
        match=f"format: expected a snapshot of format {SNAPSHOT_FORMAT}, got {SNAPSHOT_FORMAT + 1}",
    ):
        rig.settings.build(state)


@pytest.mark.parametrize("event_time", [True, False])
def test_every_answer_and_label_is_accounted_for_at_every_moment(event_time):
    rig = Rig(task(max_series=1), event_time=event_time)
    records = stream()
    for start in range(0, len(records), 97):
        rig.feed(records[start : start + 97])
        view = rig.engine.view()
        used = sum(series.predictions for series in view.series)
        pending = sum(series.pending for series in view.series)
        duplicates = sum(series.duplicates for series in view.series)
        lost = sum(view.rejected.values()) + sum(view.shed.values())
        assert sum(view.received.values()) == used + pending + duplicates + lost
        assert view.received["test"] > 0
    assert view.series_dropped == 1
    labels = sum(1 for r in records if isinstance(r, dict) and "label" in r)
    outcomes = sum(view.labels[("t", outcome)] for outcome in LabelOutcome)
    assert labels == outcomes + view.labels_waiting["t"]


def test_an_answer_sent_twice_counts_once():
    rig = Rig()
    records = answers(np.random.default_rng(0), 60)
    rig.feed(records)
    rig.feed(records[:25])
    (series,) = rig.engine.view().series
    assert (series.pending, series.duplicates) == (60, 25)


def test_without_a_reference_a_model_warms_up_and_then_is_charted():
    rig = Rig(task(reference={"first_windows": 6}))
    first = rig.feed(answers(np.random.default_rng(0), 600))
    assert rig.engine.view().series[0].state is SeriesState.IN_CONTROL
    assert all(report.charts == () for report in first)
    (seventh,) = rig.feed(answers(np.random.default_rng(1), 100, start=1.8e9))
    assert [chart.metric for chart in seventh.charts] == ["accuracy"]
    assert seventh.calibration.method == "none"


def test_a_model_that_warms_up_says_so():
    rig = Rig()
    rig.feed(answers(np.random.default_rng(0), 300))
    assert rig.engine.view().series[0].state is SeriesState.WARMING_UP


def test_a_shift_latches_one_alarm_that_eight_windows_in_control_release():
    rig = Rig(task(reference={"first_windows": 20}))
    rng = np.random.default_rng(3)
    rig.feed(answers(rng, 2000))
    bad = rig.feed(answers(rng, 500, start=1.71e9, weights=(0.2, 0.6, 0.2)))
    assert all(report.charts[0].verdict.out_of_control for report in bad)
    assert rig.engine.view().series[0].state is SeriesState.OUT_OF_CONTROL
    good = rig.feed(answers(rng, 1000, start=1.72e9))
    latched = [report.charts[0].verdict.out_of_control for report in good]
    assert latched == [True] * 7 + [False] * 3


def test_a_reference_gives_calibration_charts_and_calibration_error_at_once():
    settings = task(reference={"path": "r.ndjson"}, metrics=["accuracy", "ece", "class_ece"])
    rig = Rig(settings, reference(settings))
    (report,) = rig.feed(answers(np.random.default_rng(2), 100))
    assert report.calibration.method == "isotonic"
    assert report.calibration.version == 1
    assert {chart.metric for chart in report.charts} == {"accuracy", "ece", "class_ece"}
    by_metric = {e.metric: e.result for e in report.estimates if e.estimator == "average_confidence"}
    assert all(isinstance(result, Estimate) for result in by_metric.values())


def test_without_calibration_the_calibration_error_is_unknown():
    (report,) = Rig(task(metrics=["accuracy", "ece"])).feed(answers(np.random.default_rng(2), 100))
    results = {e.metric: e.result for e in report.estimates if e.estimator == "average_confidence"}
    assert results["ece"] == Unknown("not calibrated")


def test_a_new_version_closes_the_window_starts_a_baseline_and_flags_the_calibration():
    settings = task(reference={"path": "r.ndjson"})
    rig = Rig(settings, reference(settings, version="1"))
    rng = np.random.default_rng(2)
    first = rig.feed(answers(rng, 130, version="1"))
    assert [(r.closed_by, r.calibration.foreign, len(r.charts)) for r in first] == [("size", False, 1)]
    second = rig.feed(answers(rng, 100, start=1.71e9, version="2"))
    assert [(r.version, r.closed_by, r.size, r.calibration.foreign) for r in second] == [
        ("1", "version", 30, False),
        ("2", "size", 100, True),
    ]
    assert second[1].charts == ()
    assert rig.engine.view().series[0].state is SeriesState.WARMING_UP


def test_stragglers_of_the_old_version_do_not_turn_the_baseline_back():
    rig = Rig()
    rng = np.random.default_rng(2)
    old = answers(rng, 100, version="1")
    new = answers(rng, 100, start=1.71e9, version="2")
    mixed = [record for pair in zip(new, old[50:] + old[50:], strict=True) for record in pair]
    closed = rig.feed(old[:50] + mixed)
    assert [(r.version, r.closed_by) for r in closed] == [("1", "version"), ("2", "size")]


def test_groups_are_watched_on_their_own_beside_the_whole():
    rig = Rig(task(groups=["region"]))
    rng = np.random.default_rng(0)
    eu = answers(rng, 150, groups={"region": "eu", "other": "x"})
    us = answers(rng, 50, start=1.71e9, groups={"region": "us"})
    reports = rig.feed(eu + us)
    assert sorted((r.group, r.window, r.size) for r in reports) == [
        ("", 0, 100),
        ("", 1, 100),
        ("region=eu", 0, 100),
    ]
    assert {series.group: series.pending for series in rig.engine.view().series} == {
        "": 0,
        "region=eu": 50,
        "region=us": 50,
    }


def test_a_label_counts_for_the_model_and_for_its_group():
    rig = Rig(task(groups=["region"]))
    records = answers(np.random.default_rng(0), 100, groups={"region": "eu"})
    labels = [{"id": record["id"], "label": "bad", "time": 1.7e9} for record in records[:10]]
    rig.feed(records + labels)
    right = sum(record["scores"][1] > 0.5 for record in records[:10])
    assert rig.engine.labelled() == {
        ("t", "erm", ""): {0: WeightedCounts(10, right)},
        ("t", "erm", "region=eu"): {0: WeightedCounts(10, right)},
    }


def test_a_group_takes_its_baseline_from_its_own_rows_of_the_reference():
    settings = task(reference={"path": "r.ndjson"}, groups=["region"])
    rig = Rig(settings, reference(settings, groups={"region": "eu"}))
    reports = rig.feed(answers(np.random.default_rng(1), 100, groups={"region": "eu"}))
    assert [(r.group, r.calibration.method, len(r.charts)) for r in reports] == [
        ("", "isotonic", 1),
        ("region=eu", "isotonic", 1),
    ]


def test_the_objective_is_judged_on_pooled_windows():
    rig = Rig(task(objective={"accuracy": {"min": 0.85}, "windows": 3}))
    rng = np.random.default_rng(0)
    assert rig.feed(answers(rng, 300))[-1].objectives[0].state is ObjectiveState.MET
    worse = rig.feed(answers(rng, 300, start=1.71e9, weights=(0, 1, 0)))
    assert worse[-1].objectives[0].state is ObjectiveState.BREACHED


def test_a_window_closes_by_age_when_the_stream_stops():
    rig = Rig(task(window={"size": 100, "min_size": 20, "max_age_seconds": 60}), event_time=False)
    rig.feed(answers(np.random.default_rng(0), 30), now=1000.0)
    assert rig.engine.tick(1060.0) == []
    (report,) = rig.engine.tick(1061.0)
    assert (report.size, report.closed_by) == (30, "age")


def test_a_window_with_too_few_rows_stays_open_whatever_its_age():
    rig = Rig(task(window={"size": 100, "min_size": 20, "max_age_seconds": 60}), event_time=False)
    rig.feed(answers(np.random.default_rng(0), 19), now=1000.0)
    assert rig.engine.tick(9000.0) == []


def test_a_model_without_answers_falls_silent_and_wakes_up():
    rig = Rig(task(window={"size": 100, "min_size": 20, "max_age_seconds": 60}), event_time=False)
    rig.feed(answers(np.random.default_rng(0), 5), now=1000.0)
    rig.engine.tick(1181.0)
    assert rig.engine.view().series[0].state is SeriesState.SILENT
    rig.feed(answers(np.random.default_rng(1), 5, start=1.71e9), now=1200.0)
    assert rig.engine.view().series[0].state is SeriesState.WARMING_UP


@pytest.mark.parametrize("scores", [[0.5, 0.5], [0.0, 1.0], [1.0, 0.0]])
def test_a_window_of_equal_scores_is_estimated_honestly(scores):
    settings = task(reference={"path": "r.ndjson"}, metrics=["accuracy", "ece", "class_ece"])
    rig = Rig(settings, reference(settings))
    records = [{"id": str(i), "model": "erm", "time": 1.7e9, "scores": scores} for i in range(100)]
    (report,) = rig.feed(records)
    for estimate in report.estimates:
        if isinstance(estimate.result, Estimate):
            assert 0 <= estimate.result.lower <= estimate.result.value <= estimate.result.upper <= 1


def test_a_task_without_classes_takes_confidences_and_right_or_wrong():
    rig = Rig(task(classes=[], window={"size": 50, "min_size": 10}))
    rng = np.random.default_rng(0)
    records = [
        {"id": f"c{i}", "model": "ocr", "time": 1.7e9 + i, "confidence": float(c)}
        for i, c in enumerate(rng.random(50).round(3))
    ]
    labels = [{"id": f"c{i}", "model": "ocr", "correct": i % 2 == 0, "time": 1.7e9} for i in range(10)]
    (report,) = rig.feed(labels + records)
    estimate, corrected, realised = (entry.result for entry in report.estimates)
    assert estimate.value == pytest.approx(np.mean([r["confidence"] for r in records]))
    assert (realised.value, realised.n) == (0.5, 10)
    assert (corrected.n, corrected.lower < 0.5 < corrected.upper) == (50, True)


def test_two_tasks_do_not_touch_each_other():
    rig = Rig({"a": task(), "b": task()})
    rng = np.random.default_rng(0)
    records = answers(rng, 100, task="a") + answers(rng, 100, task="b")
    reports = rig.feed([*records, {"id": records[0]["id"], "task": "a", "label": "bad"}])
    assert [(r.task, r.size, r.revision) for r in reports] == [("a", 100, 0), ("b", 100, 0), ("a", 100, 1)]
    assert rig.engine.labelled()[("b", "erm", "")] == {}
    assert len(rig.engine.labelled()[("a", "erm", "")]) == 1


def test_other_settings_take_hold_without_losing_what_was_learnt():
    rig = Rig(task(reference={"first_windows": 5}))
    rig.feed(answers(np.random.default_rng(0), 730))
    new = Rig(task(reference={"first_windows": 5}, objective={"accuracy": {"min": 0.5}}, level=0.9))
    rig.engine, closed = rig.engine.reconfigured(new.settings, fresh=())
    assert closed == []
    (report,) = rig.feed(answers(np.random.default_rng(1), 70, start=1.71e9))
    assert (report.window, len(report.charts), report.objectives[0].state) == (7, 1, ObjectiveState.MET)
    assert report.estimates[0].result.level == 0.9


def test_a_changed_window_closes_the_open_one_and_starts_a_baseline():
    rig = Rig(task(reference={"first_windows": 5}))
    rig.feed(answers(np.random.default_rng(0), 730))
    new = Rig(task(reference={"first_windows": 5}, window={"size": 20, "min_size": 10}))
    rig.engine, closed = rig.engine.reconfigured(new.settings, fresh=("t",))
    assert [(r.window, r.size, r.closed_by) for r in closed] == [(7, 30, "end")]
    (report,) = rig.feed(answers(np.random.default_rng(1), 20, start=1.71e9))
    assert (report.window, report.size, report.charts) == (8, 20, ())


@pytest.mark.slow
def test_a_drop_in_confidence_moves_the_estimate_below_the_limit():
    settings = task(reference={"path": "r.ndjson"}, window={"size": 500})
    rig = Rig(settings, reference(settings, n=20_000))
    rng = np.random.default_rng(5)
    good = rig.feed(answers(rng, 1000))
    bad = rig.feed(answers(rng, 1000, start=1.71e9, weights=(0.7, 0.25, 0.05)))
    assert not any(r.charts[0].verdict.rules for r in good)
    assert all(r.charts[0].verdict.rules == ("we1",) for r in bad)


def test_a_label_in_the_records_own_line_counts_with_and_without_an_id():
    rig = Rig(task(groups=["region"]))
    records = answers(np.random.default_rng(0), 100, labelled=True, groups={"region": "eu"})
    for record in records[:40]:
        del record["id"]
    right = sum((record["scores"][1] > 0.5) == (record["label"] == "bad") for record in records)
    rig.feed(records)
    assert rig.engine.labelled()[("t", "erm", "")] == {0: WeightedCounts(100, right)}
    assert rig.engine.labelled()[("t", "erm", "region=eu")] == {0: WeightedCounts(100, right)}
    assert rig.engine.view().labels[("t", LabelOutcome.MATCHED)] == 100


def test_of_two_labels_for_an_id_the_later_one_holds_whichever_record_it_came_in():
    records = answers(np.random.default_rng(0), 100)
    answered = CLASSES[int(records[0]["scores"][1] > 0.5)]
    wrong = CLASSES[1 - CLASSES.index(answered)]
    first = {"id": records[0]["id"], "label": answered, "time": 1.7e9}
    again = records[0] | {"label": wrong}
    for cuts in ([], [1], [2], [1, 2]):
        rig = Rig()
        rig.feed_in_pieces([records[0], first, again, *records[1:]], cuts)
        assert rig.engine.labelled()[("t", "erm", "")] == {0: WeightedCounts(1, 0)}


def test_models_beyond_the_cap_are_shed_and_cannot_hide_anothers_answers():
    rig = Rig(task(max_series=1))
    rng = np.random.default_rng(0)
    records = answers(rng, 50)
    others = [record | {"model": f"other-{i}"} for i, record in enumerate(records)]
    rig.feed([record for pair in zip(others[1:], records[1:], strict=True) for record in pair][1:])
    view = rig.engine.view()
    assert [(s.model, s.pending, s.duplicates) for s in view.series] == [("erm", 49, 0)]
    assert view.shed["test"] == 48
    assert view.series_dropped == 48


@pytest.mark.slow
def test_many_models_that_answer_in_turn_give_what_each_alone_gives():
    """Witness: an engine for each model, which sees its records alone, one at a time."""
    rng = np.random.default_rng(5)
    names = [f"m{i}" for i in range(8)]
    settings = task(
        window={"size": 40, "min_size": 10, "max_age_seconds": 300.0}, metrics=["accuracy", "ece"]
    )
    references = {"t": {}}
    for name in names[:5]:  # the others have none
        references["t"] |= reference(settings, 800, seed=int(name[1:]), model=name)["t"]
    records = []
    for i, score in enumerate(confidences(rng, 2000).tolist()):
        name = names[int(rng.integers(len(names))) if rng.random() < 0.9 else 0]
        # One model is rolled out, answer by answer; others name one version, or none.
        version = {"m1": f"v{i % 2 + i // 1000}", "m2": "v7", "m6": "v9"}.get(name, "")
        answer = {"id": f"r{i}", "model": name, "scores": [1 - score, score], "version": version}
        records.append(answer | {"time": 1.7e9 + i})
        if i >= 100 and rng.random() < 0.5:
            of = next(one for one in reversed(records[:-90]) if "scores" in one and rng.random() < 0.2)
            wrong = 0.5 if of["model"] == "m3" else of["scores"][1]  # whose estimate loses its trust
            label = CLASSES[int(rng.random() < wrong)]
            records.append({"id": of["id"], "model": of["model"], "label": label, "time": 1.7e9 + i})

    def replay(only, step):
        known = {name: one for name, one in references["t"].items() if only in (None, name)}
        rig = Rig(settings, {"t": known})
        own = [record for record in records if only in (None, record["model"])]
        reports = rig.feed_in_pieces(own, range(0, len(own), step)) + rig.engine.finish()
        saved = {one.settings.model: one.snapshot() for one in rig.engine.series["t"]}
        return reports, saved

    def seen(report):  # all but the places in the stream, which the others' records move
        return plain(replace(report, positions={}))

    together, saved = replay(None, 700)
    for name in names:
        alone, own = replay(name, 1)
        assert len(alone) > 5
        assert [seen(one) for one in together if one.model == name] == [seen(one) for one in alone]
        for part in ("trust", "audit", "correction", "curve", "versions", "tally"):
            assert plain(getattr(saved[name], part)) == plain(getattr(own[name], part))
    assert any(one.trust is not None for one in together if one.model == "m3")


@pytest.mark.slow
def test_a_view_is_the_same_object_until_something_that_it_shows_changes():
    """Witness: a new view after each record and each passing of time."""
    rng = np.random.default_rng(8)
    window = {"size": 30, "min_size": 10, "max_age_seconds": 50.0}
    settings = task(window=window, groups=["region"], calibration={"refit_labels": 40})
    records = answers(rng, 500, labelled=True) + answers(rng, 200, "irm")
    for i, record in enumerate(records):
        record["groups"] = {"region": "eu" if i % 3 else "us"}
    rng.shuffle(records)
    rig = Rig(settings, reference(settings, 800), event_time=False)
    kept, made = 0, 0
    for i, record in enumerate(records):
        rig.feed([record], now=float(i))
        if i % 7 == 0:
            rig.engine.tick(float(i))
        if i % 50 == 0:
            rig.engine.refits()
        if i == 300:
            whole = next(one for one in rig.engine.series["t"] if one.settings.model == "erm")
            whole.rebaseline("accuracy", "a test", 1.0)
        if i % 4:
            continue
        before = {one.settings.name: one.stale for one in rig.engine.series["t"]}
        views = rig.engine.view().series
        for one, view in zip(rig.engine.series["t"], views, strict=True):
            one.invalidate_view()
            assert view == one.view()
            kept, made = kept + (not before[one.settings.name]), made + before[one.settings.name]
    silent = len(records) + 1000.0
    rig.engine.tick(silent)
    assert {view.state for view in rig.engine.view().series} >= {SeriesState.SILENT}
    assert kept > 100
    assert made > 100

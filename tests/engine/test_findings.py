"""Faults that a hostile review found in the engine, each with the statement that now holds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from monitor.engine.clock import LEAP_SECONDS, EventClock
from monitor.reports.views import LabelOutcome, ObjectiveState, SeriesState
from monitor.stats.estimate.hajek import WeightedCounts
from tests.engine.test_engine import reference
from tests.plain_state import through_msgpack
from tests.streams import CLASSES, Rig, answers, lines, task

AGEING = {"size": 1000, "min_size": 20, "max_age_seconds": 60}


@pytest.mark.slow
def test_in_a_replay_the_windows_of_two_tasks_age_by_one_clock_however_the_stream_is_cut():
    records = [
        {"id": f"{name}{i}", "time": 1.7e9 + i, "task": name, "model": "m", "scores": [0.2, 0.8]}
        for i in range(400)
        for name in ("a", "b")
    ]
    whole = Rig({"a": task(window=AGEING), "b": task(window=AGEING)})
    single = Rig({"a": task(window=AGEING), "b": task(window=AGEING)})
    expected = lines(whole.feed(records) + whole.engine.finish())
    actual = lines(single.feed_in_pieces(records, range(1, len(records))) + single.engine.finish())
    assert actual == expected
    assert sum(b'"closed_by":"age"' in line for line in actual) == 12


@pytest.mark.slow
def test_windows_that_close_together_are_reported_in_one_order_however_the_stream_is_cut():
    rng = np.random.default_rng(0)
    records = [
        record
        for pair in zip(
            answers(rng, 90, "b", groups={"region": "us"}),
            answers(rng, 90, "a", groups={"region": "eu"}),
            strict=True,
        )
        for record in pair
    ]
    whole, single = Rig(task(groups=["region"])), Rig(task(groups=["region"]))
    expected = lines(whole.feed(records) + whole.engine.finish())
    assert lines(single.feed_in_pieces(records, range(1, 180)) + single.engine.finish()) == expected


def test_right_or_wrong_in_a_record_is_said_of_its_own_model_alone():
    rig = Rig(task(classes=[], window={"size": 10, "min_size": 5}))
    both = [("a", True), ("b", False)]
    rig.feed(
        {"id": f"c{i}", "model": model, "time": 1.7e9, "confidence": 0.7, "correct": right}
        for i in range(8)
        for model, right in both
    )
    assert rig.engine.labelled() == {
        ("t", "a", ""): {0: WeightedCounts(8, 8)},
        ("t", "b", ""): {0: WeightedCounts(8, 0)},
    }
    assert rig.engine.view().labels[("t", LabelOutcome.CONFLICTING)] == 0


def test_a_restart_keeps_what_was_shown_of_the_last_window():
    rig = Rig(task(reference={"first_windows": 5}, objective={"accuracy": {"min": 0.9}}))
    rig.feed(answers(np.random.default_rng(0), 730))
    before = rig.engine.view()
    rig.restart()
    assert rig.engine.view() == before
    assert before.series[0].charts[0].metric == "accuracy"


def test_a_new_baseline_keeps_the_estimates_and_drops_the_charts():
    rig = Rig(task(reference={"first_windows": 5}))
    rig.feed(answers(np.random.default_rng(0), 730))
    rig.engine, _ = rig.engine.reconfigured(rig.settings, fresh=("t",))
    (series,) = rig.engine.view().series
    assert (len(series.estimates), series.charts) == (2, ())


@pytest.mark.parametrize(("of_reference", "of_stream"), [("v1", {}), ("", {"version": "v1"}), ("", {})])
def test_a_missing_version_is_no_new_one(of_reference, of_stream):
    settings = task(reference={"path": "r.ndjson"})
    rig = Rig(settings, reference(settings, **({"version": of_reference} if of_reference else {})))
    (report,) = rig.feed(answers(np.random.default_rng(1), 100, **of_stream))
    assert (len(report.charts), report.calibration.foreign) == (1, False)


def test_a_producer_that_begins_to_name_its_version_keeps_the_baseline():
    rig = Rig(task(reference={"first_windows": 5}))
    rng = np.random.default_rng(1)
    rig.feed(answers(rng, 500))
    (report,) = rig.feed(answers(rng, 100, start=1.71e9, version="v1"))
    assert (report.version, report.closed_by, len(report.charts)) == ("v1", "size", 1)


def test_a_stream_of_another_version_than_the_reference_begins_anew():
    settings = task(reference={"path": "r.ndjson"})
    rig = Rig(settings, reference(settings, version="v1"))
    (report,) = rig.feed(answers(np.random.default_rng(1), 100, version="v2"))
    assert (report.charts, report.calibration.foreign) == ((), True)
    assert rig.engine.view().series[0].state is SeriesState.WARMING_UP


def test_objectives_do_not_pool_over_versions():
    rig = Rig(task(objective={"accuracy": {"min": 0.9}, "windows": 5}))
    bad = [{"model": "m", "scores": [0.4, 0.6], "version": "1", "time": 1.7e9}] * 500
    good = [{"model": "m", "scores": [0.0, 1.0], "version": "2", "time": 1.7e9}] * 100
    reports = rig.feed(bad + good)
    assert [r.objectives[0].state for r in reports[-2:]] == [ObjectiveState.BREACHED, ObjectiveState.MET]


def test_a_flood_of_group_values_does_not_take_the_models_places():
    rig = Rig(task(max_series=10, groups=["user"], window={"size": 1000}))
    rng = np.random.default_rng(0)
    flood = [r | {"groups": {"user": str(i)}} for i, r in enumerate(answers(rng, 300))]
    rig.feed(flood + answers(rng, 30, "new"))
    view = rig.engine.view()
    assert [s.pending for s in view.series if not s.group] == [300, 30]
    assert (len(view.series), view.series_dropped, view.shed.get("test", 0)) == (12, 290, 0)


def test_a_record_from_the_far_future_expires_no_label_and_stops_no_clock():
    for event_time in (True, False):
        rig = Rig(task(window=AGEING), event_time=event_time)
        records = answers(np.random.default_rng(0), 100)
        early = [{"id": record["id"], "label": "bad", "time": 1.7e9} for record in records]
        future = {"id": "future", "model": "erm", "time": 4e9, "scores": [0.5, 0.5]}
        reports = rig.feed([records[0], future, *early, *records[1:]], now=1.7e9 + 1)
        outcomes = rig.engine.view().labels
        assert outcomes[("t", LabelOutcome.MATCHED)] == 100
        assert outcomes[("t", LabelOutcome.EXPIRED)] == 0
        assert bool(reports) == event_time  # ageing goes on


def test_a_leap_of_the_event_clock_needs_a_second_record():
    clock = EventClock()
    leap = 100.0 + 2 * LEAP_SECONDS
    assert clock.advance(np.array([100.0, leap, 101.0])).tolist() == [100.0, 100.0, 101.0]
    assert clock.advance(np.array([leap, leap + 1])).tolist() == [101.0, leap + 1]


def test_the_event_clock_does_not_depend_on_the_cuts():
    rng = np.random.default_rng(0)
    times = rng.choice([0.0, 50.0, 4e9, np.nan], size=200) + rng.random(200)
    whole = EventClock().advance(times)
    clock = EventClock()
    pieces = []
    for part in np.array_split(times, 37):
        pieces.append(clock.advance(part))
        clock = through_msgpack(clock)
    assert np.array_equal(np.concatenate(pieces), whole)


def test_records_and_labels_without_a_time_are_joined_in_a_replay():
    rig = Rig()
    records = [{k: v for k, v in r.items() if k != "time"} for r in answers(np.random.default_rng(0), 100)]
    report = rig.feed(records + [{"id": r["id"], "label": "bad"} for r in records])[-1]
    assert report.revision == 7  # at 1, 2, 4, … 64 labels
    assert rig.engine.view().labels[("t", LabelOutcome.MATCHED)] == 100
    assert report.start_time == report.end_time == 0.0


def test_a_labels_file_after_the_predictions_still_knows_its_horizon():
    rig = Rig(task(labels={"horizon_days": 1}))
    records = answers(np.random.default_rng(0), 100)
    rig.feed(records)
    rig.feed([{"id": records[0]["id"], "label": "bad", "time": 1.7e9 + 3600}])
    rig.feed([{"id": records[1]["id"], "label": "bad", "time": 1.7e9 + 3 * 86_400}])
    outcomes = rig.engine.view().labels
    assert (outcomes[("t", LabelOutcome.MATCHED)], outcomes[("t", LabelOutcome.EXPIRED)]) == (1, 1)


def test_labels_of_shed_models_are_shed_too():
    rig = Rig(task(max_series=1))
    rng = np.random.default_rng(0)
    rig.feed(answers(rng, 10, "a") + answers(rng, 9, "b", labelled=True))
    assert rig.engine.view().labels[("t", LabelOutcome.SHED)] == 9


def test_duplicates_are_counted_for_groups_too():
    rig = Rig(task(groups=["region"]))
    records = answers(np.random.default_rng(0), 20, groups={"region": "eu"})
    rig.feed(records + records[:4])
    assert [(s.group, s.duplicates) for s in rig.engine.view().series] == [("", 4), ("region=eu", 4)]


def test_labels_for_made_up_models_take_nobodys_place():
    rig = Rig(task(classes=[], max_series=3))
    rig.feed([{"id": "a", "model": f"m{i}", "correct": True, "time": 1.7e9} for i in range(10)])
    rig.feed([{"id": "a", "model": "m9", "confidence": 0.9, "time": 1.7e9}])
    assert rig.engine.labelled() == {("t", "m9", ""): {0: WeightedCounts(1, 1)}}
    assert rig.engine.view().labels_waiting["t"] == 9


def test_a_configured_model_that_never_answers_shows_and_falls_silent():
    rig = Rig(task(models={"erm": {}}, window=AGEING), event_time=False)
    assert [s.model for s in rig.engine.view().series] == ["erm"]
    rig.engine.tick(1000.0)
    assert rig.engine.view().series[0].state is SeriesState.WARMING_UP
    rig.engine.tick(1000.0 + 181)
    assert rig.engine.view().series[0].state is SeriesState.SILENT


def test_one_label_in_a_record_of_several_models_is_one_label():
    rig = Rig()
    models = {"a": [0.1, 0.9], "b": [0.9, 0.1]}
    rig.feed([{"id": f"q{i}", "time": 1.7e9, "models": models, "label": CLASSES[1]} for i in range(10)])
    assert rig.engine.view().labels[("t", LabelOutcome.MATCHED)] == 10
    assert rig.engine.view().labels[("t", LabelOutcome.DUPLICATE)] == 0
    assert rig.engine.labelled() == {
        ("t", "a", ""): {0: WeightedCounts(10, 10)},
        ("t", "b", ""): {0: WeightedCounts(10, 0)},
    }


def test_a_time_far_ahead_of_the_clock_does_not_reach_the_reports():
    rig = Rig(event_time=False)
    records = answers(np.random.default_rng(0), 100)
    records[50]["time"] = 4e9
    (report,) = rig.feed(records, now=1.7e9 + 200)
    assert report.end_time == 1.7e9 + 200


def test_a_label_of_several_models_counts_where_any_of_them_is_watched():
    rig = Rig(task(max_series=1))
    rig.feed(answers(np.random.default_rng(0), 1, "a"))
    models = {"b": [0.7, 0.3], "a": [0.6, 0.4]}
    rig.feed([{"id": f"q{i}", "time": 1.7e9, "models": models, "label": "ok"} for i in range(10)])
    assert rig.engine.labelled()[("t", "a", "")] == {0: WeightedCounts(10, 10)}
    assert rig.engine.view().labels[("t", LabelOutcome.SHED)] == 0


def test_a_reload_that_cannot_be_built_closes_no_window():
    rig = Rig(task(reference={"first_windows": 5}))
    rig.feed(answers(np.random.default_rng(0), 730))
    settings = task(reference={"path": "r.ndjson"})
    wrong = reference(settings)
    wrong["t"]["erm"] = replace(wrong["t"]["erm"], labels=wrong["t"]["erm"].labels * 0 + 99)
    with pytest.raises(ValueError, match=r"labels\[0\] must be a class index"):
        rig.engine.reconfigured(Rig(settings, wrong).settings, fresh=("t",))
    assert rig.engine.view().series[0].pending == 30

"""Further lines of closed windows: when they come, what stands in them, what memory they need."""

from __future__ import annotations

import itertools
import json
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.base.codec import plain
from monitor.base.names import REALISED
from monitor.base.results import Estimate
from monitor.base.state_changes import assemble
from monitor.engine.labels.revisions import Revisions
from monitor.engine.labels.tally import Tally
from monitor.reports.reader import from_json
from monitor.reports.window_report import to_json
from monitor.store import Store
from tests.examples import examples
from tests.plain_state import same, through_msgpack
from tests.streams import CLASSES, Rig, answers, lines, task

DAY = 86_400.0


def label(record, right=True, time=None):
    """Return the true class of an answer, such that the answer was right or wrong."""
    answer = int(record["scores"][1] > 0.5)
    return {
        "id": record["id"],
        "label": CLASSES[answer if right else 1 - answer],
        "time": record["time"] + 60 if time is None else time,
    }


def realised(report):
    return next(e.result for e in report.estimates if e.estimator == REALISED)


def shown(reports):
    """Return the window, the revision, and the number of labelled rows of each line."""
    results = [realised(report) for report in reports]
    rows = [result.n if isinstance(result, Estimate) else 0 for result in results]
    return [(r.window, r.revision, n) for r, n in zip(reports, rows, strict=True)]


def rig_with_a_window(n=100, **more):
    rig = Rig(task(**more))
    records = answers(np.random.default_rng(0), n)
    return rig, records, rig.feed(records)


def test_a_line_comes_with_the_first_label_and_whenever_their_number_has_doubled():
    rig, records, first = rig_with_a_window()
    assert shown(first) == [(0, 0, 0)]
    later = rig.feed([label(record) for record in records[:20]])
    assert shown(later) == [(0, 1, 1), (0, 2, 2), (0, 3, 4), (0, 4, 8), (0, 5, 16)]


def test_doublings_count_from_what_was_known_when_the_window_closed():
    rig = Rig()
    records = answers(np.random.default_rng(0), 100)
    first = rig.feed(records[:50] + [label(record) for record in records[:5]] + records[50:])
    later = rig.feed([label(record) for record in records[5:30]])
    assert shown(first + later) == [(0, 0, 5), (0, 1, 10), (0, 2, 20)]


def test_a_revision_is_the_first_line_but_for_what_labels_say_of_its_accuracy():
    settings = task(groups=["region"], objective={"accuracy": {"min": 0.5}}, reference={"first_windows": 5})
    rig = Rig(settings)
    records = answers(np.random.default_rng(0), 700, groups={"region": "eu"}, version="7")
    first = [r for r in rig.feed(records) if r.window == 6]
    later = rig.feed([label(records[650], right=False)])
    assert [(r.group, r.window, r.revision) for r in later] == [("", 6, 1), ("region=eu", 6, 1)]
    for before, after in zip(first, later, strict=True):
        old, new = json.loads(to_json(before)), json.loads(to_json(after))
        assert old["charts"] != [] != old["objectives"]
        assert old["positions"] == {"part-0": [600, 699]}
        (was,) = [e for e in old["estimates"] if e["estimator"] == REALISED]
        (now,) = [e for e in new["estimates"] if e["estimator"] == REALISED]
        assert (was["unknown"], now["value"], now["size"]) == ("no labels yet", 0.0, 1)
        was.pop("unknown")
        was.update(now)
        assert new["estimates"].pop(1)["estimator"] == "corrected", "nothing was corrected at the close"
        assert old | {"revision": 1} == new


def test_corrected_labels_count_as_they_are_by_then():
    rig, records, _ = rig_with_a_window()
    assert rig.feed([label(record, right=False) for record in records[:3]])
    later = rig.feed([label(records[0]), label(records[3])])
    assert (shown(later), realised(later[0]).value) == ([(0, 3, 4)], 0.5)


def test_what_changed_after_the_last_doubling_is_told_when_the_horizon_has_passed():
    rig, records, _ = rig_with_a_window(labels={"horizon_days": 1})
    later = rig.feed([label(record) for record in records[:3]])
    assert shown(later) == [(0, 1, 1), (0, 2, 2)]
    within = rig.feed(answers(np.random.default_rng(1), 100, start=1.7e9 + DAY / 2))
    assert shown(within) == [(1, 0, 0)]
    beyond = rig.feed(answers(np.random.default_rng(2), 100, start=1.7e9 + 1.2 * DAY))
    assert shown(beyond) == [(2, 0, 0), (0, 3, 3)]
    assert shown(rig.engine.finish()) == []


@pytest.mark.parametrize(("again", "expected"), [(True, [(2, 0, 0)]), (False, [(2, 0, 0), (0, 3, 2)])])
def test_a_label_that_was_changed_and_changed_back_is_no_news(again, expected):
    rig, records, _ = rig_with_a_window(labels={"horizon_days": 1})
    rig.feed([label(record) for record in records[:2]])
    rig.feed([label(records[0], right=False), *([label(records[0])] if again else [])])
    rig.feed(answers(np.random.default_rng(1), 100, start=1.7e9 + DAY / 2))
    assert shown(rig.feed(answers(np.random.default_rng(2), 100, start=1.7e9 + 1.2 * DAY))) == expected


def test_at_the_end_of_the_input_every_change_is_told_once():
    rig, records, _ = rig_with_a_window(n=230)
    rig.feed([label(record) for record in (*records[:3], *records[100:105], *records[200:210])])
    assert shown(rig.engine.finish()) == [(2, 0, 10), (0, 3, 3), (1, 4, 5)]
    assert rig.engine.finish() == []


def test_without_the_realised_accuracy_there_is_nothing_to_revise():
    rig, records, _ = rig_with_a_window(estimators=["average_confidence"])
    assert rig.feed([label(record) for record in records]) == []
    assert rig.engine.view().labels_unrevised == {"t": 0}


def mixed(seed, n=400):
    """Return two models and a group, labels early, late, along, changed and changed back; a version in
    between.
    """
    rng = np.random.default_rng(seed)
    records = []
    for i, score in enumerate(rng.random(n).round(4).tolist()):
        record = {
            "id": f"r{i}",
            "time": 1.7e9 + 60 * i,
            "models": {"erm": [1 - score, score], "irm": [score, 1 - score]},
            "groups": {"region": "eu" if score > 0.3 else "us"},
            "version": "1" if i < n // 2 else "2",
        }
        records.append(record | ({"label": "ok"} if rng.random() < 0.05 else {}))
        for _ in range(rng.integers(3)):
            at = int(np.clip(i - rng.exponential(150) + 5, 0, n))
            records.append(
                {"id": f"r{at}", "label": CLASSES[int(rng.random() < 0.5)], "time": 1.7e9 + 60 * i}
            )
    return records


def small_rig():
    labels = {"horizon_days": 0.2}  # 288 rows: windows are let go of on the way
    return Rig(task(labels=labels, groups=["region"], window={"size": 40, "min_size": 5}))


def audits_of(rig):
    series = rig.engine.series["t"]
    return plain([(s.settings.model, s.settings.group, s.checks.audit.snapshot()) for s in series])


@cache
def uncut(seed):
    """Return the records, and what they come to in one piece."""
    records, whole = mixed(seed), small_rig()
    reports = whole.feed(records) + whole.engine.finish()
    audited = [s for s in whole.engine.view().series if s.coverage is not None]
    assert [s.group for s in audited] == ["", ""]
    return records, reports, whole.engine.view(), audits_of(whole)


@pytest.mark.slow
@examples(30)
@given(
    seed=st.integers(0, 3),
    cuts=st.lists(st.integers(0, 800), max_size=15),
    restart=st.booleans(),
    at_once=st.booleans(),
)
def test_the_same_records_give_the_same_lines_and_audits_however_they_are_cut(seed, cuts, restart, at_once):
    (records, expected, view, audits), pieces = uncut(seed), small_rig()
    assert max(report.revision for report in expected) >= 3
    edges = [0, *sorted(min(cut, len(records)) for cut in cuts), len(records)]
    reports = []
    for start, stop in itertools.pairwise(edges):
        reports += pieces.feed(records[start:stop])
        if restart:
            pieces.engine = pieces.settings.build(through_msgpack(pieces.engine.snapshot()))
        elif at_once:
            pieces.engine, closed = pieces.engine.reconfigured(pieces.settings, fresh=())
            assert closed == []
    assert lines(reports + pieces.engine.finish()) == lines(expected)
    assert pieces.engine.view() == view
    np.testing.assert_equal(audits_of(pieces), audits)


@pytest.mark.slow
def test_lines_come_when_a_plain_count_after_each_record_says_so():
    """The slow witness: one record at a time, doublings read off the counts themselves."""
    records, rig = mixed(5), Rig(task(window={"size": 40, "min_size": 5}))
    reported: dict[tuple[str, int], int] = {}
    for record in records:
        reports = rig.feed([record])
        counts = {model: windows for (_, model, _), windows in rig.engine.labelled().items()}
        due = [
            (model, window)
            for (model, window), before in reported.items()
            if counts[model].get(window, (0, 0))[0] >= max(1, 2 * before)
        ]
        assert sorted(due) == [(r.model, r.window) for r in reports if r.revision]
        for report in reports:
            rows, right = counts[report.model].get(report.window, (0, 0))[:2]
            reported[report.model, report.window] = rows
            if rows:
                assert realised(report).value == pytest.approx(right / rows)
    assert sum(reported.values()) > 100


@pytest.mark.slow
def test_every_window_ends_with_a_line_of_all_its_labels():
    rig, newest = small_rig(), {}
    never_changed = [r | {"label": CLASSES[len(r["id"]) % 2]} if "label" in r else r for r in mixed(2)]
    for report in rig.feed(never_changed) + rig.engine.finish():
        before = newest.get((report.model, report.group, report.window))
        assert report.revision == (0 if before is None else before.revision + 1)
        newest[report.model, report.group, report.window] = report
    for (_, model, group), windows in rig.engine.labelled().items():
        for window, (rows, right, _) in windows.items():
            result = realised(newest[model, group, window])
            late = rows - result.n  # only what came after the horizon
            assert 0 <= late <= rig.engine.view().labels_unrevised["t"]
            if not late:
                assert result.value == pytest.approx(right / rows)


def test_labels_that_come_after_a_window_was_let_go_of_are_counted():
    rig, records, _ = rig_with_a_window(labels={"horizon_days": 1})
    rig.feed(answers(np.random.default_rng(1), 100, start=1.7e9 + 1.2 * DAY))
    assert rig.feed([label(record) for record in records[:5]]) == []  # each of its own day, but late
    assert rig.engine.view().labels_unrevised == {"t": 5}


def logic(keep=100, keep_each=100, resume=None):
    tallies = [Tally(keep=1000) for _ in range(2)]
    revisions = Revisions(keep, keep_each, 3600.0, 0.95, resume)
    for tally in tallies:
        revisions.add_series(tally)
    return revisions, tallies


def report(window, model="erm"):
    rig = Rig()
    (window_report,) = rig.feed(answers(np.random.default_rng(0), 100, model=model))
    return from_json(to_json(window_report).replace(b'"window":0', b'"window":%d' % window))


def test_memory_is_bounded_for_a_task_and_for_each_series_and_the_oldest_is_told_last():
    revisions, tallies = logic(keep=5, keep_each=3)
    for window in range(3):
        assert revisions.closed(0, report(window), 0) == []
    for window in range(3):
        tallies[0].add(window, labelled=7, correct=6)
    assert [(r.window, r.revision) for r in revisions.closed(0, report(3), 0)] == [(0, 1)]
    assert [(r.window, r.revision) for r in revisions.closed(1, report(0), 0)] == []
    assert [(r.window, r.revision) for r in revisions.closed(1, report(1), 0)] == []
    assert [(r.window, r.revision) for r in revisions.closed(1, report(2), 0)] == [(1, 1)]
    assert len(revisions) == 5


def test_a_snapshot_holds_plain_values_and_gives_the_same_again():
    revisions, tallies = logic()
    tallies[0].add(1, labelled=3, correct=2)
    revisions.closed(0, report(0), 0)
    revisions.closed(0, report(1), 0)
    tallies[0].add(0, labelled=2, correct=1)
    assert revisions.revise(0, 0).revision == 1
    state = through_msgpack(revisions.snapshot())
    again, _ = logic(resume=state)
    assert same(again.snapshot(), state)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ((0, 1, 1.0), "keep must be at least 1 window, got 0"),
        ((1, 0, 1.0), "keep_each must be at least 1 window, got 0"),
        ((1, 1, 0.0), "horizon_seconds must be above 0, got 0.0"),
    ],
)
def test_settings_out_of_range_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Revisions(*settings, level=0.95)


def saved_and_resumed(rig, reports, folder, keep_reports=1000):
    store = Store(folder, keep_reports)
    store.commit(rig.engine.changes(), reports, {"reports": (10**6, 0)})
    rig.engine.confirm()
    saved = store.load()
    rig.engine = rig.settings.build(assemble(saved.parts, saved.rings))
    store.close()


def test_a_store_holds_each_line_once_and_gives_the_newest_back(tmp_path):
    rig, records, first = rig_with_a_window()
    saved_and_resumed(rig, first + rig.feed([label(r) for r in records[:2]]), tmp_path)
    changes = rig.engine.changes()
    assert not changes.parts["revisions/t"].lines
    rig.engine.retract()
    later = rig.feed([label(r) for r in records[2:4]])
    assert shown(later) == [(0, 3, 4)]
    assert lines(later)[0].replace(b'"revision":3', b'"revision":0')[:200] == lines(first)[0][:200]


def test_a_window_whose_line_the_store_dropped_is_not_revised_and_its_labels_are_counted(tmp_path):
    rig, records, reports = rig_with_a_window(n=300)
    saved_and_resumed(rig, reports, tmp_path, keep_reports=1)
    later = rig.feed([label(record) for record in (*records[:2], records[250])])
    assert shown(later) == [(2, 1, 1)]
    assert rig.engine.view().labels_unrevised == {"t": 2}


def test_a_task_begun_anew_does_not_take_up_the_lines_of_its_former_life(tmp_path):
    old, records, reports = rig_with_a_window()
    store = Store(tmp_path)
    store.commit(old.engine.changes(), reports + old.feed([label(r) for r in records[:9]]))
    store.forget([name for name in store.load().parts if name != "engine"])
    store.close()
    rig = Rig()
    fresh = answers(np.random.default_rng(8), 100, start=1.71e9)
    saved_and_resumed(rig, rig.feed(fresh), tmp_path)
    (later,) = rig.feed([label(fresh[0])])
    assert (later.revision, later.start_time) == (1, 1.71e9)

"""An arena in the engine: windows, verdicts, accounting, snapshots; however the stream is cut."""

from __future__ import annotations

import json

import numpy as np
import pytest

from monitor.base.records import id_keys
from monitor.base.results import Estimate
from monitor.config.root import Arena, Config
from monitor.parallel.partitioning import StreamPartitioner, begins, joined
from monitor.reports.arena_report import ArenaReport
from monitor.reports.reader import from_json
from monitor.reports.views import LabelOutcome
from tests.parallel.test_partitioning import chunks, in_one, in_shares
from tests.streams import Record, Rig, answers, compared, lines, task


def arena(**settings: object) -> Arena:
    section = Config(tasks={"chat": {"kind": "arena", "window": {"size": 100}, **settings}}).tasks["chat"]
    assert isinstance(section, Arena)
    return section


def stream(seed: int, n: int, late: float = 0.3) -> list[Record]:
    """Return comparisons with verdicts, some along with them and some up to 150 records later; some come
    twice.
    """
    rng = np.random.default_rng(seed)
    timed: list[tuple[float, Record]] = []
    for i, record in enumerate(compared(rng, n, models=("m0", "m1", "m2", "m3"), human=0.6)):
        if "winner" in record and rng.random() < late:
            verdict = {"id": record["id"], "winner": record.pop("winner"), "time": record["time"] + 5}
            timed.append((i + rng.uniform(0.5, 150), verdict))
        timed.append((i, record))
        if rng.random() < 0.05:
            timed.append((i + 3.5, dict(record)))
    return [record for _, record in sorted(timed, key=lambda row: row[0])]


def test_a_window_closes_after_so_many_comparisons_and_says_how_the_models_stand() -> None:
    rig = Rig({"chat": arena(windows=3, reference_model="m0")})
    reports = rig.feed(compared(np.random.default_rng(0), 450))
    assert [(r.task, r.model, r.window, r.size, r.closed_by) for r in reports] == [
        ("chat", "", k, 100, "size") for k in range(4)
    ]
    last = reports[-1]
    assert isinstance(last, ArenaReport)
    assert [r.pooled for r in reports if isinstance(r, ArenaReport)] == [100, 200, 300, 300]
    assert {m.model for m in last.standing.models} == {"m0", "m1", "m2"}
    view = rig.engine.view().tasks[0]
    assert (view.windows_closed, view.comparisons, view.pending) == (4, 400, 50)
    assert view.standing == last.standing


@pytest.mark.simulation
def test_coefficients_lie_in_their_intervals_as_often_as_they_say() -> None:
    # 120 streams of 300 comparisons, half of them decided by humans, and a judge who favours model_a: three
    # binomial errors at 95 % are 6 points.
    inside = dict.fromkeys(("m1", "m2"), 0)
    for seed in range(120):
        records = compared(np.random.default_rng(seed), 300)
        [report] = Rig({"chat": arena(window={"size": 300}, reference_model="m0")}).feed(records)
        assert isinstance(report, ArenaReport)
        by_name = {m.model: m.coefficient for m in report.standing.models}
        for name, true in (("m1", 0.5), ("m2", 1.0)):
            estimate = by_name[name]
            assert isinstance(estimate, Estimate)
            inside[name] += estimate.lower <= true <= estimate.upper
    assert all(count / 120 >= 0.95 - 0.06 for count in inside.values()), inside


@pytest.mark.parametrize("cuts", [1, 2, 3])
def test_however_the_stream_is_cut_and_resumed_the_same_lines_come(cuts: int) -> None:
    records = stream(1, 700)
    config = {"chat": arena(windows=4, labels={"horizon_days": 30})}
    whole = lines(Rig(config).feed(records))
    places = np.random.default_rng(cuts).choice(len(records), 12 * cuts, replace=False).tolist()
    assert lines(Rig(config).feed_in_pieces(records, places, restart=True)) == whole
    assert len(whole) == 7


@pytest.mark.slow
def test_windows_of_an_arena_and_of_models_come_in_the_same_order_however_cut() -> None:
    rng = np.random.default_rng(2)
    both = [
        record | {"time": 1.7e9 + i}
        for i, pair in enumerate(zip(answers(rng, 600, labelled=True), stream(3, 600)[:600], strict=True))
        for record in pair
    ]
    config = {"t": task(reference={"first_windows": 5}), "chat": arena()}
    whole = lines(Rig(config).feed(both))
    assert lines(Rig(config).feed_in_pieces(both, list(range(7, 1200, 31)))) == whole
    assert sum(b'"kind":"arena"' in line for line in whole) >= 4


def test_a_verdict_counts_from_the_window_that_closes_after_it() -> None:
    rng = np.random.default_rng(4)
    bare = [{k: v for k, v in r.items() if k != "winner"} for r in compared(rng, 100)]
    verdicts = [{"id": r["id"], "winner": "model_a"} for r in bare[:40]]
    early, late = Rig({"chat": arena()}), Rig({"chat": arena()})
    [first] = early.feed([*bare[:99], *verdicts, bare[99]])
    [second] = late.feed([*bare, *verdicts])
    assert isinstance(first, ArenaReport)
    assert isinstance(second, ArenaReport)
    assert (first.standing.comparisons["both"], second.standing.comparisons["both"]) == (40, 0)
    [third] = late.feed(compared(rng, 100, "d", human=0.0))
    assert isinstance(third, ArenaReport)
    assert third.standing.comparisons["both"] == 40


def test_verdicts_before_their_comparison_wait_and_those_without_one_keep_waiting() -> None:
    rng = np.random.default_rng(5)
    [report] = (rig := Rig({"chat": arena()})).feed(
        [
            {"id": "c-1700000000-7", "winner": "tie", "time": 1.7e9},
            {"id": "nobody", "winner": "tie", "time": 1.7e9},
            *compared(rng, 100, human=0.0),
        ]
    )
    assert isinstance(report, ArenaReport)
    assert report.standing.comparisons["both"] == 1
    assert rig.engine.view().labels_waiting == {"chat": 1}


def test_everything_that_came_stands_somewhere() -> None:
    records = stream(6, 500)
    broken = [b"{", {"model_a": "m0", "model_b": "m0"}, {"id": "x", "winner": "m0"}]
    beyond = [{"model_a": "m0", "model_b": f"new-{k}"} for k in range(5)]
    beyond = [record | ({"winner": "tie"} if k < 3 else {}) for k, record in enumerate(beyond)]
    rig = Rig({"chat": arena(max_models=4)})
    rig.feed([*records, *broken, *beyond])
    view = rig.engine.view()
    [one] = view.tasks
    parts = [one.comparisons, one.pending, one.duplicates]
    parts += [sum(view.rejected.values()), sum(view.shed.values())]
    assert sum(view.received.values()) == sum(parts)
    assert parts[3:] == [2, 5]
    assert one.duplicates == sum("model_a" in r for r in records) - 500 > 0
    assert view.series_dropped == 5
    assert view.labels["chat", LabelOutcome.SHED] == 3
    assert sum(view.labels_received.values()) == sum(view.labels.values()) + view.labels_waiting["chat"]


def test_comparisons_without_an_id_count_and_are_no_duplicates() -> None:
    records = [{k: v for k, v in r.items() if k != "id"} for r in compared(np.random.default_rng(7), 100)]
    [report] = Rig({"chat": arena()}).feed(records)
    assert isinstance(report, ArenaReport)
    assert report.pooled == 100
    assert report.standing.comparisons["both"] == sum("winner" in r for r in records)


def test_older_comparisons_than_the_horizon_are_not_pooled() -> None:
    rig = Rig({"chat": arena(labels={"horizon_days": 1})})
    rng = np.random.default_rng(8)
    rig.feed(compared(rng, 100))
    [report] = rig.feed(compared(rng, 100, start=1.7e9 + 2 * 86_400))
    assert isinstance(report, ArenaReport)
    assert report.pooled == 100


def test_a_window_that_grew_old_closes_before_the_comparison_that_came_too_late() -> None:
    window = {"size": 100, "min_size": 20, "max_age_seconds": 60}
    rig = Rig({"chat": arena(window=window)})
    rng = np.random.default_rng(9)
    records = [*compared(rng, 30), *compared(rng, 1, start=1.7e9 + 500)]
    [report] = rig.feed(records)
    assert (report.size, report.closed_by) == (30, "age")
    assert isinstance(report, ArenaReport)
    assert report.pooled == 30
    assert rig.engine.view().tasks[0].pending == 1


def test_what_is_forgotten_is_not_pooled_any_more() -> None:
    rig = Rig({"chat": arena()})
    rng = np.random.default_rng(10)
    records = compared(rng, 100)
    rig.feed(records)
    gone = rig.engine.forget(id_keys([r["id"] for r in records[:30]]), "chat")
    assert gone.answers == 30
    [report] = rig.feed(compared(rng, 100, "d"))
    assert isinstance(report, ArenaReport)
    assert report.pooled == 170


def test_a_smaller_window_at_a_restart_closes_what_is_more_than_full() -> None:
    rig = Rig({"chat": arena()})
    rng = np.random.default_rng(11)
    rig.feed(compared(rng, 80))
    smaller = Rig({"chat": arena(window={"size": 50})})
    smaller.engine = smaller.settings.build(rig.engine.snapshot())
    assert [r.size for r in smaller.feed(compared(rng, 60, "d"))] == [80, 50]


def test_a_line_can_be_read_back_and_gives_the_same_bytes() -> None:
    reports = Rig({"chat": arena()}).feed(stream(12, 300))
    for report in reports:
        again = from_json(report.line)
        assert isinstance(again, ArenaReport)
        assert again.line == report.line
        assert again.end_time == report.end_time


def test_a_stream_that_ends_closes_its_window() -> None:
    rig = Rig({"chat": arena()})
    rig.feed(compared(np.random.default_rng(13), 30))
    assert [(r.size, r.closed_by) for r in rig.engine.finish()] == [(30, "end")]


def test_models_that_are_known_show_before_they_are_compared() -> None:
    [report] = Rig({"chat": arena(models=["champion", "m1"])}).feed(compared(np.random.default_rng(14), 100))
    assert isinstance(report, ArenaReport)
    assert [m.model for m in report.standing.models][:2] == ["champion", "m1"]
    assert report.standing.reference == "champion"
    assert str(report.standing.models[0].coefficient.reason) == "too few comparisons by humans"


@pytest.mark.slow
@pytest.mark.parametrize(("files", "each", "at_once"), [(2, 300, 1), (4, 70, 3)])
def test_arenas_by_themselves_give_the_lines_of_one_engine_in_its_order(
    files: int, each: int, at_once: int
) -> None:
    """Beside a task; at the end open windows of arenas close after those of tasks, as configured."""
    rng = np.random.default_rng(16)
    parts = [
        [one | {"task": "t"} for one in answers(rng, 530, labelled=True)],
        [one | {"task": "z"} for one in stream(16, 530)],
        [one | {"task": "a"} for one in stream(17, 530)],
    ]
    records = sorted((one for part in parts for one in part), key=lambda one: one["time"])
    arena_settings = arena(
        windows=2, max_models=3, window={"size": 100, "min_size": 20, "max_age_seconds": 90}
    )
    tasks = {
        "z": arena_settings,
        "t": task(estimators=["average_confidence", "realised"]),
        "a": arena_settings,
    }
    settings = Rig(dict(tasks)).settings
    stretches = chunks(records, dict(tasks), files, each)

    expected = in_one(settings, stretches)

    assert in_shares(settings, stretches, at_once) == expected
    ended = [line for line in expected if b'"closed_by":"end"' in line]
    assert [json.loads(line)["task"] for line in ended] == ["t", "z", "a"]
    assert sum(b'"closed_by":"age"' in line for line in expected) > 4


def test_an_arena_is_one_share_of_a_stream() -> None:
    settings = Rig({"chat": arena()}).settings
    stretches = chunks(stream(15, 500), dict(settings.tasks), files=2, each=70)
    sharings = [StreamPartitioner() for _ in stretches]
    shared = [
        [share for chunk in chunked for share in sharing.share(chunk)]
        for sharing, chunked in zip(sharings, stretches, strict=True)
    ]
    assert {share.model for shares in shared for share in shares} == {""}
    places = begins([sharing.stretch for sharing in sharings], lambda k: sharings[k].times())
    whole = joined(
        [(share, begin) for shares, begin in zip(shared, places, strict=True) for share in shares], "test"
    )
    engine = settings.build()
    lines = [line.report.line for line in [*engine.take(whole, 0.0), *engine.end()]]
    assert lines == in_one(settings, stretches)

"""Rows of the join and of the pool go by the clock: when, and which; from the file too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from monitor.base.codec import plain
from monitor.base.state_changes import RingState, assemble
from monitor.engine.engine import Engine
from monitor.engine.labels import ageing
from monitor.engine.labels.ageing import Ageing
from monitor.engine.labels.table import BoundedTable
from monitor.reports.views import AgentView
from monitor.store import Store
from tests.accounting import assert_adds_up
from tests.plain_state import same
from tests.streams import Record, Rig, answers, lines, task

DAY = 86_400.0
HORIZON = 10 * DAY
START = 1.7e9
SETTINGS: dict[str, Any] = {"labels": {"horizon_days": 10}, "reference": {"first_windows": 5}}
POOLED = SETTINGS | {"estimators": ["average_confidence", "labelled"], "ssme": {"models": ["erm", "irm"]}}
RINGS = ("answers", "labels", "pool")


def live(**settings: Any) -> Rig:
    return Rig(task(**(settings or SETTINGS)), event_time=False)


def rows(n: int, seed: int = 0, start: float = START) -> list[Record]:
    return answers(np.random.default_rng(seed), n, start=start)


def labels(of: list[Record], lag: float = 60.0) -> list[Record]:
    return [{"id": row["id"], "label": "ok", "time": row["time"] + lag} for row in of]


def rings(engine: Engine) -> dict[str, RingState]:
    state = engine.snapshot().tasks["t"]
    kept = msgspec.structs.asdict(state.join) | (msgspec.structs.asdict(state.refits) if state.refits else {})
    return {kind: kept[kind] for kind in RINGS if kind in kept}


def alive(engine: Engine) -> dict[str, int]:
    """Return, by ring, how many rows can be found."""
    return {kind: int((ring.keys != 0).sum()) for kind, ring in rings(engine).items()}


def days(rig: Rig, start: float, stop: float) -> None:
    """Let the clock tick some times a day."""
    for now in np.arange(start, stop, DAY / 3):
        rig.engine.tick(float(now))


def test_rows_go_two_horizons_after_they_came_and_nothing_of_them_stays():
    rig = live(**POOLED)
    rig.engine.tick(START)
    old = rows(200)
    rig.feed([*old, *labels(old[:50])], now=START + 60)
    days(rig, START + DAY, START + DAY + 2 * HORIZON)
    assert alive(rig.engine) == {"answers": 200, "labels": 50, "pool": 50}
    days(rig, START + 2 * HORIZON + DAY, START + 2.2 * HORIZON)
    assert alive(rig.engine) == {"answers": 0, "labels": 0, "pool": 0}
    for kind in RINGS:
        for name, column in rings(rig.engine)[kind].columns.items():
            assert (column == (column.dtype == np.bool_)).all(), (kind, name)


def test_what_came_later_stays_its_own_time():
    rig = live()
    for day in range(40):
        now = START + day * DAY
        rig.engine.tick(now)
        rig.feed(rows(100, seed=day, start=now), now)
    # Of forty days twenty have passed the two horizons but for the step of a day in which they are noted.
    assert 19 * 100 <= alive(rig.engine)["answers"] <= 22 * 100
    kept = rings(rig.engine)["answers"]
    assert kept.columns["time"][kept.keys != 0].min() >= START + 18 * DAY


def test_a_label_that_waited_till_then_is_expired_and_everything_adds_up():
    rig = live()
    old = rows(100)
    rig.engine.tick(START)
    rig.feed(labels(old), now=START)
    assert rig.engine.view().labels_waiting["t"] == 100
    days(rig, START + DAY, START + 2.2 * HORIZON)
    view = rig.engine.view()
    assert view.labels_waiting["t"] == 0
    assert {outcome.value: n for (_, outcome), n in view.labels.items() if n} == {"expired": 100}
    assert view.answers_forgotten["t"] == 0
    assert_adds_up(AgentView(engine=view))


def test_of_rows_that_went_none_counts_as_forgotten_when_its_place_is_taken():
    rig = live(**(SETTINGS | {"labels": {"horizon_days": 10, "max_answers": 1000}}))
    rig.engine.tick(START)
    rig.feed(rows(1000), START)
    days(rig, START + DAY, START + 2.2 * HORIZON)
    rig.feed(rows(1000, seed=1, start=START + 2.2 * HORIZON), START + 2.2 * HORIZON)
    assert rig.engine.view().answers_forgotten["t"] == 0
    assert alive(rig.engine)["answers"] == 1000


@pytest.mark.slow
def test_a_restart_on_the_way_changes_nothing():
    rigs = [live(**POOLED), live(**POOLED)]
    for step in range(64):  # 32 days: beyond two horizons
        now = START + step * DAY / 2
        batch = rows(40, seed=step, start=now)
        for rig in rigs:
            rig.feed([*batch, *labels(batch[:10])], now)
            rig.engine.tick(now)
        if step % 7 == 3:
            rigs[1].restart()
    np.testing.assert_equal(*(plain(rig.engine.snapshot()) for rig in rigs[1::-1]))
    assert 0 < alive(rigs[0].engine)["answers"] < 50 * 40


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_a_feed_up_to_a_horizon_behind_gives_the_same_windows_and_labels(seed):
    """Labels up to a horizon late, everything up to a horizon behind the clock, and agents that were down."""
    rng = np.random.default_rng(seed)
    first = rows(1000, seed, START)
    for i, row in enumerate(first):
        row["time"] = START + i * HORIZON / 200
    later = [
        {"id": row["id"], "label": "ok", "time": row["time"] + float(rng.uniform(0, HORIZON))}
        for row in first
    ]
    records = sorted([*first, *later], key=lambda record: record["time"])
    ticking, still = live(), live()
    written: list[list[bytes]] = [[], []]
    for start in range(0, len(records), 50):
        batch = records[start : start + 50]
        now = max(r["time"] for r in batch) + (HORIZON - DAY) * (start // 500 % 2)
        now = max(now, ticking.engine._now)
        ticking.engine.tick(now)
        for rig, lines_found in zip((ticking, still), written, strict=True):
            lines_found += lines(rig.feed(batch, now))
    assert written[0] == written[1]
    assert ticking.engine.view().labels == still.engine.view().labels
    assert alive(ticking.engine)["answers"] < 0.5 * alive(still.engine)["answers"]


def test_what_is_read_late_is_kept_as_if_it_were_new():
    """A topic of last year: its rows came today."""
    rig = live()
    old = rows(300, start=START - 365 * DAY)
    rig.engine.tick(START)
    rig.feed(old, START)
    days(rig, START, START + HORIZON)
    rig.feed(labels(old), START + HORIZON)
    assert sum(rig.engine.view().labels.values()) == 300
    assert rig.engine.view().labels_waiting["t"] == 0
    assert alive(rig.engine)["answers"] == 300


def test_a_replay_lets_nothing_go_by_any_clock():
    rig = Rig(task(**SETTINGS))
    rig.feed(rows(100))
    for now in (START, START + 100 * HORIZON):
        rig.engine.tick(now)
    rig.feed(rows(100, seed=1, start=START + 100 * HORIZON))
    rig.engine.tick(START + 200 * HORIZON)
    assert alive(rig.engine)["answers"] == 200


def test_a_clock_that_fell_between_two_runs_keeps_rows_longer():
    rig = live()
    rig.engine.tick(START)
    rig.feed(rows(100), START)
    rig.engine.tick(START + DAY)
    rig.restart()
    for now in (0.0, HORIZON, 100 * DAY):
        rig.engine.tick(now)
    assert alive(rig.engine)["answers"] == 100
    days(rig, START + 2 * HORIZON, START + 2.2 * HORIZON)
    assert alive(rig.engine)["answers"] == 0


def test_at_one_step_so_many_rows_go_at_most(monkeypatch):
    monkeypatch.setattr(ageing, "_ROWS_AT_ONCE", 30)
    rig = live()
    rig.feed(rows(100), START)
    rig.engine.tick(START + 1)
    left = []
    for second in range(6):
        rig.engine.tick(START + 2 * HORIZON + 1 + second)
        left.append(alive(rig.engine)["answers"])
    assert left == [70, 40, 10, 0, 0, 0]


@pytest.mark.slow
@pytest.mark.parametrize("every", [1, 9])
def test_they_go_from_the_file_too(tmp_path: Path, every: int) -> None:
    rig, store = live(**POOLED), Store(tmp_path)
    written = b""
    for step in range(60):
        now = START + step * DAY / 2
        batch = rows(40, seed=step, start=now)
        reports = [*rig.feed([*batch, *labels(batch[:10])], now), *rig.engine.tick(now)]
        if step % every == 0:
            store.commit(rig.engine.changes(), reports)
            rig.engine.confirm()
        written = written or rings(rig.engine)["answers"].keys[:1].tobytes()
    store.commit(rig.engine.changes())
    rig.engine.confirm()
    saved = store.load()
    again = rig.settings.build(assemble(saved.parts, saved.rings))
    assert alive(again) == alive(rig.engine)
    assert alive(again)["answers"] < 60 * 40
    assert same(again.snapshot().tasks["t"].join, rig.engine.snapshot().tasks["t"].join)
    store.close()
    rest = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert written not in rest, "the hash of the first id"
    assert rings(rig.engine)["answers"].keys[-1:].tobytes() in rest


def test_without_a_store_nothing_is_kept_of_what_went():
    ring = BoundedTable({"label": np.int32}, capacity=1000)
    ageing = Ageing({"labels": ring}, 10.0)
    for second in range(200):
        ring.add(np.arange(1 + 20 * second, 21 + 20 * second, dtype=np.uint64), {"label": np.ones(20)})
        list(ageing.step(float(second)))
    change = ring.changes("labels/t")
    assert change is not None
    assert change.wiped is None
    assert len(ageing.snapshot()) <= 22


def test_a_ring_that_was_begun_anew_is_not_held_to_the_marks_of_the_old_one():
    old = BoundedTable({"label": np.int32}, capacity=1000)
    ageing = Ageing({"labels": old}, 10.0)
    old.add(np.arange(1, 501, dtype=np.uint64), {"label": np.ones(500)})
    list(ageing.step(0.0))
    new = BoundedTable({"label": np.int32}, capacity=1000)
    again = Ageing({"labels": new}, 10.0, ageing.snapshot())
    new.add(np.arange(1, 101, dtype=np.uint64), {"label": np.ones(100)})
    list(again.step(20.0))
    assert (new.find(np.arange(1, 101, dtype=np.uint64)) >= 0).all()

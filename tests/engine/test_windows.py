"""The cutting of windows against a cutter that looks at one row at a time and keeps lists."""

from __future__ import annotations

import math
import tracemalloc
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.engine.windows import LAST, AnswerRows, ClosedWindow, CountWindow
from tests.examples import examples
from tests.plain_state import through_msgpack

PARTITIONS = ("a.ndjson", "b.ndjson", "c.ndjson")


@dataclass(frozen=True)
class Row:
    arrival: float
    time: float
    partition: int
    scores: tuple[float, float] = (0.25, 0.75)
    predicted: int = 1
    features: tuple[float, float] = (0.5, math.inf)


@dataclass
class SlowCutter:
    """One row after another."""

    settings: CountWindow
    closed: list[dict[str, Any]] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    open: list[tuple[int, Row]] = field(default_factory=list)

    def take(self, sequence: int, row: Row) -> None:
        old = self.open and row.arrival > self.open[0][1].arrival + self.settings.max_age_seconds
        if old and len(self.open) >= self.settings.min_size:
            self.close("age", sequence)
        self.open.append((sequence, row))
        self.numbers.append(len(self.closed))
        if len(self.open) == self.settings.size:
            self.close("size", sequence)

    def close(self, reason: str, sequence: int) -> None:
        places: dict[str, list[int]] = {}
        for place, row in self.open:
            places.setdefault(PARTITIONS[row.partition], []).append(10 * place)
        self.closed.append(
            {
                "number": len(self.closed),
                "closed_by": reason,
                "scores": [list(row.scores) for _, row in self.open],
                "predicted": [row.predicted for _, row in self.open],
                "features": [list(row.features) for _, row in self.open],
                "start_time": min(row.time for _, row in self.open),
                "end_time": max(row.time for _, row in self.open),
                "closed_at": sequence,
                "positions": {name: (offsets[0], offsets[-1]) for name, offsets in places.items()},
            }
        )
        self.open = []


def columns(rows: list[Row], first: int = 0) -> AnswerRows:
    """Return rows of which the first is `first`-th of all; each one's position is ten times its place."""
    sequence = np.arange(first, first + len(rows))
    return AnswerRows(
        scores=np.array([row.scores for row in rows], dtype=float).reshape(len(rows), 2),
        predicted=np.array([row.predicted for row in rows], dtype=np.int64),
        time=np.array([row.time for row in rows], dtype=float),
        arrival=np.array([row.arrival for row in rows], dtype=float),
        sequence=sequence,
        partition=np.array([row.partition for row in rows], dtype=np.int64),
        position=10 * sequence,
        features=np.array([row.features for row in rows], dtype=float).reshape(len(rows), 2),
    )


def seen(window: ClosedWindow) -> dict[str, Any]:
    assert window.size == len(window.scores) == len(window.predicted)
    return {
        "number": window.number,
        "closed_by": window.closed_by,
        "scores": window.scores.tolist(),
        "predicted": window.predicted.tolist(),
        "features": window.features.tolist(),
        "start_time": window.start_time,
        "end_time": window.end_time,
        "closed_at": window.closed_at,
        "positions": dict(window.positions),
    }


def plain(count: int, seconds_apart: float = 1.0) -> list[Row]:
    return [Row(i * seconds_apart, i * seconds_apart, 0) for i in range(count)]


def test_an_empty_window_is_the_same_after_a_restart() -> None:
    """It kept when the last one began, which a restart forgot."""
    window = CountWindow(5, 1, 100.0)
    logic = window.build()
    closed, _ = logic.push(columns(plain(7)[2:]), PARTITIONS[:1])
    assert (len(closed), logic.pending) == (1, 0)
    assert window.build(through_msgpack(logic.snapshot())).snapshot() == logic.snapshot()


WAITS, BEHIND = (0.0, 0.0, 0.5, 1.0, 4.5, 30.0), (0.0, 7.0)
_arriving = st.sampled_from([*product(WAITS, BEHIND, range(len(PARTITIONS)))])
"""Seconds since the row before, those between its time and its arrival, its partition: in one draw, as
several take longer than the windows do."""


@st.composite
def _cases(draw: st.DrawFn) -> tuple[CountWindow, list[Row]]:
    size = draw(st.integers(1, 9))
    window = CountWindow(size, draw(st.integers(1, size)), draw(st.sampled_from([1.0, 4.5, 20.0, math.inf])))
    arriving = draw(st.lists(_arriving, max_size=40))
    arrivals = np.cumsum([wait for wait, _, _ in arriving]).tolist()
    one_partition = draw(st.booleans())
    rows = [
        Row(
            arrival=arrival,
            time=arrival - behind,
            partition=0 if one_partition else partition,
            scores=(i / 64, 1 - i / 64),
            predicted=i % 2,
            features=(float(i), -i / 7),
        )
        for i, (arrival, (_, behind, partition)) in enumerate(zip(arrivals, arriving, strict=True))
    ]
    return window, rows


@examples(400)
@given(_cases(), st.sets(st.integers(0, 40)), st.integers(-1, 8))
def test_any_cutting_into_pushes_gives_the_windows_of_one_row_at_a_time(
    case: tuple[CountWindow, list[Row]], cuts: set[int], resume_at: int
) -> None:
    window, rows = case
    logic, slow = window.build(), SlowCutter(window)
    among, every, window_numbers = window.build(), columns(rows), np.full(len(rows), -1)
    closed: list[ClosedWindow] = []
    numbers: list[int] = []
    start = 0
    names = PARTITIONS if any(row.partition for row in rows) else PARTITIONS[:1]
    for place, stop in enumerate(sorted({min(cut, len(rows)) for cut in cuts} | {len(rows)})):
        more, numbered = logic.push(columns(rows[start:stop], start), names)
        # The same rows where they lie among those of other series.
        again = among.take(every, slice(start, stop), names, "", window_numbers)
        assert [*map(seen, again)] == [*map(seen, more)]
        closed += more
        numbers += numbered.tolist()
        for sequence, row in enumerate(rows[start:stop], start=start):
            slow.take(sequence, row)
        start = stop
        assert (logic.pending, logic.number) == (len(slow.open), len(slow.closed))
        if place == resume_at:
            logic = window.build(through_msgpack(logic.snapshot()))
    rest = logic.close("end")
    if slow.open:
        slow.close("end", LAST)
    assert [seen(one) for one in [*closed, *([rest] if rest else [])]] == slow.closed
    assert numbers == slow.numbers == window_numbers.tolist()
    assert (logic.pending, logic.close("end")) == (0, None)


def test_a_window_holds_rows_that_arrive_exactly_at_its_age() -> None:
    logic = CountWindow(size=100, min_size=1, max_age_seconds=10.0).build()
    closed, numbers = logic.push(columns([Row(0, 0, 0), Row(10, 0, 0), Row(10.5, 0, 0)]), PARTITIONS[:1])
    assert [(one.closed_by, one.size, one.closed_at) for one in closed] == [("age", 2, 2)]
    assert numbers.tolist() == [0, 0, 1]


def test_an_old_window_waits_for_its_least_size() -> None:
    logic = CountWindow(size=100, min_size=4, max_age_seconds=10.0).build()
    closed, _ = logic.push(columns(plain(3, seconds_apart=50.0)), PARTITIONS[:1])
    assert (closed, logic.tick(1e9), logic.pending) == ([], None, 3)
    closed, numbers = logic.push(columns(plain(2, seconds_apart=1000.0), 3), PARTITIONS[:1])
    assert ([one.size for one in closed], numbers.tolist()) == ([4], [0, 1])


def test_a_tick_closes_a_window_only_past_its_age() -> None:
    logic = CountWindow(size=100, min_size=2, max_age_seconds=10.0).build()
    logic.push(columns(plain(2)), PARTITIONS[:1])
    assert logic.tick(10.0) is None
    window = logic.tick(10.001)
    assert window is not None
    assert (window.closed_by, window.size, window.closed_at, logic.pending) == ("age", 2, LAST, 0)
    assert logic.tick(1e9) is None


def test_a_tick_between_rows_moves_no_row_to_another_window() -> None:
    rows = plain(12, seconds_apart=4.0)
    window = CountWindow(size=5, min_size=1, max_age_seconds=10.0)
    still, ticking = window.build(), window.build()
    _, expected = still.push(columns(rows), PARTITIONS[:1])
    numbers = []
    for i, row in enumerate(rows):
        ticking.tick(row.arrival)
        numbers += ticking.push(columns([row], i), PARTITIONS[:1])[1].tolist()
    assert numbers == expected.tolist()


def test_a_window_has_the_version_of_its_first_row() -> None:
    logic = CountWindow(size=3, min_size=1, max_age_seconds=60.0).build()
    logic.push(columns(plain(1)), PARTITIONS[:1], "v1")
    closed, _ = logic.push(columns(plain(4), 1), PARTITIONS[:1], "v2")
    assert [one.version for one in closed] == ["v1"]
    rest = logic.close("version", at=77)
    assert rest is not None
    assert (rest.version, rest.closed_by, rest.closed_at, rest.number) == ("v2", "version", 77, 1)


def test_the_open_window_keeps_no_hold_of_the_batch_that_it_came_in() -> None:
    batch = columns(plain(1000))
    logic = CountWindow(size=300, min_size=1, max_age_seconds=1e9).build()
    logic.push(batch, PARTITIONS[:1])
    batch.scores[:] = 0.0
    batch.time[:] = -1.0
    rest = logic.close("end")
    assert rest is not None
    assert (rest.size, rest.start_time, rest.scores[:, 0].tolist()) == (100, 900.0, [0.25] * 100)


def test_a_snapshot_does_not_change_with_what_follows() -> None:
    logic = CountWindow(size=10, min_size=1, max_age_seconds=60.0).build()
    logic.push(columns(plain(4)), PARTITIONS[:1])
    snapshot = logic.snapshot()
    logic.push(columns(plain(9), 4), PARTITIONS[:1])
    assert (snapshot.number, snapshot.time.tolist()) == (0, [0.0, 1.0, 2.0, 3.0])
    assert snapshot.positions == {"a.ndjson": (0, 30)}


def test_a_snapshot_and_a_closed_window_share_nothing_with_the_open_one() -> None:
    logic = CountWindow(size=6, min_size=1, max_age_seconds=60.0).build()
    for i in range(4):
        logic.push(columns(plain(i + 1)[i:], i), PARTITIONS[:1])
    snapshot = logic.snapshot()
    snapshot.time[:] = -1.0
    snapshot.scores[:] = -1.0
    closed, _ = logic.push(columns(plain(6)[4:], 4), PARTITIONS[:1])
    for i in range(6, 11):
        logic.push(columns(plain(i + 1)[i:], i), PARTITIONS[:1])
    assert seen(closed[0])["scores"] == [[0.25, 0.75]] * 6
    assert (closed[0].start_time, closed[0].end_time, logic.pending) == (0.0, 5.0, 5)


def test_a_window_on_a_snapshot_that_cannot_be_written_to_goes_on() -> None:
    settings = CountWindow(size=30, min_size=1, max_age_seconds=60.0)
    logic = settings.build()
    logic.push(columns(plain(5)), PARTITIONS[:1])
    state = logic.snapshot()
    for name in ("scores", "predicted", "time"):
        getattr(state, name).flags.writeable = False
    resumed = settings.build(state)
    resumed.push(columns(plain(9)[5:], 5), PARTITIONS[:1])
    rest = resumed.close("end")
    assert rest is not None
    assert (rest.size, rest.end_time, len(state.time)) == (9, 8.0, 5)


@pytest.mark.parametrize("features", [0, 2])
@pytest.mark.parametrize("count", [250, 600, 1100, 4999])
def test_rows_that_come_one_at_a_time_take_little_more_than_their_own_bytes(
    count: int, features: int
) -> None:
    rows = columns(plain(count))
    rows = replace(rows, features=rows.features[:, :features])
    singles = [rows.take(np.array([i])) for i in range(count)]
    logic = CountWindow(size=5000, min_size=1, max_age_seconds=1e9).build()
    tracemalloc.start()
    try:
        for single in singles:
            logic.push(single, PARTITIONS[:1])
        # Threads of the test run allocate meanwhile.
        allocated = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, "*/monitor/*")])
    finally:
        tracemalloc.stop()
    used = sum(trace.size for trace in allocated.traces)
    assert logic.pending == count
    own = (32 + 8 * features) * count  # two scores, a class and a time are 32 bytes
    assert own <= used < 2 * own + 3000


@pytest.mark.parametrize("restart", [False, True])
def test_what_another_agent_used_in_between_is_not_in_the_positions(restart: bool) -> None:
    settings = CountWindow(size=9, min_size=1, max_age_seconds=60.0)
    logic = settings.build()
    logic.push(columns(plain(3)), PARTITIONS[:1])
    assert [logic.interrupt(name) for name in PARTITIONS[:2]] == [True, False]
    if restart:
        logic = settings.build(logic.snapshot())
    logic.push(columns(plain(12)[6:8], 6), PARTITIONS[:1])
    logic.push(columns(plain(12)[8:9], 8), PARTITIONS[:1])
    assert logic.interrupt(PARTITIONS[0])
    closed, _ = logic.push(columns(plain(30)[20:24], 20), PARTITIONS[:1])
    assert [window.positions for window in closed] == [{PARTITIONS[0]: (0, 20, 60, 80, 200, 220)}]
    rest = logic.close("end")
    assert rest is not None
    assert rest.positions == {PARTITIONS[0]: (230, 230)}, "the next window begins whole"


def test_no_rows_change_nothing() -> None:
    logic = CountWindow(size=10, min_size=1, max_age_seconds=60.0).build()
    closed, numbers = logic.push(columns([]), ())
    assert (closed, numbers.tolist(), logic.pending, logic.close("end")) == ([], [], 0, None)


@pytest.mark.parametrize(
    ("size", "min_size", "age", "message"),
    [
        (0, 1, 60.0, "size must be at least 1, got 0"),
        (5, 6, 60.0, "min_size must be from 1 to size (5), got 6"),
        (5, 0, 60.0, "min_size must be from 1 to size (5), got 0"),
        (5, 1, 0.0, "max_age_seconds must be above 0, got 0.0"),
        (5, 1, math.nan, "max_age_seconds must be above 0, got nan"),
    ],
)
def test_settings_out_of_range_are_refused_by_name(
    size: int, min_size: int, age: float, message: str
) -> None:
    with pytest.raises(ValueError) as refused:
        CountWindow(size, min_size, age)
    assert str(refused.value) == message

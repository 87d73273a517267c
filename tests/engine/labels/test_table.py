"""The ring of keyed rows against a dictionary that forgets its oldest entries."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from monitor.base.records import mix
from monitor.engine.labels import table
from monitor.engine.labels.matching import repeats
from monitor.engine.labels.table import BoundedTable
from tests.examples import examples
from tests.plain_state import same, through_msgpack

COLUMNS: dict[str, Any] = {"value": np.int64, "pair": np.dtype((np.int32, 2))}


def keys_of(numbers: list[int]) -> np.ndarray[Any, np.dtype[np.uint64]]:
    return np.array(numbers, dtype=np.uint64)


def add(ring: BoundedTable, numbers: list[int], first_value: int = 0) -> list[int]:
    values = np.arange(first_value, first_value + len(numbers))
    columns = {"value": values, "pair": np.stack([values, -values], axis=1)}
    return [int(row) for row in ring.add(keys_of(numbers), columns)]


class RingBesideDict(RuleBasedStateMachine):
    """Every step on the ring and on an ordered dictionary that drops its oldest entries."""

    @initialize(
        capacity=st.sampled_from([1, 2, 3, 7, 40, 1024, 1500, 6000]),
        # Keys with the same low bits meet in the hash table; those of `mix` spread.
        spread=st.booleans(),
    )
    def begin(self, capacity: int, spread: bool) -> None:
        self.capacity, self.spread = capacity, spread
        self.ring = BoundedTable(COLUMNS, capacity)
        self.slots: OrderedDict[int, tuple[int, int] | None] = OrderedDict()  # by insertion: (key, value)
        self.inserted = 0
        self.next_key = 1

    def keys(self, numbers: Iterable[int]) -> list[int]:
        chosen = list(numbers)
        return mix(keys_of(chosen)).tolist() if self.spread else [number << 40 | 7 for number in chosen]

    @property
    def present(self) -> dict[int, int]:
        return dict(slot for slot in self.slots.values() if slot is not None)

    @rule(count=st.one_of(st.integers(0, 12), st.sampled_from([900, 2500])))
    def add_some(self, count: int) -> None:
        count = count if self.spread else min(count, 30)  # one long cluster is slow, and no case of its own
        numbers = self.keys(range(self.next_key, self.next_key + count))
        self.next_key += count
        self._insert(numbers)

    @rule(back=st.integers(1, 40))
    def add_an_old_key_again(self, back: int) -> None:
        [number] = self.keys([max(1, self.next_key - back)])
        if self.next_key > 1 and number not in self.present:
            self._insert([number])

    def _insert(self, numbers: list[int]) -> None:
        out = self.ring.overwritten_by(len(numbers)).tolist()
        due = max(0, len(self.slots) + len(numbers) - self.capacity)
        oldest = list(self.slots.values())[:due]
        keys = self.ring.snapshot().keys[: len(out)].tolist()
        assert keys == [slot[0] if slot else 0 for slot in oldest]
        rows = add(self.ring, numbers, self.inserted)
        assert all(row >= 0 for row in rows[-self.capacity :])
        assert all(row == -1 for row in rows[: -self.capacity])
        for number in numbers:
            self.slots[self.inserted] = (number, self.inserted)
            self.inserted += 1
            if len(self.slots) > self.capacity:
                self.slots.popitem(last=False)

    @rule(data=st.data())
    def forget_some(self, data: st.DataObject) -> None:
        chosen = data.draw(st.lists(st.integers(0, max(0, len(self.slots) - 1)), max_size=5))
        places = list(self.slots)
        for place in chosen if places else []:
            slot = self.slots[places[place]]
            if slot is not None:
                self.ring.forget(self.ring.find(keys_of([slot[0]])))
                self.slots[places[place]] = None

    @rule(change=st.sampled_from([0, 0, 0, -1, 1, 500]))
    def resume(self, change: int) -> None:
        """Go on from a snapshot, now and then with another capacity."""
        self.capacity = max(1, self.capacity + change)
        self.ring = BoundedTable(COLUMNS, self.capacity, through_msgpack(self.ring.snapshot()))
        while len(self.slots) > self.capacity:
            self.slots.popitem(last=False)

    @invariant()
    def holds_what_the_dict_holds(self) -> None:
        if not hasattr(self, "ring"):
            return
        assert len(self.ring) == len(self.slots)
        expected = self.present
        wanted = [*list(expected)[-200:], *list(expected)[:200], *self.keys([self.next_key]), 0]
        gone = self.keys(range(max(1, self.next_key - 60), self.next_key))
        wanted += [key for key in gone if key not in expected]
        rows = self.ring.find(keys_of(wanted))
        assert (rows >= 0).tolist() == [key in expected for key in wanted]
        values = [expected[key] for key in wanted if key in expected]
        assert self.ring["value"][rows[rows >= 0]].tolist() == values
        assert self.ring["pair"][rows[rows >= 0]].tolist() == [[value, -value] for value in values]


TestRingBesideDict = RingBesideDict.TestCase
TestRingBesideDict.settings = settings(examples(60), stateful_step_count=25)


@examples(200)
@given(st.lists(st.integers(0, 12), max_size=60), st.booleans())
def test_repeats_are_those_that_a_loop_finds(numbers: list[int], spread: bool) -> None:
    keys = mix(keys_of(numbers)) if spread else keys_of(numbers)
    seen: dict[int, list[int]] = {}
    expected = []
    for row, number in enumerate(numbers):
        if number in seen:
            expected.append((row, seen[number][-1], seen[number][0]))
        seen.setdefault(number, []).append(row)
    rows, previous, first = repeats(keys)
    pairs = list(zip(rows.tolist(), previous.tolist(), first.tolist(), strict=True))
    assert sorted(pairs) == expected
    together = [int(one) for one in first]
    assert sorted(range(len(pairs)), key=lambda i: (together.index(together[i]), pairs[i][0])) == list(
        range(len(pairs))
    ), "rows of one key stand together, in their order"


def test_repeats_among_many_different_keys_are_the_few_that_there_are() -> None:
    keys = mix(np.arange(1, 20_001, dtype=np.uint64))
    keys[[70, 15_000]] = keys[[19_999, 3]]
    rows, previous, first = repeats(keys)
    assert sorted(zip(rows.tolist(), previous.tolist(), strict=True)) == [(15_000, 3), (19_999, 70)]
    assert sorted(first.tolist()) == [3, 70]


def test_a_ring_that_is_filled_many_times_over_finds_the_newest_rows_only() -> None:
    ring = BoundedTable(COLUMNS, capacity=3000)
    keys = mix(np.arange(1, 40_001, dtype=np.uint64))
    for start in range(0, 40_000, 700):
        add(ring, keys[start : start + 700].tolist(), start)
    rows = ring.find(keys)
    assert np.flatnonzero(rows >= 0).tolist() == list(range(37_000, 40_000))
    assert ring["value"][rows[37_000:]].tolist() == list(range(37_000, 40_000))


def test_the_reserved_key_is_never_found_not_even_after_rows_were_forgotten() -> None:
    ring = BoundedTable(COLUMNS, capacity=10)
    numbers = [1 << 40, 5, 6]  # the first stands in the slot where a search for 0 begins
    ring.forget(np.array(add(ring, numbers)))
    assert ring.find(keys_of([0, *numbers])).tolist() == [-1] * 4


def test_forgotten_rows_stay_out_of_a_table_that_is_built_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    entered = []
    original = BoundedTable._enter

    def counting(self: BoundedTable, keys: Any, rows: Any) -> None:
        entered.append(len(keys))
        original(self, keys, rows)

    ring = BoundedTable(COLUMNS, capacity=5000)
    ring.forget(np.array(add(ring, mix(np.arange(1, 1001, dtype=np.uint64)).tolist())))
    kept = mix(np.arange(2000, 2010, dtype=np.uint64))
    add(ring, kept.tolist())
    monkeypatch.setattr(BoundedTable, "_enter", counting)
    resumed = BoundedTable(COLUMNS, 5000, ring.snapshot())
    assert (sum(entered), len(resumed)) == (10, 1010)
    assert (resumed.find(kept) >= 0).all()


def test_memory_grows_with_the_rows_and_not_with_the_capacity() -> None:
    ring = BoundedTable(COLUMNS, capacity=table.LARGEST)
    add(ring, list(range(1, 100)))
    assert len(ring["value"]) == 1024


def test_a_snapshot_lists_rows_from_the_oldest_and_shares_nothing() -> None:
    ring = BoundedTable(COLUMNS, capacity=3)
    add(ring, [1, 2, 3, 4], 10)
    snapshot = ring.snapshot()
    assert snapshot.keys.tolist() == [2, 3, 4]
    assert snapshot.columns["value"].tolist() == [11, 12, 13]
    before = through_msgpack(snapshot)
    add(ring, [5], 14)
    ring.forget(ring.find(keys_of([4])))
    assert same(snapshot, before)


@pytest.mark.parametrize("added", [0, 3, 7, 10])
def test_wanted_rows_are_those_of_all_rows_oldest_first(added: int) -> None:
    ring = BoundedTable({"label": np.int32}, capacity=7)
    for key in range(1, added + 1):
        ring.add(np.array([key], dtype=np.uint64), {"label": np.array([key % 3])})
    every = ring.live()
    assert ring.keys(every).tolist() == [*range(max(1, added - 6), added + 1)]
    wanted = ring["label"][: len(ring)] == 1
    assert ring.live(wanted).tolist() == [row for row in every if ring["label"][row] == 1]


@pytest.mark.parametrize("capacity", [0, -1, table.LARGEST + 1])
def test_a_capacity_out_of_range_is_refused(capacity: int) -> None:
    with pytest.raises(ValueError) as refused:
        BoundedTable(COLUMNS, capacity)
    assert str(refused.value) == f"capacity must be from 1 to 500,000,000, got {capacity:,}"


def test_changes_to_rows_that_nobody_saves_are_not_remembered() -> None:
    """A replay never saves: what it changed would otherwise grow with the length of the stream."""
    ring = BoundedTable(COLUMNS, capacity=100)
    rows = add(ring, list(range(1, 101)))
    for _ in range(500):
        ring.put("value", rows, 7)
    assert ring._touched == []
    assert ring.changes("r") is not None
    ring.confirm()
    for _ in range(500):
        ring.put("value", rows[:50], 8)
    assert sum(map(len, ring._touched)) <= 250
    change = ring.changes("r")
    assert change is not None
    assert change.changed is not None
    assert change.changed.rows.tolist() == list(range(50))
    ring.retract()
    ring.put("value", rows[60:61], 9)
    again = ring.changes("r")
    assert again is not None
    assert again.changed is not None
    assert again.changed.rows.tolist() == [*range(50), 60]


@pytest.mark.slow
def test_while_the_table_is_moved_into_a_larger_one_every_row_is_found_and_no_forgotten_one() -> None:
    rng = np.random.default_rng(3)
    keys = np.unique(rng.integers(1, 2**63, 40_000, dtype=np.uint64))
    rng.shuffle(keys)
    ring = BoundedTable({"label": np.int32}, capacity=30_000)
    gone = np.zeros(len(keys), dtype=bool)
    moving = 0
    for stop in range(37, len(keys), 37):
        start = stop - 37
        ring.add(keys[start:stop], {"label": np.arange(start, stop)})
        if ring._moving is None and start % 5:
            continue
        moving += ring._moving is not None
        oldest = max(0, stop - 30_000)
        forgotten = rng.integers(oldest, stop, 2)
        ring.forget(ring.find(keys[forgotten][~gone[forgotten]]))
        gone[forgotten] = True
        rows = ring.find(keys[:stop])
        expected = np.where(gone[:stop] | (np.arange(stop) < oldest), -1, np.arange(stop) % 30_000)
        assert rows.tolist() == expected.tolist()
    assert moving > 10, "it is looked at while a table is moved"

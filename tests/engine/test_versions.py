"""The version in charge, against a tracker that looks at one answer at a time."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.engine.versions import VersionState, VersionTracker
from tests.examples import examples
from tests.plain_state import same, through_msgpack

NAMES = ("", "v1", "v2", "v3")


@dataclass
class SlowTracker:
    """One answer after another."""

    rollback: int
    current: str = ""
    superseded: list[str] = field(default_factory=list)
    stragglers: int = 0
    debt: int = 0
    same: list[str] = field(default_factory=list)
    """The answers in a row with the last version, while restless."""

    def take(self, name: str) -> tuple[str, bool]:
        """Return the version in charge of this answer, and whether it took over with it."""
        patience = max(self.rollback, 20)
        if self.debt > 15 * patience:
            return self.take_restless(name, patience)
        self.debt = max(0, self.debt - 1)
        self.current = self.current or name
        if name in ("", self.current):
            self.stragglers = 0
            return self.current, False
        self.stragglers += 1
        if name in self.superseded and self.stragglers < self.rollback:
            return self.current, False
        self.debt += patience
        self.same = [name]
        return self.take_over(name)

    def take_restless(self, name: str, patience: int) -> tuple[str, bool]:
        self.same = [*self.same, name] if set(self.same) <= {name} else [name]
        if name == "" or len(self.same) < patience:
            return self.current, False
        self.debt = 15 * patience
        return (self.current, False) if name == self.current else self.take_over(name)

    def take_over(self, name: str) -> tuple[str, bool]:
        self.superseded = [old for old in self.superseded if old != name] + [self.current]
        self.superseded = self.superseded[-16:]
        self.current, self.stragglers = name, 0
        return name, True


def followed(tracker: VersionTracker, names: list[str]) -> list[tuple[str, bool]]:
    """Return, for each answer, the version in charge and whether it took over, from one batch's stretches."""
    table = tuple(dict.fromkeys(names)) or ("",)
    if names and len(table) == 1 and tracker.keeps(table[0], len(names)):
        return [(tracker.current, False)] * len(names)
    place = {name: code for code, name in enumerate(table)}
    codes = np.array([place[name] for name in names], dtype=np.int64)
    states: list[tuple[str, bool]] = []
    for start, stop, version, took_over in tracker.stretches(codes, table):
        assert (start, stop > start) == (len(states), True)
        states += [(version, took_over and i == 0) for i in range(stop - start)]
    assert len(states) == len(names)
    return states


def check_any_cutting(names: list[str], rollback: int, cuts: set[int], resume_at: int) -> SlowTracker:
    tracker, slow = VersionTracker(rollback), SlowTracker(rollback)
    expected = [slow.take(name) for name in names]
    states: list[tuple[str, bool]] = []
    ends = sorted({0, len(names), *(cut for cut in cuts if cut < len(names))})
    for place, (start, stop) in enumerate(itertools.pairwise(ends)):
        states += followed(tracker, names[start:stop])
        if place == resume_at:
            tracker = VersionTracker(rollback, through_msgpack(tracker.snapshot()))
    assert states == expected
    assert tracker.current == slow.current
    whole = VersionTracker(rollback)
    followed(whole, names)
    assert same(tracker.snapshot(), whole.snapshot())
    return slow


@examples(400)
@given(
    st.lists(st.tuples(st.sampled_from(NAMES), st.integers(1, 5)), max_size=12),
    st.integers(1, 5),
    st.sets(st.integers(0, 60)),
    st.integers(-1, 6),
)
def test_any_cutting_into_batches_gives_what_one_answer_at_a_time_gives(
    runs: list[tuple[str, int]], rollback: int, cuts: set[int], resume_at: int
) -> None:
    check_any_cutting([name for name, count in runs for _ in range(count)], rollback, cuts, resume_at)


@pytest.mark.parametrize("tens", range(6))
def test_any_cutting_gives_the_same_where_versions_follow_each_other_fast(tens: int) -> None:
    for seed in range(10 * tens, 10 * tens + 10):
        rng = np.random.default_rng(seed)
        names = fast_versions(rng)
        cuts = set(rng.integers(0, len(names), int(rng.integers(0, 30))).tolist())
        check_any_cutting(names, int(rng.integers(1, 40)), cuts, int(rng.integers(-1, 20)))


def fast_versions(rng: np.random.Generator) -> list[str]:
    """Return a version for each answer, then many in turns, then long runs, then none."""
    names: list[str] = []
    for phase in range(12):
        kind, count = rng.integers(0, 5), int(rng.integers(1, 80))
        if kind == 0:
            names += [f"build-{phase}-{i}" for i in range(count)]
        elif kind == 1:
            names += [f"v{i}" for i in rng.integers(0, 25, count)]
        elif kind == 2:
            names += [f"v{rng.integers(0, 25)}"] * count
        elif kind == 3:
            names += [f"v{i}" for i in range(count) for _ in range(3)]
        else:
            names += [""] * int(rng.integers(1, 4))
    return names


def test_a_version_for_each_answer_takes_over_sixteen_times_and_no_more() -> None:
    tracker = VersionTracker(50)
    states = followed(tracker, [f"build-{i}" for i in range(2000)])
    assert sum(took_over for _, took_over in states) == 16
    assert states[-1] == ("build-16", False)
    assert tracker.restless
    settled = followed(tracker, ["v1"] * 60)
    assert settled[48:51] == [("build-16", False), ("v1", True), ("v1", False)]
    assert not tracker.restless


def test_the_version_in_charge_settles_a_restless_series_with_answers_in_a_row() -> None:
    tracker = VersionTracker(50)
    followed(tracker, [f"build-{i}" for i in range(100)])
    states = followed(tracker, ["build-16"] * 50)
    assert (set(states), tracker.restless) == ({("build-16", False)}, False)
    assert followed(tracker, ["v1"]) == [("v1", True)]
    assert tracker.restless, "the debt has been cut by one take-over, and not forgotten"
    calm = followed(tracker, ["v1"] * 1000)
    assert (set(calm), tracker.snapshot().debt) == ({("v1", False)}, 0)


def test_deployments_are_never_delayed() -> None:
    tracker = VersionTracker(50)
    rng = np.random.default_rng(1)
    for week in range(40):
        canary = [f"v{week + new}" for new in rng.integers(0, 2, 100).tolist()]
        first = canary.index(f"v{week + 1}")
        states = followed(tracker, [f"v{week}", *canary, *[f"v{week + 1}"] * 100])
        assert [i for i, (_, took_over) in enumerate(states) if took_over] == [first + 1]


@pytest.mark.parametrize("rollback", [1, 20, 50])
def test_take_overs_are_bounded_whatever_comes(rollback: int) -> None:
    patience = max(rollback, 20)
    for run, strange in itertools.product([1, 7, 20, 50, 51], [1, 2, 20]):
        names = [
            name
            for turn in range(100)
            for name in ["v1"] * run + [f"build-{turn}-{i}" for i in range(strange)]
        ]
        tracker = VersionTracker(rollback)
        take_overs = sum(took_over for _, took_over in followed(tracker, names))
        assert take_overs <= 16 + 2 * len(names) / patience, (run, strange)


def test_a_canary_is_one_stretch_for_as_long_as_nothing_takes_over() -> None:
    tracker = VersionTracker(50)
    codes = np.arange(1000) % 2
    assert list(tracker.stretches(codes, ("v1", "v2"))) == [(0, 1, "v1", False), (1, 1000, "v2", True)]
    assert list(tracker.stretches(codes, ("v1", "v2"))) == [(0, 1000, "v2", False)]


def test_a_new_version_takes_over_with_its_first_answer() -> None:
    assert followed(VersionTracker(50), ["v1", "v2", "v2"]) == [("v1", False), ("v2", True), ("v2", False)]


def test_stragglers_of_the_version_before_do_not_turn_the_series_back() -> None:
    states = followed(VersionTracker(3), ["v1", "v2", "v1", "v1", "v2", "v1", "v1"])
    assert [version for version, _ in states] == ["v1", *["v2"] * 6]
    assert sum(took_over for _, took_over in states) == 1


def test_enough_stragglers_in_a_row_are_a_rollback_from_the_last_of_them_on() -> None:
    states = followed(VersionTracker(3), ["v1", "v2", "v1", "v1", "v1", "v1"])
    assert states[2:] == [("v2", False), ("v2", False), ("v1", True), ("v1", False)]


def test_answers_without_a_version_belong_to_the_current_one() -> None:
    tracker = VersionTracker(3)
    assert followed(tracker, ["", "v1", ""]) == [("", False), ("v1", False), ("v1", False)]
    assert tracker.current == "v1"


def test_a_version_long_superseded_counts_as_new() -> None:
    tracker = VersionTracker(50)
    followed(tracker, [f"v{i}" for i in range(18) for _ in range(50)])
    assert followed(tracker, ["v1", "v0"]) == [("v17", False), ("v0", True)]
    assert len(tracker.snapshot().superseded) == 16


def test_rollbacks_back_and_forth_make_no_other_version_forgotten() -> None:
    tracker = VersionTracker(1)
    followed(tracker, ["v0", *["v1", "v2"] * 5])
    assert tracker.snapshot().superseded == ["v0", "v1"]


def test_a_snapshot_shares_nothing_with_the_tracker() -> None:
    tracker = VersionTracker(2)
    followed(tracker, ["v1", "v2", "v1"])
    snapshot = tracker.snapshot()
    followed(tracker, ["v3"])
    expected = VersionState(current="v2", superseded=["v1"], stragglers=1, debt=19)
    assert same(snapshot, expected)


def test_no_answers_change_nothing() -> None:
    tracker = VersionTracker(2)
    assert list(tracker.stretches(np.zeros(0, dtype=np.int64), ())) == []
    assert tracker.current == ""


def test_a_rollback_of_no_answers_is_refused() -> None:
    with pytest.raises(ValueError) as refused:
        VersionTracker(0)
    assert str(refused.value) == "rollback must be at least 1 answer, got 0"

"""The version in charge, against a tracker that looks at one answer at a time."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitor.versions import VersionTracker
from tests.plain_state import same, through_msgpack

NAMES = ("", "v1", "v2", "v3")


@dataclass
class SlowTracker:
    """One answer after another."""

    rollback: int
    current: str = ""
    superseded: list[str] = field(default_factory=list)
    stragglers: int = 0

    def take(self, name: str) -> tuple[str, bool]:
        """The version in charge of this answer, and whether it took over with it."""
        self.current = self.current or name
        if name in ("", self.current):
            self.stragglers = 0
            return self.current, False
        self.stragglers += 1
        if name in self.superseded and self.stragglers < self.rollback:
            return self.current, False
        self.superseded = [old for old in self.superseded if old != name] + [self.current]
        self.current, self.stragglers = name, 0
        return name, True


def followed(tracker: VersionTracker, names: list[str]) -> list[tuple[str, bool]]:
    """For each answer the version in charge and whether it took over, from the stretches of one batch."""
    table = tuple(dict.fromkeys(names)) or ("",)
    codes = np.array([table.index(name) for name in names], dtype=np.int64)
    found: list[tuple[str, bool]] = []
    for start, stop, version, took_over in tracker.stretches(codes, table):
        assert (start, stop > start) == (len(found), True)
        found += [(version, took_over and i == 0) for i in range(stop - start)]
    assert len(found) == len(names)
    return found


@settings(max_examples=400, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(NAMES), st.integers(1, 5)), max_size=12),
    st.integers(1, 5),
    st.sets(st.integers(0, 60)),
    st.integers(-1, 6),
)
def test_any_cutting_into_batches_gives_what_one_answer_at_a_time_gives(
    runs: list[tuple[str, int]], rollback: int, cuts: set[int], resume_at: int
) -> None:
    names = [name for name, count in runs for _ in range(count)]
    tracker, slow = VersionTracker(rollback), SlowTracker(rollback)
    expected = [slow.take(name) for name in names]
    found: list[tuple[str, bool]] = []
    ends = sorted({0, len(names), *(cut for cut in cuts if cut < len(names))})
    for place, (start, stop) in enumerate(itertools.pairwise(ends)):
        found += followed(tracker, names[start:stop])
        if place == resume_at:
            tracker = VersionTracker(rollback, through_msgpack(tracker.snapshot()))
    assert found == expected
    assert tracker.current == slow.current


def test_a_new_version_takes_over_with_its_first_answer() -> None:
    assert followed(VersionTracker(50), ["v1", "v2", "v2"]) == [("v1", False), ("v2", True), ("v2", False)]


def test_stragglers_of_the_version_before_do_not_turn_the_series_back() -> None:
    found = followed(VersionTracker(3), ["v1", "v2", "v1", "v1", "v2", "v1", "v1"])
    assert [version for version, _ in found] == ["v1", *["v2"] * 6]
    assert sum(took_over for _, took_over in found) == 1


def test_enough_stragglers_in_a_row_are_a_rollback_from_the_last_of_them_on() -> None:
    found = followed(VersionTracker(3), ["v1", "v2", "v1", "v1", "v1", "v1"])
    assert found[2:] == [("v2", False), ("v2", False), ("v1", True), ("v1", False)]


def test_answers_without_a_version_belong_to_the_current_one() -> None:
    tracker = VersionTracker(3)
    assert followed(tracker, ["", "v1", ""]) == [("", False), ("v1", False), ("v1", False)]
    assert tracker.current == "v1"


def test_a_version_long_superseded_counts_as_new() -> None:
    tracker = VersionTracker(50)
    followed(tracker, [f"v{i}" for i in range(18)])
    assert followed(tracker, ["v1", "v0"]) == [("v17", False), ("v0", True)]
    assert len(tracker.snapshot()["superseded"]) == 16


def test_rollbacks_back_and_forth_make_no_other_version_forgotten() -> None:
    tracker = VersionTracker(1)
    followed(tracker, ["v0", *["v1", "v2"] * 20])
    assert tracker.snapshot()["superseded"] == ["v0", "v1"]


def test_a_snapshot_shares_nothing_with_the_tracker() -> None:
    tracker = VersionTracker(2)
    followed(tracker, ["v1", "v2", "v1"])
    snapshot = tracker.snapshot()
    followed(tracker, ["v3"])
    assert same(snapshot, {"current": "v2", "superseded": ["v1"], "stragglers": 1})


def test_no_answers_change_nothing() -> None:
    tracker = VersionTracker(2)
    assert list(tracker.stretches(np.zeros(0, dtype=np.int64), ())) == []
    assert tracker.current == ""


def test_a_rollback_of_no_answers_is_refused() -> None:
    with pytest.raises(ValueError) as refused:
        VersionTracker(0)
    assert str(refused.value) == "rollback must be at least 1 answer, got 0"

"""The tally of labelled rows against a dictionary that is cut down to the newest windows."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitor.estimate.proportion import wilson
from monitor.labels.tally import Tally
from tests.plain_state import same, through_msgpack

_additions = st.lists(
    st.tuples(st.one_of(st.integers(0, 12), st.integers(0, 10_000)), st.integers(0, 3), st.integers(-1, 3)),
    max_size=40,
)


@settings(max_examples=300, deadline=None)
@given(_additions, st.integers(1, 8), st.integers(0, 40))
def test_the_tally_knows_the_newest_windows_as_a_dict_does(
    additions: list[tuple[int, int, int]], keep: int, resume_at: int
) -> None:
    tally, slow = Tally(keep), dict[int, tuple[int, int]]()
    for place, (window, labelled, correct) in enumerate(additions):
        tally.add(window, labelled, correct)
        if window > max(slow, default=-1) - keep:
            n, k = slow.get(window, (0, 0))
            slow[window] = (n + labelled, k + correct)
        slow = {number: counts for number, counts in slow.items() if number > max(slow) - keep}
        if place == resume_at:
            tally = Tally(keep, through_msgpack(tally.snapshot()))
        assert {number: tally.counts(number) for number in slow} == slow
        assert sorted(row[0] for row in tally.snapshot()["windows"]) == sorted(slow)
        for before in (0, window, window + 1, max(slow), max(slow) + 5):
            labelled_ones = [number for number, (n, _) in slow.items() if n and number < before]
            assert tally.newest(before) == max(labelled_ones, default=None)


def test_realised_accuracy_is_the_share_of_correct_rows_with_wilsons_interval() -> None:
    tally = Tally(keep=10)
    tally.add(4, labelled=20, correct=18)
    tally.add(4, labelled=0, correct=-1)
    assert tally.counts(4) == (20, 17)
    assert tally.realised(4, level=0.9) == wilson(17, 20, 0.9)


def test_a_window_without_labels_is_unknown() -> None:
    assert str(getattr(Tally(keep=10).realised(0, level=0.95), "reason", None)) == "no labels yet"


def test_of_windows_too_old_nothing_more_is_learnt() -> None:
    tally = Tally(keep=3)
    tally.add(10, 5, 5)
    tally.add(7, 5, 5)
    assert (tally.counts(7), tally.counts(10)) == ((0, 0), (5, 5))
    tally.add(8, 5, 5)
    assert tally.counts(8) == (5, 5)


def test_the_newest_labelled_window_is_found_below_windows_that_labels_skipped() -> None:
    tally = Tally(keep=1000)
    tally.add(3, 1, 1)
    tally.add(900, 1, 0)
    assert (tally.newest(901), tally.newest(900), tally.newest(3)) == (900, 3, None)


def test_fewer_windows_may_be_kept_after_resuming() -> None:
    tally = Tally(keep=100)
    for window in range(10):
        tally.add(window, 1, 1)
    resumed = Tally(2, tally.snapshot())
    assert same(resumed.snapshot(), {"windows": [[8, 1, 1], [9, 1, 1]], "labelled": 10, "correct": 10})


def test_totals_count_windows_that_are_no_longer_kept() -> None:
    tally = Tally(keep=1)
    tally.add(5, 10, 9)
    tally.add(6, 4, 2)
    tally.add(5, 1, 0)
    assert (tally.labelled, tally.correct, tally.windows()) == (15, 11, {6: (4, 2)})


def test_keeping_no_window_is_refused() -> None:
    with pytest.raises(ValueError) as refused:
        Tally(keep=0)
    assert str(refused.value) == "keep must be at least 1 window, got 0"

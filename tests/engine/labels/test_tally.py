"""The tally of labelled rows against a list of rows that is summed each time."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.base.results import Reason, TooFew, Unknown
from monitor.engine.labels.tally import FEWEST_IN_COHORT, Tally
from monitor.stats.estimate.hajek import WeightedCounts, excess, hajek, weighted_counts
from monitor.stats.estimate.proportion import wilson
from tests.examples import examples
from tests.plain_state import same, through_msgpack

_window = st.one_of(st.integers(0, 12), st.integers(0, 10_000))
_weight = st.sampled_from([1.0, 1.0, 4.0, 1 / 0.3])
_label = st.tuples(st.just("label"), _window, st.booleans(), _weight)
_close = st.tuples(st.just("close"), st.integers(1, 3), st.floats(-50, 200), st.just(1.0))
_events = st.lists(st.one_of(_label, _close), max_size=40)


class SlowTally:
    """Every row ever labelled, every end; nothing is forgotten but by its number."""

    def __init__(self, keep: int, horizon: float) -> None:
        self.keep, self.horizon = keep, horizon
        self.rows: list[tuple[int, bool, float]] = []
        self.ends: list[float] = []
        self.highest = -1

    def counts(self, windows: set[int]) -> WeightedCounts:
        rows = [row for row in self.rows if row[0] in windows]
        return weighted_counts(np.array([r[1] for r in rows], bool), np.array([r[2] for r in rows], float))

    def label(self, window: int, right: bool, weight: float) -> None:
        self.highest = max(self.highest, window)
        if window > self.highest - self.keep:  # of older ones nothing more is learnt
            self.rows.append((window, right, weight))

    def close(self, end: float) -> None:
        self.ends.append(max([end, *self.ends[-1:]]))
        self.highest = max(self.highest, len(self.ends) - 1)

    def kept(self) -> set[int]:
        return {row[0] for row in self.rows if row[0] > self.highest - self.keep}

    def cohort(self, fewest: int) -> WeightedCounts:
        chosen: set[int] = set()
        for window in sorted((w for w in self.kept() if w < len(self.ends)), reverse=True):
            chosen.add(window)
            if self.counts(chosen).n >= fewest:
                break
        return self.counts(chosen)

    def within(self) -> WeightedCounts:
        oldest = self.ends[-1] - self.horizon if self.ends else math.inf
        return self.counts({w for w in self.kept() if w < len(self.ends) and self.ends[w] >= oldest})


@pytest.mark.slow
@examples(400)
@given(
    _events, st.integers(1, 8), st.integers(0, 40), st.sampled_from([0.0, 30.0, math.inf]), st.integers(1, 6)
)
def test_the_tally_knows_what_a_list_of_all_rows_does(
    events: list[tuple], keep: int, resume_at: int, horizon: float, fewest: int
) -> None:
    tally, slow = Tally(keep, horizon), SlowTally(keep, horizon)
    for place, (kind, number, what, weight) in enumerate(events):
        if kind == "label":
            tally.add(number, 1, int(what), excess(weight, 1, int(what)))
            slow.label(number, what, weight)
        else:
            for _ in range(number):  # several in a row, so that windows without a label occur
                slow.close(float(len(slow.ends) * 10 + what))
                tally.close(len(slow.ends) - 1, slow.ends[-1])
        if place == resume_at:
            tally = Tally(keep, horizon, through_msgpack(tally.snapshot()))
        kept = slow.kept()
        assert tally.windows() == {window: slow.counts({window}) for window in sorted(kept)}
        assert tally.realised_horizon(0.9) == hajek(slow.within(), 0.9)
        cohort = slow.cohort(fewest)
        few = 0 < cohort.n < fewest
        expected = TooFew(Reason.TOO_FEW_LABELS, cohort.n) if few else hajek(cohort, 0.9)
        assert tally.realised_cohort(0.9, fewest) == expected
        for before in (0, number, number + 1, slow.highest, slow.highest + 5):
            assert tally.newest(before) == max((w for w in kept if w < before), default=None)


def test_realised_accuracy_is_the_share_of_correct_rows_with_wilsons_interval() -> None:
    tally = Tally(keep=10)
    tally.add(4, labelled=20, correct=18)
    tally.add(4, labelled=0, correct=-1)
    assert tally.counts(4) == (20, 17)
    assert tally.realised(4, level=0.9) == wilson(17, 20, 0.9)


def test_a_window_without_labels_is_unknown() -> None:
    assert str(getattr(Tally(keep=10).realised(0, level=0.95), "reason", None)) == "no labels yet"


def test_weighted_rows_count_by_their_weights() -> None:
    tally = Tally(keep=10)
    tally.add(4, 1, 1, excess(20.0, 1, 1))
    tally.add(4, 2, 1)
    tally.add(4, 0, -1, excess(20.0, 0, -1))  # the first was wrong after all
    picked = weighted_counts(np.array([False, True, False]), np.array([20.0, 1.0, 1.0]))
    assert tally.sums(4) == picked
    assert tally.realised(4, 0.95) == hajek(picked, 0.95)


def test_the_cohort_is_of_at_least_200_rows_and_says_how_many_there_are_before() -> None:
    tally = Tally(keep=100)
    assert FEWEST_IN_COHORT == 200
    assert tally.realised_cohort(0.95) == Unknown(Reason.NO_LABELS)
    for window in range(10):
        tally.add(window, 30, 20 + window)
        assert tally.realised_cohort(0.95) == tally_of_newest(window)
        tally.close(window, float(window))
    assert tally.realised_cohort(0.95) == wilson(sum(20 + w for w in range(3, 10)), 210)


def tally_of_newest(open_window: int) -> object:
    """Return the tally of 30 labelled rows a window while this one is open: its own do not count yet."""
    if not open_window:
        return Unknown(Reason.NO_LABELS)
    if open_window < 7:
        return TooFew(Reason.TOO_FEW_LABELS, 30 * open_window)
    return wilson(sum(20 + w for w in range(open_window - 7, open_window)), 210)


def test_the_horizon_ends_with_the_newest_window_and_takes_late_labels_of_those_within() -> None:
    tally = Tally(keep=100, horizon_seconds=100.0)
    for window in range(5):
        tally.close(window, 50.0 * window)  # ends at 0, 50, 100, 150, 200
    tally.add(1, 10, 9)
    assert tally.realised_horizon(0.95) == Unknown(Reason.NO_LABELS)
    tally.add(2, 10, 9)
    tally.add(4, 10, 5)
    assert tally.realised_horizon(0.95) == wilson(14, 20)
    tally.close(5, 201.0)
    assert tally.realised_horizon(0.95) == wilson(5, 10)


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
        tally.add(window, 1, 1, excess(2.0, 1, 1))
        tally.close(window, float(window))
    resumed = Tally(2, resume=tally.snapshot())
    assert resumed.windows() == {window: tally.sums(window) for window in (8, 9)}
    assert resumed.realised_horizon(0.95) == wilson(2, 2)
    assert (resumed.labelled, resumed.correct) == (10, 10)


def test_a_snapshot_shares_nothing_with_the_tally() -> None:
    tally = Tally(keep=10)
    tally.add(3, 2, 1, excess(2.0, 2, 1))
    snapshot = tally.snapshot()
    before = through_msgpack(snapshot)
    tally.add(3, 1, 1, excess(2.0, 1, 1))
    tally.close(3, 1.0)
    assert same(snapshot, before)


def test_totals_count_windows_that_are_no_longer_kept() -> None:
    tally = Tally(keep=1)
    tally.add(5, 10, 9)
    tally.add(6, 4, 2)
    tally.add(5, 1, 0)
    assert (tally.labelled, tally.correct, tally.windows()) == (15, 11, {6: WeightedCounts(4, 2)})


def test_keeping_no_window_is_refused() -> None:
    with pytest.raises(ValueError) as refused:
        Tally(keep=0)
    assert str(refused.value) == "keep must be at least 1 window, got 0"

"""The times at which a refit is due: by windows, by labels, by time, and never while one is under way."""

import numpy as np
import pytest

from monitor.engine.refit.schedule import RefitSchedule


def closed(schedule: RefitSchedule, times: int) -> list[bool]:
    due = []
    for _ in range(times):
        schedule.window_closed(now=0.0)
        due.append(schedule.due)
    return due


def test_it_is_due_with_the_window_that_is_one_too_many() -> None:
    schedule = RefitSchedule(every_windows=3, every_labels=99)
    assert closed(schedule, 3) == [False, False, True]
    schedule.begin(now=0.0)
    assert closed(schedule, 3) == [False, False, True], "they count anew from where it began"


def test_labels_alone_make_nothing_due_before_a_window_closes() -> None:
    schedule = RefitSchedule(every_windows=99, every_labels=10)
    schedule.labels_came(9)
    assert closed(schedule, 1) == [False]
    schedule.labels_came(1)
    assert not schedule.due
    assert closed(schedule, 1) == [True]
    schedule.begin(now=0.0)
    assert closed(schedule, 1) == [False], "the same labels do not count twice"


def test_time_counts_from_the_first_that_is_told_and_from_each_beginning() -> None:
    schedule = RefitSchedule(99, 99, every_seconds=60.0)
    schedule.tick(-np.inf)
    schedule.tick(1000.0)
    schedule.tick(1059.9)
    assert not schedule.due
    schedule.tick(1060.0)
    assert schedule.due
    schedule.begin(now=1070.0)
    schedule.tick(1129.0)
    assert not schedule.due
    schedule.window_closed(now=1130.0)
    assert schedule.due


def test_without_every_seconds_no_time_makes_it_due() -> None:
    schedule = RefitSchedule(99, 99)
    schedule.tick(0.0)
    schedule.tick(1e9)
    assert not schedule.due


def test_what_comes_due_while_one_is_under_way_stays_due() -> None:
    schedule = RefitSchedule(1, 99)
    schedule.window_closed(0.0)
    assert schedule.begin(0.0) == 1
    schedule.window_closed(0.0)
    assert (schedule.due, schedule.under_way) == (True, True)
    schedule.end()
    assert (schedule.due, schedule.under_way) == (True, False)
    assert schedule.begin(0.0) == 2


@pytest.mark.parametrize("under_way", [False, True])
def test_a_restart_counts_on_and_asks_again_for_what_was_lost(under_way: bool) -> None:
    schedule = RefitSchedule(4, 99, every_seconds=50.0)
    if under_way:
        schedule.begin(now=10.0)
    closed(schedule, 3)
    again = RefitSchedule(4, 99, every_seconds=50.0, resume=schedule.snapshot())
    assert (again.due, again.under_way, again.number) == (under_way, False, int(under_way))
    assert closed(again, 1) == [True]


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ((0, 1), "every_windows must be at least 1, got 0"),
        ((1, 0), "every_labels must be at least 1, got 0"),
        ((1, 1, 0.0), "every_seconds must be above 0 or None, got 0.0"),
    ],
)
def test_numbers_out_of_range_are_refused(wrong: tuple[float, ...], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        RefitSchedule(*wrong)  # type: ignore[arg-type]

"""Times at the ends of the calendar, and none at all, from the record's bytes to the report's line."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from monitor.base.records import RejectReason
from monitor.reports.window_report import WindowReport, to_json
from tests.streams import Rig, answers, task

ROWS = 100  # one window


def window_of(rig: Rig, time: object, now: float = 1.7e9) -> list[WindowReport]:
    records = answers(np.random.default_rng(5), ROWS)
    for record in records:
        record["time"] = time
        if time is None:
            del record["time"]
    return rig.feed(records, now)


def written(report: WindowReport) -> tuple[str, str]:
    line = msgspec.json.decode(to_json(report))
    return line["start_time"], line["end_time"]


@pytest.mark.parametrize(
    ("time", "text"),
    [
        ("9999-12-31T23:59:59.9994Z", "9999-12-31T23:59:59.999Z"),
        ("1970-01-01T00:00:00.0004Z", "1970-01-01T00:00:00.000Z"),
        (0, "1970-01-01T00:00:00.000Z"),
        (99_999_999_999.9996, "5138-11-16T09:46:40.000Z"),
    ],
)
def test_the_ends_of_the_calendar_are_written_down(time: object, text: str) -> None:
    (report,) = window_of(Rig(), time)  # a replay: a live agent does not believe the future
    assert written(report) == (text, text)


@pytest.mark.parametrize("time", ["9999-12-31T23:59:59.9999Z", "9999-12-31T23:59:60Z", -62135596801, 1e300])
def test_what_no_report_could_say_is_refused_and_stops_nothing(time: object) -> None:
    rig = Rig()
    assert window_of(rig, time) == []
    (report,) = window_of(rig, 1.7e9)
    assert report.size == ROWS
    assert rig.engine.view().rejected == {("test", RejectReason.TIME_FORMAT.value): ROWS}


@pytest.mark.parametrize("time", ["0001-01-01T00:00:00Z", "1969-12-31T23:59:59.999Z", -0.001, -62135596800])
def test_a_time_before_1970_is_refused_also_in_a_replay(time: object) -> None:
    rig = Rig()
    assert window_of(rig, time) == []
    assert rig.engine.view().rejected == {("test", RejectReason.BAD_TIME.value): ROWS}


def test_without_a_time_a_live_record_has_that_of_its_arrival() -> None:
    (report,) = window_of(Rig(task(), event_time=False), None, now=1795168800.12)
    assert written(report) == ("2026-11-20T10:00:00.120Z",) * 2


def test_a_replay_without_any_time_gives_the_same_bytes_whenever_it_runs() -> None:
    first, second = (
        [to_json(report) for report in window_of(Rig(task()), None, now)] for now in (1.7e9, 1.8e9)
    )
    assert first == second
    (line,) = map(msgspec.json.decode, first)
    assert (line["start_time"], line["end_time"]) == ("1970-01-01T00:00:00.000Z",) * 2

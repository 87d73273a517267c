"""Seasons in the engine: their start, what they judge, and the same bytes after a restart."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from monitor.base.codec import pack, restored, unpack
from monitor.engine.judge import JudgeState
from monitor.engine.season import count_days
from monitor.reports.window_report import WindowReport
from monitor.stats.charts.season import HOURS
from tests.streams import CLASSES, Record, Rig, lines, reference_of, task

pytestmark = pytest.mark.slow

START = 1_704_067_200  # Monday, 1 January 2024, 00:00 UTC
ROWS = 10
WEEK = HOURS * ROWS
CHART = {"season": "hour_of_week", "arl0": 370, "min_change": 0}
SEASON: dict[str, Any] = {"chart": CHART, "window": {"size": ROWS, "min_size": 5}}
WAITS = (
    "no limits by hour of the week yet: they need four weeks of windows of one version in control, and begin "
    "on 2024-01-29"
)


def weeks(count: float, monday: float = -0.1, start: int = 0, seed: int = 0, **more: Any) -> list[Record]:
    """Return answers of a window an hour from a week on, with other confidences on Mondays."""
    rng = np.random.default_rng(seed)
    hour = start * HOURS + np.arange(int(count * WEEK)) // ROWS
    score = (0.85 + monday * (hour % HOURS < 24) + rng.normal(0, 0.03, len(hour))).tolist()
    return [
        {
            "id": f"{start}-{i}",
            "time": START + int(hour[i]) * 3600 + i % ROWS * 300,
            "model": "erm",
            "scores": [1 - score[i], score[i]],
            **more,
        }
        for i in range(len(hour))
    ]


def alarms(reports: Sequence[WindowReport]) -> int:
    return sum(any(chart.verdict.rules for chart in report.charts) for report in reports)


def seasonal(**settings: Any) -> Rig:
    return Rig(task(**{**SEASON, **settings}))


def words(rig: Rig) -> list[str]:
    return [str(each) for each in rig.engine.view().series[0].seasons]


def test_the_season_begins_after_four_weeks_and_then_mondays_raise_no_alarm(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "blindsight")
    rig = seasonal()
    early = rig.feed(weeks(4))
    assert words(rig) == [WAITS]
    later = rig.feed(weeks(2, start=4, seed=1))
    assert words(rig) == ["limits by hour of the week (UTC)"]
    assert alarms(early) > 20  # the windows of the first Monday are the baseline
    assert alarms(later[1:]) <= 3
    [first, second] = [message for message in caplog.messages if "hour of the week" in message]
    assert first == f"t, erm, accuracy: {WAITS}."
    assert second == "t, erm, accuracy: limits by hour of the week (UTC)."
    monday, tuesday = (
        next(r for r in later[100:] if r.start_time >= START + (5 * 7 + day) * 86400) for day in (0, 1)
    )
    assert monday.charts[0].verdict.center == pytest.approx(0.75, abs=0.02)
    assert tuesday.charts[0].verdict.center == pytest.approx(0.85, abs=0.02)


def test_a_stream_with_too_few_windows_logs_the_reason_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "blindsight")
    sparse = [each for i, each in enumerate(weeks(10, monday=0)) if i // ROWS % 24 == 5]
    rig = seasonal()
    for at in range(0, len(sparse), 50):
        rig.feed(sparse[at : at + 50])
    few = "no limits by hour of the week yet: they need 100 hours with windows in the same hour of an earlier"
    lines = [message for message in caplog.messages if "hour of the week" in message]
    assert lines[0].startswith("t, erm, accuracy: no limits by hour of the week yet: they need four weeks ")
    assert lines[1:] == [f"t, erm, accuracy: {few} week."]
    assert words(rig) == [f"{few} week"]


def test_restarts_change_no_byte_where_labels_decide() -> None:
    records = labelled(0, 29, 0.85, monday=-0.1, seed=6)
    whole = lines(rig_with_labels().feed(records))
    start = 28 * 24 * LABELLED_ROWS
    cuts = [7, 9000, start, start + 21, start + 60, start + 100]
    assert lines(rig_with_labels().feed_in_pieces(records, cuts, restart=True)) == whole


def test_restarts_change_no_byte() -> None:
    records = weeks(4.5)
    whole = lines(seasonal().feed(records))
    for cuts in ([3, 3000, 6711, 6730], [6705, 6719, 6720, 6725, 7000]):
        assert lines(seasonal().feed_in_pieces(records, cuts, restart=True)) == whole


def test_states_of_older_versions_open() -> None:
    rig = seasonal()
    rig.feed(weeks(0.3))
    judge = rig.engine.series["t"][0].snapshot().judge
    old = unpack(pack(judge))
    old["seasons"]["accuracy"]["recent"] = [0.1]
    assert restored(old, JudgeState).seasons == judge.seasons
    del old["seasons"]
    assert restored(old, JudgeState).seasons == {}


def test_a_reference_of_four_weeks_gives_the_season_at_once() -> None:
    settings = task(**SEASON, reference={"path": "r.ndjson"}, calibration={"method": "none"})
    known = reference_of(settings, weeks(4, seed=3, label="bad"))
    rig = Rig(settings, {"t": known})
    assert alarms(rig.feed(weeks(2, start=9, seed=5))) <= 3
    assert words(rig) == ["limits by hour of the week (UTC)"]
    assert alarms(rig.feed(weeks(0.5, start=11, monday=-0.3, seed=6))) >= 20


def test_an_alarm_of_more_than_a_week_begins_the_four_weeks_again() -> None:
    rig = seasonal()
    rig.feed(weeks(1, monday=0))
    records = weeks(2, monday=0, start=1)
    for record in records:
        record["scores"] = [record["scores"][0] + 0.2, record["scores"][1] - 0.2]
    rig.feed(records)
    assert words(rig) == [
        "no limits by hour of the week yet: the four weeks begin with the next window in control"
    ]
    rig.feed(weeks(0.5, monday=0, start=3))
    [line] = words(rig)
    assert line.endswith("and begin on 2024-02-19")


def test_a_time_zone_moves_the_hours() -> None:
    offsets = []
    for zone in ("UTC", "Asia/Kolkata"):
        rig = seasonal(chart={**CHART, "time_zone": zone})
        rig.feed(weeks(4.2))
        season = rig.engine.series["t"][0].snapshot().judge.seasons["accuracy"].season
        offsets.append(season.offsets)
    # In India, the Monday of UTC begins at 05:30.
    assert offsets[0][23] < -0.05 < offsets[0][24]
    assert offsets[1][28] < -0.05 < offsets[1][4]


def test_a_rebaseline_drops_the_season() -> None:
    rig = seasonal()
    rig.feed(weeks(4.2))
    [series] = rig.engine.series["t"]
    series.rebaseline("accuracy", "another market", START)
    assert words(rig) == []
    rig.feed(weeks(0.5, start=6))
    [line] = words(rig)
    assert "begin on" in line


def test_an_alarm_names_the_group_that_changed() -> None:
    settings = task(
        **SEASON, groups=["region"], reference={"path": "r.ndjson"}, calibration={"method": "none"}
    )
    regions = ({"region": "eu"}, {"region": "us"})

    def mixed(records: list[Record], drop: float = 0.0) -> list[Record]:
        for i, record in enumerate(records):
            record["groups"] = regions[i % 2]
            record["scores"] = [record["scores"][0] + drop * (i % 2), record["scores"][1] - drop * (i % 2)]
        return records

    known = reference_of(settings, mixed(weeks(4, seed=3, label="bad")))
    rig = Rig(settings, {"t": known})
    reports = rig.feed(mixed(weeks(0.2, start=9, seed=5), drop=0.2))
    parts = [each.parts[0].part for report in reports if not report.group for each in report.attributions]
    assert len(parts) > 20
    assert parts.count("region=us") >= 0.9 * len(parts)


LABELLED_ROWS = 20
DAY = 86400


def labelled(first: float, last: float, accuracy: float, monday: float = 0.0, seed: int = 0) -> list[Record]:
    """Return labelled answers from one day to another, with lower confidences and accuracies on Mondays."""
    rng = np.random.default_rng(seed)
    records = []
    for i in range(int(first * 24) * LABELLED_ROWS, int(last * 24) * LABELLED_ROWS):
        hour = i // LABELLED_ROWS
        lower = monday * (hour % HOURS < 24)
        score = float(0.85 + lower + rng.normal(0, 0.03))
        time = START + hour * 3600 + i % LABELLED_ROWS * 150
        right = rng.random() < accuracy + lower
        records.append(
            {
                "id": str(i),
                "time": time,
                "model": "erm",
                "scores": [1 - score, score],
                "label": CLASSES[right],
            }
        )
    return records


def rig_with_labels(reference: bool = False, **chart: Any) -> Rig:
    more: dict[str, Any] = {"reference": {"path": "r.ndjson"}, "calibration": {"method": "none"}}
    settings = task(
        chart={**CHART, **chart}, window={"size": LABELLED_ROWS, "min_size": 5}, **(more if reference else {})
    )
    known = reference_of(settings, labelled(-7, 0, 0.85, seed=9)) if reference else None
    return Rig(settings, {"t": known} if known else None)


def judged(rig: Rig) -> JudgeState:
    state = rig.engine.series["t"][0].snapshot().judge
    assert state is not None
    return state


def test_an_alarm_by_labels_holds_the_season() -> None:
    rig = rig_with_labels()
    rig.feed(labelled(0, 26, 0.85, seed=1))
    bad = rig.feed(labelled(26, 29.5, 0.5, seed=2))
    on = [report.charts[0].verdict.out_of_control for report in bad]
    assert all(on[5:])
    assert judged(rig).seasons["accuracy"].season is None
    assert words(rig) == [
        "no limits by hour of the week yet: they begin when the alarm that labels hold has ended"
    ]
    good = rig.feed(labelled(29.5, 32, 0.85, seed=3))
    assert not good[-1].charts[0].verdict.out_of_control
    assert words(rig) == ["limits by hour of the week (UTC)"]
    bad = rig.feed(labelled(32, 33, 0.5, seed=4))
    assert bad[-1].charts[0].by_labels is not None
    assert bad[-1].charts[0].verdict.out_of_control


def test_an_alarm_by_labels_of_more_than_a_week_teaches_nothing() -> None:
    rig = rig_with_labels()
    rig.feed(labelled(0, 24.5, 0.85, seed=1))
    reports = rig.feed(labelled(24.5, 35, 0.6, seed=2))
    assert all(report.charts[0].verdict.out_of_control for report in reports[6:])
    state = judged(rig)
    assert state.by_labels is not None
    assert state.by_labels.baseline is not None
    assert state.by_labels.baseline.center > 0.8
    assert state.seasons["accuracy"].points == state.seasons["accuracy"].labelled == []


def test_the_labels_of_the_four_weeks_judge_from_the_first_window_of_the_season() -> None:
    rig = rig_with_labels()
    rig.feed(labelled(0, 28, 0.85, monday=-0.2, seed=1))
    before = judged(rig).by_labels
    reports = rig.feed(labelled(28, 29, 0.85, monday=-0.2, seed=2))
    after = judged(rig).by_labels
    assert before is not None
    assert after is not None
    assert before.baseline is not None
    assert after.baseline is not None
    assert before.baseline.center < 0.75  # of windows of the first Monday
    rows = 24 * 28 * LABELLED_ROWS
    # The mean over the week, without the season.
    assert after.baseline.center == pytest.approx(0.85 - 0.2 / 7, abs=4 * (0.13 / rows) ** 0.5)
    first = reports[1:]  # the season begins after the window in progress at midnight
    assert all(report.charts[0].by_labels is not None for report in first)
    # The Sunday's windows among the newest five have the offset of their own hours.
    for report in first[:8]:
        assert not report.charts[0].verdict.improved
        assert not report.charts[0].verdict.out_of_control


def test_the_labels_of_a_reference_stay_the_baseline() -> None:
    rig = rig_with_labels(reference=True)
    rig.feed(labelled(0, 27, 0.85, seed=1))
    before = judged(rig).by_labels
    rig.feed(labelled(27, 28.5, 0.85, seed=2))
    assert words(rig) == ["limits by hour of the week (UTC)"]
    after = judged(rig).by_labels
    assert before is not None
    assert after is not None
    assert before.from_reference
    assert after.baseline == before.baseline
    assert judged(rig).seasons["accuracy"].season is not None
    assert judged(rig).seasons["accuracy"].labelled == []


def moved(records: list[Record], days: int) -> list[Record]:
    return [{**each, "id": f"{days}-{each['id']}", "time": each["time"] + days * DAY} for each in records]


def test_a_wrong_time_of_one_window_leaves_the_four_weeks() -> None:
    records = weeks(4.2)
    cut = 60 * ROWS
    for days in (4000, -400, 40, -40):
        rig = seasonal()
        rig.feed(records[:cut])
        rig.feed(moved(records[cut : cut + ROWS], days))
        rig.feed(records[cut : 26 * 24 * ROWS])
        assert words(rig) == [WAITS], days
        rig.feed(records[26 * 24 * ROWS :])
        assert words(rig) == ["limits by hour of the week (UTC)"], days


def test_a_wrong_time_of_the_first_window_leaves_the_four_weeks() -> None:
    records = weeks(4.2)
    for days in (4000, -400):
        rig = seasonal()
        rig.feed(moved(records[:ROWS], days))
        rig.feed(records)
        assert words(rig) == ["limits by hour of the week (UTC)"], days


def test_a_pause_stands_for_no_week() -> None:
    rig = seasonal()
    rig.feed(weeks(12 / 7))
    rig.feed(weeks(3.8, start=7, seed=1))
    [line] = words(rig)
    assert line.endswith("begin on 2024-03-18")  # four weeks after the pause
    rig.feed(weeks(0.4, start=11, seed=2))
    assert words(rig) == ["limits by hour of the week (UTC)"]


def test_a_stream_without_weekends_has_four_weeks_too() -> None:
    rig = seasonal()
    every = weeks(4.2)
    workdays = [each for each in every if (each["time"] - START) // DAY % 7 < 5]
    split = 26 * DAY + START
    rig.feed([each for each in workdays if each["time"] < split])
    assert words(rig) == [WAITS]
    rig.feed([each for each in workdays if each["time"] >= split])
    assert words(rig) == ["limits by hour of the week (UTC)"]


def test_times_at_the_end_of_the_calendar_count_as_the_last_day() -> None:
    for zone in ("UTC", "Asia/Kolkata", "America/Los_Angeles"):
        rig = seasonal(chart={**CHART, "time_zone": zone})
        rig.feed([{**each, "time": "9999-12-31T23:00:00Z"} for each in weeks(0.3)])
        [line] = words(rig)
        assert line.endswith("begin on 9999-12-31")


def test_days_with_windows_make_four_weeks() -> None:
    for hours, expected in (
        ([], (0, 28)),
        (range(24), (1, 28)),
        (range(28 * 24), (28, 28)),
        ([*range(12 * 24), *range(49 * 24, 50 * 24)], (13, 28)),
        ([day * 24 for day in range(28) if day % 7 < 5], (20, 20)),
        ([day * 24 for day in (0, 7, 14, 21)], (4, 4)),
    ):
        assert count_days(hours) == expected

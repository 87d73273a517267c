"""Seasons in the engine: their start, what they judge, and the same bytes after a restart."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from monitor.base.codec import pack, restored, unpack
from monitor.engine.judge import JudgeState
from monitor.reports.window_report import WindowReport
from monitor.stats.charts.season import HOURS
from tests.streams import Record, Rig, lines, reference_of, task

pytestmark = pytest.mark.slow

START = 1_704_067_200  # Monday, 1 January 2024, 00:00 UTC
ROWS = 10
WEEK = HOURS * ROWS
CHART = {"season": "hour_of_week", "arl0": 370, "min_change": 0}
SEASON: dict[str, Any] = {"chart": CHART, "window": {"size": ROWS, "min_size": 5}}
WAITS = (
    "no limits by hour of the week yet: they need four weeks of windows in control, and begin on 2024-01-29"
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

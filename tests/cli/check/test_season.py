"""Sentences of `check` about limits by hour of the week."""

from __future__ import annotations

import re
from datetime import date

import pytest

from monitor.cli.check.season import season_sentences
from tests.engine.test_season import SEASON, weeks
from tests.streams import reference_of, task

TODAY = date(2026, 11, 28)
BEGIN = (
    "limits by hour of the week begin after four weeks of windows in control, on 2026-12-26 at the earliest; "
    "until then all hours have the same limits"
)
FILE = {"reference": {"path": "r.ndjson"}, "calibration": {"method": "none"}}


def sentences(chart: dict[str, object], count: float = 0, monday: float = -0.1) -> list[str]:
    settings = task(**{**SEASON, "chart": chart}, **(FILE if count else {}))
    known = {"t": reference_of(settings, weeks(count, monday, label="bad"))} if count else {}
    return list(season_sentences({"t": settings}, known, TODAY))


def test_the_date_when_they_begin() -> None:
    on: dict[str, object] = {"season": "hour_of_week"}
    assert sentences(on) == [f"tasks.t.chart.season: there is no reference file, so {BEGIN}"]
    assert sentences(on, 1) == [
        f"tasks.t.chart.season, model erm: the reference covers 7 of 28 days, so {BEGIN}"
    ]
    assert sentences({}) == sentences({}, 1) == []


@pytest.mark.slow
def test_a_season_is_proposed_where_the_reference_shows_one() -> None:
    assert sentences({"season": "hour_of_week"}, 4) == []
    assert sentences({}, 4, monday=0) == []
    [sentence] = sentences({"min_change": 0}, 4)
    numbers = re.fullmatch(
        r"tasks\.t\.chart\.season, model erm: accuracy differs between the hours of the week, by 3\.\d "
        r"points on average \(p = [\de-]+\)\. With chart: \{season: hour_of_week\}, the 672 hours of the "
        r"reference raise (\d+) instead of (\d+) false alarms, and limits are (\d+)% narrower",
        sentence,
    )
    assert numbers is not None, sentence
    after, before, narrower = map(int, numbers.groups())
    assert after <= 5
    assert after < before or narrower > 30

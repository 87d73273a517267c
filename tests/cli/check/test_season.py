"""Sentences of `check` about limits by hour of the week."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path

import pytest

from monitor.cli.check.season import season_sentences
from monitor.cli.trial import read_references
from monitor.config.file import config_from
from tests.daemon import ndjson
from tests.engine.test_season import ROWS, SEASON, weeks
from tests.streams import CLASSES, reference_of, task

TODAY = date(2026, 11, 28)
BEGIN = (
    "limits by hour of the week begin after four weeks of windows in control, on 2026-12-26 at the earliest; "
    "until then all hours have the same limits"
)
FILE = {"reference": {"path": "r.ndjson"}, "calibration": {"method": "none"}}


def sentences(chart: dict[str, object], count: float = 0, monday: float = -0.1, every: int = 1) -> list[str]:
    """Return the sentences on a reference of some weeks, with a window in each hour or in each n-th."""
    settings = task(**{**SEASON, "chart": chart}, **(FILE if count else {}))
    answers = [each for i, each in enumerate(weeks(count, monday, label="bad")) if i // ROWS % every == 0]
    known = {"t": reference_of(settings, answers)} if count else {}
    return list(season_sentences({"t": settings}, known, TODAY))


def test_the_date_when_they_begin() -> None:
    on: dict[str, object] = {"season": "hour_of_week"}
    assert sentences(on) == [f"tasks.t.chart.season: there is no reference file, so {BEGIN}"]
    assert sentences(on, 1) == [
        f"tasks.t.chart.season, model erm: the reference has windows on 7 of 28 days, so {BEGIN}"
    ]
    assert sentences({}) == sentences({}, 1) == []


def test_a_reference_without_times_is_reported(tmp_path: Path) -> None:
    rows = [{key: each[key] for key in each if key != "time"} for each in weeks(1, label="bad", task="t")]
    (tmp_path / "r.ndjson").write_bytes(ndjson(rows))
    section = {**SEASON, "reference": {"path": str(tmp_path / "r.ndjson")}, "calibration": {"method": "none"}}
    config = config_from({"tasks": {"t": {"classes": list(CLASSES), **section}}})
    assert list(season_sentences(config.scored_tasks, read_references(config), TODAY)) == [
        f"tasks.t.chart.season, model erm: the rows of the reference have no time, so {BEGIN}. Add `time` to "
        "them"
    ]


@pytest.mark.slow
def test_a_season_is_proposed_where_the_reference_shows_one() -> None:
    assert sentences({"season": "hour_of_week"}, 4) == []
    assert sentences({}, 4, monday=0) == []
    [sentence] = sentences({"min_change": 0}, 4)
    numbers = re.fullmatch(
        r"tasks\.t\.chart\.season, model erm: accuracy differs between the hours of the week, by 3\.\d "
        r"points on average \(p < 1e-16\)\. With chart: \{season: hour_of_week\}, the 672 hours of the "
        r"reference raise (\d+) instead of (\d+) false alarms, and limits are (\d+)% narrower",
        sentence,
    )
    assert numbers is not None, sentence
    after, before, narrower = map(int, numbers.groups())
    assert after <= 5
    assert after < before or narrower > 30


@pytest.mark.slow
def test_a_reference_whose_hours_do_not_repeat_is_reported() -> None:
    assert sentences({"season": "hour_of_week"}, 5, every=5) == [
        "tasks.t.chart.season, model erm: in the reference, 0 hours with windows repeat an hour of an "
        f"earlier week, and 100 are needed, so {BEGIN}. If the stream is as slow, they begin later or "
        "never: set a smaller window.size"
    ]


@pytest.mark.slow
def test_a_season_is_proposed_with_a_gain_alone() -> None:
    [sentence] = sentences({"arl0": 1_000_000}, 4.1)
    assert re.search(r"raise 0 instead of 0 false alarms, and limits are \d\d% narrower$", sentence)
    # These limits come from the quantiles of the windows, which the season does not narrow.
    assert sentences({"kind": "shewhart_np"}, 5) == []


@pytest.mark.slow
def test_a_p_value_is_written_in_full_unless_it_is_tiny() -> None:
    [sentence] = sentences({"min_change": 0}, 4, monday=-0.01)
    p_value = re.search(r"\(p = (\de-\d\d)\)", sentence)
    assert p_value is not None, sentence
    assert 1e-16 <= float(p_value[1]) < 0.01

"""The demo's incident: the chart names one airport's feature in another unit before any label."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from monitor.cli.demo.flights import Flights
from monitor.cli.demo.incident import (
    IncidentStory,
    alarm_sentence,
    first_label,
    incident_stories,
    incident_time,
)
from monitor.cli.demo.stream import DemoData, prepare_incident
from monitor.cli.demo.training import INCIDENT, Scored
from monitor.cli.replay import replay
from monitor.reports.reader import from_json

pytestmark = pytest.mark.simulation
DAY = 86_400


@pytest.fixture(scope="module")
def weeks(winter_and_some: Flights, scored: Scored, tmp_path_factory: pytest.TempPathFactory) -> DemoData:
    """Prepare the incident with models that are trained on all flights of the winter."""
    incident = prepare_incident(tmp_path_factory.mktemp("demo"), winter_and_some, scored, seed=0)
    assert incident is not None
    return incident


@pytest.fixture(scope="module")
def stories(weeks: DemoData, tmp_path_factory: pytest.TempPathFactory) -> dict[str, IncidentStory]:
    out: Path = tmp_path_factory.mktemp("demo") / "out"
    replay(str(weeks.config), [weeks.stream], out, lambda path, size: None)
    lines = (out / "windows.ndjson").read_bytes().splitlines()
    return {each.model: each for each in incident_stories(weeks, [from_json(line) for line in lines])}


def test_only_the_airports_flights_of_those_days_are_scored_otherwise(
    winter_and_some: Flights, scored: Scored
) -> None:
    hit = INCIDENT.hits(winter_and_some)[scored.stream_rows]
    dates = winter_and_some.date[scored.stream_rows][hit]
    assert (dates.min(), dates.max()) == (20130903, 20130909)
    np.testing.assert_array_equal(scored.incident_scores[~hit], scored.stream_scores[~hit])
    assert (scored.incident_scores[hit, 0] != scored.stream_scores[hit, 0]).all(), "logistic uses the hour"


def test_labels_of_a_day_come_together_on_the_second_day_after_it(weeks: DemoData) -> None:
    assert (weeks.reported[weeks.labelled] % DAY == 6 * 3600).all()
    wait = (weeks.reported - weeks.time)[weeks.labelled]
    assert 30 * 3600 < wait.min() < wait.max() < 3 * DAY, "within the horizon"
    first, _ = incident_time()
    assert first + 2 * DAY < first_label(weeks) < first + 3 * DAY


def test_the_alarm_comes_within_a_day_and_names_the_airport_before_the_first_label(
    weeks: DemoData, stories: dict[str, IncidentStory]
) -> None:
    first, repaired = incident_time()
    story = stories["logistic"]
    assert story.alarm is not None
    assert first < story.alarm.time < first + DAY
    assert story.alarm.time + 12 * 3600 < first_label(weeks)
    assert story.where.startswith("−")
    assert (
        f"points: {story.where.split('points: ')[1][:3]} from origin={INCIDENT.origin} (conf" in story.where
    )
    assert story.alarm.ended_time is not None
    assert repaired < story.alarm.ended_time < repaired + 5 * DAY
    hours = (first_label(weeks) - story.alarm.time) / 3600
    text = alarm_sentence(weeks, story)
    assert f"The first label came {hours:.0f} hours later; in control again from 1" in text


def test_estimates_fall_where_the_accuracy_does_and_labels_confirm_it(
    stories: dict[str, IncidentStory],
) -> None:
    story = stories["logistic"]
    assert story.estimated[1] < story.estimated[0] - 0.15
    assert story.turned_out[1] < story.turned_out[0] - 0.15
    share, rows = story.labelled
    assert rows > 200
    assert share == pytest.approx(story.turned_out[1], abs=3 * (0.25 / rows) ** 0.5)
    for model in ("boosting", "forest"):
        assert stories[model].alarm is None
        assert abs(stories[model].estimated[1] - stories[model].estimated[0]) < 0.04

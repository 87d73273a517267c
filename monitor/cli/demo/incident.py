"""The demo's incident: one airport sends a feature in another unit, and a model uses the wrong values.

The model predicts whether an aircraft with more than 100 seats will operate a flight. It is a random forest,
trained on March to May 2013. Only the feature is faulty: the scores are the model's real scores for the wrong
values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from monitor.base.errors import SinkError
from monitor.base.records import Floats, Ints
from monitor.cli.demo.flights import Flights, import_extra, read_flights
from monitor.cli.demo.stream import claim, stamps, write_lines

TASK = "aircraft"
MODEL = "forest"
ORIGIN = "JFK"
FEATURE = "duration"
LARGE_SEATS = 100
WINDOW_SIZE = 400
TRAINED, REFERENCE, STREAM = (20130301, 20130603), (20130603, 20130708), (20130708, 20130806)
"""The first scheduled local date of each part of the data, and the date after its last date."""
BROKEN, REPAIRED = 20130716, 20130722
"""The first date with the fault, a Tuesday, and the first date without it, a Monday."""

_CLASSES = ("small", "large")
_NUMBERS = ("hour", "distance", "duration")
_SCORE_DECIMALS = 6
_DAY = 86_400
_NEW_YORK = 4 * 3600  # the seconds by which New York's summer time is behind UTC
_LABEL_HOUR = 6 * 3600
_TREES, _LEAST_IN_LEAF = 40, 100
_TRAINED_EVERY = 3
_BLOCK_RECORDS = 1024

_CONFIG = f"""\
# Written by `blindsight demo`: four weeks of flights, calibrated on the five weeks before. From 16 to 21
# July 2013 JFK sends the duration of its flights in hours. Labels come two days after the flights.
tasks:
  {TASK}:
    classes: [{", ".join(_CLASSES)}]
    window: {{size: {WINDOW_SIZE}, min_size: {WINDOW_SIZE // 2}, max_age_seconds: {2 * _DAY}}}   # half a day
    reference: {{path: reference.ndjson}}
    calibration: {{method: isotonic, refit_labels: null}}
    metrics: [accuracy]
    features: {{hour: number, distance: number, duration: number}}
    groups: [origin]
    labels: {{horizon_days: 4}}
sources:
  - {{kind: file, path: flights.ndjson}}
reports: {{path: windows.ndjson}}
export: {{listen: "127.0.0.1:0"}}
"""


@dataclass(frozen=True, slots=True)
class Incident:
    """The files that `prepare_incident` wrote, and the correctness of the answers.

    Parameters
    ----------
    config, stream, reports : Path
        The paths of the configuration, of the stream of answers and later labels, and of the agent's reports.
    right : (n,) bool
        True for the right answers, in the order of the stream.
    time, labelled : (n,) float64
        Times of the flights and of their labels, in seconds since the epoch.
    wrong_feature : (n,) bool
        True for the flights whose feature was in the wrong unit.
    """

    config: Path
    stream: Path
    reports: Path
    right: NDArray[np.bool_]
    time: Floats
    labelled: Floats
    wrong_feature: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.right)


def moment_of(date: int) -> float:
    """Return the beginning of a summer day in New York, in seconds since the epoch.

    Examples
    --------
    >>> moment_of(20130903)
    1378180800.0
    """
    return datetime.strptime(str(date), "%Y%m%d").replace(tzinfo=UTC).timestamp() + _NEW_YORK


def prepare_incident(
    folder: Path,
    seed: int = 0,
    progress: Callable[[str], None] = lambda step: None,
    flights: Flights | None = None,
) -> Incident:
    """Read the flights, train the model, compute its answers, and write the folder of the incident.

    The same flights, seed and package versions write the same bytes.

    Parameters
    ----------
    folder : Path
        The folder, which is created if absent. An existing folder must be empty or hold an earlier demo,
        which is replaced.
    seed : int
        Seed of the forest.
    progress : callable, optional
        A function that is called with a few words at the start of each step.
    flights : Flights, optional
        The departures, by default read from the installed package.

    Raises
    ------
    MissingExtraError
        The extra `demo` is not installed.
    SinkError
        The folder cannot be written, or has files that no demo wrote.
    """
    paths = claim(folder)
    progress("reading the flights of 2013")
    flights = read_flights() if flights is None else flights
    progress("training the model on March to May")
    large = flights.seats > LARGE_SEATS
    features, stream = _features(flights), _rows(flights, *STREAM)
    model = _train(features, large, _rows(flights, *TRAINED)[::_TRAINED_EVERY], seed)
    scores = _scores(model, features[stream])
    incident = Incident(
        paths["config"],
        paths["stream"],
        paths["reports"],
        (scores > 0.5) == large[stream],
        flights.departed[stream],
        (flights.departed[stream] // _DAY + 2) * _DAY + _LABEL_HOUR,
        _wrong(flights)[stream],
    )
    progress("writing the reference and the stream")
    reference = _rows(flights, *REFERENCE)
    known = _answers(flights, reference, features, _scores(model, features[reference]))
    answers = _answers(flights, stream, features, scores)
    try:
        np.savez(paths["truth"], time=incident.time, right=incident.right, scores=scores)
        labelled = [a | {"label": label} for a, label in zip(known, _labels(large[reference]), strict=True)]
        write_lines(paths["reference"], iter([labelled]))
        write_lines(paths["stream"], _in_order(answers, _labels(large[stream]), incident))
        paths["config"].write_text(_CONFIG, encoding="utf-8")
    except OSError as error:
        raise SinkError(
            f"{folder}: cannot be written: {error.strerror}; choose another folder or make room"
        ) from error
    return incident


def _rows(flights: Flights, first: int, end: int) -> Ints:
    """Return the flights of these dates whose aircraft is known."""
    return np.flatnonzero((flights.date >= first) & (flights.date < end) & np.isfinite(flights.seats))


def _wrong(flights: Flights) -> NDArray[np.bool_]:
    """Return whether each flight's feature is in the wrong unit, (n,)."""
    in_time = (flights.date >= BROKEN) & (flights.date < REPAIRED)
    wrong: NDArray[np.bool_] = in_time & (flights.origin == flights.origins.index(ORIGIN))
    return wrong


def _features(flights: Flights) -> Floats:
    """Return the inputs of the model, (n, 6): hour, miles, minutes, and 1 in the column of the airport.

    The wrong values of the incident's feature are in hours.
    """
    duration = np.where(_wrong(flights), np.round(flights.duration / 60, 2), flights.duration)
    airports = flights.origin[:, None] == np.arange(len(flights.origins))
    return np.column_stack([flights.hour, flights.distance, duration, airports])


def _train(features: Floats, large: NDArray[np.bool_], rows: Ints, seed: int) -> Any:
    forest = import_extra("sklearn.ensemble").RandomForestClassifier(
        n_estimators=_TREES, min_samples_leaf=_LEAST_IN_LEAF, n_jobs=1, random_state=seed
    )
    return forest.fit(features[rows], large[rows])


def _scores(model: Any, features: Floats) -> Floats:
    """Return the model's probability that the aircraft is large, rounded as in the records."""
    scores: Floats = np.round(model.predict_proba(features)[:, 1], _SCORE_DECIMALS)
    return scores


def _labels(large: NDArray[np.bool_]) -> list[str]:
    return [_CLASSES[int(one)] for one in large.tolist()]


def _answers(flights: Flights, rows: Ints, features: Floats, scores: Floats) -> list[dict[str, Any]]:
    pairs = np.stack([np.round(1 - scores, _SCORE_DECIMALS), scores], axis=-1).tolist()
    return [
        {
            "id": one,
            "time": stamp,
            "task": TASK,
            "model": MODEL,
            "scores": pair,
            "groups": {"origin": flights.origins[origin]},
            "features": dict(zip(_NUMBERS, values, strict=True)),
        }
        for one, stamp, pair, origin, values in zip(
            flights.ids(rows),
            stamps(flights.departed[rows]),
            pairs,
            flights.origin[rows].tolist(),
            features[rows, : len(_NUMBERS)].tolist(),
            strict=True,
        )
    ]


def _in_order(
    answers: list[dict[str, Any]], truth: list[str], incident: Incident
) -> Iterator[list[dict[str, Any]]]:
    """Yield the answers and their labels in order of time."""
    labels = [
        {"id": answer["id"], "time": stamp, "task": TASK, "label": label}
        for answer, stamp, label in zip(answers, stamps(incident.labelled), truth, strict=True)
    ]
    records = [*answers, *labels]
    order = np.argsort(np.concatenate([incident.time, incident.labelled]), kind="stable").tolist()
    for start in range(0, len(order), _BLOCK_RECORDS):
        yield [records[row] for row in order[start : start + _BLOCK_RECORDS]]

"""The writer of the folder for `demo --full`: reference, stream, configuration and true labels.

All files are written before the agent starts, so that the agent reads them by the same code as any other
files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from monitor.base.errors import SinkError
from monitor.base.records import Floats, Ints
from monitor.cli.demo.flights import Flights, read_flights
from monitor.cli.demo.training import CLASSES, Scored, train_and_score

TASK = "delay"
METRICS = ("accuracy", "ece")
WINDOW_SIZE = 500

LABELLED_SHARE = 0.2
LABEL_LAG_SECONDS = 3 * 3600
"""The time between a flight's arrival and its label."""

_FLOOR_SLACK = 0.02  # a plausible objective: two points below the accuracy at the start
_SCORE_DECIMALS = 6
_BLOCK_RECORDS = 1024  # records held as objects; with 16,384 the garbage collector takes half of the time
_MARK = "truth.npz"  # the file that marks a folder of an earlier demo

_YEAR = """\
# Written by `blindsight demo`: flights that left New York City in 2013, four models of "arrives more than
# 15 minutes late". The reference is every third day of January to March, the stream April to December.
"""
_CONFIG = """\
tasks:
  {task}:
    classes: [{classes}]
    positive: {positive}
    window: {{size: {size}, min_size: 50, max_age_seconds: 172800}}   # 500 departures take about 14 hours
    reference: {{path: {reference}}}
    calibration: {{method: isotonic, refit_labels: 500}}
    metrics: [{metrics}]
    estimators: [average_confidence, realised]
    level: 0.95
    chart: {{estimator: average_confidence, kind: shewhart, arl0: 370, rules: [we1]}}
    objective: {{accuracy: {{min: {floor}}}, windows: 5}}   # two points below the middle model's start
    labels: {{horizon_days: 3}}
    groups: []                   # `origin` takes each airport's flights as windows of their own, too
sources:
  - {{kind: file, path: {stream}}}
reports: {{path: {reports}}}
export: {{listen: "127.0.0.1:0"}}
"""


@dataclass(frozen=True, slots=True)
class DemoData:
    """The paths of the files that `prepare` wrote, and all true labels. The agent gets only a part of them.

    Parameters
    ----------
    config, reference, stream, reports, truth : Path
        The paths of the configuration, the labelled reference, the stream, the agent's reports, and the file
        `truth.npz` with the arrays below.
    models : tuple of str
        The names of the models in the order of the columns of `scores`.
    classes : tuple of str
        The classes in the order of a record's scores: `on_time`, `late`.
    trained_on, reference_flights : int
        The number of flights on which the models were trained, and the number of flights that were held out.
    reference_accuracy : (M,) float64
        Each model's accuracy on the held-out days.
    reference_scores : (r, M) float64
        Probability of `late` on the held-out days, rounded as in the reference, in order of departure.
    reference_late : (r,) int64
        1 late, 0 not.
    floor : float
        The objective's accuracy: the median of the models' accuracies on the reference minus two percentage
        points, rounded to a whole percent.
    id : (n,) bytes
        The ids of the streamed flights in the order of the stream. Every model predicts each flight, so
        window k of each model has the rows 500·k to 500·k + 499.
    time : (n,) float64
        Time at which the flight left the gate, in seconds since the epoch.
    late : (n,) int64
        1 late, 0 not, -1 never known (diverted).
    scores : (n, M) float64
        Probability of `late`, rounded as in the stream.
    origin : (n,) int64
        Index into `origins`.
    origins : tuple of str
    labelled : (n,) bool
        Whether the flight's label is in the stream.
    reported : (n,) float64
        Time of the flight's label, in seconds since the epoch.
    """

    config: Path
    reference: Path
    stream: Path
    reports: Path
    truth: Path
    models: tuple[str, ...]
    classes: tuple[str, ...]
    trained_on: int
    reference_flights: int
    reference_accuracy: Floats
    reference_scores: Floats
    reference_late: Ints
    floor: float
    id: Any
    time: Floats
    late: Ints
    scores: Floats
    origin: Ints
    origins: tuple[str, ...]
    labelled: Any
    reported: Floats

    def __len__(self) -> int:
        return len(self.time)


def prepare(
    folder: Path,
    seed: int = 0,
    progress: Callable[[str], None] = lambda step: None,
    flights: Flights | None = None,
) -> DemoData:
    """Read the flights, train the models, and write the demo's folder. Takes about eight seconds.

    The same flights, seed and package versions write the same bytes.

    Parameters
    ----------
    folder : Path
        The folder, which is created if absent. An existing folder must be empty or hold an earlier demo,
        which is replaced.
    seed : int
        Seed of the models and of the choice of labelled flights.
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
    progress("training the models on January to March")
    scored = train_and_score(flights, seed)
    landed = flights.landed[scored.stream_rows]
    data = _assemble(flights, scored, paths, seed, landed + LABEL_LAG_SECONDS)
    progress("writing the reference and the stream")
    try:
        _write_all(data, flights, scored)
    except OSError as error:
        raise SinkError(
            f"{folder}: cannot be written: {error.strerror}; choose another folder or make room"
        ) from error
    return data


def claim(folder: Path) -> dict[str, Path]:
    """Create the folder, or reuse the folder of an earlier demo, and return the paths of the demo's files.

    Other files are never changed. The keys of the result are `config`, `reference`, `stream`, `reports` and
    `truth`.

    Raises
    ------
    SinkError
        The folder cannot be written, or has files that no demo wrote.
    """
    names = {
        "config": "config.yaml",
        "reference": "reference.ndjson",
        "stream": "flights.ndjson",
        "reports": "windows.ndjson",
        "truth": _MARK,
    }
    try:
        folder = folder.resolve()
        folder.mkdir(parents=True, exist_ok=True)
        paths = {role: folder / name for role, name in names.items()}
        if any(folder.iterdir()) and not paths["truth"].exists():
            raise SinkError(f"{folder}: is not empty and holds no earlier demo; choose an empty folder")
        paths["truth"].touch()
        paths["reports"].unlink(missing_ok=True)  # reports are appended to
    except OSError as error:
        raise SinkError(
            f"{folder}: cannot be made or written: {error.strerror}; choose another folder"
        ) from error
    return paths


def _assemble(
    flights: Flights, scored: Scored, paths: dict[str, Path], seed: int, reported: Floats
) -> DemoData:
    rows = scored.stream_rows
    late = flights.late[rows]
    right = (scored.reference_scores > 0.5) == (flights.late[scored.reference_rows] == 1)[:, None]
    accuracy = right.mean(axis=0)
    picked = np.random.default_rng(seed).random(len(rows)) < LABELLED_SHARE
    return DemoData(
        config=paths["config"],
        reference=paths["reference"],
        stream=paths["stream"],
        reports=paths["reports"],
        truth=paths["truth"],
        models=scored.models,
        classes=CLASSES,
        trained_on=scored.trained_on,
        reference_flights=len(scored.reference_rows),
        reference_accuracy=accuracy,
        reference_scores=np.round(scored.reference_scores, _SCORE_DECIMALS),
        reference_late=flights.late[scored.reference_rows],
        floor=round(float(np.median(accuracy)) - _FLOOR_SLACK, 2),
        id=np.array(flights.ids(rows), dtype=np.bytes_),
        time=flights.departed[rows],
        late=late,
        scores=np.round(scored.stream_scores, _SCORE_DECIMALS),
        origin=flights.origin[rows],
        origins=flights.origins,
        labelled=picked & (late >= 0),
        reported=reported,
    )


def _write_all(data: DemoData, flights: Flights, scored: Scored) -> None:
    np.savez(
        data.truth, id=data.id, time=data.time, late=data.late, scores=data.scores, origin=data.origin,
        origins=data.origins, models=data.models, labelled=data.labelled,
    )  # fmt: skip
    write_lines(data.reference, _reference_records(flights, scored))
    write_lines(data.stream, _stream_records(data))
    data.config.write_text(_YEAR + _config(data), encoding="utf-8")


def _config(data: DemoData) -> str:
    """Return the configuration. Its paths are bare file names, so that the folder can be moved."""
    return _CONFIG.format(
        task=TASK,
        classes=", ".join(data.classes),
        positive=data.classes[-1],
        size=WINDOW_SIZE,
        metrics=", ".join(METRICS),
        floor=data.floor,
        reference=data.reference.name,
        stream=data.stream.name,
        reports=data.reports.name,
    )


def _reference_records(flights: Flights, scored: Scored) -> Iterator[list[dict[str, Any]]]:
    rows = scored.reference_rows
    for start in range(0, len(rows), _BLOCK_RECORDS):
        block = rows[start : start + _BLOCK_RECORDS]
        records = _predictions(
            flights.ids(block),
            flights.departed[block],
            np.round(scored.reference_scores[start : start + _BLOCK_RECORDS], _SCORE_DECIMALS),
            [flights.origins[code] for code in flights.origin[block]],
            scored.models,
        )
        for record, late in zip(records, flights.late[block].tolist(), strict=True):
            record["label"] = CLASSES[late]
        yield records


def _stream_records(data: DemoData) -> Iterator[list[dict[str, Any]]]:
    """Yield predictions and labels in order of time; within a second, predictions come first."""
    answered = np.flatnonzero(data.labelled)
    reported = data.reported[answered]
    order = np.argsort(np.concatenate([data.time, reported]), kind="stable")
    for start in range(0, len(order), _BLOCK_RECORDS):
        block = order[start : start + _BLOCK_RECORDS]
        is_label = block >= len(data)
        predicted_rows, label_rows = block[~is_label], block[is_label] - len(data)
        origins = [data.origins[code] for code in data.origin[predicted_rows]]
        predictions = iter(
            _predictions(
                _text(data.id[predicted_rows]),
                data.time[predicted_rows],
                data.scores[predicted_rows],
                origins,
                data.models,
            )
        )
        labels = iter(
            _labels(
                _text(data.id[answered[label_rows]]), reported[label_rows], data.late[answered[label_rows]]
            )
        )
        yield [next(labels if one else predictions) for one in is_label.tolist()]


def _predictions(
    ids: list[str], time: Floats, scores: Floats, origins: list[str], models: tuple[str, ...]
) -> list[dict[str, Any]]:
    pairs = np.stack([np.round(1 - scores, _SCORE_DECIMALS), scores], axis=-1).tolist()
    return [
        {
            "id": one,
            "time": stamp,
            "task": TASK,
            "models": dict(zip(models, answers, strict=True)),
            "groups": {"origin": origin},
        }
        for one, stamp, answers, origin in zip(ids, stamps(time), pairs, origins, strict=True)
    ]


def _labels(ids: list[str], time: Floats, late: Ints) -> list[dict[str, Any]]:
    return [
        {"id": one, "time": stamp, "task": TASK, "label": CLASSES[true]}
        for one, stamp, true in zip(ids, stamps(time), late.tolist(), strict=True)
    ]


def _text(ids: Any) -> list[str]:
    texts: list[str] = ids.astype(np.str_).tolist()
    return texts


def stamps(time: Floats) -> list[str]:
    """Return times as RFC 3339 in UTC, to the second. The data are accurate to the minute."""
    texts: list[str] = np.datetime_as_string(time.astype("datetime64[s]"), timezone="UTC").tolist()
    return texts


def write_lines(path: Path, blocks: Iterator[list[dict[str, Any]]]) -> None:
    """Write records to a file, one JSON object on each line."""
    encoder = msgspec.json.Encoder()
    with path.open("wb") as file:
        for records in blocks:
            file.write(encoder.encode_lines(records))

"""The demo's folder: what the agent will read is what the models said and what became of the flights."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import msgspec
import numpy as np
import pytest

from connectors.formats.decode.decoder import Decoder
from connectors.formats.files.reference import read_reference
from monitor.base.errors import SinkError
from monitor.base.records import Chunk, TaskLayout, id_keys
from monitor.base.source import RawBlock
from monitor.cli.demo.flights import Flights
from monitor.cli.demo.stream import LABELLED_SHARE, WINDOW_SIZE, DemoData, prepare
from monitor.cli.demo.training import MODELS, split
from monitor.config.file import load_config

LAYOUT = TaskLayout("delay", ("on_time", "late"), groups=("origin",))


def lines(path: Path) -> list[dict[str, object]]:
    records: list[dict[str, object]] = msgspec.json.Decoder().decode_lines(path.read_bytes())
    return records


def decoded(path: Path) -> Chunk:
    return Decoder([LAYOUT], "file").decode([RawBlock(path.read_bytes(), path.name, 0)])


def seconds(record: dict[str, object]) -> float:
    return datetime.fromisoformat(str(record["time"])).timestamp()


@pytest.fixture(scope="module")
def stream(data: DemoData) -> list[dict[str, object]]:
    return lines(data.stream)


@pytest.mark.slow
def test_every_flight_is_predicted_once_by_every_model(
    data: DemoData, stream: list[dict[str, object]]
) -> None:
    predictions = [record for record in stream if "models" in record]
    assert [str(record["id"]).encode() for record in predictions] == data.id.tolist()
    assert len(set(data.id.tolist())) == len(data)
    assert all(tuple(record["models"]) == MODELS for record in predictions)  # type: ignore[arg-type]
    assert "label" not in set().union(*predictions)


def test_the_agents_own_decoder_rejects_nothing(data: DemoData) -> None:
    chunk = decoded(data.stream)
    assert chunk.rejects == ()
    assert chunk.answers == len(data) * len(MODELS)
    assert chunk.labels_received == data.labelled.sum()
    batch = chunk.batches[0]
    assert batch.scores[:, 1].tolist() == data.scores.ravel().tolist()
    assert batch.time.tolist() == np.repeat(data.time, len(MODELS)).tolist()
    assert np.array_equal(batch.key, np.repeat(id_keys(data.id.astype(str).tolist()), len(MODELS)))
    values, codes = batch.groups["origin"]
    assert [values[code] for code in codes[:: len(MODELS)]] == [data.origins[code] for code in data.origin]


def test_records_stand_in_order_of_time(stream: list[dict[str, object]]) -> None:
    times = [seconds(record) for record in stream]
    assert times == sorted(times)


def test_labels_tell_the_truth_hours_after_their_prediction(
    data: DemoData, stream: list[dict[str, object]]
) -> None:
    predicted = dict(zip(data.id.tolist(), data.time.tolist(), strict=True))
    truth = dict(zip(data.id.tolist(), data.late.tolist(), strict=True))
    labels = [record for record in stream if "label" in record]
    assert len(labels) == data.labelled.sum()
    for record in labels:
        one = str(record["id"]).encode()
        assert record["label"] == data.classes[truth[one]]
        assert 3 * 3600 < seconds(record) - predicted[one] < 24 * 3600


def test_a_fifth_of_the_flights_that_arrived_are_labelled(data: DemoData) -> None:
    arrived = int((data.late >= 0).sum())
    expected = LABELLED_SHARE * arrived
    assert abs(data.labelled.sum() - expected) < 4 * np.sqrt(expected * (1 - LABELLED_SHARE))
    assert not (data.labelled & (data.late < 0)).any()


def test_labelled_flights_are_a_plain_sample(data: DemoData) -> None:
    known = data.late >= 0
    share, labelled = data.late[known].mean(), data.labelled.sum()
    error = np.sqrt(share * (1 - share) / labelled)
    assert abs(data.late[data.labelled].mean() - share) < 4 * error


def test_the_reference_is_the_held_out_days_all_labelled(data: DemoData, few: Flights) -> None:
    _, held_out, _ = split(few)
    batch = read_reference(data.reference, LAYOUT)
    assert batch.label[:: len(MODELS)].tolist() == few.late[held_out].tolist()
    right = ((batch.scores[:, 1] > 0.5) == (batch.label == 1)).reshape(-1, len(MODELS))
    assert right.mean(axis=0) == pytest.approx(data.reference_accuracy)
    assert data.reference_flights == len(held_out)


def test_the_floor_is_two_points_below_the_middle_models_start(data: DemoData) -> None:
    middle = np.median(data.reference_accuracy)
    assert abs(data.floor - (middle - 0.02)) <= 0.005
    assert load_config(data.config).tasks["delay"].objective.bounds()["accuracy"].min == data.floor


def test_the_configuration_is_accepted_and_points_at_the_folder(data: DemoData) -> None:
    config = load_config(data.config)
    task = config.tasks["delay"]
    assert (task.window.size, task.window.min_size, task.positive) == (WINDOW_SIZE, 50, "late")
    assert task.reference.path == str(data.reference)
    assert [source.path for source in config.sources if source.kind == "file"] == [str(data.stream)]
    assert config.reports is not None
    assert config.reports.path == str(data.reports)
    assert config.export.listen == "127.0.0.1:0"


def test_the_folder_can_be_moved(data: DemoData, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere.yaml"
    moved.write_bytes(data.config.read_bytes())
    assert load_config(moved).tasks["delay"].reference.path == str(tmp_path / "reference.ndjson")


def test_no_window_of_the_real_stream_is_closed_by_age(flights: Flights, data: DemoData) -> None:
    _, _, stream = split(flights)
    started = flights.departed[stream][::WINDOW_SIZE]
    assert np.diff(started).max() < load_config(data.config).tasks["delay"].window.max_age_seconds


def test_the_truth_is_kept_as_arrays(data: DemoData) -> None:
    with np.load(data.truth) as truth:
        assert truth["id"].tolist() == data.id.tolist()
        assert np.array_equal(truth["late"], data.late)
        assert np.array_equal(truth["scores"], data.scores)
        assert truth["models"].tolist() == list(MODELS)


@pytest.mark.slow
def test_the_same_seed_writes_the_same_bytes_and_replaces_an_earlier_demo(
    data: DemoData, few: Flights, tmp_path: Path
) -> None:
    steps: list[str] = []
    other = prepare(tmp_path, seed=4, flights=few).scores[:, MODELS.index("forest")]
    assert not np.allclose(other, data.scores[:, MODELS.index("forest")], atol=1e-3)
    (tmp_path / "windows.ndjson").write_text("an earlier run's windows\n")
    again = prepare(tmp_path, seed=3, progress=steps.append, flights=few)
    assert again.stream.read_bytes() == data.stream.read_bytes()
    assert again.reference.read_bytes() == data.reference.read_bytes()
    assert not again.reports.exists()
    assert len(steps) == 3


def test_somebody_elses_folder_is_refused_untouched(tmp_path: Path) -> None:
    (tmp_path / "windows.ndjson").write_text("mine\n")
    with pytest.raises(SinkError, match=r"is not empty and holds no earlier demo; choose an empty folder"):
        prepare(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["windows.ndjson"]
    assert (tmp_path / "windows.ndjson").read_text() == "mine\n"


def test_a_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(SinkError, match=r"taken: cannot be made or written: .*; choose another"):
        prepare(tmp_path / "taken")

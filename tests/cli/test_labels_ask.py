"""`blindsight labels ask`: what it draws from files, and how that comes back as labels."""

from __future__ import annotations

import csv
import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from monitor.base.errors import ConfigError
from monitor.base.results import Estimate
from monitor.cli import labels_ask
from monitor.cli.replay import replay
from monitor.stats.estimate.hajek import hajek, weighted_counts
from tests.daemon import command_here, configuration, ndjson, read_windows, write_configuration
from tests.streams import answers

Record = dict[str, Any]


def stream(n: int = 300, **more: Any) -> list[Record]:
    return answers(np.random.default_rng(4), n, **more)


def config(folder: Path, **task: Any) -> str:
    (folder / "ref.ndjson").write_bytes(
        ndjson(answers(np.random.default_rng(1), 1500, start=1.6e9, labelled=True))
    )
    settings = {
        "reference": {"path": "ref.ndjson"},
        "window": {"size": 300, "min_size": 20},
        "estimators": ["average_confidence", "realised"],
    }
    return str(write_configuration(folder, configuration(task=settings | task)))


def ask(path: str, files: list[Path], n: int, **more: Any) -> tuple[list[str], list[str]]:
    selection = labels_ask.ask(path, files, n, **more)
    return selection.lines, selection.sentences


def file(folder: Path, records: list[Record], name: str = "in.ndjson") -> Path:
    (folder / name).write_bytes(ndjson(records))
    return folder / name


def test_what_is_filled_in_comes_back_as_labels_with_their_probability(tmp_path: Path) -> None:
    records = stream(labelled=True)
    truth = {record["id"]: record.pop("label") for record in records}
    path = file(tmp_path, records)
    lines, _ = ask(config(tmp_path), [path], 40)
    questions = [json.loads(line) for line in lines]
    filled = [record | {"label": truth[record["id"]], "time": 1.7e9} for record in questions]
    file(tmp_path, filled, "labels.ndjson")
    # The labels come first and wait: one window, which they are then all in.
    done = replay(config(tmp_path), [tmp_path / "labels.ndjson", path], tmp_path / "out", lambda *_: None)
    assert not done.unused.answers
    assert not done.unused.labels
    (window,) = read_windows(tmp_path / "out" / "windows.ndjson")[-1:]
    (realised,) = [each for each in window["estimates"] if each["estimator"] == "realised"]
    right = np.array([record["predicted"] == record["label"] for record in filled])
    probability = np.float32([record["probability"] for record in filled]).astype(np.float64)
    expected = hajek(weighted_counts(right, 1 / probability))
    assert isinstance(expected, Estimate)
    assert realised["size"] == 40
    assert realised["value"] == pytest.approx(expected.value, abs=1e-6)
    assert realised["upper"] == pytest.approx(expected.upper, abs=1e-6)
    assert realised["value"] != pytest.approx(right.mean(), abs=1e-3), "the weights do count"


def test_a_line_says_which_answer_is_meant(tmp_path: Path) -> None:
    records = stream()
    by_id = {record["id"]: record for record in records}
    lines, notes = ask(config(tmp_path), [file(tmp_path, records)], 25)
    assert len(lines) == len({json.loads(line)["id"] for line in lines}) == 25
    for record in map(json.loads, lines):
        answer = by_id[record["id"]]
        assert list(record) == [
            *("id", "task", "model", "probability", "answered"),
            *("predicted", "calibrated_confidence", "label"),
        ]
        assert (record["task"], record["model"], record["label"]) == ("t", "erm", None)
        assert record["predicted"] == ("bad" if answer["scores"][1] > 0.5 else "ok")
    assert notes[0].startswith(
        "t, erm: 25 of 300 answers. Expected width of the 95% interval of the realised accuracy: 0."
    )
    assert "not calibrated" not in notes[0]


def test_the_seed_decides(tmp_path: Path) -> None:
    path = file(tmp_path, stream())
    first = ask(config(tmp_path), [path], 20)
    assert ask(config(tmp_path), [path], 20) == first
    assert ask(config(tmp_path), [path], 20, seed=1)[0] != first[0]


def test_what_is_labelled_doubled_or_has_no_id_is_not_asked_about(tmp_path: Path) -> None:
    records = stream(100)
    records[0]["label"] = "ok"
    del records[1]["id"]
    known = [{"id": record["id"], "label": "ok"} for record in records[2:50]]
    only_irm = [{"id": records[50]["id"], "model": "irm", "label": "ok"}]
    path = file(tmp_path, [*records, *records, *known, *only_irm])
    lines, notes = ask(config(tmp_path), [path], 1000)
    assert [json.loads(line)["id"] for line in lines] == [record["id"] for record in records[50:]]
    assert {json.loads(line)["probability"] for line in lines} == {1.0}
    assert "50 of 50 answers" in notes[0]
    assert notes[1:] == ["2 answers without an id left out: no label can reach them."]


def test_what_cannot_be_read_is_counted(tmp_path: Path) -> None:
    path = file(tmp_path, [*stream(20), {"id": "x", "model": "erm", "scores": [2, 3]}])
    _, notes = ask(config(tmp_path), [path], 5)
    assert notes[1:] == ["1 record could not be used; `blindsight replay` says why."]


def test_models_of_one_record_are_drawn_apart(tmp_path: Path) -> None:
    both = [
        {"id": r["id"], "time": r["time"], "models": {"erm": r["scores"], "irm": r["scores"]}}
        for r in stream(60)
    ]
    lines, notes = ask(config(tmp_path), [file(tmp_path, both)], 10)
    pairs = [(json.loads(line)["model"], json.loads(line)["id"]) for line in lines]
    assert [model for model, _ in pairs] == ["erm"] * 10 + ["irm"] * 10
    assert {name for model, name in pairs if model == "erm"} != {
        name for model, name in pairs if model == "irm"
    }
    assert len(notes) == 2
    (only,) = ask(config(tmp_path), [file(tmp_path, both)], 10, model="irm")[1]
    assert only.startswith("t, irm: 10 of 60")


def test_ids_are_found_in_tables_and_under_other_names(tmp_path: Path) -> None:
    records = stream(60)
    with (tmp_path / "in.csv").open("w", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(["id", "time", "model", "scores.ok", "scores.bad"])
        writer.writerows([r["id"], r["time"], r["model"], *map(repr, r["scores"])] for r in records)
    from_table, _ = ask(config(tmp_path), [tmp_path / "in.csv"], 60)
    assert [json.loads(line)["id"] for line in from_table] == [record["id"] for record in records]
    theirs = [
        {"m": r["model"], "request": {"no": i}, "out": {"p": r["scores"]}, "t": r["time"]}
        for i, r in enumerate(records)
    ]
    path = file(tmp_path, theirs, "theirs.ndjson")
    mapping = {"id": "request.no", "model": "m", "scores": "out.p", "time": "t"}
    sources = [{"kind": "file", "path": str(path), "mapping": mapping}]
    mapped = configuration(task={"reference": {"first_windows": 5}}, sources=sources)
    lines, notes = ask(str(write_configuration(tmp_path, mapped)), [path], 60)
    assert [json.loads(line)["id"] for line in lines] == [str(i) for i in range(60)]
    assert notes[0].endswith("The confidences are not calibrated: all this is as right as they are.")


def test_a_model_without_classes_is_asked_whether_it_was_right(tmp_path: Path) -> None:
    records = [{"id": str(i), "time": 1e9 + i, "model": "x", "confidence": 0.5 + i / 200} for i in range(100)]
    whole = configuration(task={"reference": {"first_windows": 5}})
    del whole["tasks"]["t"]["classes"]
    lines, _ = ask(str(write_configuration(tmp_path, whole)), [file(tmp_path, records)], 5)
    assert len(lines) == 5
    assert all("predicted" not in line and json.loads(line)["correct"] is None for line in lines)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n": 0}, "-n: expected at least 1 label, got 0; give the number of labels that you can make"),
        ({"seed": -1}, "--seed: expected a whole number from 0, got -1"),
        ({"task": "u"}, "--task: there is no 'u'; there is only 't'"),
        ({"model": "irm"}, "--model: there is no 'irm'; there is only 'erm'"),
    ],
)
def test_settings_that_cannot_be_are_refused(tmp_path: Path, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        ask(config(tmp_path), [file(tmp_path, stream(50))], **({"n": 5} | settings))
    assert str(refused.value) == message


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("chat", "--task: 'chat' is an arena, and comparisons are not drawn; name another task"),
        (
            "",
            "tasks: there are only arenas, and comparisons are not drawn; give one with other tasks",
        ),
    ],
)
def test_an_arena_has_no_answers_to_draw(tmp_path: Path, task: str, message: str) -> None:
    path = write_configuration(tmp_path, {"tasks": {"chat": {"kind": "arena"}}})
    with pytest.raises(ConfigError) as refused:
        ask(str(path), [file(tmp_path, stream(50))], 5, task=task)
    assert str(refused.value) == message


def test_files_that_cannot_be_are_refused(tmp_path: Path) -> None:
    without = [{key: value for key, value in record.items() if key != "id"} for record in stream(50)]
    with pytest.raises(
        ConfigError, match=r"^FILE…: no answer in them has an id and no label yet; give files"
    ):
        ask(config(tmp_path), [file(tmp_path, without)], 5)
    with pytest.raises(ConfigError, match="nowhere"):
        ask(config(tmp_path), [tmp_path / "nowhere.ndjson"], 5)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(
        ConfigError, match=r"it is a pipe, and is to be read twice; write it to a file first$"
    ):
        ask(config(tmp_path), [tmp_path / "pipe"], 5)


@pytest.mark.slow
def test_the_command_prints_lines_and_says_what_they_bring(tmp_path: Path) -> None:
    words = ("labels", "ask", config(tmp_path), file(tmp_path, stream()), "-n", "7")
    printed = command_here(*words)
    assert (printed.returncode, len(printed.stdout.splitlines())) == (0, 7)
    assert printed.stderr.startswith("t, erm: 7 of 300 answers. ")
    out = tmp_path / "to-label.ndjson"
    assert command_here(*words, "--out", out).stdout == ""
    assert out.read_text() == printed.stdout
    again = command_here(*words, "--out", out)
    assert again.returncode == 2
    assert again.stderr == f"blindsight: --out: {out} exists, and may contain labels; give another path\n"


def test_rows_of_events_are_asked_about_by_their_ids(tmp_path: Path) -> None:
    records = stream(60)
    events = [
        {
            "specversion": "1.0",
            "id": f"event-{i}",
            "type": "org.kubeflow.serving.inference.response",
            "inferenceservicename": records[0]["model"],
            "time": records[i]["time"],
            "data": {"predictions": [record["scores"] for record in records[i : i + 3]]},
        }
        for i in range(0, 60, 3)
    ]
    for event in events:
        event["time"] = datetime.fromtimestamp(event["time"], UTC).isoformat()
    path = file(tmp_path, events)
    configured = yaml.safe_load(Path(config(tmp_path)).read_text())
    configured["sources"] = [{"kind": "file", "path": "in.ndjson", "mapping": {"format": "kserve"}}]
    lines, _ = ask(str(write_configuration(tmp_path, configured)), [path], 60)
    assert sorted(json.loads(line)["id"] for line in lines) == sorted(
        f"event-{i}:{row}" for i in range(0, 60, 3) for row in range(3)
    )

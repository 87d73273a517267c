"""`blindsight labels ask --for active_testing`: what it draws, how a round goes on, and what comes of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from monitor.base.errors import ConfigError
from monitor.cli.drawing import ask_for_estimator
from monitor.stats.labelled.active_testing import expected_error, lure_weights
from tests.daemon import DaemonProcess, command_here, configuration, ndjson, read_windows, write_configuration
from tests.engine.turns import BEGIN, MODELS, N, lure, requests, wrong
from tests.streams import Record

FOR = "active_testing"


def settings(folder: Path, **rest: Any) -> dict[str, Any]:
    """Return two models whose reference says that their scores are what they should be."""
    known, truth = requests(np.random.default_rng(1), 1500)
    lines = [
        {"model": model, "scores": r["models"][model], "time": r["time"] - 1e8, "label": truth[r["id"]]}
        for r in known
        for model in MODELS
    ]
    (folder / "ref.ndjson").write_bytes(ndjson(lines))
    task = {
        "models": {model: {} for model in MODELS},
        "reference": {"path": str(folder / "ref.ndjson")},
        "estimators": ["average_confidence", "realised", FOR],
        "calibration": {"method": "platt", "refit_labels": None},
        "ssme": {"every_windows": 1000, "every_labels": 40},
    } | rest.pop("task", {})
    return configuration(task=task, **rest)


def config(folder: Path, **rest: Any) -> str:
    return str(write_configuration(folder, settings(folder, **rest)))


def file(folder: Path, records: list[Record], name: str = "in.ndjson") -> Path:
    (folder / name).write_bytes(ndjson(records))
    return folder / name


def ask(path: str, files: list[Path], n: int, earlier: list[Path] | None = None, **more: Any) -> Any:
    options = {"task": "", "model": "", "seed": 0} | more
    selection = ask_for_estimator(FOR, path, files, n, earlier=earlier or [], **options)
    lines, notes = selection.lines, selection.sentences
    return [json.loads(line) for line in lines], notes


def filled(lines: list[Record], truth: dict[str, str]) -> list[Record]:
    return [line | {"label": truth[line["id"]], "time": BEGIN + N} for line in lines]


def test_lines_are_numbered_draws_of_one_round_with_their_chances(tmp_path: Path) -> None:
    records, _ = requests(np.random.default_rng(2))
    lines, notes = ask(config(tmp_path), [file(tmp_path, records)], 30)
    assert [line["draw"]["number"] for line in lines] == list(range(1, 31))
    assert {(line["draw"]["pool"], line["task"], line["label"]) for line in lines} == {(N, "t", None)}
    [name] = {line["draw"]["round"] for line in lines}
    assert len({line["id"] for line in lines}) == 30
    assert not any("model" in line for line in lines), "a label is of every model's answer"
    v = lure_weights([line["draw"]["probability"] for line in lines], N)
    np.testing.assert_allclose([line["probability"] for line in lines], np.minimum(30 / (N * v), 1))
    assert notes[0].startswith(
        f"t: draws 1 to 30 of the round {name}, out of 400 requests, by the errors that the mean of the "
        "calibrated models expects. Expected width of active_testing's 95% interval of the accuracy with 30 "
        "labels: erm 0."
    )
    assert ", irm 0." in notes[0]
    assert len(notes) == 1


def test_the_chances_are_those_of_the_expected_errors_among_what_is_left(tmp_path: Path) -> None:
    """Without a calibration the surrogate is the mean of the scores."""
    records, _ = requests(np.random.default_rng(3), 60)
    uncalibrated = {"calibration": {"method": "none"}, "reference": {"first_windows": 5}}
    lines, notes = ask(config(tmp_path, task=uncalibrated), [file(tmp_path, records)], 60)
    scores = np.array([[r["models"][m] for m in MODELS] for r in records])
    mean = scores.mean(axis=1)
    chance = sum(expected_error(mean, scores[:, m].argmax(axis=1)) for m in range(2)) / 2
    place = {r["id"]: i for i, r in enumerate(records)}
    order = [place[line["id"]] for line in lines]
    assert sorted(order) == list(range(60))
    left = [chance[row] / (1 - chance[order[:m]].sum()) for m, row in enumerate(order)]
    np.testing.assert_allclose([line["draw"]["probability"] for line in lines], left, rtol=1e-6)
    assert {line["probability"] for line in lines} == {1.0}
    assert "draws 1 to 60" in notes[0]


def test_the_seed_and_the_files_decide_and_more_draws_begin_with_the_same(tmp_path: Path) -> None:
    path = file(tmp_path, requests(np.random.default_rng(4))[0])
    first, _ = ask(config(tmp_path), [path], 20)
    assert ask(config(tmp_path), [path], 20)[0] == first
    more, _ = ask(config(tmp_path), [path], 40)
    assert [(line["id"], line["draw"]) for line in more[:20]] == [
        (line["id"], line["draw"]) for line in first
    ]
    other, _ = ask(config(tmp_path), [path], 20, seed=3)
    assert other[0]["draw"]["round"] != first[0]["draw"]["round"]
    assert [line["id"] for line in other] != [line["id"] for line in first]
    one, _ = ask(config(tmp_path), [path], 20, model="irm")
    assert one[0]["draw"]["round"] != first[0]["draw"]["round"]


def test_requests_with_a_label_of_any_kind_or_without_an_id_are_left_out(tmp_path: Path) -> None:
    records, truth = requests(np.random.default_rng(5), 60)
    records[0]["label"] = "ok"
    del records[1]["id"]
    known = [{"id": "r2", "label": truth["r2"]}, {"id": "r3", "model": "irm", "label": truth["r3"]}]
    lines, notes = ask(config(tmp_path), [file(tmp_path, [*records, *known])], 99)
    assert {line["id"] for line in lines} == {f"r{i}" for i in range(4, 60)}
    assert notes[1:] == ["2 answers without an id left out: no label can reach them."]


def test_a_model_that_answered_some_requests_only_takes_part_in_those(tmp_path: Path) -> None:
    records, _ = requests(np.random.default_rng(6), 60)
    for record in records[:40]:
        del record["models"]["irm"]
    lines, notes = ask(config(tmp_path), [file(tmp_path, records)], 60)
    assert len(lines) == 60
    assert "erm 0." in notes[0]
    assert ", irm 0." in notes[0]


def test_a_round_goes_on_by_what_its_labels_say(tmp_path: Path) -> None:
    records, truth = requests(np.random.default_rng(7))
    path, where = file(tmp_path, records), config(tmp_path)
    first, _ = ask(where, [path], 30)
    unlabelled = file(tmp_path, first, "first.ndjson")
    some = file(tmp_path, filled(first[5:], truth), "some.ndjson")
    # The labels may stand among the files too: those of the round leave nothing out.
    second, notes = ask(where, [path, some], 10, [unlabelled, some])
    assert [line["draw"]["number"] for line in second] == list(range(31, 41))
    assert {line["draw"]["round"] for line in second} == {first[0]["draw"]["round"]}
    assert not {line["id"] for line in second} & {line["id"] for line in first}
    assert "draws 31 to 40" in notes[0]
    assert "by the errors that ssme, fitted on 25 labels, expects" in notes[0]
    again, notes = ask(where, [path], 10, [unlabelled])
    assert "by the errors that the mean of the calibrated models expects" in notes[0], "no label, no fit"
    assert again[0]["draw"]["number"] == 31
    assert [line["draw"]["probability"] for line in again] != [
        line["draw"]["probability"] for line in second
    ], "other errors are expected"
    third, _ = ask(where, [path], 999, [unlabelled, file(tmp_path, second, "second.ndjson")])
    assert third[-1]["draw"]["number"] == N
    with pytest.raises(
        ConfigError, match=r"--continue: every request of the round .* is drawn; begin another"
    ):
        ask(where, [path], 1, [unlabelled, tmp_path / "second.ndjson", file(tmp_path, third, "3.ndjson")])


def test_a_seed_stays_with_its_round(tmp_path: Path) -> None:
    path, where = file(tmp_path, requests(np.random.default_rng(8))[0]), config(tmp_path)
    first, _ = ask(where, [path], 5, seed=12)
    second, _ = ask(where, [path], 5, [file(tmp_path, first, "first.ndjson")])
    assert second[0]["draw"]["round"] == first[0]["draw"]["round"]
    assert first[0]["draw"]["round"].endswith("-12")


def changed(line: Record, **draw: Any) -> Record:
    return line | {"draw": line["draw"] | draw}


def test_a_round_that_cannot_go_on_says_why(tmp_path: Path) -> None:
    records, truth = requests(np.random.default_rng(9))
    path, where = file(tmp_path, records), config(tmp_path)
    lines, _ = ask(where, [path], 6)
    name = lines[0]["draw"]["round"]
    written = "give files that `labels ask --for active_testing` wrote, labels filled in or not"
    first = f"--continue: {tmp_path / 'w.ndjson'}: line 1: "
    cases: list[tuple[list[Any], str]] = [
        ([b"{"], first + "it is not JSON (Input data was truncated); " + written),
        ([{"label": "ok"}], first + "it is not a label record with an id; " + written),
        ([lines[0] | {"draw": None}], first + "$.draw: expected an object with round, number, pool, "
         "probability, got null; " + written),
        ([changed(lines[0], number=0)], first + "$.draw.number: expected a whole number from 1, got 0; "
         + written),
        ([lines[0] | {"task": "u"}], first + "task: expected one of t, got 'u'; " + written),
        ([lines[0] | {"label": "odd"}], first + "label: expected one of ok, bad, or null, got 'odd'; correct "
         "it"),
        ([lines[0], changed(lines[1], round="x")], "--continue: expected one round of t, got "
         f"{name} of 400 requests, x of 400 requests; give the files of one"),
        ([lines[0], lines[1] | {"draw": lines[0]["draw"]}], f"--continue: draw 1 of the round {name} is of "
         f"{lines[0]['id']} and of {lines[1]['id']}; give files of one run of `labels ask`"),
        ([lines[1], lines[4]], f"--continue: draws 1, 3, 4 of the round {name} are missing; give every file "
         "in which it was asked about, its unlabelled lines too"),
    ]  # fmt: skip
    for earlier, message in cases:
        with pytest.raises(ConfigError) as refused:
            ask(where, [path], 5, [file(tmp_path, earlier, "w.ndjson")])
        assert str(refused.value) == message
    kept = file(tmp_path, lines, "lines.ndjson")
    elsewhere = file(
        tmp_path, [{"id": "r0", "label": truth["r0"]}, {"id": "r1", "label": "ok"}], "other.ndjson"
    )
    for files, many in (([path, elsewhere], 398), ([file(tmp_path, records[:-1], "less.ndjson")], 399)):
        with pytest.raises(
            ConfigError, match=rf"400 requests of t; here are {many} without a label from else"
        ):
            ask(where, files, 5, [kept])
    for other in (lines[0] | {"id": "stranger"}, changed(lines[0], pool=401)):
        with pytest.raises(
            ConfigError, match=rf"^--continue: the round {name} was drawn from 40. requests of t;"
        ):
            ask(where, [path], 5, [file(tmp_path, [other], "lines.ndjson")])
    with pytest.raises(ConfigError, match=r"^--continue: .*empty.ndjson: there is no line; give files that"):
        ask(where, [path], 5, [file(tmp_path, [], "empty.ndjson")])
    with pytest.raises(ConfigError, match=r"--continue: .*nowhere.ndjson"):
        ask(where, [path], 5, [tmp_path / "nowhere.ndjson"])


def test_what_is_asked_wrongly_is_told(tmp_path: Path) -> None:
    path, where = file(tmp_path, requests(np.random.default_rng(10), 60)[0]), config(tmp_path)
    with pytest.raises(ConfigError, match=r"--for: expected active_testing, got 'ssme'; others take labels"):
        ask_for_estimator("ssme", where, [path], 5, "", "", 0, [])
    with pytest.raises(ConfigError, match=r"--continue: expected --for active_testing beside it, got none"):
        ask_for_estimator("", where, [path], 5, "", "", 0, [path])
    with pytest.raises(ConfigError, match=r"-n: expected at least 1 label, got 0"):
        ask(where, [path], 0)
    with pytest.raises(ConfigError, match=r"FILE…: no request in them has an id, an answer with scores"):
        ask(where, [file(tmp_path, [{"id": "r0", "label": "ok"}], "labels.ndjson")], 5)
    lone = settings(tmp_path, task={"estimators": ["average_confidence"]})
    _, notes = ask(str(write_configuration(tmp_path, lone)), [path], 5)
    assert notes[0].endswith(" Add active_testing to tasks.t.estimators: nothing else counts draws.")
    del lone["tasks"]["t"]["classes"]
    lone["tasks"]["t"] |= {"reference": {"first_windows": 5}}
    confident = [{"id": "a", "model": "erm", "confidence": 0.9, "time": BEGIN}]
    with pytest.raises(
        ConfigError, match=r"--for: active_testing needs the scores of classes, and tasks.t has"
    ):
        ask(str(write_configuration(tmp_path, lone)), [file(tmp_path, confident)], 5, task="t")


def test_from_the_command_to_the_scrape(tmp_path: Path) -> None:
    """Asked twice, labelled, sent to a daemon and replayed: both say what the paper's formula says."""
    records, truth = requests(np.random.default_rng(11))
    answers, name = file(tmp_path, records, "answers.ndjson"), config(tmp_path)
    base = ("labels", "ask", name, answers, "--for", FOR)
    first = tmp_path / "first.ndjson"
    assert command_here(*base, "-n", "25", "--out", first).returncode == 0
    done = file(tmp_path, filled([json.loads(x) for x in first.read_text().splitlines()], truth), "1.ndjson")
    second = command_here(*base, "-n", "25", "--continue", done)
    assert second.stderr.startswith("t: draws 26 to 50 of the round ")
    lines = [json.loads(x) for x in [*done.read_text().splitlines(), *second.stdout.splitlines()]]
    labels = filled(lines, truth)
    # The first window that closes after the labels begins a refit, the next one shows what it brought.
    more = [r | {"id": f"later-{r['id']}", "time": BEGIN + N + 1 + i} for i, r in enumerate(records[:200])]
    expected = {model: lure(labels, wrong(records, truth, model), records) for model in MODELS}

    whole = file(tmp_path, [*records, *labels, *more])
    assert command_here("replay", name, whole, "--out", tmp_path / "out").returncode == 0
    windows = {w["model"]: w for w in read_windows(tmp_path / "out" / "windows.ndjson")}  # the newest
    for model in MODELS:
        [estimate] = [each for each in windows[model]["estimates"] if each["estimator"] == FOR]
        assert estimate["value"] == pytest.approx(expected[model], abs=1e-6)
        assert estimate["size"] == 50

    sources = [{"kind": "file", "path": str(whole), "follow": True}]
    with DaemonProcess(tmp_path, settings(tmp_path, sources=sources)) as daemon:
        daemon.until_value(50, "refit_drawn_rows", task="t")
        with whole.open("ab") as out:
            out.write(ndjson([r | {"id": f"last-{r['id']}", "time": r["time"] + 200} for r in more]))
        of_erm = {"model": "erm", "metric": "accuracy", "estimator": FOR}
        daemon.until(lambda: daemon.metrics().value("estimate_ratio", **of_erm) is not None, "it is there")
        metrics = daemon.metrics()
        assert metrics.value("refit_missing_draws", task="t") == 0
        for model in MODELS:
            value = metrics.value("estimate_ratio", model=model, metric="accuracy", estimator=FOR)
            assert value == pytest.approx(expected[model], abs=1e-6)

"""`blindsight backtest`: injected drops are detected, and each wrong option gets its sentence."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec
import numpy as np
import pytest
import yaml

from monitor.base.errors import ConfigError
from monitor.base.records import id_keys
from monitor.base.source import RawMessages
from monitor.cli.backtest.backtest import BacktestOptions, backtest
from monitor.cli.backtest.injecting import Injector
from monitor.cli.backtest.results import Injection
from monitor.cli.documents import DOCUMENTS
from tests.daemon import command_here, configuration, ndjson, write_configuration
from tests.streams import Record, Rig, answers, task

pytestmark = pytest.mark.slow

ROWS = 4000
NUMBERS = {"kind": "regression", "tolerance": 1, "reference": {"path": "reference.ndjson"}}
START = 1.7e9


def stream(labelled: bool = True) -> list[Record]:
    return answers(np.random.default_rng(5), ROWS, start=START, labelled=labelled)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a configuration, a reference, and 40 windows with and without labels."""
    folder = tmp_path_factory.mktemp("backtest")
    reference = answers(np.random.default_rng(4), 3000, start=1.6e9, labelled=True)
    (folder / "reference.ndjson").write_bytes(ndjson(reference))
    (folder / "in.ndjson").write_bytes(ndjson(stream()))
    (folder / "bare.ndjson").write_bytes(ndjson(stream(labelled=False)))
    (folder / "first.ndjson").write_bytes(ndjson(stream()[:1703]))
    (folder / "rest.ndjson").write_bytes(ndjson(stream()[1703:]))
    write_configuration(folder, configuration(task={"reference": {"path": str(folder / "reference.ndjson")}}))
    return folder


def options(folder: Path, *files: str, **more: Any) -> BacktestOptions:
    paths = [folder / name for name in files or ("in.ndjson",)]
    return BacktestOptions(str(folder / "config.yaml"), paths, **more)


def test_a_large_drop_is_detected_in_each_way_and_a_tiny_one_is_missed(folder: Path) -> None:
    done = backtest(options(folder, drops=[0.1, 20], starts=["50%"])).document
    assert [(start.name, abs(start.record - ROWS / 2) < 100) for start in done.starts] == [("50 %", True)]
    large = {(each.known, each.labelled): each for each in done.delays if each.drop == 0.2}
    assert list(large) == [(True, False), (True, True), (False, True)]
    for each in large.values():
        assert (each.detected, each.starts) == (1, 1)
        assert each.windows_median is not None
        assert each.windows_median <= 6
        assert each.hours_median is not None
        # A window has 100 answers, one a second; the hours count the window in which the drop begins.
        before = 3600 * each.hours_median / 100 - each.windows_median
        assert -1 <= before <= 1
    seconds = [3600 * (each.hours_median or 0.0) for each in large.values()]
    labels = [each.labels_median for each in large.values()]
    assert labels[0] == 0
    assert labels[1:] == pytest.approx(seconds[1:], abs=3)  # each answer has its label
    assert not any(each.detected for each in done.delays if each.drop == 0.001 and not each.labelled)
    (history,) = done.history
    assert (history.windows, history.model) == (40, "erm")
    assert history.predicted is not None
    assert 0 < history.predicted < 1


def test_the_result_does_not_depend_on_files_and_processes(folder: Path) -> None:
    at = ["2023-11-14T22:43:20Z"]  # 1,800 seconds after the first answer
    whole = backtest(options(folder, drops=[8], starts=at)).document
    assert whole.starts[0].record == 1800
    parts = backtest(options(folder, "first.ndjson", "rest.ndjson", drops=[8], starts=at)).document
    cores = backtest(options(folder, drops=[8], starts=at, processes=2)).document
    assert parts.detections == whole.detections == cores.detections
    other = backtest(options(folder, drops=[8], starts=at, seed=9)).document
    assert other.detections != whole.detections


def test_without_labels_only_drops_that_the_model_knows_are_injected(folder: Path) -> None:
    done = backtest(options(folder, "bare.ndjson", drops=[20], starts=["25%"])).document
    assert {(each.known, each.labelled) for each in done.delays} == {(True, False)}
    assert "The files have no labels" in done.notes[0]


def test_shares_of_a_table_and_of_lines_count_rows(folder: Path) -> None:
    rows = stream(labelled=False)
    cells = [f"{each['id']},{each['time']},erm,{each['scores'][0]},{each['scores'][1]}" for each in rows]
    (folder / "a.csv").write_text("\n".join(["id,time,model,scores.ok,scores.bad", *cells]))
    labels = [{"id": each["id"], "label": each["label"], "time": START + ROWS} for each in stream()]
    (folder / "labels.ndjson").write_bytes(ndjson(labels))
    starts = ["20%", "40%", "75%"]
    done = backtest(options(folder, "a.csv", "labels.ndjson", drops=[20], starts=starts)).document
    assert [start.record for start in done.starts] == pytest.approx([0.2 * 2 * ROWS, 0.4 * 2 * ROWS], abs=150)
    assert {each.starts for each in done.delays} == {2}
    after, order, missed = done.notes
    assert after == "t/erm: no answers after 75 %, so drops there do not count."
    assert "labels.ndjson came after all answers of" in order
    assert missed == (
        "A drop that only labels show cannot be detected before they come, and counts as missed if no window "
        "closes after them."
    )


def test_a_task_without_an_accuracy_is_named_beside_the_others(folder: Path) -> None:
    tasks = {**yaml.safe_load((folder / "config.yaml").read_text())["tasks"], "n": NUMBERS}
    numbers = [{"id": f"n-{i}", "prediction": 0.0, "label": i / 2000, "model": "m"} for i in range(4000)]
    (folder / "numbers.ndjson").write_bytes(ndjson([{**each, "task": "n"} for each in numbers]))
    tasks["n"] = {**NUMBERS, "reference": {"path": str(folder / "numbers.ndjson")}}
    write_configuration(folder, {"tasks": tasks}, "both.yaml")
    both = BacktestOptions(str(folder / "both.yaml"), [folder / "in.ndjson"], drops=[20], starts=["50%"])
    done = backtest(both).document
    assert {each.task for each in done.detections} == {"t"}
    assert done.notes == ["tasks.n has no accuracy, so drops were injected into the other tasks only."]


def test_a_task_that_does_not_estimate_its_accuracy_is_named(folder: Path) -> None:
    (folder / "named.ndjson").write_bytes(ndjson([{**each, "task": "t"} for each in stream()]))
    reference = [{**each, "task": name} for name in "te" for each in stream()[:3000]]
    (folder / "both.ndjson").write_bytes(ndjson(reference))
    t = yaml.safe_load((folder / "config.yaml").read_text())["tasks"]["t"]
    t["reference"] = {"path": str(folder / "both.ndjson")}
    write_configuration(folder, {"tasks": {"t": t, "e": {**t, "metrics": ["ece"]}}}, "ece.yaml")
    both = BacktestOptions(str(folder / "ece.yaml"), [folder / "named.ndjson"], drops=[20], starts=["50%"])
    assert backtest(both).document.notes == [
        "tasks.e has no accuracy in its metrics, so drops were injected into the other tasks only."
    ]


def test_a_model_without_a_baseline_at_the_start_is_named_and_does_not_count(folder: Path) -> None:
    rng = np.random.default_rng(6)
    reference = [
        each for model in ("erm", "late") for each in answers(rng, 2000, model, start=1.6e9, labelled=True)
    ]
    (folder / "pair.ndjson").write_bytes(ndjson(reference))
    task = {"reference": {"path": str(folder / "pair.ndjson")}}
    write_configuration(folder, configuration(task=task), "pair.yaml")
    late, unknown = (
        answers(rng, n, model, start=START + 2500.5) for n, model in ((1500, "late"), (900, "new"))
    )
    rows = sorted([*stream(labelled=False), *late, *unknown], key=lambda each: each["time"])
    (folder / "late.ndjson").write_bytes(ndjson(rows))
    config, files = str(folder / "pair.yaml"), [folder / "late.ndjson"]
    done = backtest(BacktestOptions(config, files, [20], ["25%", "80%"])).document
    assert [(each.model, each.start) for each in done.detections] == [
        ("erm", "25 %"),
        ("erm", "80 %"),
        ("late", "80 %"),
    ]
    assert done.notes[1:] == [
        "t/late: no baseline yet at 25 %, so no drop was injected there.",
        "t/new: no baseline yet at 25 %, 80 %, so no drop was injected there.",
    ]


def test_a_start_within_the_first_windows_is_refused(folder: Path) -> None:
    first = {"reference": {"first_windows": 10}}
    write_configuration(folder, configuration(task=first), "first.yaml")
    early, later = "2023-11-14T22:20:00Z", "2023-11-14T22:31:40Z"  # the answers 400 and 1,100
    files = [folder / "in.ndjson"]
    with pytest.raises(ConfigError) as error:
        backtest(BacktestOptions(str(folder / "first.yaml"), files, [20], [early]))
    assert str(error.value) == (
        f"--at: {early} lies in reference.first_windows of tasks.t, so the drop would be part of the "
        "baseline; give a time after 2023-11-14T22:31:39"
    )
    done = backtest(BacktestOptions(str(folder / "first.yaml"), files, [20], [later])).document
    assert {each.outcome for each in done.detections if not each.labelled} == {"detected"}


def test_a_start_that_is_stated_twice_counts_once(folder: Path) -> None:
    done = backtest(options(folder, "bare.ndjson", drops=[20], starts=["25%", "25.0 %"])).document
    assert [start.name for start in done.starts] == ["25 %"]
    assert [each.starts for each in done.delays] == [1]


def test_the_text_the_document_and_the_files_of_the_command(folder: Path, tmp_path: Path) -> None:
    words = ["backtest", "config.yaml", "in.ndjson", "--drop", "20", "--out", str(tmp_path / "out")]
    text, with_json = (command_here(*words, *more, cwd=folder) for more in ([], ["--json"]))
    assert (text.returncode, with_json.returncode) == (0, 0), text.stderr
    document = msgspec.json.decode(with_json.stdout, type=DOCUMENTS["backtest"])
    assert json.loads(with_json.stdout) == json.loads(msgspec.json.encode(document))
    assert len(text.stdout.splitlines()) <= 20
    assert "model does not know, labels" in text.stdout
    assert "t/erm, as it was: " in text.stdout
    svg = (tmp_path / "out" / "backtest.svg").read_text()
    ElementTree.fromstring(svg)
    assert "prefers-color-scheme:dark" in svg
    assert svg.count('class="dot" cx') == 1 + sum(each.outcome == "detected" for each in document.detections)
    page = (tmp_path / "out" / "backtest.html").read_text()
    assert "Backtest: how soon drops are detected" in page
    assert any(each.fact and each.fact[:20] in page for each in document.detections)


def test_errors_name_the_option_the_value_and_the_remedy(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "short.ndjson").write_bytes(ndjson(stream()[:900]))
    os.mkfifo(tmp_path / "pipe")
    write_configuration(folder, {"tasks": {"c": {"kind": "arena"}}}, "compared.yaml")
    write_configuration(folder, {"tasks": {"n": NUMBERS}}, "numbers.yaml")
    write_configuration(folder, configuration(task={"metrics": ["f1"]}), "f1.yaml")
    cases: list[tuple[BacktestOptions, str]] = [
        (
            options(folder, drops=[0.0]),
            "--drop: expected 0.1 to 50 percentage points, got 0; give another size",
        ),
        (options(folder, drops=[45]), "for the task t, whose accuracy of"),
        (options(folder, starts=["noon"]), "--at: expected a date, a time or a share of the files"),
        (options(folder, starts=["120%"]), "--at: expected 0 % to 99 % of the files"),
        (
            options(folder, starts=["2030-01-01"]),
            "--at: 2030-01-01 is outside of the files, whose answers have times from 2023-11-14T22:13 to "
            "2023-11-14T23:19; give a time between them, or a share such as 50%",
        ),
        (options(folder, processes=0), "--processes: expected 1 to 1024, got 0"),
        (
            options(tmp_path, "short.ndjson"),
            "t/erm: the files have 9 windows of 100 answers that a chart judges, and a backtest needs 20 or "
            "more; give longer files, or a smaller window.size",
        ),
        (options(tmp_path, "pipe"), "pipe is a pipe, which can be read only once"),
        (options(folder, "none.ndjson"), "There is no file"),
        *(
            (options(folder, seed=seed), f"--seed: expected 0 to 4294967295, got {seed}; give another number")
            for seed in (-1, 1 << 63)
        ),
        (
            BacktestOptions(str(folder / "f1.yaml"), []),
            "f1.yaml: no task has an accuracy, which a backtest lowers; add accuracy to tasks.t.metrics",
        ),
        (
            BacktestOptions(str(folder / "compared.yaml"), []),
            "compared.yaml: no task has an accuracy, which a backtest lowers; add a task with scores or "
            "confidences",
        ),
        (
            BacktestOptions(str(folder / "numbers.yaml"), []),
            "no task has an accuracy, which a backtest lowers (drops of kind: regression are not supported "
            "yet; --incident works); add a task with scores or confidences",
        ),
    ]
    write_configuration(tmp_path, (folder / "config.yaml").read_text())
    for case, words in cases:
        with pytest.raises(ConfigError) as error:
            backtest(case)
        assert words in str(error.value), (words, str(error.value))


def test_labels_of_answers_from_before_the_drop_stay() -> None:
    rig = Rig(task())
    rows = stream(labelled=False)[:40]
    rig.feed(rows[:20])
    state = rig.engine.snapshot()
    injector = Injector(
        rig.settings.scored_tasks, rig.engine, state, Injection(0.3, False, True), {"t": 1.0}, seed=0
    )
    records = [msgspec.json.encode({"id": each["id"], "label": "ok", "time": START}) for each in rows]
    labels = rig.decode([RawMessages(records, "part-0", list(range(40)))]).labels[0]
    assert np.array_equal(labels.key, id_keys([each["id"] for each in rows]))
    assert injector.follows(labels).tolist() == [False] * 20 + [True] * 20

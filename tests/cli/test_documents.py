"""`--json`: one document of known keys on standard output, with the numbers of the text."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from monitor.cli.documents import DOCUMENTS, schema
from tests.daemon import ROOT, DaemonProcess, command_here, configuration, ndjson, write_configuration
from tests.services.process import end_of
from tests.streams import answers


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a configuration, its input and reference, and the store of a whole run."""
    folder = tmp_path_factory.mktemp("documents")
    rows = answers(np.random.default_rng(1), 1000, labelled=True)
    (folder / "reference.ndjson").write_bytes(ndjson(rows))
    stream: list[Any] = answers(np.random.default_rng(2), 600, start=1.7e9)
    labels = [{"id": each["id"], "label": "ok", "time": 1.7e9} for each in stream[:40]]
    (folder / "in.ndjson").write_bytes(ndjson([*stream, stream[0], *labels, b'{"broken']))
    settings = configuration(
        task={
            "reference": {"path": "reference.ndjson"},
            "objective": {"accuracy": {"min": 0.99}},
            "models": {"erm": {"answers_per_day": 1000}},
        },
        sources=[{"kind": "file", "path": "in.ndjson"}],
        store={"path": "state", "every_seconds": 0.05},
    )
    with DaemonProcess(folder, settings) as daemon:
        assert end_of(daemon.process) == 0, daemon.log
    return folder


Documented = Callable[..., tuple[Any, str, int]]


@pytest.fixture
def documented(folder: Path) -> Documented:
    """Return a function that runs a command with and without `--json`: the document, the text and the code.

    The document has exactly the keys of its schema, and nothing stands beside it.
    """

    def both(*words: str) -> tuple[Any, str, int]:
        text, with_json = (command_here(*words, *more, cwd=folder) for more in ([], ["--json"]))
        assert text.returncode == with_json.returncode
        document = msgspec.json.decode(with_json.stdout, type=DOCUMENTS[words[0]])
        assert json.loads(with_json.stdout) == json.loads(msgspec.json.encode(document))
        return document, text.stdout + text.stderr, with_json.returncode

    return both


def test_check(documented: Documented) -> None:
    document, text, code = documented("check", "config.yaml")
    assert code == 0
    (accuracy,) = document.charts
    assert (accuracy.task, accuracy.model, accuracy.metric) == ("t", "erm", "accuracy")
    rate = accuracy.false_alarms_per_week
    assert rate == pytest.approx(7 * accuracy.windows_per_day * accuracy.false_alarms_per_window)
    assert f"t, erm, accuracy: {rate:.2g} a week" in text
    assert document.warnings
    assert all(f"  {warning}\n" in text for warning in document.warnings)


def test_a_configuration_that_is_wrong_prints_no_document(folder: Path, tmp_path: Path) -> None:
    """Errors are sentences on standard error in any format, as in kubectl, gh and ruff."""
    wrong = write_configuration(tmp_path, "tasks:\n  t:\n    window: {siz: 200}\n")
    for words in (["check"], ["doctor"], ["verify"], ["replay", "in.ndjson", "--out", "out"]):
        more = ["state", "in.ndjson"] if words[0] == "verify" else words[1:]
        done = command_here(words[0], wrong, *more, "--json", cwd=folder)
        assert (done.returncode, done.stdout) == (2, "")
        assert "tasks.t.window.siz: unknown key; did you mean 'size'?" in done.stderr


def test_doctor(documented: Documented, folder: Path) -> None:
    document, text, code = documented("doctor", "config.yaml")
    assert (code, document.well) == (0, True)
    (source,) = document.sources
    assert (source.source, source.kind, source.records, source.answers) == ("in.ndjson", "file", 100, 100)
    assert all(remark in text for remark in source.remarks)
    assert document.check == msgspec.json.decode(
        command_here("check", "config.yaml", "--json", cwd=folder).stdout, type=DOCUMENTS["check"]
    )


def test_doctor_with_a_mapping_that_reads_the_records(tmp_path: Path) -> None:
    row = {"deployment": "erm", "p_ok": 0.25, "p_bad": 0.75, "truth": "bad"}
    rows = [row | {"uuid": f"r-{i}"} for i in range(20)]
    (tmp_path / "in.ndjson").write_bytes(ndjson(rows))
    path = write_configuration(tmp_path, configuration(sources=[{"kind": "file", "path": "in.ndjson"}]))
    done = command_here("doctor", path, "--json")
    (source,) = json.loads(done.stdout)["sources"]
    assert (done.returncode, source["well"], source["rejected"]) == (1, False, 20)
    assert source["proposal"]["answers"] == 20
    assert source["proposal"]["mapping"]["class_scores"] == {"ok": "p_ok", "bad": "p_bad"}
    assert json.loads(done.stdout)["check"] is None


def test_doctor_prints_its_document_if_the_check_fails(tmp_path: Path) -> None:
    rows = [{"id": f"r-{i}", "model": "erm", "scores": [0.25, 0.75]} for i in range(20)]
    (tmp_path / "in.ndjson").write_bytes(ndjson(rows))
    settings = configuration(sources=[{"kind": "file", "path": "in.ndjson"}])
    settings["tasks"]["t"]["reference"] = {"path": "missing.ndjson"}
    done = command_here("doctor", write_configuration(tmp_path, settings), "--json", cwd=tmp_path)
    assert (done.returncode, json.loads(done.stdout)["check"]) == (2, None)
    assert json.loads(done.stdout)["well"] is True
    assert "missing.ndjson" in done.stderr


def test_replay(documented: Documented, folder: Path) -> None:
    document, text, code = documented("replay", "config.yaml", "in.ndjson", "--out", "out")
    assert code == 0
    (model,) = document.models
    accuracy = model.accuracy
    interval = f"{100 * accuracy.value:.1f} ({100 * accuracy.lower:.1f}–{100 * accuracy.upper:.1f})"
    assert interval in text
    assert model.state.value.replace("_", " ") in text
    assert [(each.metric, each.state.value) for each in model.objectives] == [("accuracy", "breached")]
    assert document.windows == model.windows == 6
    assert Path(document.reports).name in text
    assert (document.answers.used, document.answers.duplicates) == (600, 1)
    assert document.answers.rejected == {"malformed": 1}
    assert document.labels.matched == 40
    assert len(document.first_rejected) == 1
    assert document.first_rejected[0] in text
    assert all((folder / name).exists() for name in (document.page, document.reports, *document.pictures))


def test_replay_of_nothing_that_can_be_used_prints_the_document_and_fails(folder: Path) -> None:
    (folder / "broken.ndjson").write_bytes(b'{"broken\n')
    done = command_here("replay", "config.yaml", "broken.ndjson", "--out", "none", "--json", cwd=folder)
    assert (done.returncode, json.loads(done.stdout)["answers"]["rejected"]) == (1, {"malformed": 1})
    assert "not one of the 1 answers and labels could be used" in done.stderr


def test_labels_ask(documented: Documented, folder: Path) -> None:
    document, text, code = documented("labels", "ask", "config.yaml", "in.ndjson", "-n", "5")
    assert code == 0
    lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    assert document.records == lines
    assert len(lines) == 5
    (model,) = document.models
    assert (model.selected, model.answers, document.rounds) == (5, 560, [])
    assert f"realised accuracy: {model.width:.3f} with these labels" in text
    words = ["labels", "ask", "config.yaml", "in.ndjson", "-n", "5", "--out", "asked.ndjson", "--json"]
    done = command_here(*words, cwd=folder)
    assert json.loads(done.stdout)["records"] == lines
    assert [json.loads(line) for line in (folder / "asked.ndjson").read_text().splitlines()] == lines


def test_labels_ask_in_turn(documented: Documented) -> None:
    words = ["labels", "ask", "config.yaml", "in.ndjson", "-n", "5", "--for", "active_testing"]
    document, text, code = documented(*words)
    assert code == 0
    (one,) = document.rounds
    assert (one.first, one.last, one.counted, document.models) == (1, 5, False, [])
    assert f"draws 1 to 5 of the round {one.round}, out of {one.requests:,} requests" in text


def test_verify(documented: Documented, folder: Path) -> None:
    document, text, code = documented("verify", "config.yaml", "state", "in.ndjson")
    assert (code, document.clean, document.equal, document.different) == (0, True, 6, 0)
    assert "  equal                  6\n" in text
    lines = (folder / "in.ndjson").read_bytes().splitlines(keepends=True)
    (folder / "shorter.ndjson").write_bytes(b"".join(lines[:250]))
    words = ["verify", "config.yaml", "state", "--partition", f"{folder / 'in.ndjson'}=shorter.ndjson"]
    document, text, code = documented(*words)
    assert (code, document.clean, document.equal) == (0, True, 2)
    assert list(document.missing.values()) == [4]
    assert all(reason in text for reason in document.missing)


def test_every_document_has_a_schema_and_a_row_in_the_docs() -> None:
    page = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    for name in DOCUMENTS:
        printed = json.loads(command_here("schema", name).stdout)
        assert printed == schema(name)
        root = printed["$defs"][printed["$ref"].rpartition("/")[2]]
        (row,) = (line for line in page.splitlines() if re.match(rf"\| `{name}[a-z ]* --json`", line))
        assert all(re.search(rf"\b{key}\b", row) for key in root["properties"]), name

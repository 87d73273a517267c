"""`init`, `replay`, `doctor` and `run` read the same records with equal counts: shapes and formats."""

from __future__ import annotations

import base64
import csv
import gzip
import json
import re
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from monitor.base.errors import ConfigError
from monitor.cli.init import InitOptions, write_configuration
from monitor.cli.replay import Replayed, replay
from monitor.config.file import load_config
from tests.daemon import DaemonProcess, diagnosed

N = 300
LOOKED_AT = 100
Rows = list[dict[str, Any]]
RNG = np.random.default_rng(4)
P = RNG.beta(0.6, 0.9, N).round(3).tolist()
Y = [int(each) for each in RNG.random(N) < np.array(P)]
NAMES = ("ok", "toxic")


def rows(make: Callable[[int, float, int], dict[str, Any]]) -> Rows:
    return [make(i, P[i], Y[i]) for i in range(N)]


def both(p: float) -> list[float]:
    return [round(1 - p, 3), p]


def inference(i: int, p: float, y: int) -> dict[str, Any]:
    return {
        "databricks_request_id": f"d{i}",
        "client_request_id": f"c{i}",
        "timestamp_ms": 1_795_168_800_000 + 1000 * i,
        "status_code": 200,
        "request": "{}",
        "response": json.dumps({"predictions": [both(p)]}),
        "request_metadata": {"model_name": "m", "model_version": "3"},
    }


def capture(i: int, p: float, y: int) -> dict[str, Any]:
    data = base64.b64encode(json.dumps({"predictions": [both(p)]}).encode()).decode()
    output = {"observedContentType": "application/json", "mode": "OUTPUT", "data": data, "encoding": "BASE64"}
    about = {"eventId": f"e{i}", "inferenceTime": "2026-11-20T10:00:00Z"}
    return {"captureData": {"endpointOutput": output}, "eventMetadata": about, "eventVersion": "0"}


SHAPES: Mapping[str, tuple[Rows, int]] = {
    "ours": (rows(lambda i, p, y: {"id": f"r{i}", "model": "m", "scores": both(p), "label": NAMES[y]}), N),
    "decimals": (
        rows(lambda i, p, y: {"id": i, "model": "m", "scores": [Decimal(str(x)) for x in both(p)]}),
        0,
    ),
    "classes as columns": (
        rows(lambda i, p, y: {"id": i, "ok": both(p)[0], "toxic": p, "outcome": NAMES[y], "hour": i % 24}),
        N,
    ),
    "probabilities by class": (
        rows(
            lambda i, p, y: {
                "id": i,
                "model": "m",
                "proba_ok": both(p)[0],
                "proba_toxic": p,
                "label": NAMES[y],
            }
        ),
        N,
    ),
    "NannyML of two classes": (
        rows(
            lambda i, p, y: {
                "id": i,
                "credit_score": p * p,
                "is_new": i % 2,
                "repaid": float(y),
                "timestamp": f"2026-01-01 {i // 60:02}:{i % 60:02}:00.000",
                "y_pred_proba": p,
                "y_pred": int(p > 0.5),
            }
        ),
        N,
    ),
    "an inference table": (rows(inference), 0),
    "captures of SageMaker": (rows(capture), 0),
    "top class alone": (
        rows(lambda i, p, y: {"id": i, "model": "m", "label": NAMES[p > 0.5], "score": max(both(p))}),
        0,
    ),
}


def cell(value: Any) -> Any:
    """Return a value as a writer of CSV or SQL without arrays writes it."""
    return json.dumps(value, default=float) if isinstance(value, list | dict) else value


def ndjson(path: Path, records: Rows) -> Path:
    path.write_text("".join(json.dumps(each, default=float) + "\n" for each in records))
    return path


def array(path: Path, records: Rows, indent: int | None = None) -> Path:
    path.write_text(json.dumps(records, default=float, indent=indent))
    return path


def packed(path: Path, records: Rows) -> Path:
    path.write_bytes(gzip.compress(json.dumps(records, default=float, indent=1).encode()))
    return path


def table(path: Path, records: Rows) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(records[0])
        writer.writerows([cell(value) for value in record.values()] for record in records)
    return path


def parquet(path: Path, records: Rows) -> Path:
    pyarrow = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.parquet").write_table(pyarrow.Table.from_pylist(records), path)
    return path


FILES: Mapping[str, tuple[str, Callable[[Path, Rows], Path]]] = {
    "lines": ("data.ndjson", ndjson),
    "an array": ("data.json", array),
    "an array over many lines": ("wide.json", lambda path, records: array(path, records, 1)),
    "a packed array": ("data.json.gz", packed),
    "CSV": ("data.csv", table),
    "Parquet": ("data.parquet", parquet),
}


def filled(out: Path) -> Path:
    """Return the configuration with the names of classes that the file does not tell."""
    text = out.read_text()
    for k, name in enumerate(NAMES):
        text = text.replace(f"<class of score {k}>", name)
    out.write_text(text)
    return out


def read(config: Path, data: Path, folder: Path) -> Replayed:
    return replay(str(config), [data], folder / "out", lambda path, size: None)


def counts(text: str, words: str) -> int:
    (number,) = re.findall(rf"([\d,]+) {words}", text)
    return int(number.replace(",", ""))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", FILES)
def test_what_init_reads_replay_and_doctor_read_with_the_same_counts(
    tmp_path: Path, shape: str, kind: str
) -> None:
    records, labelled = SHAPES[shape]
    name, write = FILES[kind]
    data, out = write(tmp_path / name, records), tmp_path / "c.yaml"
    summary, _ = write_configuration(InitOptions(data), out)
    config = filled(out)
    assert (counts(summary, "answers of"), counts(summary, "have a label")) == (N, labelled), summary
    done = read(config, data, tmp_path)
    assert (done.accounts.used, done.unused.answers.total()) == (N, 0), done.unused.first
    assert done.accounts.labels.matched == labelled
    text, well = diagnosed(str(config))
    assert well, text
    assert (counts(text, "answers, "), counts(text, "records that cannot be used")) == (LOOKED_AT, 0)
    assert counts(text, "labels, ") == min(labelled, LOOKED_AT)


@pytest.mark.parametrize(
    ("shape", "kind"),
    [
        ("ours", "lines"),
        ("classes as columns", "an array"),
        ("NannyML of two classes", "CSV"),
        ("an inference table", "Parquet"),
        ("captures of SageMaker", "CSV"),
        ("top class alone", "a packed array"),
    ],
)
def test_run_reads_with_the_counts_of_replay(tmp_path: Path, shape: str, kind: str) -> None:
    records, labelled = SHAPES[shape]
    name, write = FILES[kind]
    data, out = write(tmp_path / name, records), tmp_path / "c.yaml"
    write_configuration(InitOptions(data), out)
    replayed = read(filled(out), data, tmp_path)
    config = yaml.safe_load(out.read_text())
    config["export"] = {"listen": "127.0.0.1:0"}
    (tmp_path / "quiet.ndjson").touch()  # followed, it keeps the daemon at work
    config["sources"].append({"kind": "file", "path": str(tmp_path / "quiet.ndjson"), "follow": True})
    with DaemonProcess(tmp_path, config) as daemon:
        daemon.until_used(N)
        seen = daemon.metrics()
    assert (seen.total("answers_received_total"), seen.used) == (
        replayed.accounts.used,
        replayed.accounts.used,
    )
    assert seen.total("rejected_total") == replayed.unused.answers.total() == 0
    matched = seen.total("labels_total", outcome="matched")
    assert matched == replayed.accounts.labels.matched == labelled


@pytest.mark.parametrize("shape", ["ours", "an inference table", "captures of SageMaker"])
def test_a_database_gives_what_a_file_gives(tmp_path: Path, shape: str) -> None:
    records, labelled = SHAPES[shape]
    base = tmp_path / "d.db"
    connection = sqlite3.connect(base)
    names = [*records[0], "n"]
    connection.execute(f"CREATE TABLE rows_ ({', '.join(names)})")
    marks = ", ".join("?" * len(names))
    values = [[*map(cell, record.values()), i] for i, record in enumerate(records)]
    connection.executemany(f"INSERT INTO rows_ VALUES ({marks})", values)
    connection.commit()
    connection.close()
    source = {
        "kind": "sql",
        "driver": "sqlite3",
        "dsn": str(base),
        "table": "rows_",
        "cursor": "n",
        "id": "n",
    }
    tasks = {"t": {"classes": list(NAMES), "models": {"m": {}}}}
    config = tmp_path / "c.yaml"
    config.write_text(yaml.safe_dump({"tasks": tasks, "sources": [source]}))
    text, well = diagnosed(str(config))
    assert well, text
    assert (counts(text, "answers, "), counts(text, "labels, ")) == (LOOKED_AT, min(labelled, LOOKED_AT))


def test_rows_that_cannot_be_used_are_counted_alike(tmp_path: Path) -> None:
    records = [{"id": i, "model": "m", "scores": [0.5, 0.3 if i % 2 else 0.5], "note": "x"} for i in range(N)]
    data, out = ndjson(tmp_path / "d.ndjson", records), tmp_path / "c.yaml"
    summary, complete = write_configuration(InitOptions(data), out)
    assert not complete
    assert f"Not used: {N // 2} rows ({N // 2} wrong sum). The first: d.ndjson, " in summary
    assert "Fields that are not read: note." in summary
    done = read(filled(out), data, tmp_path)
    assert (done.accounts.used, dict(done.unused.answers)) == (N // 2, {"wrong_sum": N // 2})
    text, _ = diagnosed(str(out))
    assert f"{LOOKED_AT // 2} answers, 0 labels, {LOOKED_AT // 2} records that cannot be used" in text
    assert "fields that are not read: note" in text


def test_a_truth_is_told_from_what_the_model_answered(tmp_path: Path) -> None:
    """A label that repeats the prediction is no truth, unless `--label` says so."""

    def label_of(make: Callable[[int, float, int], dict[str, Any]], **options: str) -> tuple[Any, str]:
        out = tmp_path / f"{len(list(tmp_path.iterdir()))}.yaml"
        data = ndjson(out.with_suffix(".ndjson"), rows(make))
        summary, _ = write_configuration(InitOptions(data, **options), out)
        (source,) = load_config(out).sources
        return source.mapping, summary

    def plain(i: int, p: float, y: int) -> dict[str, Any]:
        return {
            "id": i,
            "model": "m",
            "scores": dict(zip(NAMES, both(p), strict=True)),
            "label": NAMES[p > 0.5],
        }

    def within(i: int, p: float, y: int) -> dict[str, Any]:
        return {"id": i, "out": [{"label": NAMES[y], "prob_ok": both(p)[0], "prob_toxic": p}]}

    mapping, summary = label_of(plain)
    assert (mapping.prediction, mapping.label) == ("label", None)
    assert "it is read as what the model predicted, not as the truth" in summary
    mapping, summary = label_of(plain, label="label")
    assert mapping.label == "label"
    assert "Each label of label is the class that was predicted" in summary
    mapping, summary = label_of(within)
    assert (mapping.prediction, mapping.label) == ("out[0].label", None)
    assert "; 0 have a label" in summary


def test_a_field_that_label_does_not_name_is_refused_with_those_there(tmp_path: Path) -> None:
    data = ndjson(tmp_path / "d.ndjson", SHAPES["ours"][0])
    with pytest.raises(ConfigError, match=r"--label: .*d.ndjson has no field lable.*did you mean label"):
        write_configuration(InitOptions(data, label="lable"), tmp_path / "c.yaml")


def test_a_table_of_answers_is_not_taken_for_labels(tmp_path: Path) -> None:
    tasks = {"t": {"classes": list(NAMES)}}

    def doctor(name: str, records: Sequence[dict[str, Any]]) -> tuple[str, bool]:
        table(tmp_path / name, list(records))
        config = tmp_path / "c.yaml"
        config.write_text(yaml.safe_dump({"tasks": tasks, "sources": [{"kind": "file", "path": name}]}))
        return diagnosed(str(config))

    text, well = doctor("a.csv", SHAPES["probabilities by class"][0])
    assert not well
    assert f"all {LOOKED_AT} are read as labels, though they name a model and have fields of scores" in text
    assert "toxic: proba_toxic" in text
    percent = rows(lambda i, p, y: {"id": i, "model": "m", "scores.ok": f"{100 - 100 * p}~", "label": "ok"})
    assert "with this mapping" not in doctor("b.csv", percent)[0]

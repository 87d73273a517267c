"""`blindsight init`: a configuration from files, with placeholders where only a person knows the value."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from monitor.base.errors import ConfigError
from monitor.cli.check.text import render
from monitor.cli.checking import check_configuration
from monitor.cli.init import FEWEST_REFERENCE, InitOptions
from monitor.cli.init import write_configuration as written
from monitor.config.file import load_config
from monitor.config.regression import Regression
from monitor.config.root import Task
from monitor.stats.regression.tolerance import FEWEST_ERRORS
from tests.daemon import command_here, diagnosed, read_windows

N = 2 * FEWEST_REFERENCE


def write_configuration(predictions: Path, labels: Path | None, out: Path, **options: str) -> str:
    """Return the text that init prints on the files."""
    return written(InitOptions(predictions, labels, **options), out)[0]


BEGIN = datetime(2026, 11, 1, tzinfo=UTC)


def simulated(n: int = N, seed: int = 0) -> tuple[list[float], list[int]]:
    """Return probabilities of the second class, and labels that they are right for."""
    rng = np.random.default_rng(seed)
    p = rng.beta(2, 3, n).round(4)
    return p.tolist(), (rng.random(n) < p).astype(int).tolist()


def times(n: int = N) -> list[str]:
    """Return one answer a minute."""
    return [(BEGIN + timedelta(minutes=i)).isoformat() for i in range(n)]


def write_csv(path: Path, columns: Mapping[str, Sequence[Any]]) -> Path:
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(columns)
        rows.writerows(zip(*columns.values(), strict=True))
    return path


def write_lines(path: Path, records: Sequence[Any]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def task_of(out: Path) -> Task:
    (task,) = load_config(out).scored_tasks.values()
    return task


@pytest.mark.slow
def test_a_labelled_table_of_scikit_learn_becomes_a_configuration_with_a_reference(tmp_path: Path) -> None:
    p, y = simulated()
    table = {
        "request_id": range(N),
        "timestamp": times(),
        "model": ["erm"] * N,
        "proba_no": [1 - each for each in p],
        "proba_yes": p,
        "y_true": [("no", "yes")[each] for each in y],
    }
    out = tmp_path / "blindsight.yaml"
    summary = write_configuration(write_csv(tmp_path / "late.csv", table), None, out)
    assert summary.splitlines()[0] == f"{out}: {N:,} answers of erm; {N:,} have a label."
    assert f"Next: blindsight check {out}" in summary
    config, task = load_config(out), task_of(out)
    assert list(config.tasks) == ["late"]
    assert task.classes == ("no", "yes")
    assert task.models["erm"].answers_per_day == 1400
    assert (task.window.size, task.window.max_age_seconds) == (50, 7200)
    mapping = config.sources[0].mapping
    assert mapping is not None
    assert (mapping.id, mapping.time, mapping.label) == ("request_id", "timestamp", "y_true")
    reference = read_windows(tmp_path / "blindsight.reference.ndjson")
    assert [row["label"] for row in reference] == table["y_true"][: N // 2]
    assert reference[0] == {
        "model": "erm",
        "time": "2026-11-01T00:00:00.000Z",
        "scores": pytest.approx([1 - p[0], p[0]]),
        "label": table["y_true"][0],
    }
    assert "The configuration is valid." in render(check_configuration(str(out)))


@pytest.mark.slow
def test_what_it_wrote_replays_without_a_word_from_the_user(tmp_path: Path) -> None:
    p, y = simulated()
    time = times()
    records = [
        {
            "id": i,
            "time": time[i],
            "models": {"a": [1 - p[i], p[i]], "b": {"ok": 1 - p[i], "toxic": p[i]}},
            "label": ("ok", "toxic")[y[i]],
            "groups": {"region": ("eu", "us")[i % 2], "user": str(i)},
        }
        for i in range(N)
    ]
    data = write_lines(tmp_path / "own.ndjson", records)
    out = tmp_path / "own.yaml"
    first = command_here("init", "--from", data, "--out", out)
    assert first.returncode == 0, first.stderr
    task = task_of(out)
    assert (task.classes, list(task.models), task.groups) == (("ok", "toxic"), ["a", "b"], ("region",))
    second = command_here("replay", out, data, "--out", tmp_path / "replayed")
    assert second.returncode == 0, second.stderr
    windows = read_windows(tmp_path / "replayed" / "windows.ndjson")
    assert {line["calibration"]["method"] for line in windows} == {"isotonic"}


@pytest.mark.slow
@pytest.mark.parametrize("spelt", [("bad", "good"), ("good", "bad")])
def test_the_order_of_the_classes_is_the_one_that_labels_speak_for(
    tmp_path: Path, spelt: tuple[str, str]
) -> None:
    p, y = simulated()
    data = write_lines(
        tmp_path / "p.ndjson",
        [{"id": i, "model": "m", "scores": [1 - p[i], p[i]], "time": 1.7e9 + i} for i in range(N)],
    )
    labels = write_csv(tmp_path / "l.csv", {"id": range(N), "label": [spelt[each] for each in y]})
    out = tmp_path / "c.yaml"
    write_configuration(data, labels, out)
    assert task_of(out).classes == spelt
    known = read_windows(tmp_path / "c.reference.ndjson")
    right = [row["label"] == spelt[int(np.argmax(row["scores"]))] for row in known]
    assert np.mean(right) > 0.6


def test_three_classes_are_ordered_by_the_predictions(tmp_path: Path) -> None:
    names = ("late", "early", "none")
    scores = np.random.default_rng(1).dirichlet((1, 1, 1), 300).round(4)
    scores[:, 2] = 1 - scores[:, 0] - scores[:, 1]
    records = [{"model": "m", "probs": row.tolist(), "predicted": names[int(row.argmax())]} for row in scores]
    out = tmp_path / "c.yaml"
    write_configuration(write_lines(tmp_path / "p.ndjson", records), None, out)
    assert task_of(out).classes == names


def test_what_nothing_tells_is_a_placeholder_that_check_names(tmp_path: Path) -> None:
    p, _ = simulated(100)
    data = write_lines(tmp_path / "p.ndjson", [{"scores": [1 - each, each]} for each in p])
    out = tmp_path / "c.yaml"
    summary = write_configuration(data, None, out)
    missing = (
        "tasks.p.classes[0]: expected the name of a class, got the placeholder '<class of score 0>': write",
        "tasks.p.classes[1]: expected the name of a class, got the placeholder '<class of score 1>': write",
    )
    for each in missing:
        assert each in summary
    checked = command_here("check", out)
    assert checked.returncode == 2
    for each in missing:
        assert each in checked.stderr
    assert "model: p" in out.read_text(), "the file's name, as no record names one"
    ended = command_here(
        "init", "--from", data, "--out", tmp_path / "named.yaml", "--task", "spam", "--model", "m"
    )
    assert (ended.returncode, "tasks.spam.classes[0]" in ended.stdout) == (2, True)
    assert "model: m" in (tmp_path / "named.yaml").read_text()


def test_labels_without_an_order_leave_the_classes_to_be_filled_in_and_show_them(tmp_path: Path) -> None:
    p, y = simulated(30)
    records = [
        {"id": i, "model": "m", "scores": [1 - p[i], p[i]], "label": ("n", "y")[y[i]]} for i in range(30)
    ]
    out = tmp_path / "c.yaml"
    write_configuration(write_lines(tmp_path / "p.ndjson", records), None, out)
    assert "classes: [<class of score 0>, <class of score 1>]   # n, y, in the order of the scores" in (
        out.read_text()
    )


@pytest.mark.slow
def test_a_model_without_a_name_has_that_of_the_file(tmp_path: Path) -> None:
    p, y = simulated()
    records = [{"id": i, "scores": {"ok": 1 - p[i], "toxic": p[i]}, "time": 1.7e9 + i} for i in range(N)]
    data = write_lines(tmp_path / "p.ndjson", records)
    labels = write_csv(tmp_path / "l.csv", {"id": range(N), "label": [("ok", "toxic")[each] for each in y]})
    write_configuration(data, labels, tmp_path / "a.yaml")
    assert {row["model"] for row in read_windows(tmp_path / "a.reference.ndjson")} == {"p"}
    write_configuration(data, labels, tmp_path / "b.yaml", model="erm")
    assert {row["model"] for row in read_windows(tmp_path / "b.reference.ndjson")} == {"erm"}
    assert len(load_config(tmp_path / "b.yaml").sources) == 2


def test_a_label_beside_the_top_class_says_whether_the_answer_is_right(tmp_path: Path) -> None:
    p, right = simulated()
    table = {
        "prediction": [5 if i % 2 else 3 for i in range(N)],
        "confidence": p,
        "label": [(5 if i % 2 else 3) if right[i] else 7 for i in range(N)],
    }
    out = tmp_path / "blindsight.yaml"
    summary = write_configuration(write_csv(tmp_path / "digits.csv", table), None, out)
    assert f"{N:,} have a label.\nThe truth is read at label;" in summary
    assert "confidence is the probability of the class at prediction alone" in summary
    reference = read_windows(tmp_path / "blindsight.reference.ndjson")
    assert [row["correct"] for row in reference] == list(map(bool, right[: N // 2]))


def test_confidences_alone_make_a_task_without_classes(tmp_path: Path) -> None:
    p, _ = simulated(100)
    data = write_lines(tmp_path / "p.ndjson", [{"model": "m", "confidence": each} for each in p])
    write_configuration(data, None, tmp_path / "c.yaml")
    assert task_of(tmp_path / "c.yaml").classes == ()


@pytest.mark.parametrize("there", ["c.yaml", "c.reference.ndjson"])
def test_no_file_is_overwritten(tmp_path: Path, there: str) -> None:
    (tmp_path / there).write_text("mine")
    data = write_lines(tmp_path / "p.ndjson", [{"model": "m", "confidence": 0.9}])
    with pytest.raises(ConfigError, match=f"--out: .*{there} exists, and init overwrites no file; move it"):
        write_configuration(data, None, tmp_path / "c.yaml")
    assert (tmp_path / there).read_text() == "mine"
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        (
            {"model": ["m"] * 9, "target": [1.25] * 9},
            "target: expected classes, got numbers such as 1.25, and no field has a predicted number: name "
            "it prediction, for a task of kind: regression (docs/regression.md); got the fields model",
        ),
        (
            {"prediction": list(range(99)), "score": [0.5] * 99},
            "prediction: expected classes, got numbers such as 0, beside scores at score: name the "
            "field score if they are probabilities of a class; if they are predicted numbers, write a",
        ),
        (
            {"prediction": [0.1 * i for i in range(9)], "target": [0, 1, 0] * 3},
            "prediction: expected classes, got numbers such as 0.0, beside a truth of two values: name",
        ),
        (
            {"prediction": [0.1 * i for i in range(9)]},
            "prediction: expected classes, got numbers such as 0.0, beside no truth, and all from 0 to 1",
        ),
        (
            {"model": ["m"] * 9, "score": [10.0 * i for i in range(9)], "label": ["a", "b", "a"] * 3},
            "score: expected probabilities from 0 to 1, got 0 to 80: they look like percent; divide by 100",
        ),
        (
            {"colour": ["red"] * 9},
            "has no scores: expected probabilities from 0 to 1 in fields such as scores, probability or "
            "p_<class>, got the fields colour; if the model predicts numbers, name them prediction and the "
            "truth label, for a task of kind: regression (docs/regression.md)",
        ),
        (
            {"model": ["m"] * 9, "score": [0.5] * 9, "label": ["a", "b", "c"] * 3},
            "expected 2 classes, as score tells, got 3 values of labels and predictions: a, b, c; give each",
        ),
        (
            {"task": ["x", "y", "x"] * 3, "model": ["m"] * 9, "score": [0.5] * 9},
            "expected the records of one task, got x, y; give a file for each task",
        ),
    ],
)
def test_what_cannot_be_used_ends_in_a_sentence(
    tmp_path: Path, columns: dict[str, list[Any]], sentence: str
) -> None:
    data = write_csv(tmp_path / "p.csv", columns)
    with pytest.raises(ConfigError) as refused:
        write_configuration(data, None, tmp_path / "c.yaml")
    assert sentence in str(refused.value)
    assert [each.name for each in tmp_path.iterdir()] == ["p.csv"]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "There is no file"),
        ("", "holds no record; give a file of predictions"),
        ("not JSON\n", "holds no record: not JSON at character 0"),
    ],
)
def test_a_file_that_cannot_be_read_ends_in_a_sentence(
    tmp_path: Path, content: str | None, sentence: str
) -> None:
    data = tmp_path / "p.ndjson"
    if content is not None:
        data.write_text(content)
    ended = command_here("init", "--from", data, "--out", tmp_path / "c.yaml")
    assert ended.returncode == 2
    assert sentence in ended.stderr
    assert "Traceback" not in ended.stderr


def test_labels_that_join_nothing_are_refused(tmp_path: Path) -> None:
    p, _ = simulated(100)
    records = [
        {"id": f"a{i}", "model": "m", "scores": {"n": 1 - each, "y": each}} for i, each in enumerate(p)
    ]
    data = write_lines(tmp_path / "p.ndjson", records)
    labels = write_csv(tmp_path / "l.csv", {"id": ["b1", "b2"], "label": ["n", "y"]})
    with pytest.raises(
        ConfigError, match=r"--labels: no label of .* has the id of an answer: give labels the"
    ):
        write_configuration(data, labels, tmp_path / "c.yaml")


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("p.tsv", b"id\tp_ok\tp_toxic\n1\t0.5\t0.5\n", "a table of text must be CSV with commas"),
        (
            "p.xlsx",
            b"PK\x03\x04\x14\0\6\0",
            "an Excel workbook or a zip archive, not JSON; end the name of such",
        ),
        ("p.csv", "id,p_ok\n1,0.5\n".encode("utf-16-le"), "it is in UTF-16; save the file as UTF-8"),
        (
            "p.csv",
            b"id,probability\n1,95 %\n",
            'probability: got "95 %"; this is a per cent sign: write 0.95',
        ),
        ("p.csv", b'id,score\n1,"0,95"\n', 'score: got "0,95"; this is a decimal comma: write 0.95'),
        (
            "p.csv",
            b"r1,0.25,0.75\nr2,0.5,0.5\n",
            "0.25 is a number: put a line with the names of the columns",
        ),
        ("p.json", b'[["r1", 0.25], ["r2", 0.5]]', "holds no record: expected an object, got an array"),
        (
            "p.ndjson",
            b'{"databricks_request_id": "d", "response": "{\\"predictions\\": [1]}", "request": ""}\n',
            "expected probabilities, got whole numbers only, which are classes: let the server answer",
        ),
        (
            "p.csv",
            b"id,ts,p_toxic,y_true\n"
            + b"".join(b"%d,45981.5,0.%d,%d\n" % (i, i + 10, i % 2) for i in range(60)),
            "$.time: 45981.5 is a date of a spreadsheet, in days, 2025-11-20",
        ),
    ],
)
def test_a_file_of_another_kind_is_refused_with_what_is_wrong(
    tmp_path: Path, name: str, content: bytes, sentence: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError) as refused:
        write_configuration(tmp_path / name, None, tmp_path / "c.yaml")
    assert sentence in str(refused.value)


def both(p: float) -> list[float]:
    return [round(1 - p, 4), p]


def rows_of(make: Any, n: int = 600) -> list[dict[str, Any]]:
    return [make(i, p, y) for i, (p, y) in enumerate(zip(*simulated(n), strict=True))]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "mapping", "labelled"),
    [
        (  # the label follows from the score
            lambda i, p, y: {"id": i, "model": "m", "p": p, "class": int(p > 0.3), "outcome": y},
            {"id": "id", "model": "model", "scores": "p", "label": "outcome"},
            600,
        ),
        (
            lambda i, p, y: {
                "id": i,
                "model": "m",
                "scores": dict(zip(("no", "yes"), both(p), strict=True)),
                "label": ("no", "yes")[p > 0.3],
            },
            {"id": "id", "model": "model", "scores": "scores", "prediction": "label"},
            0,
        ),
        (  # one score, whose name is that of a class, and whole floats as ids
            lambda i, p, y: {"id": float(i), "day": "2026-11-20", "p_toxic": p, "y_true": ("ok", "toxic")[y]},
            {"id": "id", "scores": "p_toxic", "label": "y_true"},
            600,
        ),
        (
            lambda i, p, y: {"id": i, "time": "2026-11-20", "p_toxic": p, "y_true": ("ok", "toxic")[y]},
            {"id": "id", "time": "time", "time_zone": "UTC", "scores": "p_toxic", "label": "y_true"},
            600,
        ),
        (
            lambda i, p, y: {
                "id": i,
                "out": [{"label": name, "score": s} for name, s in zip(("NEG", "POS"), both(p), strict=True)],
            },
            {"id": "id", "class_scores": {"NEG": "out[0].score", "POS": "out[1].score"}},
            0,
        ),
        (
            lambda i, p, y: {"id": i, "probability": {"type": 1, "values": both(p)}, "label": float(y)},
            {"id": "id", "scores": "probability.values", "label": "label"},
            600,
        ),
        (  # within the answer of the model
            lambda i, p, y: {"id": i, "output": {"p": {"a": both(p)[0], "b": p}, "cls": "ab"[y]}},
            {"id": "id", "scores": "output.p"},
            0,
        ),
    ],
)
def test_only_what_can_be_the_truth_is_read_as_it(
    tmp_path: Path, make: Any, mapping: dict[str, Any], labelled: int
) -> None:
    data = write_lines(tmp_path / "d.ndjson", rows_of(make))
    summary = write_configuration(data, None, tmp_path / "c.yaml")
    assert f"600 answers of {'m' if 'model' in mapping else 'd'}; {labelled} have a label" in summary
    (source,) = load_config(tmp_path / "c.yaml").sources
    assert source.mapping is not None
    proposed = source.mapping.model_dump(exclude_defaults=True)
    proposed.pop("features", None)
    proposed.pop("constants", None)
    assert proposed == mapping


def test_features_of_the_records_are_proposed_with_their_kinds(tmp_path: Path) -> None:
    records = [
        {
            "id": f"r{i}",
            "model": "m",
            "scores": [1 - p, p],
            "features": {"hour": i % 24, "carrier": "DA"[i % 2], "empty": None},
        }
        for i, p in enumerate(simulated(600)[0])
    ]
    write_configuration(write_lines(tmp_path / "d.ndjson", records), None, tmp_path / "c.yaml")
    text = (tmp_path / "c.yaml").read_text(encoding="utf-8")
    assert "    # features: {carrier: text, hour: number}   # watches them: docs/features.md" in text


def test_names_that_no_text_can_hold_are_passed_over(tmp_path: Path) -> None:
    lines = [f"r{i},m,{1 - p:.4f},{p},x,y" for i, p in enumerate(simulated(60)[0])]
    names = b"id,model,scores.ok,scores.toxic,a\0b,gr\xf6\xdfe\n"
    (tmp_path / "p.csv").write_bytes(names + "\n".join(lines).encode())
    ended = command_here("init", "--from", tmp_path / "p.csv", "--out", tmp_path / "c.yaml")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "Fields that are not read: a" in ended.stdout


def test_rows_and_labels_that_it_leaves_are_told(tmp_path: Path) -> None:
    records = rows_of(lambda i, p, y: {"id": i, "model": "m", "scores": {"ok": both(p)[0], "toxic": p}}, 40)
    (tmp_path / "p.json").write_text(json.dumps({"data": records}))
    summary = write_configuration(tmp_path / "p.json", None, tmp_path / "c.yaml")
    assert "The mapping reads data[0].scores alone, and leaves 39 rows that stand beside it" in summary
    floats = [{**record, "id": 2.0**53 + 2 * i, "label": "spam"} for i, record in enumerate(records)]
    summary = write_configuration(write_lines(tmp_path / "f.ndjson", floats), None, tmp_path / "f.yaml")
    assert (
        "id is not read as the id: expected text or integers, got 9007199254740992.0; write it as" in summary
    )
    assert "Not used: 40 labels (40 unknown class)" in summary


def test_a_file_with_bytes_of_another_encoding_in_an_unread_field_is_read(tmp_path: Path) -> None:
    records = rows_of(lambda i, p, y: {"id": i, "model": "m", "scores": {"ok": both(p)[0], "toxic": p}}, 60)
    data = b"".join(
        json.dumps({**each, "note": "X"}).encode().replace(b"X", b"\xfc") + b"\n" for each in records
    )
    (tmp_path / "p.ndjson").write_bytes(data.replace(b'"note"', b'"seen": NaN, "note"'))
    summary = write_configuration(tmp_path / "p.ndjson", None, tmp_path / "c.yaml")
    assert "60 answers of m; 0 have a label" in summary
    assert "Fields that are not read: seen, note" in summary


def numbers(n: int = N, seed: int = 0) -> dict[str, list[Any]]:
    """Return predicted numbers with what a model may state about their errors, and the truth."""
    rng = np.random.default_rng(seed)
    hour = rng.integers(0, 24, n)
    sd = 1 + hour / 24
    predicted = 20 + hour + rng.normal(0, 5, n)
    columns = {
        "predicted": predicted,
        "truth": predicted + sd * rng.normal(size=n),
        "sd": sd,
        "low": predicted - 1.645 * sd,
        "high": predicted + 1.645 * sd,
    }
    return {"hour": hour.tolist()} | {name: column.round(4).tolist() for name, column in columns.items()}


def regression_of(out: Path) -> Regression:
    task = task_of(out)
    assert isinstance(task, Regression)
    return task


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["csv", "ndjson", "parquet"])
def test_predicted_numbers_become_a_regression_that_replays(tmp_path: Path, suffix: str) -> None:
    have = numbers()
    table = {
        "uuid": [f"r{i}" for i in range(N)],
        "ts": times(),
        "y_pred": have["predicted"],
        "y_true": have["truth"],
        "std": have["sd"],
        "hour": have["hour"],
    }
    data = tmp_path / f"delay.{suffix}"
    if suffix == "csv":
        write_csv(data, table)
    elif suffix == "parquet":
        arrow = pytest.importorskip("pyarrow")
        pytest.importorskip("pyarrow.parquet").write_table(arrow.table(table), data)
    else:
        write_lines(data, [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)])
    out = tmp_path / "c.yaml"
    first = command_here("init", "--from", data, "--out", out)
    assert first.returncode == 0, first.stderr
    checked = command_here("check", out)
    for text in (first.stdout, checked.stdout):
        (line,) = (each for each in text.splitlines() if "backtest" in each)
        assert line.endswith("--incident START END"), "drops of accuracy need an accuracy"
    task = regression_of(out)
    mapping = load_config(out).sources[0].mapping
    assert mapping is not None
    assert (mapping.prediction, mapping.sigma, mapping.label) == ("y_pred", "std", "y_true")
    assert mapping.features == {"hour": "hour"}
    errors = np.abs(np.subtract(have["predicted"], have["truth"])[: N // 2])
    assert task.tolerance is not None
    assert np.mean(errors <= task.tolerance) == pytest.approx(0.8, abs=0.01)
    reference = read_windows(tmp_path / "c.reference.ndjson")
    assert len(reference) == N // 2
    assert reference[0] == {
        "model": "delay",
        "time": "2026-11-01T00:00:00.000Z",
        "prediction": have["predicted"][0],
        "label": have["truth"][0],
        "sigma": have["sd"][0],
        "features": {"hour": have["hour"][0]},
    }
    assert task.features == {"hour": "number"}
    second = command_here("replay", out, data, "--out", tmp_path / "replayed")
    assert second.returncode == 0, second.stderr
    windows = read_windows(tmp_path / "replayed" / "windows.ndjson")
    assert {each["estimates"][0]["metric"] for each in windows} == {"within_tolerance"}
    assert all("value" in each["values"][0] for each in windows if each["size"] >= 50), "mae is estimated"
    text, well = diagnosed(str(out))
    assert well, text
    assert "100 answers, 100 labels, 0 records that cannot be used" in text


@pytest.mark.parametrize("names", ["ours", "theirs", "objects"])
def test_features_of_predicted_numbers_are_in_the_configuration_and_the_reference(
    tmp_path: Path, names: str
) -> None:
    have, n = numbers(FEWEST_ERRORS), FEWEST_ERRORS
    predicted, label = ("y_pred", "y_true") if names == "theirs" else ("prediction", "label")
    features = {
        "hour": have["hour"],
        "carrier": [("DL", "AA", "UA")[i % 3] for i in range(n)],
        "serial": range(n),
        "day": [i // 20 for i in range(n)],
        "date": [f"2026-11-{1 + i % 9:02}" for i in range(n)],
        "release": [f"r{i // 40}" for i in range(n)],
        "rare": [1.5 * i if i % 2 else "" for i in range(n)],
        "same": [7] * n,
    }
    columns = {"id": [f"r{i}" for i in range(n)], predicted: have["predicted"], label: have["truth"]}
    if names == "objects":
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        objects = zip(*(features[name] for name in ("hour", "carrier")), strict=True)
        records = [
            row | {"features": {"hour": hour, "carrier": carrier}}
            for row, (hour, carrier) in zip(rows, objects, strict=True)
        ]
        data = write_lines(tmp_path / "p.ndjson", records)
    else:
        data = write_csv(tmp_path / "p.csv", columns | features)
    write_configuration(data, None, tmp_path / "c.yaml")
    assert regression_of(tmp_path / "c.yaml").features == {"hour": "number", "carrier": "text"}
    reference = read_windows(tmp_path / "c.reference.ndjson")
    assert [row["features"] for row in reference] == [
        {"hour": hour, "carrier": carrier}
        for hour, carrier in zip(have["hour"], features["carrier"], strict=True)
    ]


def test_quantiles_and_labels_of_another_file_become_a_regression(tmp_path: Path) -> None:
    have, n = numbers(FEWEST_ERRORS), FEWEST_ERRORS
    data = write_csv(
        tmp_path / "p.csv",
        {"id": range(n), "p5": have["low"], "p50": have["predicted"], "p95": have["high"]},
    )
    labels = write_csv(tmp_path / "l.csv", {"id": range(n), "actual": have["truth"]})
    out = tmp_path / "c.yaml"
    write_configuration(data, labels, out)
    assert regression_of(out).quantiles == (0.05, 0.5, 0.95)
    mapping = load_config(out).sources[0].mapping
    assert mapping is not None
    assert (mapping.prediction, mapping.quantiles["0.95"]) == ("p50", "p95")
    reference = read_windows(tmp_path / "c.reference.ndjson")
    assert reference[0]["label"] == have["truth"][0]
    assert reference[0]["quantiles"] == {
        "0.05": have["low"][0],
        "0.5": have["predicted"][0],
        "0.95": have["high"][0],
    }


def test_several_models_that_predict_numbers_share_the_labels(tmp_path: Path) -> None:
    have = numbers(FEWEST_ERRORS)
    records = [
        {
            "id": str(i),
            "models": {"a": predicted, "b": predicted + 1},
            "label": truth,
            "groups": {"region": "eu"},
        }
        for i, (predicted, truth) in enumerate(zip(have["predicted"], have["truth"], strict=True))
    ]
    out = tmp_path / "c.yaml"
    write_configuration(write_lines(tmp_path / "own.ndjson", records), None, out)
    task = regression_of(out)
    assert (list(task.models), task.groups) == (["a", "b"], ("region",))
    reference = read_windows(tmp_path / "c.reference.ndjson")
    assert sorted({row["model"] for row in reference}) == ["a", "b"]
    assert len(reference) == 2 * FEWEST_ERRORS


def test_predicted_numbers_without_enough_labels_leave_the_reference_to_be_filled_in(tmp_path: Path) -> None:
    have = numbers(FEWEST_ERRORS - 1)
    columns = {"prediction": have["predicted"], "target": have["truth"]}
    out = tmp_path / "c.yaml"
    summary = write_configuration(write_csv(tmp_path / "p.csv", columns), None, out)
    assert (
        "tasks.p.reference.path: expected a file, got the placeholder '<file of answers with labels>': write "
        "its path here"
    ) in summary


@pytest.mark.parametrize("right", [0.9, 1.0])
def test_a_tolerance_that_errors_of_zero_do_not_show_is_left_to_be_filled_in(
    tmp_path: Path, right: float
) -> None:
    have = numbers(N)
    exact = np.arange(N) < right * N
    columns = {"prediction": np.where(exact, have["truth"], have["predicted"]), "target": have["truth"]}
    out = tmp_path / "c.yaml"
    summary = write_configuration(write_csv(tmp_path / "p.csv", columns), None, out, label="target")
    assert "got '<largest error of a right answer>'" in summary
    assert ("so each error is 0: is it true?" in summary) == (right == 1.0)


def test_a_number_that_equals_the_prediction_is_not_read_as_the_truth(tmp_path: Path) -> None:
    same = numbers(N)["predicted"]
    data = write_csv(tmp_path / "p.csv", {"id": range(N), "delay_pred": same, "delay": same})
    summary = write_configuration(data, None, tmp_path / "c.yaml")
    assert "delay is the predicted number in every row: it is read as what the model predicted" in summary


def test_the_name_of_a_target_shows_its_prediction_and_doctor_proposes_it(tmp_path: Path) -> None:
    have = numbers(N)
    columns = {"id": range(N), "delay": have["truth"], "delay_pred": have["predicted"]}
    data = write_csv(tmp_path / "p.csv", columns)
    out = tmp_path / "c.yaml"
    write_configuration(data, None, out)
    mapping = load_config(out).sources[0].mapping
    assert mapping is not None
    assert (mapping.prediction, mapping.label) == ("delay_pred", "delay")
    document = yaml.safe_load(out.read_text())
    del document["sources"][0]["mapping"]
    out.write_text(yaml.safe_dump(document))
    text, well = diagnosed(str(out))
    assert not well
    assert "with this mapping 100 can be used instead of 0" in text
    assert "prediction: delay_pred\n      label: delay\n" in text

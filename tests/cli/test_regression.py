"""Predicted numbers end to end: `replay` of a table, also on several cores, a daemon's store, `verify`."""

from __future__ import annotations

import csv
import re
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from monitor.agent.resume import tasks_as_json
from monitor.base.registry import metric_words
from monitor.base.results import Estimate
from monitor.cli import labels_ask
from monitor.cli.replay import replay
from monitor.cli.replay_screen import print_results
from monitor.cli.series_table import newest_error
from monitor.stats.estimate.hajek import hajek, weighted_counts
from monitor.store import Store
from tests.cli.test_replay_processes import both
from tests.cli.verify.test_verify import change_line
from tests.daemon import (
    DaemonProcess,
    command,
    command_here,
    diagnosed,
    ndjson,
    read_lines,
    read_windows,
    write_configuration,
)
from tests.numbers import Record, predictions, reference_of_numbers, regression
from tests.services.process import end_of
from tests.streams import Rig

MODELS = ("gbm", "net")


def records(n: int = 800, shift: float = 0.0) -> list[Record]:
    """Return two models in turn; each has half of its labels along, and the others later."""
    own = [
        predictions(seed, n, model, shift=shift, sigma=model == "net", labelled=0.5)
        for seed, model in enumerate(MODELS)
    ]
    rows = [
        row | {"groups": {"region": "eu" if i % 3 else "us"}}
        for i, pair in enumerate(zip(*own, strict=True))
        for row in pair
    ]
    late = [
        {"id": row["id"], "label": row["prediction"] + 1.0, "time": row["time"] + 60}
        for row in rows[:200]
        if "label" not in row
    ]
    return rows + late


def settings(folder: Path, **more: Any) -> dict[str, Any]:
    known = [
        row for k, model in enumerate(MODELS) for row in predictions(k + 7, 1000, model, 1.6e9, sigma=bool(k))
    ]
    (folder / "reference.ndjson").write_bytes(ndjson(known))
    task = {
        "kind": "regression",
        "unit": "minutes",
        "tolerance": 1.5,
        "window": {"size": 100, "min_size": 20, "max_age_seconds": 3600},
        "reference": {"path": "reference.ndjson"},
        "features": {"x": "number"},
        "groups": ["region"],
    }
    return {"tasks": {"t": task}, "export": {"listen": "127.0.0.1:0"}} | more


def as_csv(rows: list[Record], path: Path) -> None:
    names = ["id", "time", "model", "prediction", "label", "features.x", "groups.region"]
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(names)
        for row in rows:
            inner = {
                f"{field}.{name}": value
                for field in ("features", "groups")
                for name, value in row.get(field, {}).items()
            }
            writer.writerow([(row | inner).get(name, "") for name in names])


@pytest.mark.process
def test_a_replay_of_a_table_prints_the_share_within_the_tolerance(tmp_path: Path) -> None:
    path = write_configuration(tmp_path, settings(tmp_path))
    rows = records()
    as_csv(rows, tmp_path / "in.csv")
    done = command("replay", path, tmp_path / "in.csv", "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert "last share within tolerance, %" in done.stdout
    windows = [w for w in read_windows(tmp_path / "out" / "windows.ndjson") if w["model"] == "gbm"]
    by = {
        name: np.mean(
            [
                each["value"]
                for window in windows
                for each in window["estimates"]
                if (each["metric"], each["estimator"]) == ("within_tolerance", name) and "value" in each
            ]
        )
        for name in ("average_confidence", "realised")
    }
    own = [row for row in rows if row.get("model") == "gbm" and "label" in row]
    known = [abs(row["label"] - row["prediction"]) <= 1.5 for row in own]
    # The late labels are right, and there are 50 of them at most; two standard errors of 400 rows are 0.045.
    assert by["realised"] == pytest.approx(np.mean(known), abs=0.08)
    assert by["average_confidence"] == pytest.approx(np.mean(known), abs=0.08)
    values = [each for window in windows for each in window["values"] if each["metric"] == "mae"]
    assert {each["unit"] for each in values} == {"minutes"}
    estimated = [each["value"] for each in values if each["estimator"] == "doubly_robust" and "value" in each]
    mae = np.mean([abs(row["label"] - row["prediction"]) for row in own])
    assert np.mean(estimated) == pytest.approx(mae, abs=0.25)  # the labels are of 200 rows


@pytest.mark.process
def test_several_processes_write_the_same_bytes(tmp_path: Path) -> None:
    path = write_configuration(tmp_path, settings(tmp_path))
    (tmp_path / "in.ndjson").write_bytes(ndjson(records()))
    both(path, [tmp_path / "in.ndjson"], piece=30_000)


def test_a_wide_terminal_shows_the_newest_mean_absolute_error() -> None:
    own = regression(unit="minutes")
    rig = Rig({"t": own}, {"t": reference_of_numbers(own, predictions(1, 300, start=1.6e9))})
    rig.feed(predictions(2, 100, labelled=0.0))
    [known] = rig.engine.view().series
    assert re.fullmatch(r"\d\.\d+ \(\d\.\d+ to \d\.\d+\) minutes", str(newest_error(known)))
    rig.feed(predictions(3, 100, shift=9.0, start=1.71e9, labelled=0.0))
    [beyond] = rig.engine.view().series
    assert str(newest_error(beyond)) == "features beyond the reference"
    assert str(newest_error(beyond, "rmsle")) == "–"
    rig.feed(predictions(4, 100, shift=9.0, start=1.72e9))
    [labelled] = rig.engine.view().series
    assert re.fullmatch(r"\d+\.\d+ \(.* to .*\) minutes, of 100 labels", str(newest_error(labelled)))


@pytest.mark.parametrize(("metrics", "has_column"), [(["mae", "bias"], True), (["bias"], False)])
def test_a_replay_prints_a_column_of_the_mae_only_if_it_is_configured(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    metrics: list[str],
    has_column: bool,
) -> None:
    own = settings(tmp_path)
    own["tasks"]["t"]["error_metrics"] = metrics
    path = write_configuration(tmp_path, own)
    (tmp_path / "in.ndjson").write_bytes(ndjson(predictions(2, 200)))
    done = replay(path, [tmp_path / "in.ndjson"], tmp_path / "out", lambda *_: None)
    monkeypatch.setenv("COLUMNS", "250")
    print_results(done, tmp_path / "out", as_json=False)
    assert ("last mae" in capsys.readouterr().out) == has_column


def test_ids_are_forgotten_in_a_store_that_no_agent_uses(tmp_path: Path) -> None:
    own = regression()
    rig = Rig({"t": own}, {"t": reference_of_numbers(own, predictions(1, 300, start=1.6e9))})
    rows = predictions(2, 150, labelled=0.0)
    rig.feed(rows)
    with closing(Store(tmp_path / "state")) as store:
        store.commit(rig.engine.changes(), config=tasks_as_json(dict(rig.settings.tasks)))
    config = settings(tmp_path, store={"path": str(tmp_path / "state")})
    done = command_here("forget", write_configuration(tmp_path, config), rows[0]["id"])
    assert done.returncode == 0, done.stderr
    assert "1 answer" in done.stdout


@pytest.mark.process
def test_a_store_keeps_the_numbers_over_a_restart_and_verify_recomputes_them(tmp_path: Path) -> None:
    rows = records()
    (tmp_path / "in.ndjson").write_bytes(ndjson(rows[:900]))
    source = {"kind": "file", "path": "in.ndjson"}
    more = {
        "sources": [source],
        "reports": {"path": "windows.ndjson"},
        "store": {"path": "state", "every_seconds": 0.05},
    }
    config = settings(tmp_path, **more)
    config["tasks"]["t"]["error_metrics"] = ["mae", "wape", "r2"]
    for part in (rows[:900], rows):
        (tmp_path / "in.ndjson").write_bytes(ndjson(part))
        with DaemonProcess(tmp_path, config) as daemon:
            assert end_of(daemon.process) == 0
    path = write_configuration(tmp_path, config)
    done = command_here("verify", path, tmp_path / "state", tmp_path / "in.ndjson", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "different              0" in done.stdout
    store = tmp_path / "state" / "blindsight.sqlite"
    change_line(store, 1, lambda window: window["values"][0].update(value=9.0), model="gbm")
    done = command_here("verify", path, tmp_path / "state", tmp_path / "in.ndjson", cwd=tmp_path)
    assert done.returncode == 1
    assert "t, gbm, window 1: values.mae.value was reported as 9.0, recomputed as" in done.stdout
    # The late labels came after the restart, and met the stored predictions.
    revised = {(w["model"], w["window"]) for w in read_lines(tmp_path / "windows.ndjson") if w["revision"]}
    assert {("gbm", 0), ("net", 0)} <= revised


def test_doctor_joins_labels_that_are_numbers(tmp_path: Path) -> None:
    (tmp_path / "in.ndjson").write_bytes(ndjson(records(100)))
    config = settings(tmp_path, sources=[{"kind": "file", "path": str(tmp_path / "in.ndjson")}])
    text, well = diagnosed(str(write_configuration(tmp_path, config)))
    assert well, text
    assert "0 records that cannot be used" in text


def test_doctor_takes_no_standard_deviation_for_a_score(tmp_path: Path) -> None:
    rows = [row | {"sigma": 1.0} for row in records(100)]
    (tmp_path / "in.ndjson").write_bytes(ndjson(rows))
    config = settings(tmp_path, sources=[{"kind": "file", "path": str(tmp_path / "in.ndjson")}])
    text, _ = diagnosed(str(write_configuration(tmp_path, config)))
    assert "exactly 0 or 1" not in text


def test_drawn_answers_come_back_as_labels_that_are_numbers(tmp_path: Path) -> None:
    path = str(write_configuration(tmp_path, settings(tmp_path)))
    own = [row for row in records(100) if row.get("model") == "gbm"]
    truth = {row["id"]: row.pop("label", row.get("prediction", 0.0) + 1.0) for row in own}
    (tmp_path / "in.ndjson").write_bytes(ndjson(own))
    selection = labels_ask.ask(path, [tmp_path / "in.ndjson"], 30, task="t")
    assert len(selection.records) == 30
    predicted = {row["id"]: row["prediction"] for row in own}
    assert all(each["predicted"] == predicted[each["id"]] for each in selection.records)
    # Answers with a small feature have small errors, so that their confidences are high.
    by_id = {row["id"]: row["features"]["x"] for row in own}
    pairs = [(by_id[each["id"]], each["calibrated_confidence"]) for each in selection.records]
    assert np.corrcoef(np.array(pairs).T)[0, 1] < -0.5
    (forecast,) = selection.forecasts
    assert isinstance(forecast, labels_ask.ModelForecast)
    assert (forecast.answers, forecast.calibrated) == (100, True)
    assert f"interval of the realised {metric_words('within_tolerance')}: " in str(forecast)
    filled = [each | {"label": truth[each["id"]], "time": 1.7e9} for each in selection.records]
    (tmp_path / "labels.ndjson").write_bytes(ndjson(filled))
    files = [tmp_path / "labels.ndjson", tmp_path / "in.ndjson"]
    done = replay(path, files, tmp_path / "out", lambda *_: None)
    assert not done.unused.labels
    window = next(each for each in read_windows(tmp_path / "out" / "windows.ndjson") if not each["group"])
    (realised,) = [each for each in window["estimates"] if each["estimator"] == "realised"]
    right = np.array([abs(each["label"] - each["predicted"]) <= 1.5 for each in filled])
    weights = 1 / np.float32([each["probability"] for each in filled]).astype(np.float64)
    expected = hajek(weighted_counts(right, weights))
    assert isinstance(expected, Estimate)
    assert (realised["size"], realised["value"]) == (30, pytest.approx(expected.value, abs=1e-6))


def test_answers_with_a_number_as_label_are_not_drawn_again(tmp_path: Path) -> None:
    path = str(write_configuration(tmp_path, settings(tmp_path)))
    rows = records(150)
    (tmp_path / "in.ndjson").write_bytes(ndjson(rows))
    chosen = labels_ask.ask(path, [tmp_path / "in.ndjson"], 1000).records
    assert chosen
    labelled = {row["id"] for row in rows if "label" in row}
    assert sorted(each["id"] for each in chosen) == sorted({row["id"] for row in rows} - labelled)


def test_active_testing_draws_no_answers_that_are_numbers(tmp_path: Path) -> None:
    path = write_configuration(tmp_path, settings(tmp_path))
    (tmp_path / "in.ndjson").write_bytes(ndjson(records(100)))
    options = ("-n", "5", "--task", "t", "--for", "active_testing")
    done = command_here("labels", "ask", path, tmp_path / "in.ndjson", *options)
    assert done.returncode == 2
    assert "--for: active_testing needs the scores of classes, and tasks.t has none" in " ".join(
        done.stderr.split()
    )


def test_check_names_a_bound_that_the_reference_misses(tmp_path: Path) -> None:
    config = settings(tmp_path)
    config["tasks"]["t"]["objective"] = {"within_tolerance": {"min": 0.99}}
    done = command_here("check", write_configuration(tmp_path, config))
    assert done.returncode == 0, done.stderr
    assert re.search(
        r"objective\.within_tolerance: the share within tolerance of gbm in the reference is 0\.8\d\d, "
        r"outside the bound, so that the objective is breached or at risk",
        " ".join(done.stdout.split()),
    )


def test_a_reference_that_is_too_short_is_an_error_at_the_start(tmp_path: Path) -> None:
    config = settings(tmp_path)
    (tmp_path / "reference.ndjson").write_bytes(ndjson(predictions(1, 50)))
    done = command_here("check", write_configuration(tmp_path, config))
    assert done.returncode == 2
    words = " ".join(done.stderr.split())
    assert "tasks.t.reference.path" in words
    assert "the size of the errors needs at least 200 labelled rows, got 50; give a longer reference" in words

"""`blindsight verify`: a real daemon's store against its input, and whatever was changed in either."""

from __future__ import annotations

import gzip
import json
import platform
import re
import signal
import sqlite3
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from monitor import PoissonBinomial
from monitor.base.records import Floats, no_features
from monitor.cli.verify import Findings
from monitor.cli.verify.recompute import compared
from monitor.cli.verify.rows import Rows
from monitor.cli.verifying import findings_table
from monitor.config.root import Task
from monitor.reports.window_report import CalibrationLine, WindowLine, WrittenEstimate, rfc3339, rounded
from monitor.stats.calibration.none import Uncalibrated
from monitor.stats.estimate.poisson_binomial import RESOLUTION
from tests.daemon import DaemonProcess, command_here, configuration, ndjson, read_windows
from tests.engine.test_covariates import FEATURES, flights
from tests.services.process import end_of
from tests.streams import CLASSES, Record, answers

MODELS = ("erm", "irm")


def records(n: int, seed: int = 5) -> list[Record]:
    """Return two models with groups and late labels; every 40th answer comes twice, some lines are broken."""
    rng = np.random.default_rng(seed)
    own = [answers(rng, n // 2, model, start=1.7e9 + seed * 1e6) for model in MODELS]
    records: list[Any] = []
    for i, pair in enumerate(zip(*own, strict=True)):
        for record in pair:
            records.append(record | {"groups": {"region": "eu" if i % 3 else "us"}})
        if i % 20 == 19:
            records += [records[-7], b'{"broken', {"id": pair[0]["id"], "label": "ok", "time": 1.7e9}]
    return records


def reference(folder: Path) -> str:
    rows = [r for model in MODELS for r in answers(np.random.default_rng(1), 1000, model, labelled=True)]
    (folder / "reference.ndjson").write_bytes(ndjson(rows))
    return "reference.ndjson"


def config(folder: Path, sources: list[dict[str, Any]] | None = None, **task: Any) -> dict[str, Any]:
    settings = {"groups": ["region"], "metrics": ["accuracy", "ece", "class_ece"]} | task
    if "reference" not in settings:
        settings["reference"] = {"path": reference(folder)}
    return configuration(
        task=settings,
        sources=sources or [{"kind": "file", "path": "in.ndjson"}],
        reports={"path": "windows.ndjson"},
        store={"path": "state", "every_seconds": 0.05},
    )


def run(folder: Path, settings: dict[str, Any], fresh: bool = False) -> list[dict[str, Any]]:
    """Run the daemon to the end of its file; the windows that it reported."""
    with DaemonProcess(folder, settings, fresh=fresh) as daemon:
        assert end_of(daemon.process) == 0, daemon.log
    return read_windows(folder / "windows.ndjson")


def verify(folder: Path, *words: str | Path, store: str = "state") -> subprocess.CompletedProcess[str]:
    return command_here("verify", "config.yaml", store, *words, cwd=folder)


def counts(done: subprocess.CompletedProcess[str]) -> dict[str, int]:
    rows = re.findall(
        r"^ *(windows checked|equal|different|rows missing|not checkable) +(\d+)", done.stdout, re.M
    )
    assert len(rows) == 5, done.stdout + done.stderr
    return {name: int(n) for name, n in rows}


def clean(windows: int) -> dict[str, int]:
    return {
        "windows checked": windows, "equal": windows, "different": 0, "rows missing": 0, "not checkable": 0,
    }  # fmt: skip


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    """Return a folder with a whole run in it: nothing in there may be changed."""
    folder = tmp_path_factory.mktemp("verify")
    (folder / "in.ndjson").write_bytes(ndjson(records(3000)))
    return folder, run(folder, config(folder))


@pytest.fixture
def copy(ran: tuple[Path, list[dict[str, Any]]], tmp_path: Path) -> Path:
    """Return a copy of that folder, to be changed; its paths are those of the run."""
    folder, _ = ran
    (tmp_path / "in.ndjson").write_bytes((folder / "in.ndjson").read_bytes())
    (tmp_path / "config.yaml").write_bytes((folder / "config.yaml").read_bytes())
    (tmp_path / "reference.ndjson").write_bytes((folder / "reference.ndjson").read_bytes())
    source = sqlite3.connect(folder / "state" / "blindsight.sqlite")
    target = sqlite3.connect(tmp_path / "backup.sqlite")
    source.backup(target)
    source.close()
    target.close()
    return tmp_path


def test_names_that_an_older_version_took_are_no_rows_that_are_missing(
    copy: Path, monkeypatch: pytest.MonkeyPatch, ran: tuple[Path, list[dict[str, Any]]]
) -> None:
    for module in ("names", "structs"):  # as if the names of the models in the store were too long today
        monkeypatch.setattr(f"connectors.formats.decode.{module}.MAX_NAME", 2)
    done = verify(copy, "in.ndjson", store="backup.sqlite")
    assert counts(done) == clean(len(ran[1]))


def test_a_run_verifies_clean_every_window_of_it(ran: tuple[Path, list[dict[str, Any]]]) -> None:
    folder, windows = ran
    done = verify(folder, "in.ndjson")
    assert (counts(done), done.returncode, done.stderr) == (clean(len(windows)), 0, "")
    assert len(windows) > 50
    assert {w["group"] for w in windows} == {"", "region=eu", "region=us"}
    assert {e["metric"] for w in windows for e in w["estimates"] if "value" in e} == {
        "accuracy",
        "ece",
        "class_ece",
    }


def test_a_backup_does_as_well_as_the_folder(copy: Path) -> None:
    done = verify(copy, "in.ndjson", store="backup.sqlite")
    assert (counts(done)["different"], done.returncode) == (0, 0)


def test_a_compressed_copy_is_known_by_its_name(copy: Path) -> None:
    (copy / "in.ndjson.gz").write_bytes(gzip.compress((copy / "in.ndjson").read_bytes()))
    (copy / "in.ndjson").unlink()
    done = verify(copy, "in.ndjson.gz", store="backup.sqlite")
    assert (counts(done)["different"], done.returncode) == (0, 0)


def test_one_changed_digit_in_the_input_is_found(copy: Path) -> None:
    data = (copy / "in.ndjson").read_bytes()
    place = data.index(b'"scores":[', len(data) // 2) + len(b'"scores":[0.')
    score = re.compile(rb'"scores":\[([0-9.]+),([0-9.]+)\]')
    match = score.search(data, place - 20)
    assert match is not None
    line = data[data.rindex(b"\n", 0, match.start()) + 1 : data.index(b"\n", match.start()) + 1]
    swapped = line.replace(match[0], b'"scores":[%s,%s]' % (match[2], match[1]))
    assert data.count(line) == 1
    (copy / "in.ndjson").write_bytes(data.replace(line, swapped.rstrip(b"\n").ljust(len(line) - 1) + b"\n"))
    done = verify(copy, "in.ndjson", store="backup.sqlite")
    assert done.returncode == 1
    assert counts(done)["different"] == 2, "the model's window, and its group's"
    assert re.search(
        r"t, \w+, window \d+: estimates.accuracy.value was reported as 0\.\d+, recomputed as", done.stdout
    )


def test_a_record_made_unreadable_changes_the_size(copy: Path) -> None:
    data = (copy / "in.ndjson").read_bytes()
    place = data.index(b"\n", len(data) // 3) + 1
    while b'"scores"' not in data[place : data.index(b"\n", place)]:
        place = data.index(b"\n", place) + 1
    (copy / "in.ndjson").write_bytes(data[:place] + b"!" + data[place + 1 :])
    done = verify(copy, "in.ndjson", store="backup.sqlite")
    assert done.returncode == 1
    assert "size was reported as 100, recomputed as 99" in done.stdout


def more(value: float) -> float:
    return round(value + 1e-6, 6)


def last_of(window: dict[str, Any]) -> int:
    return next(iter(window["positions"].values()))[1]


def change_line(
    store: Path, window: int, change: Callable[[dict[str, Any]], None], model: str = "erm"
) -> None:
    connection = sqlite3.connect(store)
    query = "SELECT id, line FROM report WHERE model = ? AND grp = '' AND window = ?"
    [(number, line)] = connection.execute(query, (model, window)).fetchall()
    report = json.loads(line)
    change(report)
    connection.execute("UPDATE report SET line = ? WHERE id = ?", (json.dumps(report).encode(), number))
    connection.commit()
    connection.close()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda w: w["estimates"][0].update(value=more(w["estimates"][0]["value"])), "accuracy.value"),
        (lambda w: w["estimates"][1].update(upper=more(w["estimates"][1]["upper"])), "ece.upper"),
        (lambda w: w.update(size=99), "size was reported as 99, recomputed as 100"),
        (lambda w: w.update(start_time="2023-11-14T22:13:20.001Z"), "start_time was reported as"),
        (lambda w: next(iter(w["positions"].values())).__setitem__(1, last_of(w) + 1), "positions."),
    ],
)
def test_one_changed_digit_in_a_stored_line_is_found(copy: Path, change: Any, message: str) -> None:
    change_line(copy / "backup.sqlite", 7, change)
    done = verify(copy, "in.ndjson", store="backup.sqlite")
    assert (counts(done)["different"], done.returncode) == (1, 1)
    assert "t, erm, window 7: " in done.stdout
    assert message in done.stdout


OLDER_PROCESSOR = {"NPY_DISABLE_CPU_FEATURES": "X86_V3 X86_V4", "OPENBLAS_CORETYPE": "Nehalem"}
"""No wide registers and no fused products: numpy's and OpenBLAS' sums differ in the last bits."""


def overconfident(n: int, seed: int, labelled: bool = False) -> list[Record]:
    """Return scores of 0.8 to 1 of which 3 in 10 are right: calibration errors large enough for their last
    bits to be seen in six decimals now and then.
    """
    rng = np.random.default_rng(seed)
    records = answers(rng, n, labelled=labelled)
    for record, score in zip(records, rng.uniform(0.8, 1.0, n).tolist(), strict=True):
        record["scores"] = [score, 1 - score]
        if labelled:
            record["label"] = "ok" if rng.random() < 0.3 else "bad"
    return records


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the other arithmetic is an older x86-64's")
def test_a_store_written_on_another_kind_of_processor_is_not_accused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in.ndjson").write_bytes(ndjson(overconfident(30_000, seed=21)))
    (tmp_path / "reference.ndjson").write_bytes(ndjson(overconfident(1000, seed=22, labelled=True)))
    settings = config(
        tmp_path,
        groups=[],
        metrics=["accuracy", "ece", "class_ece", "auroc"],
        reference={"path": "reference.ndjson"},
        calibration={"method": "platt"},
        interval="poisson_binomial",
    )
    here = run(tmp_path, settings)
    (tmp_path / "state").rename(tmp_path / "state.here")
    (tmp_path / "windows.ndjson").unlink()
    with monkeypatch.context() as elsewhere:
        for name, value in OLDER_PROCESSOR.items():
            elsewhere.setenv(name, value)
        there = run(tmp_path, settings, fresh=True)
    assert [w["estimates"] for w in here] != [w["estimates"] for w in there], "both computed the same bits"
    for store in ("state", "state.here"):
        assert counts(verify(tmp_path, "in.ndjson", store=store)) == clean(300)
    change_line(
        tmp_path / "state" / "blindsight.sqlite",
        7,
        lambda w: w["estimates"][0].update(value=more(w["estimates"][0]["value"])),
    )
    done = verify(tmp_path, "in.ndjson")
    assert (counts(done)["different"], done.returncode) == (1, 1)
    assert "t, erm, window 7: estimates.accuracy.value was reported as" in done.stdout


def window_of(scores: Floats, estimate: dict[str, Any], level: float) -> list[tuple[str, str, str]]:
    """Return the differences in a window of these scores with this reported estimate."""
    n, width = scores.shape
    rows = np.arange(n)
    line = WindowLine(
        task="t", model="m", group="", version="", window=0, revision=0, size=n, closed_by="size",
        start_time=rfc3339(0.0), end_time=rfc3339(n - 1.0), charts=(), objectives=(),
        calibration=CalibrationLine("none", 0),
        estimates=(WrittenEstimate(estimator="average_confidence", **estimate),),
        positions={"in": (0, n - 1)},
    )  # fmt: skip
    classes = {"classes": CLASSES} if width == 2 else {}
    task = Task.model_validate({"window": {"size": n}, "level": level} | classes)
    predicted, keys = scores.argmax(axis=1), rows.astype(np.uint64)
    used = Rows(
        scores, predicted, rows.astype(float), keys, np.full(n, "in", dtype=object), rows, no_features(n)
    )
    return compared(line, task, used, Uncalibrated(width))


def estimated(metric: str, value: float, lower: float, upper: float, level: float, n: int) -> dict[str, Any]:
    values = {"value": value, "lower": lower, "upper": upper, "level": level}
    return {"metric": metric, "size": n} | {name: rounded(each) for name, each in values.items()}


def test_an_end_is_the_next_count_only_where_the_last_bits_decide_it() -> None:
    confidence = np.random.default_rng(4).uniform(0.6, 1.0, 80)
    exact = PoissonBinomial(confidence)
    low = exact.quantile(0.03)
    at_the_edge = 1 - 2 * (float(exact.cdf[low]) + RESOLUTION)  # half an ulp decides between low and the next
    for level, allowed in ((at_the_edge, {low, low + 1}), (0.95, {exact.interval(0.95)[0]})):
        high = exact.interval(level)[1]
        for lower, upper in ((low + k, high + j) for k in (-1, 0, 1, 2) for j in (-1, 0, 1)):
            estimate = estimated("accuracy", float(confidence.mean()), lower / 80, upper / 80, level, 80)
            fields = {name for name, _, _ in window_of(confidence[:, None], estimate, level)}
            assert ("estimates.accuracy.lower" in fields) == (lower not in allowed)
            assert ("estimates.accuracy.upper" in fields) == (upper != high)


@pytest.mark.parametrize(("chance", "either"), [(0.5, True), (0.4999, False)])
def test_a_metric_is_known_or_not_where_the_last_bits_decide_it(chance: float, either: bool) -> None:
    scores = np.array([[1.0, 0.0]] * 29 + [[1 - chance, chance]])
    assert window_of(scores, {"metric": "recall", "unknown": "one class only"}, 0.95) == []
    differences = window_of(scores, estimated("recall", 0.0, 0.0, 0.0, 0.95, 30), 0.95)
    assert (differences == []) == either


def test_what_labels_correct_is_passed_over_and_so_are_ends_that_they_moved_in_older_windows(
    tmp_path: Path,
) -> None:
    (tmp_path / "in.ndjson").write_bytes(ndjson(answers(np.random.default_rng(5), 600, labelled=True)))
    kept = {"method": "isotonic", "refit_labels": None}  # of windows by an earlier one nothing can be checked
    windows = run(tmp_path, config(tmp_path, calibration=kept))
    assert [one["estimates"][1]["estimator"] for one in windows] == ["corrected"] * 6
    done = verify(tmp_path, "in.ndjson")
    assert (counts(done), done.returncode) == (clean(6), 0)
    assert "objectives, 6 estimates from labels." in done.stdout
    assert "Not recomputed: 6 estimates of corrected." in done.stdout
    store = tmp_path / "state" / "blindsight.sqlite"
    change_line(store, 5, lambda w: w["estimates"][0].update(lower=0.1, labels=599))
    done = verify(tmp_path, "in.ndjson")
    assert counts(done) == clean(6)
    assert "objectives, the ends of 1 interval that labels moved, 6 estimates from labels." in done.stdout
    change_line(store, 5, lambda w: w["estimates"][0].pop("labels"))
    done = verify(tmp_path, "in.ndjson")
    assert "t, erm, window 5: estimates.accuracy.lower was reported as 0.1," in done.stdout


def test_a_higher_revision_is_the_one_that_counts(copy: Path) -> None:
    connection = sqlite3.connect(copy / "backup.sqlite")
    [(task, model, group, window, line)] = connection.execute(
        "SELECT task, model, grp, window, line FROM report WHERE model = 'erm' AND grp = '' AND window = 3"
    ).fetchall()
    wrong = json.loads(line) | {"revision": 1, "size": 98}
    connection.execute(
        "INSERT INTO report (task, model, grp, window, revision, line) VALUES (?, ?, ?, ?, 1, ?)",
        (task, model, group, window, json.dumps(wrong).encode()),
    )
    connection.commit()
    connection.close()
    done = verify(copy, "in.ndjson", store="backup.sqlite")
    assert "t, erm, window 3: size was reported as 98, recomputed as 100" in done.stdout


def test_a_file_that_ends_early_lacks_rows_and_accuses_nobody(copy: Path) -> None:
    data = (copy / "in.ndjson").read_bytes()
    (copy / "in.ndjson").write_bytes(data[: data.index(b"\n", len(data) // 2) + 1])
    totals = counts(verify(copy, "in.ndjson", store="backup.sqlite"))
    assert totals["different"] == 0
    assert 0 < totals["rows missing"] < totals["windows checked"] + totals["rows missing"]


def test_where_nothing_can_be_checked_that_is_no_success(copy: Path) -> None:
    (copy / "in.ndjson").write_bytes(b"")
    done = verify(copy, "in.ndjson", store="backup.sqlite")
    totals = counts(done)
    assert (totals["windows checked"], totals["different"], done.returncode) == (0, 0, 1)
    assert totals["rows missing"] > 50
    assert done.stdout.endswith("Nothing could be checked.\n")


@pytest.mark.parametrize(
    ("findings", "ending"),
    [
        (Findings(equal=1), "charts, objectives."),
        (Findings(equal=1, realised=1), "objectives, 1 estimate from labels."),
        (Findings(equal=1, realised=1200), ", 1,200 estimates from labels."),
        (
            Findings(equal=1, realised=1, corrected=1200),
            "Not recomputed: 1,200 estimates of corrected. A line does not say which labels were known when "
            "its window closed, and those of earlier windows have a part.",
        ),
        (Findings(equal=1, rivals=2), "objectives, 2 estimates of cbpe_sem, doc and atc."),
        (
            Findings(equal=1, rivals=1, realised=1),
            "objectives, 1 estimate of cbpe_sem, doc and atc, 1 estimate from labels.",
        ),
    ],
)
def test_what_is_not_recomputed_is_said(findings: Findings, ending: str) -> None:
    assert findings_table(findings).endswith(ending)


def test_what_the_reference_taught_does_not_count_as_from_labels(tmp_path: Path) -> None:
    """Two models of five windows without a label: DoC-Feat and ATC of each, and its own estimate."""
    rng = np.random.default_rng(8)
    (tmp_path / "in.ndjson").write_bytes(ndjson([r for m in MODELS for r in answers(rng, 500, m)]))
    settings = config(tmp_path, groups=[], estimators=["average_confidence", "doc", "atc"])
    windows = run(tmp_path, settings)
    done = verify(tmp_path, "in.ndjson")
    assert (counts(done), done.returncode) == (clean(len(windows)), 0)
    assert len(windows) == 10
    assert done.stdout.endswith("Not: charts, objectives, 20 estimates of cbpe_sem, doc and atc.\n")


def test_reports_that_the_store_dropped_leave_the_others_checkable(copy: Path) -> None:
    connection = sqlite3.connect(copy / "backup.sqlite")
    connection.execute("DELETE FROM report WHERE id <= 20")
    connection.commit()
    connection.close()
    done = verify(copy, "in.ndjson", store="backup.sqlite")
    assert (counts(done)["different"], done.returncode) == (0, 0)


def test_a_calibration_that_is_gone_is_no_accusation(tmp_path: Path) -> None:
    rows = records(2000)
    (tmp_path / "in.ndjson").write_bytes(ndjson(rows[:1500]))
    follow = [{"kind": "file", "path": "in.ndjson", "follow": True}]
    with DaemonProcess(tmp_path, config(tmp_path, follow)) as daemon:
        daemon.until(lambda: len(read_windows(tmp_path / "windows.ndjson")) > 20, "windows are written")
        other = answers(np.random.default_rng(2), 1500, "erm", labelled=True)
        (tmp_path / "other.ndjson").write_bytes(
            ndjson(other + answers(np.random.default_rng(3), 1500, "irm", labelled=True))
        )
        assert "was reloaded" in daemon.reload(config(tmp_path, follow, reference={"path": "other.ndjson"}))
        before = len(read_windows(tmp_path / "windows.ndjson"))
        with (tmp_path / "in.ndjson").open("ab") as file:
            file.write(ndjson(rows[1500:]))
        daemon.until(lambda: len(read_windows(tmp_path / "windows.ndjson")) > before + 4, "more are written")
        daemon.end()
    windows = read_windows(tmp_path / "windows.ndjson")
    assert {w["calibration"]["version"] for w in windows} == {1, 2}
    done = verify(tmp_path, "in.ndjson")
    old = sum(w["calibration"]["version"] == 1 for w in windows)
    assert counts(done) == clean(len(windows) - old) | {"not checkable": old}
    assert f"{old}: its calibration, version 1, is no longer in the store" in done.stdout
    assert done.returncode == 0


def test_windows_with_calibrations_of_their_own_are_checked_with_their_reference(tmp_path: Path) -> None:
    (tmp_path / "reference.ndjson").write_bytes(ndjson(flights(0, 2000, 0.3, start=1.6e9)))
    stream = [*flights(1, 1500, 0.3), *flights(2, 1500, 0.8, start=1.75e9)]
    options = {"features": FEATURES, "calibration": {"method": "covariates"}, "window": {"size": 250}}
    follow = [{"kind": "file", "path": "in.ndjson", "follow": True}]
    settings = config(tmp_path, follow, groups=[], reference={"path": "reference.ndjson"}, **options)
    for part, wanted in ((stream[:1600], 6), (stream, 12)):  # killed with 100 answers in the open window
        (tmp_path / "in.ndjson").write_bytes(ndjson(part))
        with DaemonProcess(tmp_path, settings) as daemon:
            daemon.until(
                lambda n=wanted: len(read_windows(tmp_path / "windows.ndjson")) >= n, "windows are written"
            )
            daemon.end(signal.SIGKILL)
    windows = read_windows(tmp_path / "windows.ndjson")
    assert {w["calibration"]["method"] for w in windows} == {"covariates"}
    assert min(w["calibration"]["effective_rows"] for w in windows) < 1500
    done = verify(tmp_path, "in.ndjson")
    assert (counts(done), done.returncode) == (clean(len(windows)), 0)
    changed = json.loads((tmp_path / "in.ndjson").read_bytes().splitlines()[10])
    changed["features"]["carrier"] = "B" if changed["features"]["carrier"] == "A" else "A"
    (tmp_path / "in.ndjson").write_bytes(ndjson([*stream[:10], changed, *stream[11:]]))
    assert counts(verify(tmp_path, "in.ndjson"))["different"] == 1
    (tmp_path / "reference.ndjson").write_bytes(ndjson(flights(9, 2000, 0.3, start=1.6e9)))
    done = verify(tmp_path, "in.ndjson")
    assert counts(done)["not checkable"] == len(windows)
    assert "its reference is not the one that reference.path names now" in done.stdout


def test_kills_in_between_do_not_matter(tmp_path: Path) -> None:
    data = ndjson(records(6000))
    follow = [{"kind": "file", "path": "in.ndjson", "follow": True}]
    settings = config(tmp_path, follow, reference={"first_windows": 5}, metrics=["accuracy"])
    size = 0
    (tmp_path / "in.ndjson").touch()
    for part in range(4):
        end = len(data) if part == 3 else data.index(b"\n", len(data) * (part + 1) // 4) + 1
        with DaemonProcess(tmp_path, settings) as daemon:
            with (tmp_path / "in.ndjson").open("ab") as file:
                file.write(data[size:end])
            size, wanted = end, (part + 1) * 20
            daemon.until(
                lambda n=wanted: len(read_windows(tmp_path / "windows.ndjson")) >= n, "windows are written"
            )
            daemon.end(signal.SIGKILL)
    with DaemonProcess(tmp_path, settings) as daemon:
        daemon.until(lambda: len(read_windows(tmp_path / "windows.ndjson")) == 120, "all windows are written")
        daemon.end()
    windows = read_windows(tmp_path / "windows.ndjson")
    assert counts(verify(tmp_path, "in.ndjson")) == clean(len(windows))


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ([], "FILE…: there is none; give the raw input, or --partition NAME=FILE"),
        (["absent.ndjson"], "absent.ndjson: no window names this file, there are "),
        (["labels.ndjson"], "NAME=labels.ndjson, or omit it if it has labels alone"),
        (["--partition", "topic"], "--partition: expected NAME=FILE, got 'topic'"),
        (["--partition", "topic=in.ndjson"], "--partition: no window names 'topic', there are "),
    ],
)
def test_wrong_words_are_told(ran: tuple[Path, list[dict[str, Any]]], words: list[str], why: str) -> None:
    done = verify(ran[0], *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert why in done.stderr


def test_what_is_no_store_is_told(ran: tuple[Path, list[dict[str, Any]]], tmp_path: Path) -> None:
    done = verify(ran[0], "in.ndjson", store=str(tmp_path))
    assert done.returncode == 1
    assert "blindsight.sqlite: there is no store; give the folder of store.path" in done.stderr
    done = verify(ran[0], "in.ndjson", store="in.ndjson")
    assert (done.returncode, "is damaged" in done.stderr) == (1, True)

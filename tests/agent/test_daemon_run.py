"""`blindsight run` on files and a pipe, as users meet it: a process, its port, its files, its signals."""

from __future__ import annotations

import gzip
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from monitor import __version__
from tests.daemon import DaemonProcess, Metrics, configuration, ndjson, read_windows
from tests.services.process import ServiceUnavailable, end_of
from tests.services.prometheus_server import binary, promtool_check_metrics
from tests.streams import answers

ACCURACY = {"task": "t", "model": "erm", "metric": "accuracy"}
ESTIMATE = {**ACCURACY, "estimator": "average_confidence"}
REALISED = {**ACCURACY, "estimator": "realised"}


def stream(n: int, **more: Any) -> list[dict[str, Any]]:
    return answers(np.random.default_rng(3), n, labelled=True, **more)


def following(folder: Path, **rest: Any) -> dict[str, Any]:
    return configuration(
        sources=[{"kind": "file", "path": "in.ndjson", "follow": True}],
        reports={"path": "windows.ndjson"},
        rejects={"path": "rejects.ndjson"},
        **rest,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("run")


@pytest.fixture(scope="module")
def daemon(folder: Path) -> Iterator[DaemonProcess]:
    """After 850 labelled answers and two lines that cannot be used."""
    spoilt = [b'{"id": 1, "model": "erm", "scores": [0.5, 1.7]}', b"not JSON"]
    (folder / "in.ndjson").write_bytes(ndjson([*stream(850), *spoilt]))
    objective = {"accuracy": {"min": 0.5}}
    with DaemonProcess(folder, following(folder, task={"objective": objective})) as started:
        started.until_used(850)
        yield started


@pytest.fixture(scope="module")
def scrape(daemon: DaemonProcess) -> Metrics:
    return daemon.metrics()


def test_the_estimate_and_its_interval_are_those_of_the_last_window_written(
    daemon: DaemonProcess, folder: Path, scrape: Metrics
) -> None:
    daemon.until(lambda: len(read_windows(folder / "windows.ndjson")) == 8, "eight windows are written")
    last = read_windows(folder / "windows.ndjson")[-1]
    estimates = {e["estimator"]: e for e in last["estimates"]}
    for name, key in (("estimate", "value"), ("estimate_lower", "lower"), ("estimate_upper", "upper")):
        exported = scrape.value(f"{name}_ratio", **ESTIMATE)
        assert exported == pytest.approx(estimates["average_confidence"][key], abs=5e-7)
    starts = np.cumsum([0, *(len(ndjson([record])) for record in stream(850))])
    assert last["positions"] == {str(folder / "in.ndjson"): [starts[700], starts[799]]}


def test_the_realised_accuracy_is_the_share_of_labels_that_the_model_got_right(
    folder: Path, scrape: Metrics
) -> None:
    newest = stream(850)[700:800]
    right = sum((record["scores"][1] > 0.5) == (record["label"] == "bad") for record in newest)
    assert scrape.value("estimate_ratio", **REALISED) == pytest.approx(right / 100)
    assert scrape.value("labels_total", task="t", outcome="matched") == 850


def test_the_chart_and_the_objective_are_exported(scrape: Metrics) -> None:
    center, lower, upper = (
        scrape.value(f"control_{line}_ratio", **ACCURACY) for line in ("center", "lower", "upper")
    )
    assert lower < center < upper
    assert scrape.value("out_of_control", **ACCURACY) == 0
    assert scrape.value("state", task="t", model="erm", state="in_control") == 1
    assert scrape.value("objective_ratio", **ACCURACY) == 0.5
    assert scrape.value("objective_state", **ACCURACY, state="met") == 1


def test_every_answer_is_accounted_for(scrape: Metrics) -> None:
    parts = ("predictions_total", "answers_pending", "duplicates_total", "rejected_total", "shed_total")
    assert [scrape.total(part) for part in parts] == [800, 50, 0, 2, 0]
    assert scrape.total("answers_received_total") == 852
    assert scrape.value("rejected_total", source="in.ndjson", reason="out_of_range") == 1
    assert scrape.value("rejected_total", source="in.ndjson", reason="malformed") == 1


def test_what_could_not_be_used_is_written_beside_the_reason(folder: Path) -> None:
    rejected = read_windows(folder / "rejects.ndjson")
    assert [(line["reason"], line["source"]) for line in rejected] == [
        ("out_of_range", "in.ndjson"),
        ("malformed", "in.ndjson"),
    ]
    assert rejected[0]["message"] == "$.scores[1]: expected a number from 0 to 1, got 1.7"
    assert rejected[1]["raw"] == "not JSON"
    whole = (folder / "in.ndjson").read_bytes()
    assert whole[rejected[1]["position"] :].startswith(b"not JSON")


@pytest.mark.parametrize("path", ["/-/ready", "/-/healthy"])
def test_it_is_ready_and_healthy(daemon: DaemonProcess, path: str) -> None:
    assert daemon.get(path) == (200, f"Blindsight is {path[3:]}.\n")


def test_the_page_shows_the_model(daemon: DaemonProcess) -> None:
    status, page = daemon.get("/")
    assert status == 200
    assert "erm" in page
    assert __version__ in page


def test_nothing_else_is_served(daemon: DaemonProcess) -> None:
    assert daemon.get("/config")[0] == 404


@pytest.mark.prometheus
def test_promtool_finds_nothing_wrong_with_the_live_scrape(scrape: Metrics) -> None:
    try:
        binary("promtool")
    except ServiceUnavailable as missing:
        pytest.skip(str(missing))
    assert promtool_check_metrics(scrape.text) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_and_ends_within_five_seconds(tmp_path: Path, number: signal.Signals) -> None:
    (tmp_path / "in.ndjson").write_bytes(ndjson(stream(230)))
    with DaemonProcess(tmp_path, following(tmp_path)) as daemon:
        daemon.until_used(230)
        with (tmp_path / "in.ndjson").open("ab") as more:
            more.write(ndjson(stream(45, start=1.75e9)))
        daemon.until_used(275)
        code, seconds = daemon.end(number)
        windows = read_windows(tmp_path / "windows.ndjson")
        log = daemon.log
    assert code == 0
    assert seconds < 5
    assert [(w["window"], w["size"], w["closed_by"]) for w in windows] == [
        (0, 100, "size"),
        (1, 100, "size"),
        (2, 75, "end"),
    ]
    _, stopping, after = log.rpartition("INFO Stopping: asked to.\n")
    # A recalibration that was under way may still bring its answer while the rest drains.
    assert stopping
    assert all("recalibration" in line for line in after.splitlines())
    assert "Traceback" not in log


def test_a_finished_file_ends_the_run_with_every_window_written(tmp_path: Path) -> None:
    (tmp_path / "in.ndjson").write_bytes(ndjson(stream(1020)).rstrip(b"\n"))
    config = configuration(
        sources=[{"kind": "file", "path": "in.ndjson"}], reports={"path": "windows.ndjson"}
    )
    with DaemonProcess(tmp_path, config) as daemon:
        assert end_of(daemon.process) == 0
        assert "Stopping: every source has ended." in daemon.log
    windows = read_windows(tmp_path / "windows.ndjson")
    assert [w["size"] for w in windows] == [100] * 10 + [20]
    assert [w["closed_by"] for w in windows] == ["size"] * 10 + ["end"]


def test_records_come_through_a_pipe_until_it_is_closed(tmp_path: Path) -> None:
    config = configuration(sources=[{"kind": "stdin"}], reports={"path": "windows.ndjson"})
    with DaemonProcess(tmp_path, config, stdin=subprocess.PIPE) as daemon:
        assert daemon.process.stdin is not None
        daemon.process.stdin.write(ndjson(stream(120)))
        daemon.process.stdin.flush()
        daemon.until_used(120)
        assert daemon.metrics().value("source_up", source="stdin") == 1
        daemon.process.stdin.write(ndjson(stream(30, start=1.75e9)))
        daemon.process.stdin.close()
        assert end_of(daemon.process) == 0
    assert [w["size"] for w in read_windows(tmp_path / "windows.ndjson")] == [100, 50]


def test_a_pipe_closed_at_once_ends_the_run_in_peace(tmp_path: Path) -> None:
    with DaemonProcess(tmp_path, configuration(sources=[{"kind": "stdin"}])) as daemon:
        assert end_of(daemon.process) == 0
        assert "every source has ended" in daemon.log


def test_whatever_comes_in_between_good_records_is_counted_by_its_reason(tmp_path: Path) -> None:
    good = stream(120)
    broken = {
        "encoding": b'{"id": "\xff\xfe"}',
        "malformed": b'{"id": 1, ',
        "too_large": b'{"id": "' + b"x" * 10_000_000 + b'"}',
        "no_scores": b'{"id": "a", "model": "erm"}',
        "wrong_sum": b'{"id": "b", "model": "erm", "scores": [0.5, 0.6]}',
        "logits": b'{"id": "c", "model": "erm", "scores": [-3.2, 4.1]}',
        "no_model": b'{"id": "d", "scores": [0.5, 0.5]}',
        "unknown_task": b'{"id": "e", "model": "erm", "task": "spam", "scores": [0.5, 0.5]}',
        "time_unit": b'{"id": "f", "model": "erm", "time": 1795168800123, "scores": [0.5, 0.5]}',
    }
    (tmp_path / "in.ndjson").touch()
    with DaemonProcess(tmp_path, following(tmp_path)) as daemon:
        for i, line in enumerate(broken.values()):
            with (tmp_path / "in.ndjson").open("ab") as file:
                file.write(ndjson([*good[10 * i : 10 * i + 10], line]))
        daemon.until_used(90)
        daemon.until(lambda: daemon.metrics().total("rejected_total") >= len(broken), "all are counted")
        metrics = daemon.metrics()
        assert {reason: metrics.value("rejected_total", reason=reason) for reason in broken} == dict.fromkeys(
            broken, 1
        )
        assert metrics.total("rejected_total") == len(broken)
        assert metrics.total("answers_received_total") == 90 + len(broken)
        assert daemon.get("/-/ready")[0] == daemon.get("/-/healthy")[0] == 200
        assert daemon.end()[0] == 0
        assert "Traceback" not in daemon.log
    rejected = read_windows(tmp_path / "rejects.ndjson")
    assert [line["reason"] for line in rejected] == list(broken)
    assert all(len(line["raw"]) <= 2000 for line in rejected)
    assert [w["size"] for w in read_windows(tmp_path / "windows.ndjson")] == [90]


def test_a_damaged_file_is_shown_down_while_the_other_source_goes_on(tmp_path: Path) -> None:
    whole = gzip.compress(ndjson(stream(5_000)))
    (tmp_path / "old.ndjson.gz").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "in.ndjson").write_bytes(ndjson(stream(150, model="irm")))
    config = following(tmp_path)
    config["sources"].append({"kind": "file", "path": "old.ndjson.gz"})
    with DaemonProcess(tmp_path, config) as daemon:
        daemon.until_used(150)
        daemon.until_value(0, "source_up", source="old.ndjson.gz")
        daemon.until_value(1, "rejected_total", source="old.ndjson.gz", reason="malformed")
        status, text = daemon.get("/-/ready")
        assert status == 503
        assert (
            f"Source old.ndjson.gz is not connected: {tmp_path}/old.ndjson.gz is damaged after byte" in text
        )
        assert daemon.get("/-/healthy")[0] == 200
        assert daemon.metrics().value("predictions_total", task="t", model="irm") == 100
        assert daemon.end()[0] == 0
        assert "Traceback" not in daemon.log

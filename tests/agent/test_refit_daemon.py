"""Refits in a real daemon: published while records flow, and its worker killed, hung and starved."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.daemon import DaemonProcess, configuration, ndjson, read_windows
from tests.services.process import PATIENCE_SECONDS, wait_until
from tests.streams import CLASSES, Record

MODELS = ("a", "b")
WINDOW = 100


def requests(first: int, count: int) -> list[Record]:
    """Return two models' scores of the same requests, twice as bold as they should be; every fifth has its
    label.
    """
    rng = np.random.default_rng(first)
    claimed = rng.normal(0.5, 2.0, (count, 1)) + rng.normal(0.0, 0.5, (count, 2))
    bad = rng.random(count) < 1 / (1 + np.exp(-claimed.mean(axis=1) / 2))
    scores = np.round(1 / (1 + np.exp(-claimed)), 6).tolist()
    records = []
    for i, row in enumerate(scores):
        record: Record = {
            "id": f"r{first + i}",
            "time": 1.7e9 + first + i,
            "models": {model: [1 - score, score] for model, score in zip(MODELS, row, strict=True)},
        }
        if i % 5 == 0:
            record["label"] = CLASSES[int(bad[i])]
        records.append(record)
    return records


def config(folder: Path, **ssme: Any) -> dict[str, Any]:
    task = {
        "models": {model: {} for model in MODELS},
        "estimators": ["average_confidence", "realised", "ssme"],
        "calibration": {"method": "ssme"},
        "ssme": {"every_windows": 4, "seconds": PATIENCE_SECONDS} | ssme,
    }
    return configuration(
        task=task,
        sources=[{"kind": "file", "path": str(folder / "in.ndjson"), "follow": True}],
        reports={"path": str(folder / "windows.ndjson")},
    )


def append(folder: Path, first: int, count: int) -> None:
    with (folder / "in.ndjson").open("ab") as file:
        file.write(ndjson(requests(first, count)))


def workers(daemon: DaemonProcess) -> list[int]:
    """Return ids of its worker processes."""
    children = Path(f"/proc/{daemon.process.pid}/task").glob("*/children")
    pids = [int(pid) for path in children for pid in path.read_text().split()]
    return [pid for pid in pids if b"monitor.agent.refit_child" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def until_used(daemon: DaemonProcess, count: int) -> None:
    daemon.until(
        lambda: daemon.metrics().total("answers_received_total") == len(MODELS) * count, f"{count} are used"
    )


def until_refitted(daemon: DaemonProcess, rows: int) -> None:
    daemon.until(lambda: daemon.metrics().value("refit_rows", task="t") == rows, f"{rows} rows are refitted")


def test_refits_are_published_and_a_killed_worker_costs_one_of_them(tmp_path: Path) -> None:
    append(tmp_path, 0, 200)
    with DaemonProcess(tmp_path, config(tmp_path)) as daemon:
        until_refitted(daemon, 200)
        metrics = daemon.metrics()
        assert (
            metrics.value("refit_labelled_rows", task="t")
            == metrics.value("effective_labels", task="t")
            == 40
        )
        assert metrics.total("prevalence_ratio", task="t") == pytest.approx(1.0)
        assert metrics.value("refit_failures_total", task="t") == 0
        assert metrics.value("refit_duration_seconds_count", task="t") == 1

        [child] = workers(daemon)
        os.kill(child, signal.SIGSTOP)  # so that it is surely at work when it is killed
        append(tmp_path, 200, 200)
        until_used(daemon, 400)
        os.kill(child, signal.SIGKILL)
        daemon.until_value(1, "refit_failures_total", task="t")
        assert daemon.metrics().value("refit_rows", task="t") == 200, "the last good fit holds"
        assert (
            "was refused, the last good one stays in use: the worker process was killed (signal 9"
            in daemon.log
        )
        assert "the newest refit was refused: the worker process was killed" in daemon.get("/")[1]

        append(tmp_path, 400, 200)
        until_refitted(daemon, 600)
        [other] = workers(daemon)
        assert other != child
        append(tmp_path, 600, 100)
        daemon.until(lambda: len(read_windows(tmp_path / "windows.ndjson")) == 14, "14 windows")
        estimators = {
            labels["estimator"]
            for labels in map(dict, daemon.metrics().all("estimate_ratio", model="a", metric="accuracy"))
        }
        assert {"ssme", "ensemble", "labelled", "average_confidence"} <= estimators
        code, _ = daemon.end()
        assert code == 0
        wait_until(lambda: not Path(f"/proc/{other}").exists(), "the worker has ended with the daemon")
    versions = {w["window"]: w["calibration"] for w in read_windows(tmp_path / "windows.ndjson")}
    assert versions[0]["method"] != "ssme"
    assert versions[6] == {"method": "ssme", "version": 2}


def test_a_worker_that_hangs_is_given_up_while_records_are_used_and_metrics_served(tmp_path: Path) -> None:
    append(tmp_path, 0, 200)
    with DaemonProcess(tmp_path, config(tmp_path)) as daemon:
        until_refitted(daemon, 200)
        [child] = workers(daemon)
        os.kill(child, signal.SIGSTOP)
        shorter = config(tmp_path, seconds=3.0)
        wait_until(lambda: "was reloaded: " in daemon.reload(shorter), "its time is short")
        append(tmp_path, 200, 200)
        until_used(daemon, 400)
        append(tmp_path, 400, 300)
        until_used(daemon, 700)
        assert daemon.get("/-/healthy")[0] == 200
        daemon.until(lambda: daemon.metrics().total("refit_failures_total") >= 1, "it is given up")
        wait_until(lambda: child not in workers(daemon), "the stopped child is gone")
        assert re.search(
            r"refused, .*the refit took longer than the 3 s that ssme\.seconds allows", daemon.log
        )


def test_a_daemon_killed_leaves_no_worker(tmp_path: Path) -> None:
    append(tmp_path, 0, 200)
    with DaemonProcess(tmp_path, config(tmp_path)) as daemon:
        until_refitted(daemon, 200)
        [child] = workers(daemon)
        daemon.end(signal.SIGKILL)
        wait_until(lambda: not Path(f"/proc/{child}").exists(), "the worker has ended with the daemon")

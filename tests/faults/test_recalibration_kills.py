"""A daemon killed while a calibration is being fitted again: its windows stay, and the fit is due again."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np

from tests.accounting import assert_adds_up
from tests.agent.test_refit_daemon import workers
from tests.daemon import DaemonProcess, configuration, ndjson, read_windows
from tests.services.process import wait_until
from tests.streams import CLASSES, Record


def answered(first: int, count: int) -> list[Record]:
    """Return labelled answers, twice as sure as they are right."""
    rng = np.random.default_rng(first)
    claimed = rng.normal(0.5, 3.0, count)
    bad = rng.random(count) < 1 / (1 + np.exp(-claimed / 3))
    return [
        {
            "id": f"r{first + i}",
            "time": 1.7e9 + first + i,
            "model": "m",
            "scores": [1 - score, score],
            "label": CLASSES[int(was)],
        }
        for i, (score, was) in enumerate(zip((1 / (1 + np.exp(-claimed))).tolist(), bad, strict=True))
    ]


def config(folder: Path, name: str, refit_labels: int | None) -> dict[str, Any]:
    return configuration(
        task={"calibration": {"method": "platt", "refit_labels": refit_labels}},
        sources=[{"kind": "file", "path": str(folder / "in.ndjson"), "follow": True}],
        reports={"path": str(folder / f"{name}.ndjson")},
        store={"path": str(folder / name), "every_seconds": 0.1},
    )


def append(folder: Path, first: int, count: int) -> None:
    with (folder / "in.ndjson").open("ab") as file:
        file.write(ndjson(answered(first, count)))


def until_windows(daemon: DaemonProcess, path: Path, count: int) -> None:
    daemon.until(
        lambda: path.exists() and len(read_windows(path)) == count, f"{count} windows in {path.name}"
    )


def test_one_under_way_is_due_again_and_the_windows_before_are_those_of_a_daemon_left_alone(
    tmp_path: Path,
) -> None:
    path = tmp_path / "killed.ndjson"
    append(tmp_path, 0, 150)  # too few for a first calibration, which the worker says: it has started
    with DaemonProcess(tmp_path, config(tmp_path, "killed", 50)) as daemon:
        daemon.until_value(1, "recalibrations_total", task="t", model="m", outcome="refused")
        assert "a first calibration needs 200 labelled rows, got 100" in daemon.get("/")[1]
        [child] = workers(daemon)
        os.kill(child, signal.SIGSTOP)  # so that the next one is surely under way
        append(tmp_path, 150, 250)
        daemon.until(lambda: "one is running" in daemon.get("/")[1], "the next has begun")
        until_windows(daemon, path, 4)
        daemon.end(signal.SIGKILL)
    os.kill(child, signal.SIGKILL)
    before = path.read_bytes()

    with DaemonProcess(tmp_path, config(tmp_path, "killed", 50)) as daemon:
        daemon.until_value(1, "recalibrations_total", task="t", model="m", outcome="taken")
        assert daemon.metrics().value("recalibrations_total", task="t", model="m", outcome="refused") == 1
        assert daemon.metrics().value("refit_duration_seconds_count", task="t") == 1
        append(tmp_path, 400, 100)
        until_windows(daemon, path, 5)
        assert_adds_up(daemon, sent=500 + 500)  # each answer brings its label
        assert daemon.end()[0] == 0
    assert path.read_bytes().startswith(before)
    assert read_windows(path)[4]["calibration"]["version"] == 1
    assert [window["window"] for window in read_windows(path)] == [0, 1, 2, 3, 4]

    alone = tmp_path / "alone.ndjson"
    (tmp_path / "in.ndjson").unlink()
    append(tmp_path, 0, 150)
    append(tmp_path, 150, 250)
    with DaemonProcess(tmp_path, config(tmp_path, "alone", None)) as daemon:
        until_windows(daemon, alone, 4)
        assert daemon.end()[0] == 0
    assert alone.read_bytes() == before
    wait_until(lambda: not Path(f"/proc/{child}").exists(), "no worker is left behind")

"""SIGHUP takes over valid changes at once without losing a window; an invalid file changes nothing."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.accounting import assert_adds_up
from tests.daemon import DaemonProcess, configuration, ndjson, read_windows
from tests.streams import answers

RELOADED = "config_last_reload_successful"
SERIES = {"task": "t", "model": "erm"}


def config(**task: Any) -> dict[str, Any]:
    return configuration(
        task=task,
        sources=[{"kind": "file", "path": "in.ndjson", "follow": True}],
        reports={"path": "windows.ndjson"},
    )


class Following:
    """A daemon on a growing file, and how much has been written to that."""

    def __init__(self, daemon: DaemonProcess) -> None:
        self.daemon = daemon
        self.fed = 0

    def give(self, n: int) -> None:
        """Append n answers, and wait until they are used."""
        more = answers(np.random.default_rng(self.fed), n, start=1.7e9 + self.fed)
        with (self.daemon.folder / "in.ndjson").open("ab") as file:
            file.write(ndjson(more))
        self.fed += n
        self.daemon.until(lambda: self.used == self.fed, f"{self.fed} answers are used")

    @property
    def used(self) -> float:
        return assert_adds_up(self.daemon).used

    def windows(self, n: int) -> list[dict[str, Any]]:
        """Return the windows written, once there are n."""
        path = self.daemon.folder / "windows.ndjson"
        self.daemon.until(lambda: len(read_windows(path)) >= n, f"{n} windows are written")
        windows = read_windows(path)
        assert len(windows) == n
        return windows


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    """For reloads that change nothing."""
    folder = tmp_path_factory.mktemp("reload")
    (folder / "in.ndjson").write_bytes(ndjson(answers(np.random.default_rng(1), 620)))
    with DaemonProcess(folder, config()) as started:
        started.until_used(620)
        yield started


def unmoved(daemon: DaemonProcess) -> bool:
    metrics = assert_adds_up(daemon)
    return (metrics.value("windows_closed_total", **SERIES), metrics.value("answers_pending", **SERIES)) == (
        6,
        20,
    )


def test_a_new_level_and_objective_hold_from_the_next_window_without_losing_one(tmp_path: Path) -> None:
    (tmp_path / "in.ndjson").touch()
    with DaemonProcess(tmp_path, config()) as daemon:
        stream = Following(daemon)
        stream.give(650)
        log = daemon.reload(config(level=0.8, objective={"accuracy": {"min": 0.99}}))
        assert "The configuration was reloaded: tasks.t.level, tasks.t.objective.accuracy.\n" in log
        stream.give(100)
        windows = stream.windows(7)
        daemon.until_value(1, "objective_state", **SERIES, metric="accuracy", state="breached")
        assert daemon.metrics().value(RELOADED) == 1
    assert [(w["window"], w["size"], w["closed_by"]) for w in windows] == [(i, 100, "size") for i in range(7)]
    assert [w["estimates"][0]["level"] for w in windows] == [0.95] * 6 + [0.8]
    assert [bool(w["objectives"]) for w in windows] == [False] * 6 + [True]
    assert windows[6]["charts"][0]["center"] == windows[5]["charts"][0]["center"], "the baseline stays"


def test_a_new_chart_closes_the_open_window_and_begins_a_new_baseline(tmp_path: Path) -> None:
    (tmp_path / "in.ndjson").touch()
    with DaemonProcess(tmp_path, config()) as daemon:
        stream = Following(daemon)
        stream.give(650)
        log = daemon.reload(config(metrics=["accuracy", "ece"], chart={"sigmas": 2}))
        assert "was reloaded: tasks.t.metrics, tasks.t.chart.sigmas.\n" in log
        assert stream.windows(7)[6]["closed_by"] == "end"
        daemon.until_value(1, "state", **SERIES, state="warming_up")
        stream.give(600)
        windows = stream.windows(13)
        daemon.until_value(1, "state", **SERIES, state="in_control")
    assert [w["size"] for w in windows] == [100] * 6 + [50] + [100] * 6
    assert [bool(w["charts"]) for w in windows] == [False] * 5 + [True] * 2 + [False] * 5 + [True]


def test_a_wrong_file_changes_nothing_and_a_right_one_clears_it(daemon: DaemonProcess) -> None:
    wrong = config(levle=0.8)
    log = daemon.reload(wrong)
    path = daemon.config
    assert (
        f"ERROR The configuration was not reloaded, the old one stays in use: {path} cannot be used:" in log
    )
    assert "tasks.t.levle: unknown key; did you mean 'level'?" in log
    assert "Traceback" not in log
    assert daemon.metrics().value(RELOADED) == 0
    read_at = daemon.metrics().value("config_last_reload_success_timestamp_seconds")
    assert unmoved(daemon)
    assert daemon.get("/-/ready")[0] == daemon.get("/-/healthy")[0] == 200
    assert "INFO The configuration was reloaded: no change.\n" in daemon.reload(config())
    assert daemon.metrics().value(RELOADED) == 1
    assert daemon.metrics().value("config_last_reload_success_timestamp_seconds") > read_at
    assert unmoved(daemon)


@pytest.mark.parametrize(
    ("change", "keys"),
    [
        ({"export": {"listen": "127.0.0.1:1"}}, "export.listen"),
        ({"export": {"listen": "127.0.0.1:0", "max_series": 100}}, "export.max_series"),
        ({"sources": [{"kind": "stdin"}], "reports": {"path": "other.ndjson"}}, "sources, reports.path"),
        ({"tasks": {**config()["tasks"], "u": {}}}, "tasks.u"),
    ],
)
def test_what_needs_a_restart_is_refused_by_name(
    daemon: DaemonProcess, change: dict[str, Any], keys: str
) -> None:
    log = daemon.reload(config() | change)
    refused = f"{keys}: cannot change while the agent runs; restart it, or put the old value back\n"
    assert f"the old one stays in use: {refused}" in log
    assert daemon.metrics().value(RELOADED) == 0
    assert unmoved(daemon)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "the file is empty; it needs at least tasks"),
        ("tasks: {t: [", "line 1"),
        ("tasks: &a [*a]", "cannot be used"),
        (json.dumps(config(reference={"path": "absent.ndjson"})), "There is no file"),
        (
            json.dumps(config(reference={"path": "short.ndjson"})),
            "tasks.t.reference, model erm: isotonic calibration needs at least two different outcomes",
        ),
    ],
)
def test_no_file_however_wrong_stops_the_agent(daemon: DaemonProcess, text: str, why: str) -> None:
    short = [{"model": "erm", "scores": [0.1, 0.9], "label": "bad"}] * 8
    (daemon.folder / "short.ndjson").write_bytes(ndjson(short))
    log = daemon.reload(text)
    assert "The configuration was not reloaded, the old one stays in use" in log
    assert why in log
    assert "Traceback" not in log
    assert daemon.metrics().value(RELOADED) == 0
    assert unmoved(daemon)


def test_a_file_that_is_gone_changes_nothing(daemon: DaemonProcess) -> None:
    daemon.reload(config())
    daemon.config.rename(daemon.folder / "away.yaml")
    before = len(daemon.log)
    daemon.send(signal.SIGHUP)
    daemon.until(lambda: "was not reloaded" in daemon.log[before:], "it was refused")
    assert unmoved(daemon)


def test_two_reloads_at_once_both_hold(tmp_path: Path) -> None:
    (tmp_path / "in.ndjson").touch()
    with DaemonProcess(tmp_path, config()) as daemon:
        stream = Following(daemon)
        stream.give(650)
        daemon.reload(config(chart={"sigmas": 2}))
        daemon.reload(config(chart={"sigmas": 2}, level=0.8))
        stream.give(100)
        windows = stream.windows(8)
    assert [w["size"] for w in windows] == [100] * 6 + [50, 100]
    assert [w["estimates"][0]["level"] for w in windows][-1] == 0.8

"""`blindsight run` with an `http` source, as users meet it: posts in, windows and metrics out."""

from __future__ import annotations

import signal
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from tests.accounting import assert_adds_up, labels_account
from tests.daemon import DaemonProcess, Metrics, configuration, ndjson, read_windows
from tests.faults.ranges import parts_of
from tests.services.process import free_ports
from tests.streams import Record, answers

TOKEN = "token-of-the-test-0123456789"


def stream(n: int) -> list[Record]:
    return answers(np.random.default_rng(3), n, labelled=True)


def test_posts_become_windows_and_a_restart_uses_none_twice(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    (tmp_path / "serving.token").write_text(TOKEN)
    source: dict[str, Any] = {
        "kind": "http",
        "listen": f"127.0.0.1:{port}",
        "spool": {"path": "spool"},
        "tokens": [{"token_file": "serving.token"}],
    }
    config = configuration(
        sources=[source], reports={"path": "windows.ndjson"}, rejects={"path": "bad.ndjson"}
    )
    url = f"http://127.0.0.1:{port}/v1/predictions"
    records = stream(450)
    lines = {"content-type": "application/x-ndjson"}
    with httpx.Client(headers={"authorization": f"Bearer {TOKEN}"}) as client:
        with DaemonProcess(tmp_path, config) as daemon:
            daemon.until_value(1, "source_up", source="http")
            assert httpx.post(url, json=records[0]).status_code == 401
            answer = client.post(url, content=ndjson(records[:250]), headers=lines)
            assert answer.json() == {"accepted": 250, "rejected": 0}
            bad = {"id": "x", "model": "erm", "scores": [0.5, 1.7]}
            assert client.post(url, json=[bad, records[250]]).json()["accepted"] == 1
            daemon.until_used(251)
            metrics = assert_adds_up(daemon)
            assert metrics.value("answers_received_total", source="http") == 252
            assert metrics.value("rejected_total", source="http", reason="out_of_range") == 1
            assert metrics.value("shed_total", source="http") == 0
            assert metrics.value("posts_refused_total", source="http", code="401") == 1
            assert metrics.value("posts_refused_total", source="http", code="413") == 0
            assert metrics.value("events_ignored_total", source="http") == 0, "it reads them, and none came"
            assert metrics.value("source_up", source="http") == 1
            assert metrics.value("source_lag_records", source="http") == 0
            assert daemon.end()[0] == 0
        assert [window["size"] for window in read_windows(tmp_path / "windows.ndjson")] == [100, 100, 51]
        with DaemonProcess(tmp_path, config) as daemon:
            daemon.until_value(1, "source_up", source="http")
            assert client.post(url, json=records[251:]).status_code == 202
            daemon.until_used(199)
            assert daemon.end()[0] == 0
    windows = read_windows(tmp_path / "windows.ndjson")
    assert [window["size"] for window in windows] == [100, 100, 51, 100, 99]
    ranges = [window["positions"]["spool"] for window in windows]
    assert all(end < start for (_, end), (start, _) in pairwise(ranges))
    assert len((tmp_path / "bad.ndjson").read_text().splitlines()) == 1


def test_with_a_store_a_killed_daemon_goes_on_in_the_middle_of_a_window(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    source = {"kind": "http", "listen": f"127.0.0.1:{port}", "spool": {"path": "spool"}}
    outputs = {"reports": {"path": "windows.ndjson"}, "store": {"path": "state"}}
    config = configuration(sources=[source], **outputs)
    url = f"http://127.0.0.1:{port}/v1/predictions"
    records = stream(450)
    for start, end in ((0, 130), (130, 270), (270, 450)):
        with DaemonProcess(tmp_path, config) as daemon:
            daemon.until_value(1, "source_up", source="http")
            assert_adds_up(daemon)
            for i in range(start, end, 10):
                assert httpx.post(url, json=records[i : i + 10]).status_code == 202
                assert_adds_up(daemon)
            if end < 450:
                daemon.process.kill()
                daemon.process.wait()
            else:
                daemon.until_used(450)
                assert labels_account(assert_adds_up(daemon)).received == 450
                assert daemon.end()[0] == 0
    windows = read_windows(tmp_path / "windows.ndjson")
    assert [(window["window"], window["size"]) for window in windows] == [(i, 100) for i in range(4)]
    starts = np.cumsum([0, *(len(ndjson([record])) for record in records)])
    assert [window["positions"]["spool"] for window in windows] == [
        [starts[100 * i], starts[100 * i + 99]] for i in range(4)
    ]


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGKILL])
def test_events_without_answers_are_counted_however_they_come_and_over_a_restart(
    tmp_path: Path, ending: signal.Signals
) -> None:
    (port,) = free_ports(1)
    kind = "org.kubeflow.serving.inference."
    event = {"specversion": "1.0", "inferenceservicename": "erm", "data": {"predictions": [[0.25, 0.75]]}}
    response = {**event, "type": f"{kind}response"}
    request = {**event, "type": f"{kind}request", "data": {"instances": [[1.0]]}}
    lines = [{**one, "id": f"e{i}"} for i, one in enumerate([request, response, request, response, request])]
    (tmp_path / "events.ndjson").write_bytes(ndjson(lines))
    mapping = {"format": "kserve"}
    listen = {"listen": f"127.0.0.1:{port}", "spool": {"path": "spool"}}
    config = configuration(
        sources=[
            {"kind": "file", "path": "events.ndjson", "name": "log", "follow": True, "mapping": mapping},
            {"kind": "http", **listen, "mapping": mapping},
            {
                "kind": "file",
                "path": "none.ndjson",
                "name": "paths",
                "follow": True,
                "mapping": {"scores": "p"},
            },
        ],
        store={"path": "state"},
    )
    (tmp_path / "none.ndjson").touch()
    with DaemonProcess(tmp_path, config) as daemon:
        daemon.until_value(1, "source_up", source="http")
        posted = httpx.post(f"http://127.0.0.1:{port}/v1/predictions", json=[{**request, "id": "h"}])
        assert (posted.status_code, posted.json()["ignored"]) == (202, 1)
        daemon.until_value(2, "answers_pending", task="t", model="erm")
        daemon.until_value(1, "events_ignored_total", source="http")
        metrics = assert_adds_up(daemon)
        assert _ignored(metrics) == {"log": 3, "http": 1}
        assert metrics.total("rejected_total") == 0
        if ending is signal.SIGKILL:
            saved = {"log": 3, "http": 1}
            state = tmp_path / "state"
            daemon.until(lambda: parts_of(state).get("engine", {}).get("ignored") == saved, "it is saved")
        daemon.end(ending)
    with DaemonProcess(tmp_path, config) as daemon:
        daemon.until_value(1, "source_up", source="http")
        assert _ignored(assert_adds_up(daemon, sent=6)) == {"log": 3, "http": 1}


def _ignored(metrics: Metrics) -> dict[str, float]:
    return {key: value for ((_, key),), value in metrics.all("events_ignored_total").items()}

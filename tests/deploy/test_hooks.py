"""The hooks: an alert retrains a model, and the reason for its new baseline stands in its timeline."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from tests.daemon import DaemonProcess, configuration, ndjson, read_windows
from tests.export.rules.test_end_to_end import DEGRADED
from tests.harness import ROOT
from tests.recipes.page import blocks
from tests.services.alertmanager_server import AlertmanagerServer, example
from tests.services.process import PATIENCE_SECONDS, free_ports, stop, wait_until
from tests.services.webhook import Webhook
from tests.streams import ORIGINAL, answers

FOLDER = ROOT / "deploy" / "hooks"
JOB = """\
import os
import sys

with open(sys.argv[2], "rb") as new, open(sys.argv[1], "ab") as stream:
    stream.write(new.read())  # version 2 begins to answer
print("trained", os.environ["TASK"], os.environ["MODEL"], os.environ["METRIC"])
print(2)
"""


@contextmanager
def hook(
    folder: Path, *words: str, page: str = "http://127.0.0.1:9"
) -> Iterator[tuple[str, Callable[[], str]]]:
    """Run the receiver; yield its address, and a function that returns what it printed."""
    programs = folder / "bin"
    programs.mkdir()
    (programs / "blindsight").write_text(f'#!/bin/sh\nexec {sys.executable} -m monitor.cli "$@"\n')
    (programs / "blindsight").chmod(0o755)
    listen = f"127.0.0.1:{free_ports(1)[0]}"
    options = ["--listen", listen, "--poll", "0.2", str(folder / "config.yaml"), page]
    path = f"{programs}:{os.environ['PATH']}"
    log = folder / "hook.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, str(FOLDER / "retrain.py"), *options, *words],
            env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)},
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        wait_until(lambda: "Waiting for notifications" in log.read_text(), "it listens")
        yield f"http://{listen}", log.read_text
    finally:
        stop(process)


def notification(**labels: str) -> dict[str, Any]:
    """Return a notification of Alertmanager about one alert on the accuracy of a model."""
    own = {"alertname": "BlindsightOutOfControl", "task": "t", "model": "erm", "metric": "accuracy"} | labels
    summary = "t/erm: accuracy about 76 % (70 to 80)"
    alert = {"status": "firing", "labels": own, "annotations": {"summary": summary}}
    return {"version": "4", "status": "firing", "groupLabels": {}, "alerts": [alert]}


def post(address: str, body: object) -> int:
    """Post a body as JSON, and return the status of the answer."""
    request = urllib.request.Request(address, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def value_at(notice: dict[str, Any], key: str) -> Any:
    """Return the value at a key of an Argo sensor, such as ``body.alerts.0.labels.model``."""
    event: Any = {"body": notice}
    return reduce(lambda part, name: part[int(name) if name.isdigit() else name], key.split("."), event)


def test_an_alert_retrains_the_model_and_the_reason_is_in_its_timeline(
    tmp_path: Path, alertmanager: Callable[[str], AlertmanagerServer], webhook: Webhook
) -> None:
    rng, stream = np.random.default_rng(20), tmp_path / "in.ndjson"

    def rows(n: int, start: float, version: int, weights: tuple[float, ...] = ORIGINAL) -> bytes:
        return ndjson(answers(rng, n, "erm", weights, start=start, version=str(version)))

    stream.write_bytes(rows(800, 1.7e9, 1))
    (tmp_path / "version-2.ndjson").write_bytes(rows(150, 1.7e9 + 2000, 2))
    (tmp_path / "job.py").write_text(JOB)
    page, job = free_ports(1)[0], [sys.executable, str(tmp_path / "job.py"), str(stream)]
    with hook(tmp_path, *job, str(tmp_path / "version-2.ndjson"), page=f"http://127.0.0.1:{page}") as (
        address,
        log,
    ):
        routes = yaml.safe_load(example(webhook.url))
        (text,) = (b.text for b in blocks(ROOT / "docs" / "alerts.md") if b.text.startswith("receivers:"))
        shown = yaml.safe_load(text.replace("http://127.0.0.1:9096", address))["receivers"]
        routes["receivers"] = [*(each for each in routes["receivers"] if each["name"] != "tickets"), *shown]
        for receiver in routes["receivers"]:
            receiver.setdefault("webhook_configs", []).append(
                {"url": f"{webhook.url}/seen", "send_resolved": True}
            )
        server = alertmanager(yaml.safe_dump(routes))
        settings = configuration(
            sources=[{"kind": "file", "path": "in.ndjson", "follow": True}],
            store={"path": "state"},
            reports={"path": "windows.ndjson"},
            alertmanager={"urls": [server.url], "resend_seconds": 1},
        ) | {"export": {"listen": f"127.0.0.1:{page}"}}
        with DaemonProcess(tmp_path, settings) as daemon:
            daemon.until_value(8.0, "windows_closed_total", model="erm")
            with stream.open("ab") as file:
                file.write(rows(600, 1.7e9 + 800, 1, DEGRADED))
            daemon.until(lambda: "complete its new baseline" in log(), "the model is retrained")
            with stream.open("ab") as file:
                file.write(rows(900, 1.7e9 + 2150, 2))
            daemon.until_value(24.0, "windows_closed_total", model="erm")
            wanted = "version 2, retrained after: t/erm: accuracy fell from "
            daemon.until(
                lambda: wanted in (tmp_path / "windows.ndjson").read_text(), "the reason is reported"
            )
            chart = json.loads(daemon.get("/api/v1/chart?task=t&model=erm&metric=accuracy")[1])
            assert wanted in json.dumps(chart)
            assert daemon.metrics().value("out_of_control", model="erm", metric="accuracy") == 0
    assert log().count("retraining: ") == 1
    reasons = [
        (window["version"], each["metric"], each["reason"])
        for window in read_windows(tmp_path / "windows.ndjson")
        for each in window.get("rebaselined", [])
    ]
    assert [(version, metric) for version, metric, _ in reasons] == [("2", "accuracy")]
    assert reasons[0][2].startswith(wanted)
    sensor = list(yaml.safe_load_all((FOLDER / "argo.yaml").read_text()))[1]
    notice = webhook.matching("/seen", "firing", model="erm")[0]
    (trigger,) = sensor["spec"]["triggers"]
    sources = [each["src"] for each in trigger["template"]["argoWorkflow"]["parameters"]]
    values = [value_at(notice, each["dataKey"]) for each in sources]
    assert values[:3] == ["t", "erm", "accuracy"]
    assert values[3].startswith("t/erm: accuracy fell from ")
    for each in sensor["spec"]["dependencies"][0]["filters"]["data"]:
        assert value_at(notice, each["path"]) in each["value"]


@pytest.mark.slow
def test_a_job_that_fails_is_printed_and_is_not_tried_again_within_the_pause(tmp_path: Path) -> None:
    with hook(tmp_path, "false") as (address, log):
        other = notification(alertname="BlindsightFeatureDrifted", model="other")
        group = notification(group="region=eu", model="other")
        ended = notification(model="other")
        ended["alerts"][0]["status"] = "resolved"
        for ignored in (other, group, ended):
            assert post(address, ignored) == 200
        assert post(address, notification()) == 200
        wait_until(
            lambda: "t/erm: failed, and the alert stays: Command '['false']'" in log(), "it is printed"
        )
        wait_until(lambda: post(address, notification()) == 200 and "hours ago" in log(), "it is refused")
        assert "t/erm: no job, as its last one was 0.0 hours ago: t/erm: accuracy about 76 %" in log()
        assert post(address, ["no notification"]) == 400
        assert post(address, notification() | {"alerts": [{}]}) == 400
    assert "other" not in log()
    assert log().count("retraining: ") == 1


@pytest.mark.slow
def test_a_job_without_a_version_changes_nothing(tmp_path: Path) -> None:
    with hook(tmp_path, "true") as (address, log):
        assert post(address, notification()) == 200
        wait_until(
            lambda: "failed, and the alert stays: the job printed no version" in log(), "it is printed"
        )

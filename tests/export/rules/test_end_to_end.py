"""Agent, Prometheus with the rules, Alertmanager with the shipped example, webhook: all of them real."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tests.daemon import DaemonProcess, command, configuration, ndjson
from tests.services.alertmanager_server import AlertmanagerServer, example
from tests.services.process import wait_until
from tests.services.prometheus_server import PrometheusServer
from tests.services.webhook import Webhook
from tests.streams import ORIGINAL, Record, answers

DEGRADED = (0.2, 0.7, 0.1)  # two thirds of the answers at a confidence about a half: accuracy near 75 %
# An hour's windows: 12 s for two of them, and 3 s, the least, for all that is shorter.
TIME_SCALE = "0.0016666"
BREACHED = "BlindsightObjectiveBreached"


class Stream:
    """A file that grows by answers of several models."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._rng = np.random.default_rng(20)
        self._times: dict[str, float] = {}
        path.touch()

    def add(self, n: int, *models: str, weights: tuple[float, ...] = ORIGINAL) -> None:
        """Append n answers of each model."""
        rows: list[Record] = []
        for model in models:
            start = self._times.setdefault(model, 1.7e9)
            rows += answers(self._rng, n, model, weights, start=start)
            self._times[model] = start + n
        with self._path.open("ab") as file:
            file.write(ndjson(rows))


def settings() -> dict[str, Any]:
    return configuration(
        sources=[{"kind": "file", "path": "in.ndjson", "follow": True}],
        store={"path": "state"},
        task={"objective": {"accuracy": {"min": 0.85}, "windows": 3}},
    )


def until(done: Callable[[], object], what: str) -> None:
    wait_until(lambda: bool(done()), what, pause=0.2)


def test_a_model_that_degrades_pages_once_and_others_never(
    tmp_path: Path,
    prometheus: Callable[..., PrometheusServer],
    alertmanager: Callable[[str], AlertmanagerServer],
    webhook: Webhook,
) -> None:
    receiver = alertmanager(example(webhook.url))
    stream = Stream(tmp_path / "in.ndjson")
    with DaemonProcess(tmp_path, settings()) as daemon:
        printed = command("rules", daemon.config, "--time-scale", TIME_SCALE)
        assert printed.returncode == 0, printed.stderr
        server = prometheus(
            [f"127.0.0.1:{daemon.port}"],
            # A minute is the least for `BlindsightAgentDown`: it would be most of the test's time.
            rules=re.sub(r"\b1m\b", "3s", printed.stdout),
            alertmanagers=[receiver.address],
        )
        receiver.silence(model="hushed")
        stream.add(800, "good", "bad", "worse", "hushed")
        server.wait_for('count(blindsight_state{state="in_control"} == 1) == 4')

        # Five windows make a baseline: `young` has three, and all of them are bad.
        stream.add(600, "bad", "worse", "hushed", weights=DEGRADED)
        stream.add(600, "good")
        stream.add(300, "young", weights=DEGRADED)
        for model in ("bad", "worse"):
            until(lambda model=model: page(webhook, "firing", model), f"{model} pages")  # type: ignore[misc]
        assert server.query('blindsight_objective_state{model="young",state="breached"} == 1')
        until(lambda: silenced(receiver, "hushed"), "the third model is silenced")
        assert re.fullmatch(
            r"t/bad: accuracy about [\d.]+ % \([\d.]+ to [\d.]+\), misses its objective of 85 %",
            summary_of(webhook, "bad"),
        )

        stream.add(1200, "bad", "good")
        until(lambda: page(webhook, "resolved", "bad"), "the recovery is told")
        # Meanwhile Alertmanager has gone round a dozen times: nothing was told twice.
        assert [len(page(webhook, "firing", model)) for model in ("bad", "worse")] == [1, 1]
        assert page(webhook, "resolved", "worse") == []

        daemon.end(signal.SIGKILL)
        until(lambda: webhook.matching("/pager", "firing", alertname="BlindsightAgentDown"), "its end pages")
        until(lambda: inhibited(receiver, "worse"), "the quality alert is inhibited")

    assert [len(page(webhook, "firing", model)) for model in ("bad", "worse")] == [1, 1]
    for model in ("good", "young", "hushed"):
        assert page(webhook, "firing", model) == []
    assert alert_names(webhook, "/pager") == {BREACHED, "BlindsightAgentDown"}
    assert "BlindsightOutOfControl" in alert_names(webhook, "/tickets")


def page(webhook: Webhook, status: str, model: str) -> list[dict[str, Any]]:
    return webhook.matching("/pager", status, model=model)


def summary_of(webhook: Webhook, model: str) -> str:
    [notice] = page(webhook, "firing", model)
    [alert] = notice["alerts"]
    assert alert["labels"] == {
        "alertname": BREACHED,
        "severity": "critical",
        "job": "blindsight",
        "task": "t",
        "model": model,
        "metric": "accuracy",
    }
    return str(alert["annotations"]["summary"])


def silenced(receiver: AlertmanagerServer, model: str) -> bool:
    alerts = receiver.alerts(model=model, alertname=BREACHED)
    return bool(alerts) and all(alert["status"]["silencedBy"] for alert in alerts)


def inhibited(receiver: AlertmanagerServer, model: str) -> bool:
    alerts = receiver.alerts(model=model, alertname=BREACHED)
    return bool(alerts) and all(alert["status"]["inhibitedBy"] for alert in alerts)


def alert_names(webhook: Webhook, receiver: str) -> set[str]:
    """Return names of the alerts that a receiver has been told of."""
    notices = webhook.matching(receiver, "firing")
    return {alert["labels"]["alertname"] for notice in notices for alert in notice["alerts"]}

"""Seconds from a degradation in the stream to the page, by rules and by direct push.

    python -m tests.bench.bench_alert [--runs 5]

The agent follows a file. A real Prometheus scrapes it each second and evaluates the printed rules; every
duration is 600 times shorter, but at least 3 s. A real Alertmanager with the shipped example and a
`group_wait` of 1 s calls a webhook. A degraded model answers for three seconds, six windows; the clock starts
with its first answer. Then the same without Prometheus: the agent pushes to Alertmanager itself. Deliberate
waiting (`for`, `group_wait`) is printed separately.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.daemon import DaemonProcess, command
from tests.export.rules.test_end_to_end import DEGRADED, TIME_SCALE, Stream, settings
from tests.harness import run
from tests.services.alertmanager_server import AlertmanagerServer, example
from tests.services.process import wait_until
from tests.services.prometheus_server import PrometheusServer
from tests.services.webhook import Webhook

FOR_SECONDS = 2 * 3600 * float(TIME_SCALE)
GROUP_WAIT_SECONDS = 1.0
PATIENCE_SECONDS = 60.0


@contextmanager
def by_rules(folder: Path, receiver: AlertmanagerServer) -> Iterator[None]:
    """Yield an agent, and a Prometheus that evaluates its rules."""
    with DaemonProcess(folder, settings()) as daemon:
        rules = command("rules", daemon.config, "--time-scale", TIME_SCALE).stdout
        target = [f"127.0.0.1:{daemon.port}"]
        with PrometheusServer(target, rules=rules, alertmanagers=[receiver.address]) as server:
            server.wait_for('blindsight_state{state="in_control"} == 1', PATIENCE_SECONDS)
            yield


@contextmanager
def by_push(folder: Path, receiver: AlertmanagerServer) -> Iterator[None]:
    """Yield an agent that tells Alertmanager itself."""
    config: dict[str, Any] = settings() | {"alertmanager": {"urls": [receiver.url]}}
    with DaemonProcess(folder, config) as daemon:
        daemon.until_value(8.0, "windows_closed_total", model="m")
        time.sleep(2)  # a look of the pusher's: what holds at its first one is told at once
        yield


Way = Callable[[Path, AlertmanagerServer], Any]


def seconds_until_paged(way: Way) -> float:
    """Return one degradation."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="blindsight-alert-")))
        webhook = stack.enter_context(Webhook())
        receiver = stack.enter_context(AlertmanagerServer(example(webhook.url)))
        stream = Stream(folder / "in.ndjson")
        stream.add(800, "m")
        stack.enter_context(way(folder, receiver))
        # A window each half second: of many at once the pusher sees one change, and waits for another window.
        began = time.monotonic()
        for _ in range(6):
            stream.add(100, "m", weights=DEGRADED)
            time.sleep(0.5)
        wait_until(
            lambda: bool(webhook.matching("/pager", "firing", model="m")),
            "it pages",
            0.01,
        )
        return time.monotonic() - began


def table(runs: int = 5) -> Iterator[str]:
    """Yield a line a way."""
    waits: dict[str, tuple[Way, float]] = {
        "rules": (by_rules, FOR_SECONDS + GROUP_WAIT_SECONDS),
        "direct push": (by_push, GROUP_WAIT_SECONDS),
    }
    for name, (way, wait) in waits.items():
        seconds = [seconds_until_paged(way) for _ in range(runs)]
        middle = statistics.median(seconds)
        yield (
            f"{name}: {middle:.1f} s from the first degraded answer to the webhook (median of {runs}, "
            f"{min(seconds):.1f} to {max(seconds):.1f}), of which {wait:.1f} s are waited on purpose: "
            f"{middle / wait:.2f} times that"
        )


if __name__ == "__main__":
    run(table, keep=False)

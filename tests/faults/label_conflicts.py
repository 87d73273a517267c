"""Labels that contradict labels: what they do to the estimate, and who is found to have sent them.

    python -m tests.faults.label_conflicts

A real agent takes posts of two hands, each with a token of its own. The model is right for 81 % of its
answers. One hand sends half of the true labels of each window; the other sends the same ids again, each
with a label that says that the answer was right. Once this is the default, once `labels.max_replaced` is 1,
and the agent is killed and started again half-way. Then the second hand has a quota of 300 labels a day.
"""

from __future__ import annotations

import re
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from tests.accounting import accounts, assert_adds_up
from tests.daemon import DaemonProcess, configuration, read_windows
from tests.harness import run
from tests.services.process import PATIENCE_SECONDS
from tests.streams import CLASSES, Record

WINDOW = 500
WINDOWS = 16
LABELLED = 2  # of how many answers one is
ACCURACY = 0.81
TOKENS = {"annotators": "annotators-0123456789", "stranger": "stranger-0123456789ab"}
RESTART_AFTER = 10
_PORT = re.compile(r"posts are taken on port (\d+)")


def config(max_replaced: float | None, labels_per_day: int | None = None) -> dict[str, Any]:
    """Return a task that recalibrates each 200 labels, behind two tokens."""
    tokens = [
        {"token": TOKENS["annotators"], "name": "annotators"},
        {"token": TOKENS["stranger"], "name": "stranger", "labels_per_day": labels_per_day},
    ]
    task: dict[str, Any] = {
        "window": {"size": WINDOW, "min_size": 20, "max_age_seconds": 86_400},
        "calibration": {"method": "platt", "refit_labels": 200},
        "labels": {} if max_replaced is None else {"max_replaced": max_replaced},
    }
    return configuration(
        task=task,
        sources=[
            {"kind": "http", "listen": "127.0.0.1:0", "spool": {"path": "spool"}, "tokens": tokens},
        ],
        reports={"path": "reports.ndjson"},
        store={"path": "state", "every_seconds": 0.1},
    )


def answered(window: int) -> tuple[list[Record], list[Record], list[Record]]:
    """Return a window's answers, the true labels of some, and the other hand's labels of the same."""
    rng = np.random.default_rng(window)
    answers, true, other = [], [], []
    for i in range(WINDOW):
        name, acted = f"w{window}-{i}", int(rng.random() < 0.5)
        sure = float(rng.uniform(0.62, 1.0))  # 0.81 in the mean, and right
        right = bool(rng.random() < sure)
        answers.append({"id": name, "model": "m", "scores": [1 - sure, sure] if acted else [sure, 1 - sure]})
        if i % LABELLED == 0:
            true.append({"id": name, "label": CLASSES[acted if right else 1 - acted]})
            other.append({"id": name, "label": CLASSES[acted]})
    return answers, true, other


class Hands:
    """Both senders of labels, and the model's answers."""

    def __init__(self, daemon: DaemonProcess) -> None:
        self._daemon = daemon
        daemon.until(lambda: _PORT.search(daemon.log), "it takes posts")
        self._url = f"http://127.0.0.1:{_PORT.findall(daemon.log)[-1]}"
        self.refused: dict[int, int] = {}

    def post(self, path: str, records: list[Record], hand: str) -> int:
        """Return the status of the answer."""
        headers = {"authorization": f"Bearer {TOKENS[hand]}"}
        answer = httpx.post(f"{self._url}{path}", json=records, headers=headers, timeout=PATIENCE_SECONDS)
        if answer.status_code != 202:
            self.refused[answer.status_code] = self.refused.get(answer.status_code, 0) + len(records)
        return answer.status_code

    def window(self, number: int) -> None:
        """Post one window with all its labels, which come before it closes; wait until the agent has it."""
        answers, true, other = answered(number)
        self.post("/v1/predictions", answers[:-1], "annotators")
        self.post("/v1/labels", true, "annotators")
        self.post("/v1/labels", other, "stranger")
        self.post("/v1/predictions", answers[-1:], "annotators")
        used = (number + 1) * WINDOW
        self._daemon.until(lambda: self._daemon.metrics().used >= used, f"window {number} is used")


def attack(folder: Path, settings: dict[str, Any]) -> Iterator[str]:
    """Yield the traces of an attack, a line at a time; the agent is killed half-way."""
    with DaemonProcess(folder, settings) as daemon:
        hands = Hands(daemon)
        for number in range(RESTART_AFTER):
            hands.window(number)
        held = daemon.metrics().value("recalibration_held", task="t", model="m")
        by_token = {name: daemon.metrics().value("token_labels_total", token=name) for name in TOKENS}
        refused = hands.refused
        daemon.end(signal.SIGKILL)
    with DaemonProcess(folder, settings) as daemon:
        hands = Hands(daemon)
        for number in range(RESTART_AFTER, WINDOWS):
            hands.window(number)
        metrics = assert_adds_up(daemon)
        after = metrics.value("recalibration_held", task="t", model="m")
        adopted = metrics.value("recalibrations_total", task="t", model="m", outcome="taken")
        daemon.end()
    values = [
        next(one["value"] for one in line["estimates"] if one["estimator"] == "average_confidence")
        for line in read_windows(folder / "reports.ndjson")
    ]
    yield (
        f"  estimated accuracy of window 1: {values[0]:.2f}, of window {len(values)}: {values[-1]:.2f}; "
        f"recalibrations taken: {adopted:g}; held before the kill: {held:g}, after: {after:g}"
    )
    counts = ", ".join(f"{name} {count:g}" for name, count in by_token.items())
    yield f"  labels by token before the kill: {counts}; rows refused: {refused or 'none'}"
    yield from (f"  {line}" for line in str(accounts(metrics)).splitlines())


def table() -> Iterator[str]:
    """Print what becomes of the estimate, with the maximum, without it, and with a quota."""
    cases = {
        "labels.max_replaced as by default (0.05)": config(None),
        "labels.max_replaced: 1, as before there was one": config(1.0),
        "labels.max_replaced: 1, and 300 labels a day for the stranger": config(1.0, 300),
    }
    yield f"The model is right for {ACCURACY:.0%} of its answers; {WINDOWS} windows of {WINDOW}."
    for name, settings in cases.items():
        with tempfile.TemporaryDirectory() as folder:
            yield name
            yield from attack(Path(folder), settings)


if __name__ == "__main__":
    run(table)

"""The process that dies at a point of a checkpoint.

python -m tests.faults.crashes FOLDER POINT NTH [MAX_BYTES]
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from monitor.testing import Crash, CrashPoint, DelayedLabels, Marker, StoredAgent
from tests.engine.test_engine import reference
from tests.services.process import PATIENCE_SECONDS
from tests.streams import Rig, answers, task

_TASK = task(window={"size": 60}, reference={"path": "r.ndjson"})
SETTINGS = Rig(_TASK, reference(_TASK, 1000), event_time=False).settings
"""One of the models has a reference: its labels move the interval of its accuracy."""

KEEP = 99
"""Renamed files that stay, where files are: all of them."""


def records() -> list[Any]:
    """Return answers of two models with late labels, repetitions and rubbish."""
    rng = np.random.default_rng(5)
    pairs = []
    for one, two in zip(answers(rng, 400, "erm"), answers(rng, 400, "irm"), strict=True):
        pairs += [(one, "ok" if rng.random() < 0.2 else None), (two, None)]
    stream: list[Any] = list(DelayedLabels(90.0)(pairs))
    stream[300:300] = [stream[290], b"{ broken"]
    return [*stream, Marker.END]


def main() -> None:
    folder, point, nth, *bound = sys.argv[1:]
    crash = Crash(CrashPoint(point), int(nth))
    StoredAgent(
        Path(folder), SETTINGS, records(), crash, max_bytes=int(bound[0]) if bound else None, keep=KEEP
    ).run(PATIENCE_SECONDS)


if __name__ == "__main__":
    main()

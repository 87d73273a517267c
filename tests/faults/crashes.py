"""The process that dies at a point of a checkpoint.

python -m tests.faults.crashes FOLDER KIND POINT NTH [MAX_BYTES]
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from monitor.engine.engine import EngineSettings
from monitor.testing import Crash, CrashPoint, DelayedLabels, Marker, StoredAgent
from tests.engine.test_engine import reference
from tests.numbers import OTHERS, predictions, reference_of_numbers, regression, stated
from tests.services.process import PATIENCE_SECONDS
from tests.streams import Record, Rig, answers, task

KINDS = ("classification", "regression")

KEEP = 99
"""Renamed files that stay, where files are: all of them."""


def settings(kind: str) -> EngineSettings:
    """Return settings in which one of the models has a reference: its labels move its interval."""
    if kind == "regression":
        numeric = regression(window={"size": 60, "min_size": 20, "max_age_seconds": 1e9}, **OTHERS)
        known = {"t": reference_of_numbers(numeric, stated(predictions(7, 1000, "erm", start=1.6e9)))}
        return Rig({"t": numeric}, known, event_time=False).settings
    classes = task(window={"size": 60}, reference={"path": "r.ndjson"})
    return Rig(classes, reference(classes, 1000), event_time=False).settings


def records(kind: str) -> list[Any]:
    """Return answers of two models with late labels, repetitions and rubbish."""
    rng = np.random.default_rng(5)
    if kind == "regression":
        erm, irm = (
            stated(predictions(seed, 400, model, labelled=0.0), share=0.8)
            for seed, model in ((1, "erm"), (2, "irm"))
        )
    else:
        erm, irm = (answers(rng, 400, model) for model in ("erm", "irm"))
    pairs: list[tuple[Record, Any]] = []
    for one, two in zip(erm, irm, strict=True):
        label = one["prediction"] + rng.normal() if kind == "regression" else "ok"
        pairs += [(one, label if rng.random() < 0.2 else None), (two, None)]
    stream: list[Any] = list(DelayedLabels(90.0)(pairs))
    stream[300:300] = [stream[290], b"{ broken"]
    return [*stream, Marker.END]


def main() -> None:
    folder, kind, point, nth, *bound = sys.argv[1:]
    crash = Crash(CrashPoint(point), int(nth))
    max_bytes = int(bound[0]) if bound else None
    StoredAgent(Path(folder), settings(kind), records(kind), crash, max_bytes=max_bytes, keep=KEEP).run(
        PATIENCE_SECONDS
    )


if __name__ == "__main__":
    main()

"""Writes the store that a test of a later version opens: run it at the last commit of a version.

    python -m tests.store.kept.make_store tests/store/kept/v1

It leaves `blindsight.sqlite.gz` in that folder: a stream cut in the middle of a window, with labels that
wait, that were used, and that were corrected.
"""

from __future__ import annotations

import gzip
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from monitor.agent.resume import tasks_as_json
from monitor.config.root import Task
from monitor.store import Store
from monitor.store.store import FILE
from tests.streams import CLASSES, Record, Rig, answers, task

CUT = 180
"""Records that the kept store has taken, in steps of `STEP`."""
STEP = 30


def settings() -> Task:
    """The task of the stream."""
    return task(
        window={"size": 10, "min_size": 5},
        groups=["region"],
        reference={"first_windows": 5},
        labels={"horizon_days": 0.01, "max_answers": 1000, "max_waiting": 1000},
    )


def records() -> list[Record]:
    """Two models' answers, most of them labelled: before them, after them, twice, and differently."""
    rng = np.random.default_rng(7)
    stream: list[tuple[float, Record]] = []
    for model, region in (("erm", "eu"), ("irm", "us")):
        for place, answer in enumerate(answers(rng, 80, model, groups={"region": region})):
            stream.append((place, answer))
            if rng.random() < 0.6:
                stream.append((place + rng.uniform(-15, 40), _label(answer, rng)))
            if rng.random() < 0.2:
                stream.append((place + rng.uniform(10, 60), _label(answer, rng)))
    return [record for _, record in sorted(stream, key=lambda pair: pair[0])]


def _label(answer: Record, rng: np.random.Generator) -> Record:
    truth: dict[str, Any] = {"id": answer["id"], "label": CLASSES[int(rng.random() < answer["scores"][1])]}
    return truth | {"time": answer["time"]}


def main(folder: Path) -> None:
    """Write the store into this folder."""
    rig = Rig(settings())
    with tempfile.TemporaryDirectory() as scratch:
        store = Store(Path(scratch))
        for start in range(0, CUT, STEP):
            reports = rig.feed(records()[start : start + STEP])
            store.commit(rig.engine.changes(), reports, config=tasks_as_json({"t": settings()}))
            rig.engine.confirm()
        store.close()
        content = (Path(scratch) / FILE).read_bytes()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{FILE}.gz").write_bytes(gzip.compress(content, mtime=0))


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""A program that writes the store for a test of a later version: run it at the last commit of a version.

    python -m tests.store.kept.make_store tests/store/kept/v1
    python -m tests.store.kept.make_store tests/store/kept/v2 everything

`v2/before_corrected` has `everything` from the last commit without the estimator `corrected`.

It leaves `blindsight.sqlite.gz` in that folder: a stream cut in the middle of a window, with labels that
wait, that were used, and that were corrected. With `everything`, three tasks hold every piece of state that
there is: references and the models fitted on them, lost trust and a calibration fitted again, refits, an
arena.
"""

from __future__ import annotations

import gzip
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from monitor.agent.resume import tasks_as_json
from monitor.base.source import RawMessages
from monitor.config.root import Config, Task
from monitor.engine.reference import split_by_model
from monitor.engine.refit.recalibration import recalibrate
from monitor.store import Store
from monitor.store.store import FILE
from tests.refits import cheap_refit
from tests.streams import CLASSES, Record, Rig, answers, compared, task

CUT = 180
"""Records that the kept store has taken, in steps of `STEP`."""
STEP = 30


def settings() -> Task:
    """Return the task of the stream."""
    return task(
        window={"size": 10, "min_size": 5},
        groups=["region"],
        reference={"first_windows": 5},
        labels={"horizon_days": 0.01, "max_answers": 1000, "max_waiting": 1000},
    )


def records() -> list[Record]:
    """Return two models' answers, most of them labelled: before them, after them, twice, and differently."""
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


def everything() -> Rig:
    """Return an engine whose state has every piece: a task with a reference, one with refits, and an
    arena.
    """
    scored = task(
        window={"size": 40, "min_size": 20},
        groups=["region"],
        metrics=["accuracy", "f1", "ece"],
        estimators=["average_confidence", "cbpe_sem", "doc", "atc", "realised"],
        reference={"path": "r.ndjson"},
        calibration={"method": "platt", "refit_labels": 60},
        objective={"accuracy": {"min": 0.85}},
        labels={"max_answers": 1000, "max_waiting": 1000},
    )
    pooled = task(
        window={"size": 40, "min_size": 20},
        estimators=["average_confidence", "realised", "ensemble", "labelled"],
        reference={"first_windows": 5},
        calibration={"method": "ssme"},
        ssme={"models": ["erm", "irm"], "every_windows": 3, "every_labels": 20},
        labels={"max_answers": 1000, "max_waiting": 1000},
    )
    arena = Config(tasks={"chat": {"kind": "arena", "window": {"size": 50}, "windows": 3}}).tasks["chat"]
    known = answers(np.random.default_rng(5), 600, labelled=True, start=1.6e9)
    for record in known:
        record["groups"] = {"region": "eu"}
    values = [msgspec.json.encode(record) for record in known]
    [batch] = Rig(scored).decode([RawMessages(values, "r", list(range(len(values))))]).batches
    return Rig(
        {"scored": scored, "pooled": pooled, "chat": arena},
        {"scored": split_by_model(batch)},
        refit=cheap_refit,
        recalibrate=recalibrate,
    )


EVERYTHING_CUT = 760
"""Records of `everything` that the kept store has taken."""


def everything_records() -> list[Record]:
    """Return by turns answers of two models to the same inputs, with labels that soon contradict one, and
    duels.
    """
    rng = np.random.default_rng(8)
    stream: list[tuple[float, Record]] = []
    for place, one in enumerate(answers(rng, 200, task="scored", version="v1")):
        one["groups"] = {"region": "eu" if place % 3 else "us"}
        right = rng.random() < (max(one["scores"]) if place < 80 else 0.55)
        truth = CLASSES[int(one["scores"][1] > 0.5) ^ (not right)]
        stream += [(place, one), (place + rng.uniform(0, 15), _labelled(one, truth))]
    for place, one in enumerate(answers(rng, 200)):
        low, high = one.pop("scores")
        both = {"erm": [low, high], "irm": [round(1 - high**2, 6), round(high**2, 6)]}
        one |= {"id": f"p{place}", "task": "pooled", "models": both}
        del one["model"]
        truth = CLASSES[int(rng.random() < high)]
        stream.append((place, one))
        if rng.random() < 0.5:
            stream.append((place + rng.uniform(-5, 40), _labelled(one, truth) | {"probability": 0.5}))
    stream += [(1.4 * place, one | {"task": "chat"}) for place, one in enumerate(compared(rng, 180))]
    return [record for _, record in sorted(stream, key=lambda pair: pair[0])]


def _labelled(answer: Record, truth: str) -> Record:
    return {"id": answer["id"], "task": answer["task"], "label": truth, "time": answer["time"]}


def main(folder: Path, kind: str = "") -> None:
    """Write the store into this folder."""
    rig = everything() if kind else Rig(settings())
    stream, cut = (everything_records(), EVERYTHING_CUT) if kind else (records(), CUT)
    with tempfile.TemporaryDirectory() as scratch:
        store = Store(Path(scratch))
        for start in range(0, cut, STEP):
            reports = rig.feed(stream[start : min(start + STEP, cut)])
            store.commit(rig.engine.changes(), reports, config=tasks_as_json(rig.settings.tasks))
            rig.engine.confirm()
        store.close()
        content = (Path(scratch) / FILE).read_bytes()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{FILE}.gz").write_bytes(gzip.compress(content, mtime=0))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])

"""Input of replays on Spark: five tasks in several files; one has `ssme`, one is an arena, one of numbers."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.daemon import ndjson
from tests.engine.arena.test_engine import stream as comparisons
from tests.numbers import as_numbers
from tests.parallel.test_partitioning import MODELS, stream
from tests.streams import CLASSES, answers, confidences

SETTINGS: dict[str, Any] = {
    "classes": CLASSES,
    "reference": {"first_windows": 5},
    "chart": {"sigmas": 3},
}
TASKS: dict[str, Any] = {
    "t": SETTINGS
    | {
        "window": {"size": 100, "min_size": 20, "max_age_seconds": 300},
        "metrics": ["accuracy", "ece"],
        "estimators": ["average_confidence", "realised"],
        "groups": ["region"],
    },
    "s": SETTINGS
    | {
        "window": {"size": 50, "min_size": 20, "max_age_seconds": 3600},
        "metrics": ["accuracy"],
        "estimators": ["average_confidence", "ssme"],
        "models": {name: {} for name in MODELS},
        "ssme": {"every_windows": 10, "every_labels": 50},
    },
    "u": SETTINGS
    | {"window": {"size": 40, "min_size": 20, "max_age_seconds": 3600}, "metrics": ["accuracy"]},
    "duel": {
        "kind": "arena",
        "window": {"size": 60, "min_size": 20, "max_age_seconds": 3600},
        "windows": 3,
        "max_models": 3,
    },
    "n": {
        "kind": "regression",
        "unit": "minutes",
        "tolerance": 4,
        "reference": {"path": "reference.ndjson"},
        "window": {"size": 50, "min_size": 20, "max_age_seconds": 1e6},
        "error_metrics": ["mae", "rmse", "wape"],
        "groups": ["region"],
    },
}


def records(seed: int = 1, requests: int = 2000) -> list[Any]:
    """Return records of all tasks, in one order; verdicts of the arena come along, and late, some beyond its
    cap.
    """
    rng = np.random.default_rng(seed)
    records = stream(seed, requests)
    for i in range(requests // 6):
        scores = confidences(rng, 3)
        label = CLASSES[int(rng.random() < scores.mean())]
        at = int(len(records) * i / (requests // 6))
        one: dict[str, Any] = {"id": f"s{i}", "task": "s", "time": 1.7e9 + 6 * i}
        one["models"] = {name: [1 - p, p] for name, p in zip(MODELS, scores.tolist(), strict=True)}
        records.insert(at, one | ({"label": label} if i % 3 == 0 else {}))
    duels, others = comparisons(seed, requests // 2), len(records)
    for i, one in enumerate(duels):
        one |= {"task": "duel", "time": 1.7e9 + 2 * (one["time"] - 1.7e9)}
        records.insert(others * i // len(duels) + i, one)
    numbers, others = as_numbers(stream(seed + 1, requests // 3)), len(records)
    for i, one in enumerate(each for each in numbers if isinstance(each, dict)):
        slower = {"time": 1.7e9 + 3 * (one["time"] - 1.7e9)} if "time" in one else {}
        records.insert(others * i // len(numbers) + i, one | {"task": "n"} | slower)
    return records


def write_reference(folder: Path) -> None:
    """Write the labelled predictions that the errors of task `n` are estimated with; one model has none."""
    rng = np.random.default_rng(9)
    known = [row for name in MODELS[:2] for row in answers(rng, 400, name, start=1.6e9, labelled=True)]
    (folder / "reference.ndjson").write_bytes(ndjson([row | {"task": "n"} for row in as_numbers(known)]))


def write_input(folder: Path, tasks: dict[str, Any] | None = None, files: int = 4, **more: Any) -> Path:
    """Return a configuration, and `parts/` with the records; the configuration's path."""
    parts = folder / "parts"
    parts.mkdir(parents=True)
    write_parts(parts, records(**more), files)
    write_reference(folder)
    config = folder / "config.yaml"
    text = {
        "tasks": tasks or TASKS,
        "rejects": {"path": "rejects.ndjson"},
        "export": {"listen": "127.0.0.1:0"},
    }
    config.write_text(json.dumps(text))
    return config


def write_parts(folder: Path, records: Sequence[Any], files: int) -> None:
    """Write records into `files` files, in the order of their names."""
    edges = np.linspace(0, len(records), files + 1).astype(int).tolist()
    for number, (start, stop) in enumerate(itertools.pairwise(edges)):
        (folder / f"part-{number:03d}.ndjson").write_bytes(ndjson(records[start:stop]))

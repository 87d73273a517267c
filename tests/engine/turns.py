"""Requests that two models answered, and the slow witness of estimates from draws of them."""

from __future__ import annotations

import numpy as np

from tests.streams import CLASSES, Record, confidences

MODELS = ("erm", "irm")
N = 400
BEGIN = 1.7e9


def requests(rng: np.random.Generator, n: int = N) -> tuple[list[Record], dict[str, str]]:
    """Return answers of two models, and the truth, which `irm` sees less of."""
    records, truth = [], {}
    for i, score in enumerate(confidences(rng, n).tolist()):
        other = float(np.clip(score + rng.normal(0, 0.2), 0.01, 0.99).round(6))
        both = {"erm": [1 - score, score], "irm": [1 - other, other]}
        records.append({"id": f"r{i}", "time": BEGIN + i, "models": both})
        truth[f"r{i}"] = CLASSES[int(rng.random() < score)]
    return records, truth


def wrong(records: list[Record], truth: dict[str, str], model: str) -> np.ndarray:
    acted = [CLASSES[int(r["models"][model][1] > 0.5)] for r in records]
    return np.array([a != truth[r["id"]] for a, r in zip(acted, records, strict=True)])


def lure(labels: list[Record], off: np.ndarray, records: list[Record]) -> float:
    """Return the slow witness: the paper's equation (7), a draw at a time; accuracy is what errors leave."""
    place = {r["id"]: i for i, r in enumerate(records)}
    draws, total = max(label["draw"]["number"] for label in labels), 0.0
    for label in labels:
        m, n, q = (label["draw"][key] for key in ("number", "pool", "probability"))
        v = 1 + (n - draws) / (n - m) * (1 / ((n - m + 1) * q) - 1)
        total += v * off[place[label["id"]]] / draws
    return 1 - total

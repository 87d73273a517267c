"""Streams of records for tests: simulated answers whose labels are drawn from their own confidences."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np

from connectors.formats.decode.decoder import Decoder
from monitor.base.records import TaskLayout
from monitor.base.source import RawMessages
from monitor.config.layouts import layouts
from monitor.config.root import Task, TaskConfig
from monitor.engine.engine import Engine, EngineSettings
from monitor.engine.reference import Reference, split_by_model
from monitor.engine.refit.job import RefitJob, RefitResult
from monitor.engine.refit.recalibration import RecalibrationJob, RecalibrationResult
from monitor.reports.window_report import WindowReport, to_json

CLASSES = ["ok", "bad"]
ORIGINAL = (0.9, 0.08, 0.02)
"""Weights of the confidences' components, Kivimäki et al., Table 2."""

Record = dict[str, Any]


def confidences(rng: np.random.Generator, n: int, weights: Sequence[float] = ORIGINAL) -> np.ndarray:
    """Return scores of the class `bad` by the paper's mixture of beta distributions."""
    part = rng.choice(3, size=n, p=weights)
    return rng.beta(np.array([20, 2, 1])[part], np.array([1, 2, 20])[part]).round(6)


def answers(
    rng: np.random.Generator,
    n: int,
    model: str = "erm",
    weights: Sequence[float] = ORIGINAL,
    start: float = 1.7e9,
    labelled: bool = False,
    **more: Any,
) -> list[Record]:
    """Return predictions a second apart; with `labelled` each brings its label."""
    records = []
    for i, score in enumerate(confidences(rng, n, weights).tolist()):
        record = {
            "id": f"{model}-{start:.0f}-{i}",
            "time": start + i,
            "model": model,
            "scores": [1 - score, score],
        }
        if labelled:
            record["label"] = CLASSES[int(rng.random() < score)]
        records.append(record | more)
    return records


def newest_wrong(records: Sequence[Record], rows: int = 100) -> list[Record]:
    """Return records with labels that agree with every answer but the last ones, so that these cost the
    trust.
    """
    classes = [int(np.argmax(record["scores"])) for record in records]
    classes[-rows:] = [1 - one for one in classes[-rows:]]
    return [record | {"label": CLASSES[one]} for record, one in zip(records, classes, strict=True)]


def compared(
    rng: np.random.Generator,
    n: int,
    prefix: str = "c",
    models: Sequence[str] = ("m0", "m1", "m2"),
    human: float = 0.5,
    agree: float = 0.8,
    start: float = 1.7e9,
) -> list[Record]:
    """Return comparisons a second apart of models whose coefficients are 0, 0.5, 1, …; the judge favours
    model_a.
    """
    comparisons = []
    for i in range(n):
        a, b = rng.choice(len(models), 2, replace=False).tolist()
        won = "model_b" if rng.random() < 1 / (1 + np.exp((a - b) / 2)) else "model_a"
        record: Record = {
            "id": f"{prefix}-{start:.0f}-{i}",
            "time": start + i,
            "model_a": models[a],
            "model_b": models[b],
            "judge_winner": won if rng.random() < agree else "model_a",
        }
        comparisons.append(record | ({"winner": won} if rng.random() < human else {}))
    return comparisons


def task(**settings: Any) -> Task:
    """Return a task of two classes with small windows that do not age, unless `settings` say otherwise."""
    window = {"size": 100, "min_size": 20, "max_age_seconds": 1e9} | settings.pop("window", {})
    return Task(**({"classes": CLASSES, "window": window, "metrics": ["accuracy"]} | settings))


def reference_of(settings: TaskConfig, records: Iterable[Record]) -> dict[str, Reference]:
    """Return a labelled reference as the daemon would read it; equal ones are one, so that each is fitted
    once.
    """
    return dict(_read(layouts({"t": settings}), tuple(map(msgspec.json.encode, records))))


@lru_cache(maxsize=100)
def _read(layout: tuple[TaskLayout, ...], values: tuple[bytes, ...]) -> dict[str, Reference]:
    messages = RawMessages(list(values), "reference", list(range(len(values))))
    [batch] = Decoder(layout, "reference").decode([messages]).batches
    return split_by_model(batch)


class Rig:
    """An engine with its decoder: records in, reports out, cut into chunks however a test wants."""

    def __init__(
        self,
        settings: Task | dict[str, TaskConfig] | None = None,
        references: dict[str, dict[str, Reference]] | None = None,
        event_time: bool = True,
        refit: Callable[[RefitJob], RefitResult] | None = None,
        recalibrate: Callable[[RecalibrationJob], RecalibrationResult] | None = None,
    ) -> None:
        tasks = settings if isinstance(settings, dict) else {"t": settings or task()}
        by_task = references or {}
        assert by_task.keys() <= tasks.keys(), f"references are by task, then by model, got {sorted(by_task)}"
        self.settings = EngineSettings(tasks, by_task, event_time, refit, recalibrate)
        self.engine: Engine = self.settings.build()
        self.decode: Callable[..., Any] = Decoder(layouts(tasks), "test").decode
        self.offset = 0

    def feed(self, records: Iterable[Record | bytes], now: float = 0.0) -> list[WindowReport]:
        """Return one chunk."""
        values = [r if isinstance(r, bytes) else msgspec.json.encode(r) for r in records]
        offsets = list(range(self.offset, self.offset + len(values)))
        self.offset += len(values)
        return self.engine.absorb(self.decode([RawMessages(values, "part-0", offsets)]), now)

    def feed_in_pieces(
        self, records: Sequence[Record | bytes], cuts: Sequence[int], restart: bool = False
    ) -> list[WindowReport]:
        """Several chunks, cut at these places; after each, if asked, a restart."""
        edges = [0, *sorted(min(cut, len(records)) for cut in cuts), len(records)]
        reports: list[WindowReport] = []
        for start, stop in itertools.pairwise(edges):
            reports += self.feed(records[start:stop])
            if restart:
                self.restart()
        return reports

    def restart(self) -> None:
        """Throw the engine away and go on from its snapshot."""
        self.engine = self.settings.build(self.engine.snapshot())


def lines(reports: Sequence[WindowReport]) -> list[bytes]:
    """Return reports as they are written down."""
    return [to_json(report) for report in reports]

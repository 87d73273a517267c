"""Jobs for tests of refits, their scores simulated."""

from __future__ import annotations

import numpy as np

from monitor.base.records import Floats, Ints
from monitor.engine.refit.job import RefitJob


def simulated(rows: int, models: int, classes: int = 2) -> tuple[Floats, Ints]:
    """Return scores (rows, models, classes) of models that see the truth through noise, and the truth."""
    rng = np.random.default_rng([rows, classes])
    truth = rng.integers(0, classes, rows)
    logits = 2.0 * np.eye(classes)[truth][:, None] + rng.normal(size=(rows, models, classes))
    scores = np.exp(1.5 * logits)
    return (scores / scores.sum(axis=2, keepdims=True)).astype(np.float32), truth


def job(
    rows: int = 600,
    labelled: int = 60,
    models: int = 3,
    classes: int = 2,
    number: int = 7,
    task: str = "t",
    estimators: tuple[str, ...] = ("ssme",),
    metrics: tuple[str, ...] = ("accuracy",),
    calibrate: bool = True,
) -> RefitJob:
    """Return a job whose first rows have labels."""
    scores, truth = simulated(rows, models, classes)
    return RefitJob(
        task=task,
        number=number,
        sequence=900,
        time=1.7e9,
        models=tuple("abcdefg"[:models]),
        positive=1,
        scores=scores,
        labels=np.where(np.arange(rows) < labelled, truth, -1),
        predicted=scores.argmax(axis=2) if rows else np.empty((0, models), dtype=np.int64),
        weights=np.ones(rows),
        estimators=estimators,
        metrics=metrics,
        level=0.95,
        seed=3,
        calibrate=calibrate,
    )

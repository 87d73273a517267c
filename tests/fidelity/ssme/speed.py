"""Time and memory of the estimators, each in a process of its own: `python -m tests.fidelity.ssme speed`."""

from __future__ import annotations

import resource
import time
from collections.abc import Sequence

import numpy as np

from monitor import ESTIMATORS, METRICS
from tests.fidelity.ssme.suite import Design, simulate
from tests.harness import apart

LABELLED = 100
SIZES = ((1020, 1, 2), (1020, 7, 2), (5000, 7, 2), (20_000, 7, 2), (1020, 4, 3), (1020, 4, 9), (20_000, 3, 9))
"""Rows, models, classes."""

SLOW_ABOVE = {"ssme_paper": 5000}
"""Rows above which an estimator is left out: all pairs of rows in each of its iterations."""


def measured(tag: str, rows: int, models: int, classes: int) -> dict[str, float]:
    """Return seconds of the fit, of all values and of all intervals; megabytes that this process grew by."""
    design = Design(classes, models, prevalence=0.0 if classes > 2 else 0.2)
    scores, truth = simulate(design, np.random.default_rng(rows), rows)
    labels = np.where(np.arange(rows) < LABELLED, truth, -1)
    ESTIMATORS[tag]().fit(scores[:50], truth[:50]).estimate("accuracy")  # imports and caches
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.perf_counter()
    fit = ESTIMATORS[tag]().fit(scores, labels)
    marks = [began, time.perf_counter()]
    for ask in (getattr(fit, "point", None), fit.estimate):
        if ask is not None:
            for metric in METRICS:
                for model in range(models):
                    ask(metric, model)
        marks.append(time.perf_counter())
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    names = ("fit", "values", "intervals")
    return {**dict(zip(names, np.diff(marks).tolist(), strict=True)), "megabytes": grown}


def table(tags: Sequence[str], sizes: Sequence[tuple[int, int, int]] = SIZES) -> str:
    """Return one line a size and estimator."""
    out = [
        f"Seconds with {LABELLED} labels: fit, all metrics of all models, the same with intervals; MB grown",
        f"{'rows':>6s}{'M':>3s}{'K':>3s}  {'estimator':14s}"
        f"{'fit':>8s}{'values':>8s}{'intervals':>10s}{'MB':>7s}",
    ]
    for rows, models, classes in sizes:
        for tag in tags:
            if rows > SLOW_ABOVE.get(tag, rows):
                continue
            got = apart(measured, tag, rows, models, classes)
            out.append(
                f"{rows:6d}{models:3d}{classes:3d}  {tag:14s}{got['fit']:8.2f}{got['values']:8.2f}"
                f"{got['intervals']:10.2f}{got['megabytes']:7.0f}"
            )
    return "\n".join(out) + "\n"

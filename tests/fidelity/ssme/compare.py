"""Estimators beside each other on one pool: errors, coverage and width of intervals, time."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from monitor import ESTIMATORS, METRICS, LabelEstimator
from monitor.base.records import Floats
from monitor.base.results import Estimate
from tests.fidelity.ssme.acquired import acquired
from tests.fidelity.ssme.protocol import Pool, Run

Found = TypeVar("Found")

SHOWN = ("accuracy", "class_ece", "auroc", "average_precision")
"""The four metrics of the paper's tables, in their order; its ECE is `class_ece`."""

FLOOR = "floor"
"""Not an estimator: all labels of the run are known, so that only the sampling of its rows is left."""


@dataclass(frozen=True)
class Measured:
    """The answers of one estimator over all runs, beside the truth.

    Parameters
    ----------
    error : (runs, len(METRICS), M) float64
        Estimate less truth; NaN where it was unknown.
    covered : (runs, len(METRICS), M) float64
        1 where the truth was inside the interval, 0 where not, NaN where unknown.
    width : (runs, len(METRICS), M) float64
    seconds : (runs, 2) float64
        Of the fit, and of all metrics of all models with their intervals.
    """

    error: Floats
    covered: Floats
    width: Floats
    seconds: Floats

    def mean_error(self, metric: str) -> Floats:
        """Return the (runs,) absolute error averaged over the models for which it was known."""
        return known_mean(np.abs(self.error[:, METRICS.index(metric)]), axis=1)

    def coverage(self, metric: str) -> float:
        """Return share of known intervals that held the truth."""
        return float(known_mean(self.covered[:, METRICS.index(metric)], axis=None))

    def mean_width(self, metric: str) -> float:
        """Return mean width of known intervals."""
        return float(known_mean(self.width[:, METRICS.index(metric)], axis=None))

    def unknown(self, metric: str) -> float:
        """Return share of answers that were `Unknown`."""
        return float(np.isnan(self.error[:, METRICS.index(metric)]).mean())


def known_mean(values: Floats, axis: int | None) -> Floats:
    """Return the mean of the values that are not NaN; NaN where all are."""
    known = ~np.isnan(values)
    count = known.sum(axis=axis)
    summed = np.where(known, values, 0.0).sum(axis=axis)
    mean: Floats = np.divide(summed, count, out=np.full(np.shape(summed), np.nan), where=count > 0)
    return mean


def measure(
    pool: Pool,
    tags: Sequence[str],
    labelled: int,
    runs: int,
    seed: int = 0,
    intervals: bool = True,
    kept: Path | None = None,
) -> Mapping[str, Measured]:
    """Return all estimators on the same runs.

    An estimator that needs to know how its labels were drawn draws them itself from the run's rows, as
    many, again for each model.

    Parameters
    ----------
    pool : Pool
    tags : sequence of str
        Keys of `ESTIMATORS`, or "floor".
    labelled, runs : int
    seed : int
        Of the first run; the next ones follow.
    intervals : bool
        False for values alone, which is some times faster.
    kept : Path, optional
        A folder in which each run's answers are looked for before it is made, and kept.
    """
    by_tag: dict[str, list[tuple[Floats, Floats]]] = {tag: [] for tag in tags}
    for at in range(runs):
        run = pool.run(labelled, seed + at)
        for tag in tags:
            if kept is None:
                by_tag[tag].append(_fit_and_answer(run, tag, at, intervals))
                continue
            name = f"{pool.name}-{labelled}-{seed + at}-{tag}{'' if intervals else '-values'}"
            by_tag[tag].append(
                looked_up(kept / f"{name}.npz", partial(_fit_and_answer, run, tag, at, intervals))
            )
    return {tag: _compared(pool.truth, results) for tag, results in by_tag.items()}


def looked_up(path: Path, measured: Callable[[], tuple[Floats, Floats]]) -> tuple[Floats, Floats]:
    """Return two arrays out of a file; where there is none, they are measured and kept."""
    if not path.exists():
        first, second = measured()
        unfinished = path.with_suffix(".part.npz")
        np.savez(unfinished, first=first, second=second)
        unfinished.replace(path)
    with np.load(path) as file:
        return file["first"], file["second"]


def shared_out(work: Callable[..., Found], jobs: Sequence[tuple[Any, ...]], processes: int) -> list[Found]:
    """Return the results of the jobs, in their order, from `processes` fresh processes."""
    if processes == 1:
        return [work(*job) for job in jobs]
    with get_context("spawn").Pool(processes) as pool:
        return pool.starmap(work, jobs, chunksize=1)


def _fit_and_answer(run: Run, tag: str, seed: int, intervals: bool) -> tuple[Floats, Floats]:
    """Return (len(METRICS), M, 3) values with their ends, and the two times."""
    models = range(run.scores.shape[1])
    if tag != FLOOR and "acquisition" in ESTIMATORS[tag].needs:
        parts = [_asked_actively(run, tag, model, seed, intervals) for model in models]
        figures, seconds = zip(*parts, strict=True)
        return np.concatenate(figures, axis=1), np.sum(seconds, axis=0)
    labels = run.hidden if tag == FLOOR else run.labels
    began = time.perf_counter()
    fit = ESTIMATORS["labelled" if tag == FLOOR else tag](seed=seed).fit(run.scores, labels)
    fitted = time.perf_counter()
    figures = answers(fit, models, intervals)
    return figures, np.array([fitted - began, time.perf_counter() - fitted])


def _asked_actively(run: Run, tag: str, model: int, seed: int, intervals: bool) -> tuple[Floats, Floats]:
    """Fit and answer like `_fit_and_answer`, for one model, with labels that were drawn for it."""
    labels, weights, acquisition = acquired(run, model, int((run.labels >= 0).sum()), seed)
    began = time.perf_counter()
    fit = ESTIMATORS[tag](seed=seed).fit(run.scores, labels, weights=weights, acquisition=acquisition)
    fitted = time.perf_counter()
    figures = answers(fit, [model], intervals)
    return figures, np.array([fitted - began, time.perf_counter() - fitted])


def answers(
    fit: LabelEstimator, models: Sequence[int], intervals: bool, metrics: Sequence[str] = METRICS
) -> Floats:
    """Return (len(METRICS), models, 3) values with their ends; NaN where unknown or not asked.

    Parameters
    ----------
    fit : LabelEstimator
    models : sequence of int
    intervals : bool
        False for values alone, which is some times faster.
    metrics : sequence of str
        Those to ask for.
    """
    figures = np.full((len(METRICS), len(models), 3), np.nan)
    for metric in metrics:
        at = METRICS.index(metric)
        for column, model in enumerate(models):
            if intervals or not hasattr(fit, "point"):
                answer = fit.estimate(metric, model)
                if isinstance(answer, Estimate):
                    figures[at, column] = answer.value, answer.lower, answer.upper
            else:
                value = fit.point(metric, model)
                figures[at, column, 0] = value if isinstance(value, float) else np.nan
    return figures


def _compared(truth: Floats, results: list[tuple[Floats, Floats]]) -> Measured:
    values = np.stack([values for values, _ in results])
    inside = (values[..., 1] <= truth) & (truth <= values[..., 2])
    covered = np.where(np.isnan(values[..., 1]), np.nan, inside.astype(np.float64))
    return Measured(
        values[..., 0] - truth,
        covered,
        values[..., 2] - values[..., 1],
        np.stack([seconds for _, seconds in results]),
    )

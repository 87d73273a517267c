"""The question and the answer of a refit: plain values and arrays, which another process can read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from monitor.base.records import Floats, Ints
from monitor.reports.window_report import WrittenEstimate


class RefitJob(msgspec.Struct, frozen=True, eq=False, tag="refit"):
    """One refit of a task's estimators that use labels.

    Parameters
    ----------
    task : str
    number : int
        Counts the refits of the task, from 1.
    sequence : int
        Of the newest record that it rests on.
    time : float
        Of the newest answer that it rests on, seconds since the epoch.
    models : tuple of str
    positive : int
        Index of the positive of two classes.
    scores : (n, M, K) float32
        Raw; all NaN for a model that did not answer a row.
    labels : (n,) int64
        −1 where there is none.
    predicted : (n, M) int64
        Classes acted on, −1 where a model did not answer.
    weights : (n,) float64
        1 over the probability of being labelled; 1 where none was given.
    estimators : tuple of str
        Tags of `monitor.stats.labelled.ESTIMATORS`.
    metrics : tuple of str
    level : float
    seed : int
    calibrate : bool
        Whether to distil a calibration for each model.
    references : tuple of mapping or None
        By model, the snapshot of the calibration that was fitted on its labelled reference, which a new
        one must beat on the labelled rows; None where it has none. Empty: none has one.
    pool_rows : int
        Rows that these stand for; no more than these are where they are all.
    label_weights : {"given", "estimated"}
        Whether estimators that rest on labels alone estimate the weights of labels that have none.
    acquisition : (n,) int64
        Number of the draw, from 1, of rows that were drawn one after another in the newest round; −1 for
        the others. Empty: none was.
    draw_probability : (n,) float64
        The chance with which that draw took the row out of those left; NaN for the others.
    draw_pool : int
        Rows before the first draw.
    """

    task: str
    number: int
    sequence: int
    time: float
    models: tuple[str, ...]
    positive: int
    scores: Floats
    labels: Ints
    predicted: Ints
    weights: Floats
    estimators: tuple[str, ...]
    metrics: tuple[str, ...]
    level: float
    seed: int
    calibrate: bool
    references: tuple[Mapping[str, Any] | None, ...] = ()
    pool_rows: int = 0
    label_weights: str = "given"
    acquisition: Ints = msgspec.field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    draw_probability: Floats = msgspec.field(default_factory=lambda: np.zeros(0))
    draw_pool: int = 0

    def refused(self, reason: str) -> RefitResult:
        """The answer that nothing is to be published, and why."""
        return RefitResult(
            self.task,
            self.number,
            self.sequence,
            self.time,
            refused=reason,
            rows=len(self.labels),
            labelled=int((self.labels >= 0).sum()),
            pool_rows=max(self.pool_rows, len(self.labels)),
        )


class ModelRefit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a refit says of one model.

    Parameters
    ----------
    estimates : tuple of WrittenEstimate
        One for each estimator and metric; unknown ones with their reasons.
    calibration : mapping or None
        Snapshot of the distilled calibration, or of the reference's where the labels do not favour the
        new one over that; None where there is none.
    """

    estimates: tuple[WrittenEstimate, ...]
    calibration: Mapping[str, Any] | None = None


class RefitResult(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="refit"):
    """The answer to a `RefitJob`.

    Parameters
    ----------
    task, number, sequence, time
        Of the job.
    refused : str or None
        Why nothing is to be published, a sentence; None where there is something.
    models : mapping of str to ModelRefit
    rows, labelled : int
        Rows that it rests on, and how many of those have labels.
    pool_rows : int
        Rows that those stand for.
    widening : float
        As in `monitor.reports.views.RefitView`.
    prevalence : tuple of float
        By class.
    effective_labels : float
    converged : bool
    iterations : int
    seconds : float
        Wall time of the fit; not part of anything that must be reproducible.
    drawn, missing_draws : int or None
        As in `monitor.reports.views.RefitView`.
    """

    task: str
    number: int
    sequence: int
    time: float
    refused: str | None = None
    models: Mapping[str, ModelRefit] = {}
    rows: int = 0
    labelled: int = 0
    pool_rows: int = 0
    widening: float = 0.0
    prevalence: tuple[float, ...] = ()
    effective_labels: float = 0.0
    converged: bool = False
    iterations: int = 0
    seconds: float = 0.0
    drawn: int | None = None
    missing_draws: int | None = None

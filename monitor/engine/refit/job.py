"""The job and the result of a refit, as plain values and arrays that another process can read.

When new labels have come, a refit fits the estimators of a task that use labels again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from monitor.base.records import Floats, Ints
from monitor.reports.window_report import WrittenEstimate


class RefitJob(msgspec.Struct, frozen=True, eq=False, tag="refit"):
    """The input of one refit of a task's estimators that use labels.

    Parameters
    ----------
    task : str
    number : int
        The number of the refit in the task, from 1.
    sequence : int
        The sequence number of the newest record in the fit.
    time : float
        The time of the newest answer in the fit, in seconds since the epoch.
    models : tuple of str
        The names of the M models.
    positive : int
        The index of the positive class, if there are two classes.
    scores : (n, M, K) float32
        Raw scores of n rows for K classes; all NaN for a model that did not answer a row.
    labels : (n,) int64
        The label of each row; −1 for a row without a label.
    predicted : (n, M) int64
        The predicted classes; −1 for a model that did not answer a row.
    weights : (n,) float64
        1 over the probability of being labelled; 1 if that probability is not known.
    estimators : tuple of str
        Tags of `monitor.stats.labelled.ESTIMATORS`.
    metrics : tuple of str
    level : float
        The level of the intervals.
    seed : int
        The seed of the estimators' random numbers.
    calibrate : bool
        Whether to derive a calibration for each model.
    references : tuple of mapping or None
        The snapshot of the calibration that was fitted on each model's labelled reference; None for a model
        without a reference. Empty if no model has a reference. A new calibration must predict the labelled
        rows better than the reference's calibration.
    pool_rows : int
        The number of rows from which the n rows were sampled. If the n rows are not a sample, this number is
        at most n.
    label_weights : {"given", "estimated"}
        The weights in estimators that use only labelled rows. "estimated": missing weights are estimated.
        "given": only known weights are used.
    acquisition : (n,) int64
        A round of draws picks rows for labelling one by one. The array contains the number of the draw that
        picked each row in the newest round, from 1; −1 for other rows. It is empty if there was no round.
    draw_probability : (n,) float64
        The probability with which the draw picked this row among the remaining rows; NaN for other rows.
    draw_pool : int
        The number of rows that could be picked at the first draw.
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
        """Return a result that refuses this job, with the reason."""
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
    """The results of a refit for one model.

    Parameters
    ----------
    estimates : tuple of WrittenEstimate
        An estimate for each estimator and metric; an unknown estimate holds the reason.
    calibration : mapping or None
        The snapshot of the new calibration. If the labels do not favour the new one, the snapshot of the
        reference's calibration. None if there is no calibration.
    """

    estimates: tuple[WrittenEstimate, ...]
    calibration: Mapping[str, Any] | None = None


class RefitResult(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="refit"):
    """The result of a `RefitJob`: the estimates and the calibration of each model, and facts about the fit.

    Parameters
    ----------
    task, number, sequence, time
        As in the job.
    refused : str or None
        The reason why nothing must be published, as a sentence; None if the result can be published.
    models : mapping of str to ModelRefit
        The results of each model, by its name; empty if the refit was refused.
    rows, labelled : int
        The number of rows in the fit, and the number of labelled rows among them.
    pool_rows : int
        The number of rows from which the rows of the fit were sampled.
    widening : float
        As in `monitor.reports.views.RefitView`.
    prevalence : tuple of float
        The estimated share of each class among the rows.
    effective_labels : float
        The number of equally weighted labels that would give as much information.
    converged : bool
        Whether the fit converged within its limit of iterations.
    iterations : int
    seconds : float
        Wall time of the fit. No reproducible result contains it.
    labelled_draws, missing_draws : int or None
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
    labelled_draws: int | None = msgspec.field(default=None, name="drawn")
    missing_draws: int | None = None

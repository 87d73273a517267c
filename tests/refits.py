"""A small refit for tests: labelled only, the mean of the classifiers, isotonic curves on the labels."""

from __future__ import annotations

import pickle

import numpy as np

from monitor import CALIBRATORS, ESTIMATORS
from monitor.engine.refit.job import ModelRefit, RefitJob, RefitResult
from monitor.reports.views import MetricEstimate
from monitor.reports.window_report import WrittenEstimate

CHEAP = ("ensemble", "labelled")


def cheap_refit(job: RefitJob) -> RefitResult:
    """Return every estimator of the job that takes no iterations; refused where nothing is labelled.

    However a test cuts its stream, the jobs are the same: each is done once.
    """
    same = pickle.dumps(job)
    if same not in _done:
        _done[same] = _refit(job)
    return _done[same]


_done: dict[bytes, RefitResult] = {}


def _refit(job: RefitJob) -> RefitResult:
    head = (job.task, job.number, job.sequence, job.time)
    labelled = job.labels >= 0
    if not labelled.any():
        return RefitResult(*head, refused="no labels yet")
    fits = {
        tag: ESTIMATORS[tag](seed=job.seed, positive=job.positive).fit(
            job.scores.astype(np.float64), job.labels, predicted=job.predicted, weights=job.weights
        )
        for tag in CHEAP
        if tag in job.estimators
    }
    refits = {}
    for m, model in enumerate(job.models):
        rows = np.flatnonzero(labelled & (job.predicted[:, m] >= 0))
        curve = None
        if job.calibrate and len(np.unique(job.labels[rows])) > 1:
            scores = job.scores[rows, m].astype(np.float64)
            curve = CALIBRATORS["isotonic"]().fit(scores, job.predicted[rows, m], job.labels[rows]).snapshot()
        refits[model] = ModelRefit(
            tuple(
                WrittenEstimate.from_estimate(
                    MetricEstimate(metric, tag, fit.estimate(metric, m, level=job.level))
                )
                for tag, fit in fits.items()
                for metric in job.metrics
            ),
            curve,
        )
    return RefitResult(
        *head,
        models=refits,
        rows=len(job.labels),
        labelled=int(labelled.sum()),
        prevalence=tuple(np.bincount(job.labels[labelled], minlength=job.scores.shape[2]) / labelled.sum()),
        effective_labels=float(labelled.sum()),
        converged=True,
    )

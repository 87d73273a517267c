"""Fits the estimators of a refit on the rows of a job. The same job always gives the same result."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy

from monitor.base.records import Floats
from monitor.base.registry import BY_LABELS, estimators_by_input
from monitor.base.results import Estimate, RankInterval, Reason, Result, Unknown
from monitor.engine.labels.draws import Round
from monitor.engine.refit.curves import calibrations
from monitor.engine.refit.job import ModelRefit, RefitJob, RefitResult
from monitor.reports.views import MetricEstimate
from monitor.reports.window_report import WrittenEstimate
from monitor.stats.labelled import ESTIMATORS
from monitor.stats.labelled.active_testing import ActiveTesting
from monitor.stats.labelled.base import LabelEstimator
from monitor.stats.labelled.inputs import UNLABELLED, effective_number
from monitor.stats.labelled.metrics import METRICS
from monitor.stats.labelled.shift import FEWEST_EFFECTIVE, LARGEST_IMBALANCE, chance_weights, imbalance
from monitor.stats.labelled.ssme import SSME
from monitor.stats.pairwise.ranking import RANK_LEVEL, rank_intervals, simultaneous_ranks
from monitor.stats.sampling.stratified import sampling_variance, strata, widening

log = logging.getLogger("blindsight")

FAILED = "the estimator failed"
"""The reason of an unknown estimate whose estimator raised an error; the log has the error."""

SMALLER_IS_BETTER = ("ece", "class_ece")

_COLLAPSED = 1e-9  # the share of rows expected outside one class, below which the fit has given up the others


def reported(estimators: Sequence[str]) -> tuple[str, ...]:
    """Return the estimators whose estimates a refit reports.

    Parameters
    ----------
    estimators : sequence of str
        The requested estimators: tags of `ESTIMATORS`. Other tags are left out. If `ssme` is requested,
        `ensemble` and `labelled` are added.

    Examples
    --------
    >>> reported(["ssme", "labelled", "average_confidence"])
    ('ssme', 'labelled', 'ensemble')
    """
    requested = [tag for tag in estimators if tag in ESTIMATORS]
    return tuple(dict.fromkeys([*requested, *estimators_by_input(requested, "refit")]))


def refit(job: RefitJob) -> RefitResult:
    """Fit each estimator of a job, and return the estimates.

    The main estimator decides whether the refit succeeds. If `ssme` or a calibration is requested, the main
    estimator is `ssme`. Otherwise it is the first estimator of the job. If the result of the main estimator
    cannot be published, nothing is published, and the last good fit stays in use. If another estimator fails,
    only its own estimates are unknown, with the reason.

    Returns
    -------
    RefitResult
        The same result for the same job. The caller sets `seconds`. If the refit fails, `refused` contains
        the reason: the main estimator has too few rows or wrong scores, puts nearly all rows into one class,
        refuses its own fit, or raises an error.

    Raises
    ------
    MemoryError
        The fit needs more memory than is available.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> late = rng.integers(0, 2, 400)
    >>> logit = (2 * late - 1)[:, None] + rng.normal(size=(400, 2))
    >>> scores = np.stack([1 / (1 + np.exp(logit)), 1 / (1 + np.exp(-logit))], axis=2)
    >>> job = RefitJob("late", 1, 400, 0.0, ("a", "b"), 1, scores, np.where(np.arange(400) < 80, late, -1),
    ...                scores.argmax(axis=2), np.ones(400), ("ssme",), ("accuracy",), 0.95, 0, True)
    >>> done = refit(job)
    >>> done.refused, done.labelled, [e.estimator for e in done.models["a"].estimates]
    (None, 80, ['ssme', 'ensemble', 'labelled'])
    """
    tags = reported(job.estimators)
    main = "ssme" if job.calibrate or "ssme" in tags else next(iter(tags), "")
    weights, own = _weights(job), _own_weights(job)
    fits = {
        tag: _fitted(job, tag, own if tag in BY_LABELS else weights) for tag in dict.fromkeys([main, *tags])
    }
    chief = fits[main]
    if isinstance(chief, str):
        return job.refused(f"{main}: {chief}")
    rounds = (
        Round(job.acquisition, job.draw_probability, job.draw_pool) if ActiveTesting.tag in tags else None
    )
    return RefitResult(
        job.task,
        job.number,
        job.sequence,
        job.time,
        models={
            name: ModelRefit(tuple(map(WrittenEstimate.from_estimate, estimates)), curve)
            for name, estimates, curve in zip(
                job.models, _estimates(job, fits, tags), _curves(job, chief), strict=True
            )
        },
        rows=len(job.labels),
        labelled=int((job.labels >= 0).sum()),
        pool_rows=max(job.pool_rows, len(job.labels)),
        widening=_widening(job, chief),
        prevalence=tuple(chief.prevalence.tolist()),
        effective_labels=chief.effective_labels,
        converged=chief.converged,
        iterations=chief.iterations,
        labelled_draws=None if rounds is None else rounds.draws,
        missing_draws=None if rounds is None else rounds.missing,
    )


def _fitted(job: RefitJob, tag: str, weights: Floats | str | None) -> LabelEstimator | str:
    """Return the fitted estimator, or the reason why it cannot be published."""
    if tag not in ESTIMATORS:
        return f"is no estimator that uses labels ({', '.join(ESTIMATORS)})"
    if isinstance(weights, str):
        return weights
    positive = job.positive if job.scores.shape[2] == 2 else None
    try:
        if tag == ActiveTesting.tag and job.draw_pool:
            fit: LabelEstimator = _fit_to_draws(job, positive)
        else:
            fit = ESTIMATORS[tag](seed=job.seed, positive=positive).fit(
                job.scores, job.labels, predicted=job.predicted, weights=weights
            )
        fit.expected = job.metrics
        return _unfit(fit) or fit
    except MemoryError:
        raise
    except Exception as error:
        log.exception("tasks.%s: the estimator %s failed in refit %d.", job.task, tag, job.number)
        return f"{FAILED} ({type(error).__name__}: {error})"


def _fit_to_draws(job: RefitJob, positive: int | None) -> ActiveTesting:
    """Return active testing fitted on the labels of its round of draws. Other labels are left out."""
    in_round = job.acquisition > 0
    return ActiveTesting(seed=job.seed, positive=positive, pool=job.draw_pool).fit(
        job.scores,
        np.where(in_round, job.labels, UNLABELLED),
        predicted=job.predicted,
        weights=np.where(in_round, 1.0 / job.draw_probability, 1.0),
        acquisition=job.acquisition,
    )


def _weights(job: RefitJob) -> Floats | None:
    """Return the weights, or None if all labels have the same weight.

    Without weights, estimators use more precise formulas.
    """
    labelled = job.weights[job.labels >= 0]
    return None if len(labelled) == 0 or bool((labelled == labelled[0]).all()) else job.weights


def _own_weights(job: RefitJob) -> Floats | str | None:
    """Return the weights for estimators that use only labels, or the reason why no weights can be used.

    Estimators that model labels by scores do not need weights if the probability of being labelled depends
    only on the scores. If some labels have probabilities, these are used. A label without a probability
    represents only its own row. The labels with a probability represent all other rows. This is right for any
    choice of the labels without one.
    """
    known = job.labels >= 0
    labelled = int(known.sum())
    if job.label_weights == "given" or labelled in (0, len(known)) or (job.weights[known] != 1.0).any():
        return _weights(job)
    if labelled < FEWEST_EFFECTIVE:
        return Reason.TOO_FEW_LABELS
    weights = chance_weights(job.scores, job.labels)
    apart = imbalance(job.scores, job.labels, weights)
    if effective_number(weights[known]) < FEWEST_EFFECTIVE or apart > LARGEST_IMBALANCE:
        return Reason.LABELS_UNLIKE
    return weights


def _unfit(fit: LabelEstimator) -> str | None:
    """Return the reason why a fit must not be published, or None."""
    if fit.refused is not None:
        return fit.refused
    if not np.isfinite(fit.prevalence).all():  # labelled rows of models that are no longer configured
        return Reason.NO_ROWS
    if fit.tag == "ssme" and fit.prevalence.max() > 1.0 - _COLLAPSED:
        return Reason.COLLAPSED
    return None


def _widening(job: RefitJob, chief: LabelEstimator) -> float:
    """Return the share by which sampling of rows widens the accuracy's interval.

    The result is for the model with the largest share; 0.1 means that its interval is 10 % wider.
    """
    if job.pool_rows <= len(job.labels):
        return 0.0
    worst, z = 0.0, float(scipy.special.ndtri((1 + job.level) / 2))
    labelled = job.labels >= 0
    stratum = strata(job.scores, labelled)
    for at in range(len(job.models)):
        estimate, own = _estimate(chief, "accuracy", at, job.level), job.predicted[:, at] >= 0
        if isinstance(estimate, Estimate) and own.any():
            chance = chief.posterior[own, job.predicted[own, at]]
            rows, half = int(own.sum()), (estimate.upper - estimate.lower) / 2
            pool = round(rows * job.pool_rows / len(job.labels))
            sampling = sampling_variance(stratum[own], labelled[own], chance, pool)
            worst = max(worst, widening(sampling, rows, pool, chance, half, z))
    return worst


def _curves(job: RefitJob, chief: LabelEstimator) -> list[dict[str, Any] | None]:
    return calibrations(job, chief) if job.calibrate and isinstance(chief, SSME) else [None] * len(job.models)


def _estimates(
    job: RefitJob, fits: dict[str, LabelEstimator | str], tags: Sequence[str]
) -> list[tuple[MetricEstimate, ...]]:
    """Return each estimator's estimate of each metric, by model."""
    by_model: list[list[MetricEstimate]] = [[] for _ in job.models]
    for metric in job.metrics:
        for tag in tags:
            of_models = [_estimate(fits[tag], metric, at, job.level) for at in range(len(job.models))]
            ranks = _ranks(fits[tag], metric, of_models)
            for at, result in enumerate(of_models):
                rank, chi_square = ranks.get(at, (None, None))
                by_model[at].append(
                    MetricEstimate(metric, tag, result, rank=rank, rank_chi_square=chi_square)
                )
    return [tuple(estimates) for estimates in by_model]


def _ranks(
    fit: LabelEstimator | str, metric: str, of_models: Sequence[Result]
) -> dict[int, tuple[RankInterval, RankInterval | None]]:
    """Return the ranks of the models whose metric is known, by index, for estimators that can rank models.

    The first rank comes from intervals that hold simultaneously at the paper's level of 90 %. Each interval
    has the level 1 - 0.1 / M (Bonferroni). It uses the estimator's own form, which is not normal if a normal
    interval would be too narrow. The second rank comes from the χ² set, if the estimator knows the covariance
    of its errors.
    """
    known = [at for at, result in enumerate(of_models) if not isinstance(result, Unknown)]
    if isinstance(fit, str) or fit.tag not in BY_LABELS or len(known) < 2:
        return {}
    level = 1 - (1 - RANK_LEVEL) / len(known)
    wide = {at: _estimate(fit, metric, at, level) for at in known}
    estimates = {at: e for at, e in wide.items() if isinstance(e, Estimate)}
    sign = -1.0 if metric in SMALLER_IS_BETTER else 1.0
    ranks = rank_intervals([sorted((sign * e.lower, sign * e.upper)) for e in estimates.values()])
    covariance = fit.covariance(metric)
    if covariance is None:
        return {at: (rank, None) for at, rank in zip(estimates, ranks, strict=True)}
    value = [sign * e.value for e in estimates.values()]
    own = covariance[np.ix_(list(estimates), list(estimates))]
    chi_square = simultaneous_ranks(value, own, RANK_LEVEL, "chi_square")
    return dict(zip(estimates, zip(ranks, chi_square, strict=True), strict=True))


def _estimate(fit: LabelEstimator | str, metric: str, at: int, level: float) -> Result:
    if metric not in METRICS:
        return Unknown(Reason.NOT_DEFINED)
    if isinstance(fit, str):
        return Unknown(FAILED if fit.startswith(FAILED) else fit)
    try:
        estimate = fit.estimate(metric, at, level=level)
        if isinstance(estimate, Estimate) and fit.contradicted(at):
            return Unknown(Reason.CONTRADICTED)
        return estimate
    except MemoryError:
        raise
    except Exception:
        log.exception("The estimator %s failed to estimate %s.", fit.tag, metric)
        return Unknown(FAILED)

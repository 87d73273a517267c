"""The base class of every estimator that uses labels.

There are two kinds of estimators:

* a subclass of `LabelEstimator` estimates each metric of some rows directly, from labels alone or with
  corrections by labels;
* a subclass of `monitor.stats.labelled.posterior.PosteriorEstimator` estimates class probabilities of every
  row, and random draws of them. Every metric and its interval are computed from these draws.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from monitor.base.records import Floats
from monitor.base.results import Reason, Result, Unknown
from monitor.stats.estimate.poisson_binomial import checked_level
from monitor.stats.labelled.inputs import (
    Bools,
    LabelledScores,
    checked_input,
    checked_scores,
    effective_number,
)
from monitor.stats.labelled.metrics import METRICS


@dataclass(frozen=True, slots=True, eq=False)
class Fitted:
    """The result of a fit. Rows are in the order of `LabelledScores`.

    Parameters
    ----------
    posterior : (n, K) float64
        Class probabilities of every row. A labelled row has the probability 1 for its class.
    converged : bool
        Whether the iterations converged; True for a method without iterations.
    iterations : int
        The number of iterations; 0 for a method without iterations.
    refused : str or None
        The reason why the fit is unusable; every estimate is then `Unknown` with this reason.
    flags : tuple of str
        Warnings about a usable fit, such as "no labels".
    details : mapping of str to float
        Fitted parameters of the method, such as a bandwidth.
    """

    posterior: Floats
    converged: bool = True
    iterations: int = 0
    refused: str | None = None
    flags: tuple[str, ...] = ()
    details: Mapping[str, float] = field(default_factory=dict)


class LabelEstimator(ABC):
    """An estimator of model quality from many scores and few labels.

    A subclass defines `tag`, `_fit`, `_estimate`, `_predict`, and `metrics` if it supports only some metrics.
    In its methods, rows and models are in the order of `LabelledScores`, not in the caller's order.

    Parameters
    ----------
    seed : int
        Seed of all random numbers. Equal inputs and seeds give equal results, in any order of rows and
        models.
    positive : int, optional
        The positive class for precision, recall, F1, specificity, AUROC, average precision and `class_ece`,
        by default the second of two classes. With more classes these metrics are means over the classes.

    Attributes
    ----------
    tag : str
        The estimator's name in `ESTIMATORS`, in the configuration and in Prometheus.
    metrics : frozenset of str
        The supported metrics; `estimate` returns `Unknown` for others.
    two_classes_only : bool
        True if the paper defines the estimator for two classes only. With more classes, a fit is unusable
        with the reason `not defined`.
    needs : frozenset of str
        The optional arguments of `fit` that this estimator requires.
    expected : sequence of str
        The metrics that the caller will estimate. Estimators that compute several metrics from the same draws
        use this to save time.
    """

    tag: ClassVar[str]
    metrics: ClassVar[frozenset[str]] = frozenset(METRICS)
    two_classes_only: ClassVar[bool] = False
    needs: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, *, seed: int = 0, positive: int | None = None) -> None:
        if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
            raise ValueError(f"seed must be a whole number of 0 or more, got {seed!r}")
        self.seed = int(seed)
        self.positive = positive
        self.expected: Sequence[str] = ()
        self._data: LabelledScores | None = None
        self._fitted: Fitted | None = None

    def fit(
        self,
        scores: ArrayLike,
        labels: ArrayLike,
        *,
        predicted: ArrayLike | None = None,
        weights: ArrayLike | None = None,
        acquisition: ArrayLike | None = None,
    ) -> Self:
        """Fit the estimator on all rows, and return it. A new fit replaces an earlier one.

        The arrays are copied and never modified.

        Parameters
        ----------
        scores : (n, M, K) array of float
            Class probabilities of M models; NaN for all classes if a model has no answer.
        labels : (n,) array of int
            True class; −1 if unknown.
        predicted : (n, M) array of int, optional
            The models' classes; by default the argmax of the scores.
        weights : (n,) array of float, optional
            Inverse of the probability with which each row was labelled, if these probabilities differ;
            ignored on unlabelled rows.
        acquisition : (n,) array of int, optional
            Number of the draw that labelled the row; −1 for an unlabelled row.

        Raises
        ------
        ValueError
            An argument has a wrong shape or value; see `checked_input`.
        """
        data = checked_input(scores, labels, predicted, weights, acquisition)
        if self.positive is not None and not 0 <= self.positive < data.classes:
            raise ValueError(
                f"positive must be a class index from 0 to {data.classes - 1}, got {self.positive!r}"
            )
        self._data, self._fitted = data, None
        self._forget()
        self._fitted = self._unfit(data) or self._fit(data)
        return self

    def estimate(
        self, metric: str, model: int = 0, where: ArrayLike | None = None, level: float = 0.95
    ) -> Result:
        """Return one metric of one model with its interval.

        Parameters
        ----------
        metric : str
            One of `METRICS`.
        model : int
            Column of the scores, from 0.
        where : (n,) array of bool, optional
            A mask of the rows of a subgroup, to which the metric is restricted; the fit stays the same.
        level : float
            Level of the interval, above 0 and below 1.

        Returns
        -------
        Estimate or Unknown
            A value from 0 to 1, or the reason why it is unknown: the estimator does not support the metric,
            the rows leave it undefined, or the fit is unusable.

        Raises
        ------
        ValueError
            The metric, the model, the mask or the level is wrong.
        RuntimeError
            `fit` was not called yet.
        """
        checked_level(level)
        resolved = self._resolve(metric, model, where)
        return resolved if isinstance(resolved, Unknown) else self._estimate(metric, *resolved, level)

    def contradicted(self, model: int = 0) -> bool:
        """Return whether labels contradict the assumptions of the fit about a model.

        If so, the agent publishes `Unknown`. Only `spe` checks its assumptions. For other estimators, the
        result is False.

        Parameters
        ----------
        model : int
            Column of the scores, from 0.

        Raises
        ------
        ValueError
            There is no such model.
        RuntimeError
            `fit` was not called yet.
        """
        self._model(model)
        return False

    def covariance(self, metric: str) -> Floats | None:
        """Return the (M, M) covariance of the M models' estimates of a metric over all rows.

        If the metric of a model is unknown, the row and column of the model are NaN. Only `autoeval`,
        `rectified` and `labelled` can compute the covariance, and only for accuracy, because their errors
        come from the labels alone. In all other cases, and if the fit is unusable, the result is None.

        Raises
        ------
        ValueError
            The metric is unknown.
        RuntimeError
            `fit` was not called yet.
        """
        data, fitted = self._done()
        _checked_metric(metric)
        covariance = None if fitted.refused is not None else self._covariance(metric)
        if covariance is None:
            return None
        place = np.argsort(data.model_order)
        return covariance[np.ix_(place, place)]

    def predict(self, scores: ArrayLike) -> Floats:
        """Return the (m, K) class probabilities of new rows, each with the sum 1, according to the fit.

        Parameters
        ----------
        scores : (m, M, K) array of float
            Scores as for `fit`, with the models in the same order.

        Raises
        ------
        ValueError
            The scores have another number of models or classes than in `fit`, or invalid values.
        RuntimeError
            `fit` was not called yet, or the fit was refused.
        """
        data, fitted = self._done()
        if fitted.refused is not None:
            raise RuntimeError(f"the fit was refused ({fitted.refused}), so it cannot predict")
        table = checked_scores(scores, data.models, data.classes)
        return self._predict(table[:, data.model_order])

    @property
    def posterior(self) -> Floats:
        """The (n, K) class probabilities of the fitted rows, in the caller's order.

        A labelled row has the probability 1 for its class.
        """
        data, fitted = self._done()
        return data.to_original(fitted.posterior)

    @property
    def converged(self) -> bool:
        """True if the fit converged, or the method has no iterations."""
        return self._done()[1].converged

    @property
    def iterations(self) -> int:
        """The number of iterations of the fit; 0 for a method without iterations."""
        return self._done()[1].iterations

    @property
    def refused(self) -> str | None:
        """The reason why the fit is unusable; None if it is usable."""
        return self._done()[1].refused

    @property
    def flags(self) -> tuple[str, ...]:
        """Warnings about the fit, such as "no labels"."""
        return self._done()[1].flags

    @property
    def details(self) -> Mapping[str, float]:
        """Fitted parameters of the method, such as a bandwidth."""
        return self._done()[1].details

    @property
    def prevalence(self) -> Floats:
        """The (K,) share of each class: the mean class probabilities over the rows."""
        posterior = self._done()[1].posterior
        shares: Floats = posterior.mean(axis=0) if len(posterior) else np.full(posterior.shape[1], np.nan)
        return shares

    @property
    def effective_labels(self) -> float:
        """The effective number of labels: as many equally weighted ones have the same information.

        The number is (Σw)² / Σw² (L. Kish).
        """
        data, _ = self._done()
        if data.weights is None:
            return float(data.labelled.sum())
        return effective_number(data.weights[data.labelled])

    @abstractmethod
    def _fit(self, data: LabelledScores) -> Fitted:
        """Fit at least one row that a model answered."""

    @abstractmethod
    def _estimate(self, metric: str, model: int, where: Bools, level: float) -> Result:
        """Return the metric of the rows `_rows(model, where)`, of which there is at least one.

        Rows and models are in the order of the fit.
        """

    @abstractmethod
    def _predict(self, scores: Floats) -> Floats:
        """Return class probabilities (m, K) of new rows, with the models in the order of the fit."""

    def _covariance(self, metric: str) -> Floats | None:
        """Return the result of `covariance`, with the models in the order of the fit."""
        return None

    def _unfit(self, data: LabelledScores) -> Fitted | None:
        """Return a refused fit if the rows allow none, else None."""
        if not data.present.any():
            # No model answered any row.
            reason = Reason.NO_ROWS
        elif self.two_classes_only and data.classes > 2:
            reason = Reason.NOT_DEFINED
        else:
            return None
        return Fitted(data.clamp(data.mean_of_models()), converged=False, refused=reason)

    def _forget(self) -> None:
        """Drop the results of an earlier fit, before a new one."""
        return

    def _resolve(self, metric: str, model: int, where: ArrayLike | None) -> tuple[int, Bools] | Unknown:
        """Return model and mask in the order of the fit, or the reason why the metric is unknown."""
        _, fitted = self._done()
        _checked_metric(metric)
        at, mask = self._model(model), self._where(where)
        if metric not in self.metrics:
            return Unknown(Reason.NOT_DEFINED)
        if not self._rows(at, mask).any():
            return Unknown(Reason.NO_ROWS)
        return (at, mask) if fitted.refused is None else Unknown(fitted.refused)

    def _rows(self, model: int, where: Bools) -> Bools:
        """Return a mask (n,) of the rows of `where` that the model has answered."""
        data, _ = self._done()
        rows: Bools = data.present[:, model] & where
        return rows

    def _done(self) -> tuple[LabelledScores, Fitted]:
        if self._data is None or self._fitted is None:
            raise RuntimeError(f"{type(self).__name__} has no fit yet: call fit(scores, labels) first")
        return self._data, self._fitted

    def _positive(self) -> int:
        data, _ = self._done()
        return data.classes - 1 if self.positive is None else self.positive

    def _model(self, model: int) -> int:
        data, _ = self._done()
        if not 0 <= model < data.models:
            raise ValueError(
                f"model must be a column of the scores, from 0 to {data.models - 1}, got {model!r}"
            )
        return int(np.flatnonzero(data.model_order == model)[0])

    def _where(self, where: ArrayLike | None) -> Bools:
        data, _ = self._done()
        if where is None:
            return np.ones(data.rows, dtype=np.bool_)
        mask = np.asarray(where)
        if mask.dtype != np.bool_ or mask.shape != (data.rows,):
            raise ValueError(
                f"where must be a mask of {data.rows} booleans, one for each row of the fit, got an array of "
                f"{mask.dtype} of the shape {mask.shape}"
            )
        return mask[data.row_order]


def _checked_metric(metric: str) -> None:
    if metric not in METRICS:
        raise ValueError(f"metric must be one of {', '.join(METRICS)}, got {metric!r}")

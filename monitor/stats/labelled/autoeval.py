"""AutoEval: the models annotate the unlabelled rows, and the labels correct the annotation."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from monitor.base.records import Floats
from monitor.base.results import Reason, Result
from monitor.stats.labelled.base import Fitted, LabelEstimator
from monitor.stats.labelled.inputs import Bools, LabelledScores, mean_of_models
from monitor.stats.labelled.powered import accuracy_covariance, accuracy_of

Annotator = Literal["self", "mean"]


class AutoEval(LabelEstimator):
    """Accuracy by PPI++ (Boyeau et al.); the model itself, or another annotator, predicts the missing labels.

    It is unbiased with any annotator, as long as the labelled rows are a random sample, or `weights` have the
    inverse of each row's probability. A good annotator narrows the interval; a bad one leaves the interval of
    the labels alone. The paper defines means of a φ(prediction, label); of the named metrics only accuracy is
    one. For other φ see `monitor.stats.labelled.ppi`. The interval is Wilson's at the effective number of
    labels (`powered_share`); the paper's normal interval covers too little with few labels. With a few dozen
    labels, mostly picked from uncertain rows, ours covers too little as well (90.5 % instead of 95 % with
    40): a confident error is rarely among them, and has a large weight.

    Parameters
    ----------
    annotator : {"self", "mean"}, int or (n, K) array of float
        The class probabilities in place of labels: each model's own, the models' mean, one model's by its
        column, or an array with a row for each row of the scores.
    lam : float, optional
        Trust in the annotator, from 0 to 1; 1 is plain PPI. By default tuned for least variance.

    Raises
    ------
    ValueError
        An argument is not allowed.

    References
    ----------
    Boyeau et al., *AutoEval Done Right*, section 2 and appendix B; for their misprints see
    `PredictionPowered.interval` and `prediction_powered`.

    Examples
    --------
    >>> scores = np.tile([[[0.1, 0.9]], [[0.6, 0.4]]], (250, 1, 1))
    >>> labels = np.full(500, -1)
    >>> labels[:50] = np.tile([1, 0, 1, 1, 1, 0, 1, 0, 1, 1], 5)
    >>> found = AutoEval().fit(scores, labels).estimate("accuracy")
    >>> round(found.value, 3), found.n
    (0.8, 50)
    """

    tag = "autoeval"
    metrics = frozenset({"accuracy"})

    def __init__(
        self,
        *,
        seed: int = 0,
        positive: int | None = None,
        annotator: Annotator | int | ArrayLike = "self",
        lam: float | None = None,
    ) -> None:
        super().__init__(seed=seed, positive=positive)
        if isinstance(annotator, str) and annotator not in ("self", "mean"):
            raise ValueError(
                f"annotator must be 'self', 'mean', a model's column or an array (n, K), got {annotator!r}"
            )
        if lam is not None and not 0.0 <= lam <= 1.0:
            raise ValueError(f"lam must lie from 0 (labels alone) to 1 (plain PPI), got {lam}")
        self.annotator = annotator
        self.lam = lam

    def _fit(self, data: LabelledScores) -> Fitted:
        if not data.labelled.any():
            return Fitted(data.mean_of_models(), refused=Reason.NO_LABELS)
        self._chance(data, 0)  # a wrong annotator is named here, not at the first question
        return Fitted(data.clamp(data.mean_of_models()))

    def _chance(self, data: LabelledScores, model: int) -> Floats:
        """(n, K) the annotator's class probabilities."""
        if isinstance(self.annotator, str):
            return data.scores[:, model] if self.annotator == "self" else data.mean_of_models()
        if isinstance(self.annotator, int | np.integer):
            return self._of_column(data, int(self.annotator))
        given = np.asarray(self.annotator, dtype=np.float64)
        if given.shape != (data.rows, data.classes) or not np.isfinite(given).all():
            raise ValueError(
                f"annotator must hold finite class probabilities of the shape {(data.rows, data.classes)}, "
                f"like the scores, got {given.shape}"
            )
        found: Floats = given[data.row_order]
        return found

    def _of_column(self, data: LabelledScores, column: int) -> Floats:
        if not 0 <= column < data.models:
            raise ValueError(f"annotator must be a column from 0 to {data.models - 1}, got {column}")
        at = int(np.flatnonzero(data.model_order == column)[0])
        own = data.scores[:, at]
        return np.where(np.isnan(own), data.mean_of_models(), own)

    def _predict(self, scores: Floats) -> Floats:
        return mean_of_models(scores)

    def _estimate(self, metric: str, model: int, where: Bools, level: float) -> Result:
        data, _ = self._done()
        rows = np.flatnonzero(self._rows(model, where))
        return accuracy_of(data, rows, model, self._chance(data, model), self.lam, level)

    def _covariance(self, metric: str) -> Floats | None:
        data, _ = self._done()
        if metric != "accuracy":
            return None
        return accuracy_covariance(data, [self._chance(data, m) for m in range(data.models)], self.lam)

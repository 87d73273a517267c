"""AutoEval: model scores replace missing labels, and the known labels correct the result."""

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
    """The accuracy by PPI++ (Boyeau et al.), with the scores of an annotator in place of missing labels.

    The annotator may be the model itself or another one. The estimator assumes that the labelled rows are a
    random sample, or that `weights` have the inverse probability with which each row was labelled. Under this
    assumption, the estimator is unbiased with any annotator. A good annotator narrows the interval. With a
    bad annotator, the interval is as wide as with labels alone. The paper estimates means of a function
    φ(prediction, label). Of the metrics here, only accuracy has this form. For other φ see
    `monitor.stats.labelled.ppi`.

    The interval is Wilson's for the effective number of labels (`powered_share`), because the coverage of the
    paper's normal interval is too small with few labels. With a few dozen labels, mostly of uncertain rows,
    the coverage of Wilson's interval is too small as well (90.5 % instead of 95 % with 40). The reason is
    that a confident error is rarely labelled, and has a large weight if it is.

    Parameters
    ----------
    annotator : {"self", "mean"}, int or (n, K) array of float
        The source of the class probabilities that replace labels. With ``"self"``, they are the scores of the
        evaluated model, with ``"mean"`` the mean over the models, and with an int the scores of the model in
        this column. An array has the probabilities of each row.
    lam : float, optional
        The weight of the annotator, from 0 to 1. With 1, the method is plain PPI. By default, the weight is
        tuned for the least variance.

    Raises
    ------
    ValueError
        An argument is out of range or has a wrong shape.

    References
    ----------
    Boyeau et al., *AutoEval Done Right*, section 2 and appendix B; for their misprints see
    `PredictionPowered.interval` and `prediction_powered`.

    Examples
    --------
    >>> scores = np.tile([[[0.1, 0.9]], [[0.6, 0.4]]], (250, 1, 1))
    >>> labels = np.full(500, -1)
    >>> labels[:50] = np.tile([1, 0, 1, 1, 1, 0, 1, 0, 1, 1], 5)
    >>> accuracy = AutoEval().fit(scores, labels).estimate("accuracy")
    >>> round(accuracy.value, 3), accuracy.n
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
        self._chance(data, 0)  # raise the error of a wrong annotator here, not at the first estimate
        return Fitted(data.clamp(data.mean_of_models()))

    def _chance(self, data: LabelledScores, model: int) -> Floats:
        """Return the annotator's class probabilities, (n, K)."""
        if isinstance(self.annotator, str):
            return data.scores[:, model] if self.annotator == "self" else data.mean_of_models()
        if isinstance(self.annotator, int | np.integer):
            return self._from_column(data, int(self.annotator))
        table = np.asarray(self.annotator, dtype=np.float64)
        if table.shape != (data.rows, data.classes) or not np.isfinite(table).all():
            raise ValueError(
                f"annotator must hold finite class probabilities of the shape {(data.rows, data.classes)}, "
                f"like the scores, got {table.shape}"
            )
        sorted_rows: Floats = table[data.row_order]
        return sorted_rows

    def _from_column(self, data: LabelledScores, column: int) -> Floats:
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

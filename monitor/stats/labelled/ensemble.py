"""The mean of the classifiers as an estimator, mainly for comparison.

The fits of other estimators start from this mean.
"""

from __future__ import annotations

from monitor.base.records import Floats
from monitor.stats.labelled.base import Fitted
from monitor.stats.labelled.inputs import LabelledScores, mean_of_models
from monitor.stats.labelled.posterior import PosteriorEstimator


class Ensemble(PosteriorEstimator):
    """Metrics with the mean score of the models in place of missing labels.

    A label affects only its own row. The estimator assumes that the mean of the classifiers is calibrated.
    Labels do not correct a calibration error of this mean. The interval includes only the sampling of the
    rows, and not the calibration error.

    Lowest coverage of its 95 % intervals on real classifiers (`tests/fidelity/SCOREBOARD.md`): accuracy 16
    %, class_ece 15 %, auroc 0 %, average_precision 1 %.

    References
    ----------
    Shanmugam et al., appendix D.4, where the label is drawn from the mean instead.

    Examples
    --------
    >>> scores = [[[0.9, 0.1], [0.7, 0.3]], [[0.2, 0.8], [0.4, 0.6]]]
    >>> fit = Ensemble().fit(scores, [-1, 1])
    >>> fit.posterior.round(2).tolist()
    [[0.8, 0.2], [0.0, 1.0]]
    >>> fit.point("accuracy", model=0)
    0.9
    """

    tag = "ensemble"

    def _fit(self, data: LabelledScores) -> Fitted:
        flags = () if data.labelled.any() else ("no labels",)
        return Fitted(data.clamp(data.mean_of_models()), flags=flags)

    def _predict(self, scores: Floats) -> Floats:
        return mean_of_models(scores)

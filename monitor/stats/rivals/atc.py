"""Average thresholded confidence: the share of confidences above a threshold, fitted on a reference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from monitor.base.records import Floats
from monitor.stats.estimate.reference import ReferenceEstimator, checked_reference


@dataclass(frozen=True, slots=True)
class ATC(ReferenceEstimator):
    """The accuracy as the share of confidences above a threshold, fitted on a labelled reference.

    The threshold is chosen so that the share of the reference's confidences below it is the reference's error
    rate. Under shift, the estimate is too low even with calibrated confidences (Kivimäki et al., Figure 3).
    It also misleads if many confidences are equal, for example after a stepwise calibration. Then no
    threshold gives the accuracy of the reference.

    Lowest coverage of its 95 % intervals on real classifiers (`tests/fidelity/SCOREBOARD.md`): accuracy 74
    %.

    Parameters
    ----------
    threshold : float
        The confidence above which an answer counts as right. It is below 0 if the reference had no wrong
        answer.

    References
    ----------
    S. Garg et al., *Leveraging unlabeled data to predict out-of-distribution performance*, ICLR 2022;
    Kivimäki et al., section 3. Neither gives an interval: ours is the central quantiles of a binomial.

    Examples
    --------
    >>> fitted = ATC.fit([0.5, 0.6, 0.7, 0.8, 0.9], [False, True, True, True, True])
    >>> fitted.threshold, fitted.estimate([0.4, 0.5, 0.9, 0.95]).value
    (0.5, 0.5)
    """

    threshold: float
    is_share: ClassVar[bool] = True

    @classmethod
    def fit(cls, confidence: ArrayLike, correct: ArrayLike) -> ATC:
        """Return the estimator, fitted on (n,) confidences and on (n,) outcomes, True for a right prediction.

        The threshold is the confidence of rank n × error rate, counted from the lowest confidence. The share
        of confidences above the threshold is the accuracy, or a smaller share if confidences are tied.
        """
        confidences, outcomes = checked_reference(confidence, correct)
        wrong = len(outcomes) - int(outcomes.sum())
        return cls(float(np.sort(confidences)[wrong - 1]) if wrong else -1.0)

    def _accuracy(self, confidence: Floats) -> float:
        return float((confidence > self.threshold).mean())

"""DoC-Feat: the accuracy of a reference plus the change of the mean confidence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from numpy.typing import ArrayLike

from monitor.base.records import Floats
from monitor.stats.estimate.reference import ReferenceEstimator, checked_reference


@dataclass(frozen=True, slots=True)
class DoCFeat(ReferenceEstimator):
    """The accuracy as the reference's accuracy plus the change of the mean confidence.

    If the confidences are calibrated on the reference, the estimate equals Average Confidence. If they are
    not, the estimate corrects their bias on the reference, and is right as long as this bias stays the same.
    The estimate misleads if an underconfident model becomes overconfident, or vice versa.

    Parameters
    ----------
    bias : float
        Accuracy minus mean confidence on the reference, −1 to 1.

    References
    ----------
    D. Guillory et al., *Predicting with confidence on unseen distributions*, ICCV 2021; Kivimäki et al.,
    section 3. Neither gives an interval: ours is the central quantiles of a binomial.

    Examples
    --------
    >>> fitted = DoCFeat.fit([0.9] * 10, [True] * 8 + [False] * 2)
    >>> round(fitted.bias, 3), round(fitted.estimate([0.8] * 100).value, 3)
    (-0.1, 0.7)
    """

    bias: float
    is_share: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not -1.0 <= self.bias <= 1.0:
            raise ValueError(f"bias must be a difference of two shares, from -1 to 1, got {self.bias}")

    @classmethod
    def fit(cls, confidence: ArrayLike, correct: ArrayLike) -> DoCFeat:
        """Return the estimator fitted on (n,) confidences and (n,) outcomes, True for a right prediction."""
        confidences, outcomes = checked_reference(confidence, correct)
        return cls(float(outcomes.mean() - confidences.mean()))

    def _accuracy(self, confidence: Floats) -> float:
        return float(confidence.mean()) + self.bias

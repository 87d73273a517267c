"""The reference's calibration curve, adjusted to drift by a few newer labels.

Drift mostly changes the whole curve smoothly, so two numbers describe the change. In log-odds, the
reference's curve is shifted by a and stretched by b,

    logit p(s) = ℓ(s) + a + b ℓ(s),    ℓ(s) = logit of the reference's curve at score s,

where (a, b) starts near (0, 0) and follows a random walk from label to label. Each entry of `WALKS` is a
hypothesis about the variances of the start and of the steps. The first walk never moves, so it keeps the
reference's curve. For each walk an extended Kalman filter processes the labels in order. The product of its
predictive probabilities of the labels is the walk's evidence (A. P. Dawid's prequential principle). The
published curve is the mean of all walks' curves, weighted by prior times evidence. The label of a request
applies to all models that answered it, so the log evidence is the mean over the models, not the sum.

Noise limits the gain. 500 labels estimate an accuracy with a standard error of 1.7 percentage points. A
correction for a smaller change would do more harm than good, so the prior shrinks such corrections. Errors in
real streams also occur in clusters (a day of bad weather). Therefore a label is less informative than an
independent label, and counts as `WORTH` independent labels.

`WALKS`, `NEWEST` and `WORTH` were chosen on simulated streams and on flight data. `tests.fidelity.refit`
reports results with other seeds and other samples of labels. Labels older than the newest 500 did not improve
the estimate of any window. With a `WORTH` of 1, the estimates of single windows of flights were no nearer to
the truth than estimates from the reference alone. With a quarter, the curve followed only half of the drift.

References
----------
P. Grünwald, *The safe Bayesian*, ALT 2012, for likelihoods raised to a power below 1. A. P. Dawid,
*Statistical theory: the prequential approach*, JRSS A 147 (1984). D. J. C. MacKay, *The evidence framework
applied to classification networks*, Neural Computation 4 (1992), for the probability under an uncertain
logit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy

from monitor.base.records import Floats
from monitor.stats.calibration.isotonic import Curve

NEWEST = 500
"""The number of newest labelled rows in use; older rows describe a past state of the walks."""

WORTH = 0.5
"""The number of independent labels that one label counts for."""

LEAST = 1e-3
"""The smallest distance of probabilities from 0 and 1. A curve gives 0 to an event that does not occur in its
rows."""


class Walk(NamedTuple):
    """A hypothesis about drift: a random walk of a curve's shift and stretch, with these variances.

    `shift` and `stretch` are variances at the oldest labelled row; `shift_step` and `stretch_step` are
    variances of each step from a labelled row to the next.
    """

    shift: float
    stretch: float
    shift_step: float
    stretch_step: float


STILL = Walk(0.0, 0.0, 0.0, 0.0)

WALKS = (
    STILL,
    Walk(0.05, 0.0, 0.0, 0.0),
    Walk(0.05, 0.0, 1e-4, 0.0),
    Walk(0.05, 0.0, 1e-3, 0.0),
    Walk(0.05, 0.01, 0.0, 0.0),
    Walk(0.05, 0.01, 1e-4, 3e-6),
    Walk(0.05, 0.01, 1e-3, 1e-5),
)

STILL_PRIOR = 0.5
"""Prior probability that nothing has changed; the other walks share the rest."""

_LEAST_STRETCH = 0.1  # smallest 1 + b: a curve may become nearly flat, but may not fall
_NEWTON_STEPS = 4  # for one label: the third step changes the sixth digit
_GRID = np.linspace(0.0, 1.0, 101)  # knots besides the curve's own knots


@dataclass(frozen=True, slots=True, eq=False)
class FollowedCurves:
    """The state of C calibration curves (of classes or models) after the newest label.

    Each walk is a hypothesis about the drift of the curves (`Walk`).

    Parameters
    ----------
    weight : (walks,) float64
        Posterior probability of each walk; the sum is 1.
    shift, stretch : (walks, C) float64
        Estimated shift a and stretch b of each curve under each walk.
    log_evidence : float
        Log-probability of the labels, averaged over the walks by their prior, in nats.
    """

    weight: Floats
    shift: Floats
    stretch: Floats
    log_evidence: float

    @property
    def still(self) -> float:
        """The posterior probability that the calibration curves have not drifted since the reference."""
        return float(self.weight[0])

    def curve(self, reference: Curve, at: int) -> Curve:
        """Return `reference`, the curve of the reference with the index `at`, adjusted to the drift."""
        knots = np.union1d(reference.x, _GRID)
        logit = _logit(reference(knots))
        stretch = np.maximum(1.0 + self.stretch[:, at], _LEAST_STRETCH)
        moved = scipy.special.expit(self.shift[:, at, None] + stretch[:, None] * logit)
        return Curve(knots, np.maximum.accumulate(self.weight @ moved))


def follow(
    chance: Floats,
    happened: Floats,
    weights: Floats,
    share: float = 1.0,
    walks: Sequence[Walk] = WALKS,
) -> FollowedCurves:
    """Estimate the drift of C calibration curves from n labelled rows.

    Parameters
    ----------
    chance : (n, C) float64
        Probability of the event by each reference curve, from 0 to 1; NaN if the curve's model did not
        answer. The rows are in time order.
    happened : (n, C) float64
        1 if the curve's event (its class, or a right answer) occurred, else 0.
    weights : (n,) float64
        The number of independent labels that each row counts for, before the factor `WORTH`.
    share : float
        A factor for the evidence of a row, which is the mean over the curves. The factor is above 1 if a
        model has curves for several classes, because these are more informative together than one curve.
    walks : sequence of Walk
        The first must be `STILL`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> claimed = rng.uniform(0.05, 0.95, (400, 1))
    >>> steady = follow(claimed, (rng.random((400, 1)) < claimed) * 1.0, np.ones(400))
    >>> drifted = follow(claimed, (rng.random((400, 1)) < claimed * 0.7) * 1.0, np.ones(400))
    >>> round(steady.still, 1), round(drifted.still, 3)
    (0.6, 0.0)
    >>> curve = drifted.curve(Curve(np.array([0.0, 1.0]), np.array([0.0, 1.0])), 0)
    >>> curve(np.array([0.5])).round(2).tolist()
    [0.35]
    """
    state = _States(walks, chance.shape[1])
    prior = np.full(len(walks), (1.0 - STILL_PRIOR) / max(len(walks) - 1, 1))
    prior[0] = STILL_PRIOR if len(walks) > 1 else 1.0
    evidence = np.log(prior)
    for row, came, weight in zip(chance, happened, (WORTH * weights).tolist(), strict=True):
        answered = ~np.isnan(row)
        if not answered.any():
            continue
        logit = _logit(np.where(answered, row, 0.5))
        forecast = state.update(logit, came, weight * answered)
        evidence += weight * share * forecast[:, answered].mean(axis=1)
    total = float(scipy.special.logsumexp(evidence))
    return FollowedCurves(np.exp(evidence - total), state.shift, state.stretch, total)


class _States:
    """The (walks, C) bivariate normal distributions of shift and stretch."""

    def __init__(self, walks: Sequence[Walk], curves: int) -> None:
        shape = (len(walks), curves)
        start = np.array(walks)[:, :, None]
        self.shift, self.stretch, self._both = np.zeros(shape), np.zeros(shape), np.zeros(shape)
        self._shift_variance = np.broadcast_to(start[:, 0], shape).copy()
        self._stretch_variance = np.broadcast_to(start[:, 1], shape).copy()
        self._steps = start[:, 2], start[:, 3]

    def update(self, logit: Floats, happened: Floats, weight: Floats) -> Floats:
        """Add a labelled row, and return the (walks, C) log-probabilities that the walks gave its outcome."""
        self._shift_variance += self._steps[0]
        self._stretch_variance += self._steps[1]
        of_shift = self._shift_variance + logit * self._both  # covariance with the row's log-odds
        of_stretch = self._both + logit * self._stretch_variance
        variance = of_shift + logit * of_stretch
        mean = logit + self.shift + logit * self.stretch
        chance = scipy.special.expit(mean / np.sqrt(1.0 + np.pi * variance / 8.0))
        forecast = np.log(np.where(happened == 1.0, chance, 1.0 - chance))
        pull = np.zeros_like(mean)  # the distance of the mode from the mean in log-odds, over their variance
        for _ in range(_NEWTON_STEPS):
            p = scipy.special.expit(mean + variance * pull)
            pull += (weight * (happened - p) - pull) / (1.0 + weight * p * (1.0 - p) * variance)
        p = scipy.special.expit(mean + variance * pull)
        gain = weight * p * (1.0 - p)
        gain /= 1.0 + variance * gain
        self.shift += of_shift * pull
        self.stretch += of_stretch * pull
        self._shift_variance -= of_shift * of_shift * gain
        self._both -= of_shift * of_stretch * gain
        self._stretch_variance -= of_stretch * of_stretch * gain
        return np.asarray(forecast)


def _logit(chance: Floats) -> Floats:
    kept = np.clip(chance, LEAST, 1.0 - LEAST)
    logits: Floats = np.log(kept / (1.0 - kept))
    return logits

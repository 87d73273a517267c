"""The hypotheses that `SSME` compares, and their prior weights."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np

from monitor.base.records import Floats, Ints
from monitor.stats.labelled.inputs import Bools
from monitor.stats.labelled.ssme_evidence import Evidence
from monitor.stats.labelled.ssme_families import (
    ParticleFamily,
    RankBinormal,
    ScaledSoftmax,
    offsets,
    softmax,
)


@dataclass(frozen=True, slots=True)
class _Prior:
    """The weight of a hypothesis before any label, up to a factor.

    The weight is weight · a^agree · exp(slope·x + curve·x²) with a = `shares_agree`, and x the logarithm of
    twice `claimed_error_ratio`, which is clipped to 0.1 to 3. For x below 0 the models claim fewer errors
    than is possible.

    Parameters
    ----------
    weight : float
    factors : tuple of float or None
        Prior weights of the corrections' factors (`ssme_adjust.FACTORS`); None for no correction.
    agree, slope, curve : float
    """

    weight: float
    factors: tuple[float, ...] | None
    agree: float = 0.0
    slope: float = 0.0
    curve: float = 0.0

    def log(self, log_agree: float, log_ratio: float) -> float:
        """Return the logarithm of the weight, from log a and x."""
        return float(
            np.log(self.weight) + self.agree * log_agree + self.slope * log_ratio + self.curve * log_ratio**2
        )


_OF_TWO, _OF_MORE = (0.4, 0.1, 0.15, 0.175, 0.175), (0.05, 0.1, 0.2, 0.3, 0.35)
_ONE_MODEL = {
    2: {
        "mean": _Prior(0.4, None),
        "claims": _Prior(0.14, _OF_TWO),
        "softmax": _Prior(0.23, _OF_TWO),
        "binormal": _Prior(0.23, _OF_TWO),
    },
    3: {
        "mean": _Prior(0.4, None),
        "claims": _Prior(0.14, _OF_MORE),
        "softmax": _Prior(0.46, _OF_MORE),
    },
}
_CLAIMED_OF_MORE, _FREE_OF_MORE = (0.0997, 0.0505, 0.661, 0.141, 0.0469), (0.0466, 0.0252, 0.0557, 0.573, 0.3)
_CLAIMED_OF_TWO, _FREE_OF_TWO = (0.138, 0.0923, 0.198, 0.545, 0.0269), (0.541, 0.0973, 0.082, 0.103, 0.177)
_SEVERAL_MODELS = {
    2: {
        "mean": _Prior(0.336, None, slope=1.4, curve=-1.3),
        "claims": _Prior(0.14, _CLAIMED_OF_TWO, slope=0.24, curve=1.3),
        "each": _Prior(0.496, _FREE_OF_TWO, agree=2.4, slope=0.9, curve=0.1),
        "softmax": _Prior(0.00632, _FREE_OF_TWO, slope=-2.1, curve=-0.15),
        "binormal": _Prior(0.0216, _FREE_OF_TWO, slope=-2.9, curve=0.022),
    },
    3: {
        "mean": _Prior(0.369, None, slope=1.2, curve=-1.1),
        "claims": _Prior(0.27, _CLAIMED_OF_MORE, slope=1.1, curve=0.86),
        "each": _Prior(0.349, _FREE_OF_MORE, agree=2.8, slope=0.67, curve=0.19),
        "softmax": _Prior(0.0118, _FREE_OF_MORE, slope=-0.94, curve=0.06),
    },
}
"""Priors for two classes and for three or more. They were chosen on the development draws of trained
classifiers and the development suite, at 20, 50 and 100 labels (`python -m tests.fidelity.ssme trained
--split development`); the priors for one model on the suite and the development half of the paper's data."""

_AGREED, _APART = 0.1, 0.3
"""Usual spread of class shares between models, on the logit scale, for calibrated models and for others. In
the development suite the error of the classifiers' mean is smallest where the spread is small, and models
trained on few rows have the largest spread."""

_RATIOS = (0.1, 3.0)

_SLOPES = np.exp(np.linspace(-2.0, 2.0, 25))
_SOLVED_ROWS = 1024


@dataclass(frozen=True, slots=True, eq=False)
class Hypothesis:
    """A hypothesis about class probabilities, given the evidence: a family of curves and a prior weight.

    Parameters
    ----------
    family : ParticleFamily
    log_prior : float
        Logarithm of the prior weight, up to a common constant.
    factors : tuple of float or None
        Prior weights of the factors that scale the corrections (`Adjustment`). None for the unchanged mean of
        the classifiers, the hypothesis that needs no correction.
    """

    family: ParticleFamily
    log_prior: float
    factors: tuple[float, ...] | None


def hypotheses(evidence: Evidence, scores: Floats, heard: Floats, differ: float) -> tuple[Hypothesis, ...]:
    """Return the hypotheses that apply to this number of models and classes.

    * mean: the mean of the classifiers is right; with one model, its scores.
    * claims: the mean is right, except for errors of about 10 % in scale and class shares.
    * each (several models): every model is calibrated. Their mean is then underconfident, so the pooled
      evidence is used. The class shares are the models' mean shares, and the scale is the one with which the
      models' confidences are right (`claimed_slope`).
    * softmax: the scale is unknown, see `ScaledSoftmax.from_prior`.
    * binormal (two classes): only the order is right, see `RankBinormal`.

    The prior weights depend on two numbers that need no label. First, calibrated models agree about the
    shares of the classes. If the models disagree about the shares, `each` has less weight (`shares_agree`),
    but the mean of the models may still be right. Second, models that claim fewer errors than their
    disagreement allows are overconfident, and so is their mean. Then `softmax` and `binormal` have more
    weight (`claimed_error_ratio`).

    Parameters
    ----------
    evidence : Evidence
        The evidence of the rows of the fit.
    scores : (n, M, K) float64
        The scores of the same rows.
    heard : (M,) float64
        The weights of the models in the pooled evidence.
    differ : float
        The `disagreement` of the models with a weight above 0; not used if there is only one such model.

    References
    ----------
    R. Ranjan, T. Gneiting, *Combining probability forecasts*, Journal of the Royal Statistical Society B 72
    (2010): a linear pool of calibrated forecasts is underconfident.
    """
    kind, voices = min(evidence.classes, 3), np.flatnonzero(heard > 0.0)
    priors, log_agree, log_ratio = _ONE_MODEL[kind], 0.0, 0.0
    if len(voices) > 1:
        spoken = scores[:, voices]
        priors, log_agree = _SEVERAL_MODELS[kind], float(np.log(shares_agree(spoken)))
        log_ratio = float(np.log(2.0 * np.clip(claimed_error_ratio(spoken, differ), *_RATIOS)))
    return tuple(
        Hypothesis(_family(name, evidence, scores, heard), prior.log(log_agree, log_ratio), prior.factors)
        for name, prior in priors.items()
    )


def _family(name: str, evidence: Evidence, scores: Floats, heard: Floats) -> ParticleFamily:
    if name == "mean":
        return ScaledSoftmax.unchanged_mean(evidence.classes)
    if name == "softmax":
        return ScaledSoftmax.from_prior(evidence, scores, heard, seed=1)
    if name == "claims":
        return ScaledSoftmax.from_claims(evidence, seed=2)
    if name == "binormal":
        return RankBinormal.from_prior(evidence, scores, heard, seed=3)
    voices = np.flatnonzero(heard > 0.0)
    shares = np.mean([np.nanmean(scores[:, m], axis=0) for m in voices], axis=0)
    return ScaledSoftmax.near(evidence, claimed_slope(evidence, scores, heard), shares, seed=4)


def shares_agree(scores: Floats) -> float:
    """Return the likelihood ratio of calibrated to uncalibrated models, given their class shares.

    The ratio is above 0 and at most 3. Calibrated models have equal mean scores up to noise. Let s be the
    standard deviation between models of the logits of their mean scores (root mean square over the classes).
    The result is the ratio of the half-normal densities of s with scales 0.1 and 0.3. It depends on s alone
    and not on the number of models, because models trained on the same rows make similar errors. The ratio
    misleads if all models have the same error, for example after a change of the class shares. Only labels
    can show such an error.

    Parameters
    ----------
    scores : (n, M, K) float64
        At least two models; NaN for a missing one.

    Examples
    --------
    >>> twice = np.tile([[0.3, 0.7], [0.3, 0.7]], (50, 1, 1))
    >>> round(shares_agree(twice), 6)
    3.0
    >>> twice[:, 1] = [0.5, 0.5]
    >>> bool(shares_agree(twice) < 0.01)
    True
    """
    means = np.nanmean(scores, axis=0)
    logs = np.log(np.maximum(means, 1e-3))
    logs -= logs.mean(axis=1, keepdims=True)
    unit = 0.5 if scores.shape[2] == 2 else 1.0  # each of two centred logs is half of the logit
    spread = float(np.mean(logs.var(axis=0, ddof=1))) / unit**2
    return max(_APART / _AGREED * float(np.exp(-spread / 2 * (_AGREED**-2 - _APART**-2))), 1e-12)


def disagreement(votes: Ints, present: Bools) -> float:
    """Return the share of rows on which two models predict different classes, averaged over pairs of models.

    A row counts for a pair if both models answered it. The result is 0 if there is no such row.

    Parameters
    ----------
    votes : (n, M) int64
        Predicted classes: see `Evidence`.
    present : (n, M) bool

    Examples
    --------
    >>> disagreement(np.array([[0, 0], [0, 1]]), np.ones((2, 2), dtype=bool))
    0.5
    """
    shares = []
    for first, second in combinations(range(votes.shape[1]), 2):
        both = present[:, first] & present[:, second]
        if both.any():
            shares.append(float((votes[both, first] != votes[both, second]).mean()))
    return float(np.mean(shares)) if shares else 0.0


def claimed_error_ratio(scores: Floats, differ: float) -> float:
    """Return the error rate that the models claim, divided by the share of rows on which they differ.

    The error rate that a model claims is 1 minus its mean largest score. Where two models differ, at least
    one is wrong. So the mean error rate of a pair is at least half of the share of rows on which they differ,
    and a ratio below 0.5 shows that the models and their mean are overconfident. The true error rate of
    trained classifiers is 0.9 to 1.4 times that share. The ratio misleads if models are wrong in the same
    way, because they then do not differ.

    Parameters
    ----------
    scores : (n, M, K) float64
        At least two models; NaN for a missing one.
    differ : float
        The `disagreement` of the models.

    Examples
    --------
    >>> two = np.array([[[0.9, 0.1], [0.6, 0.4]], [[0.8, 0.2], [0.4, 0.6]]])
    >>> round(claimed_error_ratio(two, 0.5), 3)  # the claimed error rate is 27.5 %
    0.55
    """
    claimed = float(np.mean(1.0 - np.nanmean(scores.max(axis=2), axis=0)))
    return claimed / max(differ, 1e-9)


def claimed_slope(evidence: Evidence, scores: Floats, heard: Floats) -> float:
    """Return the scale of the pooled evidence with which the models would be calibrated on average.

    The scale is between e⁻² and e².
    """
    voices = np.flatnonzero(heard > 0.0)
    rows = np.linspace(0, evidence.rows - 1, min(evidence.rows, _SOLVED_ROWS)).astype(np.int64)
    spoken = scores[np.ix_(rows, voices)]
    votes, present = evidence.votes[np.ix_(rows, voices)], evidence.present[np.ix_(rows, voices)]
    shares = np.clip(np.mean([np.nanmean(scores[:, m], axis=0) for m in voices], axis=0), 1e-3, 1.0)
    x = evidence.pooled[rows]
    shift = offsets(x, _SLOPES, np.tile(shares / shares.sum(), (len(_SLOPES), 1)))
    claimed = np.where(present, np.where(present[:, :, None], spoken, 0.0).max(axis=2), 0.0).sum(axis=0)
    count = np.maximum(present.sum(axis=0), 1)
    chance = softmax(shift[:, None] + _SLOPES[:, None, None] * x)
    voted = np.eye(evidence.classes)[votes] * present[:, :, None]
    right = chance.reshape(len(_SLOPES), -1) @ voted.swapaxes(1, 2).reshape(-1, len(voices))
    gaps = ((right - claimed) / count).mean(axis=1)
    return float(np.exp(np.interp(0.0, np.maximum.accumulate(gaps), np.log(_SLOPES))))

"""The families of curves that `SSME` compares, and their prior weights."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from monitor.base.records import Floats
from monitor.stats.labelled.ssme_evidence import Evidence
from monitor.stats.labelled.ssme_families import (
    ParticleFamily,
    RankBinormal,
    ScaledSoftmax,
    log_softmax,
    offsets,
)

_ONE_MODEL = {"mean": 0.4, "claims": 0.14, "softmax": 0.23, "binormal": 0.23}
_TWO_CLASSES = {"mean": 0.03, "claims": 0.05, "each": 0.5, "softmax": 0.05, "binormal": 0.7}
_MORE_CLASSES = {"mean": 0.03, "claims": 0.4, "each": 0.4, "softmax": 0.3}
"""Prior weights, up to a factor; `shares_agree` multiplies those of `_UNANIMOUS`. Chosen on the development
suite and the development half of the paper's data at 20 and 100 labels. One model may well be right
unchanged; the mean of several calibrated ones is underconfident unless they are alike."""

_UNANIMOUS = ("mean", "each")
_UNANIMOUS_OF_TWO = (*_UNANIMOUS, "claims")

_AGREED, _APART = 0.1, 0.3
"""Usual spread between models' class shares, on the logit, for calibrated models and for others. The error of
the classifiers' mean is smallest, and of models trained on few rows largest (development suite)."""

_SLOPES = np.exp(np.linspace(-2.0, 2.0, 25))
_SOLVED_ROWS = 1024


@dataclass(frozen=True, slots=True, eq=False)
class Hypothesis:
    """A family and its prior weight.

    Parameters
    ----------
    family : ParticleFamily
    prior : float
        Above 0, up to a common factor.
    corrected : bool
        Whether labels may correct it; not for the unchanged mean of the classifiers, whose claim is that
        nothing needs a correction.
    """

    family: ParticleFamily
    prior: float
    corrected: bool


def hypotheses(evidence: Evidence, scores: Floats, heard: Floats) -> tuple[Hypothesis, ...]:
    """All that apply to the number of models and classes.

    * mean: the mean of the classifiers is right; with one model, its own scores.
    * claims: that mean is right up to 10 % of scale and shares.
    * each (several models): every model is calibrated by itself. Then their mean is underconfident, and
      together they are sharper: class shares are their mean shares, and the scale of the pooled evidence
      makes their confidences right (`claimed_slope`).
    * softmax, binormal (two classes): free scale; order alone. See `ScaledSoftmax.of`, `RankBinormal`.

    Calibrated models agree about the shares of the classes, which shows without a label: if they do not, the
    first three lose weight (`shares_agree`).

    Parameters
    ----------
    evidence : Evidence
        Of the rows of the fit.
    scores : (n, M, K) float64
        Of the same rows.
    heard : (M,) float64
        The models' weights in the pooled evidence.

    References
    ----------
    R. Ranjan, T. Gneiting, *Combining probability forecasts*, Journal of the Royal Statistical Society B 72
    (2010): a linear pool of calibrated forecasts is underconfident.
    """
    classes, voices = evidence.classes, np.flatnonzero(heard > 0.0)
    if len(voices) <= 1:
        weights = dict(_ONE_MODEL)
        if classes > 2:
            weights["softmax"] += weights.pop("binormal")
    else:
        weights = dict(_TWO_CLASSES if classes == 2 else _MORE_CLASSES)
        agree = shares_agree(scores[:, voices])
        for name in _UNANIMOUS_OF_TWO if classes == 2 else _UNANIMOUS:
            weights[name] *= agree
    found = {name: _family(name, evidence, scores, heard) for name in weights}
    return tuple(Hypothesis(found[name], weight, name != "mean") for name, weight in weights.items())


def _family(name: str, evidence: Evidence, scores: Floats, heard: Floats) -> ParticleFamily:
    if name == "mean":
        return ScaledSoftmax.of_mean_itself(evidence.classes)
    if name == "softmax":
        return ScaledSoftmax.of(evidence, scores, heard, seed=1)
    if name == "claims":
        return ScaledSoftmax.of_claims(evidence, seed=2)
    if name == "binormal":
        return RankBinormal.of(evidence, scores, heard, seed=3)
    voices = np.flatnonzero(heard > 0.0)
    shares = np.mean([np.nanmean(scores[:, m], axis=0) for m in voices], axis=0)
    return ScaledSoftmax.near(evidence, claimed_slope(evidence, scores, heard), shares, seed=4)


def shares_agree(scores: Floats) -> float:
    """Likelihood ratio, in (0, 3], of the models' class shares: all models calibrated against not.

    Calibrated models have the same mean scores up to noise. With s the standard deviation between models of
    the logits of their mean scores (root mean square over the classes), it is the ratio of the half-normal
    densities of s with scales 0.1 and 0.3. It is the density of one number for any number of models, since
    models trained on the same rows err together. It misleads if all err alike, as after a change of the
    classes' shares: then only labels show it.

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
    unit = 0.5 if scores.shape[2] == 2 else 1.0  # a logit of two classes lies half on either
    spread = float(np.mean(logs.var(axis=0, ddof=1))) / unit**2
    return max(_APART / _AGREED * float(np.exp(-spread / 2 * (_AGREED**-2 - _APART**-2))), 1e-12)


def claimed_slope(evidence: Evidence, scores: Floats, heard: Floats) -> float:
    """Scale of the pooled evidence, from e⁻² to e², that makes the models' confidences right on average."""
    voices = np.flatnonzero(heard > 0.0)
    rows = np.linspace(0, evidence.rows - 1, min(evidence.rows, _SOLVED_ROWS)).astype(np.int64)
    said = scores[np.ix_(rows, voices)]
    votes, present = evidence.votes[np.ix_(rows, voices)], evidence.present[np.ix_(rows, voices)]
    shares = np.clip(np.mean([np.nanmean(scores[:, m], axis=0) for m in voices], axis=0), 1e-3, 1.0)
    x = evidence.pooled[rows]
    shift = offsets(x, _SLOPES, np.tile(shares / shares.sum(), (len(_SLOPES), 1)))
    claimed = np.where(present, np.where(present[:, :, None], said, 0.0).max(axis=2), 0.0).sum(axis=0)
    count = np.maximum(present.sum(axis=0), 1)
    chance = np.exp(log_softmax(shift[:, None] + _SLOPES[:, None, None] * x))
    right = np.where(present, np.take_along_axis(chance, votes[None], axis=2), 0.0).sum(axis=1)
    gaps = ((right - claimed) / count).mean(axis=1)
    return float(np.exp(np.interp(0.0, np.maximum.accumulate(gaps), np.log(_SLOPES))))

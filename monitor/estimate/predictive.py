"""The predictive interval of the accuracy: chance, the calibration's error, and what varies between
windows.

The exact Poisson-binomial interval takes the confidences for right. On a reference of 1,000 rows they
are off by more than a window of 5,000 rows varies by chance, and on real streams the accuracy moves
between windows for reasons that no confidence shows. Two variances are added, in counts of right
answers of n rows:

* **calibration:** the reference is drawn anew 200 times (its rows with replacement, each answer right
  with its confidence), a rising curve is fitted to each draw over bins of equal count, and what the
  draws' curves say of the window's mean confidence has a variance, `v_cal`, of which only the curves'
  main directions are kept;
* **between windows:** `I² · D(n)`, the larger of `monitor.estimate.variance_components` and
  `monitor.estimate.drift_spectrum`.

The exact distribution is convolved with a normal of variance `a = I² · D(n) + n² · v_cal`, by
multiplying its transform by exp(−a ω² / 2), and cut at 0 and n; the limits are its mid-p quantiles,
which cover the level and not more wherever a window has more than a few answers in doubt.

It misleads on drift: what the reference did not show is in no variance
(`tests/fidelity/output/predictive.txt` says how far it falls). It is no calibration: a bias that lasts
is told by the test of trust.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.fft import irfft, next_fast_len, rfft, rfftfreq

from monitor.calibration.base import Calibrator, confidence_of, cross_fit_in_time
from monitor.calibration.isotonic import pool_adjacent_violators
from monitor.estimate.poisson_binomial import (
    TrimmedPmf,
    checked_level,
    checked_probabilities,
    trimmed_pmf_many,
)
from monitor.estimate.variance_components import Components, variance_components
from monitor.records import Floats, Ints
from monitor.result import Estimate, Reason, Result, Unknown

CURVES = 200
BINS = 400
FOLDS = (2, 4, 8, 16)
FEWEST_IN_FOLD = 100
"""Rows, for a block length or two to fit into a fold."""

_LEFT_OUT = 1e-3  # of the curves' variance
_DEVIATIONS = 8.0  # of the normal that are computed: beyond it 1e-15 is left


@dataclass(frozen=True, slots=True, eq=False)
class Predictive:
    """What a calibration's reference says of the error of later windows; `fit_predictive` makes it.

    Parameters
    ----------
    edges : (bins - 1,) float64
        Confidences between which the bins lie, rising.
    directions : (r, bins) float64
        How the curves vary: the covariance of two bins is the sum over r of their products.
    components : Components or None
        None where the reference is too short: only the calibration's error is known then, and the
        interval holds as long as nothing but chance moves the accuracy.
    """

    edges: Floats
    directions: Floats
    components: Components | None

    def variance(self, confidence: Floats, weights: Floats | None = None) -> float:
        """Variance of `Σ w·chance` of the rows beyond chance, for any weights: what any metric needs.

        A metric that is a ratio of such sums is widened by that of its linearisation: precision, for one,
        with w = 1 / (predicted positive) for the rows that are.

        Parameters
        ----------
        confidence : (n,) float64
            Calibrated.
        weights : (n,) float64, optional
            1/n if absent: the accuracy.

        Returns
        -------
        float
            In the square of the sum's unit.
        """
        n = len(confidence)
        if not n:
            return 0.0
        if weights is None:
            weights = np.full(n, 1 / n)
        bins = np.searchsorted(self.edges, confidence, side="right")
        shares = np.bincount(bins, weights, minlength=len(self.edges) + 1)
        found = float(((self.directions @ shares) ** 2).sum())
        if self.components is None:
            return found
        spread = confidence * (1 - confidence)
        moved = float((weights * spread).sum())
        return found + moved**2 * self.components.of_bias(n, float(spread.sum()))

    def snapshot(self) -> dict[str, Any]:
        """As arrays and plain values."""
        components = self.components and self.components.snapshot()
        return {"edges": self.edges, "directions": self.directions, "components": components}

    @classmethod
    def from_snapshot(cls, state: Mapping[str, Any]) -> Predictive:
        """What `snapshot` gave."""
        kept = state["components"]
        return cls(state["edges"], state["directions"], kept and Components.from_snapshot(kept))


def fit_predictive(
    calibrator: Calibrator, scores: Floats, predicted: Ints, labels: Ints, seed: int = 0
) -> Predictive:
    """Learn both variances from a labelled reference in time order.

    Parameters
    ----------
    calibrator, scores, predicted, labels
        As in `Calibrator.fit`.
    seed : int

    Returns
    -------
    Predictive
        Without components where the reference is too short to be folded (fewer than 200 rows), or a
        part of it too poor to calibrate the rest.

    Raises
    ------
    ValueError
        As `Calibrator.fit`.

    Examples
    --------
    >>> from monitor.calibration import CALIBRATORS
    >>> rng = np.random.default_rng(3)
    >>> chance = rng.beta(9, 1, 1000)
    >>> wrong = (rng.random(1000) > chance).astype(int)
    >>> zeros = np.zeros(1000, dtype=int)
    >>> found = fit_predictive(CALIBRATORS["isotonic"](), chance[:, None], zeros, wrong)
    >>> 0.005 < found.variance(chance) ** 0.5 < 0.03
    True
    """
    fitted = calibrator.fit(scores, predicted, labels)
    confidence = confidence_of(fitted.apply(scores), predicted)
    right = labels == 0 if scores.shape[1] == 1 else labels == predicted
    folded = {}
    for folds in FOLDS:
        if len(labels) < folds * FEWEST_IN_FOLD:
            break
        try:
            crossed = cross_fit_in_time(calibrator, scores, predicted, labels, folds)
        except ValueError:  # a fold holds all rows of one class
            continue
        folded[folds] = confidence_of(crossed, predicted)
    edges, directions = _curves(confidence, np.random.default_rng(seed))
    return Predictive(edges, directions, variance_components(folded, right) if folded else None)


def _curves(confidence: Floats, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Edges of bins of about equal count, and the main directions in which bootstrap curves vary."""
    order = np.sort(confidence)
    n, bins = len(order), min(BINS, len(order))
    edges = np.unique(order[np.arange(1, bins) * n // bins])
    place = np.searchsorted(edges, confidence, side="right")
    count = np.bincount(place, minlength=len(edges) + 1).astype(np.float64)
    mean = np.bincount(place, confidence, minlength=len(edges) + 1) / np.maximum(count, 1)
    curves = np.empty((CURVES, len(count)))
    for curve in curves:
        drawn = rng.multinomial(n, count / n)
        hits = rng.binomial(drawn, np.clip(mean, 0.0, 1.0))
        kept = np.flatnonzero(drawn)
        starts, values = pool_adjacent_violators(hits[kept] / drawn[kept], drawn[kept].astype(np.float64))
        fitted = np.repeat(values, np.diff(np.append(starts, len(kept))))
        curve[:] = np.interp(np.arange(len(count)), kept, fitted)
    _, sizes, rows = np.linalg.svd((curves - curves.mean(axis=0)) / np.sqrt(CURVES - 1), full_matrices=False)
    left = 1 - (sizes**2).cumsum() / max(float((sizes**2).sum()), 1e-300)
    many = int(np.searchsorted(-left, -_LEFT_OUT)) + 1
    found: Floats = sizes[:many, None] * rows[:many]
    return edges, found


def widened(pmf: TrimmedPmf, variance: float) -> TrimmedPmf:
    """A distribution of a count convolved with a normal of mean 0, cut at 0 and n.

    Parameters
    ----------
    pmf : TrimmedPmf
    variance : float
        Of the normal, in counts², 0 or more.

    Returns
    -------
    TrimmedPmf
        What would lie outside 0 to n is at the nearer end.

    Examples
    --------
    >>> sharp = TrimmedPmf(offset=50, mass=np.array([1.0]), n=100)
    >>> wide = widened(sharp, 25.0)
    >>> wide.interval(0.95), round(float(wide.mass.sum()), 9)
    ((40, 60), 1.0)
    """
    if variance <= 0:
        return pmf
    reach = int(np.ceil(_DEVIATIONS * np.sqrt(variance))) + 1
    length = len(pmf.mass) + 2 * reach
    size = next_fast_len(length, real=True)
    omega = 2 * np.pi * rfftfreq(size)
    smooth = irfft(rfft(np.pad(pmf.mass, reach), size) * np.exp(-variance * omega**2 / 2), size)[:length]
    mass = np.maximum(smooth, 0.0)  # a normal narrower than half a count leaves ripples
    counts = np.clip(np.arange(length) + pmf.offset - reach, 0, pmf.n)
    low = int(counts[0])
    folded = np.bincount(counts - low, mass)
    return TrimmedPmf(low, folded / folded.sum(), pmf.n)


def mid_p_interval(pmf: TrimmedPmf, level: float) -> tuple[int, int]:
    """The counts whose mid-p lies within the level: P(less) + P(this) / 2.

    Exact limits hold at least the level, these about the level: where both tails leave a count out, half
    of it would have belonged inside.

    Examples
    --------
    >>> mid_p_interval(TrimmedPmf(offset=0, mass=np.array([0.04, 0.48, 0.48]), n=2), 0.95)
    (1, 2)
    """
    tail = (1 - level) / 2
    middle = pmf.mass.cumsum() - pmf.mass / 2
    inside = np.flatnonzero((middle >= tail) & (middle <= 1 - tail))
    if not len(inside):  # one count holds nearly everything
        inside = np.array([int(pmf.mass.argmax())])
    return pmf.offset + int(inside[0]), pmf.offset + int(inside[-1])


def predictive_windows(
    confidences: list[NDArray[np.float64]], model: Predictive, level: float = 0.95
) -> list[tuple[Result, TrimmedPmf | None]]:
    """The accuracy of many windows with predictive intervals, and the distributions behind them.

    Parameters
    ----------
    confidences : list of (n,) float64
        Calibrated, one array a window.
    model : Predictive
    level : float

    Returns
    -------
    list of (Estimate or Unknown, TrimmedPmf or None)
        The distributions of several windows must not be convolved as if they were independent: they
        share the calibration's error. Pooled rows are one longer window.

    Raises
    ------
    ValueError
        A confidence or the level is out of range.

    Examples
    --------
    >>> model = Predictive(np.zeros(0), np.zeros((1, 1)), Components(0.0, {1000.0: 0.1}, 10_000))
    >>> (found, _), = predictive_windows([np.full(500, 0.9)], model)
    >>> found.value, found.lower, found.upper
    (0.9..., 0.838, 0.962)
    """
    checked_level(level)
    checked = [checked_probabilities(one, 1, f"confidences[{i}]") for i, one in enumerate(confidences)]
    found: list[tuple[Result, TrimmedPmf | None]] = [(Unknown(Reason.NO_ROWS), None)] * len(checked)
    for n in {len(one) for one in checked} - {0}:
        places = [i for i, one in enumerate(checked) if len(one) == n]
        for i, pmf in zip(places, trimmed_pmf_many(np.stack([checked[i] for i in places])), strict=True):
            wide = widened(pmf, n**2 * model.variance(checked[i]))
            low, high = mid_p_interval(wide, level)
            mean = float(checked[i].mean())
            found[i] = Estimate(mean, min(low / n, mean), max(high / n, mean), level, n), wide
    return found


def predictive_interval(confidence: ArrayLike, model: Predictive, level: float = 0.95) -> Result:
    """`predictive_windows` of one window, its Estimate alone."""
    return predictive_windows([np.asarray(confidence, dtype=np.float64)], model, level)[0][0]

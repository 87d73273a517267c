"""Calibration `covariates`, which weights the reference's rows to match the features of a window.

A calibration is valid where the features have the same distribution as in its reference. If one of two
segments with the same score is right more often, the frequency of right answers at this score depends on the
segments' shares. Under covariate shift only p(features) changes, not p(y | features). So for each window, the
reference's rows are weighted by the ratio of the densities of window and reference, and a rising curve is
fitted on the weighted rows.

**The ratio** comes from a classifier that separates the N rows of the reference from the n rows of the
window. A row that the classifier assigns to the window with probability p has the weight (N/n) · p / (1 − p).
The classifier is a logistic regression with a parameter for each bin of a number (20 quantiles, and finer
tails) and for each category, fitted by Newton's method. A normal prior keeps the parameters of neighbouring
bins close to each other, and the parameters of categories close to 0. So with few rows, or without a shift,
the weights stay near 1.

**Pairs of features.** A model that is additive in the features misses joint shifts of two features: a change
of their correlation, or of the numbers of one segment. So for each pair, a test compares the window's counts
in a table of coarse bins with those of the weighted reference. The pairs that differ most (at most
`_MOST_PAIRS`) get additional parameters, and the regression is fitted again.

**Weights** have mean 1 over the reference. Weights above √N are truncated to √N (truncated importance
sampling), which bounds the influence of one row.

**The curve** rises in the score. With two classes that a threshold of the score separates, it rises within
the answers of each class, and may fall across the threshold: where a segment is worse than chance near the
threshold, one rising curve would flatten both sides, and the mean confidence would be off by points. Within
a class, the mean confidence of the weighted rows equals their weighted share of right answers, whatever the
true shape of the curve.

**Effective size** is (Σw)² / Σw², Kish's number of equally weighted rows that are as informative.

A row of the window is unusable for the ratio if it lacks a feature (NaN or infinite), has a category that the
reference lacks, or has a number beyond the reference's range by more than a tenth of that range; the
reference does not show how often such rows are right either. The fit ignores up to `MOST_UNUSABLE` of the
rows; if more are unusable, the window has no calibration. It has no calibration either if the effective size
is below `FEWEST_EFFECTIVE`, or if the weighted reference still differs from the window (`MOST_APART`).

The calibration misleads

* if p(y | features) changes (concept shift), which only labels can show;
* if the shift depends on a feature that is not configured and that the score does not reflect;
* if bins and pairs are too coarse for the shift: within a bin, and for three features together, the
  proportions of the reference remain;
* if the true frequency falls with the score within one predicted class: ranking metrics then miss the fall;
* if the window has rows where the reference has hardly any: the curve depends on few rows there, which
  effective size and interval show only in part.

References
----------
J. Białek, J. Kivimäki, W. Kuberski, N. Perrakis, *Estimating model performance under covariate shift without
labels*, arXiv 2401.08348 (2024), for the weighted calibration. J. Qin, *Inferences for case-control and
semiparametric two-sample density ratio models*, Biometrika 85 (1998), for the ratio from a logistic
regression. E. L. Ionides, *Truncated importance sampling*, JCGS 17 (2008). L. Kish, *Survey Sampling* (1965),
section 11.7. E. A. Stuart, *Matching methods for causal inference: a review and a look forward*, Statistical
Science 25 (2010), section 4.1, for the bound on standardised differences.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from typing import ClassVar, Literal, NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from monitor.base.records import Floats, Ints
from monitor.base.results import Reason
from monitor.stats.calibration.base import Calibration, check_fit_input, confidence_of
from monitor.stats.calibration.isotonic import Curve, fit_ranked_curve
from monitor.stats.calibration.rows import apply_by_column, column_problems, fit_rows
from monitor.stats.estimate.predictive import Predictive

Kind = Literal["number", "text"]

FEWEST_ROWS = 200
"""The smallest number of rows of a reference with all features."""

FEWEST_EFFECTIVE = 100.0
"""The smallest effective size of the weighted reference."""

MOST_UNUSABLE = 0.05
"""The largest share of a window's rows that may lack a feature or lie beyond the reference."""

MOST_APART = 0.25
"""The largest standardised difference between the means of a number in the window and in the weighted
reference; three standard errors of the window's mean are always allowed. The value is the usual one for
balance in propensity-score matching. With a larger difference the weighted reference does not resemble the
window, whatever its effective size."""

MOST_ROWS = 10_000
"""The largest number of reference rows in use; a longer reference is thinned evenly."""

_MOST_LEVELS = 40  # categories of a text with a parameter; rarer ones share one
_QUANTILES = np.concatenate([[0.01, 0.03], np.arange(1, 20) / 20, [0.97, 0.99]])
_BEYOND = 0.1  # share of the range of a number
_COARSE = 4  # bins of a number in a pair
_COARSE_LEVELS = 6
_CATEGORY = 1.0  # precisions of the prior, in 1 / nats²
_STEP = 9.0
_LEVEL = 0.3
_PAIR = 3.0
_MOST_PAIRS = 4
_PAIR_SURE = 4.0  # standard errors
_FITTED_ROWS = 5000  # reference rows in the regression: more add little beside a window of some hundred rows
_NEWTON_STEPS = 30
_LEAST_STEP = 1e-4  # share of Newton's step
_LARGEST_LOG = 500.0  # its exponential is finite
_CLOSE = 1e-4  # predicted gain of a step in nats; Newton's next step would gain about its square
_FEWEST_IN_PIECE = 50  # rows
_BINS = 50  # bins for the error of the curve


@dataclass(frozen=True, slots=True, eq=False)
class CovariatesCalibration(Calibration):
    """A calibration for one window, fitted on the reference with weights that match the window's features.

    Parameters
    ----------
    width : int
        Number of columns of the scores.
    curves : tuple of Curve
        The curves of `IsotonicCalibration`; the curve for two classes may fall from the last score of one
        predicted class to the first score of the other.
    effective : float
        Effective size of the weighted reference, in equally weighted rows.

    Examples
    --------
    >>> curve = Curve(np.array([0.0, 1.0]), np.array([0.2, 0.8]))
    >>> fitted = CovariatesCalibration(2, (curve,), 812.5)
    >>> fitted.apply(np.array([[0.5, 0.5], [1.0, 0.0]])).tolist()
    [[0.5, 0.5], [0.8, 0.2]]
    """

    width: int
    curves: tuple[Curve, ...]
    effective: float
    method: ClassVar[str] = "covariates"

    def apply(self, scores: Floats) -> Floats:
        """Apply the curves, and normalise the rows of three classes or more."""
        self._check_width(scores)
        return apply_by_column(self.curves, scores)


@dataclass(frozen=True, slots=True, eq=False)
class _Feature:
    """The bins of one feature.

    Parameters
    ----------
    kind : {"number", "text"}
    values : float64 array
        The edges between the bins of a number, or the categories of a text, in ascending order.
    column : int64 array
        The parameter of each bin or category.
    coarse : int64 array
        The coarse bin of each parameter.
    low, high : float
        The range of a number; values outside are beyond the reference.
    """

    kind: Kind
    values: Floats
    column: Ints
    coarse: Ints
    low: float = -np.inf
    high: float = np.inf

    @classmethod
    def from_values(cls, kind: Kind, values: Floats) -> _Feature:
        """Return the bins of a feature with these finite values in the reference."""
        return cls._from_numbers(values) if kind == "number" else cls._from_texts(values)

    @classmethod
    def _from_numbers(cls, values: Floats) -> _Feature:
        edges = np.unique(np.quantile(values, _QUANTILES, method="inverted_cdf"))
        count = np.bincount(edges.searchsorted(values), minlength=len(edges) + 1)
        before = (count.cumsum() - count / 2) / len(values)
        low, high = float(values.min()), float(values.max())
        beyond = _BEYOND * (high - low)
        coarse = np.minimum((_COARSE * before).astype(np.int64), _COARSE - 1)
        return cls("number", edges, np.arange(len(count)), coarse, low - beyond, high + beyond)

    @classmethod
    def _from_texts(cls, values: Floats) -> _Feature:
        levels, count = np.unique(values, return_counts=True)
        rank = np.empty(len(levels), dtype=np.int64)
        rank[np.argsort(-count, kind="stable")] = np.arange(len(levels))
        column = np.minimum(rank, _MOST_LEVELS - 1)
        coarse = np.minimum(np.arange(min(len(levels), _MOST_LEVELS)), _COARSE_LEVELS - 1)
        return cls("text", levels, column, coarse)

    @property
    def size(self) -> int:
        """The number of parameters."""
        return len(self.coarse)

    def unseen(self, values: Floats) -> NDArray[np.bool_]:
        """Return whether each of the (n,) finite values is beyond the reference."""
        outside: NDArray[np.bool_]
        if self.kind == "number":
            outside = (values < self.low) | (values > self.high)
        else:
            place = np.minimum(self.values.searchsorted(values), len(self.values) - 1)
            outside = self.values[place] != values
        return outside

    def parameters(self, values: Floats) -> Ints:
        """Return the index of the parameter of each value, (n,)."""
        columns: Ints = self.column[self.values.searchsorted(values)]
        return columns

    def prior(self) -> Floats:
        """Return the (size, size) prior precision of the parameters."""
        if self.kind == "text":
            return _CATEGORY * np.eye(self.size)
        step = np.diff(np.eye(self.size), axis=0)
        precision: Floats = _STEP * (step.T @ step) + _LEVEL * np.eye(self.size)
        return precision


class _Block(NamedTuple):
    """A group of `size` parameters: (rows,) `place` is the one of each row, `prior` their prior precision."""

    place: Ints
    size: int
    prior: Floats

    def select(self, rows: Ints) -> _Block:
        """Return the block with some of the rows."""
        return self._replace(place=self.place[rows])


class _Piece(NamedTuple):
    """A rising piece of a curve: its `rows`, their `distinct` scores, the `place` of each, and `success`."""

    rows: Ints
    distinct: Floats
    place: Ints
    success: Floats

    @classmethod
    def from_rows(cls, rows: Ints, score: Floats, success: Floats) -> _Piece:
        """Return the piece with the rows of these indices."""
        distinct, place = np.unique(score[rows], return_inverse=True)
        return cls(rows, distinct, place, success[rows])

    def fit(self, weights: Floats) -> Curve:
        """Fit the isotonic curve of the piece, with weights of all rows of the reference."""
        return fit_ranked_curve(self.distinct, self.place, self.success, weights[self.rows])


@dataclass(frozen=True, slots=True, eq=False)
class CovariateReference:
    """A labelled reference with features, which `from_rows` prepares once for all windows.

    Parameters
    ----------
    scores : (N, K) float64
    predicted, labels : (N,) int64
        The rows in use, in their original order.
    names : tuple of str
        The names of the features.
    left_out : int
        The number of rows that lack a feature.
    """

    scores: Floats
    predicted: Ints
    labels: Ints
    names: tuple[str, ...]
    left_out: int
    _features: tuple[_Feature, ...]
    _values: Floats  # (F, N)
    _places: Ints  # (F, N)
    _curves: tuple[tuple[_Piece, ...], ...]

    @classmethod
    def from_rows(
        cls,
        scores: Floats,
        predicted: Ints,
        labels: Ints,
        features: Floats,
        kinds: Sequence[Kind],
        names: Sequence[str],
        most_rows: int = MOST_ROWS,
    ) -> CovariateReference:
        """Prepare a reference.

        Parameters
        ----------
        scores, predicted, labels
            See `Calibrator.fit`.
        features : (N, F) float64
            A text is encoded as a number; equal texts have equal numbers. NaN and infinite numbers are
            missing; rows with a missing feature are left out.
        kinds : sequence of {"number", "text"}
        names : sequence of str
            The names of the features, for messages.
        most_rows : int
            The largest number of rows in use, which bounds the cost of a window. A longer reference is
            thinned evenly.

        Raises
        ------
        ValueError
            There is no feature, shapes differ, fewer than `FEWEST_ROWS` rows have all features, or
            `Calibrator.fit` would raise an error.

        Examples
        --------
        >>> rng = np.random.default_rng(0)
        >>> segment = rng.integers(0, 2, 4000).astype(float)  # one score, right in 9 or 5 of 10
        >>> wrong = (rng.random(4000) > np.where(segment == 0, 0.9, 0.5)).astype(int)
        >>> scores, zeros = np.full((4000, 1), 0.7), np.zeros(4000, int)
        >>> features = segment[:, None]
        >>> reference = CovariateReference.from_rows(scores, zeros, wrong, features, ["text"], ["segment"])
        >>> adapted = reference.adapt(np.ones((1000, 1)))
        >>> adapted.calibration.apply(np.array([[0.7]])).round(1).tolist(), adapted.reason
        ([[0.5]], None)
        """
        check_fit_input(scores, predicted, labels)
        _check_features(features, kinds, names, len(scores))
        known = np.isfinite(features)
        whole = np.flatnonzero(known.all(axis=1))
        if len(whole) < FEWEST_ROWS:
            counts = zip(names, known.sum(axis=0).tolist(), strict=True)
            each = ", ".join(f"{name} {count:,}" for name, count in counts)
            raise ValueError(
                f"covariates calibration needs at least {FEWEST_ROWS} rows of the reference with all "
                f"features, got {len(whole):,} of {len(features):,} (rows that have each: {each}); give a "
                "longer reference, or take the features that it lacks out of the configuration"
            )
        kept = whole[_evenly(len(whole), most_rows)]
        rows = fit_rows(CovariatesCalibration.method, scores[kept], predicted[kept], labels[kept], None)
        sides = _sides(rows.scores, predicted[kept])
        curves = tuple(
            tuple(_Piece.from_rows(side, score, success) for side in sides)
            for score, success in column_problems(rows)
        )
        values = np.ascontiguousarray(features[kept].T)
        every = tuple(_Feature.from_values(kind, column) for kind, column in zip(kinds, values, strict=True))
        places = np.stack([feature.parameters(column) for feature, column in zip(every, values, strict=True)])
        left = len(features) - len(whole)
        used = rows.scores, predicted[kept], labels[kept]
        return cls(*used, tuple(names), left, every, values, places, curves)

    def __len__(self) -> int:
        return len(self.labels)

    def adapt(self, features: Floats) -> Adapted:
        """Fit the calibration for a window with these features.

        Parameters
        ----------
        features : (n, F) float64
            See `from_rows`.

        Raises
        ------
        ValueError
            `features` does not have F columns.

        Examples
        --------
        >>> rng = np.random.default_rng(0)
        >>> scores, number = rng.random((500, 1)), rng.normal(size=(500, 1))
        >>> wrong = (rng.random(500) > scores[:, 0]).astype(int)
        >>> reference = CovariateReference.from_rows(scores, 0 * wrong, wrong, number, ["number"], ["age"])
        >>> str(reference.adapt(number + 9.0).reason), str(reference.adapt(number * np.nan).reason)
        ('features beyond the reference', 'features missing')
        >>> reference.adapt(number + 0.5).effective < 500
        True
        """
        if features.ndim != 2 or features.shape[1] != len(self.names):
            raise ValueError(
                f"features must have the shape (n, {len(self.names)}), a column for each of "
                f"{', '.join(self.names)}, got {features.shape}"
            )
        lacking = ~np.isfinite(features)
        unseen = np.zeros_like(lacking)
        for k, feature in enumerate(self._features):
            there = ~lacking[:, k]
            unseen[there, k] = feature.unseen(features[there, k])
        usable = np.flatnonzero(~(lacking | unseen).any(axis=1))
        weights = np.ones(len(self))
        reason: Reason | None = None
        if not len(features):
            reason = Reason.NO_ROWS
        elif len(features) - len(usable) > MOST_UNUSABLE * len(features):
            more = lacking.any(axis=1).sum() >= unseen.any(axis=1).sum()
            reason = Reason.FEATURES_MISSING if more else Reason.FEATURES_UNSEEN
        else:
            weights = self._weights(features[usable])
            if self._apart(features[usable], weights) > max(MOST_APART, 3 / math.sqrt(len(usable))):
                reason = Reason.NO_OVERLAP
        effective = float(weights.sum() ** 2 / (weights @ weights))
        if reason is None and effective < FEWEST_EFFECTIVE:
            reason = Reason.NO_OVERLAP
        calibration = None if reason else self._calibration(weights, effective)
        missing, beyond = (each.sum(axis=0, dtype=np.int64) for each in (lacking, unseen))
        return Adapted(calibration, reason, missing, beyond, effective, weights)

    def _calibration(self, weights: Floats, effective: float) -> CovariatesCalibration:
        above = np.maximum(weights, 1e-9)  # an isotonic fit needs weights above 0
        curves = []
        for pieces in self._curves:
            fitted = [piece.fit(above) for piece in pieces]
            curves.append(
                Curve(np.concatenate([one.x for one in fitted]), np.concatenate([one.y for one in fitted]))
            )
        return CovariatesCalibration(self.scores.shape[1], tuple(curves), effective)

    def _weights(self, features: Floats) -> Floats:
        """Return the estimated ratio of densities at each row of the reference, (N,) with mean 1."""
        n = len(features)
        own = [feature.parameters(features[:, k]) for k, feature in enumerate(self._features)]
        places = [np.concatenate(each) for each in zip(self._places, own, strict=True)]
        blocks = [
            _Block(place, feature.size, feature.prior())
            for place, feature in zip(places, self._features, strict=True)
        ]
        old = len(self)
        rows = np.append(_evenly(old, _FITTED_ROWS), np.arange(old, old + n))
        at = _Regression([block.select(rows) for block in blocks], n).fit()
        weights = _as_weights(_line(blocks, at)[:old])
        pairs = self._pairs(places, weights, n)
        if not pairs:
            return weights
        blocks += pairs
        at = _Regression([block.select(rows) for block in blocks], n).fit(at)
        return _as_weights(_line(blocks, at)[:old])

    def _apart(self, features: Floats, weights: Floats) -> float:
        """Return the largest standardised difference of a number's mean in window and weighted reference.

        The unit is the standard deviation pooled over window and unweighted reference.
        """
        largest = 0.0
        for k, feature in enumerate(self._features):
            before, now = self._values[k], features[:, k]
            spread = math.sqrt((float(now.var()) + float(before.var())) / 2)
            if feature.kind == "number" and spread > 0:
                away = float(now.mean()) - float(before @ weights) / len(weights)
                largest = max(largest, abs(away) / spread)
        return largest

    def _pairs(self, places: Sequence[Ints], weights: Floats, n: int) -> list[_Block]:
        """Return blocks for the pairs of features that differ most between window and weighted reference."""
        coarse = [feature.coarse[place] for feature, place in zip(self._features, places, strict=True)]
        many = [int(feature.coarse.max()) + 1 for feature in self._features]
        different = []
        for a, b in combinations(range(len(coarse)), 2):
            size = many[a] * many[b]
            place = coarse[a] * many[b] + coarse[b]
            sure = _difference(place, size, weights, n, (many[a] - 1) * (many[b] - 1))
            if sure > _PAIR_SURE:
                different.append((sure, _Block(place, size, _PAIR * np.eye(size))))
        different.sort(key=lambda each: -each[0])
        return [block for _, block in different[:_MOST_PAIRS]]


@dataclass(frozen=True, slots=True, eq=False)
class Adapted:
    """The result of adapting a reference to the features of a window.

    Parameters
    ----------
    calibration : CovariatesCalibration or None
        None if no calibration is possible.
    reason : Reason or None
        The reason why there is no calibration.
    missing, unseen : (F,) int64
        For each feature, the number of the window's rows that lack the feature, and the number of rows whose
        value is beyond the reference.
    effective : float
        Effective size of the weighted reference.
    weights : (N,) float64
        Weights of the reference's rows, with mean 1; all 1 if the window allows no estimate of the ratio.
    """

    calibration: CovariatesCalibration | None
    reason: Reason | None
    missing: Ints
    unseen: Ints
    effective: float
    weights: Floats

    def predictive(self, base: Predictive, reference: CovariateReference, number: int) -> Predictive:
        """Return the predictive error of this calibration.

        The variation between windows is that of `base`. The error of the curve is the variance
        c(1 − c) Σw² / (Σw)² of the weighted frequency c in each bin of raw scores, independent between bins;
        it grows as the effective size falls. All windows of a reference have the same bins of raw scores, so
        they may share a `number`: their errors then add up like errors from the same rows.

        Parameters
        ----------
        base : Predictive
            The error of a calibration fitted on the same reference.
        reference : CovariateReference
            The reference that was adapted.
        number : int
            The number that identifies the calibration; results for the same calibration have the same number.

        Raises
        ------
        ValueError
            There is no calibration.
        """
        if self.calibration is None:
            raise ValueError(f"the window has no calibration ({self.reason}), so it has no error either")
        confidence = confidence_of(self.calibration.apply(reference.scores), reference.predicted)
        width = reference.scores.shape[1]
        classes = np.zeros_like(reference.predicted) if width == 1 else reference.predicted
        stratum = base.strata[np.minimum(classes, len(base.strata) - 1)]
        raw = confidence_of(reference.scores, reference.predicted)
        edges, rows = [], []
        for k in range(len(base.edges)):
            own = stratum == k
            bins = max(round(_BINS * float(own.mean())), 1)
            if own.any():
                cut, error = _bin_errors(raw[own], confidence[own], self.weights[own], bins)
            else:
                middle = float(np.average(confidence, weights=self.weights))
                cut, error = np.zeros(0), np.full((1, 1), np.sqrt(middle * (1 - middle)))
            edges.append(cut)
            rows.append(error)
        directions = scipy.linalg.block_diag(*rows).astype(np.float32)
        return replace(base, edges=tuple(edges), directions=directions, number=number)


def _check_features(features: Floats, kinds: Sequence[str], names: Sequence[str], rows: int) -> None:
    if not len(names):
        raise ValueError(
            "covariates calibration needs at least one feature, got none; name them in `features`"
        )
    if len(kinds) != len(names):
        raise ValueError(f"kinds must have one entry for each of the {len(names)} names, got {len(kinds)}")
    for name, kind in zip(names, kinds, strict=True):
        if kind not in ("number", "text"):
            raise ValueError(f"the kind of feature {name} must be number or text, got {kind!r}")
    if features.shape != (rows, len(names)):
        raise ValueError(
            f"features must have the shape ({rows}, {len(names)}), a row for each row of scores and a column "
            f"for each of {', '.join(names)}, got {features.shape}"
        )


def _sides(scores: Floats, predicted: Ints) -> list[Ints]:
    """Return the rows of each rising piece.

    There is a piece for each of two predicted classes if a threshold of the score separates them; else one.
    """
    below, above = np.flatnonzero(predicted == 0), np.flatnonzero(predicted == 1)
    enough = scores.shape[1] == 2 and min(len(below), len(above)) >= _FEWEST_IN_PIECE
    if enough and scores[below, 1].max() < scores[above, 1].min():
        return [below, above]
    return [np.arange(len(scores))]


def _as_weights(ratio: Floats) -> Floats:
    """Return weights with mean 1 from logarithms of the ratio, truncated at √N before the last division."""
    weights = np.exp(ratio - ratio.max())
    weights /= weights.mean()
    weights = np.minimum(weights, np.sqrt(len(weights)))
    normalised: Floats = weights / weights.mean()
    return normalised


def _evenly(n: int, most: int) -> Ints:
    """Return the indices of at most `most` of n rows, evenly spaced."""
    many = min(n, most)
    rows: Ints = np.arange(many) * n // many
    return rows


def _line(blocks: Sequence[_Block], at: Floats) -> Floats:
    """Return each row's log-odds of belonging to the window: the intercept plus a parameter of each block."""
    log_odds = np.full(len(blocks[0].place), at[0])
    first = 1
    for block in blocks:
        log_odds += at[first : first + block.size][block.place]
        first += block.size
    return log_odds


class _Regression:
    """A logistic regression of membership in the window on one parameter of each block, with a normal prior.

    The last n rows belong to the window. Parameter 0 is the intercept, which has no prior.
    """

    def __init__(self, blocks: Sequence[_Block], n: int) -> None:
        edges = np.cumsum([1, *(block.size for block in blocks)]).tolist()
        self._blocks, self._n, self._rows = blocks, n, len(blocks[0].place)
        self._own = [slice(first, past) for first, past in pairwise(edges)]
        self._prior = np.zeros((edges[-1], edges[-1]))
        for block, own in zip(blocks, self._own, strict=True):
            self._prior[own, own] = block.prior
        self._tables = [
            (a, b, blocks[a].place * blocks[b].size + blocks[b].place)
            for a, b in combinations(range(len(blocks)), 2)
        ]

    def fit(self, start: Floats | None = None) -> Floats:
        """Return the parameters with the largest posterior density.

        Newton's method halves each step until the objective decreases. `start` has values of the first
        parameters.
        """
        at = np.zeros(len(self._prior))
        if start is None:
            at[0] = np.log(self._n / (self._rows - self._n))
        else:
            at[: len(start)] = start
        value, odds = self._objective(at)
        for _ in range(_NEWTON_STEPS):
            gradient, curvature = self._slopes(at, odds)
            step = scipy.linalg.solve(curvature, gradient, assume_a="pos", lower=False, check_finite=False)
            share = 1.0
            while (tried := self._objective(at - share * step))[0] > value and share > _LEAST_STEP:
                share /= 2
            if tried[0] > value:
                break
            at = at - share * step
            value, odds = tried
            if float(gradient @ step) < _CLOSE:
                break
        return at

    def _objective(self, at: Floats) -> tuple[float, Floats]:
        """Return the negative log-posterior density in nats, and the (rows,) odds."""
        line = _line(self._blocks, at)
        odds = np.exp(np.minimum(line, _LARGEST_LOG))
        value = np.log1p(odds).sum() - line[-self._n :].sum() + at @ self._prior @ at / 2
        return float(value), odds

    def _slopes(self, at: Floats, odds: Floats) -> tuple[Floats, Floats]:
        """Return the gradient, and the upper triangle of the second derivatives."""
        residual = odds / (1.0 + odds)
        spread = residual * (1.0 - residual)
        residual[-self._n :] -= 1.0
        gradient, curvature = self._prior @ at, self._prior.copy()
        gradient[0] += residual.sum()
        curvature[0, 0] += spread.sum()
        for block, own in zip(self._blocks, self._own, strict=True):
            gradient[own] += np.bincount(block.place, residual, block.size)
            held = np.bincount(block.place, spread, block.size)
            curvature[own, own] += np.diag(held)
            curvature[0, own] += held
        for a, b, place in self._tables:
            shape = self._blocks[a].size, self._blocks[b].size
            table = np.bincount(place, spread, shape[0] * shape[1]).reshape(shape)
            curvature[self._own[a], self._own[b]] += table
        return gradient, curvature


def _difference(place: Ints, size: int, weights: Floats, n: int, free: int) -> float:
    """Return the distance between the tables of window and weighted reference, in standard errors of chance.

    The χ² distance of the tables has `free` degrees of freedom.
    """
    old, new = place[:-n], place[-n:]
    total = float(weights.sum())
    expected = n * np.bincount(old, weights, size) / total
    error = expected + n**2 * np.bincount(old, weights * weights, size) / total**2
    apart = np.bincount(new, minlength=size) - expected
    held = error > 0
    away = float((apart[held] ** 2 / np.maximum(error[held], 1.0)).sum())
    return (away - free) / math.sqrt(2.0 * max(free, 1))


def _bin_errors(raw: Floats, confidence: Floats, weights: Floats, bins: int) -> tuple[Floats, Floats]:
    """Return edges between bins of confidence, and the (bins, edges + 1) errors of the curve.

    The rows of the errors are bins of the raw score with about equal counts, the columns bins of confidence.
    """
    cuts = np.unique(np.sort(raw)[np.arange(1, bins) * len(raw) // bins])
    part = cuts.searchsorted(raw, side="right")
    lowest = np.full(len(cuts) + 1, np.inf)
    np.minimum.at(lowest, part, confidence)
    edges = np.unique(lowest[1:][np.isfinite(lowest[1:])])
    place = edges.searchsorted(confidence, side="right")
    many = len(edges) + 1
    mass = np.bincount(place, weights, many)
    mean = np.bincount(place, weights * confidence, many) / np.maximum(mass, 1e-300)
    effective = weights.sum() ** 2 / (weights @ weights)
    mean = (mean * effective + 0.5) / (effective + 1.0)  # no curve is certain of 0 or 1
    square = np.bincount(part * many + place, weights * weights, bins * many).reshape(bins, many)
    error: Floats = np.sqrt(mean * (1 - mean) * square) / np.maximum(mass, 1e-300)
    return edges, error

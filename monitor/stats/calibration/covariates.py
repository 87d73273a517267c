"""Calibration `covariates`: the reference's rows, weighted until they resemble the window's features.

A calibration holds where the features are distributed as in its reference. Of two segments with the same
score, one may be right more often: then the frequency of right answers at this score moves with the segments'
shares. Under covariate shift p(y | features) stays, and only p(features) moves. So the reference's rows are
weighted by the ratio of the densities of window and reference, and a rising curve is fitted on the weighted
rows, for each window anew.

**The ratio** comes from a classifier between the N rows of the reference and the n of the window. Where it
gives a row the probability p of being the window's, the row's weight is (N/n) · p / (1 − p). It is a logistic
regression with a parameter for each bin of a number (20 quantiles, and finer tails) and for each category,
fitted by Newton's method. A normal prior holds neighbouring bins of a number together, and categories near 0.
So with few rows, or without a shift, the weights stay near 1.

**Pairs of features.** A sum over features is blind to a shift of two together: their correlation turns, or
the numbers of one segment move. So each pair's table of coarse bins is tested, the window's counts against
those of the weighted reference. The pairs that differ most (at most `_MOST_PAIRS`) get parameters of their
own, and all is fitted again.

**Weights** have mean 1 over the reference. Those above √N are cut to it (truncated importance sampling),
which bounds what one row can do.

**The curve** rises in the score, within the answers of each class if there are two and a threshold tells
them apart. Over the threshold it may fall: where a segment is worse than a coin near the threshold, one
rising curve would flatten both sides, and the mean confidence would be off by points. Within a class the
mean confidence of the weighted rows is their weighted share of right answers, whatever the curve's true
shape.

**Effective size:** (Σw)² / Σw², Kish's number of equally weighted rows that tell as much.

A row of the window says nothing on the ratio if it lacks a feature (NaN or infinite), if it has a category
that the reference never had, or a number beyond the reference's range by more than a tenth of it. Nor does a
row of the reference tell how often such rows are right. Up to `MOST_UNUSABLE` of the rows are left out;
above, the window has no calibration. Nor has it below an effective size of `FEWEST_EFFECTIVE`, or if
the weights leave the reference unlike the window (`MOST_APART`).

It misleads

* if p(y | features) changes (concept shift): features do not show it, and nothing without labels does;
* if the shift depends on a feature that is not configured, and the score does not carry it;
* if bins and pairs are too coarse for the shift: within a bin, and for three features together, the mixture
  of the reference stays;
* if the true frequency falls with the score within one predicted class: metrics of the ranking then miss
  it;
* if the window has rows where the reference has hardly any: the curve rests on few rows there. The effective
  size and the interval tell most of this, not all.

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
from monitor.stats.calibration.isotonic import Curve, fit_placed_curve
from monitor.stats.calibration.rows import apply_by_column, column_problems, fit_rows
from monitor.stats.estimate.predictive import Predictive

Kind = Literal["number", "text"]

FEWEST_ROWS = 200
"""Rows of a reference with all features, at least."""

FEWEST_EFFECTIVE = 100.0
"""Effective size of the weighted reference, at least."""

MOST_UNUSABLE = 0.05
"""Share of a window's rows that may lack a feature or lie beyond the reference."""

MOST_APART = 0.25
"""Standardised difference that the weights may leave between the means of a number in window and reference,
as usual for balance in studies that match by propensity; at least three standard errors of the window's mean.
Beyond it weights do not make the reference resemble the window, whatever their effective size."""

MOST_ROWS = 10_000
"""Rows of the reference in use; of more, so many evenly spread ones."""

_MOST_LEVELS = 40  # of a text; rarer ones share a parameter
_QUANTILES = np.concatenate([[0.01, 0.03], np.arange(1, 20) / 20, [0.97, 0.99]])
_BEYOND = 0.1  # of the range of a number
_COARSE = 4  # bins of a number in a pair
_COARSE_LEVELS = 6
_CATEGORY = 1.0  # precisions of the prior, in 1 / nats²
_STEP = 9.0
_LEVEL = 0.3
_PAIR = 3.0
_MOST_PAIRS = 4
_PAIR_SURE = 4.0  # standard errors
_FITTED_ROWS = 5000  # of the reference: more tell little beside a window of some hundred rows
_NEWTON_STEPS = 30
_LEAST_STEP = 1e-4  # share of Newton's step
_LARGEST_LOG = 500.0  # whose exponential is finite
_CLOSE = 1e-4  # nats that a step promised: Newton's next would gain the square of it
_FEWEST_IN_PIECE = 50  # rows
_BINS = 50  # of the curve's error


@dataclass(frozen=True, slots=True, eq=False)
class CovariatesCalibration(Calibration):
    """A curve fitted on the reference, weighted as one window's features are distributed.

    Parameters
    ----------
    width : int
        Columns of the scores.
    curves : tuple of Curve
        As in `IsotonicCalibration`, but that of two classes may fall from the last score of one predicted
        class to the first of the other.
    effective : float
        Equally weighted rows of the reference that tell as much as the weighted ones.

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
        self._check_width(scores)
        return apply_by_column(self.curves, scores)


@dataclass(frozen=True, slots=True, eq=False)
class _Feature:
    """The bins of one feature.

    Parameters
    ----------
    kind : {"number", "text"}
    values : float64 array
        Of a number, the edges between its bins; of a text, its categories. Rising.
    column : int64 array
        The parameter of each bin or category.
    coarse : int64 array
        The coarse bin of each parameter.
    low, high : float
        A number outside is beyond the reference.
    """

    kind: Kind
    values: Floats
    column: Ints
    coarse: Ints
    low: float = -np.inf
    high: float = np.inf

    @classmethod
    def of(cls, kind: Kind, values: Floats) -> _Feature:
        return cls._of_number(values) if kind == "number" else cls._of_text(values)

    @classmethod
    def _of_number(cls, values: Floats) -> _Feature:
        edges = np.unique(np.quantile(values, _QUANTILES, method="inverted_cdf"))
        count = np.bincount(edges.searchsorted(values), minlength=len(edges) + 1)
        before = (count.cumsum() - count / 2) / len(values)
        low, high = float(values.min()), float(values.max())
        beyond = _BEYOND * (high - low)
        coarse = np.minimum((_COARSE * before).astype(np.int64), _COARSE - 1)
        return cls("number", edges, np.arange(len(count)), coarse, low - beyond, high + beyond)

    @classmethod
    def _of_text(cls, values: Floats) -> _Feature:
        levels, count = np.unique(values, return_counts=True)
        rank = np.empty(len(levels), dtype=np.int64)
        rank[np.argsort(-count, kind="stable")] = np.arange(len(levels))
        column = np.minimum(rank, _MOST_LEVELS - 1)
        coarse = np.minimum(np.arange(min(len(levels), _MOST_LEVELS)), _COARSE_LEVELS - 1)
        return cls("text", levels, column, coarse)

    @property
    def size(self) -> int:
        """How many parameters it has."""
        return len(self.coarse)

    def unseen(self, values: Floats) -> NDArray[np.bool_]:
        """(n,) whether each value, none of them NaN, is one that the reference tells nothing of."""
        found: NDArray[np.bool_]
        if self.kind == "number":
            found = (values < self.low) | (values > self.high)
        else:
            place = np.minimum(self.values.searchsorted(values), len(self.values) - 1)
            found = self.values[place] != values
        return found

    def placed(self, values: Floats) -> Ints:
        """(n,) the parameter of each value."""
        found: Ints = self.column[self.values.searchsorted(values)]
        return found

    def prior(self) -> Floats:
        """(size, size) precision of the parameters."""
        if self.kind == "text":
            return _CATEGORY * np.eye(self.size)
        step = np.diff(np.eye(self.size), axis=0)
        found: Floats = _STEP * (step.T @ step) + _LEVEL * np.eye(self.size)
        return found


class _Block(NamedTuple):
    """Parameters of which each row has one: (rows,) `place` among `size`, with their prior's precision."""

    place: Ints
    size: int
    prior: Floats

    def of(self, rows: Ints) -> _Block:
        """The same for some of the rows."""
        return self._replace(place=self.place[rows])


class _Piece(NamedTuple):
    """A rising piece of a curve: `rows`, their `distinct` scores, each row's `place` there, `success`."""

    rows: Ints
    distinct: Floats
    place: Ints
    success: Floats

    @classmethod
    def of(cls, rows: Ints, score: Floats, success: Floats) -> _Piece:
        distinct, place = np.unique(score[rows], return_inverse=True)
        return cls(rows, distinct, place, success[rows])

    def fit(self, weights: Floats) -> Curve:
        return fit_placed_curve(self.distinct, self.place, self.success, weights[self.rows])


@dataclass(frozen=True, slots=True, eq=False)
class CovariateReference:
    """A labelled reference with features, prepared once for all windows: see `of`.

    Parameters
    ----------
    scores : (N, K) float64
    predicted, labels : (N,) int64
        Its rows in use, in their order.
    names : tuple of str
        Of the features.
    left_out : int
        Rows that lack a feature.
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
    def of(
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
            As in `Calibrator.fit`.
        features : (N, F) float64
            A text as a number that stands for it, of which only equality counts. NaN and infinite numbers are
            missing: rows with any are left out.
        kinds : sequence of {"number", "text"}
        names : sequence of str
            Of the features, for messages.
        most_rows : int
            Of more rows than these, so many evenly spread ones are used: they bound the cost of a window.

        Raises
        ------
        ValueError
            There is no feature, shapes differ, fewer than `FEWEST_ROWS` rows have all features, or the errors
            of `Calibrator.fit`.

        Examples
        --------
        >>> rng = np.random.default_rng(0)
        >>> segment = rng.integers(0, 2, 4000).astype(float)  # one score, right in 9 or 5 of 10
        >>> wrong = (rng.random(4000) > np.where(segment == 0, 0.9, 0.5)).astype(int)
        >>> scores, zeros = np.full((4000, 1), 0.7), np.zeros(4000, int)
        >>> reference = CovariateReference.of(scores, zeros, wrong, segment[:, None], ["text"], ["segment"])
        >>> found = reference.adapt(np.ones((1000, 1)))
        >>> found.calibration.apply(np.array([[0.7]])).round(1).tolist(), found.reason
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
            tuple(_Piece.of(side, score, success) for side in sides)
            for score, success in column_problems(rows)
        )
        values = np.ascontiguousarray(features[kept].T)
        every = tuple(_Feature.of(kind, column) for kind, column in zip(kinds, values, strict=True))
        places = np.stack([feature.placed(column) for feature, column in zip(every, values, strict=True)])
        left = len(features) - len(whole)
        used = rows.scores, predicted[kept], labels[kept]
        return cls(*used, tuple(names), left, every, values, places, curves)

    def __len__(self) -> int:
        return len(self.labels)

    def adapt(self, features: Floats) -> Adapted:
        """The calibration for a window with these features.

        Parameters
        ----------
        features : (n, F) float64
            As in `of`.

        Raises
        ------
        ValueError
            `features` does not have F columns.

        Examples
        --------
        >>> rng = np.random.default_rng(0)
        >>> scores, number = rng.random((500, 1)), rng.normal(size=(500, 1))
        >>> wrong = (rng.random(500) > scores[:, 0]).astype(int)
        >>> reference = CovariateReference.of(scores, 0 * wrong, wrong, number, ["number"], ["age"])
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
        """(N,) the estimated ratio of densities at each row, mean 1."""
        n = len(features)
        own = [feature.placed(features[:, k]) for k, feature in enumerate(self._features)]
        places = [np.concatenate(each) for each in zip(self._places, own, strict=True)]
        blocks = [
            _Block(place, feature.size, feature.prior())
            for place, feature in zip(places, self._features, strict=True)
        ]
        old = len(self)
        rows = np.append(_evenly(old, _FITTED_ROWS), np.arange(old, old + n))
        at = _Regression([block.of(rows) for block in blocks], n).fit()
        weights = _as_weights(_line(blocks, at)[:old])
        pairs = self._pairs(places, weights, n)
        if not pairs:
            return weights
        blocks += pairs
        at = _Regression([block.of(rows) for block in blocks], n).fit(at)
        return _as_weights(_line(blocks, at)[:old])

    def _apart(self, features: Floats, weights: Floats) -> float:
        """The largest distance between the means of a number in window and weighted reference, in standard
        deviations pooled over the two without weights.
        """
        found = 0.0
        for k, feature in enumerate(self._features):
            before, now = self._values[k], features[:, k]
            spread = math.sqrt((float(now.var()) + float(before.var())) / 2)
            if feature.kind == "number" and spread > 0:
                away = float(now.mean()) - float(before @ weights) / len(weights)
                found = max(found, abs(away) / spread)
        return found

    def _pairs(self, places: Sequence[Ints], weights: Floats, n: int) -> list[_Block]:
        """The pairs of features whose table differs most between window and weighted reference."""
        coarse = [feature.coarse[place] for feature, place in zip(self._features, places, strict=True)]
        many = [int(feature.coarse.max()) + 1 for feature in self._features]
        found = []
        for a, b in combinations(range(len(coarse)), 2):
            size = many[a] * many[b]
            place = coarse[a] * many[b] + coarse[b]
            sure = _difference(place, size, weights, n, (many[a] - 1) * (many[b] - 1))
            if sure > _PAIR_SURE:
                found.append((sure, _Block(place, size, _PAIR * np.eye(size))))
        found.sort(key=lambda each: -each[0])
        return [block for _, block in found[:_MOST_PAIRS]]


@dataclass(frozen=True, slots=True, eq=False)
class Adapted:
    """What a window's features make of the reference.

    Parameters
    ----------
    calibration : CovariatesCalibration or None
        None where it is unknown.
    reason : Reason or None
        Why it is unknown.
    missing, unseen : (F,) int64
        The window's rows that lack each feature, and those whose value the reference tells nothing of.
    effective : float
        Effective size of the weighted reference.
    weights : (N,) float64
        Of the reference's rows, mean 1; all 1 where the window tells no ratio.
    """

    calibration: CovariatesCalibration | None
    reason: Reason | None
    missing: Ints
    unseen: Ints
    effective: float
    weights: Floats

    def predictive(self, base: Predictive, reference: CovariateReference, number: int) -> Predictive:
        """The error of this calibration, with the variation between windows of another of the same reference.

        The curve's error is the variance c(1 − c) Σw² / (Σw)² of the weighted frequency in each bin of raw
        scores, the bins independent of each other: it grows as the effective size falls. All windows of a
        reference have the same bins of raw scores, so they may share a `number`: their errors then add up as
        those of the same rows.

        Parameters
        ----------
        base : Predictive
            Of a calibration fitted on the same reference.
        reference : CovariateReference
            That of `adapt`.
        number : int

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
    """The rows of each rising piece: those of each of two predicted classes that a threshold tells apart."""
    below, above = np.flatnonzero(predicted == 0), np.flatnonzero(predicted == 1)
    enough = scores.shape[1] == 2 and min(len(below), len(above)) >= _FEWEST_IN_PIECE
    if enough and scores[below, 1].max() < scores[above, 1].min():
        return [below, above]
    return [np.arange(len(scores))]


def _as_weights(ratio: Floats) -> Floats:
    """Weights of mean 1 from logarithms of the ratio, none above √N before the last division."""
    weights = np.exp(ratio - ratio.max())
    weights /= weights.mean()
    weights = np.minimum(weights, np.sqrt(len(weights)))
    found: Floats = weights / weights.mean()
    return found


def _evenly(n: int, most: int) -> Ints:
    """At most so many of n rows, evenly spread."""
    many = min(n, most)
    found: Ints = np.arange(many) * n // many
    return found


def _line(blocks: Sequence[_Block], at: Floats) -> Floats:
    """(rows,) log-odds of being the window's: the intercept, and each block's parameter of the row."""
    found = np.full(len(blocks[0].place), at[0])
    first = 1
    for block in blocks:
        found += at[first : first + block.size][block.place]
        first += block.size
    return found


class _Regression:
    """A logistic regression of being the window's on one parameter of each block, with a normal prior.

    The last n rows are the window's. Parameter 0 is the intercept, which has no prior.
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
        """The parameters of the largest posterior density.

        Newton's method, with a step that is halved until the objective falls. `start`: the first parameters.
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
        """Minus the logarithm of the posterior density in nats, and (rows,) the odds."""
        line = _line(self._blocks, at)
        odds = np.exp(np.minimum(line, _LARGEST_LOG))
        value = np.log1p(odds).sum() - line[-self._n :].sum() + at @ self._prior @ at / 2
        return float(value), odds

    def _slopes(self, at: Floats, odds: Floats) -> tuple[Floats, Floats]:
        """The gradient, and the upper triangle of the second derivatives."""
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
    """How many standard errors of chance the window's table is away from the weighted reference's, for `free`
    degrees of freedom.
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
    """Edges between bins of confidence, and the (bins, edges + 1) errors of the curve over them, by bins of
    about equal count of the raw score.
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
    mean = (mean * effective + 0.5) / (effective + 1.0)  # no curve is sure of 0 or 1
    square = np.bincount(part * many + place, weights * weights, bins * many).reshape(bins, many)
    error: Floats = np.sqrt(mean * (1 - mean) * square) / np.maximum(mass, 1e-300)
    return edges, error

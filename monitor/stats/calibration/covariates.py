"""Calibration `covariates`, which weights the reference's rows to match the features of a window.

A calibration is valid while the features have the same distribution as in its reference. For example, let two
segments of users have the same score, and let the model be right more often on one segment. Then the
frequency of right answers at this score depends on the sizes of the segments. Under covariate shift,
p(features) changes and p(y | features) does not. Therefore, for each window, this method weights the
reference's rows by the ratio of the window's density to the reference's density, and fits a rising curve on
the weighted rows.

**The ratio** is estimated by a logistic regression that distinguishes the window's rows from the reference's
rows: see `monitor.stats.features.ratio`.

**Weights** have mean 1 over the reference. Weights above √N are truncated to √N (truncated importance
sampling), which bounds the influence of one row.

**The curve** rises with the score. If a threshold of the score separates two predicted classes, the curve
rises within each class, but may fall at the threshold. If it could not fall there, a segment that is worse
than chance near the threshold would flatten the curve on both sides, and the mean confidence would be wrong
by several percentage points. Within a predicted class, the mean confidence of the weighted rows equals their
weighted share of right answers, whatever the true shape of the curve.

**Effective size** is (Σw)² / Σw², Kish's number of equally weighted rows with the same information.

A row of the window is unusable for the ratio in three cases: it lacks a feature (NaN or infinite), it has a
category that the reference does not have, or it has a number outside the reference's range, without its
outliers, by more than a tenth of that range. The reference does not show how often the model is right on such
rows. The fit ignores unusable rows if their share is at most `MOST_UNUSABLE`. If the share is larger, the
window has no calibration. A window has no calibration either if the effective size is below
`ratio.FEWEST_EFFECTIVE`, or if the weighted reference still differs from the window (`ratio.MOST_APART`).

The calibration misleads

* if p(y | features) changes (concept shift), which only labels can show;
* if the shift depends on a feature that is not configured and that the score does not reflect;
* if the regression's bins and pairs of features are too coarse for the shift: within a bin, and among three
  features, the proportions stay those of the reference;
* if the true frequency falls as the score rises within one predicted class: ranking metrics then miss the
  fall;
* if the window has rows where the reference has hardly any: the curve there depends on few rows, and
  effective size and interval show this only in part.

References
----------
J. Białek, J. Kivimäki, W. Kuberski, N. Perrakis, *Estimating model performance under covariate shift without
labels*, arXiv 2401.08348 (2024), for the weighted calibration. E. L. Ionides, *Truncated importance
sampling*, JCGS 17 (2008). L. Kish, *Survey Sampling* (1965), section 11.7.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import numpy as np
import scipy

from monitor.base.records import FeatureKind, Floats, Ints
from monitor.base.results import Reason
from monitor.stats.calibration.base import Calibration, check_fit_input, confidence_of
from monitor.stats.calibration.isotonic import Curve, fit_ranked_curve
from monitor.stats.calibration.rows import apply_by_column, column_problems, fit_rows
from monitor.stats.estimate.predictive import Predictive
from monitor.stats.features.ratio import RatioReference, evenly

FEWEST_ROWS = 200
"""The smallest number of rows of a reference with all features."""

MOST_UNUSABLE = 0.05
"""The largest share of a window's rows that may lack a feature or lie outside of the reference."""

MOST_ROWS = 10_000
"""The largest number of reference rows that are used. From a longer reference, evenly spaced rows are
used."""

_FEWEST_IN_PIECE = 50  # rows
_BINS = 50  # bins for the error of the curve


@dataclass(frozen=True, slots=True, eq=False)
class CovariatesCalibration(Calibration):
    """A calibration for one window, fitted on reference rows whose weights match the window's features.

    Parameters
    ----------
    width : int
        Number of columns of the scores.
    curves : tuple of Curve
        As in `IsotonicCalibration`. But the curve for two classes may fall between the last score of one
        predicted class and the first score of the other class.
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
        """Apply the curves, and divide rows of three or more classes by their sums."""
        self._check_width(scores)
        return apply_by_column(self.curves, scores)


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
    """A labelled reference with features; `adapt` fits a calibration on it for each window.

    Parameters
    ----------
    scores : (N, K) float64
    predicted, labels : (N,) int64
        The rows that calibrations are fitted on, in their original order.
    names : tuple of str
        The names of the features.
    left_out : int
        The number of reference rows that are not used because they lack a feature.
    """

    scores: Floats
    predicted: Ints
    labels: Ints
    names: tuple[str, ...]
    left_out: int
    _ratio: RatioReference
    _curves: tuple[tuple[_Piece, ...], ...]

    @classmethod
    def from_rows(
        cls,
        scores: Floats,
        predicted: Ints,
        labels: Ints,
        features: Floats,
        kinds: Sequence[FeatureKind],
        names: Sequence[str],
        most_rows: int = MOST_ROWS,
    ) -> CovariateReference:
        """Return the reference with these rows, prepared for the fits of all windows.

        Parameters
        ----------
        scores, predicted, labels
            See `Calibrator.fit`.
        features : (N, F) float64
            Texts are encoded as numbers, equal texts as equal numbers. NaN and infinite numbers are missing
            values; rows with a missing value are left out.
        kinds : sequence of {"number", "text"}
        names : sequence of str
            The names of the features, for messages.
        most_rows : int
            The largest number of rows to use, so that adapting to a window has a bounded cost. If more rows
            have all features, evenly spaced ones among these rows are used.

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
        kept = whole[evenly(len(whole), most_rows)]
        rows = fit_rows(CovariatesCalibration.method, scores[kept], predicted[kept], labels[kept], None)
        sides = _sides(rows.scores, predicted[kept])
        curves = tuple(
            tuple(_Piece.from_rows(side, score, success) for side in sides)
            for score, success in column_problems(rows)
        )
        left = len(features) - len(whole)
        used = rows.scores, predicted[kept], labels[kept]
        return cls(*used, tuple(names), left, RatioReference.from_rows(features[kept], kinds), curves)

    def __len__(self) -> int:
        return len(self.labels)

    def adapt(self, features: Floats) -> Adapted:
        """Return the calibration for a window with these features, or the reason why there is none.

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
        lacking, unseen = ~np.isfinite(features), self._ratio.unseen(features)
        usable = np.flatnonzero(~(lacking | unseen).any(axis=1))
        weights = np.ones(len(self))
        effective = float(len(self))
        reason: Reason | None = None
        if not len(features):
            reason = Reason.NO_ROWS
        elif len(features) - len(usable) > MOST_UNUSABLE * len(features):
            more = lacking.any(axis=1).sum() >= unseen.any(axis=1).sum()
            reason = Reason.FEATURES_MISSING if more else Reason.FEATURES_UNSEEN
        else:
            ratio = self._ratio.fit(features[usable])
            weights, effective = ratio.weights, ratio.effective
            reason = None if ratio.overlaps else Reason.NO_OVERLAP
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


@dataclass(frozen=True, slots=True, eq=False)
class Adapted:
    """The result of `CovariateReference.adapt` for a window: its calibration, or the reason for none.

    Parameters
    ----------
    calibration : CovariatesCalibration or None
        None if no calibration is possible.
    reason : Reason or None
        The reason why there is no calibration.
    missing, unseen : (F,) int64
        For each feature, the number of the window's rows that lack it, and the number of rows whose value
        does not occur in the reference: a new category, or a number beyond the range.
    effective : float
        Effective size of the weighted reference, in equally weighted rows.
    weights : (N,) float64
        Weights of the reference's rows, with mean 1. All are 1 if the ratio of densities could not be
        estimated.
    """

    calibration: CovariatesCalibration | None
    reason: Reason | None
    missing: Ints
    unseen: Ints
    effective: float
    weights: Floats

    def predictive(self, base: Predictive, reference: CovariateReference, number: int) -> Predictive:
        """Return the error distribution of estimates that use this calibration.

        The variation between windows is taken from `base`. The curve's error has the variance c(1 − c) Σw² /
        (Σw)² in each bin of raw scores, where c is the weighted frequency of right answers. It is independent
        between bins, and grows as the effective size falls. All windows of a reference have the same bins, so
        they may have the same `number`. Then their errors are fully correlated, like errors from the same
        rows.

        Parameters
        ----------
        base : Predictive
            The error of a calibration fitted on the same reference.
        reference : CovariateReference
            The reference that was adapted.
        number : int
            The number that identifies the calibration. Estimates with equal numbers share their calibration
            error.

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

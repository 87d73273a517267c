"""The contribution of each feature to the change of a mean from reference to window, without labels.

The estimated accuracy is the mean of the confidences c. Its change is split into a part for each feature and
a remainder.

**Rows that have all features.** The ratio of the densities of window and reference is w(x) = exp(Σ_j g_j(x))
up to a constant. Here g_j is the sum of the parameters of feature j and a share of those of its pairs
(`monitor.stats.features.ratio`). A pair is attributed mainly to the feature whose distribution moved, or half
to each if neither moved. Let A(t) be the mean of c over the reference's rows with the weights w_t ∝ exp(t·Σ_j
g_j). Then A(0) is the mean of the reference, A(1) is the mean that the reference predicts for the window's
features, and

    Δ_j = ∫₀¹ Cov_t(c, g_j) dt,    Σ_j Δ_j = A(1) − A(0),

because dA/dt = Σ_j Cov_t(c, g_j). This is the cost sharing of Aumann and Shapley along the log-ratio. If a
feature is only correlated with the cause of the change, its distribution given the cause is unchanged, so g_j
and the feature's part are 0. The integral is computed with 8 Gauss–Legendre nodes, or with more if 8 are not
enough.

**Rows that lack a feature, or have a value beyond the reference.** The reference has few or no such rows that
could be weighted. So the confidence of each such row is compared with the mean of the rows that have all
features, and the difference is attributed to the feature. If a row has several such features, each gets an
equal share. Rows of the reference that lack a feature are treated in the same way. The difference between
window and reference is added to the feature's part.

**A window unlike the reference** (not `Ratio.overlaps`) has no ratio. Then rows with a value that is more
than three times as frequent in the window as in the reference are treated like rows that lack this feature.
If a row has several such values, the feature with the largest factor counts. If the distribution of a feature
moved less than half as far as the distribution that moved most, the feature is left out, because it may only
be correlated with the other one. The other rows are not split.

**The remainder** is the change that the features do not explain: rows with the same features have other
scores than before. The cause may be a release of the model, a pipeline that fails after the features are
logged, or a feature that is not configured.

The standard error of Δ_j has two parts: the covariance of the parameters of the ratio, by the delta method,
and the variation of the reference's rows. Both are computed with the weights at t = ½. The standard error of
the remainder treats the window's mean and A(1) as independent, so it is rather too large.

Any other metric that is nearly a mean over rows can be split to first order: pass the influence of each row
instead of its confidence.

The split misleads

* if rows lack a feature where other features are unusual: the effect of the unusual features is then
  attributed to the missing feature;
* if the shift depends on a feature that is not configured, but is correlated with configured features: the
  change is then attributed to the configured features;
* if the window is unlike the reference: when the cause moved by three standard deviations, a feature with a
  correlation of 0.9 with the cause is named too in one of seven windows;
* if the shift is within a bin, or concerns three features jointly: the ratio has no parameters for these.

References
----------
R. J. Aumann, L. S. Shapley, *Values of Non-Atomic Games* (1974). H. Cramér, *Mathematical Methods of
Statistics* (1946), section 28.4, for the delta method.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray
from scipy.special import ndtri

from monitor.base.records import FeatureKind, Floats, Ints
from monitor.base.results import Reason
from monitor.stats.features.ratio import Ratio, RatioReference, evenly

MOST_ROWS = 10_000
"""The largest number of reference rows that are used. From a longer reference, evenly spaced rows are
used."""

FEWEST_ROWS = 200
"""The smallest number of rows of a reference with all features."""

FEWEST_USABLE = 50
"""The smallest number of a window's rows that have all features, with no value beyond the reference."""

LEVEL = 0.01
"""The probability that any part is named if nothing changed, by Bonferroni over all parts."""

LEAST_PART = 0.005
"""The smallest part that is named: half a percentage point."""

LEAST_SHARE = 0.1
"""The smallest share of the whole change that is named."""

MOVED = 0.5
"""For a window unlike the reference: the smallest distance of a feature's own distribution, as a share of the
largest distance, with which rows count for the feature."""

_NODES = (8, 16, 32, 64)
_EXACT = 1e-11
_ERROR_ROWS = 2500  # rows of the reference for standard errors


@dataclass(frozen=True, slots=True, eq=False)
class FeatureSplit:
    """The change of a mean from the reference to a window, split by feature.

    Parameters
    ----------
    change : float
        The mean of the window minus that of the reference: the sum of all parts and the remainder.
    parts : (F,) float64
    errors : (F,) float64
        Standard errors of the parts.
    remainder : float
        The change that the features do not explain.
    remainder_error : float
    missing, unseen : (F,) float64
        For each feature, the share of the window's rows that lack it, and the share with a value beyond the
        reference.
    reason : Reason or None
        The reason why the change of the rows that have all features is not split. Their change is then part
        of the remainder.
    """

    change: float
    parts: Floats
    errors: Floats
    remainder: float
    remainder_error: float
    missing: Floats
    unseen: Floats
    reason: Reason | None

    @property
    def named(self) -> list[int]:
        """The indices of the features with large and significant parts, by their share of the change.

        The largest share is first. Parts in the opposite direction of the change are last. The index F stands
        for the remainder, which is named only if all rows are split.
        """
        parts, errors = np.append(self.parts, self.remainder), np.append(self.errors, self.remainder_error)
        if self.reason is not None:
            parts[-1] = 0.0  # it is not only what the features leave
        size = np.abs(parts)
        sure = size > -float(ndtri(LEVEL / 2 / len(parts))) * errors
        large = size >= max(LEAST_PART, LEAST_SHARE * abs(self.change))
        order = np.argsort(-parts * np.sign(self.change), kind="stable")
        return [j for j in order.tolist() if sure[j] and large[j]]


@dataclass(frozen=True, slots=True, eq=False)
class SplitReference:
    """The features of a reference, prepared once to split the changes of many windows.

    Parameters
    ----------
    names : tuple of str
    rows : (M,) int64
        The indices of the reference's rows that are used.
    """

    names: tuple[str, ...]
    rows: Ints
    _lacking: NDArray[np.bool_]  # (M, F)
    _ratio: RatioReference

    @classmethod
    def from_rows(
        cls, features: Floats, kinds: Sequence[FeatureKind], names: Sequence[str], most_rows: int = MOST_ROWS
    ) -> SplitReference:
        """Return the reference with these rows, prepared for the splits of all windows.

        Parameters
        ----------
        features : (N, F) float64
            Texts are encoded as numbers, equal texts as equal numbers. NaN and infinite numbers are missing
            values.
        kinds : sequence of {"number", "text"}
        names : sequence of str
        most_rows : int
            The largest number of rows to use, which bounds the cost of a split.

        Raises
        ------
        ValueError
            There is no feature, shapes differ, or fewer than `FEWEST_ROWS` rows have all features.
        """
        if not len(names) or features.ndim != 2 or {len(names), len(kinds)} != {features.shape[1]}:
            raise ValueError(
                f"features must have a column for each name and each kind, at least one, got the shape "
                f"{features.shape}, {len(names)} names and {len(kinds)} kinds"
            )
        rows = evenly(len(features), most_rows)
        lacking = ~np.isfinite(features[rows])
        whole = rows[~lacking.any(axis=1)]
        if len(whole) < FEWEST_ROWS:
            counts = zip(names, (~lacking).sum(axis=0).tolist(), strict=True)
            each = ", ".join(f"{name} {count:,}" for name, count in counts)
            raise ValueError(
                f"the split of a change by feature needs at least {FEWEST_ROWS} rows of the reference with "
                f"all features, got {len(whole):,} of {len(rows):,} (rows that have each: {each}); give "
                "a longer reference, or take the features that it lacks out of the configuration"
            )
        return cls(tuple(names), rows, lacking, RatioReference.from_rows(features[whole], kinds))

    def fit(self, features: Floats) -> WindowSplit:
        """Return the fitted density ratio of a window, by which the changes of several metrics can be split.

        Parameters
        ----------
        features : (n, F) float64
            See `from_rows`; n is at least 1.

        Raises
        ------
        ValueError
            `features` does not have F columns, or no row.
        """
        if features.ndim != 2 or features.shape[1] != len(self.names) or not len(features):
            raise ValueError(
                f"features must have the shape (n, {len(self.names)}), a column for each of "
                f"{', '.join(self.names)} and at least one row, got {features.shape}"
            )
        lacking, unseen = ~np.isfinite(features), self._ratio.unseen(features)
        apart, before = lacking | unseen, self._lacking.copy()
        ratio, reason = self._fit(features, apart), None
        if len(features) < FEWEST_USABLE:
            reason = Reason.TOO_FEW_ROWS
        elif ratio is None:
            more = lacking.any(axis=1).sum() > unseen.any(axis=1).sum()
            reason = Reason.FEATURES_MISSING if more else Reason.FEATURES_UNSEEN
        elif not ratio.overlaps:
            reason = Reason.NO_OVERLAP
            leading = ratio.moved >= MOVED * ratio.moved.max()
            crowded_before, crowded = (
                _most_crowded(leading * each) for each in self._ratio.crowded(features)
            )
            if (~crowded_before.any(axis=1)).sum() >= FEWEST_USABLE:
                apart |= crowded & ~apart.any(axis=1)[:, None]
                before[~before.any(axis=1)] = crowded_before
        return WindowSplit(
            rows=self.rows,
            before=before,
            now=apart,
            ratio=None if reason else ratio,
            missing=lacking.mean(axis=0),
            unseen=unseen.mean(axis=0),
            reason=reason,
        )

    def _fit(self, features: Floats, apart: NDArray[np.bool_]) -> Ratio | None:
        usable = ~apart.any(axis=1)
        return self._ratio.fit(features[usable]) if usable.sum() >= FEWEST_USABLE else None


@dataclass(frozen=True, slots=True, eq=False)
class WindowSplit:
    """The fitted density ratio of one window, by which `split` splits the change of any mean.

    Parameters
    ----------
    rows : (M,) int64
        The indices of the reference's rows that are used.
    before : (M, F) bool
        Whether each of these rows lacks the feature, or has a value that is far more frequent in the window.
    now : (n, F) bool
        Whether each row of the window lacks the feature, or has a value that is beyond the reference or far
        too frequent.
    ratio : Ratio or None
        None if there is a `reason`.
    missing, unseen, reason
        See `FeatureSplit`.
    """

    rows: Ints
    before: NDArray[np.bool_]
    now: NDArray[np.bool_]
    ratio: Ratio | None
    missing: Floats
    unseen: Floats
    reason: Reason | None

    def split(self, before: Floats, now: Floats) -> FeatureSplit:
        """Return the change of a mean from reference to window, split by feature.

        Parameters
        ----------
        before : (N,) float64
            The confidence of each row of the reference, or another value whose mean is the metric.
        now : (n,) float64
            The same value for each row of the window.

        Raises
        ------
        ValueError
            The number of values differs from the number of rows.

        Examples
        --------
        >>> rng = np.random.default_rng(0)
        >>> features = rng.normal(size=(4000, 2))
        >>> confidence = lambda x: 0.8 + 0.05 * np.tanh(x[:, 0])
        >>> reference = SplitReference.from_rows(features, ["number", "number"], ["hour", "distance"])
        >>> window = rng.normal(size=(500, 2)) - [1.0, 0.0]
        >>> split = reference.fit(window).split(confidence(features), confidence(window))
        >>> [reference.names[j] for j in split.named], round(split.change, 3), split.parts.round(3).tolist()
        (['hour'], -0.026, [-0.025, 0.0])
        """
        if len(before) <= self.rows[-1] or len(now) != len(self.now):
            raise ValueError(
                f"before and now must have a term for each row of the reference ({self.rows[-1] + 1:,} or "
                f"more) and of the window ({len(self.now):,}), got {len(before):,} and {len(now):,}"
            )
        old = before[self.rows]
        whole, usable = ~self.before.any(axis=1), ~self.now.any(axis=1)
        base = float(old[whole].mean())
        many = self.now.shape[1]
        parts, variances = np.zeros(many), np.zeros(many)
        noise = float(now.var()) / len(now) + float(old.var()) / len(old)
        level = base
        if self.ratio is not None:
            level = float(now[usable].mean())
            parts, covariance, noise = _along_path(self.ratio, old[whole], many)
            variances = covariance
            noise += float(now[usable].var()) / int(usable.sum())
        own = None if self.ratio is None else usable
        for sign, terms, lacking, same in ((1, now, self.now, own), (-1, old, self.before, whole)):
            part, variance = _of_unusable(terms, lacking, level if sign > 0 else base, same)
            parts += sign * part
            variances += variance
        change = float(now.mean() - old.mean())
        return FeatureSplit(
            change=change,
            parts=parts,
            errors=np.sqrt(variances),
            remainder=change - float(parts.sum()),
            remainder_error=math.sqrt(noise),
            missing=self.missing,
            unseen=self.unseen,
            reason=self.reason,
        )


def _most_crowded(times: Floats) -> NDArray[np.bool_]:
    """Return a mask of the values that are crowded and the most crowded of their row."""
    most: NDArray[np.bool_] = (times > 0) & (times == times.max(axis=1, keepdims=True))
    return most


def _of_unusable(
    terms: Floats, lacking: NDArray[np.bool_], level: float, usable: NDArray[np.bool_] | None
) -> tuple[Floats, Floats]:
    """Return the part of each feature from unusable rows, (F,), and the variances of these parts.

    Each row is compared with `level`, which is the mean of the `usable` rows if there are any.
    """
    shares = lacking / np.maximum(lacking.sum(axis=1), 1)[:, None]
    each = shares * (terms - level)[:, None]
    part = each.mean(axis=0)
    if usable is not None:
        each -= shares.mean(axis=0) * (usable * (terms - level) / usable.mean())[:, None]
    return part, each.var(axis=0) / len(terms)


def _along_path(ratio: Ratio, terms: Floats, many: int) -> tuple[Floats, Floats, float]:
    """Return the part of each feature along the path, (F,), their variances, and that of the path's end."""
    logs = _log_ratios(ratio, many)
    whole = logs.sum(axis=0)
    first, last = (float(_weights(whole, t) @ terms) for t in (0.0, 1.0))
    for nodes in _NODES:
        parts = np.zeros(many)
        at, lengths = np.polynomial.legendre.leggauss(nodes)
        for t, length in zip((at + 1) / 2, lengths / 2, strict=True):
            weights = _weights(whole, t)
            parts += length * (logs @ (weights * (terms - weights @ terms)))
        if abs(float(parts.sum()) - (last - first)) < _EXACT:
            break
    variances, total = _variances(ratio, logs, terms)
    weights = _weights(whole, 1.0)
    return parts, variances, total + float((weights**2 * (terms - last) ** 2).sum())


def _log_ratios(ratio: Ratio, many: int) -> Floats:
    """Return g_j at each row of the reference, (F, N)."""
    logs = np.zeros((many, len(ratio.weights)))
    first = 1
    for block in ratio.blocks:
        own = ratio.at[first : first + block.size][block.place]
        for j in block.features:
            logs[j] += ratio.share(j, block) * own
        first += block.size
    return logs


def _weights(logs: Floats, t: float) -> Floats:
    """Return weights proportional to exp(t·logs), with sum 1."""
    weights: Floats = np.exp(t * (logs - logs.max()))
    weights /= weights.sum()
    return weights


def _variances(ratio: Ratio, logs: Floats, terms: Floats) -> tuple[Floats, float]:
    """Return the variance of each feature's part, (F,), and the part of their sum's that is the ratio's."""
    rows = evenly(len(terms), _ERROR_ROWS)
    thinned = len(rows) / len(terms)
    logs, terms = logs[:, rows], terms[rows]
    weights = _weights(logs.sum(axis=0), 0.5)
    centred = logs - (logs @ weights)[:, None]
    apart = weights * (terms - weights @ terms)
    third = apart * centred  # (F, rows)
    part = third.sum(axis=1)
    slopes = np.zeros((len(ratio.at), len(logs)))
    first = 1
    for block in ratio.blocks:
        place, own = block.place[rows], slice(first, first + block.size)
        mass = np.bincount(place, weights, block.size)
        for j, row in enumerate(third):
            slopes[own, j] = 0.5 * (np.bincount(place, row, block.size) - part[j] * mass)
        direct = np.bincount(place, apart, block.size)
        for j in block.features:
            slopes[own, j] += ratio.share(j, block) * direct
        first += block.size
    factor = scipy.linalg.cho_factor(ratio.curvature, lower=False, check_finite=False)
    covariance = slopes.T @ scipy.linalg.cho_solve(factor, slopes, check_finite=False)
    scatter = thinned * ((third - part[:, None] * weights) ** 2).sum(axis=1)
    return np.diag(covariance) + scatter, float(covariance.sum())

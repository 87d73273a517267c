"""The bias of the confidences by predicted class, estimated from recent labels.

Precision depends on the answers of one predicted class, and recall on the answers of both classes in opposite
directions. So biases that cancel in the accuracy change these metrics, but `corrected` estimates only one
bias of all answers. Therefore this module also sums labelled rows by window and predicted class, where c is a
row's confidence: the error R = Σ (right − c) and the information I = Σ c(1 − c). R/I estimates the bias b of
that class in that window, in logits.

**The model.** At first, b varies as in the reference, with the variance D(n)
(`monitor.stats.estimate.drift_spectrum`). From some window on, b = s + u, where s is the same in all later
windows, and u differs between windows. It is unknown whether and when this change began, and which variances
s and u have. So each of the newest windows, with each pair of `_VARIANCES`, is a hypothesis about the change.
These hypotheses are equally likely, and their total probability is 1 − `_STILL`. A window's R/I is normal
with the variance 1/I + D(n) + var u.

**The result** is the mean of b in the newest window, and the part of the mean square of b beyond D(n). Both
are averages over the hypotheses in which a change began. The weight of a hypothesis is the probability that
labels have added to it, which is 0 as long as labels do not contradict the reference. The rest of the weight
belongs to an average of the newest windows, for a bias that is too small or too new to be proved. In this
average, each window counts 0.85 times as much as the next window, and a prior of variance 0.1 shrinks the
result. The bias does not change the value of a metric. The square of the mean widens the metric's interval
like a variance, on the side to which the mean shifts the metric.

**Assumptions.** As in `monitor.stats.estimate.corrected`: among rows of one window with the same confidence,
labelling does not depend on whether the answer was right.

**When it misleads.** The result misleads after a jump of the bias, until there are labels of rows after the
jump.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from monitor.base.records import Floats, Ints

WINDOWS = 40
"""The number of newest windows with labels whose sums are kept."""

CLASSES = 32
"""The largest number of classes with sums, which keeps the state small. Rows predicted as a later class are
left out."""

_MOST_WAITING = 64  # steps
_UNIT = 2.0**-30  # whole numbers: the order of labels changes nothing
_VARIANCES = (0.0, 0.03, 0.1, 0.3, 1.0, 3.0)  # logits²
_STILL = 0.7  # the prior probability that nothing began
_KEPT, _RECENT = 0.85, 0.1  # a window's weight relative to the next; variance of the mean if nothing began
_LARGEST = 1000.0  # of twice a log-likelihood ratio
_SMOOTH = 0.5  # added to I: one wrong answer among a few nearly certain ones is no proof


class ClassErrorsState(msgspec.Struct, frozen=True, omit_defaults=True):
    """The stored state of `ClassErrors`: sums by window and predicted class.

    Parameters
    ----------
    since : int
        Number of the first window whose labels count.
    windows : (w,) int64
        Numbers of the windows with labels, increasing.
    sums : (w, classes, 2) int64
        The errors R and the information I (see the module), as integer multiples of 2⁻³⁰.
    labels : (w,) int64
        The number of labelled rows in each window.
    """

    since: int = 0
    windows: Ints = msgspec.field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    sums: Ints = msgspec.field(default_factory=lambda: np.zeros((0, 0, 2), dtype=np.int64))
    labels: Ints = msgspec.field(default_factory=lambda: np.zeros(0, dtype=np.int64))


class ClassErrors:
    """The error R and the information I of one series' labelled rows, by window and predicted class.

    Parameters
    ----------
    state : ClassErrorsState, optional
        The result of `snapshot`.

    Examples
    --------
    >>> errors = ClassErrors()
    >>> errors.add(np.zeros(200, int), np.arange(200) % 2, np.full(200, 0.8), np.arange(200) % 4 > 0)
    >>> shown = errors.shown(np.arange(2), 0)
    >>> shown.labels, (shown.error / shown.information).round(2).tolist()
    (200, [[-1.82], [1.21]])
    """

    def __init__(self, state: ClassErrorsState | None = None) -> None:
        state = state or ClassErrorsState()
        self._since = state.since
        self._waiting: list[tuple[Ints, Ints, Floats, NDArray[np.bool_]]] = []
        self._kept = {
            window: _Sums(sums.copy(), labels)
            for window, sums, labels in zip(
                state.windows.tolist(), state.sums, state.labels.tolist(), strict=True
            )
        }

    def add(self, window: Ints, predicted: Ints, confidence: Floats, right: NDArray[np.bool_]) -> None:
        """Add rows that have received their first label, in any order.

        The rows are buffered until the sums are read, because a call often brings only one or two rows.

        Parameters
        ----------
        window, predicted : (n,) int64
        confidence : (n,) float64
            Calibrated confidence; rows with NaN are ignored.
        right : (n,) bool
        """
        if len(window):
            self._waiting.append((window, predicted, confidence, right))
            if len(self._waiting) == _MOST_WAITING:
                self._take_waiting()

    def _take_waiting(self) -> None:
        if not self._waiting:
            return
        window, predicted, confidence, right = map(np.concatenate, zip(*self._waiting, strict=True))
        self._waiting.clear()
        first = max(self._since, max(self._kept, default=0) - WINDOWS + 1)
        used = ~np.isnan(confidence) & (window >= first) & (predicted < CLASSES)
        window, predicted = window[used], predicted[used]
        confidence, right = confidence[used], right[used]
        if not len(window):
            return
        classes = int(predicted.max()) + 1
        error, information = right - confidence, confidence * (1 - confidence)
        units = np.rint(np.stack([error, information]) / _UNIT).astype(np.int64)
        for one in np.unique(window).tolist():
            rows = window == one
            sums = np.zeros((classes, 2), dtype=np.int64)
            for column in range(2):
                np.add.at(sums[:, column], predicted[rows], units[column, rows])
            self._kept[one] = _plus(self._kept.get(one), _Sums(sums, int(rows.sum())))
        newest = max(self._kept)
        self._kept = {one: sums for one, sums in self._kept.items() if one > newest - WINDOWS}

    def restart(self, window: int) -> None:
        """Drop the sums of earlier windows, because their confidences are not comparable with later ones."""
        self._take_waiting()
        self._since = window
        self._kept = {one: sums for one, sums in self._kept.items() if one >= window}

    def shown(self, strata: Ints, window: int) -> ShownErrors | None:
        """Return the errors of labelled rows in the windows up to `window`, by stratum; None without labels.

        Parameters
        ----------
        strata : (K,) int64
            The stratum of each predicted class (see `ShownErrors`).
        window : int
        """
        self._take_waiting()
        known = [one for one in sorted(self._kept) if one <= window]
        if not known:
            return None
        sums = np.zeros((int(strata.max()) + 1, len(known), 2))
        for at, one in enumerate(known):
            own = self._kept[one].sums
            np.add.at(sums[:, at], strata[: len(own)], own[: len(strata)] * _UNIT)
        labels = sum(self._kept[one].labels for one in known)
        information = sums[..., 1] + _SMOOTH * (sums[..., 1] > 0)
        return ShownErrors(sums[..., 0], information, labels, known[-1] == window)

    def snapshot(self) -> ClassErrorsState:
        """Return the state, from which the constructor can resume."""
        self._take_waiting()
        if not self._kept:
            return ClassErrorsState(self._since)
        known = sorted(self._kept)
        classes = max(len(each.sums) for each in self._kept.values())
        sums = np.zeros((len(known), classes, 2), dtype=np.int64)
        for at, one in enumerate(known):
            sums[at, : len(self._kept[one].sums)] = self._kept[one].sums
        labels = np.array([self._kept[one].labels for one in known])
        return ClassErrorsState(self._since, np.array(known), sums, labels)


class _Sums(NamedTuple):
    """The sums of one window, (classes, 2) in whole units, and its number of labels."""

    sums: Ints
    labels: int


def _plus(one: _Sums | None, other: _Sums) -> _Sums:
    if one is None:
        return other
    longer, shorter = sorted((one.sums, other.sums), key=len, reverse=True)
    sums = longer.copy()
    sums[: len(shorter)] += shorter
    return _Sums(sums, one.labels + other.labels)


@dataclass(frozen=True, slots=True, eq=False)
class ShownErrors:
    """The errors of labelled rows by stratum and window, from which `moments` estimates biases.

    A stratum is the answers of one predicted class, or of several that share a bias.

    Parameters
    ----------
    error, information : (strata, windows) float64
        The errors R and the information I (see the module).
    labels : int
        The number of labelled rows.
    own : bool
        True if the last column is the window whose bias is estimated.
    """

    error: Floats
    information: Floats
    labels: int
    own: bool = False

    def moments(self, usual: Floats) -> tuple[Floats, Floats]:
        """Return the mean and the excess mean square of each stratum's bias in the newest window.

        The excess is the part of the mean square beyond the usual variance.

        Parameters
        ----------
        usual : (strata,) float64
            The variance of the bias according to the reference, in logits²: D(n) in the module.

        Returns
        -------
        mean, square : (strata,) float64
            In logits and logits².

        Examples
        --------
        >>> right = ShownErrors(np.array([[3.0]]), np.array([[100.0]]), 1000, own=True)
        >>> wrong = ShownErrors(np.array([[60.0]]), np.array([[100.0]]), 1000, own=True)
        >>> [float(each.moments(np.zeros(1))[1][0].round(2)) for each in (right, wrong)]
        [0.0, 0.35]
        """
        lasting, passing = _hypotheses()
        known = self.information > 0
        noise = 1 / np.where(known, self.information, 1.0)
        bias = np.where(known, self.error, 0.0) * noise
        moving = usual[:, None] + passing
        # (strata, pairs of variances, windows), then sums over the windows from each on
        precision = known[:, None] / (noise[:, None] + moving[..., None])
        logs = np.log(np.where(known[:, None], precision, 1.0)) - precision * bias[:, None] ** 2
        total, first = (_from_each_on(each) for each in (precision, precision * bias[:, None]))
        spread = 1 / (1 + lasting[:, None] * total)
        evidence = _from_each_on(logs - logs[:, :1]) + np.log(spread) + first**2 * lasting[:, None] * spread
        factor = np.exp(np.minimum(evidence, _LARGEST) / 2)
        factor[:, 0] = 0.0  # nothing began
        posterior = factor * (1 - _STILL) / (_STILL * np.count_nonzero(factor[0]))
        began = posterior.sum(axis=(1, 2))
        gained = np.maximum((began / (1 + began) - (1 - _STILL)) / _STILL, 0.0)
        posterior *= (gained / began)[:, None, None]
        recent = precision[:, 0] * _KEPT ** np.arange(bias.shape[1])[::-1]
        middle = _RECENT * (recent * bias).sum(axis=1) / (1 + _RECENT * recent.sum(axis=1))
        # The bias of the newest window: s from the other windows, updated by its own labels.
        own, last = precision[..., -1:] * self.own, bias[:, -1:, None]
        spread = lasting[:, None] / (1 + lasting[:, None] * (total - own))
        mean, variance = (first - own * last) * spread, spread + moving[..., None]
        gain = self.own * known[:, -1:, None] * variance / (variance + noise[:, -1:, None])
        mean, variance = mean + gain * (last - mean), (1 - gain) * variance
        square = np.maximum(mean**2 + variance - usual[:, None, None], 0.0)
        return (
            (posterior * mean).sum(axis=(1, 2)) + (1 - gained) * middle,
            (posterior * square).sum(axis=(1, 2)) + (1 - gained) * middle**2,
        )


def _from_each_on(values: Floats) -> Floats:
    """Return sums over the last axis from each place to its end."""
    sums: Floats = np.flip(np.flip(values, -1).cumsum(axis=-1), -1)
    return sums


@lru_cache(maxsize=1)
def _hypotheses() -> tuple[Floats, Floats]:
    """Return the variances of s and of u; in the first pair both are 0, which stands for the reference."""
    lasting, passing = (each.ravel() for each in np.meshgrid(_VARIANCES, _VARIANCES, indexing="ij"))
    return lasting, passing

"""Exact distributions and intervals with a normal variance on top."""

from __future__ import annotations

import numpy as np
from scipy.fft import irfft, next_fast_len, rfft, rfftfreq
from scipy.special import ndtri

from monitor.estimate.poisson_binomial import TrimmedPmf, checked_level

_DEVIATIONS = 8.0  # of the normal that are computed: beyond it 1e-15 is left


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


def widened_interval(
    value: float, lower: float, upper: float, variance: float, level: float
) -> tuple[float, float]:
    """Ends of an interval with a normal variance on top: on each side √(half-width² + z² variance).

    It is the convolution where the interval is a normal's, and keeps the skew of one that is none. Each
    end stays between 0 and 1, on its side of the value.

    Parameters
    ----------
    value, lower, upper : float
        0 to 1.
    variance : float
        0 or more.
    level : float
        That of the interval.

    Examples
    --------
    >>> low, high = widened_interval(0.9, 0.87, 0.92, (0.04 / 1.96) ** 2, level=0.95)
    >>> round(low, 3), round(high, 3)
    (0.85, 0.945)
    """
    tail = (1 - checked_level(level)) / 2
    extra = float(ndtri(1 - tail)) ** 2 * max(variance, 0.0)
    below = np.sqrt(max(value - lower, 0.0) ** 2 + extra)
    above = np.sqrt(max(upper - value, 0.0) ** 2 + extra)
    return max(value - float(below), 0.0), min(value + float(above), 1.0)

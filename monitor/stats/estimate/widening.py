"""Distributions and intervals, widened by a normal error of a given variance."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import scipy

from monitor.base.records import Floats
from monitor.stats.estimate._convolution import fast_length
from monitor.stats.estimate.poisson_binomial import TrimmedPmf, checked_level

_DEVIATIONS = 8.0  # of the normal that are computed: 1e-15 of its mass is beyond


def widened(pmf: TrimmedPmf, variance: float) -> TrimmedPmf:
    """Return the distribution of a count plus a normal error with mean 0 and this variance (counts²).

    Probability below 0 moves to 0, and probability above n moves to n.

    Examples
    --------
    >>> sharp = TrimmedPmf(offset=50, mass=np.array([1.0]), n=100)
    >>> wide = widened(sharp, 25.0)
    >>> wide.interval(0.95), round(float(wide.mass.sum()), 9)
    ((40, 60), 1.0)
    """
    if variance <= 0:
        return pmf
    reach = math.ceil(_DEVIATIONS * math.sqrt(variance)) + 1
    length = len(pmf.mass) + 2 * reach
    size = fast_length(length)
    padded = np.zeros(size)
    padded[reach : reach + len(pmf.mass)] = pmf.mass
    spectrum = np.fft.rfft(padded)
    spectrum *= np.exp(variance * _half_squares(size))
    smooth = np.fft.irfft(spectrum, size)[:length]
    mass = np.maximum(smooth, 0.0)  # a normal narrower than half a count leaves ripples
    first = pmf.offset - reach
    past = first + length - (pmf.n + 1)  # counts above n
    if past > 0:
        mass[-past - 1] += mass[-past:].sum()
        mass = mass[:-past]
    if first < 0:
        mass[-first] += mass[:-first].sum()
        mass = mass[-first:]
    mass /= mass.sum()
    return TrimmedPmf(max(first, 0), mass, pmf.n)


@lru_cache(maxsize=256)
def _half_squares(size: int) -> Floats:
    """Return (frequencies,) −ω²/2 of a transform of this length."""
    exponents: Floats = -((2 * np.pi * np.fft.rfftfreq(size)) ** 2) / 2
    exponents.flags.writeable = False
    return exponents


def mid_p_interval(pmf: TrimmedPmf, level: float) -> tuple[int, int]:
    """Return the mid-p limits of a count: the lowest and highest count in the central interval.

    A count is in the interval if its mid-p value, P(lower count) + P(this count) / 2, lies from (1 − level)/2
    to (1 + level)/2. The coverage of exact limits is at least the level. The coverage of mid-p limits is
    about the level. If no count is in the interval, both limits are the most probable count.

    Examples
    --------
    >>> mid_p_interval(TrimmedPmf(offset=0, mass=np.array([0.04, 0.48, 0.48]), n=2), 0.95)
    (1, 2)
    """
    tail = (1 - level) / 2
    middle = pmf.mass.cumsum() - pmf.mass / 2
    first, past = int(middle.searchsorted(tail)), int(middle.searchsorted(1 - tail, side="right"))
    if first >= past:  # one count holds nearly everything
        first = int(pmf.mass.argmax())
        past = first + 1
    return pmf.offset + first, pmf.offset + past - 1


def widened_interval(
    value: float, lower: float, upper: float, variance: float, level: float, shift: float = 0.0
) -> tuple[float, float]:
    """Return the ends of an interval after a normal error of this variance is added.

    On each side, the half-width becomes √(half-width² + z² variance). This is exact for a normal
    distribution, and keeps the skew of any other distribution. The square of `shift` is added to the
    variance, but only on the side of its sign. Each end stays within 0 and 1, and on its side of the value.

    `value`, `lower`, `upper` and `level` are from 0 to 1; `variance` is 0 or more, and `shift` has a sign.

    Examples
    --------
    >>> low, high = widened_interval(0.9, 0.87, 0.92, (0.04 / 1.96) ** 2, level=0.95)
    >>> round(low, 3), round(high, 3)
    (0.85, 0.945)
    """
    tail = (1 - checked_level(level)) / 2
    z, extra = float(scipy.special.ndtri(1 - tail)), max(variance, 0.0)
    below = math.hypot(max(value - lower, 0.0), z * math.sqrt(extra), z * min(shift, 0.0))
    above = math.hypot(max(upper - value, 0.0), z * math.sqrt(extra), z * max(shift, 0.0))
    return max(value - below, 0.0), min(value + above, 1.0)

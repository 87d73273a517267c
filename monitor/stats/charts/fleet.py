"""The false-alarm rate of a chart, averaged over its possible baselines."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np
import scipy

from monitor.base.errors import ConfigError
from monitor.base.records import Floats
from monitor.stats.charts.detectors import Detector, Spread

MIN_REFERENCE_WINDOWS = 5
"""The smallest number of reference windows. Fewer windows show almost nothing about the variation between
windows."""

_TAIL = 1e-13  # tail probability that the integral over the dispersion leaves out; its value is at least 1e-6


@dataclass(frozen=True, slots=True)
class Limits:
    """The two numbers from which a chart computes its limits: the multiplier L and the inflation κ.

    Parameters
    ----------
    multiplier : float
        L, the half width of the limits in the chart's sigma. For a CUSUM, the decision interval h.
    inflation : float
        κ ≥ 1, a correction for few reference windows. The variance of one row is ``v0 + κ² · max(0, v_ref −
        v0)``, with v0 from the rows of one window and v_ref from the differences between windows. κ = 1 gives
        Laney's p′.
    """

    multiplier: float
    inflation: float


def check_reference(reference_windows: float) -> None:
    """Raise a ConfigError if the reference has fewer than five windows, too few for limits."""
    if not reference_windows >= MIN_REFERENCE_WINDOWS:
        raise ConfigError(
            f"reference: got {reference_windows:g} windows for a control chart, which needs at least "
            f"{MIN_REFERENCE_WINDOWS} (20 or more are good); give more reference rows, or a smaller "
            f"window.size"
        )


def mean_rate(
    detector: Detector, m: float, chosen: Limits, overdispersion: float, spread: Spread, least: float = 0.0
) -> float:
    """Return the false alarms per window, averaged over the centres and sigmas that a reference can give.

    Parameters
    ----------
    m : float
        Number of reference windows; infinity for known limits.
    overdispersion : float
        φ, the process's standard deviation divided by the standard deviation of independent rows, at least 1.
        With infinity, sigma is estimated from the reference windows alone.
    least : float
        The smallest change that raises an alarm, in the process's standard deviations.
    """
    error, error_weight = _centre_errors(m)
    if spread is Spread.KNOWN or math.isinf(m):
        ratio, ratio_weight = np.ones(1), np.ones(1)
    elif spread is Spread.MOVING_RANGE:
        ratio, ratio_weight = moving_range_ratios(m)
    else:
        ratio, ratio_weight = _sigma_ratios(m - 1, chosen.inflation, overdispersion)
    grid_error, grid_ratio = (a.ravel() for a in np.meshgrid(error, ratio, indexing="ij"))
    rate = detector.rate(chosen.multiplier, grid_error, grid_ratio, least).reshape(len(error), len(ratio))
    return float(error_weight @ rate @ ratio_weight)


@lru_cache(maxsize=256)
def moving_range_ratios(m: float) -> tuple[Floats, Floats]:
    """Return nodes and weights of the distribution of the mean moving range of m normal windows.

    The mean moving range is divided by 1.128 sigma, so its mean is 1. The distribution has no closed form.
    The limits depend on its lower tail. The lower tail of a χ distribution with the same first two moments
    (Patnaik) is too heavy: at m = 20, there would be 10 % too few alarms. So the function sorts seeded draws
    (100,000 up to m = 40, fewer for larger m), and groups them, with smaller groups at the lower end.

    Examples
    --------
    >>> ratio, weight = moving_range_ratios(20)
    >>> round(float(weight @ ratio), 2), round(float(weight @ (ratio - 1) ** 2), 3)
    (1.0, 0.043)
    """
    windows = min(int(m), 1000)  # with more windows sigma is known to 3 %, which suffices
    rng = np.random.default_rng(windows)
    draws = max(2000, min(100_000, 4_000_000 // windows))
    ranges = np.abs(np.diff(rng.standard_normal((draws, windows)), axis=1))
    mean_ranges = np.sort(ranges.mean(axis=1)) * math.sqrt(math.pi) / 2
    cuts = np.unique(draws * np.concatenate([np.geomspace(1 / draws, 0.1, 120), np.linspace(0.1, 1, 60)]))
    starts = np.unique(np.concatenate([[0], cuts[:-1].astype(np.int64)]))
    counts = np.diff(np.append(starts, draws))
    return np.add.reduceat(mean_ranges, starts) / counts, counts / draws


@lru_cache(maxsize=256)
def _centre_errors(m: float) -> tuple[Floats, Floats]:
    """Return nodes and weights for the centre's error, which is normal with variance 1/m.

    The nodes are positive, because the rules are symmetric.
    """
    if math.isinf(m):
        return np.zeros(1), np.ones(1)
    nodes, weights = np.polynomial.hermite_e.hermegauss(32)
    upper = nodes > 0
    return nodes[upper] / math.sqrt(m), 2 * weights[upper] / weights.sum()


@cache
def _legendre() -> tuple[Floats, Floats]:
    return np.polynomial.legendre.leggauss(64)


def _sigma_ratios(degrees: float, inflation: float, overdispersion: float) -> tuple[Floats, Floats]:
    """Return nodes and weights for φ̂/φ, the chart's sigma divided by the true one."""
    highest = math.sqrt(scipy.special.chdtri(degrees, _TAIL) / degrees)
    lowest = math.sqrt(scipy.special.chdtri(degrees, 1 - _TAIL) / degrees)
    floor = 0.0 if math.isinf(overdispersion) else 1.0 / overdispersion  # the rows' variance is the minimum
    nodes, weights = _legendre()
    start, end = max(floor, lowest), max(floor, highest)
    s = start + (end - start) * (nodes + 1) / 2
    density = np.exp(
        math.log(2) + degrees / 2 * math.log(degrees / 2) - scipy.special.gammaln(degrees / 2)
        + (degrees - 1) * np.log(s) - degrees / 2 * s**2
    )  # fmt: skip
    weight = weights * (end - start) / 2 * density
    if floor == 0.0:
        return inflation * s, weight / weight.sum()
    below = 1.0 - scipy.special.chdtrc(degrees, degrees * floor**2)
    ratio = np.sqrt(floor**2 + inflation**2 * (s**2 - floor**2))
    return np.append(ratio, floor), np.append(weight, below)

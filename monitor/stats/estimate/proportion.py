"""Wilson's interval for a share of successes, such as the realised accuracy."""

from __future__ import annotations

from math import sqrt

import scipy

from monitor.base.results import Estimate, Reason, Result, Unknown
from monitor.stats.estimate.poisson_binomial import checked_level


def wilson(successes: int, n: int, level: float = 0.95) -> Result:
    """Return a share of successes with Wilson's score interval, without continuity correction.

    The interval is for the **probability** of a success in independent trials. The coverage is about `level`
    on average over all probabilities. Near 0 and 1, it can be lower. If the trials are correlated, the
    coverage is too small.

    Parameters
    ----------
    successes : int
        0 to n.
    n : int
        Number of trials; for the realised accuracy, the labelled rows.
    level : float
        Level of the interval, above 0 and below 1.

    Returns
    -------
    Estimate or Unknown
        From 0 to 1; `Unknown` for n = 0.

    Raises
    ------
    ValueError
        `successes` is not from 0 to n, n is negative, or the level is out of range.

    References
    ----------
    E. B. Wilson, *Probable inference, the law of succession, and statistical inference*, Journal of
    the American Statistical Association 22 (1927), pages 209-212. L. D. Brown, T. T. Cai,
    A. DasGupta, *Interval estimation for a binomial proportion*, Statistical Science 16 (2001),
    section 3.1.1, recommend it over the textbook's ±1.96 standard errors.

    Examples
    --------
    >>> wilson(45, 50)
    Estimate(value=0.9, lower=0.7863..., upper=0.9565..., level=0.95, n=50)
    >>> wilson(0, 0)
    Unknown(reason=<Reason.NO_LABELS: 'no labels yet'>)
    """
    if n < 0:
        raise ValueError(f"n must be 0 or more trials, got {n}")
    if not 0 <= successes <= n:
        raise ValueError(f"successes must lie from 0 to n = {n}, got {successes}")
    if n == 0:
        checked_level(level)
        return Unknown(Reason.NO_LABELS)
    share = successes / n
    return Estimate(share, *wilson_interval(share, n, level), level, n)


def wilson_interval(share: float, n: float, level: float = 0.95) -> tuple[float, float]:
    """Return Wilson's score interval for a share of n > 0 trials, where n need not be an integer.

    For the shares 0 and 1, one end of the interval is the share itself. A level that is not strictly between
    0 and 1 raises a ValueError.

    Examples
    --------
    >>> wilson_interval(0.9, 50)
    (0.7863..., 0.9565...)
    """
    z = float(scipy.special.ndtri(0.5 + checked_level(level) / 2))
    shrink = 1 + z * z / n
    center = (share + z * z / (2 * n)) / shrink
    half = z / shrink * sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    # At 0 and 1 the end is the share itself; rounding must not move any end to the wrong side.
    lower = 0.0 if share <= 0.0 else max(center - half, 0.0)
    return lower, 1.0 if share >= 1.0 else min(center + half, 1.0)

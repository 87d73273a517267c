"""Exact run lengths of EWMA and CUSUM charts, from their integral equations.

Each chart is a Markov process on an interval: one number, the average or the sum, summarises the past. The
mean run length as a function of that number solves a Fredholm equation of the second kind. This module solves
the equation by Nyström's method on Gauss-Legendre nodes. The kernel is a normal density, so the error falls
faster than any power of the number of nodes; with 80 nodes it is under 1e-6 of the run length for any useful
limit. Nothing is simulated. The Markov chains of Brook and Evans (1972) and Lucas and Saccucci (1990) use
step functions for the kernel, and need several times as many states for three digits.
"""

from __future__ import annotations

import math
from functools import cache, lru_cache

import numpy as np
import scipy

from monitor.base.records import Floats


@cache
def _quadrature() -> tuple[Floats, Floats]:
    """Return Gauss-Legendre nodes and weights on -1 to 1."""
    nodes, weights = np.polynomial.legendre.leggauss(80)
    return nodes, weights


_WIDTHS = np.concatenate([np.linspace(0.05, 0.75, 8), np.linspace(1.0, 7.25, 26)])
_ERRORS = 2.7 * np.linspace(0.0, 1.0, 32) ** 1.5
_SLOPES = np.concatenate([np.linspace(-4.0, -1.25, 12), np.linspace(-1.0, 1.0, 41), np.linspace(1.25, 6, 20)])
_INTERVALS = 0.05 + 49.95 * np.linspace(0.0, 1.0, 44) ** 2

LONGEST = 1e9
"""The longest run length, in windows, from a linear system: longer ones show rounding errors."""


def ewma_arls(weight: float, error: Floats, width: Floats) -> Floats:
    """Return the (g,) mean numbers of windows until the first alarm of two-sided EWMA charts.

    The statistic ``z ← (1 - λ)z + λy`` starts at 0, the centre. The windows y are independent and normal with
    variance 1, and their mean lies `error` from the centre. An alarm is a z outside ``±width·√(λ/(2 - λ))``,
    the limits of an average of many windows. Run lengths above 1e9 windows show rounding errors.

    Parameters
    ----------
    weight : float
        λ, above 0 and up to 1; 1 is the Shewhart chart.
    error : (g,) float64
        Distance of the mean from the centre, in standard deviations of a window.
    width : (g,) float64
        L, above 0, in the statistic's own standard deviations.

    References
    ----------
    Crowder: A simple method for studying run-length distributions of exponentially weighted moving average
    charts, Technometrics 29 (1987), 401-407 (the equation). Lucas, Saccucci: Exponentially weighted moving
    average control schemes, Technometrics 32 (1990), 1-12: their table 3 has λ = 0.1, L = 2.814 for 500
    windows, and 10.3 for a shift of 1.

    Examples
    --------
    >>> ewma_arls(0.1, np.array([0.0, 1.0]), np.array([2.814, 2.814])).round(1)
    array([499.6,  10.3])
    """
    half = width * math.sqrt(weight / (2 - weight))
    between, mass = _quadrature()
    nodes = half[:, None] * between  # (g, k)
    mass = half[:, None] * mass / weight
    steps = (nodes[:, None, :] - (1 - weight) * nodes[:, :, None]) / weight - error[:, None, None]
    kernel = _density(steps) * mass[:, None, :]
    at_nodes = _solved(kernel)
    from_centre = _density(nodes / weight - error[:, None]) * mass
    return np.asarray(1.0 + np.sum(from_centre * at_nodes, axis=1))


@lru_cache(maxsize=32)
def _ewma_table(weight: float) -> scipy.interpolate.RectBivariateSpline:
    rows = np.array([-np.log(_long(ewma_arls(weight, np.full(len(_WIDTHS), e), _WIDTHS))) for e in _ERRORS])
    errors = np.concatenate([-_ERRORS[:0:-1], _ERRORS])
    return scipy.interpolate.RectBivariateSpline(
        errors, _WIDTHS, np.concatenate([rows[:0:-1], rows]), kx=3, ky=3, s=0
    )


def ewma_rate(weight: float, error: Floats, width: Floats) -> Floats:
    """Return the (g,) mean numbers of alarms per window, from a table of exact solutions.

    The result is 1/`ewma_arls`, interpolated. The parameters are those of `ewma_arls`. Widths are clipped to
    0.05 to 7.25, and errors to −2.7 to 2.7.

    Examples
    --------
    >>> ewma_rate(0.1, np.array([0.0, 1.0]), np.array([2.814, 2.814])).round(4)
    array([0.002 , 0.0968])
    """
    clipped = np.clip(width, _WIDTHS[0], _WIDTHS[-1])
    return np.asarray(np.exp(_ewma_table(weight).ev(np.minimum(np.abs(error), _ERRORS[-1]), clipped)))


def cusum_arls(slope: Floats, interval: Floats) -> Floats:
    """Return the (g,) mean numbers of windows until the first alarm of one-sided CUSUM charts.

    The sum ``S ← max(0, S + y - slope)`` starts at 0. The windows y are independent and standard normal, and
    a sum above `interval` is an alarm. Run lengths above 1e9 windows come from Siegmund's approximation, with
    an error of about 3 % at most.

    Parameters
    ----------
    slope : (g,) float64
        The allowance k minus the shift of the windows' mean, in standard deviations of a window; may be
        negative.
    interval : (g,) float64
        The decision interval h, above 0, in standard deviations of a window.

    References
    ----------
    Page: Continuous inspection schemes, Biometrika 41 (1954), 100-115 (the equation). Siegmund: Sequential
    Analysis (1985), equation 2.57. Brook, Evans: An approach to the probability distribution of cusum run
    length, Biometrika 59 (1972), 539-549. Montgomery, Introduction to Statistical Quality Control, section
    9.1: for k = 1/2 and h = 4, both sides together, 168 windows, and 8.38 for a shift of 1.

    Examples
    --------
    >>> (1 / cusum_arls(np.array([0.5, -0.5, 1.5]), np.full(3, 4.0))).round(4)
    array([0.003 , 0.1193, 0.    ])
    """
    between, mass = _quadrature()
    nodes = interval[:, None] * (between + 1) / 2
    mass = interval[:, None] * mass / 2
    nodes = np.concatenate([np.zeros((len(slope), 1)), nodes], axis=1)  # 0 is a state with mass of its own
    kernel = np.empty((len(slope), nodes.shape[1], nodes.shape[1]))
    kernel[:, :, 0] = scipy.special.ndtr(slope[:, None] - nodes)
    kernel[:, :, 1:] = (
        _density(nodes[:, None, 1:] - nodes[:, :, None] + slope[:, None, None]) * mass[:, None, :]
    )
    exact = _solved(kernel)[:, 0]
    good = (exact >= 1) & (exact < LONGEST)
    return np.asarray(np.where(good, exact, _siegmund(slope, interval)))


def _siegmund(slope: Floats, interval: Floats) -> Floats:
    exponent = np.minimum(2 * slope * (interval + 1.166), 600.0)
    safe = np.where(np.abs(slope) < 1e-9, 1e-9, slope)
    return np.asarray(np.maximum((np.expm1(exponent) - exponent) / (2 * safe**2), 1.0))


@lru_cache(maxsize=1)
def _cusum_table() -> scipy.interpolate.RectBivariateSpline:
    rows = np.array([-np.log(cusum_arls(np.full(len(_INTERVALS), k), _INTERVALS)) for k in _SLOPES])
    return scipy.interpolate.RectBivariateSpline(_SLOPES, np.sqrt(_INTERVALS), rows, kx=3, ky=3, s=0)


def cusum_rate(reference: Floats, error: Floats, interval: Floats) -> Floats:
    """Return the (g,) mean numbers of alarms per window of two-sided CUSUM charts, from a table.

    The two sums cannot both stay above 0 for long, so the rate is the total of their alarm rates. This is
    exact for a reference value above 0.

    Parameters
    ----------
    reference : (g,) float64
        The reference value (allowance) k, in standard deviations of a window, like the other two arguments.
    error : (g,) float64
        Distance of the windows' mean from the chart's centre.
    interval : (g,) float64
        The decision interval h, clipped to 0.05 to 50.

    Examples
    --------
    >>> one = np.ones(2)
    >>> (1 / cusum_rate(0.5 * one, np.array([0.0, 1.0]), 4.0 * one)).round(2)
    array([167.68,   8.38])
    """
    h = np.sqrt(np.clip(interval, _INTERVALS[0], _INTERVALS[-1]))
    rates = [
        np.exp(_cusum_table().ev(np.clip(reference - side * error, _SLOPES[0], _SLOPES[-1]), h))
        for side in (1.0, -1.0)
    ]
    return np.asarray(np.minimum(rates[0] + rates[1], 1.0))


def _density(z: Floats) -> Floats:
    return np.asarray(np.exp(-0.5 * z * z) / math.sqrt(2 * math.pi))


def _solved(kernel: Floats) -> Floats:
    """Return the (g, k) solutions of ``(I - K) a = 1`` for (g, k, k) kernels."""
    system = np.eye(kernel.shape[1]) - kernel
    return np.asarray(np.linalg.solve(system, np.ones((*kernel.shape[:2], 1)))[:, :, 0])


def _long(arls: Floats) -> Floats:
    """Return the run lengths, at most 1e13, because doubles do not resolve longer ones."""
    return np.asarray(np.where((arls >= 1) & (arls < 1e13), arls, 1e13))

"""Run lengths of the charts that add up or average windows, EWMA and CUSUM, by their integral equations.

Both are Markov processes on an interval: one number holds all that matters of the past. The mean run length
as a function of that number solves a Fredholm equation of the second kind, here by Nyström's method on
Gauss-Legendre nodes. The kernel is a normal density, so the error falls faster than any power of the number
of nodes; with those below it is under 1e-6 of the run length for any useful limit. Nothing is simulated. The
Markov chains of Brook and Evans (1972) and Lucas and Saccucci (1990) use step functions for the kernel, and
need several times the states for three digits.
"""

from __future__ import annotations

import math
from functools import cache, lru_cache

import numpy as np
import scipy

from monitor.base.records import Floats


@cache
def _quadrature() -> tuple[Floats, Floats]:
    """Nodes and weights on -1 to 1."""
    nodes, weights = np.polynomial.legendre.leggauss(80)
    return nodes, weights


_WIDTHS = np.concatenate([np.linspace(0.05, 0.75, 8), np.linspace(1.0, 7.25, 26)])
_ERRORS = 2.7 * np.linspace(0.0, 1.0, 32) ** 1.5
_SLOPES = np.concatenate([np.linspace(-4.0, -1.25, 12), np.linspace(-1.0, 1.0, 41), np.linspace(1.25, 6, 20)])
_INTERVALS = 0.05 + 49.95 * np.linspace(0.0, 1.0, 44) ** 2

LONGEST = 1e9
"""Windows; above it rounding in the linear systems shows, and an asymptotic formula replaces them."""


def ewma_arls(weight: float, error: Floats, width: Floats) -> Floats:
    """Mean windows until the first alarm of two-sided EWMA charts, started at their centre, (g,).

    The statistic ``z ← (1 - λ)z + λy`` takes independent normal windows y of variance 1 whose mean lies
    `error` off the chart's centre. It alarms outside ``±width·√(λ/(2 - λ))``, the limits of a statistic that
    has run for long. Above 1e9 windows rounding shows.

    Parameters
    ----------
    weight : float
        λ, above 0 and up to 1, which is the Shewhart chart.
    error, width : (g,) float64
        `error` in the windows' standard deviations; `width` is L, in those of the statistic, above 0.

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
    """Alarms a window, 1/`ewma_arls`, from a table of exact solutions; widths are clipped to 0.05 to 7.25.

    Examples
    --------
    >>> ewma_rate(0.1, np.array([0.0, 1.0]), np.array([2.814, 2.814])).round(4)
    array([0.002 , 0.0968])
    """
    clipped = np.clip(width, _WIDTHS[0], _WIDTHS[-1])
    return np.asarray(np.exp(_ewma_table(weight).ev(np.minimum(np.abs(error), _ERRORS[-1]), clipped)))


def cusum_arls(slope: Floats, interval: Floats) -> Floats:
    """Mean windows until the first alarm of one-sided CUSUM charts, started at 0, (g,).

    The sum ``S ← max(0, S + y - slope)`` takes independent standard normal windows y, and alarms above
    `interval`. Above 1e9 windows it uses Siegmund's approximation, within about 3 %.

    Parameters
    ----------
    slope, interval : (g,) float64
        `slope` is k minus the shift of the windows' mean, and may be negative; `interval` is h, above 0. Both
        in the windows' standard deviations.

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
    nodes = np.concatenate([np.zeros((len(slope), 1)), nodes], axis=1)  # 0 first: the sum stays there
    kernel = np.empty((len(slope), nodes.shape[1], nodes.shape[1]))
    kernel[:, :, 0] = scipy.special.ndtr(slope[:, None] - nodes)
    kernel[:, :, 1:] = (
        _density(nodes[:, None, 1:] - nodes[:, :, None] + slope[:, None, None]) * mass[:, None, :]
    )
    found = _solved(kernel)[:, 0]
    good = (found >= 1) & (found < LONGEST)
    return np.asarray(np.where(good, found, _siegmund(slope, interval)))


def _siegmund(slope: Floats, interval: Floats) -> Floats:
    exponent = np.minimum(2 * slope * (interval + 1.166), 600.0)
    safe = np.where(np.abs(slope) < 1e-9, 1e-9, slope)
    return np.asarray(np.maximum((np.expm1(exponent) - exponent) / (2 * safe**2), 1.0))


@lru_cache(maxsize=1)
def _cusum_table() -> scipy.interpolate.RectBivariateSpline:
    rows = np.array([-np.log(cusum_arls(np.full(len(_INTERVALS), k), _INTERVALS)) for k in _SLOPES])
    return scipy.interpolate.RectBivariateSpline(_SLOPES, np.sqrt(_INTERVALS), rows, kx=3, ky=3, s=0)


def cusum_rate(reference: Floats, error: Floats, interval: Floats) -> Floats:
    """Alarms a window of a two-sided CUSUM chart, for many at once, from a table of exact solutions.

    The two sums cannot both stay above 0 for long, so their alarm rates add up (exactly, for a reference
    value above 0). The reference value k, the mean's distance from the chart's centre, and h are in the
    windows' standard deviations; h is clipped to 0.05 to 50.

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
    """(g, k) solutions of ``(I - K) a = 1`` for (g, k, k) kernels."""
    system = np.eye(kernel.shape[1]) - kernel
    return np.asarray(np.linalg.solve(system, np.ones((*kernel.shape[:2], 1)))[:, :, 0])


def _long(arls: Floats) -> Floats:
    """Run lengths, at most 1e13: doubles do not resolve longer ones."""
    return np.asarray(np.where((arls >= 1) & (arls < 1e13), arls, 1e13))

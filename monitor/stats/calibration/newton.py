"""Newton's method for convex functions of bounded parameters; all parametric calibrations use it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from monitor.base.records import Floats

PRIOR = 0.01
"""Precision of the normal prior around the identity map (a standard deviation of 10). If the likelihood alone
has a finite maximum, the prior hardly changes it, because each row adds a precision of about 0.1. With
separable classes, constant scores or an absent class, the prior makes the result finite and unique."""

_SETTLED = 1e-13  # a few times the resolution of float64
_NEAR = 1e-9  # relative gain; below it rounding makes comparisons unreliable, so steps are full
_SHORTEST = 1e-12  # fraction of a step; below it rounding hides a decrease of the value
_SUFFICIENT = 1e-4  # Armijo's fraction of the gain that the slope predicts

Values = tuple[float, Floats, Floats]
Objective = Callable[[Floats], Values]
"""Value, gradient (p,) and Hessian (p, p) at (p,) parameters."""


def minimise(objective: Objective, start: Floats, floors: Floats, iterations: int = 200) -> Floats:
    """Return the (p,) parameters that minimise a strictly convex function subject to lower bounds.

    A parameter at its lower bound stays there while the gradient points below the bound. The other parameters
    take a Newton step, which is clipped to the floors, and halved until the value decreases enough.

    Parameters
    ----------
    objective : Objective
    start, floors : (p,) float64
        The first parameters to try, and the lower bound of each; −inf means no bound.

    Raises
    ------
    ValueError
        The steps have not converged after `iterations` steps.

    References
    ----------
    D. P. Bertsekas, *Projected Newton methods for optimization problems with simple constraints*, SIAM
    Journal on Control and Optimization 20 (1982), section 2.

    Examples
    --------
    >>> def bowl(at):  # its minimum at (1, -1)
    ...     away = at - np.array([1.0, -1.0])
    ...     return float(away @ away) / 2, away, np.eye(2)
    >>> minimise(bowl, np.array([3.0, 3.0]), np.array([-np.inf, 0.0])).tolist()
    [1.0, 0.0]
    """
    at, last = start.astype(np.float64), np.inf
    known: Values | None = None
    for _ in range(iterations):
        value, slope, curvature = known or objective(at)
        held = (at <= floors + _SETTLED) & (slope > 0.0)
        free = np.flatnonzero(~held)
        step = np.where(held, floors, at) - at
        step[free] = -np.linalg.solve(curvature[np.ix_(free, free)], slope[free])
        near = -float(slope @ step) <= _NEAR * (1.0 + abs(value))
        following, known = np.maximum(at + step, floors), None
        if not near:
            following, known = _fallen(objective, at, (value, slope, curvature), step, floors)
        moved = float(np.abs(following - at).max())
        at = following
        # Near the minimum, steps shrink quadratically; steps that no longer shrink are rounding.
        if moved <= _SETTLED * (1.0 + float(np.abs(at).max())) or (near and moved > last / 2):
            return at
        last = moved if near else np.inf
    raise ValueError(
        f"the fit has not settled after {iterations} steps of Newton's method; last at {at.tolist()}"
    )


def _fallen(
    objective: Objective, at: Floats, known: Values, step: Floats, floors: Floats
) -> tuple[Floats, Values]:
    """Return a point on the projected step whose value is sufficiently smaller, and its `Values`."""
    (value, slope, _), length = known, 1.0
    while length > _SHORTEST:
        following = np.maximum(at + length * step, floors)
        promised = float(slope @ (at - following))
        if promised > 0.0 and (values := objective(following))[0] <= value - _SUFFICIENT * promised:
            return following, values
        length /= 2.0
    return at, known


def logistic_fit(design: Floats, success: Floats, weight: Floats, centre: Floats, floors: Floats) -> Floats:
    """Return the (p,) coefficients θ of a logistic regression with a normal prior around `centre`.

    θ minimises Σ weightᵢ·log(1 + exp(xᵢ·θ)) − successᵢ·xᵢ·θ + PRIOR/2·‖θ − centre‖², where xᵢ is row i of
    `design` and PRIOR the precision of the prior.

    Parameters
    ----------
    design : (n, p) float64
    success : (n,) float64
        Weight of the successes in each row, from 0 to the row's `weight`.
    weight : (n,) float64
    centre, floors : (p,) float64
        The mean of the prior, where the minimisation starts, and the lower bounds of θ, which lie below it.

    Returns
    -------
    (p,) float64
        θ.

    Examples
    --------
    >>> one = np.ones(1)
    >>> theta = logistic_fit(one[:, None], 730 * one, 1000 * one, 0 * one, -np.inf * one)
    >>> round(float(sigmoid(theta)[0]), 3)
    0.73
    """

    def objective(at: Floats) -> tuple[float, Floats, Floats]:
        line = design @ at
        chance = sigmoid(line)
        away = at - centre
        value = float(weight @ np.logaddexp(0.0, line) - success @ line + PRIOR / 2 * (away @ away))
        slope = design.T @ (weight * chance - success) + PRIOR * away
        spread = weight * chance * (1.0 - chance)
        return value, slope, (design.T * spread) @ design + PRIOR * np.eye(len(at))

    return minimise(objective, centre, floors)


def sigmoid(x: Floats) -> Floats:
    """Return 1 / (1 + exp(−x)), without overflow."""
    values: Floats = 0.5 * (1.0 + np.tanh(0.5 * x))
    return values

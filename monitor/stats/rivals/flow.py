"""A normalizing flow over a Gaussian mixture, trained with jax and flowjax (the extra `flow`)."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
import scipy

from monitor.base.errors import MissingExtraError
from monitor.base.records import Floats
from monitor.stats.labelled.inputs import Bools

_BATCH = 256
_RATE = 1e-3  # learning rate of Adam
_HELD_OUT = 10  # one row in ten is held out to decide when to stop
_PATIENCE = 20  # epochs without a better held-out likelihood
_RIDGE = 1e-3  # added to the variances, because the covariance of a class with few rows may be singular
_NEVER = -1e9


@dataclass(frozen=True, slots=True, eq=False)
class NormalMixture:
    """A mixture of K normal distributions in d dimensions, one for each class.

    Parameters
    ----------
    shares : (K,) float64
    means : (K, d) float64
    roots : (K, d, d) float64
        Lower Cholesky factors of the covariances.
    """

    shares: Floats
    means: Floats
    roots: Floats

    @classmethod
    def fit(cls, points: Floats, mass: Floats) -> NormalMixture:
        """Return the mixture fitted to points (n, d) with class weights `mass` (n, K): the M-step of EM."""
        total = np.maximum(mass.sum(axis=0), 1e-6)
        means = mass.T @ points / total[:, None]
        roots = []
        for k, mean in enumerate(means):
            away = points - mean
            covariance = (away.T * mass[:, k]) @ away / total[k]
            roots.append(np.linalg.cholesky(covariance + _RIDGE * np.eye(points.shape[1])))
        return cls(total / total.sum(), means, np.stack(roots))

    def joint(self, points: Floats) -> Floats:
        """Return the (n, K) logarithms of each class's share times its density at the points (n, d)."""
        columns = []
        constant = 0.5 * points.shape[1] * np.log(2 * np.pi)
        for share, mean, root in zip(self.shares, self.means, self.roots, strict=True):
            white = scipy.linalg.solve_triangular(root, (points - mean).T, lower=True)
            normal = -0.5 * (white**2).sum(axis=0) - np.log(np.diag(root)).sum() - constant
            columns.append(np.log(share) + normal)
        return np.stack(columns, axis=1)

    def chances(self, points: Floats) -> Floats:
        """Return the (n, K) class probabilities at the points (n, d).

        Examples
        --------
        >>> mixture = NormalMixture(np.array([0.5, 0.5]), np.array([[-1.0], [1.0]]), np.ones((2, 1, 1)))
        >>> mixture.chances(np.array([[0.0], [1.0]])).round(3).tolist()
        [[0.5, 0.5], [0.119, 0.881]]
        """
        joint = self.joint(points)
        chances: Floats = np.exp(joint - scipy.special.logsumexp(joint, axis=1, keepdims=True))
        return chances


@dataclass(frozen=True, slots=True)
class Training:
    """The settings of a flow: its size, and the length of its training.

    Parameters
    ----------
    couplings : int
        Number of coupling layers.
    width : int
        Hidden units in the networks of the coupling layers; each network has three fully connected layers.
    epochs : int
        The largest number of passes over the rows.
    """

    couplings: int
    width: int
    epochs: int


def train_flow(
    points: Floats, allowed: Bools, mixture: NormalMixture, training: Training, rng: np.random.Generator
) -> tuple[Callable[[Floats], Floats], int]:
    """Return an invertible map, trained so that the mapped points follow the mixture.

    Parameters
    ----------
    points : (n, d) float64
        Standardised, with d at least 2.
    allowed : (n, K) bool
        The classes that each row may have; a labelled row has only one.
    mixture : NormalMixture
        The training does not change it.
    training : Training
    rng : numpy Generator

    Returns
    -------
    callable, int
        A function that maps points (m, d) to points (m, d), and the number of passes of the training.

    Raises
    ------
    MissingExtraError
        jax or flowjax is not installed.
    """
    jax, jnp, eqx, *_ = map(_extra, _MODULES)
    size = points.shape[1], training.couplings, training.width
    parameters, static = _flow(jax.random.key(int(rng.integers(2**31))), *size)
    static, programs = eqx.combine(eqx.filter(static, eqx.is_array), _functions(*size)), _programs()
    classes = tuple(jnp.asarray(x) for x in (mixture.means, mixture.roots, mixture.shares))
    barred = np.where(allowed, 0.0, _NEVER)
    start = parameters, programs.start(parameters)
    step, loss = (partial(each, fixed=(static, classes)) for each in (programs.step, programs.loss))
    best, epochs = _stopped_early(step, loss, *start, points, barred, training, rng)
    latent = partial(programs.latent, static, best)
    return lambda rows: np.asarray(latent(jnp.asarray(rows)), dtype=np.float64), epochs


def _flow(key: Any, dimensions: int, couplings: int, width: int) -> tuple[Any, Any]:
    """Return the trainable parameters of a new flow, and its other parts."""
    _, jnp, eqx, _, paramax, flows, distributions = map(_extra, _MODULES)
    base = distributions.Normal(jnp.zeros(dimensions))
    flow = flows.coupling_flow(key, base_dist=base, flow_layers=couplings, nn_width=width, nn_depth=2)
    parts: tuple[Any, Any] = eqx.partition(
        flow.bijection, eqx.is_inexact_array, is_leaf=lambda leaf: isinstance(leaf, paramax.NonTrainable)
    )
    return parts


@cache
def _functions(*size: int) -> Any:
    """Return the parts of a flow that are not arrays, cached because jax compiles new functions again."""
    jax, _, eqx, *_ = map(_extra, _MODULES)
    return eqx.filter(_flow(jax.random.key(0), *size)[1], eqx.is_array, inverse=True)


@dataclass(frozen=True, slots=True)
class _Programs:
    """The functions that jax compiles, once for each shape of flow and rows."""

    start: Callable[..., Any]
    step: Callable[..., Any]
    loss: Callable[..., Any]
    latent: Callable[..., Any]


@cache
def _programs() -> _Programs:
    """Return the functions of the training.

    Everything that differs between fits is an argument, because jax compiles each new function again.
    """
    jax, jnp, eqx, optax, paramax, *_ = map(_extra, _MODULES)
    optimiser = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(_RATE))

    def mapped(static: Any, at: Any, rows: Any) -> tuple[Any, Any]:
        bijection = paramax.unwrap(eqx.combine(at, static))
        return jax.vmap(bijection.inverse_and_log_det)(rows)  # type: ignore[no-any-return]

    def loss(at: Any, rows: Any, barred: Any, fixed: Any) -> Any:
        static, (means, roots, shares) = fixed
        z, log_det = mapped(static, at, rows)
        away = jnp.swapaxes(z[None] - means[:, None], 1, 2)
        white = jax.vmap(lambda root, a: jax.scipy.linalg.solve_triangular(root, a, lower=True))(roots, away)
        scale = jnp.log(jnp.diagonal(roots, axis1=1, axis2=2)).sum(axis=1)
        joint = (jnp.log(shares) - scale)[:, None] - 0.5 * (white**2).sum(axis=1)
        return -(jax.scipy.special.logsumexp(joint.T + barred, axis=1) + log_det).mean()

    def step(at: Any, state: Any, rows: Any, barred: Any, fixed: Any) -> tuple[Any, Any]:
        updates, state = optimiser.update(eqx.filter_grad(loss)(at, rows, barred, fixed), state, at)
        return eqx.apply_updates(at, updates), state

    latent = eqx.filter_jit(lambda static, at, rows: mapped(static, at, rows)[0])
    return _Programs(optimiser.init, eqx.filter_jit(step), eqx.filter_jit(loss), latent)


def _stopped_early(
    step: Any,
    loss: Any,
    at: Any,
    state: Any,
    points: Floats,
    barred: Floats,
    training: Training,
    rng: np.random.Generator,
) -> tuple[Any, int]:
    """Train until early stopping; return the parameters with the best held-out likelihood, and the passes."""
    order = rng.permutation(len(points))
    held, rows = order[: max(1, len(order) // _HELD_OUT)], order[max(1, len(order) // _HELD_OUT) :]
    size = min(_BATCH, len(rows))
    best, least, since = at, float(loss(at, points[held], barred[held])), 0
    for epoch in range(1, training.epochs + 1):
        shuffled = rng.permutation(rows)
        for first in range(0, len(rows) - size + 1, size):
            batch = shuffled[first : first + size]
            at, state = step(at, state, points[batch], barred[batch])
        now = float(loss(at, points[held], barred[held]))
        best, least, since = (at, now, 0) if now < least else (best, least, since + 1)
        if since >= _PATIENCE:
            return best, epoch
    return best, training.epochs


_MODULES = ("jax", "jax.numpy", "equinox", "optax", "paramax", "flowjax.flows", "flowjax.distributions")


def _extra(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError("The estimator ssme_flow", "flow") from error

"""Bradley-Terry coefficients of models from pairwise comparisons, some by humans, many by a judge (PPI++)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Self

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, ndtri

from monitor.estimate.poisson_binomial import checked_level
from monitor.labels.ranking import Method, RankInterval, rank_intervals, simultaneous_intervals
from monitor.records import Floats

_GRADIENT = 1e-10  # of the mean loss, at its least
_FAR = 15.0  # a coefficient out here has won, or lost, against all comers: there is no estimate


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two models' answers to one prompt, and who won.

    Parameters
    ----------
    a, b : str
        Names of two models.
    human, judge : {"a", "b"} or None
        Who won, by a human and by a judging model; at least one of them.

    Raises
    ------
    ValueError
        The models are the same, a winner is neither "a" nor "b", or nobody judged.
    """

    a: str
    b: str
    human: Literal["a", "b"] | None = None
    judge: Literal["a", "b"] | None = None

    def __post_init__(self) -> None:
        if self.a == self.b:
            raise ValueError(f"a and b must be two models, got {self.a!r} twice")
        for name, winner in (("human", self.human), ("judge", self.judge)):
            if winner not in ("a", "b", None):
                raise ValueError(f"{name} must be 'a' or 'b', who won, or None, got {winner!r}")
        if self.human is None and self.judge is None:
            raise ValueError("human or judge must say who won, got neither")


class BradleyTerry:
    """P(b wins over a) = 1 / (1 + exp(ζ_a − ζ_b)), fitted by PPI++; ζ of the first model is 0.

    Comparisons that a human and the judge decided correct the judge; those of the judge alone add numbers;
    those of a human alone are left out once there are enough of both to correct with, and are all there is
    where no judge is. With weights a comparison counts by its weight, on both terms. Intervals are normal
    ones of the sandwich covariance: right for many comparisons, too narrow for a few dozen a model. They
    hold for the coefficients of least expected loss where the model itself is wrong.

    Parameters
    ----------
    lam : float, optional
        Trust in the judge from 0 (humans alone) to 1; tuned for the least sum of variances if absent.

    Raises
    ------
    ValueError
        `lam` is not allowed.

    References
    ----------
    Boyeau et al., *AutoEval Done Right*, section 3 and equation (8), where as printed the weight is missing
    on the judge's term.

    Examples
    --------
    >>> games = [Comparison("x", "y", human="b")] * 75 + [Comparison("x", "y", human="a")] * 25
    >>> fit = BradleyTerry().fit(games)
    >>> fit.models, fit.coefficients.round(3).tolist(), fit.ranks()[1]
    (('x', 'y'), [0.0, 1.099], RankInterval(best=1, worst=1))
    """

    def __init__(self, *, lam: float | None = None) -> None:
        if lam is not None and not 0.0 <= lam <= 1.0:
            raise ValueError(f"lam must lie from 0 (humans alone) to 1 (plain PPI), got {lam}")
        self._asked = lam
        self.models: tuple[str, ...] = ()
        self.coefficients: Floats = np.empty(0)
        self.covariance: Floats = np.empty((0, 0))
        self.lam = 0.0

    def fit(self, comparisons: Sequence[Comparison], *, weights: Sequence[float] | None = None) -> Self:
        """Fit; an earlier fit is forgotten.

        Parameters
        ----------
        comparisons : sequence of Comparison
        weights : sequence of float, optional
            One a comparison, read where a human judged: positive, up to a factor.

        Raises
        ------
        ValueError
            No human judged, the weights are wrong, or the coefficients have no finite estimate (a model
            won or lost all its games, or two sets of models were never compared).
        """
        self.models = tuple(sorted({name for game in comparisons for name in (game.a, game.b)}))
        both = any(g.human and g.judge for g in comparisons) and any(not g.human for g in comparisons)
        kept = [at for at, g in enumerate(comparisons) if g.human and (g.judge or not both)]
        fresh = [at for at, g in enumerate(comparisons) if both and not g.human]
        if not kept:
            raise ValueError("comparisons must hold some that a human judged, got none")
        own = _Games.of([comparisons[at] for at in kept], self.models)
        new = _Games.of([comparisons[at] for at in fresh], self.models)
        w = np.ones(len(kept)) if weights is None else np.asarray(weights, dtype=np.float64)[kept]
        if not (np.isfinite(w).all() and (w > 0).all()):
            raise ValueError("weights must be positive numbers, one a comparison")
        self._solve(own, new, w / w.mean())
        return self

    def interval(self, level: float = 0.95) -> Floats:
        """(M, 2) ends of each coefficient's interval by itself; that of the first model is 0.

        Parameters
        ----------
        level : float
        """
        half = ndtri(0.5 + checked_level(level) / 2) * np.sqrt(np.diagonal(self.covariance))
        return np.stack([self.coefficients - half, self.coefficients + half], axis=1)

    def ranks(self, level: float = 0.9, method: Method = "bonferroni") -> tuple[RankInterval, ...]:
        """Rank interval of each model, all right at once with probability `level`; 1 is the best.

        The coefficients are taken around their mean, so that the first model has an error as well.

        Parameters
        ----------
        level, method
            As in `monitor.labels.ranking.simultaneous_intervals`.
        """
        m = len(self.models)
        middle = np.eye(m) - 1.0 / m
        spread = middle @ self.covariance @ middle.T
        return rank_intervals(simultaneous_intervals(middle @ self.coefficients, spread, level, method))

    def _solve(self, own: _Games, new: _Games, w: Floats) -> None:
        lam = 0.0 if not len(new.x) else 1.0 if self._asked is None else self._asked
        zeta = _least(own, new, w, lam)
        if len(new.x) and self._asked is None:
            for _ in range(2):  # at the coefficients of λ = 1, then at those of the λ found, as in ppi-python
                lam = _tuned(own, new, w, zeta)
                zeta = _least(own, new, w, lam)
        true, guess, fresh, inverse = _statistics(own, new, w, zeta)
        spread = np.atleast_2d(np.cov((true - lam * guess).T)) / len(own.x)
        if lam > 0:
            spread = spread + lam**2 * np.atleast_2d(np.cov(fresh.T)) / len(new.x)
        m = len(self.models)
        self.lam = lam
        self.coefficients, self.covariance = np.zeros(m), np.zeros((m, m))
        self.coefficients[1:], self.covariance[1:, 1:] = zeta, inverse @ spread @ inverse


@dataclass(frozen=True, slots=True, eq=False)
class _Games:
    """Rows of −1 for a and 1 for b, without the first model; 1 where b won, NaN where nobody said."""

    x: Floats
    human: Floats
    judge: Floats

    @classmethod
    def of(cls, games: Sequence[Comparison], models: tuple[str, ...]) -> _Games:
        at = {name: k for k, name in enumerate(models)}
        x = np.zeros((len(games), len(models)))
        rows = np.arange(len(games))
        x[rows, [at[g.a] for g in games]] = -1.0
        x[rows, [at[g.b] for g in games]] = 1.0
        won = {"a": 0.0, "b": 1.0, None: np.nan}
        return cls(x[:, 1:], np.array([won[g.human] for g in games]), np.array([won[g.judge] for g in games]))


def _least(own: _Games, new: _Games, w: Floats, lam: float) -> Floats:
    """(M − 1,) coefficients of least rectified loss (6), with the weights of (8) on both terms."""

    def loss(zeta: Floats) -> tuple[float, Floats]:
        line = own.x @ zeta
        soft = np.logaddexp(0.0, line)
        judged = np.nan_to_num(own.judge)
        value = float(w @ ((1 - lam) * soft - (own.human - lam * judged) * line)) / len(line)
        slope = own.x.T @ (w * ((1 - lam) * expit(line) - own.human + lam * judged)) / len(line)
        if lam > 0:
            far = new.x @ zeta
            value += lam * float((np.logaddexp(0.0, far) - new.judge * far).mean())
            slope = slope + lam * new.x.T @ (expit(far) - new.judge) / len(far)
        return value, slope

    found = minimize(
        loss, np.zeros(own.x.shape[1]), jac=True, method="BFGS", options={"gtol": _GRADIENT, "maxiter": 1000}
    )
    zeta: Floats = found.x
    if np.abs(zeta).max() > _FAR or not np.isfinite(zeta).all():
        raise ValueError(
            "the coefficients have no finite estimate: a model won or lost all its games, or some models "
            "were never compared with the others; give more comparisons"
        )
    return zeta


def _statistics(own: _Games, new: _Games, w: Floats, zeta: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """Gradients by human, by judge, by the judge alone; and the inverse Hessian over all comparisons."""
    chance, far = expit(own.x @ zeta), expit(new.x @ zeta)
    true = (w * (chance - own.human))[:, None] * own.x
    guess = (w * (chance - np.nan_to_num(own.judge)))[:, None] * own.x
    fresh = (far - new.judge)[:, None] * new.x
    hessian = own.x.T @ ((w * chance * (1 - chance))[:, None] * own.x)
    hessian = (hessian + new.x.T @ ((far * (1 - far))[:, None] * new.x)) / (len(w) + len(far))
    return true, guess, fresh, np.linalg.inv(hessian)


def _tuned(own: _Games, new: _Games, w: Floats, zeta: Floats) -> float:
    """λ of the least sum of variances, as `ppi-python` has it."""
    true, guess, fresh, inverse = _statistics(own, new, w, zeta)
    n = len(true)
    together = (true - true.mean(axis=0)).T @ (guess - guess.mean(axis=0)) / n
    spread = np.atleast_2d(np.cov(np.concatenate([guess, fresh]).T))
    over = np.trace(inverse @ (together + together.T) @ inverse)
    under = 2 * (1 + n / len(fresh)) * np.trace(inverse @ spread @ inverse)
    return float(np.clip(over / under, 0.0, 1.0)) if under > 0 else 0.0

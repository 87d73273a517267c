"""Bradley-Terry coefficients by PPI++, from pairwise comparisons by a judging model and by humans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Self

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from monitor.base.records import Floats, Ints
from monitor.base.results import RankInterval
from monitor.stats.calibration.newton import minimise
from monitor.stats.estimate.poisson_binomial import checked_level
from monitor.stats.pairwise.ranking import Method, simultaneous_ranks

Bools = NDArray[np.bool_]

_FAR = 15.0  # a larger coefficient means that a model won, or lost, all its games
_NEGATIVE = 1e-9  # a variance down to minus this is a rounding error
_NO_ESTIMATE = (
    "the coefficients have no finite estimate: a model won or lost all its games, or some models were never "
    "compared with the others; give more comparisons"
)

Winner = Literal["a", "b", "tie"]
_SHARE = {"a": 0.0, "tie": 0.5, "b": 1.0}


@dataclass(frozen=True, slots=True)
class Comparison:
    """A comparison of the answers of two models to one prompt.

    Parameters
    ----------
    a, b : str
        Names of the two models.
    human : {"a", "b", "tie"} or None
        The winner according to a human.
    judge : {"a", "b", "tie"}, float or None
        The winner according to a judging model, or the probability, 0 to 1, that b won. At least one of
        `human` and `judge` is required.

    Raises
    ------
    ValueError
        The models are the same, a verdict is invalid, or there is none.
    """

    a: str
    b: str
    human: Winner | None = None
    judge: Winner | float | None = None

    def __post_init__(self) -> None:
        if self.a == self.b:
            raise ValueError(f"a and b must be two different models, got {self.a!r} for both")
        if self.human not in ("a", "b", "tie", None):
            raise ValueError(f"human must be 'a', 'b', 'tie' or None, got {self.human!r}")
        if not _is_verdict(self.judge):
            raise ValueError(
                f"judge must be 'a', 'b', 'tie', None or the probability that b won, got {self.judge!r}"
            )
        if self.human is None and self.judge is None:
            raise ValueError("a comparison needs a verdict of human or judge, got neither")


def _is_verdict(judge: object) -> bool:
    if isinstance(judge, int | float) and not isinstance(judge, bool):
        return 0 <= judge <= 1
    return judge in ("a", "b", "tie", None)


def _share(verdict: Winner | float | None) -> float:
    """Return the share of b in the win, 0 to 1; NaN without a verdict."""
    if verdict is None:
        return float("nan")
    return _SHARE[verdict] if isinstance(verdict, str) else float(verdict)


def corrected_by(human: Floats, judge: Floats) -> Bools:
    """Return a mask (n,) of the comparisons whose human verdicts are used in a fit.

    If the judge decided at least half of the comparisons that humans decided, and at least one other
    comparison, the human verdicts are used only on the comparisons that have both verdicts. Otherwise all
    human verdicts are used. `human` and `judge` are (n,), with NaN for a missing verdict.

    Examples
    --------
    >>> nan = np.nan
    >>> corrected_by(np.array([1, 0, nan]), np.array([1, nan, 1])).tolist()
    [True, False, False]
    """
    by_human, by_judge = ~np.isnan(human), ~np.isnan(judge)
    both = by_human & by_judge
    return both if 2 * both.sum() >= by_human.sum() and (by_judge & ~by_human).any() else by_human


class BradleyTerry:
    """The Bradley-Terry model P(b wins over a) = 1 / (1 + exp(ζ_a − ζ_b)), fitted by PPI++.

    The coefficient ζ of the reference model is 0. Comparisons with verdicts of both a human and the judge
    correct the judge. Comparisons by the judge alone increase the sample. If the judge decided at least half
    of the comparisons that humans decided, comparisons by a human alone are left out. Otherwise, only human
    verdicts count. Therefore the judge should decide all comparisons that humans decide. A tie counts as half
    a win for each model. The judge may have any bias: its weight depends on its agreement with the humans.
    `weights` multiply both the human's and the judge's term of the loss.

    Intervals are normal, with the sandwich covariance. They are right for many comparisons, and too narrow
    with only a few dozen for each model. If the Bradley-Terry model is wrong, they are intervals for the
    coefficients with the smallest expected loss. They assume independent comparisons; many verdicts of one
    person are not independent.

    Parameters
    ----------
    lam : float, optional
        Weight λ of the judge, from 0 (humans alone) to 1; by default tuned for the least sum of variances.
    reference : str, optional
        The model with the coefficient 0; by default the first by name.

    Raises
    ------
    ValueError
        `lam` is out of range.

    References
    ----------
    Boyeau et al., *AutoEval Done Right*, section 3 and equation (8), where the weight is missing on the
    judge's term.

    Examples
    --------
    >>> games = [Comparison("x", "y", human="b")] * 75 + [Comparison("x", "y", human="a")] * 25
    >>> fit = BradleyTerry().fit(games)
    >>> fit.models, fit.coefficients.round(3).tolist(), fit.ranks()[1]
    (('x', 'y'), [0.0, 1.099], RankInterval(best=1, worst=1))
    """

    def __init__(self, *, lam: float | None = None, reference: str | None = None) -> None:
        if lam is not None and not 0.0 <= lam <= 1.0:
            raise ValueError(f"lam must lie from 0 (humans alone) to 1 (plain PPI), got {lam}")
        self._fixed_lam = lam
        self._reference = reference
        self.models: tuple[str, ...] = ()
        self.coefficients: Floats = np.empty(0)
        self.covariance: Floats = np.empty((0, 0))
        self.lam = 0.0
        self.effective_comparisons = 0.0
        """The number of human comparisons that would give the same sum of variances without a judge."""

    def fit(self, comparisons: Sequence[Comparison], *, weights: Sequence[float] | None = None) -> Self:
        """Fit the model, and return it. A new fit replaces an earlier one.

        Parameters
        ----------
        comparisons : sequence of Comparison
        weights : sequence of float, optional
            A positive weight for each comparison, up to a common factor. Only weights of comparisons with a
            human verdict are used.

        Raises
        ------
        ValueError
            There is no human verdict, the weights are wrong, the reference has no comparison, or the
            coefficients have no finite estimate (a model won or lost all its games, or two sets of models
            were never compared).
        """
        models = tuple(sorted({name for game in comparisons for name in (game.a, game.b)}))
        at = {name: k for k, name in enumerate(models)}
        return self.fit_columns(
            models,
            np.array([at[g.a] for g in comparisons], dtype=np.int64),
            np.array([at[g.b] for g in comparisons], dtype=np.int64),
            np.array([_share(g.human) for g in comparisons], dtype=np.float64),
            np.array([_share(g.judge) for g in comparisons], dtype=np.float64),
            weights=weights,
        )

    def fit_columns(
        self,
        models: tuple[str, ...],
        a: Ints,
        b: Ints,
        human: Floats,
        judge: Floats,
        *,
        weights: ArrayLike | None = None,
        population: Bools | None = None,
    ) -> Self:
        """Fit the model to comparisons in columns, and return it. See `fit` for the errors.

        Parameters
        ----------
        models : tuple of str
            M names; each model has at least one comparison.
        a, b : (n,) int64
            Indices into `models`.
        human, judge : (n,) float64
            1 if b won, 0 if a won, 0.5 for a tie, or the probability that b won; NaN without a verdict.
        weights : (n,) array of float, optional
            See `fit`.
        population : (n,) bool, optional
            The comparisons over which the judge's verdicts are averaged, by default all without a human
            verdict. If humans did not decide a random sample, and `weights` correct for this, pass all
            comparisons.
        """
        if self._reference is not None and self._reference not in models:
            raise ValueError(f"reference must be a model with a comparison, got {self._reference!r}")
        own = corrected_by(human, judge)
        if not own.any():
            raise ValueError("comparisons must include some with a human verdict, got none")
        fresh = ~np.isnan(judge) & (np.isnan(human) if population is None else population)
        both = not np.isnan(judge[own]).any()
        w = np.ones(len(a)) if weights is None else np.asarray(weights, dtype=np.float64)
        if w.shape != a.shape or not (np.isfinite(w[own]).all() and (w[own] > 0).all()):
            raise ValueError("weights must be positive numbers, one for each comparison")
        self.models = models
        base = 0 if self._reference is None else models.index(self._reference)
        games = _Games(len(models), base, a, b, human, judge)
        self._solve(games.take(own), games.take(fresh & both), w[own] / w[own].mean())
        return self

    def interval(self, level: float = 0.95) -> Floats:
        """Return the (M, 2) ends of an interval for each coefficient; both are 0 for the reference."""
        half = scipy.special.ndtri(0.5 + checked_level(level) / 2) * np.sqrt(
            np.maximum(np.diagonal(self.covariance), 0.0)
        )
        return np.stack([self.coefficients - half, self.coefficients + half], axis=1)

    def ranks(self, level: float = 0.9, method: Method = "bonferroni") -> tuple[RankInterval, ...]:
        """Return the rank interval of each model.

        The intervals of all models are right at the same time with the probability `level`.

        The coefficients are first centred at their mean, so the coefficient of the reference has an error
        too. See `simultaneous_ranks` for the arguments.
        """
        m = len(self.models)
        middle = np.eye(m) - 1.0 / m
        spread = middle @ self.covariance @ middle.T
        return simultaneous_ranks(middle @ self.coefficients, spread, level, method)

    def _solve(self, own: _Games, new: _Games, w: Floats) -> None:
        zeta, lam = self._coefficients(own, new, w)
        rest, inverse, n = _Residuals.at(zeta, own, new, w), _inverse(own, new, w, zeta), len(own)
        spread = own.covariance(rest.true - lam * rest.guess) / (n * max(n - 1, 1))
        if lam > 0:
            spread = spread + lam**2 * new.covariance(rest.fresh) / (len(new) * max(len(new) - 1, 1))
        alone = own.covariance(rest.true) / (n * max(n - 1, 1))
        others = np.arange(own.models) != own.base
        self.lam = lam
        self.coefficients, self.covariance = np.zeros(own.models), np.zeros((own.models, own.models))
        self.coefficients[others] = zeta
        self.covariance[np.ix_(others, others)] = inverse @ spread @ inverse
        if np.diagonal(self.covariance).min() < -_NEGATIVE:
            raise ValueError(_NO_ESTIMATE)  # the Hessian is nearly singular
        variance = np.trace(self.covariance)
        gain = np.trace(inverse @ alone @ inverse) / variance if variance > 0 else 1.0
        self.effective_comparisons = float(gain) * n

    def _coefficients(self, own: _Games, new: _Games, w: Floats) -> tuple[Floats, float]:
        """Return the coefficients and λ, which is 0 if no finite estimate with the judge exists."""
        if not len(new) or self._fixed_lam is not None:
            lam = float(self._fixed_lam or 0.0) if len(new) else 0.0
            return _least(own, new, w, lam), lam
        try:
            lam, zeta = 1.0, _least(own, new, w, 1.0)
            for _ in range(2):  # at the coefficients of λ = 1, then at those of the tuned λ, as ppi-python
                lam = _tuned(own, new, w, zeta)
                zeta = _least(own, new, w, lam)
            return zeta, lam
        except ValueError:
            return _least(own, new, w, 0.0), 0.0


@dataclass(frozen=True, slots=True, eq=False)
class _Games:
    """The design of n comparisons: row x has −1 at a and 1 at b, without the column of the reference."""

    models: int
    base: int
    a: Ints
    b: Ints
    human: Floats
    judge: Floats

    def __len__(self) -> int:
        return len(self.a)

    def take(self, rows: Bools) -> _Games:
        """Return the comparisons of some rows."""
        return _Games(self.models, self.base, self.a[rows], self.b[rows], self.human[rows], self.judge[rows])

    def line(self, zeta: Floats) -> Floats:
        """Return the (n,) products x @ zeta."""
        full = np.insert(zeta, self.base, 0.0)
        line: Floats = full[self.b] - full[self.a]
        return line

    def total(self, v: Floats) -> Floats:
        """Return the (M − 1,) sum Σ v x."""
        sums = np.bincount(self.b, v, self.models) - np.bincount(self.a, v, self.models)
        return np.delete(sums, self.base)

    def squares(self, v: Floats) -> Floats:
        """Return the (M − 1, M − 1) sum Σ v x xᵀ."""
        m = self.models
        pairs = np.bincount(self.a * m + self.b, v, m * m).reshape(m, m)
        pairs = pairs + pairs.T
        whole = np.diag(pairs.sum(axis=1)) - pairs
        return np.delete(np.delete(whole, self.base, axis=0), self.base, axis=1)

    def covariance(self, v: Floats, u: Floats | None = None) -> Floats:
        """Return the sum of the products of the rows v x and u x around their means; u = v by default."""
        u = v if u is None else u
        return self.squares(v * u) - np.outer(self.total(v), self.total(u)) / len(self)


def _least(own: _Games, new: _Games, w: Floats, lam: float) -> Floats:
    """Return the (M − 1,) minimum of the rectified loss (6), with the weights of (8) on both terms."""
    start = np.zeros(own.models - 1)
    try:
        zeta = minimise(lambda at: _loss(own, new, w, lam, at), start, np.full(len(start), -np.inf))
    except (ValueError, np.linalg.LinAlgError):
        raise ValueError(_NO_ESTIMATE) from None
    if not np.abs(zeta).max() <= _FAR:
        raise ValueError(_NO_ESTIMATE)
    return zeta


def _loss(own: _Games, new: _Games, w: Floats, lam: float, zeta: Floats) -> tuple[float, Floats, Floats]:
    """Return the rectified loss, its gradient and its Hessian."""
    line, n = own.line(zeta), len(own)
    chance, judged = scipy.special.expit(line), np.nan_to_num(own.judge)
    value = float(w @ ((1 - lam) * np.logaddexp(0.0, line) - (own.human - lam * judged) * line)) / n
    slope = own.total(w * ((1 - lam) * chance - own.human + lam * judged)) / n
    hessian = (1 - lam) * own.squares(w * chance * (1 - chance)) / n
    if lam > 0:
        far = new.line(zeta)
        guess = scipy.special.expit(far)
        value += lam * float((np.logaddexp(0.0, far) - new.judge * far).mean())
        slope = slope + lam * new.total(guess - new.judge) / len(new)
        hessian = hessian + lam * new.squares(guess * (1 - guess)) / len(new)
    return value, slope, hessian


class _Residuals(NamedTuple):
    """The factor of each row x in the gradient."""

    true: Floats  # human verdicts
    guess: Floats  # the judge's verdicts on the same rows
    fresh: Floats  # the judge's verdicts on the other rows

    @classmethod
    def at(cls, zeta: Floats, own: _Games, new: _Games, w: Floats) -> _Residuals:
        """Return the residuals at coefficients `zeta`."""
        chance = scipy.special.expit(own.line(zeta))
        return cls(
            w * (chance - own.human),
            w * (chance - np.nan_to_num(own.judge)),
            scipy.special.expit(new.line(zeta)) - new.judge,
        )


def _inverse(own: _Games, new: _Games, w: Floats, zeta: Floats) -> Floats:
    """Return the inverse Hessian over all comparisons."""
    chance, far = scipy.special.expit(own.line(zeta)), scipy.special.expit(new.line(zeta))
    hessian = own.squares(w * chance * (1 - chance)) + new.squares(far * (1 - far))
    inverse: Floats = np.linalg.inv(hessian / (len(own) + len(new))).astype(np.float64)
    return inverse


def _tuned(own: _Games, new: _Games, w: Floats, zeta: Floats) -> float:
    """Return the λ with the least sum of variances, as in `ppi-python`."""
    rest, inverse = _Residuals.at(zeta, own, new, w), _inverse(own, new, w, zeta)
    n, fresh = len(own), len(new)
    together = own.covariance(rest.true, rest.guess) / n
    mean = (own.total(rest.guess) + new.total(rest.fresh)) / (n + fresh)
    spread = own.squares(rest.guess**2) + new.squares(rest.fresh**2)
    spread = (spread - (n + fresh) * np.outer(mean, mean)) / (n + fresh - 1)
    over = np.trace(inverse @ (together + together.T) @ inverse)
    under = 2 * (1 + n / fresh) * np.trace(inverse @ spread @ inverse)
    return float(np.clip(over / under, 0.0, 1.0)) if under > 0 else 0.0

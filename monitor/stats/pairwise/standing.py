"""The results of an arena: Bradley-Terry coefficients of its models with intervals, and ranks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import get_args

import numpy as np
import scipy
from numpy.typing import NDArray

from monitor.base.columns import ColumnarRows
from monitor.base.records import Floats, Ints
from monitor.base.results import Estimate, RankInterval, Reason, Result, TooFew, Unknown
from monitor.stats.pairwise.bradley_terry import BradleyTerry, corrected_by
from monitor.stats.pairwise.ranking import RANK_LEVEL, Method

FEWEST = 20
"""The smallest number of human verdicts for a model's coefficient. In simulated arenas with 10 verdicts for
every model, 20 % of the fits have no finite estimate. With 20 verdicts, 0.5 % have none
(`tests/fidelity/output/arena.txt`)."""

VERDICTS = ("human", "judge", "both", "none")
"""The sources of a comparison's verdicts; "none" if a human may still decide."""

Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Comparisons(ColumnarRows):
    """The comparisons of an arena, as columns with n entries each.

    Parameters
    ----------
    a, b : (n,) int64
        Indices of the models.
    human, judge : (n,) float64
        1 if b won, 0 if a won, 0.5 for a tie, or the probability that b won; NaN without a verdict.
    weight : (n,) float64
        Inverse of the probability with which a human was asked; used for comparisons with a human verdict.
    """

    a: Ints
    b: Ints
    human: Floats
    judge: Floats
    weight: Floats

    def used(self) -> Comparisons:
        """Return the comparisons, without the verdicts that a fit ignores: see `corrected_by`."""
        own = corrected_by(self.human, self.judge)
        judged = not np.isnan(self.judge[own]).any()
        return Comparisons(
            self.a,
            self.b,
            np.where(own, self.human, np.nan),
            self.judge if judged else np.full(len(self.a), np.nan),
            self.weight,
        )

    def by_verdict(self) -> dict[str, int]:
        """Return the number of comparisons with each of `VERDICTS`."""
        human, judge = ~np.isnan(self.human), ~np.isnan(self.judge)
        counts = (human & ~judge, judge & ~human, human & judge, ~human & ~judge)
        return {name: int(which.sum()) for name, which in zip(VERDICTS, counts, strict=True)}


@dataclass(frozen=True, slots=True)
class ModelStanding:
    """The coefficient and the rank of one model.

    Parameters
    ----------
    model : str
    coefficient : Estimate or Unknown
        The coefficient ζ. The odds of winning against the reference are e^ζ. ζ is 0 for the reference.
        `coefficient.n` is the number of human verdicts.
    rank, rank_chi_square : RankInterval or None
        The rank by Bonferroni's intervals, and by the χ² ellipsoid; None if the coefficient is unknown.
    """

    model: str
    coefficient: Result
    rank: RankInterval | None = None
    rank_chi_square: RankInterval | None = None


@dataclass(frozen=True, slots=True)
class Standing:
    """The coefficients and ranks of all models of an arena.

    Parameters
    ----------
    models : tuple of ModelStanding
        The models, in the order of their first comparison.
    reference : str
        The model with the coefficient 0; ``""`` if there is no model.
    comparisons : mapping of str to int
        The number of comparisons for each of `VERDICTS`.
    judge_weight : float
        The weight λ of the judge, from 0 to 1.
    effective_comparisons : float
        The number of human verdicts with the same information as all verdicts; 0 without an estimate.
    rank_level : float
        Joint level of the ranks.
    """

    models: tuple[ModelStanding, ...] = ()
    reference: str = ""
    comparisons: Mapping[str, int] = field(default_factory=lambda: dict.fromkeys(VERDICTS, 0))
    judge_weight: float = 0.0
    effective_comparisons: float = 0.0
    rank_level: float = RANK_LEVEL


def standing(names: tuple[str, ...], rows: Comparisons, reference: str | None, level: float) -> Standing:
    """Return the coefficients by PPI++ and the rank intervals of the models.

    A model has a coefficient if humans decided at least `FEWEST` of its comparisons, and if a finite estimate
    exists. No finite estimate exists if this model, alone or together with some other models, won (or lost)
    all comparisons against the rest. Models without a coefficient have a reason instead, and their
    comparisons are left out. Ranks are computed among the models with a coefficient. Only verdicts that a fit
    uses (`corrected_by`) count.

    Parameters
    ----------
    names : tuple of str
        Names of the models, by index.
    rows : Comparisons
    reference : str, optional
        The model with the coefficient 0, by default the first of `names`.
    level : float
        Level of the interval of each coefficient.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> a = rng.integers(0, 3, 900)
    >>> b = (a + rng.integers(1, 3, 900)) % 3
    >>> won = (rng.random(900) < 1 / (1 + np.exp(a - b))).astype(float)  # model k has the coefficient k
    >>> rows = Comparisons(a, b, np.where(np.arange(900) < 300, won, np.nan), won, np.ones(900))
    >>> models = standing(("x", "y", "z"), rows, None, 0.95).models
    >>> [(m.model, round(m.coefficient.value, 1), m.rank.best, m.rank.worst) for m in models]
    [('x', 0.0, 3, 3), ('y', 1.1, 2, 2), ('z', 2.2, 1, 1)]
    """
    origin = reference if reference is not None else (names[0] if names else "")
    counts = rows.by_verdict()
    rows = rows.used()
    comparable, decided, why = _comparable(rows, names, origin)
    models = [
        ModelStanding(name, TooFew(reason, n) if reason is Reason.TOO_FEW_COMPARISONS else Unknown(reason))
        for name, reason, n in zip(names, why, decided.tolist(), strict=True)
    ]
    if comparable.sum() < 2:
        return Standing(tuple(models), origin, counts)
    kept = np.flatnonzero(comparable)
    try:
        own = rows.take(comparable[rows.a] & comparable[rows.b])
        fit = _fit(own, kept, [names[k] for k in kept], origin)
    except ValueError:
        unknown = Unknown(Reason.NO_FINITE_ESTIMATE)
        return Standing(tuple(ModelStanding(name, unknown) for name in names), origin, counts)
    ends = fit.interval(level)
    ranks, chi_square = (fit.ranks(RANK_LEVEL, method) for method in get_args(Method))
    for place, k in enumerate(kept.tolist()):
        value = float(fit.coefficients[place])
        estimate = Estimate(value, float(ends[place, 0]), float(ends[place, 1]), level, int(decided[k]))
        models[k] = ModelStanding(names[k], estimate, ranks[place], chi_square[place])
    return Standing(tuple(models), origin, counts, fit.lam, fit.effective_comparisons)


def _comparable(rows: Comparisons, names: tuple[str, ...], origin: str) -> tuple[Bools, Ints, list[Reason]]:
    """Return the models with a coefficient, all models' human verdicts, and the reasons of the others.

    The loop excludes models until all that remain can have a coefficient.
    """
    human = ~np.isnan(rows.human)
    a, b, share = rows.a[human], rows.b[human], rows.human[human]
    at = names.index(origin) if origin in names else -1
    among, decided = np.ones(len(names), dtype=np.bool_), np.zeros(len(names), dtype=np.int64)
    why = [Reason.REFERENCE_TOO_FEW] * len(names)
    while True:
        games = among[a] & among[b]
        counted = np.bincount(np.concatenate([a[games], b[games]]), minlength=len(names))
        decided = np.where(among, counted, decided)
        few = among & (decided < FEWEST)
        if at < 0 or not among[at] or few[at]:
            apart = np.zeros_like(few)
        else:
            apart = among & ~few & ~_connected(a[games], b[games], share[games], len(names), at)
        for k in np.flatnonzero(few).tolist():
            why[k] = Reason.TOO_FEW_COMPARISONS
        for k in np.flatnonzero(apart).tolist():
            why[k] = Reason.NO_FINITE_ESTIMATE
        among = among & ~few & ~apart
        if at < 0 or not among[at]:
            return np.zeros_like(among), decided, why
        if not (few | apart).any():
            return among, decided, why


def _connected(a: Ints, b: Ints, human: Floats, models: int, at: int) -> Bools:
    """Return the models that won and lost against model `at`, directly or through other models."""
    losers = np.concatenate([a[human > 0], b[human < 1]])
    winners = np.concatenate([b[human > 0], a[human < 1]])
    graph = scipy.sparse.coo_array((np.ones(len(losers)), (losers, winners)), shape=(models, models))
    _, component = scipy.sparse.csgraph.connected_components(graph, connection="strong")
    connected: Bools = component == component[at]
    return connected


def _fit(rows: Comparisons, kept: Ints, names: list[str], origin: str) -> BradleyTerry:
    """Fit the comparisons among the kept models, or raise a ValueError if no finite estimate exists."""
    human = ~np.isnan(rows.human)
    uneven = human.any() and np.ptp(rows.weight[human]) > 0
    return BradleyTerry(reference=origin).fit_columns(
        tuple(names),
        np.searchsorted(kept, rows.a),
        np.searchsorted(kept, rows.b),
        rows.human,
        rows.judge,
        weights=rows.weight if uneven else None,
        # If humans were not asked at random, the judge's other rows are not a random sample either.
        population=~np.isnan(rows.judge) if uneven else None,
    )

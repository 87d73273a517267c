"""How the models of an arena stand: Bradley-Terry coefficients with intervals, and ranks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import get_args

import numpy as np
import scipy
from numpy.typing import NDArray

from monitor.base.records import Floats, Ints
from monitor.base.results import Estimate, Reason, Result, TooFew, Unknown
from monitor.stats.pairwise.bradley_terry import BradleyTerry, corrected_by
from monitor.stats.pairwise.ranking import RANK_LEVEL, Method, RankInterval

FEWEST = 20
"""Verdicts by humans without which a model has no coefficient. In simulated arenas, where every model has 10,
a fifth of the fits have no finite estimate; with 20, 0.5 % (`tests/fidelity/output/arena.txt`)."""

VERDICTS = ("human", "judge", "both", "none")
"""The judge of a comparison; none if a human may still decide."""

Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Comparisons:
    """Comparisons as columns, n rows.

    Parameters
    ----------
    a, b : (n,) int64
        Models by their number.
    human, judge : (n,) float64
        What b got of the win, 0 to 1; NaN where there is no verdict.
    weight : (n,) float64
        1 / the probability with which a human was asked; read where one decided.
    """

    a: Ints
    b: Ints
    human: Floats
    judge: Floats
    weight: Floats

    def take(self, rows: Bools) -> Comparisons:
        """Some of them."""
        return Comparisons(self.a[rows], self.b[rows], self.human[rows], self.judge[rows], self.weight[rows])

    def used(self) -> Comparisons:
        """With the verdicts alone that a fit rests on: see `corrected_by`."""
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
        """How many there are of each of `VERDICTS`."""
        human, judge = ~np.isnan(self.human), ~np.isnan(self.judge)
        counts = (human & ~judge, judge & ~human, human & judge, ~human & ~judge)
        return {name: int(which.sum()) for name, which in zip(VERDICTS, counts, strict=True)}


@dataclass(frozen=True, slots=True)
class ModelStanding:
    """How one model stands.

    Parameters
    ----------
    model : str
    coefficient : Estimate or Unknown
        ζ, with the reference's taken as 0: e^ζ are the odds against the reference. Its `n` are the
        comparisons decided by humans.
    rank, rank_chi_square : RankInterval or None
        By Bonferroni's intervals, and by the χ² set; None where the coefficient is unknown.
    """

    model: str
    coefficient: Result
    rank: RankInterval | None = None
    rank_chi_square: RankInterval | None = None


@dataclass(frozen=True, slots=True)
class Standing:
    """How all models of an arena stand.

    Parameters
    ----------
    models : tuple of ModelStanding
        In the order in which they came.
    reference : str
        The model whose coefficient is 0; ``""`` where no model has come.
    comparisons : mapping of str to int
        Those that it rests on, by `VERDICTS`.
    judge_weight : float
        λ: the trust in the judge, from 0 to 1.
    effective_comparisons : float
        Comparisons decided by humans that alone would tell as much; 0 without an estimate.
    rank_level : float
        At which the ranks hold, all at once.
    """

    models: tuple[ModelStanding, ...] = ()
    reference: str = ""
    comparisons: Mapping[str, int] = field(default_factory=lambda: dict.fromkeys(VERDICTS, 0))
    judge_weight: float = 0.0
    effective_comparisons: float = 0.0
    rank_level: float = RANK_LEVEL


def standing(names: tuple[str, ...], rows: Comparisons, reference: str | None, level: float) -> Standing:
    """Coefficients by PPI++ and rank intervals of the models that can be placed against the reference.

    A model is placed where humans decided at least `FEWEST` of its comparisons and no set of models with it
    won, or lost, all of those against the rest: else there is no finite estimate. Of the others it says why
    not, and their comparisons count for nobody. Ranks are among those placed. Verdicts that a fit does not
    rest on (`corrected_by`) are no verdicts here either.

    Parameters
    ----------
    names : tuple of str
        By number.
    rows : Comparisons
    reference : str, optional
        The first of `names` if absent.
    level : float
        Of each coefficient's interval by itself.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> a = rng.integers(0, 3, 900)
    >>> b = (a + rng.integers(1, 3, 900)) % 3
    >>> won = (rng.random(900) < 1 / (1 + np.exp(a - b))).astype(float)  # model k has the coefficient k
    >>> rows = Comparisons(a, b, np.where(np.arange(900) < 300, won, np.nan), won, np.ones(900))
    >>> found = standing(("x", "y", "z"), rows, None, 0.95)
    >>> [(m.model, round(m.coefficient.value, 1), m.rank.best, m.rank.worst) for m in found.models]
    [('x', 0.0, 3, 3), ('y', 1.1, 2, 2), ('z', 2.2, 1, 1)]
    """
    origin = reference if reference is not None else (names[0] if names else "")
    counts = rows.by_verdict()
    rows = rows.used()
    placed, decided, why = _placed(rows, names, origin)
    unplaced = [
        ModelStanding(name, TooFew(reason, n) if reason is Reason.TOO_FEW_COMPARISONS else Unknown(reason))
        for name, reason, n in zip(names, why, decided.tolist(), strict=True)
    ]
    if placed.sum() < 2:
        return Standing(tuple(unplaced), origin, counts)
    kept = np.flatnonzero(placed)
    try:
        fit = _fit(rows.take(placed[rows.a] & placed[rows.b]), kept, [names[k] for k in kept], origin)
    except ValueError:
        unknown = Unknown(Reason.NO_FINITE_ESTIMATE)
        return Standing(tuple(ModelStanding(name, unknown) for name in names), origin, counts)
    ends = fit.interval(level)
    ranks, chi_square = (fit.ranks(RANK_LEVEL, method) for method in get_args(Method))
    models = list(unplaced)
    for place, k in enumerate(kept.tolist()):
        value = float(fit.coefficients[place])
        found = Estimate(value, float(ends[place, 0]), float(ends[place, 1]), level, int(decided[k]))
        models[k] = ModelStanding(names[k], found, ranks[place], chi_square[place])
    return Standing(tuple(models), origin, counts, fit.lam, fit.effective_comparisons)


def _placed(rows: Comparisons, names: tuple[str, ...], origin: str) -> tuple[Bools, Ints, list[Reason]]:
    """Which models can be placed, on how many verdicts of humans, and of each why it is not.

    Whoever is left out takes its comparisons away from the others, so it is looked again until all fit.
    """
    human = ~np.isnan(rows.human)
    a, b, share = rows.a[human], rows.b[human], rows.human[human]
    at = names.index(origin) if origin in names else -1
    placed, decided = np.ones(len(names), dtype=np.bool_), np.zeros(len(names), dtype=np.int64)
    why = [Reason.REFERENCE_TOO_FEW] * len(names)
    while True:
        among = placed[a] & placed[b]
        counted = np.bincount(np.concatenate([a[among], b[among]]), minlength=len(names))
        decided = np.where(placed, counted, decided)
        few = placed & (decided < FEWEST)
        if at < 0 or not placed[at] or few[at]:
            apart = np.zeros_like(few)
        else:
            apart = placed & ~few & ~_connected(a[among], b[among], share[among], len(names), at)
        for k in np.flatnonzero(few).tolist():
            why[k] = Reason.TOO_FEW_COMPARISONS
        for k in np.flatnonzero(apart).tolist():
            why[k] = Reason.NO_FINITE_ESTIMATE
        placed = placed & ~few & ~apart
        if at < 0 or not placed[at]:
            return np.zeros_like(placed), decided, why
        if not (few | apart).any():
            return placed, decided, why


def _connected(a: Ints, b: Ints, human: Floats, models: int, at: int) -> Bools:
    """The models that won and lost against the reference, directly or over others."""
    losers = np.concatenate([a[human > 0], b[human < 1]])
    winners = np.concatenate([b[human > 0], a[human < 1]])
    graph = scipy.sparse.coo_array((np.ones(len(losers)), (losers, winners)), shape=(models, models))
    _, component = scipy.sparse.csgraph.connected_components(graph, connection="strong")
    found: Bools = component == component[at]
    return found


def _fit(rows: Comparisons, kept: Ints, names: list[str], origin: str) -> BradleyTerry:
    """The fit to comparisons among the models kept.

    Raises
    ------
    ValueError
        There is no finite estimate.
    """
    human = ~np.isnan(rows.human)
    uneven = human.any() and np.ptp(rows.weight[human]) > 0
    return BradleyTerry(reference=origin).fit_columns(
        tuple(names),
        np.searchsorted(kept, rows.a),
        np.searchsorted(kept, rows.b),
        rows.human,
        rows.judge,
        weights=rows.weight if uneven else None,
        # Humans who were not asked at random leave no random sample for the judge either.
        population=~np.isnan(rows.judge) if uneven else None,
    )

"""The page's sections for arenas, tasks whose models are compared in pairs: ranks and coefficients."""

from __future__ import annotations

import scipy
from markupsafe import Markup

from monitor.base.results import Estimate
from monitor.export.page.templates import render
from monitor.reports.arena_report import ArenaView
from monitor.stats.pairwise.standing import ModelStanding


def arena(one: ArenaView) -> Markup:
    """Return the HTML section of an arena, with a table of its models from the best to the worst."""
    ranked = [] if one.standing is None else sorted(one.standing.models, key=_place)
    return render("arenas.html", "arena", one, ranked, scipy.special.expit)


def _place(one: ModelStanding) -> tuple[bool, float]:
    coefficient = one.coefficient
    return (False, -coefficient.value) if isinstance(coefficient, Estimate) else (True, 0.0)

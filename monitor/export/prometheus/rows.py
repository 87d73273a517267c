"""Samples on their way into metric families, and what every one of them must be fit for."""

from __future__ import annotations

import math

from monitor.stats.pairwise.ranking import RankInterval

Row = tuple[str, dict[str, str], float]
"""Key in `FAMILIES`, labels, value. A histogram's key has the part of it behind a colon: `…:bucket`."""


def known(key: str, labels: dict[str, str], value: float | None) -> list[Row]:
    """The row of a value that is known and finite; none else."""
    return [] if value is None or not math.isfinite(value) else [(key, labels, value)]


def text(value: str) -> str:
    """Label values from outside, fit for UTF-8: one lone surrogate would fail the whole scrape."""
    return value if value.isascii() else value.encode("utf-8", "replace").decode()


def rank_rows(
    labels: dict[str, str], rank: RankInterval | None, chi_square: RankInterval | None
) -> list[Row]:
    """The ranks that a model may have, by each method that knows them."""
    found: list[Row] = []
    for key, ends in (("rank", rank), ("rank_chi_square", chi_square)):
        if ends is not None:
            found += [(f"{key}_best", labels, ends.best), (f"{key}_worst", labels, ends.worst)]
    return found

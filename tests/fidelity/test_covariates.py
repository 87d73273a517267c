"""The short form of `tests.fidelity.covariates`: three lives; and what it printed."""

from __future__ import annotations

import numpy as np
import pytest

from tests.fidelity.covariates import (
    METRICS,
    SHIFTS,
    Seen,
    flights,
    mean_of,
    simulated,
    simulated_life,
    visits,
)
from tests.harness import Table, kept

BLIND = ("hidden", "concept")
FOLLOWED = ("two segments", "segments", "three")
"""Shifts that move the accuracy at a score, and that features show."""


def seen_of(shifts: tuple[str, ...], lives: int) -> dict[str, list[Seen | None]]:
    by_shift: dict[str, list[Seen | None]] = {shift: [] for shift in shifts}
    for seed in range(lives):
        for shift, _, seen in simulated_life(7000 + seed, shifts, (1000,), boosted=False):
            by_shift[shift].append(seen)
    return by_shift


def test_a_short_run_shows_what_features_show_and_nothing_else() -> None:
    """3 references of 5,000, one window of 1,000 rows for each shift."""
    by_shift = seen_of(("none", "segments", "far", "hidden"), 3)
    assert by_shift["far"] == [None] * 3
    error = {
        (shift, method): mean_of([one for one in by_shift[shift] if one], "errors", "accuracy", method)
        for shift in ("none", "segments", "hidden")
        for method in ("plain", "covariates")
    }
    assert error["segments", "covariates"] < error["segments", "plain"] / 2
    assert error["none", "covariates"] == pytest.approx(error["none", "plain"], abs=0.005)
    assert error["hidden", "covariates"] == pytest.approx(error["hidden", "plain"], abs=0.01)


Row = dict[str, float]


def rows_of(table: Table, part: str) -> dict[tuple[str, int], Row]:
    """Return, by case and window size, the cells of the kept table that have numbers."""
    columns = [
        *(f"{what} {method}" for what in ("error", "units") for method in ("ref", "plain", "boost", "cov")),
        *(f"{metric} {method}" for metric in METRICS[1:] for method in ("ref", "plain", "cov")),
        *(
            f"{what} {m} {method}"
            for what in ("held", "width")
            for m in METRICS
            for method in ("plain", "cov")
        ),
        "unknown",
        "effective",
    ]
    rows = {}
    for text in kept(table, part).splitlines()[3:]:
        n, *cells = text[28:].replace(",", "").split()
        if "unknown" not in cells:
            rows[text[:28].strip(), int(n)] = dict(zip(columns, map(float, cells), strict=True))
    return rows


def test_the_kept_simulation_holds_what_the_documents_say() -> None:
    rows = rows_of(simulated, "simulated")
    for n in (500, 1000, 2000, 5000):
        for shift in FOLLOWED:
            row = rows[shift, n]
            assert row["error cov"] < row["error plain"] / 2, (shift, n)
            assert row["held accuracy cov"] >= 90, (shift, n)
        assert rows["none", n]["error cov"] <= rows["none", n]["error plain"] + 0.2
        for shift in BLIND:
            assert rows[shift, n]["error cov"] == pytest.approx(rows[shift, n]["error plain"], abs=0.5)
        seen = [rows[shift, n] for shift in SHIFTS if shift not in BLIND and (shift, n) in rows]
        ours, boosted = (np.mean([row[f"error {m}"] for row in seen]) for m in ("cov", "boost"))
        assert ours <= boosted + 0.3
    assert all(("far", n) not in rows or rows["far", n]["unknown"] > 80 for n in (100, 500, 1000, 2000, 5000))


def test_the_kept_tables_of_real_rows_hold_what_the_documents_say() -> None:
    rows = rows_of(visits, "visits")
    for n in (500, 1000, 2000):
        assert rows["plan and limits", n]["error cov"] < 0.75 * rows["plan and limits", n]["error plain"]
        assert rows["plan and limits", n]["held accuracy cov"] >= 90
    rows = rows_of(flights, "flights")
    for n in (500, 1000, 2000):
        assert rows["all", n]["error cov"] == pytest.approx(rows["all", n]["error plain"], abs=0.2)

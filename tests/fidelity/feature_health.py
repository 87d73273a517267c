"""Broken features: how soon one is noticed, and how often chance breaks a sound one.

    python -m tests.fidelity.feature_health [--streams 2000] [--years 0.25]

Streams have a reference of 5,000 rows and windows of 500. The upper table has the share of streams in which
a feature that gets lost is named in its first window, by the share of rows without it and the base rate. The
lower table has the windows with a broken feature among those of a task with 16 sound features and 100 windows
a day. Half of the features are numbers and half texts, with heavy tails and up to 5 % of missing values; each
tenth of the windows has another reference.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from monitor.base.records import Floats
from monitor.stats.features.health import (
    FeatureNorm,
    constant_features,
    health_level,
    rate_p_value,
    window_faults,
)
from monitor.stats.features.tables import FeatureTable, count_features
from tests.harness import run

REFERENCE, WINDOW, FEATURES, A_DAY = 5000, 500, 16, 100
LOST, BASE = (0.08, 0.1, 0.2), (0.0, 0.005, 0.01)


def share_noticed(lost: float, base: float, streams: int) -> float:
    """The share of streams whose first window names the feature, by the numbers of rows without it."""
    rng = np.random.default_rng([int(1000 * lost), int(1000 * base)])
    level = health_level(FEATURES, A_DAY)
    noticed = 0
    for _ in range(streams):
        reference = np.where(rng.random(REFERENCE) < base, np.nan, rng.normal(size=REFERENCE))
        window = np.where(rng.random(WINDOW) < lost, np.nan, rng.normal(size=WINDOW))
        norm = FeatureNorm.from_values("number", reference, WINDOW)
        table = FeatureTable.from_values("number", reference)
        noticed += [each.kind for each in norm.faults(table.count(window), False, level)] == ["missing"]
    return noticed / streams


def broken_by_chance(years: float) -> tuple[int, int]:
    """The windows with a broken feature, and all windows."""
    rng = np.random.default_rng(0)
    level = health_level(FEATURES, A_DAY)
    windows = round(365 * A_DAY * years)
    noticed = 0
    for _ in range(10):
        tail, missing = rng.uniform(1.2, 2.5, FEATURES), rng.uniform(0, 0.05, FEATURES)

        def rows(n: int, tail: Floats = tail, missing: Floats = missing) -> Floats:
            values = np.floor(4 * rng.pareto(tail, (n, FEATURES)))
            return np.where(rng.random((n, FEATURES)) < missing, np.nan, values)

        reference = rows(REFERENCE)
        columns = [("number" if j % 2 else "text", reference[:, j]) for j in range(FEATURES)]
        tables = [FeatureTable.from_values(kind, column) for kind, column in columns]  # type: ignore[arg-type]
        norms = [
            FeatureNorm.from_values(kind, column, WINDOW)  # type: ignore[arg-type]
            for kind, column in columns
        ]
        for _ in range(windows // 10):
            window = rows(WINDOW)
            counts = count_features(tables, window)
            noticed += any(window_faults(norms, counts, constant_features(window), level, [()] * FEATURES))
    return noticed, windows // 10 * 10


def expected_alarms() -> float:
    """False alarms a year by the level, if no least rise were asked and the tests were not discrete."""
    return health_level(FEATURES, A_DAY) * 365 * A_DAY * FEATURES * 3


def exact_alarms(base: float) -> float:
    """False alarms a year of the test of missing values alone, as its counts are whole numbers."""
    from scipy.stats import binom

    level = health_level(FEATURES, A_DAY)
    total = 0.0
    before = np.arange(REFERENCE + 1)
    chance = binom.pmf(before, REFERENCE, base)
    for count in before[chance > 1e-12].tolist():
        least = next(k for k in range(WINDOW + 1) if rate_p_value(k, WINDOW, count, REFERENCE) <= level)
        total += chance[count] * binom.sf(least - 1, WINDOW, base)
    return float(total * 365 * A_DAY * FEATURES)


def table(streams: int = 2000, years: float = 0.25) -> Iterator[str]:
    """The share noticed, and the false alarms."""
    yield f"Named in the first window, of {streams:,} streams (python -m tests.fidelity.feature_health)"
    yield "rows without it " + "".join(f"{f'base {100 * base:.1f} %':>12}" for base in BASE)
    for lost in LOST:
        shares = (share_noticed(lost, base, streams) for base in BASE)
        yield f"{100 * lost:>13.0f} % " + "".join(f"{100 * share:>10.1f} %" for share in shares)
    noticed, windows = broken_by_chance(years)
    yield ""
    yield f"Sound features, {FEATURES} of them, {A_DAY} windows a day"
    yield f"by the level, a year: {expected_alarms():.2f}"
    for base in (0.002, 0.05):
        yield f"by the exact test of missing values at {100 * base:.1f} %, a year: {exact_alarms(base):.3f}"
    yield f"simulated: {noticed} in {windows:,} windows ({windows / A_DAY / 365:.1f} years)"


if __name__ == "__main__":
    run(table)

"""The charts' delay until they detect a drift: ``python -m tests.fidelity.delay``.

The drift is the gradual one of Kivimäki et al., section 5.1.2: with each window the share of rows from the
shifted distribution (table 2) rises by 5 %, from 5 % up to all of them, and stays there. Each chart has its
own reference of windows before the shift, and starts at the shift without memory.

`arl0` is a chart's promise. `shewhart_p` on confidences is far from its promise (`tests.fidelity.arl`), so
one more line sets its limits to true 3 sigma: then the two differ only by the allowance for a short
reference.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from tests.fidelity.arl import ALL_RULES, charts_of, confidence_process, first_alarm, standardised, tails
from tests.harness import run
from tests.stats.charts.run_lengths import broken_rules

Floats = NDArray[np.float64]
STEP = 0.05


def drift(rng: np.random.Generator, series: int, size: int, windows: int) -> Floats:
    """Return (series, windows) mean confidences while the shift comes in."""
    shares = np.minimum(STEP * np.arange(1, windows + 1), 1.0)
    columns = [confidence_process(size, round(float(a), 2)).draw(rng.standard_normal(series)) for a in shares]
    return np.column_stack(columns)


def delays(
    kind: str,
    size: int,
    m: int,
    rules: tuple[str, ...],
    limit: tuple[str, float],
    *,
    series: int = 2000,
    windows: int = 60,
    seed: int = 0,
) -> Floats:
    """Return (series,) windows from the first shifted one until the alarm, infinity where none came.

    `limit` is as in `tests.fidelity.arl.simulate`. The same seed gives each chart the same windows.
    """
    rng = np.random.default_rng(seed)
    process = confidence_process(size)
    logics = charts_of(kind, process, process.draw(rng.standard_normal((series, m))), limit, rules)
    z = standardised(logics, drift(rng, series, size, windows), size)
    return first_alarm(broken_rules(z, logics[0].multiplier, rules).any(axis=0))


def line(label: str, windows: Floats) -> str:
    """Return one row of the table."""
    quantiles = np.quantile(np.where(np.isinf(windows), 1e9, windows), [0.5, 0.9])
    shown = " ".join(f"{q:7.0f}" if q < 1e9 else "   >end" for q in quantiles)
    finite = windows[np.isfinite(windows)]
    error = finite.std(ddof=1) / math.sqrt(len(finite))
    return f"{label:58s} {finite.mean():7.2f} ±{error:5.2f} {shown} {100 * np.isinf(windows).mean():8.2f} %"


def gradual(series: int) -> list[str]:
    """Return `shewhart` beside `shewhart_p` at the same `arl0`, at the textbook's 3 sigma, and truly at 3
    sigma.
    """
    out = []
    for size in (100, 500):
        own = confidence_process(size)
        for m in (20, 100):
            for rules, arl0 in ((("we1",), 370.0), (ALL_RULES, 92.0)):
                for limit in (("arl0", arl0), ("sigmas", 3.0)):
                    for kind in ("shewhart", "shewhart_p"):
                        windows = delays(kind, size, m, rules, limit, series=series)
                        label = f"n={size} m={m} {'+'.join(rules)} {limit[0]}={limit[1]:g} {kind}"
                        out.append(line(label, windows))
            matched = 3 * own.row_sd / math.sqrt(own.mean * (1 - own.mean))
            windows = delays("shewhart_p", size, m, ("we1",), ("sigmas", matched), series=series)
            out.append(line(f"n={size} m={m} we1 sigmas={matched:.2f} shewhart_p, truly 3 sigma", windows))
    return out


def constant_shift(size: int, share: float, chart: str, multiplier: float = 3.0) -> tuple[float, float]:
    """Return mean windows until the alarm of `we1` with known limits, once `share` of the rows are shifted
    for good.

    Returns
    -------
    exact, normal : float
        With the exact law of the mean confidence, and were it normal.
    """
    before, after = confidence_process(size), confidence_process(size, share)
    p = before.mean
    row_sd = math.sqrt(p * (1 - p)) if chart == "shewhart_p" else before.row_sd
    half = multiplier * row_sd / math.sqrt(size)
    low, high = tails(after, p - half, p + half)
    sigma = after.row_sd / math.sqrt(size)
    normal = norm.cdf((p - half - after.mean) / sigma) + norm.sf((p + half - after.mean) / sigma)
    return 1 / (low + high), 1 / float(normal)


def constant(sizes: tuple[int, ...] = (100, 500)) -> list[str]:
    """Return a shift that stays small for ever: where limits that are too wide cost most."""
    out = []
    for size in sizes:
        for share in (0.1, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0):
            pairs = [constant_shift(size, share, chart) for chart in ("shewhart", "shewhart_p")]
            exact = " ".join(f"{pair[0]:11.1f} {pair[1]:11.1f}" for pair in pairs)
            out.append(f"n={size:<4d} {100 * share:3.0f} % shifted {exact}")
    return out


def table(series: int = 2000) -> Iterator[str]:
    """Yield all tables, a line at a time."""
    yield f"Gradual shift, 5 % a window; {series} charts, each on its own reference; seed 0; 60 windows"
    yield f"{'':58s} {'mean':>7s} {'error':>6s} {'median':>7s} {'90 %':>7s} {'never':>9s}"
    yield from gradual(series)
    yield "\nA constant shift: mean windows until the alarm, we1 at 3 sigma, known limits"
    yield f"{'':18s} {'shewhart':>11s} {'if normal':>11s} {'shewhart_p':>11s} {'if normal':>11s}"
    yield from constant()


if __name__ == "__main__":
    run(table)

"""False alarms and delays of every chart and set of rules: ``python -m tests.fidelity.all_charts``.

Windows are normal, as the mean of 500 confidences nearly is; `tests.fidelity.arl` shows the effect of
skewness. Each chart of the table of kinds is at its defaults (ARL0 370, `we1` where it has rules, shift 1),
with known limits or on its own reference, the real `build` and the real memory of each series. Shares are the
textbook's p-chart's own case: the charts of counts see windows with the binomial's variation.

The sets of rules are on `shewhart`: each rule alone, and the usual combinations. The promised ARL0 is 370, or
the most that the set reaches on 20 reference windows; the order rules alone (nelson3, nelson4) have a fixed
run length.

The printed run length is the harmonic mean, windows over alarms, with a fresh start after each alarm: the
rate of a fleet, which `arl0` promises. The delay is the mean number of windows from the first shifted one to
the alarm, for charts that start at the shift; a shift of one point is 0.01 of accuracy.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from monitor import CHARTS, Baseline, Chart
from monitor.stats.charts.detectors import CusumDetector, Detector, EwmaDetector, RunRules
from monitor.stats.charts.limits import chosen_limits
from monitor.stats.charts.rules import NELSON, RULES, WESTERN_ELECTRIC
from tests.fidelity.arl import autocorrelated, rule_alarms
from tests.harness import run
from tests.stats.charts.run_lengths import max_arl0

Floats = NDArray[np.float64]
SIZE, MEAN = 500, 0.9
ROW_SD = 0.1889  # of a confidence in the paper's simulated data (tests.fidelity.arl), 0.62 of a label's
REFERENCES = (math.inf, 20, 100)
SHIFTS = (0.01, 0.02, 0.03, 0.05)
RULE_SETS: dict[str, tuple[str, ...]] = {
    **{rule: (rule,) for rule in RULES},
    "we1-2": WESTERN_ELECTRIC[:2],
    "we1-3": WESTERN_ELECTRIC[:3],
    "we1-4": WESTERN_ELECTRIC,
    "nelson1-8": NELSON,
}
"""By the name that is printed."""


@dataclass(frozen=True)
class Found:
    """A mean number of windows, its standard error, and the share of runs that did not end."""

    windows: float
    error: float
    open_ended: float


def ruled(rules: tuple[str, ...]) -> Chart:
    """Return a `shewhart` chart with these rules, for the largest ARL0 up to 370 that 20 windows promise."""
    reach = min(max_arl0(rules, m) for m in REFERENCES)
    return CHARTS["shewhart"](arl0=370.0 if reach >= 370 else float(math.floor(reach)), rules=rules)  # type: ignore[call-arg]


def sigma_of(chart: Chart) -> float:
    """Return the sigma of one row: of a share for charts of counts, of a confidence for the others."""
    return math.sqrt(MEAN * (1 - MEAN)) if chart.of_counts else ROW_SD


def standard_windows(chart: Chart, m: float, z: Floats) -> tuple[Floats, float]:
    """Return (series, t) windows after the reference in each chart's own sigma, and the charts' threshold.

    z : (series, m + t) standard normal windows; with known limits none of them is a reference.
    """
    if math.isinf(m):
        return z, chosen_limits(chart, m).multiplier
    count, row_sd = int(m), sigma_of(chart)
    values = np.clip(MEAN + z * row_sd / math.sqrt(SIZE), 0.0, 1.0)
    sizes = np.full(count, float(SIZE))
    logics = [chart.build(Baseline(row[:count], sizes, row_sd)) for row in values]
    centre = np.array([logic.center for logic in logics])[:, None]
    variance = np.array([logic.row_variance for logic in logics])[:, None]
    multiplier = logics[0].multiplier
    return (values[:, count:] - centre) / np.sqrt(variance / SIZE), multiplier


def alarms(detector: Detector, threshold: float, z: Floats) -> NDArray[np.bool_]:
    """Return (series, t) where each series alarms, starting again after each alarm."""
    if isinstance(detector, RunRules) and detector.rules != ("we1",):
        return rule_alarms(z, threshold, detector.rules)
    out = np.zeros(z.shape, dtype=np.bool_)
    up, down = np.zeros(len(z)), np.zeros(len(z))
    for t, y in enumerate(z.T):
        if isinstance(detector, EwmaDetector):
            up = (1 - detector.weight) * up + detector.weight * y
            out[:, t] = np.abs(up) > threshold * math.sqrt(detector.weight / (2 - detector.weight))
        elif isinstance(detector, CusumDetector):
            up = np.maximum(0.0, up + y - detector.shift / 2)
            down = np.maximum(0.0, down - y - detector.shift / 2)
            out[:, t] = np.maximum(up, down) > threshold
        else:
            out[:, t] = np.abs(y) > threshold
        up[out[:, t]] = down[out[:, t]] = 0.0
    return out


def in_control(
    chart: Chart, m: float, rho: float = 0.0, *, series: int = 2000, windows: int = 2000, seed: int = 0
) -> Found:
    """Return the harmonic mean run length in control."""
    rng = np.random.default_rng(seed)
    before = 0 if math.isinf(m) else int(m)
    z, threshold = standard_windows(chart, m, autocorrelated(rng, series, before + windows, rho))
    each = alarms(chart.detector, threshold, z).mean(axis=1)
    rate = float(each.mean())
    error = float(each.std(ddof=1)) / math.sqrt(series)
    return Found(1 / rate, error / rate**2, float((each == 0).mean()))


def delay(
    chart: Chart, m: float, shift: float, *, series: int = 2000, windows: int = 400, seed: int = 0
) -> Found:
    """Return windows from a lasting drop by `shift` until the alarm; a run without one counts as long."""
    rng = np.random.default_rng(seed)
    before = 0 if math.isinf(m) else int(m)
    z = rng.standard_normal((series, before + windows))
    z[:, before:] -= shift * math.sqrt(SIZE) / sigma_of(chart)
    values, threshold = standard_windows(chart, m, z)
    alarmed = alarms(chart.detector, threshold, values)
    first = np.where(alarmed.any(axis=1), alarmed.argmax(axis=1) + 1.0, windows)
    return Found(
        float(first.mean()),
        float(first.std(ddof=1)) / math.sqrt(series),
        float((~alarmed.any(axis=1)).mean()),
    )


def cell(result: Found) -> str:
    """Return a figure with its error; `>` where some runs had no end."""
    return f"{'>' if result.open_ended > 0.001 else ' '}{result.windows:7.1f} ±{result.error:5.1f}"


def tables(charts: dict[str, Chart], series: int, windows: int) -> Iterator[str]:
    """Yield false alarms of each, then delays."""
    width = max(map(len, charts)) + 2
    yield f"\nIn control: windows over alarms, {windows:,} windows each"
    columns = [(m, rho) for rho in (0.0, 0.3) for m in REFERENCES]
    names = [f"m={m:g} rho={rho:g}" for m, rho in columns]
    yield f"{'':{width}s} {'arl0':>5s} " + " ".join(f"{name:>15s}" for name in names)
    for name, chart in charts.items():
        results = [in_control(chart, m, rho, series=series, windows=windows) for m, rho in columns]
        cells = " ".join(f"{cell(each).replace('>', ' '):>15s}" for each in results)
        yield f"{name:{width}s} {chart.arl0:5g} {cells}"
    yield "\nA lasting drop: windows until the alarm, 400 windows at most (> where some had none)"
    for m in REFERENCES:
        heads = " ".join(f"{f'{100 * shift:g} points':>15s}" for shift in SHIFTS)
        yield f"\n{f'm={m:g}':{width}s} {heads}"
        for name, chart in charts.items():
            cells = " ".join(f"{cell(delay(chart, m, shift, series=series)):>15s}" for shift in SHIFTS)
            yield f"{name:{width}s} {cells}"


def table(series: int = 2000, of_rules: int = 1000) -> Iterator[str]:
    """Yield the tables of charts, then those of rules."""
    yield f"{series} charts at their defaults (ARL0 370), windows of {SIZE} rows, normal; seed 0"
    yield from tables({kind: chart() for kind, chart in CHARTS.items()}, series, 2000)
    yield f"\n{of_rules} charts with rules (shewhart), at the ARL0 that is given"
    yield from tables({name: ruled(rules) for name, rules in RULE_SETS.items()}, of_rules, 1000)


if __name__ == "__main__":
    run(table)

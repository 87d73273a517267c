"""False alarms and delays of every chart at its defaults: ``python -m tests.fidelity.all_charts``.

Windows are normal, as the mean of 500 confidences nearly is; `tests.fidelity.arl` has what skewness adds.
Each chart of the table of kinds is at its defaults (ARL0 370, `we1` where it has rules, shift 1), with
known limits or on its own reference, the real `build` and the real memory of each series. Shares are the
textbook's p-chart's own case: the charts of counts see windows with the binomial's variation.

The run length printed is the harmonic mean, windows over alarms, each alarm starting afresh: what a fleet
sees, and what `arl0` promises. The delay is the mean number of windows from the first shifted one until
the alarm, of charts that start afresh at the shift; a shift of one point is 0.01 of accuracy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from monitor.charts import CHARTS, Baseline, LimitChart
from monitor.charts.detectors import CusumDetector, Detector, EwmaDetector
from monitor.charts.latch import LatchedLogic
from monitor.charts.limits import chosen_limits
from tests.fidelity.arl import autocorrelated

Floats = NDArray[np.float64]
SIZE, MEAN = 500, 0.9
ROW_SD = 0.1889  # of a confidence in the paper's simulated data (tests.fidelity.arl), 0.62 of a label's
REFERENCES = (math.inf, 20, 100)
SHIFTS = (0.01, 0.02, 0.03, 0.05)


@dataclass(frozen=True)
class Found:
    """A mean number of windows, its standard error, and the share of runs that did not end."""

    windows: float
    error: float
    open_ended: float


def sigma_of(chart: LimitChart) -> float:
    """Of one row: a share's for charts of counts, a confidence's for the others."""
    return math.sqrt(MEAN * (1 - MEAN)) if chart.of_counts else ROW_SD


def standard_windows(chart: LimitChart, m: float, z: Floats) -> tuple[Floats, float]:
    """(series, t) windows after the reference in each chart's own sigma, and the charts' threshold.

    z : (series, m + t) standard normal windows; with known limits none of them is a reference.
    """
    if math.isinf(m):
        return z, chosen_limits(chart, m).multiplier
    count, row_sd = int(m), sigma_of(chart)
    values = np.clip(MEAN + z * row_sd / math.sqrt(SIZE), 0.0, 1.0)
    sizes = np.full(count, float(SIZE))
    logics = [chart.build(Baseline(row[:count], sizes, row_sd)) for row in values]
    assert all(isinstance(logic, LatchedLogic) for logic in logics)
    centre = np.array([logic.center for logic in logics])[:, None]  # type: ignore[attr-defined]
    variance = np.array([logic.row_variance for logic in logics])[:, None]  # type: ignore[attr-defined]
    multiplier = logics[0].multiplier  # type: ignore[attr-defined]
    return (values[:, count:] - centre) / np.sqrt(variance / SIZE), multiplier


def alarms(detector: Detector, threshold: float, z: Floats) -> NDArray[np.bool_]:
    """(series, t) where each series alarms, starting afresh after each alarm: the memories, vectorised."""
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
    kind: str, m: float, rho: float = 0.0, *, series: int = 2000, windows: int = 2000, seed: int = 0
) -> Found:
    """The harmonic mean run length in control."""
    chart, rng = CHARTS[kind](), np.random.default_rng(seed)
    before = 0 if math.isinf(m) else int(m)
    z, threshold = standard_windows(chart, m, autocorrelated(rng, series, before + windows, rho))
    each = alarms(chart.detector, threshold, z).mean(axis=1)
    rate = float(each.mean())
    error = float(each.std(ddof=1)) / math.sqrt(series)
    return Found(1 / rate, error / rate**2, float((each == 0).mean()))


def delay(
    kind: str, m: float, shift: float, *, series: int = 2000, windows: int = 400, seed: int = 0
) -> Found:
    """Windows from a lasting drop by `shift` until the alarm; a run without one counts as long."""
    chart, rng = CHARTS[kind](), np.random.default_rng(seed)
    before = 0 if math.isinf(m) else int(m)
    z = rng.standard_normal((series, before + windows))
    z[:, before:] -= shift * math.sqrt(SIZE) / sigma_of(chart)
    values, threshold = standard_windows(chart, m, z)
    found = alarms(chart.detector, threshold, values)
    first = np.where(found.any(axis=1), found.argmax(axis=1) + 1.0, windows)
    return Found(
        float(first.mean()), float(first.std(ddof=1)) / math.sqrt(series), float((~found.any(axis=1)).mean())
    )


def cell(found: Found) -> str:
    """A figure with its error; `>` where some runs had no end."""
    return f"{'>' if found.open_ended > 0.001 else ' '}{found.windows:7.1f} ±{found.error:5.1f}"


def main(series: int = 2000) -> None:
    """Print both tables."""
    print(f"{series} charts at their defaults (ARL0 370), windows of {SIZE} rows, normal; seed 0")
    print("\nIn control: windows over alarms, 2,000 windows each")
    columns = [(m, rho) for rho in (0.0, 0.3) for m in REFERENCES]
    names = [f"m={m:g} rho={rho:g}" for m, rho in columns]
    print(f"{'':12s} " + " ".join(f"{name:>15s}" for name in names))
    for kind in CHARTS:
        cells = [cell(in_control(kind, m, rho, series=series)).replace(">", " ") for m, rho in columns]
        print(f"{kind:12s} " + " ".join(f"{text:>15s}" for text in cells))
    print("\nA lasting drop: windows until the alarm, 400 windows at most (> where some had none)")
    for m in REFERENCES:
        print(f"\n{f'm={m:g}':12s} " + " ".join(f"{f'{100 * shift:g} points':>15s}" for shift in SHIFTS))
        for kind in CHARTS:
            cells = [cell(delay(kind, m, shift, series=series)) for shift in SHIFTS]
            print(f"{kind:12s} " + " ".join(f"{text:>15s}" for text in cells))


if __name__ == "__main__":
    main()

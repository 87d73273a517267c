"""False alarms of the control charts, by simulation: ``python -m tests.fidelity.arl``.

For every line it builds the real charts on simulated reference windows, runs the stream in control, and
starts again after each alarm. It prints the harmonic mean run length (windows over alarms, the rate of a
fleet, which `arl0` promises) with its standard error, the mean and the median of the first run length, and
the share of charts that alarm within 100 windows. Runs without an alarm count as ended at the end, so means
marked ``>`` are lower bounds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.fft import irfft, next_fast_len, rfft
from scipy.special import ndtr
from scipy.stats import beta, binom

from monitor import CHARTS, Baseline
from monitor.stats.charts.detectors import RunRules
from monitor.stats.charts.latch import ChartLogic
from monitor.stats.charts.limits import limits
from monitor.stats.charts.rules import MEMORY
from tests.fidelity.simulated import ALPHA, BETA, ORIGINAL, SHIFTED
from tests.harness import run
from tests.stats.charts.run_lengths import broken_rules, in_control_rate, limit_multiplier, max_arl0

Floats = NDArray[np.float64]
ALL_RULES = ("we1", "we2", "we3", "we4")
RULE_SETS = (("we1",), ("we1", "we2"), ("we1", "we2", "we3"), ALL_RULES)
REFERENCES = (20, 50, 100, math.inf)

CELLS = 4000  # of the confidence's grid: its rounding adds 2e-9 to a variance of 0.037


@dataclass(frozen=True)
class Process:
    """A stream of windows in control.

    Parameters
    ----------
    name : str
    size : int
        Rows a window.
    mean, row_sd : float
        Of one row, as the reference reports them.
    values : (k,) float64 or None
        What a window's estimate can be, rising; None for a normal estimate.
    cdf : (k,) float64 or None
    """

    name: str
    size: int
    mean: float
    row_sd: float
    values: Floats | None = None
    cdf: Floats | None = None

    def draw(self, normal: Floats) -> Floats:
        """Estimates from standard normal numbers, dependent on one another as those are."""
        if self.values is None or self.cdf is None:
            return self.mean + normal * self.row_sd / math.sqrt(self.size)
        at = np.searchsorted(self.cdf, ndtr(normal))
        return self.values[np.minimum(at, len(self.values) - 1)]


def normal_process(size: int = 500) -> Process:
    """Return estimates of accuracy that are exactly normal."""
    return Process("normal", size, 0.9, 0.18)


def share_process(size: int = 500, p: float = 0.897) -> Process:
    """Return realised accuracy: binomial shares."""
    k = np.arange(size + 1)
    return Process(f"share n={size}", size, p, math.sqrt(p * (1 - p)), k / size, binom.cdf(k, size, p))


@lru_cache(maxsize=64)
def confidence_process(size: int, shifted_share: float = 0.0) -> Process:
    """Return mean confidences of the paper's simulated data: the exact law of the mean of `size` rows.

    The law of one row is put on a fine grid (the centres of 4,000 cells) and convolved with itself.
    """
    weights = (1 - shifted_share) * ORIGINAL + shifted_share * SHIFTED
    edges = np.linspace(0, 1, CELLS + 1)
    row = np.diff(sum(w * beta.cdf(edges, a, b) for w, a, b in zip(weights, ALPHA, BETA, strict=True)))
    centres = (edges[1:] + edges[:-1]) / 2
    mean = float(row @ centres)
    sd = math.sqrt(float(row @ (centres - mean) ** 2))
    length = size * (CELLS - 1) + 1
    # Convolved over 16 standard deviations to either side: beyond them is nothing that a float can hold.
    reach = next_fast_len(min(length, int(32 * sd * CELLS * math.sqrt(size))), real=True)
    first = max(min(int(size * (mean * CELLS - 0.5)) - reach // 2, length - reach), 0)
    law = np.maximum(np.roll(irfft(rfft(row, reach) ** size, reach), -first), 0.0)
    values = ((first + np.arange(reach)) / size + 0.5) / CELLS
    return Process(f"confidence n={size}", size, mean, sd, values, np.cumsum(law / law.sum()))


def autocorrelated(rng: np.random.Generator, series: int, length: int, rho: float) -> Floats:
    """Return (series, length) standard normal numbers, AR(1) with autocorrelation rho and variance 1."""
    z = rng.standard_normal((series, length))
    if rho:
        for t in range(1, length):
            z[:, t] = rho * z[:, t - 1] + math.sqrt(1 - rho**2) * z[:, t]
    return z


def known_limits(kind: str, process: Process, multiplier: float, rules: tuple[str, ...]) -> ChartLogic:
    """Return the chart as it would be with an endless reference."""
    p = process.mean
    variance = p * (1 - p) if kind == "shewhart_p" else process.row_sd**2
    return ChartLogic(p, variance, multiplier, RunRules(rules))


def charts_of(
    kind: str, process: Process, reference: Floats, limit: tuple[str, float], rules: tuple[str, ...]
) -> list[ChartLogic]:
    """Return a real chart on each row of reference estimates."""
    chart = CHARTS[kind](**{limit[0]: limit[1]}, rules=rules)  # type: ignore[call-arg]
    sizes = np.full(reference.shape[1], float(process.size))
    return [chart.build(Baseline(values, sizes, process.row_sd)) for values in reference]


def standardised(logics: Sequence[ChartLogic], values: Floats, size: int) -> Floats:
    """Return (series, t) distances from each chart's centre, in its own sigma."""
    centre = np.array([logic.center for logic in logics])[:, None]
    sigma = np.sqrt(np.array([logic.row_variance for logic in logics])[:, None] / size)
    return (values - centre) / sigma


def rule_alarms(z: Floats, multiplier: float, rules: tuple[str, ...]) -> NDArray[np.bool_]:
    """Return where each row of z breaks a rule, (series, t), starting again after each alarm."""
    alarms = np.zeros(z.shape, dtype=np.bool_)
    recent = np.zeros((len(z), MEMORY))  # a value at the centre is on no side: as good as no window
    for t in range(z.shape[1]):
        recent[:, :-1] = recent[:, 1:]
        recent[:, -1] = z[:, t]
        alarms[:, t] = broken_rules(recent, multiplier, rules)[:, :, -1].any(axis=0)
        recent[alarms[:, t]] = 0.0
    return alarms


def first_alarm(alarms: NDArray[np.bool_]) -> Floats:
    """Return windows until the first alarm of each row, infinity where none came."""
    return np.where(alarms.any(axis=1), alarms.argmax(axis=1) + 1.0, np.inf)


@dataclass(frozen=True)
class RunLengths:
    """The run lengths of a simulation; all in windows, `within_100` a share."""

    harmonic: float
    harmonic_error: float
    mean: float
    median: float
    within_100: float
    cut: bool


def simulate(
    kind: str,
    process: Process,
    m: float,
    rules: tuple[str, ...],
    limit: tuple[str, float],
    *,
    rho: float = 0.0,
    series: int = 1000,
    windows: int = 2000,
    seed: int = 0,
) -> RunLengths:
    """Run lengths in control of `series` charts, each on its own reference, over `windows` windows each.

    `limit` is ``("arl0", windows)`` or ``("sigmas", half width)``.
    """
    rng = np.random.default_rng(seed)
    short = 20 if math.isinf(m) else int(m)
    z = autocorrelated(rng, series, short + windows, rho)
    values = process.draw(z)
    if math.isinf(m):
        multiplier = limit[1] if limit[0] == "sigmas" else limit_multiplier(limit[1], rules, m)
        logics = [known_limits(kind, process, multiplier, rules)] * series
    else:
        logics = charts_of(kind, process, values[:, :short], limit, rules)
    stream = standardised(logics, values[:, short:], process.size)
    broken = rule_alarms(stream, logics[0].multiplier, rules)
    alarms, first = broken.sum(axis=1), first_alarm(broken)
    rate = alarms.mean() / windows
    error = alarms.std(ddof=1) / math.sqrt(series) / windows
    capped = np.minimum(first, windows)
    return RunLengths(
        harmonic=1 / rate if rate else math.inf,
        harmonic_error=error / rate**2 if rate else math.inf,
        mean=float(capped.mean()),
        median=float(np.median(first)),
        within_100=float((first <= 100).mean()),
        cut=bool(np.isinf(first).any()),
    )


def line(label: str, lengths: RunLengths) -> str:
    """Return one row of the tables."""
    mean = f"{'>' if lengths.cut else ' '}{lengths.mean:.0f}"
    median = f"{lengths.median:.0f}" if math.isfinite(lengths.median) else ">end"
    return (
        f"{label:58s} {lengths.harmonic:8.1f} ±{lengths.harmonic_error:6.1f} {mean:>8s} {median:>7s} "
        f"{100 * lengths.within_100:7.1f} %"
    )


HEADER = f"{'':58s} {'harmonic':>8s} {'error':>7s} {'mean':>8s} {'median':>7s} {'within 100':>9s}"


def promised(series: int, windows: int) -> list[str]:
    """ARL0 as promised and at plain 3 sigma, for both charts on what they are meant for."""
    out = []
    for kind, process in (("shewhart", normal_process()), ("shewhart_p", share_process())):
        for rules in RULE_SETS:
            for m in REFERENCES:
                reach = max_arl0(rules, m, CHARTS[kind].spread)
                arl0 = 370.0 if reach >= 370 else 92.0
                for rho in (0.0, 0.3):
                    for limit in (("arl0", arl0), ("sigmas", 3.0)):
                        lengths = simulate(
                            kind, process, m, rules, limit, rho=rho, series=series, windows=windows
                        )
                        name = f"{kind:10s} {'+'.join(rules):15s} m={m:<4g} rho={rho:g}"
                        label = f"{name} {limit[0]}={limit[1]:g}"
                        out.append(line(label, lengths))
    return out


def on_confidences(series: int, windows: int) -> list[str]:
    """Return the lines of mean confidences of the paper's data, whose law is skewed."""
    out = []
    for size in (100, 500):
        process = confidence_process(size)
        for rules in (("we1",), ALL_RULES):
            for m in (20, math.inf):
                arl0 = 370.0 if len(rules) == 1 else 92.0
                for limit in (("arl0", arl0), ("sigmas", 3.0)):
                    lengths = simulate("shewhart", process, m, rules, limit, series=series, windows=windows)
                    label = f"{process.name} {'+'.join(rules)} m={m:g} {limit[0]}={limit[1]:g}"
                    out.append(line(label, lengths))
    return out


def tails(process: Process, lower: float, upper: float) -> tuple[float, float]:
    """Return chances of an estimate strictly below and strictly above the limits, of the exact law."""
    assert process.values is not None
    assert process.cdf is not None
    below = int(np.searchsorted(process.values, lower, side="left"))
    above = int(np.searchsorted(process.values, upper, side="right"))
    low = float(process.cdf[below - 1]) if below else 0.0
    return low, max(0.0, 1.0 - float(process.cdf[above - 1])) if above < len(process.values) else 0.0


def true_sigmas() -> list[str]:
    """Return the true probability of the p-chart's 3 sigma on a mean confidence."""
    out = []
    for size in (100, 500):
        process = confidence_process(size)
        p = process.mean
        sd = math.sqrt(p * (1 - p))
        ratio = process.row_sd / sd
        normal = 1 / (2 * float(ndtr(-3 / ratio)))
        out.append(
            f"{process.name}: sd of a confidence {process.row_sd:.4f}, binomial {sd:.4f}, ratio {ratio:.4f}: "
            f"3 sigma of the p-chart are {3 / ratio:.2f}, an alarm once in {normal:,.0f} windows if normal"
        )
        for name, chosen in (("shewhart_p", sd), ("shewhart", process.row_sd)):
            half = 3 * chosen / math.sqrt(size)
            low, high = tails(process, p - half, p + half)
            out.append(
                f"  {name:10s} at 3 sigma, exact law of the mean: below {low:.2e}, above {high:.2e}, "
                f"an alarm once in {1 / max(low + high, 1e-300):,.0f} windows"
            )
    return out


def overdispersed() -> list[str]:
    """Return the promise where windows vary more than their rows explain, by quadrature."""
    out = [f"{'m':>6s} " + " ".join(f"{f'phi={phi:g}':>10s}" for phi in (1, 1.1, 1.2, 1.35, 1.5, 2, 3, 10))]
    for m in (5, 10, 20, 50, 100):
        chosen = limits(370, ("we1",), m)
        arls = [1 / in_control_rate(("we1",), m, chosen, phi) for phi in (1, 1.1, 1.2, 1.35, 1.5, 2, 3, 10)]
        out.append(f"{m:6d} " + " ".join(f"{arl:10.0f}" for arl in arls))
    return out


def table(series: int = 1000, windows: int = 2000) -> Iterator[str]:
    """Yield all tables, a line at a time."""
    yield f"{series} charts, each on its own reference, {windows} windows each; seed 0; windows of 500 rows"
    yield "An arl0 of 370 is out of reach of all four rules: 92 there, what they give at 3 sigma known.\n"
    yield HEADER
    yield from promised(series, windows)
    yield "\nOn mean confidences of the paper's simulated data (table 2, original):"
    yield from on_confidences(series, windows)
    yield "\nThe textbook's p-chart on those:"
    yield from true_sigmas()
    yield "\nshewhart, arl0 = 370, we1: run length (harmonic) where windows vary phi times as much:"
    yield from overdispersed()


if __name__ == "__main__":
    run(table)

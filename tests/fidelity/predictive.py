"""Coverage and width of the predictive interval beside its rivals, on streams that are stable and that
drift.

    python -m tests.fidelity.predictive [--references 16]

Simulated rows (Kivimäki et al., Table 2) whose logits carry a bias: none, an Ornstein–Uhlenbeck process
of 0.3 logits that is forgotten over 2,000 rows, or 1/f noise of 0.3 logits (ten such processes of equal
variance, 100 to 51,200 rows). A reference of N rows in time order, an isotonic calibration on it, and
windows from the 20,000 rows that follow, without any labels. What an interval covers is the share right
among the window's own rows. Rivals: the exact Poisson binomial; Laney's (± 1.96 binomial errors of the
confidences times the standard deviation of the reference's own windows in such units; – below five of
them); NannyML's band, ± 3 standard errors of the reference's accuracy.
"""

from __future__ import annotations

from math import sqrt
from pathlib import Path

import numpy as np
from scipy.signal import lfilter
from scipy.special import expit, logit

from monitor.calibration import CALIBRATORS
from monitor.calibration.base import cross_fit_in_time
from monitor.estimate.average_confidence import average_confidence_many
from monitor.estimate.predictive import predictive_windows
from monitor.estimate.predictive_fit import fit_predictive
from monitor.records import Floats
from monitor.result import Estimate
from tests.fidelity.command import print_and_keep
from tests.fidelity.simulated import ORIGINAL, confidences

OUTPUT = Path(__file__).parent / "output" / "predictive.txt"
STREAMS = ("stable", "OU drift", "1/f drift")
SIZES = (100, 500, 2000, 5000)
REFERENCES = (1000, 5000, 40_000)
METHODS = ("poisson_binomial", "laney", "cbpe_sem", "predictive")
FOLLOWING = 20_000
LIVES = 16
_SD = 0.3  # logits

Cell = tuple[float, float, int]
"""Share covered, mean width, windows."""


def ornstein_uhlenbeck(rng: np.random.Generator, rows: int, length: float, sd: float) -> Floats:
    """A stationary one, forgotten over `length` rows."""
    keep = np.exp(-1 / length)
    noise = rng.normal(scale=sd * sqrt(1 - keep**2), size=rows)
    noise[0] = rng.normal(scale=sd)
    found: Floats = lfilter([1.0], [1.0, -keep], noise)
    return found


def drift(rng: np.random.Generator, stream: str, rows: int) -> Floats:
    """The logit bias of each row."""
    if stream == "stable":
        return np.zeros(rows)
    if stream == "OU drift":
        return ornstein_uhlenbeck(rng, rows, 2000.0, _SD)
    lengths = 100.0 * 2.0 ** np.arange(10)
    return np.sum([ornstein_uhlenbeck(rng, rows, k, _SD / sqrt(len(lengths))) for k in lengths], axis=0)


def one_life(stream: str, reference: int, seed: int) -> dict[tuple[str, int], tuple[Floats, Floats]]:
    """By method and window size: whether each window was covered, and its width."""
    rng = np.random.default_rng([seed, reference, STREAMS.index(stream)])
    rows = reference + FOLLOWING
    chance = np.clip(confidences(rng, ORIGINAL, (rows,)), 1e-9, 1 - 1e-9)
    right = rng.random(rows) < expit(logit(chance) + drift(rng, stream, rows))
    scores, zeros = expit(1.5 * logit(chance) + 0.4)[:, None], np.zeros(rows, dtype=np.int64)
    old, wrong = slice(0, reference), (~right).astype(np.int64)
    calibrator = CALIBRATORS["isotonic"]()
    fitted = calibrator.fit(scores[old], zeros[old], wrong[old])
    model = fit_predictive(calibrator, scores[old], zeros[old], wrong[old], seed)
    crossed = cross_fit_in_time(calibrator, scores[old], zeros[old], wrong[old], folds=5)[:, 0]
    found = {}
    new, hits = fitted.apply(scores[reference:])[:, 0], right[reference:]
    for n in SIZES:
        windows, truth = new.reshape(-1, n), hits.reshape(-1, n).mean(axis=1)
        ends = {"poisson_binomial": average_confidence_many(windows)[:, 1:]}
        mean = windows.mean(axis=1)[:, None]
        own = np.sqrt((windows * (1 - windows)).sum(axis=1))[:, None] / n
        ends["laney"] = mean + np.array([-1.96, 1.96]) * own * laney_sigma(crossed, right[old], n)
        ends["cbpe_sem"] = mean + np.array([-3.0, 3.0]) * float(right[old].std()) / sqrt(n)
        answers = [found for found, _ in predictive_windows(list(windows), model)]
        ends["predictive"] = np.array([[e.lower, e.upper] for e in answers if isinstance(e, Estimate)])
        for method, (low, high) in ((m, np.clip(e, 0, 1).T) for m, e in ends.items()):
            within = (low - 1e-9 <= truth) & (truth <= high + 1e-9)
            found[method, n] = within.astype(np.float64), high - low
    return found


def laney_sigma(confidence: Floats, right: np.ndarray, n: int) -> float:
    """Standard deviation of the reference's windows in binomial errors; NaN below five windows."""
    many = len(right) // n
    if many < 5:
        return float("nan")
    blocks = confidence[: many * n].reshape(many, n)
    error = right[: many * n].reshape(many, n).sum(axis=1) - blocks.sum(axis=1)
    return float(sqrt((error**2 / np.maximum((blocks * (1 - blocks)).sum(axis=1), 1e-9)).mean()))


def coverage(stream: str, reference: int, lives: int, seed: int = 1) -> dict[tuple[str, int], Cell]:
    """Share of windows covered and mean width, over so many references."""
    found = [one_life(stream, reference, 1000 * seed + i) for i in range(lives)]
    cells = {}
    for key in found[0]:
        within, width = (np.concatenate([life[key][k] for life in found]) for k in (0, 1))
        known = np.isfinite(width)
        many = int(known.sum())
        cells[key] = (
            (float(within[known].mean()), float(width[known].mean()), many) if many else (np.nan, np.nan, 0)
        )
    return cells


def table(lives: int) -> str:
    """All of it as text."""
    lines = [
        "Covered by the 95 % interval, in %, and mean width in points (python -m tests.fidelity.predictive)",
        f"{lives} references a row, each with {FOLLOWING:,} rows to follow; windows of",
        f"{'':38s}" + "".join(f"{n:>16,}" for n in SIZES),
    ]
    for stream in STREAMS:
        for reference in REFERENCES:
            cells = coverage(stream, reference, lives)
            for method in METHODS:
                row = "".join(_cell(cells[method, n]) for n in SIZES)
                lines.append(f"{stream:10s}{reference:>8,}  {method:18s}{row}")
    return "\n".join(lines) + "\n"


def _cell(cell: Cell) -> str:
    share, width, windows = cell
    return f"{'–':>16s}" if not windows else f"{100 * share:9.1f} {100 * width:6.1f}"


def main() -> None:
    """Measure, print, and keep the table."""
    print_and_keep(__doc__, OUTPUT, "references", LIVES, table)


if __name__ == "__main__":
    main()

"""Coverage and width of the predictive interval and of others, on stable and on drifting streams.

    python -m tests.fidelity.predictive [--references 16]

Simulated rows (Kivimäki et al., Table 2) whose logits carry a bias: none, an Ornstein–Uhlenbeck process of
0.3 logits that is forgotten over 2,000 rows, or 1/f noise of 0.3 logits (ten such processes of equal
variance, 100 to 51,200 rows), or a jump by five points downwards at the 6,000th row after the reference. A
reference of N rows in time order, an isotonic calibration on it, and windows from the 20,000 rows that
follow, without labels (`tests.fidelity.streams` has those). The target of an interval is the share of right
answers among the window's own rows. The others are: the exact Poisson binomial; Laney's (± 1.96 binomial
errors of the confidences times the standard deviation of the reference's own windows in such units; – below
five of them); NannyML's band, ± 3 standard errors of the reference's accuracy.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter
from scipy.special import expit, logit

from monitor import CALIBRATORS
from monitor.base.records import Floats, Ints
from monitor.base.results import Estimate, Result
from monitor.stats.calibration.base import confidence_of, cross_fit_in_time
from monitor.stats.estimate.average_confidence import average_confidence_many
from monitor.stats.estimate.predictive import predictive_windows
from monitor.stats.estimate.predictive_fit import fit_predictive
from tests.fidelity.simulated import ORIGINAL, confidences
from tests.fidelity.trust import shift_of
from tests.harness import run

STREAMS = ("stable", "OU drift", "1/f drift", "jump")
SIZES = (100, 500, 2000, 5000)
REFERENCES = (1000, 5000, 40_000)
METHODS = ("poisson_binomial", "laney", "cbpe_sem", "predictive")
FOLLOWING = 20_000
JUMP_AT = 6000
LIVES = 16
_SD = 0.3  # logits

Cell = tuple[float, float, int]
"""Share covered, mean width, windows."""

Measured = dict[tuple[str, int], tuple[Floats, Floats]]


def ornstein_uhlenbeck(rng: np.random.Generator, rows: int, length: float, sd: float) -> Floats:
    """Return a stationary one, forgotten over `length` rows."""
    keep = np.exp(-1 / length)
    noise = rng.normal(scale=sd * sqrt(1 - keep**2), size=rows)
    noise[0] = rng.normal(scale=sd)
    path: Floats = lfilter([1.0], [1.0, -keep], noise)
    return path


def drift(rng: np.random.Generator, stream: str, rows: int) -> Floats:
    """Return the logit bias of each row."""
    if stream == "stable":
        return np.zeros(rows)
    if stream == "OU drift":
        return ornstein_uhlenbeck(rng, rows, 2000.0, _SD)
    lengths = 100.0 * 2.0 ** np.arange(10)
    return np.sum([ornstein_uhlenbeck(rng, rows, k, _SD / sqrt(len(lengths))) for k in lengths], axis=0)


@dataclass(frozen=True, slots=True)
class Life:
    """A reference in time order and the rows that follow it.

    Parameters
    ----------
    scores : (rows, K) float64
    predicted, labels : (rows,) int64
    reference : int
        How many rows come first and are labelled.
    first : int
        Row of the following at which windows begin to be counted.
    """

    scores: Floats
    predicted: Ints
    labels: Ints
    reference: int
    first: int = 0

    @property
    def right(self) -> NDArray[np.bool_]:
        """The truth of each row's answer."""
        right: NDArray[np.bool_] = self.labels == (0 if self.scores.shape[1] == 1 else self.predicted)
        return right


def simulated(stream: str, reference: int, seed: int) -> Life:
    """Return a model whose scores are distorted, on a stream of Table 2 with a bias."""
    rng = np.random.default_rng([seed, reference, STREAMS.index(stream)])
    rows = reference + FOLLOWING
    chance = np.clip(confidences(rng, ORIGINAL, (rows,)), 1e-9, 1 - 1e-9)
    bias = np.zeros(rows) if stream == "jump" else drift(rng, stream, rows)
    if stream == "jump":
        bias[reference + JUMP_AT :] = -shift_of(0.05)
    right = rng.random(rows) < expit(logit(chance) + bias)
    scores, zeros = expit(1.5 * logit(chance) + 0.4)[:, None], np.zeros(rows, dtype=np.int64)
    return Life(scores, zeros, (~right).astype(np.int64), reference)


def measured(life: Life, seed: int, sizes: tuple[int, ...] = SIZES) -> Measured:
    """Return, by method and window size, whether each window was covered, and its width."""
    old, right = slice(0, life.reference), life.right
    rows = life.scores[old], life.predicted[old], life.labels[old]
    calibrator = CALIBRATORS["isotonic"]()
    fitted = calibrator.fit(*rows)
    model = fit_predictive(calibrator, *rows, seed=seed)
    crossed = confidence_of(cross_fit_in_time(calibrator, *rows, folds=5), rows[1])
    confidence = confidence_of(fitted.apply(life.scores), life.predicted)
    new, hits = confidence[life.reference :], right[life.reference :]
    cells = {}
    for n in sizes:
        many = len(new) // n
        windows, truth = new[: many * n].reshape(-1, n), hits[: many * n].reshape(-1, n).mean(axis=1)
        ends = {"poisson_binomial": average_confidence_many(windows)[:, 1:]}
        mean = windows.mean(axis=1)[:, None]
        own = np.sqrt((windows * (1 - windows)).sum(axis=1))[:, None] / n
        ends["laney"] = mean + np.array([-1.96, 1.96]) * own * laney_sigma(crossed, right[old], n)
        ends["cbpe_sem"] = mean + np.array([-3.0, 3.0]) * float(right[old].std()) / sqrt(n)
        acted = list(life.predicted[life.reference :][: many * n].reshape(-1, n))
        answers = predictive_windows(list(windows), model, predicted=acted)
        ends["predictive"] = _ends(interval for interval, _ in answers)
        reported = np.arange(many) * n >= life.first
        for method, (low, high) in ((m, np.clip(e, 0, 1).T[:, reported]) for m, e in ends.items()):
            within = (low - 1e-9 <= truth[reported]) & (truth[reported] <= high + 1e-9)
            cells[method, n] = within.astype(np.float64), high - low
    return cells


def _ends(answers: Iterable[Result]) -> Floats:
    return np.array([[each.lower, each.upper] for each in answers if isinstance(each, Estimate)])


def laney_sigma(confidence: Floats, right: np.ndarray, n: int) -> float:
    """Return standard deviation of the reference's windows in binomial errors; NaN below five windows."""
    many = len(right) // n
    if many < 5:
        return float("nan")
    blocks = confidence[: many * n].reshape(many, n)
    error = right[: many * n].reshape(many, n).sum(axis=1) - blocks.sum(axis=1)
    return float(sqrt((error**2 / np.maximum((blocks * (1 - blocks)).sum(axis=1), 1e-9)).mean()))


def coverage(
    stream: str, reference: int, lives: int, seed: int = 1, sizes: tuple[int, ...] = SIZES
) -> dict[tuple[str, int], Cell]:
    """Return the share of windows covered and the mean width, over `lives` references."""
    seeds = [1000 * seed + i for i in range(lives)]
    return cells_of([measured(simulated(stream, reference, one), one, sizes) for one in seeds])


def cells_of(lives: list[Measured]) -> dict[tuple[str, int], Cell]:
    """Return the cells of several lives together."""
    cells = {}
    for key in lives[0]:
        within, width = (np.concatenate([life[key][k] for life in lives]) for k in (0, 1))
        known = np.isfinite(width)
        many = int(known.sum())
        cells[key] = (
            (float(within[known].mean()), float(width[known].mean()), many) if many else (np.nan, np.nan, 0)
        )
    return cells


def table(references: int = LIVES) -> str:
    """Return all of it as text."""
    lines = [
        "Covered by the 95 % interval, in %, and mean width in points (python -m tests.fidelity.predictive)",
        f"{references} references a row, each with {FOLLOWING:,} rows to follow; windows of",
        f"{'':38s}" + "".join(f"{n:>16,}" for n in SIZES),
    ]
    for stream in STREAMS:
        for reference in REFERENCES:
            lines += rows_of(stream, reference, coverage(stream, reference, references))
    return "\n".join(lines) + "\n"


def rows_of(stream: str, reference: int, cells: dict[tuple[str, int], Cell]) -> list[str]:
    """Return a line a method."""
    return [
        f"{stream:10s}{reference:>8,}  {method:18s}" + "".join(_cell(cells[method, n]) for n in SIZES)
        for method in METHODS
    ]


def _cell(cell: Cell) -> str:
    share, width, windows = cell
    return f"{'–':>16s}" if not windows else f"{100 * share:9.1f} {100 * width:6.1f}"


if __name__ == "__main__":
    run(table)

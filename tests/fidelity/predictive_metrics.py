"""Coverage and width of predictive intervals of every metric, compared with intervals of chance alone.

    python -m tests.fidelity.predictive_metrics [--references 16]

Simulated rows (Kivimäki et al., Table 2, each turned to either class at random) of two classes: a reference
of N rows in time order, an isotonic calibration on it, and windows from the 6,000 rows that follow, without
any labels. The positive class has no bias (stable), or an Ornstein–Uhlenbeck one of 0.3 logits that is
forgotten over 2,000 rows: true prevalence moves, and scores do not show it.

What an interval covers is the metric of the window's own rows and labels. For `ece` and `class_ece`, which
estimate the population's, it is the mean over equal-count bins of the window of |mean raw score − mean true
chance|, so that no label's noise is in it.
"""

from __future__ import annotations

import numpy as np
from scipy.special import expit, logit

from monitor import CALIBRATORS
from monitor.base.records import Floats, Ints
from monitor.base.results import Estimate
from monitor.engine.evaluate import EstimationRequest, evaluate
from monitor.stats.calibration.base import confidence_of
from monitor.stats.estimate.calibration_error import CLASS_ECE_BINS, ECE_BINS
from monitor.stats.estimate.predictive_fit import fit_predictive
from tests.fidelity.metrics_coverage import realised_values
from tests.fidelity.predictive import ornstein_uhlenbeck
from tests.fidelity.simulated import ORIGINAL, confidences
from tests.harness import run

STREAMS = ("stable", "OU drift")
SIZES = (100, 500, 2000)
REFERENCES = (1000, 5000, 40_000)
KINDS = ("exact", "predictive")
METRICS = (
    "accuracy", "precision", "recall", "specificity", "f1", "auroc", "average_precision", "ece", "class_ece",
)  # fmt: skip
FOLLOWING = 6000
LIVES = 16

Seen = dict[tuple[str, str, int], list[tuple[bool, float]]]
"""By kind, metric and window size: whether each window was covered, and the width."""


def rows(rng: np.random.Generator, stream: str, many: int) -> tuple[Floats, Ints, Floats]:
    """Return raw scores (n, 2), labels (n,), true chances of the positive class (n,)."""
    chance = np.clip(confidences(rng, ORIGINAL, (many,)), 1e-9, 1 - 1e-9)
    claimed = np.where(rng.random(many) < 0.5, chance, 1 - chance)
    bias = np.zeros(many) if stream == "stable" else ornstein_uhlenbeck(rng, many, 2000.0, 0.3)
    true = expit(logit(claimed) + bias)
    raw = expit(1.5 * logit(claimed))
    return np.column_stack((1 - raw, raw)), (rng.random(many) < true).astype(np.int64), true


def gap(raw: Floats, true: Floats, bins: int) -> float:
    """Return the calibration error of these rows by their true chances."""
    order = np.argsort(raw, kind="stable")
    edges = np.arange(bins + 1) * len(raw) // bins
    return float(np.abs(np.add.reduceat((raw - true)[order], edges[:-1])).sum()) / len(raw)


def truths(scores: Floats, predicted: Ints, labels: Ints, true: Floats) -> dict[str, float | None]:
    """Return each metric of a window, None where its labels leave it undefined."""
    values = realised_values(scores, predicted, np.column_stack((1 - labels, labels)).astype(np.float64))
    right = np.where(predicted == 1, true, 1 - true)
    values["ece"] = gap(confidence_of(scores, predicted), right, ECE_BINS)
    values["class_ece"] = gap(scores[:, 1], true, CLASS_ECE_BINS)
    return values


def one_life(stream: str, reference: int, seed: int, sizes: tuple[int, ...] = SIZES) -> Seen:
    """Return one reference and the windows that follow it."""
    rng = np.random.default_rng([seed, reference, STREAMS.index(stream)])
    scores, labels, true = rows(rng, stream, reference + FOLLOWING)
    predicted = scores.argmax(axis=1)
    old = slice(0, reference)
    calibrator = CALIBRATORS["isotonic"]()
    fitted = calibrator.fit(scores[old], predicted[old], labels[old])
    model = fit_predictive(calibrator, scores[old], predicted[old], labels[old], seed)
    seen: Seen = {}
    for n in sizes:
        for start in range(reference, reference + FOLLOWING - n + 1, n):
            cut = slice(start, start + n)
            known = truths(scores[cut], predicted[cut], labels[cut], true[cut])
            for kind, used in zip(KINDS, (None, model), strict=True):
                request = EstimationRequest(
                    scores[cut], predicted[cut], fitted.apply(scores[cut]), METRICS, 1, 0.95, start,
                    predictive=used,
                )  # fmt: skip
                [evaluation] = evaluate([request])
                for metric, result in evaluation.estimates.items():
                    value = known[metric]
                    if isinstance(result, Estimate) and value is not None:
                        within = result.lower - 1e-9 <= value <= result.upper + 1e-9
                        cell = seen.setdefault((kind, metric, n), [])
                        cell.append((within, result.upper - result.lower))
    return seen


def coverage(
    stream: str, reference: int, lives: int, seed: int = 1, sizes: tuple[int, ...] = SIZES
) -> dict[tuple[str, str, int], Floats]:
    """Return the share of windows covered and the mean width, over `lives` references."""
    by_key: Seen = {}
    for life in range(lives):
        for key, cells in one_life(stream, reference, 1000 * seed + life, sizes).items():
            by_key.setdefault(key, []).extend(cells)
    return {key: np.array(cells, dtype=np.float64).mean(axis=0) for key, cells in by_key.items()}


def table(references: int = LIVES) -> str:
    """Return all of it as text."""
    windows = ", ".join(f"{references * (FOLLOWING // n):,} of {n:,}" for n in SIZES)
    lines = [
        "Covered by the 95 % interval, in %, and mean width in points "
        "(python -m tests.fidelity.predictive_metrics)",
        f"{references} references a row; windows: {windows} rows",
        f"{'':20s}{'':18s}{'exact':>39s}{'predictive':>39s}",
        f"{'':38s}" + "".join(f"{n:>13,}" for n in SIZES) * 2,
    ]
    for stream in STREAMS:
        for reference in REFERENCES:
            cells = coverage(stream, reference, references)
            for metric in METRICS:
                shown = [cells[kind, metric, n] for kind in KINDS for n in SIZES]
                row = "".join(f"{100 * share:7.1f}{100 * width:6.1f}" for share, width in shown)
                lines.append(f"{stream:10s}{reference:>8,}  {metric:18s}{row}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    run(table)

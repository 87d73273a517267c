"""Coverage of the intervals for three classes and for a confidence threshold, on calibrated simulated data.

    python -m tests.fidelity.classes_coverage [--trials 400]

A row's chances of three classes are drawn from a Dirichlet distribution (50, 45 and 5 % of the rows), its
label from those, and the likeliest class is predicted: as the macro average, as the micro average, and for
the rarest class alone. `threshold` is failure prediction (Kivimäki et al., Table 1): confidences of the
paper's simulated data, those at or above 0.9 taken for correct. The columns are those of
`tests.fidelity.metrics_coverage`. A macro average has no exact distribution: its 95 % is the level of the
interval. Where a class may leave a metric undefined, the mean is over the others, in the draws as in the
realised values. Last, the counts of the confusion matrix of the three classes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import ceil, floor, nan
from typing import Any

import numpy as np

from monitor import CLASSIFICATION_METRICS, PoissonBinomial, classification_details, confusion_intervals
from monitor.base.records import Floats, Ints
from monitor.base.results import Estimate
from monitor.stats.estimate.ranking import Ranking
from tests.fidelity.metrics_coverage import SIZES, Row, judged, means, realised_values, row_text
from tests.fidelity.simulated import ORIGINAL, confidences, outcomes
from tests.harness import run

SHARES = np.array([0.50, 0.45, 0.05])
THRESHOLD = 0.9
TRIALS = 400
_REFERENCE_ROWS = 10_000

Window = tuple[Floats, Ints, Floats]
"""Scores (n, K), predicted classes (n,), and certain scores of the labels (n, K)."""

Values = dict[str, float | None]


def three_classes(rng: np.random.Generator, n: int) -> Window:
    """Return rows that are right by design."""
    chance = rng.dirichlet(SHARES, n)
    label = (rng.random((n, 1)) > np.cumsum(chance, axis=1)[:, :2]).sum(axis=1)
    return chance, chance.argmax(axis=1), np.eye(3)[label]


def taken_for_correct(rng: np.random.Generator, n: int) -> Window:
    """Return confidences as a model of two classes, of which the second is "was right"."""
    confidence = confidences(rng, ORIGINAL, (n,))
    right = outcomes(rng, confidence)
    scores, truth = (np.column_stack([1 - each, each]) for each in (confidence, right))
    return scores, (confidence >= THRESHOLD).astype(np.int64), truth


def one_against_others(window: Window, k: int) -> Values:
    """Return the realised metrics of one class."""
    scores, predicted, truth = (np.asarray(each) for each in window)
    pair = [np.column_stack([1 - each[:, k], each[:, k]]) for each in (scores, truth)]
    values = realised_values(pair[0], (predicted == k).astype(np.int64), pair[1])
    return {**values, "accuracy": _accuracy(window)}


def macro(window: Window) -> Values:
    """Return the mean over the classes for which a metric is defined."""
    by_class = [one_against_others(window, k) for k in range(3)]
    values: Values = {}
    for metric in CLASSIFICATION_METRICS:
        known = [each for values_of in by_class if (each := values_of[metric]) is not None]
        values[metric] = float(np.mean(known)) if known else None
    return values


def micro(window: Window) -> Values:
    """Return all (row, class) pairs at once."""
    scores, _, truth = window
    right, ranking = _accuracy(window), Ranking.from_scores(scores.ravel())
    return {
        **dict.fromkeys(("accuracy", "precision", "recall", "f1"), right),
        "specificity": 1 - (1 - right) / (scores.shape[1] - 1),
        "auroc": ranking.auroc(truth.ravel())[0],
        "average_precision": ranking.average_precision(truth.ravel())[0],
    }


def _accuracy(window: Window) -> float:
    _, predicted, truth = window
    return float(truth[np.arange(len(predicted)), predicted].mean())


@dataclass(frozen=True)
class Case:
    """A way to draw a window, the options of its estimates, and its realised values."""

    draw: Callable[[np.random.Generator, int], Window]
    options: Mapping[str, Any]
    realised: Callable[[Window], Values]


CASES: Mapping[str, Case] = {
    "macro": Case(three_classes, {"average": "macro"}, macro),
    "micro": Case(three_classes, {"average": "micro"}, micro),
    "rarest": Case(three_classes, {"positive": 2}, lambda window: one_against_others(window, 2)),
    "threshold": Case(taken_for_correct, {}, lambda window: realised_values(*window)),
}


def measure(name: str, n: int, trials: int, seed: int = 1) -> list[Row]:
    """Return every metric of a case over independent windows of n rows."""
    case, rng = CASES[name], np.random.default_rng([seed, n, list(CASES).index(name)])
    scores, predicted, truth = case.draw(rng, _REFERENCE_ROWS)
    spread = classification_details(truth, predicted, CLASSIFICATION_METRICS, ranking=scores, **case.options)
    counts = {metric: [0, 0] for metric in CLASSIFICATION_METRICS}
    kept: dict[str, list[tuple[float, ...]]] = {metric: [] for metric in CLASSIFICATION_METRICS}
    for trial in range(trials):
        window = case.draw(rng, n)
        details = classification_details(*window[:2], CLASSIFICATION_METRICS, seed=trial, **case.options)
        for metric, realised in case.realised(window).items():
            estimate = details[metric].result
            counts[metric][0] += realised is None
            counts[metric][1] += not isinstance(estimate, Estimate)
            if realised is not None and isinstance(estimate, Estimate):
                kept[metric].append(judged(details[metric], estimate, realised, spread[metric].row_sd or nan))
    return [Row(m, n, nan, trials, len(rows), *means(rows), *counts[m]) for m, rows in kept.items()]


def confusion_counts(n: int, trials: int, seed: int = 1) -> Floats:
    """Return, for the confusion matrix of three classes (3, 3, 3): share covered, exact mass, mean width in
    rows.
    """
    rng = np.random.default_rng([seed, n, 99])
    total = np.zeros((3, 3, 3))
    for _ in range(trials):
        scores, predicted, truth = three_classes(rng, n)
        ends = confusion_intervals(scores, predicted)[..., 1:]
        for k in range(3):
            acted = predicted == k
            for i, count in enumerate(truth[acted].sum(axis=0).tolist()):
                low, high = ends[i, k].tolist()
                mass = PoissonBinomial(scores[acted, i]).pmf[ceil(low) : floor(high) + 1].sum()
                total[i, k] += low <= count <= high, mass, high - low
    return total / trials


def confusion_table(trials: int) -> str:
    """Return the confusion matrix, a line a count; widths in rows."""
    lines = [
        f"{'confusion matrix':16s} {'n':>5s} {'true, predicted':16s} {'cover':>6s} {'mass':>6s} {'width':>6s}"
    ]
    for n in SIZES:
        counts = confusion_counts(n, trials)
        for i, k in np.ndindex(3, 3):
            cover, mass, width = counts[i, k].tolist()
            lines.append(
                f"{'':16s} {n:5d} {f'{i}, {k}':16s} {100 * cover:6.2f} {100 * mass:6.2f} {width:6.1f}"
            )
    return "\n".join(lines) + "\n"


def table(trials: int = TRIALS) -> str:
    """Return all cases as text, in percent."""
    lines = [
        f"Coverage in % of 95 % intervals without labels, {trials:,} windows each "
        "(python -m tests.fidelity.classes_coverage)",
        f"{'case':9s} {'n':>5s} {'metric':18s} {'cover':>6s} {'mass':>6s} {'±3 err':>6s} {'sem':>6s} "
        f"{'width':>6s} {'sem width':>9s} {'undef':>6s} {'unknown':>7s}",
    ]
    for name in CASES:
        lines += [f"{name:9s} {row_text(row)}" for n in SIZES for row in measure(name, n, trials)]
    return "\n".join(lines) + "\n" + confusion_table(trials)


if __name__ == "__main__":
    run(table)

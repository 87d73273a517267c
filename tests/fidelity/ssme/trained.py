"""The cases in which `ssme` is worse than the simple answers: sets of trained classifiers (`trained_sets`).

The simple answers are the mean of the classifiers (`ensemble`) and the labelled rows alone (`labelled`). Each
draw has its own classifiers, its own rows and its own truth; a row of the table is the mean over its draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from monitor import ESTIMATORS
from monitor.base.records import Floats
from monitor.stats.labelled.metrics import METRICS
from tests.fidelity.ssme.compare import SHOWN, answers, known_mean, looked_up, shared_out
from tests.fidelity.ssme.trained_sets import SETS, UNLABELLED, Split, TrainedSet

TAGS = ("ssme", "ensemble", "labelled")
LABELS = (20, 50, 100)
AIMS = {"accuracy": 0.2, "class_ece": 0.3, "auroc": 0.3, "average_precision": 0.05}
"""How much worse than the better simple answer a row may be: points; of average precision, a share."""
_SHOWN_AT = [METRICS.index(metric) for metric in SHOWN]


@dataclass(frozen=True)
class Row:
    """One set at one number of labels.

    Parameters
    ----------
    name : str
    special : bool
        See `TrainedSet`.
    labels : int
    said : (draws, len(TAGS), len(SHOWN), M, 3) float64
        Values with the ends of their intervals; NaN where unknown.
    truth : (draws, len(SHOWN), M) float64
    """

    name: str
    special: bool
    labels: int
    estimates: Floats
    truth: Floats

    def errors(self, metric: str) -> Floats:
        """Return (draws, len(TAGS)) mean absolute error over the models, in points."""
        at = SHOWN.index(metric)
        off = np.abs(self.estimates[:, :, at, :, 0] - self.truth[:, None, at])
        return 100.0 * known_mean(off, axis=2)

    def error(self, metric: str) -> Floats:
        """Return (len(TAGS),) mean over the draws."""
        return known_mean(self.errors(metric), axis=0)

    def over(self, metric: str) -> tuple[float, float]:
        """Return by how much `ssme` is worse than the better simple answer, and its standard error."""
        errors = self.errors(metric)
        mean = known_mean(errors, axis=0)
        better = 1 + int(np.nanargmin(mean[1:]))
        gaps = errors[:, 0] - errors[:, better]
        gaps = gaps[~np.isnan(gaps)]
        deviation = float(gaps.std(ddof=1)) / len(gaps) ** 0.5 if len(gaps) > 1 else 0.0
        return float(mean[0] - mean[better]), deviation

    def allowed(self, metric: str) -> float:
        """Return the most that `over` may be, in points."""
        if metric != "average_precision":
            return AIMS[metric]
        return 100.0 * AIMS[metric] * float(np.nanmean(self.truth[:, SHOWN.index(metric)]))

    def coverage(self, tag: str, metric: str) -> float:
        """Return share of intervals, in %, that hold the truth."""
        ends = self.estimates[:, TAGS.index(tag), SHOWN.index(metric), :, 1:]
        truth = self.truth[:, SHOWN.index(metric)]
        inside = (ends[..., 0] <= truth) & (truth <= ends[..., 1])
        return 100.0 * float(known_mean(np.where(np.isnan(ends[..., 0]), np.nan, inside), axis=None))

    def width(self, tag: str, metric: str) -> float:
        """Return mean width of the intervals, in points."""
        ends = self.estimates[:, TAGS.index(tag), SHOWN.index(metric), :, 1:]
        return 100.0 * float(known_mean(ends[..., 1] - ends[..., 0], axis=None))


def measured(
    sets: Sequence[TrainedSet],
    split: Split,
    labels: Sequence[int],
    runs: int,
    kept: Path | None = None,
    processes: int = 1,
) -> list[Row]:
    """Return all rows of some sets.

    Parameters
    ----------
    sets : sequence of TrainedSet
    split : str
    labels : sequence of int
    runs : int
        Draws of each set.
    kept : Path, optional
        A folder of results: a draw is looked up there before it is measured, and kept there.
    processes : int
        That share the draws.
    """
    jobs = [(SETS.index(one), split, draw, tuple(labels), kept) for one in sets for draw in range(runs)]
    draws = shared_out(_measured_draw, jobs, processes)
    rows = []
    for at, one in enumerate(sets):
        estimates, truth = zip(*draws[at * runs : (at + 1) * runs], strict=True)
        rows += [
            Row(one.name, one.special, count, np.stack(estimates)[:, place], np.stack(truth))
            for place, count in enumerate(labels)
        ]
    return rows


def _measured_draw(
    at: int, split: Split, draw: int, labels: tuple[int, ...], kept: Path | None
) -> tuple[Floats, Floats]:
    """Return (labels, len(TAGS), len(SHOWN), M, 3) answers and the (len(SHOWN), M) truth of one draw."""
    work = partial(_estimates, SETS[at], split, draw, labels)
    counts = "-".join(map(str, labels))
    return work() if kept is None else looked_up(kept / f"{split}-{SETS[at].name}-{draw}-{counts}.npz", work)


def _estimates(one: TrainedSet, split: Split, draw: int, labels: tuple[int, ...]) -> tuple[Floats, Floats]:
    sample = one.draw(split, draw)
    models = range(sample.scores.shape[1])
    estimates = []
    for count in labels:
        scores = sample.scores[: count + UNLABELLED]
        known_labels = np.where(np.arange(len(scores)) < count, sample.labels[: len(scores)], -1)
        fits = [ESTIMATORS[tag](seed=draw).fit(scores, known_labels) for tag in TAGS]
        estimates.append(np.stack([answers(fit, models, True, SHOWN)[_SHOWN_AT] for fit in fits]))
    return np.stack(estimates), sample.truth[_SHOWN_AT]


def table(rows: Sequence[Row], runs: int) -> str:
    """Return all rows, metric by metric, and the rows over the aims."""
    parts = [
        f"Sets of trained classifiers, {runs} draws each, {UNLABELLED:,} unlabelled rows: mean absolute\n"
        "error in points. Over: by how much ssme is worse than the better simple answer ± its standard\n"
        "error over draws, ! above the aim. Intervals of 95 %: coverage in % / mean width in points.\n"
    ]
    for metric in SHOWN:
        for special in (False, True):
            chosen = [row for row in rows if row.special is special]
            if chosen:
                parts.append(_of_metric(chosen, metric, special))
    return "\n".join(parts)


def _of_metric(rows: Sequence[Row], metric: str, special: bool) -> str:
    lines = [
        f"{metric}{', one model or models without a voice' if special else ''}",
        f"{'set':44s}{'labels':>7s}{'ssme':>8s}{'mean':>8s}{'labelled':>9s}{'over':>16s}"
        f"{'ssme':>15s}{'labelled':>15s}",
    ]
    for count in sorted({row.labels for row in rows}):
        chosen = [row for row in rows if row.labels == count]
        lines += [_line(row.name, [row], metric, _over(row, metric)) for row in chosen]
        lines.append(_line("mean of these rows", chosen, metric))
    return "\n".join(lines) + "\n"


def _line(name: str, rows: Sequence[Row], metric: str, over: str = "") -> str:
    """Return means over rows of one number of labels."""
    ours, mean, labelled = np.mean([row.error(metric) for row in rows], axis=0)
    spans = "".join(
        f"{np.mean([row.coverage(tag, metric) for row in rows]):8.1f} / "
        f"{np.mean([row.width(tag, metric) for row in rows]):4.1f}"
        for tag in ("ssme", "labelled")
    )
    return f"{name:44s}{rows[0].labels:7d}{ours:8.2f}{mean:8.2f}{labelled:9.2f}{over:16s}{spans}"


def _over(row: Row, metric: str) -> str:
    over, deviation = row.over(metric)
    mark = "!" if over > row.allowed(metric) and not row.special else " "
    return f"{over:+8.2f} ± {deviation:4.2f}{mark}"

"""AutoEval on the toxicity task: coverage, width and effective labels by annotator; covariate shift.

    python -m tests.fidelity.autoeval [--trials 400]

Rows are a permutation of `../shared/data/civilcomments.npz` (7 models), the truth is a model's accuracy over
all of them. Each trial labels n rows at random and takes 2,000 others without labels; the first model is
judged. Annotators: the model itself, the mean of all, their mean mixed with coin flips, and none.

* `normal`: (5) with its square root, as `ppi-python` has it; `Wilson`: the interval of `autoeval` here;
* `effective`: (mean width of the classical normal interval / that of this one)², times n.

The second table is as the paper's Table S1, at level 0.9: labelled rows are picked with a chance that grows
with the model's score, so that its accuracy among them is another. Weights as known, and estimated from the
scores by `shift_weights`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import sqrt
from pathlib import Path

import numpy as np

from monitor.labels.estimators.powered import powered_share
from monitor.labels.estimators.ppi import prediction_powered
from monitor.labels.estimators.shift import shift_weights
from monitor.records import Floats
from tests.fidelity.command import print_and_keep
from tests.fidelity.ssme.civilcomments import DATA

OUTPUT = Path(__file__).parent / "output" / "autoeval.txt"
LABELS = (20, 50, 100, 500)
FRESH = 2000
ANNOTATORS = ("model itself", "mean of models", "mixed with noise", "noise")
PAPER_S1 = {50: (50.4, 91.3), 100: (37.8, 92.0), 200: (24.4, 91.8), 300: (19.9, 93.8), 500: (15.7, 93.2)}
"""The paper's Table S1 (ImageNet): coverage in % of 90 % intervals, unweighted and reweighted."""


@cache
def table() -> tuple[Floats, Floats]:
    """Scores (rows, 7) of the positive class, and whether the first model is right (rows,)."""
    with np.load(DATA) as file:
        score, label = file["score"][:, :7].astype(np.float64), file["label"]
    order = np.random.default_rng(20_261).permutation(len(label))
    right = (score[order, 0] >= 0.5) == (label[order] == 1)
    return score[order], right.astype(np.float64)


def guess(annotator: str, score: Floats, rng: np.random.Generator) -> Floats:
    """The annotator's chance that the first model is right."""
    positive = {"model itself": score[:, 0], "mean of models": score.mean(axis=1)}.get(annotator)
    if positive is None:
        noise = rng.random(len(score))
        positive = noise if annotator == "noise" else 0.5 * (score.mean(axis=1) + noise)
    found: Floats = np.where(score[:, 0] >= 0.5, positive, 1 - positive)
    return found


@dataclass(frozen=True)
class Row:
    """One line; shares from 0 to 1."""

    annotator: str
    labels: int
    trials: int
    lam: float
    normal: float
    wilson: float
    width: float
    effective: float

    @property
    def allowed(self) -> float:
        """Three binomial errors of the trials around 95 %."""
        return 3 * sqrt(0.95 * 0.05 / self.trials)


def measure(annotator: str, labels: int, trials: int, seed: int = 1) -> Row:
    """Coverage of 95 % intervals over random labels."""
    score, right = table()
    truth, sums = right.mean(), np.zeros(5)
    for trial in range(trials):
        rng = np.random.default_rng([seed, labels, ANNOTATORS.index(annotator), trial])
        rows = rng.choice(len(right), labels + FRESH, replace=False)
        expected = guess(annotator, score[rows], rng)
        known, own, fresh = right[rows[:labels]], expected[:labels], expected[labels:]
        found = prediction_powered(known, own, fresh)
        low, high = found.interval(0.95)[0]
        ours = powered_share(known, own, fresh, None, None, 0.95)
        variance = float(found.covariance[0, 0])
        held = ours.lower <= truth <= ours.upper
        sums += (found.lam[0], low <= truth <= high, held, ours.upper - ours.lower, variance)
    lam, normal, wilson, width, variance = sums / trials
    effective = truth * (1 - truth) * (1 - 1 / labels) / variance
    return Row(annotator, labels, trials, lam, normal, wilson, width, effective)


@dataclass(frozen=True)
class Shift:
    """One line of the second table; coverage from 0 to 1 of 90 % intervals."""

    labels: int
    trials: int
    unweighted: float
    known: float
    estimated: float


def measure_shift(labels: int, trials: int, seed: int = 2) -> Shift:
    """Labels where the first model's score is high: density ∝ 0.02 + score."""
    score, right = table()
    truth, held = right.mean(), np.zeros(3)
    density = 0.02 + score[:, 0]
    for trial in range(trials):
        rng = np.random.default_rng([seed, labels, trial])
        picked = rng.choice(len(right), labels, p=density / density.sum())
        fresh = rng.choice(len(right), FRESH)
        expected = guess("mean of models", score, rng)
        estimated = shift_weights(score[picked, 0], score[fresh, 0])
        for at, w in enumerate((None, 1 / density[picked], estimated)):
            found = prediction_powered(right[picked], expected[picked], expected[fresh], weights=w)
            low, high = found.interval(0.9)[0]
            held[at] += low <= truth <= high
    return Shift(labels, trials, *(held / trials).tolist())


def text(rows: list[Row], shifts: list[Shift]) -> str:
    """Both tables, in percent."""
    lines = [
        f"civilcomments, accuracy of one model, {rows[0].trials:,} trials, coverage in % of 95 % intervals "
        f"±{100 * rows[0].allowed:.1f} (python -m tests.fidelity.autoeval)",
        f"{'annotator':17s} {'labels':>6s} {'lambda':>6s} {'normal':>6s} {'Wilson':>6s} {'width':>6s} "
        f"{'effective':>9s}",
    ]
    lines += [
        f"{r.annotator:17s} {r.labels:6d} {r.lam:6.2f} {100 * r.normal:6.1f} {100 * r.wilson:6.1f} "
        f"{100 * r.width:6.1f} {r.effective:9.0f}"
        for r in rows
    ]
    lines += [
        "",
        "Covariate shift, coverage in % of 90 % intervals beside the paper's Table S1 (its data: ImageNet)",
        f"{'labels':>6s} {'unweighted':>10s} {'(paper)':>8s} {'weighted':>9s} {'(paper)':>8s} "
        f"{'estimated':>9s}",
    ]
    lines += [
        f"{s.labels:6d} {100 * s.unweighted:10.1f} {PAPER_S1[s.labels][0]:8.1f} {100 * s.known:9.1f} "
        f"{PAPER_S1[s.labels][1]:8.1f} {100 * s.estimated:9.1f}"
        for s in shifts
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, print, and keep the tables."""
    print_and_keep(
        __doc__,
        OUTPUT,
        "trials",
        400,
        lambda trials: text(
            [measure(annotator, n, trials) for annotator in ANNOTATORS for n in LABELS],
            [measure_shift(n, trials) for n in PAPER_S1],
        ),
    )


if __name__ == "__main__":
    main()

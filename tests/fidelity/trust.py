"""The test of trust beside a confidence sequence and CUSUM: false alarms, and labels until an alarm.

    python -m tests.fidelity.trust [--lives 300]

Simulated rows (Kivimäki et al., Table 2), in lives of 2,500 labels that are wrong from the first on, from
the 1,000th on, or not at all. First with exact confidences and ε = 0, so that three tests can be
compared: the e-process; a confidence sequence for the mean of (right − c), whose boundary is Robbins'
normal mixture at α = 0.05, tightest near 500 labels, alarming where it leaves out 0 (it takes the errors
for normal with their own variance, which they are not: its promise is not exact); and CUSUM of the same
in both directions, with half of five points as its reference value and a threshold set by simulation so
that 4 % of lives without a bias alarm. Then as the agent does it: an isotonic calibration fitted on a
reference of 1,000, 5,000 or 40,000 rows of a model whose scores are distorted, and ε from there; without
a bias the lives are 10,000 labels, four times as many as H.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import log, sqrt

import numpy as np
from scipy.special import expit, logit

from monitor import CALIBRATORS
from monitor.base.records import Floats
from monitor.engine.labels.trust import PLANNED_LABELS, TrustTest, epsilon_of
from tests.fidelity.simulated import ORIGINAL, confidences
from tests.harness import run

BIASES = (0.0, 0.02, 0.05, 0.10)
REFERENCES = (1000, 5000, 40_000)
LONG = 4 * PLANNED_LABELS
LATE = 1000
LIVES = 300

Alarm = Callable[[Floats, Floats], int | None]
"""Of confidences and outcomes (0 or 1): after how many labels it alarms."""


def life(rng: np.random.Generator, bias: float, labels: int, since: int = 0) -> tuple[Floats, Floats]:
    """Return claimed chances, and outcomes whose chance is, from `since` on, `bias` logits less."""
    announced = confidences(rng, ORIGINAL, (labels,))
    shift = np.where(np.arange(labels) < since, 0.0, shift_of(bias))
    return announced, (rng.random(labels) < expit(logit(announced) - shift)).astype(np.float64)


@lru_cache
def shift_of(bias: float) -> float:
    """Logits by which the simulated confidences must fall for the accuracy to fall by `bias`."""
    sample = confidences(np.random.default_rng(0), ORIGINAL, (20_000,))
    low, high = 0.0, 5.0
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (
            (middle, high) if (sample - expit(logit(sample) - middle)).mean() < bias else (low, middle)
        )
    return low


def e_process(announced: Floats, right: Floats, epsilon: float = 0.0, step: int = 10) -> int | None:
    """Ours, looked at every ten labels."""
    test, hits = TrustTest(epsilon), right > 0.5
    windows = np.zeros(len(right), dtype=np.int64)
    for start in range(0, len(right), step):
        piece = slice(start, start + step)
        test.add(windows[piece], announced[piece], hits[piece])
        if not test.trusted:
            return start + step
    return None


def confidence_sequence(announced: Floats, right: Floats, tightest_at: int = 500) -> int | None:
    """Robbins' normal mixture for sub-Gaussian sums, by the rows' own variance."""
    total = np.cumsum(right - announced)
    spread = np.cumsum(announced * (1 - announced))
    mixing = tightest_at * float(spread[-1] / len(spread)) / 9.0  # near the optimum at α = 0.05
    return _first(
        np.abs(total) > np.sqrt((spread + mixing) * (2 * log(1 / 0.05) + np.log1p(spread / mixing)))
    )


def cusum(threshold: float) -> Alarm:
    """Page's in both directions, of (right − c) with half of five points as reference value."""

    def alarm(announced: Floats, right: Floats) -> int | None:
        return _first(_cusum_path(announced, right) > threshold)

    return alarm


def _cusum_path(announced: Floats, right: Floats) -> Floats:
    error = right - announced
    paths = []
    for sign in (1.0, -1.0):
        walk = np.cumsum(sign * error - 0.025)
        paths.append(walk - np.minimum.accumulate(np.minimum(walk, 0.0)))
    path: Floats = np.maximum(*paths)
    return path


def cusum_threshold(lives: int, share: float = 0.04) -> float:
    """Return by simulation the threshold that this share of lives without a bias passes."""
    peaks = [
        _cusum_path(*life(np.random.default_rng([i, 77]), 0.0, PLANNED_LABELS)).max() for i in range(lives)
    ]
    return float(np.quantile(peaks, 1 - share))


def _first(alarms: np.ndarray) -> int | None:
    return int(alarms.argmax()) + 1 if alarms.any() else None


def alarms(
    alarm: Alarm, bias: float, lives: int, seed: int = 1, since: int = 0
) -> tuple[float, float | None]:
    """Share of lives with an alarm after `since`, and the median of labels from there on among those."""
    alarmed_at = [
        alarm(*life(np.random.default_rng([i, seed]), bias, PLANNED_LABELS, since)) for i in range(lives)
    ]
    known = [at - since for at in alarmed_at if at is not None and at > since]
    return len(known) / lives, float(np.median(known)) if known else None


def calibrated_alarms(
    rows: int, bias: float, lives: int, labels: int = PLANNED_LABELS, seed: int = 2
) -> tuple[float, float, float | None]:
    """Share of lives with an alarm within 2,500 labels and in all, and the median until it."""
    alarmed_at = []
    for i in range(lives):
        rng = np.random.default_rng([i, seed, rows])
        truth = confidences(rng, ORIGINAL, (rows,))
        wrong = (rng.random(rows) >= truth).astype(np.int64)
        fitted = CALIBRATORS["isotonic"]().fit(_distorted(truth), np.zeros(rows, dtype=np.int64), wrong)
        epsilon = epsilon_of(fitted.apply(_distorted(truth))[:, 0])
        chance, right = life(rng, bias, labels)
        alarmed_at.append(e_process(fitted.apply(_distorted(chance))[:, 0], right, epsilon, step=50))
    known = [at for at in alarmed_at if at is not None]
    early = sum(at <= PLANNED_LABELS for at in known) / lives
    return early, len(known) / lives, float(np.median(known)) if known else None


def _distorted(chance: Floats) -> Floats:
    inside = np.clip(chance, 1e-9, 1 - 1e-9)
    distorted: Floats = expit(1.5 * logit(inside) + 0.4)[:, None]
    return distorted


def _cell(share: float, median: float | None) -> str:
    return f"{100 * share:6.1f} % {'–' if median is None else f'{median:,.0f}':>6s}"


def table(lives: int = LIVES) -> str:
    """Return all of it as text."""
    few = max(lives // 3, 1)
    head = "".join(f"{'no bias' if not b else f'{100 * b:.0f} points':>15s}" for b in BIASES)
    error, error_of_few = (200 * sqrt(0.05 * 0.95 / many) for many in (lives, few))
    lines = [
        "Lives that alarm, and the median of labels until then (python -m tests.fidelity.trust)",
        f"{lives} lives of {PLANNED_LABELS:,} labels a cell; two binomial errors at 5 %: {error:.1f} points "
        f"({error_of_few:.1f} of {few})",
        f"{'exact confidences, ε = 0':28s}{head}",
    ]
    rivals: Sequence[tuple[str, Alarm]] = (
        ("e-process", e_process),
        ("confidence sequence", confidence_sequence),
        ("CUSUM", cusum(cusum_threshold(10 * lives))),
    )
    for name, alarm in rivals:
        lines.append(f"{name:28s}" + "".join(f"{_cell(*alarms(alarm, b, lives)):>15s}" for b in BIASES))
        late = "".join(f"{_cell(*alarms(alarm, b, lives, since=LATE)):>15s}" for b in BIASES[1:])
        lines.append(f"{f'  wrong from {LATE:,} on':43s}" + late)
    lines.append(f"{'isotonic on a reference of':28s}{head}   no bias, {LONG:,} labels")
    for rows in REFERENCES:
        own = lives if rows < 10_000 else few
        cells = [calibrated_alarms(rows, b, own) for b in BIASES]
        _, ever, _ = calibrated_alarms(rows, 0.0, few, LONG)
        lines.append(
            f"{f'{rows:,} rows ({own} lives)':28s}"
            + "".join(f"{_cell(share, median):>15s}" for _, share, median in cells)
            + f"{100 * ever:16.1f} % of {few} lives"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    run(table)

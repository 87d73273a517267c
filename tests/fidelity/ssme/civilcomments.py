"""The SSME paper's toxicity task: its protocol on its own predictions, beside its printed row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from tests.fidelity.ssme.compare import FLOOR, SHOWN, Measured, measure
from tests.fidelity.ssme.protocol import Pool
from tests.fidelity.ssme.scores_file import read_scores

NAMES = ("CORAL", "ERM", "IRM", "ERM_seed1", "ERM_seed2", "IRM_seed1", "IRM_seed2")
"""The models of the paper: the first columns of the file."""
MODELS = len(NAMES)
LABELS = (20, 50, 100)
PERMUTATION_SEED = 20_261

PAPER: Mapping[int, tuple[tuple[float, float], ...]] = {
    20: ((2.34, 0.52), (2.35, 0.46), (3.34, 0.82), (10.89, 3.14)),
    50: ((2.22, 0.47), (2.26, 0.44), (3.15, 0.66), (9.91, 3.06)),
    100: ((2.14, 0.54), (2.19, 0.53), (3.09, 0.81), (9.88, 3.51)),
}
"""SSME-KDE's mean absolute error ± standard deviation in points, in the order of `SHOWN` (Shanmugam et
al., Tables 1, S3, S4, S5, "Toxicity Detection")."""


def pool(half: Literal["development", "reporting"], models: int = MODELS) -> Pool:
    """Return one half of the rows. Settings are chosen on the first; tables come from the second.

    The file is ordered (its halves are 14.2 % and 8.6 % positive), so it is permuted before it is cut.
    """
    score, label = read_scores(models)
    order = np.random.default_rng(PERMUTATION_SEED).permutation(len(label))
    middle = len(order) // 2
    rows = order[:middle] if half == "development" else order[middle:]
    return Pool("civilcomments", np.stack([1.0 - score[rows], score[rows]], axis=2), label[rows])


def measured(
    half: Pool, tags: Sequence[str], labels: Sequence[int], runs: int, kept: Path | None = None
) -> Mapping[int, Mapping[str, Measured]]:
    """Return all estimators at each number of labels; `kept` as in `measure`."""
    return {count: measure(half, tags, count, runs, kept=kept) for count in labels}


def error_table(by_count: Mapping[int, Mapping[str, Measured]], runs: int) -> str:
    """Return mean absolute errors in points, beside the paper's row."""
    lines = [
        f"civilcomments, {MODELS} models, 1,000 unlabelled rows: mean absolute error in points ± its "
        f"standard deviation over {runs} runs",
        f"{'labels':>6s} {'estimator':14s}" + "".join(f"{name:>19s}" for name in SHOWN),
    ]
    for count, by_tag in by_count.items():
        if count in PAPER:
            cells = "".join(f"{mean:11.2f} ± {sd:5.2f}" for mean, sd in PAPER[count])
            lines.append(f"{count:6d} {'paper (print)':14s}{cells}")
        for tag, one in by_tag.items():
            errors = [100 * one.mean_error(metric) for metric in SHOWN]
            cells = "".join(f"{e.mean():11.2f} ± {e.std(ddof=min(1, runs - 1)):5.2f}" for e in errors)
            lines.append(f"{count:6d} {tag:14s}{cells}")
    return "\n".join(lines) + "\n"


def interval_table(by_count: Mapping[int, Mapping[str, Measured]], metrics: Sequence[str]) -> str:
    """Return coverage of 95 % intervals in %, and their mean width in points."""
    lines = [
        "Coverage in % of 95 % intervals / their mean width in points, over runs and models",
        f"{'labels':>6s} {'estimator':14s}" + "".join(f"{name:>18s}" for name in metrics),
    ]
    for count, by_tag in by_count.items():
        for tag, one in by_tag.items():
            if tag == FLOOR:
                continue
            cells = "".join(
                f"{100 * one.coverage(metric):10.0f} / {100 * one.mean_width(metric):5.1f}"
                for metric in metrics
            )
            lines.append(f"{count:6d} {tag:14s}{cells}")
    return "\n".join(lines) + "\n"

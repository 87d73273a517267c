"""Speed of the metrics from confidences, each compared with the accuracy alone, in the same run.

    python -m tests.bench.bench_metrics

A time is the best of several rounds, so that other work on the machine counts less. Twenty windows are
computed together, as when they close together; the accuracy that they are compared with is of one. AUROC,
average precision and means over three classes are by theory, the rest is exact. `drawn` is a window that
expects ten positives of 500: its labels are drawn; of 2,000, forty: by theory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from monitor import average_confidence, classification_details_many
from monitor.base.records import Floats
from tests.harness import best, run

EXACT = ("accuracy", "precision", "recall", "specificity", "f1")
ROWS: tuple[tuple[str, Sequence[str]], ...] = (
    *((metric, (metric,)) for metric in EXACT),
    ("all five exact ones", EXACT),
    ("auroc", ("auroc",)),
    ("average_precision", ("average_precision",)),
)


WINDOWS = 20


def table() -> Iterator[str]:
    """Yield a line a metric."""
    yield (
        f"Time of a window of 500 and of 2,000 rows, {WINDOWS} together, in milliseconds and as a multiple "
        "of average_confidence of the rows of one (python -m tests.bench.bench_metrics)"
    )
    yield f"{'metric':40s} {'500':>8s} {'ratio':>7s} {'2,000':>8s} {'ratio':>7s}"
    for width in (2, 3):
        for name, metrics in ROWS:
            yield line(name + (", mean of 3 classes" if width == 3 else ""), metrics, np.full(width, 0.4))
    for metric in ("auroc", "average_precision"):
        yield line(f"{metric}, drawn", (metric,), np.array([2.94, 0.06]))


def line(name: str, metrics: Sequence[str], shares: Floats) -> str:
    """Return a metric of rows whose chances of the classes are drawn from a Dirichlet distribution."""
    cells = ""
    for n in (500, 2000):
        scores = np.random.default_rng(n).dirichlet(shares, (WINDOWS, n))
        predicted, confidence = scores.argmax(axis=2), scores[0].max(axis=1)
        alone = best(lambda c=confidence: average_confidence(c), 20)  # type: ignore[misc]
        seconds = best(
            lambda s=scores, p=predicted: classification_details_many(s, p, metrics),  # type: ignore[misc]
            2,
        )
        cells += f" {1e3 * seconds / WINDOWS:8.2f} {seconds / WINDOWS / alone:7.1f}"
    return f"{name:40s}{cells}"


if __name__ == "__main__":
    run(table, keep=False)

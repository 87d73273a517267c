"""Speed of the metrics from confidences, each compared with the accuracy alone, in the same run.

    python -m tests.bench.bench_metrics

A time is the best of several rounds, so that other work on the machine counts less. AUROC, average precision
and means over three classes draw 1,000 labellings; the rest is exact.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from monitor import average_confidence, classification_details
from tests.harness import best, run

EXACT = ("accuracy", "precision", "recall", "specificity", "f1")
ROWS: tuple[tuple[str, Sequence[str]], ...] = (
    *((metric, (metric,)) for metric in EXACT),
    ("all five exact ones", EXACT),
    ("auroc", ("auroc",)),
    ("average_precision", ("average_precision",)),
)


def table() -> Iterator[str]:
    """A line a metric."""
    yield (
        "Time of a window of 500 and of 2,000 rows, in milliseconds and as a multiple of average_confidence "
        "of the same rows (python -m tests.bench.bench_metrics)"
    )
    yield f"{'metric':32s} {'500':>8s} {'ratio':>7s} {'2,000':>8s} {'ratio':>7s}"
    for width in (2, 3):
        for name, metrics in ROWS:
            cells = ""
            for n in (500, 2000):
                scores = np.random.default_rng(n).dirichlet(np.full(width, 0.4), n)
                predicted = scores.argmax(axis=1)
                confidence = scores.max(axis=1)
                alone = best(lambda c=confidence: average_confidence(c), 20)  # type: ignore[misc]
                took = best(
                    lambda s=scores, p=predicted, m=metrics: classification_details(s, p, m),  # type: ignore[misc]
                    5,
                )
                cells += f" {1e3 * took:8.2f} {took / alone:7.1f}"
            yield f"{name + (', mean of 3 classes' if width == 3 else ''):32s}{cells}"


if __name__ == "__main__":
    run(table, keep=False)

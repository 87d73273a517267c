"""Cost of a fit on a large score pool: the engine's thread, the refit's process, memory.

    python -m tests.bench.bench_pool [--requests 100000 1000000 10000000]

Requests answered by two models, 2,000 of them labelled; `ssme.fit_rows` is at its default of 20,000 and
`ssme.max_rows` at the pool. Each size runs in its own process. "Choosing" is the engine's waiting time: from
the answers of the label join to the job's rows. "Fit" is `ssme` with the intervals of accuracy and AUROC.
Times are processor times; memory is that of the answers, and the additional peak for the job.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

from monitor.base.records import mix
from monitor.engine.labels.columns import Matches, answer_columns, answer_keys, model_code
from monitor.engine.labels.pool import ScorePool
from monitor.engine.labels.table import BoundedTable
from monitor.engine.refit.fit import refit
from monitor.engine.refit.job import RefitJob
from tests.harness import apart, resident, run
from tests.streams import confidences

MODELS = ("a", "b")
SIZES = (100_000, 1_000_000, 10_000_000)
LABELLED = 2000
FIT_ROWS = 20_000
BLOCK = 100_000


def filled(requests: int) -> tuple[ScorePool, BoundedTable]:
    """Return the pool over a join's answers, as they would stand there."""
    ring = BoundedTable(answer_columns(1, len(MODELS)), requests * len(MODELS))
    rng = np.random.default_rng(0)
    for first in range(0, requests, BLOCK):
        number = np.arange(first, min(first + BLOCK, requests))
        ids = mix((number + 1).astype(np.uint64))
        for m, model in enumerate(MODELS):
            score = confidences(rng, len(number))
            scores = np.stack([1 - score, score], axis=1)
            values = {
                "id": ids, "scores": scores, "predicted": scores.argmax(axis=1),
                "label": np.full(len(ids), -1), "time": number.astype(float),
                "sequence": number, "series": np.full((len(ids), 1), m),
            }  # fmt: skip
            ring.add(answer_keys(ids, np.full(len(ids), model_code(model))), values)
    pool = ScorePool(
        ring, models=MODELS, classes=2, max_rows=requests, fit_rows=FIT_ROWS, max_labelled=LABELLED,
        horizon_days=30.0,
    )  # fmt: skip
    return pool, ring


def label(pool: ScorePool, requests: int) -> None:
    """Label some requests, by the answers of the first model."""
    number = np.arange(LABELLED) * (requests // LABELLED)
    ids = mix((number + 1).astype(np.uint64))
    zeros = np.zeros(LABELLED, dtype=np.int64)
    truth = (np.random.default_rng(1).random(LABELLED) < 0.9).astype(np.int64)
    columns = dict.fromkeys(Matches.__dataclass_fields__, zeros)
    columns |= {"id": ids, "label": truth, "weight": np.ones(LABELLED), "replaced": zeros > 0}
    pool.add(Matches(**columns), zeros)


def measure(requests: int) -> dict[str, float]:
    """Return one size, in this process."""
    pool, ring = filled(requests)
    label(pool, requests)
    before = resident(most=True)
    began = time.process_time()
    rows = pool.rows(np.arange(len(MODELS)))
    chosen, put_together = time.process_time() - began, resident(most=True) - before
    job = RefitJob(
        "t", 1, 0, rows.time, MODELS, 1, np.asarray(rows.scores), rows.labels, rows.predicted, rows.weights,
        ("ssme",), ("accuracy", "auroc"), 0.95, 1, False, pool_rows=rows.pool,
    )  # fmt: skip
    began = time.process_time()
    done = refit(job)
    fit = time.process_time() - began
    assert done.refused is None, done.refused
    return {
        "rows": done.rows, "labelled": done.labelled, "pool": done.pool_rows, "widening": done.widening,
        "choosing": chosen, "fit": fit, "answers": ring.nbytes, "chosen": put_together,
        "job": resident(most=True) - before,
    }  # fmt: skip


def table(requests: tuple[int, ...] = SIZES) -> Iterator[str]:
    """Yield a line a size, each measured in a process of its own."""
    yield (
        "    requests  said to be     rows labelled  choosing ms   fit s   answers MB  choosing MB  with fit"
        "     wider"
    )
    for size in requests:
        figures = apart(measure, size)
        yield (
            f"{size:12,} {figures['pool']:12,} {figures['rows']:8,} {figures['labelled']:8,}"
            f" {1e3 * figures['choosing']:12,.0f} {figures['fit']:7.2f} {figures['answers'] / 1e6:12,.0f}"
            f" {figures['chosen'] / 1e6:12,.0f} {figures['job'] / 1e6:8,.0f} {figures['widening']:9.1%}"
        )


if __name__ == "__main__":
    run(table, keep=False)

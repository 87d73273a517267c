"""Cost of ever new names: resident memory during a million models that are not watched.

    python -m tests.bench.bench_names [--names 1000000]

Each record has a label and names a model that never occurs again; five series are watched. The engine runs in
this process; records come in chunks of 5,000, as from a source.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from monitor.cli.process import one_heap
from tests.harness import resident, run
from tests.streams import Record, Rig, answers, task

CHUNK = 5000
FLAT = 0.10


def named(start: int) -> list[Record]:
    """Return a chunk of records of a model each."""
    return [
        {"id": f"name-{i}", "time": 1.7e9, "model": f"name-{i}", "scores": [0.5, 0.5], "label": "ok"}
        for i in range(start, start + CHUNK)
    ]


def table(names: int = 1_000_000) -> Iterator[str]:
    """Yield a line a tenth of the names."""
    one_heap()
    rig = Rig(task(max_series=5))
    rig.feed(answers(np.random.default_rng(0), 500, "first"))
    yield "     names    MB   series   names kept   counted as dropped"
    memory = []
    for start in range(0, names, CHUNK):
        rig.feed(named(start))
        done = start + CHUNK
        if done % (names // 10) == 0:
            state = rig.engine.snapshot().tasks["t"]
            memory.append(resident())
            kept, dropped = len(state.dropped), rig.engine.view().series_dropped
            yield f"{done:>10,} {memory[-1] / 1e6:>5.1f} {len(state.series):>8} {kept:>12,} {dropped:>20,}"
    more = memory[-1] / memory[0] - 1
    yield f"last beside first {more:+.1%}  {'flat' if more <= FLAT else 'NOT FLAT'} (at most {FLAT:+.0%})"


if __name__ == "__main__":
    run(table, keep=False)

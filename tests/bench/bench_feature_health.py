"""Cost of the counts, tests and distances of features: of a window, and of an answer of a replay.

    python -m tests.bench.bench_feature_health [--answers 200000] [--keep]

Milliseconds of the processor for the counts and the tests of a window of 500 rows with 16 features, and for
the distances, which are computed for the page and the metrics only; and
microseconds of the processor that 8 features add to each answer of a replay in one process. Both replays
read the same bytes, once with and once without `features` in the task. The quickest of several runs counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import msgspec
import numpy as np

from connectors.formats.decode.decoder import Decoder
from monitor.base.source import RawBlock
from monitor.config.layouts import layouts
from monitor.config.root import Task
from monitor.engine.engine import EngineSettings
from monitor.engine.reference import split_by_model
from monitor.reports.features import FeatureCounts
from monitor.stats.features.health import FeatureNorm, constant_features, window_faults
from monitor.stats.features.tables import FeatureTable, count_features
from tests.harness import run

ROWS, FEATURES, OF_REPLAY, CHUNK = 500, 16, 8, 4096
RUNS, REFERENCE = 5, 5000


def quickest(work: Callable[[], object], runs: int) -> float:
    """Seconds of the processor in the quickest call."""
    times = []
    for _ in range(runs):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def of_window() -> tuple[float, float, float]:
    """Seconds of the counts of a window, of its tests, and of its distances."""
    rng = np.random.default_rng(0)
    reference = np.floor(rng.pareto(1.5, (5000, FEATURES)) * 40)
    kinds = ["number" if j % 2 else "text" for j in range(FEATURES)]
    columns = list(zip(kinds, reference.T, strict=True))
    tables = [FeatureTable.from_values(kind, column) for kind, column in columns]  # type: ignore[arg-type]
    norms = [FeatureNorm.from_values(kind, column, ROWS) for kind, column in columns]  # type: ignore[arg-type]
    window = np.where(rng.random((ROWS, FEATURES)) < 0.01, np.nan, reference[:ROWS])
    counts = count_features(tables, window)

    def judged() -> object:
        return window_faults(norms, counts, constant_features(window), 3e-7, [()] * FEATURES)

    def compared() -> object:
        named = {str(j): table.kind for j, table in enumerate(tables)}
        return FeatureCounts(named, ROWS, (0,) * FEATURES, tuple(tables), counts).rates

    return (
        quickest(lambda: count_features(tables, window), 200),
        quickest(judged, 200),
        quickest(compared, 50),
    )


def records(n: int, start: float, labelled: bool) -> list[bytes]:
    """Lines of answers with eight features: numbers and texts."""
    rng = np.random.default_rng(n)
    scores, numbers = rng.beta(8, 2, n).round(6).tolist(), rng.normal(size=(n, OF_REPLAY // 2)).round(4)
    texts = rng.integers(0, 20, (n, OF_REPLAY // 2))
    lines = []
    for i, score in enumerate(scores):
        features = {f"n{j}": float(numbers[i, j]) for j in range(OF_REPLAY // 2)}
        features |= {f"t{j}": f"value {texts[i, j]}" for j in range(OF_REPLAY // 2)}
        record = {"id": f"r-{i}", "time": start + i, "model": "erm", "scores": [1 - score, score]}
        label = {"label": "ab"[int(rng.random() < score)]} if labelled else {}
        lines.append(msgspec.json.encode({**record, "features": features, **label}) + b"\n")
    return lines


def replay(task: Task, known: bytes, blocks: list[bytes]) -> int:
    """Decode the answers and close their windows; return the number of windows."""
    layout = layouts({"t": task})
    [batch] = Decoder(layout, "reference").decode([RawBlock(known, "reference", 0)]).batches
    engine = EngineSettings({"t": task}, {"t": split_by_model(batch)}, True).build()
    decoder, offset, windows = Decoder(layout, "file"), 0, 0
    for block in blocks:
        windows += len(engine.absorb(decoder.decode([RawBlock(block, "file", offset)]), 0.0))
        offset += len(block)
    return windows


def of_answer(answers: int) -> tuple[float, float]:
    """Seconds an answer without and with features."""
    known = b"".join(records(REFERENCE, 1.6e9, labelled=True))
    lines = records(answers, 1.7e9, labelled=False)
    blocks = [b"".join(lines[at : at + CHUNK]) for at in range(0, answers, CHUNK)]
    kinds = {f"{kind[0]}{j}": kind for j in range(OF_REPLAY // 2) for kind in ("number", "text")}
    settings = {"classes": ["a", "b"], "window": {"max_age_seconds": 1e9}, "reference": {"path": "r"}}
    times = []
    for features in ({}, kinds):
        task = Task.model_validate(settings | {"features": features})
        assert replay(task, known, blocks) == answers // ROWS
        times.append(quickest(lambda task=task: replay(task, known, blocks), RUNS) / answers)  # type: ignore[misc]
    return times[0], times[1]


def table(answers: int = 100_000) -> Iterator[str]:
    """Milliseconds of a window, microseconds of an answer."""
    counts, tests, distances = of_window()
    yield "Features, seconds of the processor (python -m tests.bench.bench_feature_health)"
    yield (
        f"a window of {ROWS} rows, {FEATURES} features: {1000 * counts:.3f} ms counts, "
        f"{1000 * tests:.3f} ms tests; {1000 * distances:.3f} ms distances, for its readers only"
    )
    without, with_features = of_answer(answers)
    yield (
        f"an answer of a replay of {answers:,}: {1e6 * without:.2f} µs without features, "
        f"{1e6 * with_features:.2f} with {OF_REPLAY}: {1e6 * (with_features - without):+.2f}"
    )


if __name__ == "__main__":
    run(table, keep=False)

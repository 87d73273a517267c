"""Cost of the label join: a stream with ids and late labels, compared with one without.

    python -m tests.bench.bench_labels [--records 1000000] [--rounds 3] [--pace 100000]

Four models, windows of 500, an isotonic calibration on a labelled reference. The first stream has no ids and
no labels. The second has the same predictions with ids, and 5 % of them get a label 100,000 records later.
The streams take turns.

One core: one process decodes records, sends them through the engine in chunks of 4,000, and writes each
window's lines to memory; it counts processor time. The third row is without the confidence that answers keep
for the audit of intervals, and shows its cost.

The daemon: `blindsight run`, with its decoding thread, gets the same streams through a pipe, at a set pace
and then at full speed: see `tests.bench.paced_daemon`.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median

import msgspec
import numpy as np

from connectors.formats.decode.decoder import Decoder
from monitor.base.source import RawMessages
from monitor.config.layouts import layouts
from monitor.config.root import Task
from monitor.engine.calibration import ActiveCalibration
from monitor.engine.engine import EngineSettings
from monitor.engine.reference import Reference
from monitor.reports.views import LabelOutcome
from monitor.reports.window_report import to_json
from tests.bench.paced_daemon import Paced, paced
from tests.harness import run
from tests.streams import CLASSES, confidences

MODELS = ("erm", "irm", "coral", "mixup")
CHUNK = 4000
WINDOW = 500
LATE = 100_000
SHARE = 0.05
TASK = Task(classes=CLASSES, window={"size": WINDOW}, metrics=["accuracy"], models={m: {} for m in MODELS})

Chunks = list[tuple[list[bytes], list[bytes]]]


def chunks(records: int, joinable: bool) -> Chunks:
    """Return predictions and labels on the wire, cut into chunks."""
    rng = np.random.default_rng(0)
    scores = confidences(rng, records).tolist()
    labelled = (rng.random(records) < SHARE).tolist()
    encode = msgspec.json.encode
    chunks: Chunks = []
    for start in range(0, records, CHUNK):
        answers, labels = [], []
        for i in range(start, min(start + CHUNK, records)):
            score = scores[i]
            record = {
                "time": 1.7e9 + i / 1000,
                "model": MODELS[i % 4],
                "scores": [round(1 - score, 6), score],
            }
            answers.append(encode({"id": f"request-{i}"} | record if joinable else record))
            late = i - LATE
            if joinable and late >= 0 and labelled[late]:
                label = {"time": record["time"], "label": CLASSES[scores[late] > 0.5]}
                labels.append(encode({"id": f"request-{late}"} | label))
        chunks.append((answers, labels))
    return chunks


def references() -> dict[str, Reference]:
    """Return references of 5,000 labelled rows a model."""
    rng = np.random.default_rng(1)
    score = confidences(rng, 5000)
    truth = (rng.random(5000) < score).astype(np.int64)
    both = np.stack([1 - score, score], axis=1)
    one = Reference(both, both.argmax(axis=1), truth, np.arange(5000.0), "", {})
    return dict.fromkeys(MODELS, one)


def absorbed(stream: Chunks, by_model: dict[str, Reference]) -> tuple[float, float, int]:
    """Return processor seconds in all, and of the engine alone; labels matched."""
    tasks = {"t": TASK}
    engine = EngineSettings(tasks, {"t": by_model}).build()
    decode: Callable = Decoder(layouts(tasks), "bench").decode
    of_engine = offset = 0.0
    gc.collect()
    begin = time.process_time()
    for number, (answers, labels) in enumerate(stream):
        values = answers + labels
        chunk = decode([RawMessages(values, "part-0", range(int(offset), int(offset) + len(values)))])
        offset += len(values)
        before = time.process_time()
        for report in engine.absorb(chunk, 1.7e9 + number):
            to_json(report)
        of_engine += time.process_time() - before
    seconds = time.process_time() - begin
    return seconds, of_engine, engine.view().labels["t", LabelOutcome.MATCHED]


@contextmanager
def no_confidence() -> Iterator[None]:
    """Yield answers keep no confidence."""
    usual = ActiveCalibration.confidence
    ActiveCalibration.confidence = lambda self, scores, predicted: np.zeros(len(predicted))  # type: ignore[method-assign]
    try:
        yield
    finally:
        ActiveCalibration.confidence = usual  # type: ignore[method-assign]


def one_core(streams: tuple[Chunks, Chunks], rounds: int) -> Iterator[str]:
    """Yield the records that one process handles in a second of processor time."""
    plain, joinable = streams
    by_model = references()
    turns = []
    for _ in range(rounds):
        turn = [absorbed(plain, by_model), absorbed(joinable, by_model)]
        with no_confidence():
            turn.append(absorbed(joinable, by_model))
        turns.append(turn)
    whole = [median(turn[kind][0] for turn in turns) for kind in range(3)]
    engine = [median(turn[kind][1] for turn in turns) for kind in range(3)]
    records = sum(len(answers) for answers, _ in plain)
    yield f"One core, predictions/s, median of {rounds} rounds ({turns[0][1][2]:,} labels matched):"
    names = ("without ids and labels", "joinable, 5 % labelled", "the same, no confidence")
    for name, seconds, own in zip(names, whole, engine, strict=True):
        yield (
            f"  {name:24s} {records / seconds:9,.0f} in all ({whole[0] / seconds:4.2f} of the first), "
            f"engine alone {records / own:9,.0f} ({engine[0] / own:4.2f})"
        )
    yield f"  the confidence takes {whole[1] / whole[2] - 1:.1%} of the time in all"


def reference_lines() -> bytes:
    """Return the reference as a daemon reads it."""
    rows = []
    for name, reference in references().items():
        for score, truth in zip(reference.scores.tolist(), reference.labels.tolist(), strict=True):
            rows.append(msgspec.json.encode({"model": name, "scores": score, "label": CLASSES[truth]}))
    return b"\n".join(rows) + b"\n"


def blocks(stream: Chunks) -> list[bytes]:
    """Return the stream in blocks that each end a window of every model: answers, then the labels among
    them.
    """
    size = WINDOW * len(MODELS)
    blocks = []
    for answers, labels in stream:
        parts = len(answers) // size
        cut = [len(labels) * part // parts for part in range(parts + 1)]
        for part in range(parts):
            # Labels first: the block's last record is the one that ends the windows.
            lines = labels[cut[part] : cut[part + 1]] + answers[part * size : (part + 1) * size]
            blocks.append(b"\n".join(lines) + b"\n")
    return blocks


def daemon(streams: tuple[Chunks, Chunks], rounds: int, pace: int) -> Iterator[str]:
    """Yield how late the daemon's windows are at a pace, and how fast it goes without one."""
    reference, size = reference_lines(), WINDOW * len(MODELS)
    first = 3 * LATE // size  # labels come, and the join's memory has grown for the last time
    task = {"window": {"size": WINDOW}, "models": {name: {} for name in MODELS}}
    kinds = [blocks(stream) for stream in streams]
    for every, title in (
        (size / pace, f"paced at {pace:,} predictions/s"),
        (0.0, "as fast as it takes them"),
    ):
        turns: list[list[Paced]] = [
            [paced(each, every, first, reference, task) for each in kinds] for _ in range(rounds)
        ]
        yield f"The daemon on {os.cpu_count()} cores, {title}, {rounds} rounds:"
        for kind, name in enumerate(("without ids and labels", "joinable, 5 % labelled")):
            yield _of_daemon(name, [turn[kind] for turn in turns], len(kinds[0]) * size, bool(every))
        yield _ratios(turns, every)


def _of_daemon(name: str, runs: list[Paced], records: int, is_paced: bool) -> str:
    processor = median(run.processor for run in runs) / records * 1e6
    line = f"  {name:24s} {processor:4.2f} us of processor a prediction, "
    if not is_paced:
        return line + f"{records / median(run.seconds for run in runs):9,.0f} predictions/s"
    p50, p90, p99 = (median(np.quantile(run.latency, q) for run in runs) * 1000 for q in (0.5, 0.9, 0.99))
    late, longest = (max(getattr(run, name) for run in runs) * 1000 for name in ("late", "longest"))
    return line + (
        f"{runs[0].revised:,} further lines\n"
        f"    a window's line after its last record: p50 {p50:.1f} ms, p90 {p90:.1f} ms, p99 {p99:.1f} ms; "
        f"longest since the start {longest:.0f} ms; last block written {late:.0f} ms late at most"
    )


def _ratios(turns: list[list[Paced]], every: float) -> str:
    """Return the ratio of the joinable stream to the other, by round: the machine changes between rounds."""
    processor = [joined.processor / plain.processor for plain, joined in turns]
    text = f"  joinable over the other: processor {median(processor):.2f}"
    if not every:
        return f"{text}, time in all {_spread([joined.seconds / plain.seconds for plain, joined in turns])}"
    waits = [[float(np.median(run.latency)) for run in turn] for turn in turns]
    last = _spread([joined / plain for plain, joined in waits])
    first = _spread([(every + joined) / (every + plain) for plain, joined in waits])
    return f"{text}; median time to a window's line from its last record {last}, from its first {first}"


def _spread(ratios: list[float]) -> str:
    return f"{median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def table(records: int = 1_000_000, rounds: int = 3, pace: int = 100_000) -> Iterator[str]:
    """Yield one core, then the daemon."""
    streams = chunks(records, False), chunks(records, True)
    labels = sum(len(part) for _, part in streams[1])
    load = os.getloadavg()[0]
    yield f"{records:,} predictions of 4 models, {labels:,} late labels; load of the machine {load:.1f}"
    yield from one_core(streams, rounds)
    yield from daemon(streams, rounds, pace)


if __name__ == "__main__":
    run(table, keep=False)

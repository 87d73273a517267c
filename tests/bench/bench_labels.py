"""What it costs that predictions stay joinable: a stream with ids and late labels beside one without.

    python -m tests.bench.bench_labels [--records 1000000] [--rounds 3]

One process, one core: records are decoded and go through the engine in chunks of 4,000, four models,
windows of 500, an isotonic calibration on a labelled reference. The first stream has no ids and no labels;
the second is the same predictions with ids, and 5 % of them get a label of its own 100,000 records later.
The streams take turns; what is counted is processor time. The third row leaves out the confidence that
answers keep for the audit of intervals, to say what that costs.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median

import msgspec
import numpy as np

from connectors.base import RawMessages
from connectors.formats.decoder import Decoder
from monitor.config import Task
from monitor.engine import EngineSettings, layouts
from monitor.reference import Reference
from monitor.series import Series
from monitor.view import LabelOutcome
from tests.streams import CLASSES, confidences

MODELS = ("erm", "irm", "coral", "mixup")
CHUNK = 4000
LATE = 100_000
SHARE = 0.05
TASK = Task(classes=CLASSES, window={"size": 500}, metrics=["accuracy"], models={m: {} for m in MODELS})

Chunks = list[tuple[list[bytes], list[bytes]]]


def chunks(records: int, joinable: bool) -> Chunks:
    """Predictions and labels on the wire, cut into chunks."""
    rng = np.random.default_rng(0)
    scores = confidences(rng, records).tolist()
    labelled = (rng.random(records) < SHARE).tolist()
    encode = msgspec.json.encode
    found: Chunks = []
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
                labels.append(encode({"id": f"request-{late}", "label": CLASSES[scores[late] > 0.5]}))
        found.append((answers, labels))
    return found


def references() -> dict[str, Reference]:
    """Of 5,000 labelled rows a model."""
    rng = np.random.default_rng(1)
    score = confidences(rng, 5000)
    truth = (rng.random(5000) < score).astype(np.int64)
    both = np.stack([1 - score, score], axis=1)
    one = Reference(both, both.argmax(axis=1), truth, np.arange(5000.0), "", {})
    return dict.fromkeys(MODELS, one)


def run(stream: Chunks, by_model: dict[str, Reference]) -> tuple[float, float, int]:
    """Processor seconds in all, and of the engine alone; labels matched."""
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
        engine.absorb(chunk, 1.7e9 + number)
        of_engine += time.process_time() - before
    seconds = time.process_time() - begin
    return seconds, of_engine, engine.view().labels["t", LabelOutcome.MATCHED]


@contextmanager
def no_confidence() -> Iterator[None]:
    """Answers keep no confidence."""
    usual = Series.confidence
    Series.confidence = lambda self, scores, predicted: np.zeros(len(predicted))  # type: ignore[method-assign]
    try:
        yield
    finally:
        Series.confidence = usual  # type: ignore[method-assign]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    by_model = references()
    plain, joinable = (chunks(options.records, joined) for joined in (False, True))
    turns = []
    for _ in range(options.rounds):
        turn = [run(plain, by_model), run(joinable, by_model)]
        with no_confidence():
            turn.append(run(joinable, by_model))
        turns.append(turn)
    whole = [median(turn[kind][0] for turn in turns) for kind in range(3)]
    engine = [median(turn[kind][1] for turn in turns) for kind in range(3)]
    labels = sum(len(part) for _, part in joinable)
    print(
        f"{options.records:,} predictions of 4 models, {labels:,} late labels ({turns[0][1][2]:,} matched), "
        f"{options.rounds} rounds; predictions/s of one core"
    )
    names = ("without ids and labels", "joinable, 5 % labelled", "the same, no confidence")
    for name, seconds, own in zip(names, whole, engine, strict=True):
        print(
            f"{name:24s} {options.records / seconds:9,.0f} in all ({whole[0] / seconds:4.2f} of the first), "
            f"engine alone {options.records / own:9,.0f} ({engine[0] / own:4.2f})"
        )
    print(f"the confidence takes {whole[1] / whole[2] - 1:.1%} of the time in all")


if __name__ == "__main__":
    main()

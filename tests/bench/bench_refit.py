"""Cost of refits for the windows: the same stream with a busy worker process, and without.

    python -m tests.bench.bench_refit [--chunks 600]

It decodes and absorbs chunks of 500 requests, with three models' scores each, as the agent does. Each chunk
closes a window of each model, and every tenth request has a label. Both kinds take turns of a hundred chunks:
in one the worker always has a job of 20,000 rows and three models, taken from the score pool and handed over
between two chunks; in the other no refit is due. It measures the wall time from a chunk's bytes to its
reports. So a worker that takes the processor away, or an agent that waits for it, shows; other load on the
machine shows too, but not in the processor time of the agent's own thread.
"""

from __future__ import annotations

import os
import time
from typing import Any

import msgspec
import numpy as np

from connectors.formats.decode.decoder import Decoder
from monitor.agent.refit_process import ProcessLimits, RefitWorker
from monitor.agent.refits import Refitter
from monitor.base.collector import tune_collector
from monitor.base.records import Floats
from monitor.base.source import RawMessages
from monitor.config.layouts import layouts
from monitor.config.root import Task
from monitor.engine.engine import EngineSettings
from monitor.engine.refit.job import RefitJob, RefitResult
from tests.harness import run

MODELS = ("a", "b", "c")
ROWS = 500
TURN = 100
POOL = 20_000
CLASSES = ["ok", "bad"]


def task() -> Task:
    """Return a task whose refits are due at each chunk: the time of the worker decides how many there are."""
    return Task.model_validate(
        {
            "classes": CLASSES,
            "models": {model: {} for model in MODELS},
            "window": {"size": ROWS, "max_age_seconds": 1e9},
            "metrics": ["accuracy", "ece"],
            "estimators": ["average_confidence", "realised", "ssme"],
            "calibration": {"method": "ssme"},
            "ssme": {"every_windows": 1, "max_rows": POOL},
        }
    )


def chunk(rng: np.random.Generator, number: int) -> list[bytes]:
    """Return messages of the chunk of this number."""
    claimed = rng.normal(0.5, 2.0, (ROWS, 1)) + rng.normal(0.0, 0.7, (ROWS, len(MODELS)))
    late = rng.random(ROWS) < 1 / (1 + np.exp(-claimed.mean(axis=1)))
    scores = np.round(1 / (1 + np.exp(-claimed)), 6).tolist()
    records = []
    for i, row in enumerate(scores):
        record: dict[str, Any] = {
            "id": f"{number}-{i}",
            "time": 1.7e9 + number * ROWS + i,
            "models": {model: [1 - score, score] for model, score in zip(MODELS, row, strict=True)},
        }
        if i % 10 == 0:
            record["label"] = CLASSES[int(late[i])]
        records.append(msgspec.json.encode(record))
    return records


class Switched:
    """The engine's refits, which are only heard while `on`."""

    def __init__(self, engine: Any) -> None:
        self.engine = engine
        self.on = False
        self.good = self.refused = 0
        self.seconds = 0.0

    def refits(self) -> list[RefitJob]:
        return self.engine.refits() if self.on else []

    def publish(self, result: RefitResult, now: float) -> bool:
        self.good += result.refused is None
        self.refused += result.refused is not None
        self.seconds += result.seconds
        return bool(self.engine.publish(result, now))


def measured(chunks: int) -> tuple[dict[bool, Floats], dict[bool, float], Switched]:
    """Return seconds of each chunk with the worker at work and without, the thread's own a chunk; the
    refits.
    """
    engine = EngineSettings({"t": task()}).build()
    decode = Decoder(layouts({"t": task()}), "bench").decode
    refitter, switched = Refitter(RefitWorker(), lambda name: ProcessLimits(600.0, 4e9)), Switched(engine)
    rng = np.random.default_rng(0)
    times: dict[bool, list[float]] = {True: [], False: []}
    own: dict[bool, list[float]] = {True: [], False: []}
    refitter.start()
    try:
        for number in range(-POOL // ROWS, chunks):  # before 0 the pool is filled
            switched.on = number >= 0 and number // TURN % 2 == 0
            if number >= 0 and number % TURN == 0:
                _settle(refitter, switched)
            raw = RawMessages(chunk(rng, number), "part-0", list(range(number * ROWS, (number + 1) * ROWS)))
            began, worked = time.perf_counter(), time.thread_time()
            engine.absorb(decode([raw]), 1.7e9)
            refitter.step(switched, 1.7e9)
            if number >= 0:
                times[switched.on].append(time.perf_counter() - began)
                own[switched.on].append(time.thread_time() - worked)
    finally:
        refitter.stop()
    means = {on: float(np.mean(seconds)) for on, seconds in own.items()}
    return {on: np.array(seconds) for on, seconds in times.items()}, means, switched


def _settle(refitter: Refitter, switched: Switched) -> None:
    """Wait until the worker is at work, or idle, as it is to be in this turn."""
    on, switched.on = switched.on, False
    while switched.engine.view().refits["t"].under_way:
        refitter.step(switched, 1.7e9)
        time.sleep(0.01)
    switched.on = on
    refitter.step(switched, 1.7e9)


def _processor(own: dict[bool, float]) -> str:
    cells = f"{1000 * own[False]:10.2f}{1000 * own[True]:10.2f}{own[True] / own[False]:8.2f}"
    return f"{'own processor time, ms':26s}{cells}"


def table(chunks: int = 600) -> str:
    """Return all of it as text."""
    tune_collector()
    return summary(*measured(chunks))


def summary(seconds: dict[bool, Floats], own: dict[bool, float], switched: Switched) -> str:
    """Format the rates and the latencies."""
    mean = switched.seconds / max(switched.good, 1)
    rates = {on: ROWS * len(MODELS) * len(t) / t.sum() for on, t in seconds.items()}
    lines = [
        f"{sum(map(len, seconds.values())):,} chunks of {ROWS} requests x {len(MODELS)} models, each closing "
        "a window of each model (python -m tests.bench.bench_refit)",
        f"refits of {POOL:,} rows and more beside them: {switched.good} of {mean:.1f} s, "
        f"{switched.refused} refused; load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores",
        f"{'':26s}{'without':>10s}{'refitting':>10s}{'ratio':>8s}",
        *(_quantiles(name, seconds, q) for name, q in (("median", 0.5), ("99 %", 0.99), ("most", 1.0))),
        _processor(own),
        f"{'predictions/s':26s}{rates[False]:10,.0f}{rates[True]:10,.0f}{rates[True] / rates[False]:8.2f}",
    ]
    return "\n".join(lines) + "\n"


def _quantiles(name: str, seconds: dict[bool, Floats], q: float) -> str:
    without, refitting = (1000 * float(np.quantile(seconds[on], q)) for on in (False, True))
    title = f"window latency, {name}, ms"
    return f"{title:26s}{without:10.2f}{refitting:10.2f}{refitting / without:8.2f}"


if __name__ == "__main__":
    run(table, keep=False)

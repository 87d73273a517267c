"""Speed of the Poisson binomial and of Average Confidence, each compared with another library in the same
run.

    python -m tests.bench.bench_poisson_binomial [--nannyml-python PATH]

`PATH` is the interpreter of an environment with NannyML, whose CBPE then estimates the accuracy alone of
the same rows. Each time is the best of several rounds, so that other work on the machine counts less; those
of one window are the processor's.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from functools import reduce
from pathlib import Path

import numpy as np
import scipy.stats

from monitor import (
    PoissonBinomial,
    TrimmedPmf,
    average_confidence,
    average_confidence_many,
    average_confidence_windows,
    calibration_error,
    trimmed_pmf_many,
)
from monitor.base.records import Floats
from tests.fidelity.simulated import ORIGINAL, confidences
from tests.harness import best, in_turns, run

WINDOW = 500
CBPE_ROWS = 500_000

CBPE = """
import sys, time, warnings
warnings.filterwarnings("ignore")
from tests.harness import best, run
import numpy as np, pandas as pd, nannyml
rows = np.load(sys.argv[1])
right = np.random.default_rng(0).random(len(rows)) < rows
frame = pd.DataFrame({"y": right.astype(int), "p": rows, "hat": 1})
cbpe = nannyml.CBPE(y_pred_proba="p", y_pred="hat", y_true="y", problem_type="classification_binary",
                    metrics=["accuracy"], chunk_size=int(sys.argv[2]))
frame["hat"] = (frame["p"] > 0.5).astype(int)
cbpe.fit(frame[:50_000])
best = 1e9
for _ in range(3):
    start = time.perf_counter()
    cbpe.estimate(frame[["p", "hat"]])
    best = min(best, time.perf_counter() - start)
print(best)
"""


def one_window(p: Floats) -> Iterator[str]:
    """Yield one window's distribution and interval, beside scipy and fast-poibin."""
    from fast_poibin import PoiBin  # it imports numba, so not at the top: a test takes this module along

    counts = np.arange(len(p) + 1)
    [theirs] = in_turns(lambda: scipy.stats.poisson_binom(p).pmf(counts), repeats=5)
    pmf, interval, estimate, fast = in_turns(
        lambda: PoissonBinomial(p).pmf,
        lambda: PoissonBinomial(p).interval(0.95),
        lambda: average_confidence(p),
        lambda: PoiBin(p),
    )
    yield f"one window of {len(p)}, µs of the processor, in turns: pmf {1e6 * pmf:.0f}, interval " + (
        f"{1e6 * interval:.0f}, average_confidence {1e6 * estimate:.0f}"
    )
    yield f"  scipy's pmf {1e6 * theirs:.0f} µs: {theirs / interval:.0f} times our interval"
    yield f"  fast-poibin's pmf {1e6 * fast:.0f} µs: our interval takes {interval / fast:.2f} times as long"


def many_windows(p: Floats) -> Iterator[str]:
    """Yield the time of many windows at once, a window."""
    windows = len(p)
    rows = list(p)
    together = best(lambda: average_confidence_many(p), 1)
    apart = best(lambda: average_confidence_windows(rows), 1)
    five = trimmed_pmf_many(p[:5])
    pooled = best(lambda: reduce(TrimmedPmf.convolve, five).interval(0.95), 100)
    yield f"{windows} windows of {p.shape[1]} in one call: {1e6 * together / windows:.1f} µs a window"
    yield f"  with distributions for pooling: {1e6 * apart / windows:.1f} µs a window"
    yield f"  interval pooled over five of them: {1e6 * pooled:.0f} µs"
    raw = p[0]
    error = best(lambda: calibration_error(raw, raw * raw), 100)
    yield f"calibration error of one window with 200 bootstrap draws: {1e6 * error:.0f} µs"


def rows_a_second(p: Floats, nannyml_python: str | None) -> Iterator[str]:
    """Yield rows a second of `average_confidence_many`, beside NannyML's CBPE for accuracy alone."""
    ours = p.size / best(lambda: average_confidence_many(p), 1)
    yield f"average_confidence_many: {ours / 1e6:.1f} million rows a second"
    if nannyml_python is None:
        yield "  NannyML: not measured (give --nannyml-python)"
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.npy"
        np.save(path, p.ravel())
        command = [nannyml_python, "-c", CBPE, str(path), str(p.shape[1])]
        silent = os.environ | {"NML_DISABLE_USAGE_LOGGING": "1"}
        answer = subprocess.run(command, check=False, capture_output=True, text=True, env=silent)
    if answer.returncode != 0:
        raise SystemExit(f"NannyML could not be measured:\n{answer.stderr}")
    seconds = float(answer.stdout.split()[-1])
    theirs = p.size / seconds
    yield (
        f"  NannyML's CBPE, accuracy alone: {theirs:,.0f} rows a second, ours {ours / theirs:.0f} times that"
    )


def table(nannyml_python: str | None = None) -> Iterator[str]:
    """Yield all of it."""
    rng = np.random.default_rng(0)
    yield from one_window(confidences(rng, ORIGINAL, (WINDOW,)))
    for name, p in (("confident", confidences(rng, ORIGINAL, (100_000,))), ("uniform", rng.random(100_000))):
        seconds = best(lambda p=p: PoissonBinomial(p).interval(0.95), 1)  # type: ignore[misc]
        yield f"one window of 100,000 ({name}): {1e3 * seconds:.1f} ms"
    yield from many_windows(confidences(rng, ORIGINAL, (1000, WINDOW)))
    yield from rows_a_second(confidences(rng, ORIGINAL, (CBPE_ROWS // WINDOW, WINDOW)), nannyml_python)


if __name__ == "__main__":
    run(table, keep=False)

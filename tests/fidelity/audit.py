"""The audit of intervals with calibrated confidences, and with others.

    python -m tests.fidelity.audit [--batches 20000]

First simulated rows (Kivimäki et al., Table 2) in batches of 30, right with the probability of their
confidence minus a bias. Then the flights of the demo: each model's audit as the agent exports it at the end
of the year. Concept drift makes their confidences wrong, and labels correct them: calibrations are refitted
on labels, and the audit starts again with each refit.
"""

from __future__ import annotations

import tempfile
from math import sqrt
from pathlib import Path

import numpy as np

from monitor.base.names import BATCH_ROWS
from monitor.engine.labels.audit import BATCHES_KEPT, covered
from tests.fidelity.simulated import MIXTURES, confidences
from tests.harness import run

LEVEL = 0.95
BIASES = (0.0, 0.03, 0.05, 0.10, 0.20)


def coverage_of(mixture: str, bias: float, batches: int, seed: int = 1) -> float:
    """Return share of batches in their interval; each row is right with its confidence less the bias."""
    rng = np.random.default_rng([seed, sorted(MIXTURES).index(mixture), round(1000 * bias)])
    confidence = confidences(rng, MIXTURES[mixture], (batches, BATCH_ROWS))
    right = (rng.random(confidence.shape) < confidence - bias).sum(axis=1)
    return float(covered(confidence, right, LEVEL).mean())


def flights() -> list[tuple[str, float, int]]:
    """Return model, share and rows at the end of the demo's stream."""
    from monitor.cli.demo.stream import prepare
    from monitor.cli.replay import replay

    with tempfile.TemporaryDirectory() as name:
        data = prepare(Path(name) / "demo", seed=0)
        done = replay(str(data.config), [data.stream], Path(name) / "out", lambda path, count: None)
    return [(s.model, s.coverage.ratio, s.coverage.rows) for s in done.view.series if s.coverage]


def table(batches: int = 20_000) -> str:
    """Return all of it as text, in percent."""
    error = 200 * sqrt(LEVEL * (1 - LEVEL) / BATCHES_KEPT)
    lines = [
        f"Batches of {BATCH_ROWS} labelled rows inside their {100 * LEVEL:g} % interval, in % "
        "(python -m tests.fidelity.audit)",
        f"simulated, {batches:,} batches a cell; rows are right with their confidence less a bias of",
        f"{'data':10s}" + "".join(f"{100 * bias:6.0f} pt" for bias in BIASES),
    ]
    for mixture in MIXTURES:
        cells = (100 * coverage_of(mixture, bias, batches) for bias in BIASES)
        lines.append(f"{mixture:10s}" + "".join(f"{cell:9.1f}" for cell in cells))
    lines.append(f"{BATCHES_KEPT} batches are kept: two binomial errors of them are {error:.1f} points")
    lines.append("flights, April to December, as exported at the end: since the newest calibration on labels")
    lines += [f"{model:24s}{100 * ratio:6.1f}  by {rows:,} labels" for model, ratio, rows in flights()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    run(table)

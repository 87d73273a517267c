"""Tables S8 to S11 of the SSME paper: what each estimator says of each toxicity model with 20 labels.

The paper's captions speak of errors; its cells are the estimates themselves, mean ± standard deviation over
the runs, beside the true metric.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from monitor import METRICS
from monitor.base.records import Floats
from tests.fidelity.ssme import civilcomments
from tests.fidelity.ssme.compare import Measured, measure
from tests.fidelity.ssme.printed_models import COLUMNS, MODELS, TABLES, printed
from tests.fidelity.ssme.protocol import Pool

LABELS = 20
OURS = "ssme"
"""Not in the paper's tables: shown beside its own method."""


def table(pool: Pool, runs: int, kept: Path | None = None) -> str:
    """Return all four tables, a line of ours above one of the paper's for each model.

    Parameters
    ----------
    pool : Pool
        civilcomments.
    runs : int
    kept : Path, optional
        See `measure`.
    """
    by_tag = measure(pool, [*COLUMNS["accuracy"], OURS], LABELS, runs, kept=kept)
    head = f"Estimates with {LABELS} labels in points, mean ± standard deviation over {runs} runs"
    return "\n\n".join([head, *(_one(metric, by_tag, pool.truth) for metric in TABLES)]) + "\n"


def _one(metric: str, by_tag: Mapping[str, Measured], truth: Floats) -> str:
    columns = (*COLUMNS[metric], OURS)
    lines = [
        f"{metric}, beside Table {TABLES[metric]}",
        f"{'model':10s} {'':5s}" + "".join(f"{_heading(tag):>14s}" for tag in (*columns, "truth")),
    ]
    at = METRICS.index(metric)
    for model in MODELS:
        column, paper = civilcomments.NAMES.index(model), printed(metric, model)
        ours = {tag: 100 * (by_tag[tag].error[:, at, column] + truth[at, column]) for tag in columns}
        cells = "".join(f"{e.mean():7.1f} ± {e.std(ddof=1):4.1f}" for e in ours.values())
        lines.append(f"{model:10s} {'ours':5s}{cells}{100 * truth[at, column]:14.1f}")
        cells = "".join(f"{paper[tag][0]:7.1f} ± {paper[tag][1]:4.1f}" for tag in COLUMNS[metric])
        lines.append(
            f"{'':10s} {'paper':5s}{cells}{'–':>14s}{paper['truth'][0]:7.1f} ± {paper['truth'][1]:4.1f}"
        )
    return "\n".join(lines)


def _heading(tag: str) -> str:
    return {"bayesian_calibration": "bayesian_cal."}.get(tag, tag)

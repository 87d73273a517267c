"""The drift of features by other libraries and by this one, on the same frame, in one run.

    python -m tests.bench.bench_rivals_drift [--nannyml-python PATH] [--evidently-python PATH]

A frame has eight numbers and eight texts of ten categories. The reference has 10,000 rows. Each library says
of every window which of the 16 features have drifted, with its default methods and thresholds:

* ours: `drift` and `discoveries`, from the counts of each feature, as the page of a model has them;
* NannyML: `UnivariateDriftCalculator`, the Jensen–Shannon distance, three standard deviations of the
  reference's windows;
* Evidently: `DataDriftPreset`, a report a window: the Wasserstein distance of numbers and the Jensen–Shannon
  distance of texts, 0.1 each; the data set has drifted if half of its columns have.

Where nothing has moved, a window in which any feature is called drifted is a false alarm. Where one number
has moved by a quarter of its standard deviation, the table says in how many windows that number is named. A
report of Evidently also draws its figures, and takes seconds. So it has fewer windows, and its times are in
proportion.

`PATH` is the interpreter of an environment that has the library: nannyml==0.13.1 with statsmodels, or
evidently==0.7.23, each with pandas==2.3.3 (Evidently cannot be imported with pandas 3). Their usage logging
is off.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.bench.bench_covariates import features_of
from tests.bench.bench_rivals import Results, compared, run_scripts
from tests.bench.rivals.drift_frames import MANY, MOVED, NAMES, SETS
from tests.harness import run

REFERENCE_ROWS = 10_000
WINDOWS = 200
MOVE = 0.25
SEED = 1


def arrays(windows: int) -> dict[str, Any]:
    """Return the numbers and the texts of the reference and of each set of windows."""
    rng = np.random.default_rng(SEED)
    data: dict[str, Any] = {}
    for part, rows in {"reference": REFERENCE_ROWS, **{p: n * windows for p, n in SETS.items()}}.items():
        values = features_of(rng, rows, 2 * MANY, shifted=False)
        values[:, 0] += MOVE * (part == "moved")
        data[f"{part}_numbers"] = values[:, :MANY]
        data[f"{part}_texts"] = np.char.add("c", values[:, MANY:].astype(np.int64).astype(str))
    return data


def share(hits: list[bool]) -> str:
    """Return the percent of windows, with their number."""
    return f"{100 * sum(hits) / len(hits):.1f} % of {len(hits)}" if hits else "-"


def alarms(name: str, results: Results, part_of_columns: float = 0.0) -> str:
    """Return the false alarms and the detection of a library.

    Parameters
    ----------
    name : str
    results : mapping of str to Measured
    part_of_columns : float
        The share of columns that must have drifted for an alarm; at least one in any case.
    """
    fewest = max(1, math.ceil(part_of_columns * len(NAMES)))
    drifted = results["drift"].drifted if results else {}
    cells = [share([len(each) >= fewest for each in drifted.get(part, [])]) for part in ("same", "short")]
    cells.append(share([MOVED in each and len(each) >= fewest for each in drifted.get("moved", [])]))
    return f"  {name:28}" + "".join(f"{cell:>20}" for cell in cells)


def table(
    nannyml_python: str | None = None,
    evidently_python: str | None = None,
    windows: int = WINDOWS,
    rounds: int = 3,
) -> Iterator[str]:
    """Yield the times, and the alarms."""
    scripts = {
        "ours_drift": (sys.executable, rounds),
        "nannyml_drift": (nannyml_python, rounds),
        "evidently_drift": (evidently_python, 1),
    }
    ours, nannyml, evidently = run_scripts(arrays(windows), scripts)
    size = SETS["same"]
    yield (
        f"{windows} windows of {size}, reference of {REFERENCE_ROWS:,}, {len(NAMES)} features; times are the "
        f"processor's, the best of {rounds} (Evidently's once, of fewer windows, in proportion)"
    )
    yield "drift of every feature: fit ms, estimate ms, rows/s, times ours, MB grown"
    yield from compared("NannyML", windows * size, ours["drift"], nannyml.get("drift"))
    yield compared("Evidently", windows * size, ours["drift"], evidently.get("drift"))[-1]
    yield (
        f"windows with an alarm; in the moved ones, one number has moved by {MOVE} standard deviations, "
        "and is named"
    )
    heads = [f"{'moved' if part == 'moved' else 'unmoved'}, {rows} rows" for part, rows in SETS.items()]
    yield f"  {'':28}" + "".join(f"{head:>20}" for head in heads)
    yield alarms("ours", ours)
    yield alarms("NannyML", nannyml)
    yield alarms("Evidently, any column", evidently)
    yield alarms("Evidently, half of columns", evidently, 0.5)


if __name__ == "__main__":
    run(table, keep=False)

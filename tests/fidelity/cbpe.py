"""NannyML's CBPE and `average_confidence` on the same frames: the same value, window by window.

    python -m tests.fidelity.cbpe --nannyml-python PATH

`PATH` is a Python in whose environment `nannyml` is installed. The scores are simulated and right, so that
NannyML's own test finds that they need no calibration; Blindsight has `calibration: {method: none}`. The
frames are made from a seed by both programs.
"""

from __future__ import annotations

import json
import subprocess

import numpy as np

from monitor import Monitor
from monitor.base.records import Floats
from monitor.base.results import Estimate
from tests.harness import run

WINDOW = 500
FRAMES = """
import numpy as np

rng = np.random.default_rng(0)


def frame(rows, shift):
    p = 1 / (1 + np.exp(-rng.normal(shift, 2.0, rows)))
    return {"p": p, "y": (rng.random(rows) < p).astype(int), "hat": (p >= 0.5).astype(int)}


reference, production = frame(10_000, 0.0), frame(5_000, 0.5)
"""
"""The frames of both programs; numpy alone makes them."""
CBPE = """
import json
import nannyml
import pandas as pd

cbpe = nannyml.CBPE(
    metrics=["accuracy"],
    problem_type="classification_binary",
    y_pred_proba="p",
    y_pred="hat",
    y_true="y",
    chunk_size=500,
)
cbpe.fit(pd.DataFrame(reference))
assert not cbpe.needs_calibration
result = cbpe.estimate(pd.DataFrame(production).drop(columns="y"))
values = result.filter(period="analysis").to_df()["accuracy"]["value"]
print(json.dumps([nannyml.__version__, values.tolist()]))
"""


def ours() -> Floats:
    """Return the value of `average_confidence` in each window."""
    frames: dict[str, dict[str, Floats]] = {}
    exec(FRAMES, frames)
    monitor = Monitor(
        classes=[0, 1],
        window=WINDOW,
        metrics=["accuracy"],
        estimators=["average_confidence"],
        calibration={"method": "none"},
    )
    result = monitor.fit(frames["reference"], scores="p", label="y").estimate(
        {"p": frames["production"]["p"]}
    )
    estimates = (estimate for window in result.windows for estimate in window.estimates)
    values = [each.result for each in estimates if each.estimator == "average_confidence"]
    return np.array([value.value for value in values if isinstance(value, Estimate)])


def table(nannyml_python: str = "python") -> str:
    """Return the values of both programs, a window a line."""
    done = subprocess.run(
        [nannyml_python, "-W", "ignore", "-c", FRAMES + CBPE],
        env={"NML_DISABLE_USAGE_LOGGING": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    version, theirs = json.loads(done.stdout.splitlines()[-1])
    lines = [
        f"window  NannyML {version}  average_confidence  difference   (python -m tests.fidelity.cbpe)",
        *(
            f"{number:6d}  {their:14.9f}  {our:18.9f}  {abs(their - our):10.1e}"
            for number, (their, our) in enumerate(zip(theirs, ours(), strict=True))
        ),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    run(table)

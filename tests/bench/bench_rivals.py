"""Other libraries compared with this one, on the same arrays and windows, in one run.

    python -m tests.bench.bench_rivals [--nannyml-python PATH] [--evidently-python PATH]

* NannyML's CBPE, without labels: fitted on 50,000 labelled rows, then 200 windows of 500; the accuracy alone,
  and eight metrics (accuracy, precision, recall, specificity, F1, AUROC, average precision; its eighth is the
  confusion matrix, ours the calibration error). Both calibrate by isotonic regression.
* Evidently, with labels: a report a window, of the accuracy and the AUROC; ours adds average precision, and
  an interval to each.
* ppi-python's mean and interval by PPI++: 500 labels beside 20,000 rows without.
* The SSME paper's method with KDEpy's bandwidths (`ssme_paper`) beside `ssme`.
* scipy and fast-poibin for one window of the Poisson binomial: `tests.bench.bench_poisson_binomial`.

`PATH` is the interpreter of an environment that has the library (and numpy): nannyml==0.13.1;
evidently==0.7.15 with pandas==2.3.3. Their usage logging is off. Each library runs in its own process, as
ours does; memory is the growth of that process after the imports. Scores are simulated (Kivimäki et al.,
Table 2) and calibrated, so an interval should contain the realised value in as many windows as its level
says. NannyML's is three standard errors either way, which is 99.7 %.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from monitor import prediction_powered
from monitor.base.records import Floats
from tests.bench.bench_poisson_binomial import WINDOW, one_window
from tests.bench.rivals.stopwatch import Measured
from tests.fidelity.metrics_coverage import realised_values
from tests.fidelity.simulated import ORIGINAL, confidences
from tests.harness import ROOT, best, run

REFERENCE_ROWS = 50_000
WINDOWS = 200
SEED = 1
SHOWN = ("accuracy", "precision", "recall", "specificity", "f1", "auroc", "average_precision")

Results = Mapping[str, Measured]


def arrays(windows: int) -> dict[str, Any]:
    """Return a labelled reference, and windows to estimate."""
    rng = np.random.default_rng(SEED)
    data: dict[str, Any] = {"window": WINDOW}
    for part, rows in (("reference", REFERENCE_ROWS), ("analysis", windows * WINDOW)):
        scores = confidences(rng, ORIGINAL, (rows,))
        # The simulation draws the confidence in a predicted class; here either class is predicted.
        scores = np.where(rng.random(rows) < 0.5, scores, 1 - scores)
        data[f"{part}_scores"], data[f"{part}_labels"] = (
            scores,
            (rng.random(rows) < scores).astype(np.int64),
        )
    return data


def run_scripts(data: Mapping[str, Any], scripts: Mapping[str, tuple[str | None, int]]) -> list[Results]:
    """Run each script on the same arrays, and return its results; none where its interpreter is None.

    Parameters
    ----------
    data : mapping of str to array
    scripts : mapping of str to (str or None, int)
        The interpreter of each script of `tests.bench.rivals`, and its number of rounds.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "arrays.npz"
        np.savez(path, **data)
        return [
            _run_script(python, script, path, rounds) if python else {}
            for script, (python, rounds) in scripts.items()
        ]


def _run_script(python: str, script: str, path: Path, rounds: int) -> Results:
    """Run a script by an interpreter, and return the results that it prints."""
    quiet = os.environ | {"NML_DISABLE_USAGE_LOGGING": "1", "DO_NOT_TRACK": "1", "PYTHONPATH": str(ROOT)}
    words = [python, "-m", f"tests.bench.rivals.{script}", str(path), str(rounds)]
    done = subprocess.run(words, cwd=ROOT, env=quiet, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{script} could not be measured:\n{done.stderr[-2000:]}")
    return {name: Measured(**fields) for name, fields in json.loads(done.stdout.splitlines()[-1]).items()}


def realised(inputs: Mapping[str, Any]) -> dict[str, Floats]:
    """Return each window's metrics by its labels; NaN where undefined."""
    scores = np.column_stack([1 - inputs["analysis_scores"], inputs["analysis_scores"]])
    by_window: dict[str, list[float]] = {metric: [] for metric in SHOWN}
    labels = inputs["analysis_labels"].reshape(-1, WINDOW)
    for each, truth in zip(scores.reshape(-1, WINDOW, 2), labels, strict=True):
        values = realised_values(each, each.argmax(axis=1), np.eye(2)[truth])
        for metric, kept in by_window.items():
            value = values[metric]
            kept.append(np.nan if value is None else value)
    return {metric: np.array(kept) for metric, kept in by_window.items()}


def share_and_width(ends: Sequence[Sequence[float]], truth: Floats) -> tuple[float, float]:
    """Return percent of the windows inside their interval, and its mean width in points."""
    low, high = np.array(ends).T
    known = ~np.isnan(low) & ~np.isnan(truth)
    near = 1e-9  # a ratio that equals an end, but for rounding
    inside = (low - near <= truth) & (truth <= high + near)
    return 100 * float(inside[known].mean()), 100 * float((high - low)[known].mean())


def compared(name: str, rows: int, ours: Measured, theirs: Measured | None) -> list[str]:
    """Return speed and memory of both."""
    lines = []
    for who, each in (("ours", ours), (name, theirs)):
        if each is None:
            lines.append(f"  {who:12} not measured")
            continue
        ratio = f"{each.estimate / ours.estimate:8.1f}"
        lines.append(
            f"  {who:12}{1e3 * each.fit:10.0f}{1e3 * each.estimate:12.0f}{rows / each.estimate:14,.0f}"
            f"{ratio}{each.megabytes:10.0f}"
        )
    return lines


def intervals(truth: Mapping[str, Floats], ours: Measured, theirs: Measured | None) -> list[str]:
    """Return coverage and width of both, a metric a line."""
    lines = [f"  {'':18}{'ours, 95 %':>22}{'NannyML, 99.7 %':>22}"]
    for metric, real in truth.items():
        cells = ""
        for measured in (ours, theirs):
            if measured is None or metric not in measured.intervals:
                cells += f"{'-':>22}"
                continue
            share, width = share_and_width(measured.intervals[metric], real)
            cells += f"{share:10.1f} % {width:6.1f} pts"
        lines.append(f"  {metric:18}{cells}")
    return lines


def unlabelled(inputs: Mapping[str, Any], ours: Results, theirs: Results) -> list[str]:
    """Return NannyML's part."""
    rows = len(inputs["analysis_scores"])
    lines = []
    for work, title in (("accuracy", "accuracy alone"), ("eight", "eight metrics")):
        lines.append(f"without labels, {title}: fit ms, estimate ms, rows/s, times ours, MB grown")
        lines += compared("NannyML", rows, ours[work], theirs.get(work))
    lines.append(f"windows of {WINDOW} inside their interval, and its mean width")
    return lines + intervals(realised(inputs), ours["eight"], theirs.get("eight"))


def powered() -> str:
    """Return the times of ppi-python's PPI++ beside ours, which must give the same."""
    with warnings.catch_warnings():  # importing it silences every warning of the process
        warnings.simplefilter("ignore")
        import ppi_py
    rng = np.random.default_rng(SEED)
    chance = rng.beta(4, 1, size=20_500)
    right = (rng.random(len(chance)) < 0.1 + 0.85 * chance).astype(float)
    phi, expected, fresh = right[:500], chance[:500], chance[500:]
    mine = prediction_powered(phi, expected, fresh).interval(0.95)
    ends = [float(np.ravel(end)[0]) for end in ppi_py.ppi_mean_ci(phi, expected, fresh, alpha=0.05)]
    ours = best(lambda: prediction_powered(phi, expected, fresh).interval(0.95), 50)
    theirs = best(lambda: ppi_py.ppi_mean_ci(phi, expected, fresh, alpha=0.05), 10)
    apart = float(np.abs(np.ravel(mine) - ends).max())
    return (
        f"PPI++ of 500 labels and 20,000 rows: ours {1e6 * ours:.0f} us, ppi-python {1e6 * theirs:.0f} us, "
        f"{theirs / ours:.1f} times ours; ends apart by at most {apart:.0e}"
    )


def joint() -> str:
    """Return the SSME paper's method beside ours."""
    from tests.fidelity.ssme.speed import measured  # it imports scikit-learn, which no other part needs

    cost = {tag: measured(tag, 1020, 7, 2) for tag in ("ssme", "ssme_paper")}
    seconds = {tag: part["fit"] + part["values"] for tag, part in cost.items()}
    return (
        "SSME, 1,020 rows of 7 models, 100 labels, fit and all metrics: ours "
        f"{seconds['ssme']:.2f} s and {cost['ssme']['megabytes']:.0f} MB, the paper's KDE "
        f"{seconds['ssme_paper']:.2f} s and {cost['ssme_paper']['megabytes']:.0f} MB, "
        f"{seconds['ssme_paper'] / seconds['ssme']:.1f} times ours"
    )


def table(
    nannyml_python: str | None = None,
    evidently_python: str | None = None,
    windows: int = WINDOWS,
    rounds: int = 3,
) -> Iterator[str]:
    """Yield everything."""
    data = arrays(windows)
    scripts = {
        "ours": (sys.executable, rounds),
        "nannyml_cbpe": (nannyml_python, rounds),
        "evidently_windows": (evidently_python, 1),
    }
    ours, cbpe, reports = run_scripts(data, scripts)
    rows = len(data["analysis_scores"])
    yield (
        f"{windows} windows of {WINDOW}, reference of {REFERENCE_ROWS:,}; times are the processor's, "
        f"the best of {rounds}"
    )
    yield from unlabelled(data, ours, cbpe)
    yield "with labels, a window at a time: fit ms, estimate ms, rows/s, times ours, MB grown"
    yield from compared("Evidently", rows, ours["labelled"], reports.get("labelled"))
    yield powered()
    yield joint()
    yield from one_window(confidences(np.random.default_rng(0), ORIGINAL, (WINDOW,)))


if __name__ == "__main__":
    run(table, keep=False)

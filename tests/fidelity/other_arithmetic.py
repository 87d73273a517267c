"""The changes in results where numpy and OpenBLAS compute as on another kind of processor.

    python -m tests.fidelity.other_arithmetic estimates
    python -m tests.fidelity.other_arithmetic suite

Both choose their code by what the processor can do, and can be told to do without some of it: numpy by
`NPY_DISABLE_CPU_FEATURES` (X86_V4 is AVX-512, X86_V3 is AVX2 with fused products; numpy before 2.4 has other
names), OpenBLAS by `OPENBLAS_CORETYPE` (Haswell is also what it takes for AMD's Zen). For each arithmetic
`estimates` prints how far the label-free estimates of the same windows, with the same calibrations, lie from
those of this processor: how many numbers differ in any bit, the largest difference, and how many differ in
the six decimals of a window's line. Ends of calibration errors stand apart: they rest on single precision.

`suite` runs the numeric tests folder by folder and prints how they ended: all under the first two, those of
estimates and calibrations under OpenBLAS' of others too. It takes as long as they do, twice; `--folders`
runs some of them, or single files.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from unittest.mock import patch

import numpy as np

from monitor import CALIBRATORS, CLASSIFICATION_METRICS, Estimate, calibration_from_snapshot
from monitor.base.records import Floats
from monitor.engine.evaluate import EstimationRequest, calibrate, evaluate
from tests.harness import ROOT, apart, run

NO_V4 = {"NPY_DISABLE_CPU_FEATURES": "X86_V4"}
NO_V3 = {"NPY_DISABLE_CPU_FEATURES": "X86_V3 X86_V4"}
ARITHMETICS = {
    "X86_V4 off": NO_V4,
    "X86_V3 and X86_V4 off": NO_V3,
    "X86_V4 off, OpenBLAS of Haswell": NO_V4 | {"OPENBLAS_CORETYPE": "Haswell"},
    "both off, OpenBLAS of Sandybridge": NO_V3 | {"OPENBLAS_CORETYPE": "Sandybridge"},
    "both off, OpenBLAS of Nehalem": NO_V3 | {"OPENBLAS_CORETYPE": "Nehalem"},
}
CALIBRATIONS = ("isotonic", "platt", "beta", "temperature", "vector")
CLASSES = (2, 4)
ROWS = (100, 500)
METRICS = (*CLASSIFICATION_METRICS, "ece", "class_ece")
FOLDERS = (
    "tests/stats/estimate",
    "tests/stats/calibration",
    "tests/stats/charts",
    "tests/stats/labelled",
    "tests/stats/pairwise",
    "tests/stats/sampling",
    "tests/engine",
    "tests/reports",
    "tests/store",
    "tests/fidelity",
)


def scores_of(rng: np.random.Generator, rows: int, classes: int) -> Floats:
    """Return scores of four decimals, each row summing to 1."""
    scores: Floats = rng.dirichlet(np.full(classes, 0.7), rows).round(4)
    scores[:, 0] = np.maximum(1.0 - scores[:, 1:].sum(axis=1), 0.0)
    return scores


def calibrations() -> dict[str, dict[str, Any]]:
    """Return snapshots, as a store would hold them, by classes and method."""
    snapshots: dict[str, dict[str, Any]] = {}
    for classes in CLASSES:
        rng = np.random.default_rng(classes)
        scores = scores_of(rng, 2000, classes)
        chances = scores**0.6 / (scores**0.6).sum(axis=1, keepdims=True)
        labels = (rng.random((2000, 1)) > chances.cumsum(axis=1)[:, :-1]).sum(axis=1)
        for method in CALIBRATIONS:
            fitted = CALIBRATORS[method]().fit(scores, scores.argmax(axis=1), labels)
            snapshots[f"{classes} {method}"] = dict(fitted.snapshot())
    return snapshots


def estimates(snapshots: Mapping[str, Mapping[str, Any]], windows: int) -> dict[str, list[float]]:
    """Value and ends by window and metric; windows of each size are drawn alike for each calibration."""
    results = {}
    for name, snapshot in snapshots.items():
        classes, fitted = int(name.split()[0]), calibration_from_snapshot(snapshot)
        for rows in ROWS:
            for window in range(windows):
                scores = scores_of(np.random.default_rng([classes, rows, window]), rows, classes)
                predicted = scores.argmax(axis=1)
                request = EstimationRequest(
                    scores, predicted, calibrate(fitted, scores), METRICS, 1, 0.95, window
                )
                for metric, result in evaluate([request])[0].estimates.items():
                    assert isinstance(result, Estimate)
                    results[f"{name} {rows} {window} {metric}"] = [result.value, result.lower, result.upper]
    return results


def estimates_under(
    arithmetic: Mapping[str, str], snapshots: Mapping[str, Mapping[str, Any]], windows: int
) -> dict[str, list[float]]:
    """Return the same estimates from a process of its own."""
    with patch.dict(os.environ, arithmetic):
        return apart(estimates, snapshots, windows)


def differences(here: Mapping[str, list[float]], there: Mapping[str, list[float]]) -> tuple[Floats, Floats]:
    """Return (numbers, 2) what both computed: ends of calibration errors, and all other numbers."""
    pairs: tuple[list[tuple[float, float]], list[tuple[float, float]]] = ([], [])
    for name, numbers in here.items():
        for place, pair in enumerate(zip(numbers, there[name], strict=True)):
            pairs[not (name.endswith("ece") and place)].append(pair)
    ends, rest = map(np.array, pairs)
    return ends, rest


def table(windows: int = 30) -> Iterator[str]:
    """Yield the differences, arithmetic by arithmetic."""
    snapshots = calibrations()
    here = estimates_under({}, snapshots, windows)
    yield (
        f"Label-free estimates of {len(here) // len(METRICS):,} windows beside those of this processor, "
        "numbers from 0 to 1 (python -m tests.fidelity.other_arithmetic estimates)"
    )
    yield f"{'':56}{'numbers':>9}{'other bits':>12}{'largest':>10}{'other decimals':>16}"
    for name, arithmetic in ARITHMETICS.items():
        there = estimates_under(arithmetic, snapshots, windows)
        for what, both in zip(("ends of ece, class_ece", "all else"), differences(here, there), strict=True):
            apart_by = np.abs(both[:, 0] - both[:, 1])
            written = (both.round(6)[:, 0] != both.round(6)[:, 1]).sum()
            yield (
                f"{name:33} {what:22}{len(both):>9,}{(apart_by > 0).sum():>12,}{apart_by.max():>10.1g}"
                f"{written:>16}"
            )


def suite(folders: Sequence[str] = FOLDERS) -> Iterator[str]:
    """Yield how the tests of each folder end: ``625 passed``."""
    yield "The numeric tests under other arithmetic (python -m tests.fidelity.other_arithmetic suite)"
    for name, arithmetic in ARITHMETICS.items():
        for folder in folders if set(arithmetic) == set(NO_V4) else folders[:2]:
            words = [sys.executable, "-m", "pytest", "-q", "-n", "1", "-p", "no:cacheprovider", folder]
            environment = os.environ | arithmetic
            done = subprocess.run(
                words, env=environment, cwd=ROOT, capture_output=True, text=True, check=False
            )
            yield f"{name:34}{folder:46}{done.stdout.splitlines()[-1].strip('= ').partition(' in ')[0]}"


if __name__ == "__main__":
    run({"estimates": table, "suite": suite})

"""Coverage of the interval of every metric on three tables that NannyML ships, with and without labels.

    python -m tests.fidelity.shipped_tables [--data FOLDER]

Car loans (two classes), credit cards (three) and work from home (two), each a reference and as many rows to
analyse, half of which come after a sudden change of the concept that no confidence shows. An isotonic
calibration on the reference;
windows of 500 and 5,000; labels of none, 5 % or 20 % of the rows, which come one window late, or, in the last
column, of 20 % before their window closes. Of the accuracy, columns with labels are `corrected`. An interval
should cover the metric of the window's own rows and labels. The first two tables were looked at between
changes of the method; work from home was looked at once, after the last one.

The tables are not part of this repository: they come with the package `nannyml` 0.13.1 (Apache-2.0), in
`nannyml/datasets/data` of its wheel (`pip download nannyml==0.13.1 --no-deps --python-version 3.12
--only-binary=:all:`, then unzip). `--data`, or the variable `BLINDSIGHT_TABLES`, names the folder that holds
the files of `SHA256`.
"""

from __future__ import annotations

import csv
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from monitor import CALIBRATORS, classification_details
from monitor.base.records import Floats, Ints
from monitor.base.results import Estimate
from monitor.engine.evaluate import EstimationRequest, Evaluation, evaluate, informed
from monitor.stats.calibration.base import Calibration, Calibrator, confidence_of, cross_fit_in_time
from monitor.stats.estimate.class_bias import ClassErrors
from monitor.stats.estimate.corrected import Correction
from monitor.stats.estimate.predictive import Predictive
from monitor.stats.estimate.predictive_fit import fit_predictive
from tests.harness import run

VARIABLE = "BLINDSIGHT_TABLES"
SHA256 = {
    "synthetic_car_loan_reference.csv": "e6d2e70d8bac3e892764cb96570efb1adebf8f95497e07e96746eb1d94925995",
    "synthetic_car_loan_analysis.csv": "1ecfee47fbce587b423d1eb365cbb7b36265388596dca5b3e1fed0748159529b",
    "synthetic_car_loan_analysis_target.csv": (
        "017d51c34548b57e663d216ad369588fa30d6a9523f94b81ef0a2af148009560"
    ),
    "mc_reference.csv": "0f6f86734566813032cb0f18165938bd11a81c805285f5e67bccd02d7ec991d3",
    "mc_analysis.csv": "a8955b5167645cd5283caa2217e5b5949cbdf224c34bf4e89b6531bfbee13cb2",
    "mc_analysis_gt.csv": "8965a1ac4fba71458861fad3b9bd4a585151ed813d9aa5f6708ed0f22220789e",
    "synthetic_sample_reference.csv": "8a0b33ce315335bf2789c4ec51dee6afca4d20c99358832a53ee032856f069a2",
    "synthetic_sample_analysis.csv": "ee17f0b3935523a64f9eac06a3894210a1e984dcd5b91e7663be7d094b4fe05b",
    "synthetic_sample_analysis_gt.csv": ("d8aa1181767205743d0cb599a8caf4898b835b8d4ac69300a55e3649feb1d69a"),
}
SIZES = (500, 5000)
METRICS = ("accuracy", "precision", "recall", "specificity", "f1", "auroc", "average_precision")
LABELS = ((0.0, 1), (0.05, 1), (0.2, 1), (0.2, 0))
"""Share of the rows with labels, and how many windows late they come."""

CARDS = ("prepaid_card", "highstreet_card", "upmarket_card")


class Table(NamedTuple):
    """Rows in order of time, the first `known` of which are the reference."""

    name: str
    scores: Floats
    predicted: Ints
    labels: Ints
    reference: int


def folder(data: Path | None = None) -> Path:
    """Return the folder of the tables.

    Raises
    ------
    FileNotFoundError
        It is not named, or lacks a file, or a file is another; the message says where the tables come from.
    """
    where = (
        f"set {VARIABLE} to a folder with {', '.join(SHA256)} of nannyml 0.13.1 (nannyml/datasets/data of "
        "its wheel); tests.fidelity.shipped_tables has their SHA-256"
    )
    named = data or os.environ.get(VARIABLE)
    if not named:
        raise FileNotFoundError(where)
    for name, digest in SHA256.items():
        file = Path(named) / name
        if not file.is_file() or hashlib.sha256(file.read_bytes()).hexdigest() != digest:
            raise FileNotFoundError(f"{file} is not there, or another file; {where}")
    return Path(named)


def tables(data: Path) -> tuple[Table, Table, Table]:
    """Read them."""
    loans = _of_two_classes(data, "car loans", "synthetic_car_loan_{}.csv", "analysis_target", "repaid")
    home = _of_two_classes(
        data, "work from home", "synthetic_sample_{}.csv", "analysis_gt", "work_home_actual"
    )
    known, rest = _read(data / "mc_reference.csv"), _read(data / "mc_analysis.csv")
    scores = np.array([[float(row[f"y_pred_proba_{card}"]) for card in CARDS] for row in known + rest])
    chosen = np.array([CARDS.index(row["y_pred"]) for row in known + rest])
    happened = np.array([CARDS.index(row["y_true"]) for row in [*known, *_read(data / "mc_analysis_gt.csv")]])
    return loans, Table("credit cards", scores, chosen, happened, len(known)), home


def _of_two_classes(data: Path, name: str, file: str, labels: str, label: str) -> Table:
    known, rest = _read(data / file.format("reference")), _read(data / file.format("analysis"))
    score = np.array([float(row["y_pred_proba"]) for row in known + rest])
    predicted = np.array([int(float(row["y_pred"])) for row in known + rest])
    true = [row[label] for row in [*known, *_read(data / file.format(labels))]]
    happened = np.array([int(float(each)) for each in true])
    return Table(name, np.column_stack((1 - score, score)), predicted, happened, len(known))


def _read(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


class Seen:
    """The estimates of one stream of windows from the labels that have come."""

    def __init__(self, settings: Correction, model: Predictive, share: float, late: int) -> None:
        self.model, self.late = model, late
        self._rng, self._share = np.random.default_rng(1), share
        self._logic, self._errors = settings.build(), ClassErrors()
        self._waiting: list[tuple[Ints, Ints, Ints, Floats, Floats]] = []

    def results(self, k: int, exact: Evaluation, predicted: Ints, right: Floats) -> dict[str, Estimate]:
        """Return the intervals of a window as it closes."""
        block = self._logic.close(k, exact.confidence)
        picked = self._rng.random(len(right)) < self._share
        columns = np.full(len(right), k), block, predicted, exact.confidence, right
        self._waiting.append(tuple(each[picked] for each in columns))  # type: ignore[arg-type]
        if k >= self.late:
            window, block, predicted, confidence, right = self._waiting[k - self.late]
            self._logic.push(block, confidence, right)
            self._errors.add(window, predicted, confidence.astype(np.float32).astype(np.float64), right > 0)
        estimates = dict(informed(exact, self.model, self._errors.shown(self.model.strata, k)).estimates)
        if self._logic.labelled:
            estimates["accuracy"] = self._logic.estimate(k)
        return {metric: each for metric, each in estimates.items() if isinstance(each, Estimate)}


def fitted(table: Table) -> tuple[Calibration, Predictive, Calibrator]:
    """Return the calibration on the reference, and what widens intervals."""
    calibrator, old = CALIBRATORS["isotonic"](), slice(0, table.reference)
    rows = table.scores[old], table.predicted[old], table.labels[old]
    return calibrator.fit(*rows), fit_predictive(calibrator, *rows), calibrator


def measured(
    table: Table, size: int, windows: int | None = None
) -> dict[tuple[str, int], tuple[float, float]]:
    """Return, by metric and place in `LABELS`, the share of windows covered, and the mean width."""
    calibration, model, calibrator = fitted(table)
    old = slice(0, table.reference)
    rows = table.scores[old], table.predicted[old], table.labels[old]
    crossed = confidence_of(cross_fit_in_time(calibrator, *rows, folds=5), rows[1])
    settings = Correction.from_reference(crossed, rows[1] == rows[2], size)
    streams = [Seen(settings, model, share, late) for share, late in LABELS]
    many = (len(table.labels) - table.reference) // size
    cells: dict[tuple[str, int], list[tuple[bool, float]]] = {}
    for k in range(many if windows is None else windows):
        cut = slice(table.reference + k * size, table.reference + (k + 1) * size)
        scores, predicted, labels = table.scores[cut], table.predicted[cut], table.labels[cut]
        truth = classification_details(np.eye(scores.shape[1])[labels], predicted, METRICS, ranking=scores)
        request = EstimationRequest(
            scores, predicted, calibration.apply(scores), METRICS, 1, 0.95, k, predictive=model
        )
        [exact] = evaluate([request])
        for place, stream in enumerate(streams):
            for metric, one in stream.results(k, exact, predicted, (predicted == labels) * 1.0).items():
                real = truth[metric].result
                assert isinstance(real, Estimate)
                within = one.lower - 1e-9 <= real.value <= one.upper + 1e-9
                cells.setdefault((metric, place), []).append((within, one.upper - one.lower))
    return {
        of: (float(np.mean([within for within, _ in each])), float(np.mean([wide for _, wide in each])))
        for of, each in cells.items()
    }


def table(data: Path | None = None) -> Iterator[str]:
    """Yield all tables, a line a metric."""
    yield "Covered by the 95 % interval, in %, and mean width in points"
    yield "(python -m tests.fidelity.shipped_tables)"
    heads = [
        "no labels" if not share else f"{100 * share:g} %, {'late' if late else 'at once'}"
        for share, late in LABELS
    ]
    yield f"{'':38s}" + "".join(f"{head:>16s}" for head in heads)
    for one in tables(folder(data)):
        for size in SIZES:
            cells = measured(one, size)
            for metric in METRICS:
                shown = [cells[metric, place] for place in range(len(LABELS))]
                row = "".join(f"{100 * share:9.1f}{100 * width:7.1f}" for share, width in shown)
                yield f"{one.name:14s}{size:>6,}  {metric:16s}{row}"


if __name__ == "__main__":
    run(table)

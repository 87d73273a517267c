"""Train, calibrate, estimate: the errors of AC, DoC-Feat and ATC under four degrees of shift."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from monitor import (
    ATC,
    CALIBRATORS,
    Calibration,
    DoCFeat,
    average_confidence_many,
    confidence_of,
    labelled_calibration_error,
)
from monitor.base.records import Floats, Ints
from monitor.base.results import Estimate
from tests.fidelity.kivimaki.classifiers import CLASSIFIERS
from tests.fidelity.kivimaki.data import OTHER_ROWS, SCENARIOS, SHIFTS, TRAIN_ROWS, Sample, Scenario
from tests.fidelity.kivimaki.exact import WINDOW, folded_normal

TRIALS = 1000


@dataclass(frozen=True)
class Sizes:
    """Rows to train on, rows of each other set, and windows of 500 rows a degree of shift."""

    train: int = TRAIN_ROWS
    other: int = OTHER_ROWS
    trials: int = TRIALS


@dataclass(frozen=True, eq=False)
class Scored:
    """A sample as one classifier sees it: scores (n, 2), predicted classes (n,) and whether right (n,)."""

    sample: Sample
    scores: Floats
    predicted: Ints

    @property
    def right(self) -> Floats:
        """1.0 where the prediction is the label, else 0.0."""
        return (self.predicted == self.sample.label).astype(np.float64)

    @property
    def true_chance(self) -> Floats:
        """The chance that each prediction is right."""
        return np.where(self.predicted == 1, self.sample.chance, 1 - self.sample.chance)


@dataclass(frozen=True)
class Cell:
    """One estimator at one degree of shift, as shares.

    Parameters
    ----------
    error, standard_error : float
        Mean absolute error over the windows, and the error of that mean.
    limit : float
        What it tends to with ever more windows of these rows: the mean of a folded normal distribution.
    """

    error: float
    standard_error: float
    limit: float


@dataclass(frozen=True)
class Line:
    """One classifier at one degree of shift: shares, those of the estimators as in `printed.ESTIMATORS`.

    Parameters
    ----------
    accuracy : float
        Mean accuracy of the windows.
    true_accuracy : float
        Mean true chance of the predicted class over all test rows: accuracy without the luck of labels.
    raw_error, calibrated_error : float
        Calibration error of all test rows (20 bins of equal count).
    cells : tuple of Cell
    """

    model: str
    shift: int
    accuracy: float
    true_accuracy: float
    raw_error: float
    calibrated_error: float
    cells: tuple[Cell, ...]

    def values(self) -> Floats:
        """Return the values in the order of `printed.COLUMNS`, in percent."""
        return 100 * np.array(
            [self.accuracy, self.raw_error, self.calibrated_error, *(cell.error for cell in self.cells)]
        )


@dataclass(frozen=True, eq=False)
class Study:
    """One scenario with its samples drawn: every classifier sees the same rows and windows."""

    scenario: Scenario
    sizes: Sizes
    train: Sample
    calibration: Sample
    reference: Sample
    tests: tuple[Sample, ...]
    windows: tuple[Ints, ...]

    @classmethod
    def draw(cls, scenario: Scenario, sizes: Sizes, seed: int) -> Study:
        """Return all samples, and the rows (trials, 500) of each degree's windows, drawn with replacement."""
        rng = np.random.default_rng([seed, len(scenario.easy.mean)])
        return cls(
            scenario,
            sizes,
            scenario.draw(rng, sizes.train, 0),
            scenario.draw(rng, sizes.other, 0),
            scenario.draw(rng, sizes.other, 0),
            tuple(scenario.draw(rng, sizes.other, shift) for shift in SHIFTS),
            tuple(rng.integers(sizes.other, size=(sizes.trials, WINDOW)) for _ in SHIFTS),
        )


@dataclass(frozen=True, eq=False)
class Judged:
    """One trained classifier with all its scores, so that calibrations can be compared on them."""

    model: str
    calibration: Scored
    reference: Scored
    tests: tuple[Scored, ...]


def judged(study: Study, model: str, seed: int) -> Judged:
    """Train one classifier and score every sample.

    Raises
    ------
    MissingExtraError
        Its library is not installed.
    """
    fitted = CLASSIFIERS[model](seed)
    fitted.fit(study.train.points, study.train.label)

    def scored(sample: Sample) -> Scored:
        scores = np.asarray(fitted.predict_proba(sample.points), dtype=np.float64)
        scores = scores / scores.sum(axis=1, keepdims=True)  # XGBoost's are float32
        return Scored(sample, scores, scores.argmax(axis=1).astype(np.int64))

    return Judged(
        model, scored(study.calibration), scored(study.reference), tuple(scored(test) for test in study.tests)
    )


def lines(study: Study, judged: Judged, method: str = "isotonic") -> Iterator[Line]:
    """Yield a line for each degree of shift, with the calibration of that name."""
    teaching = judged.calibration
    fitted = CALIBRATORS[method]().fit(teaching.scores, teaching.predicted, teaching.sample.label)
    learned = [_learned(judged.reference, each) for each in _confidences(judged.reference, fitted)]
    for shift, test, rows in zip(SHIFTS, judged.tests, study.windows, strict=True):
        confidences, right = _confidences(test, fitted), test.right
        realised = right[rows].mean(axis=1)
        by_map = [
            _cells(confidence, right, rows, *reference)
            for confidence, reference in zip(confidences, learned, strict=True)
        ]
        yield Line(
            judged.model,
            shift,
            float(realised.mean()),
            float(test.true_chance.mean()),
            *(_calibration_error(confidence, right) for confidence in confidences),
            tuple(cell for pair in zip(*by_map, strict=True) for cell in pair),
        )


def _confidences(scored: Scored, fitted: Calibration) -> list[Floats]:
    """Return the confidences in the predicted class: uncalibrated and calibrated."""
    return [
        confidence_of(scores, scored.predicted) for scores in (scored.scores, fitted.apply(scored.scores))
    ]


def _learned(reference: Scored, confidence: Floats) -> tuple[DoCFeat, ATC]:
    return DoCFeat.fit(confidence, reference.right), ATC.fit(confidence, reference.right)


def _cells(confidence: Floats, right: Floats, rows: Ints, doc: DoCFeat, atc: ATC) -> list[Cell]:
    """Return the cells of AC, DoC-Feat and ATC, without `estimate`, which would compute an interval too."""
    realised = right[rows].mean(axis=1)
    means = average_confidence_many(confidence[rows])[:, 0]
    above = confidence > atc.threshold
    return [
        _cell(means - realised, confidence - right),
        _cell(np.clip(means + doc.bias, 0.0, 1.0) - realised, confidence + doc.bias - right),
        _cell(above[rows].mean(axis=1) - realised, above - right),
    ]


def _cell(errors: Floats, by_row: Floats) -> Cell:
    size = np.abs(errors)
    spread = float(size.std(ddof=1)) / len(size) ** 0.5
    limit = folded_normal(float(by_row.mean()), float(by_row.std()) / WINDOW**0.5)
    return Cell(float(size.mean()), spread, limit)


def _calibration_error(confidence: Floats, right: Floats) -> float:
    error = labelled_calibration_error(confidence, right).plain.result
    assert isinstance(error, Estimate)
    return error.value


Found = Mapping[str, Mapping[str, Sequence[Line]]]
"""By calibration, then by scenario: lines in the order of shifts, then of models."""


def measure(
    models: Sequence[str], sizes: Sizes, seed: int = 1, methods: Sequence[str] = ("isotonic",)
) -> Found:
    """Return every classifier in both scenarios under every calibration.

    Raises
    ------
    MissingExtraError
        XGBoost or LightGBM is asked for and not installed.
    """
    by_method: dict[str, dict[str, list[Line]]] = {method: {} for method in methods}
    for scenario in SCENARIOS:
        study = Study.draw(scenario, sizes, seed)
        for model in models:
            trained = judged(study, model, seed)
            for method in methods:
                by_method[method].setdefault(scenario.name, []).extend(lines(study, trained, method))
    for by_scenario in by_method.values():
        for each in by_scenario.values():
            each.sort(key=lambda line: line.shift)
    return by_method


def spread(models: Sequence[str], sizes: Sizes, seeds: Sequence[int]) -> dict[tuple[str, str], Floats]:
    """Return standard deviation between data sets, in points: by scenario and model, in the order of the
    columns.

    Everything is drawn and trained again for each seed; variances are averaged over the degrees of shift.
    """
    runs = [measure(models, sizes, seed)["isotonic"] for seed in seeds]
    deviations = {}
    for name in runs[0]:
        values = np.array([[line.values() for line in run[name]] for run in runs])
        variance = values.var(axis=0, ddof=1).reshape(len(SHIFTS), len(models), -1).mean(axis=0)
        deviations.update({(name, model): np.sqrt(variance[at]) for at, model in enumerate(models)})
    return deviations


def correlations(rows: Sequence[Line]) -> Floats:
    """Return the correlation of each estimator's error with the calibration error of its scores."""
    values = np.array([line.values() for line in rows])
    return np.array([np.corrcoef(values[:, 1 + k % 2], values[:, 3 + k])[0, 1] for k in range(6)])

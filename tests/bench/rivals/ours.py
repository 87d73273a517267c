"""The same work by this package."""

from __future__ import annotations

import sys

import numpy as np

from monitor import (
    CLASSIFICATION_METRICS,
    ESTIMATORS,
    Calibration,
    Estimate,
    IsotonicCalibrator,
    average_confidence_many,
    calibration_error,
    classification_details_many,
)
from monitor.base.records import Floats
from tests.bench.rivals.stopwatch import measured, tell

LEVEL = 0.95
Intervals = dict[str, list[list[float]]]


def main(path: str, rounds: int) -> None:
    arrays = np.load(path)
    window = int(arrays["window"])
    reference, scores = two_columns(arrays["reference_scores"]), two_columns(arrays["analysis_scores"])
    truth, labels = arrays["reference_labels"], arrays["analysis_labels"].reshape(-1, window)

    def fit() -> Calibration:
        return IsotonicCalibrator().fit(reference, reference.argmax(axis=1), truth)

    def accuracy(fitted: Calibration) -> Floats:
        chances, acted = fitted.apply(scores), scores.argmax(axis=1)
        return average_confidence_many(chances[np.arange(len(acted)), acted].reshape(-1, window), LEVEL)

    def eight(fitted: Calibration) -> Intervals:
        chances = fitted.apply(scores).reshape(-1, window, 2)
        raw = scores.reshape(-1, window, 2)
        intervals: Intervals = {metric: [] for metric in (*CLASSIFICATION_METRICS, "ece")}
        acted = raw.argmax(axis=2)
        for each in classification_details_many(
            chances, acted, CLASSIFICATION_METRICS, LEVEL, positive=1, rankings=raw
        ):
            for metric, estimate in each.items():
                intervals[metric].append(ends(estimate.result))
        for mine, raw_scores, own in zip(chances, raw, acted, strict=True):
            error = calibration_error(raw_scores.max(axis=1), mine[np.arange(window), own], level=LEVEL)
            intervals["ece"].append(ends(error.result))
        return intervals

    def labelled(_: object) -> Intervals:
        intervals: Intervals = {"accuracy": [], "auroc": [], "average_precision": []}
        for window_scores, known in zip(scores.reshape(-1, window, 1, 2), labels, strict=True):
            fitted = ESTIMATORS["labelled"]().fit(window_scores, known)
            for metric, kept in intervals.items():
                kept.append(ends(fitted.estimate(metric, 0, level=LEVEL)))
        return intervals

    tell(
        {
            "accuracy": measured(fit, accuracy, lambda values: {"accuracy": values[:, 1:].tolist()}, rounds),
            "eight": measured(fit, eight, dict, rounds),
            "labelled": measured(lambda: None, labelled, dict, rounds),
        }
    )


def two_columns(p: Floats) -> Floats:
    """Return the probabilities of both classes."""
    return np.column_stack([1 - p, p])


def ends(result: object) -> list[float]:
    """Return the ends of an estimate; NaN where it is unknown."""
    return [result.lower, result.upper] if isinstance(result, Estimate) else [np.nan, np.nan]


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))

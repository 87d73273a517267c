"""The drift of every feature in each window by this package, from counts."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import numpy as np

from monitor.base.records import FeatureKind, Floats, text_codes
from monitor.stats.features.drift import discoveries, drift
from monitor.stats.features.tables import FeatureTable, count_features
from tests.bench.rivals.drift_frames import NAMES, NUMBERS, SETS, columns, windows
from tests.bench.rivals.stopwatch import measured, tell


def kind(name: str) -> FeatureKind:
    """Return the kind of a feature."""
    return "number" if name in NUMBERS else "text"


def encoded(some: dict[str, Any]) -> Floats:
    """Return the features (n, F) as the decoder gives them: a number for each value, a code for each text."""
    return np.column_stack(
        [some[name] if kind(name) == "number" else text_codes(some[name].tolist()) for name in NAMES]
    )


def main(path: str, rounds: int) -> None:
    arrays = np.load(path)
    reference = columns(arrays, "reference")
    frames = {part: windows(arrays, part) for part in SETS}

    def fit() -> list[FeatureTable]:
        features = encoded(reference)
        return [
            FeatureTable.from_values(kind(name), column)
            for name, column in zip(NAMES, features.T, strict=True)
        ]

    def run(tables: list[FeatureTable], part: str) -> list[list[str]]:
        return [drifted(tables, encoded(some)) for some in frames[part]]

    work = measured(fit, lambda tables: run(tables, "same"), lambda _: {}, rounds)
    tables = fit()
    tell({"drift": replace(work, drifted={part: run(tables, part) for part in SETS})})


def drifted(tables: list[FeatureTable], features: Floats) -> list[str]:
    """Return the features of a window that the page of a model calls drifted."""
    counts = count_features(tables, features)
    each = [drift(table.counts, own) for table, own in zip(tables, counts, strict=True)]
    discovered = discoveries(np.array([one.p_value for one in each]))
    return [
        name
        for name, one, differs in zip(NAMES, each, discovered, strict=True)
        if differs and one.distance > one.distance_threshold
    ]


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))

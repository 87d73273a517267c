"""Evidently's drift report of each window, `DataDriftPreset` with its default tests and thresholds.

A report takes seconds, so only the first windows of each set have one: `REPORTS`. The seconds are those of
the timed ones, in proportion to all windows of the set.
"""

from __future__ import annotations

import sys
import warnings
from dataclasses import replace
from typing import Any

import numpy as np

from tests.bench.rivals.drift_frames import NAMES, NUMBERS, SETS, TEXTS, columns, windows
from tests.bench.rivals.stopwatch import measured, tell

REPORTS = {"same": 40, "short": 20, "moved": 20}


def main(path: str, rounds: int) -> None:
    warnings.simplefilter("ignore")
    import pandas as pd
    from evidently import DataDefinition, Dataset, Report
    from evidently.presets import DataDriftPreset

    arrays = np.load(path)
    definition = DataDefinition(numerical_columns=list(NUMBERS), categorical_columns=list(TEXTS))

    def dataset(some: dict[str, Any]) -> Any:
        return Dataset.from_pandas(pd.DataFrame(some), data_definition=definition)

    reference = dataset(columns(arrays, "reference"))
    frames = {part: windows(arrays, part) for part in SETS}

    def run(part: str) -> list[list[str]]:
        return [
            drifted(Report([DataDriftPreset()]).run(dataset(some), reference).dict())
            for some in frames[part][: REPORTS[part]]
        ]

    named: dict[str, list[list[str]]] = {}
    work = measured(lambda: None, lambda _: named.update(same=run("same")), lambda _: {}, rounds)
    named |= {part: run(part) for part in SETS if part not in named}
    share = len(named["same"]) / len(frames["same"])
    tell({"drift": replace(work, estimate=work.estimate / share, drifted=named)})


def drifted(report: dict[str, Any]) -> list[str]:
    """Return the columns whose distance reaches its threshold, as the report's own count has them."""
    count, *values = report["metrics"]
    names = [
        each["config"]["column"] for each in values if float(each["value"]) >= each["config"]["threshold"]
    ]
    assert len(values) == len(NAMES), "a column has no value"
    assert len(names) == count["value"]["count"], (names, count)
    return names


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))

"""NannyML's univariate drift, with its default methods and thresholds."""

from __future__ import annotations

import sys
import warnings
from dataclasses import replace
from typing import Any

import numpy as np

from tests.bench.rivals.drift_frames import NAMES, SETS, columns
from tests.bench.rivals.stopwatch import measured, tell


def main(path: str, rounds: int) -> None:
    warnings.simplefilter("ignore")
    import nannyml
    import pandas as pd

    arrays = np.load(path)
    frames = {part: pd.DataFrame(columns(arrays, part)) for part in ("reference", *SETS)}

    def fit(window: int) -> Any:
        calculator = nannyml.UnivariateDriftCalculator(column_names=list(NAMES), chunk_size=window)
        return calculator.fit(frames["reference"])

    def drifted(result: Any) -> list[list[str]]:
        table = result.filter(period="analysis").to_df()
        alerts = {name: table[name]["jensen_shannon"]["alert"].tolist() for name in NAMES}
        return [[name for name in NAMES if alerts[name][row]] for row in range(len(table))]

    work = measured(
        lambda: fit(SETS["same"]), lambda fitted: fitted.calculate(frames["same"]), lambda _: {}, rounds
    )
    named = {part: drifted(fit(size).calculate(frames[part])) for part, size in SETS.items()}
    tell({"drift": replace(work, drifted=named)})


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))

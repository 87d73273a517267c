"""NannyML's DLE on the tables of `bench_rivals_regression`: the mean absolute error of each window."""

from __future__ import annotations

import json
import sys
import time
import warnings

import numpy as np


def main(path: str) -> None:
    warnings.simplefilter("ignore")
    import nannyml
    import pandas as pd

    arrays = np.load(path)
    results = {}
    for case in sorted({name.rpartition(":")[0] for name in arrays.files}):
        columns = [f"x{k}" for k in range(arrays[f"{case}:reference"].shape[1] - 1)]

        def frame(part: str, case: str = case, columns: list[str] = columns) -> pd.DataFrame:
            return pd.DataFrame(arrays[f"{case}:{part}"], columns=["hat", *columns])

        begun = time.process_time()
        dle = nannyml.DLE(
            feature_column_names=columns,
            y_pred="hat",
            y_true="y",
            metrics=["mae"],
            chunk_size=int(arrays[f"{case}:window"]),
        )
        dle.fit(frame("reference").assign(y=arrays[f"{case}:labels"]))
        table = dle.estimate(frame("production")).filter(period="analysis").to_df()["mae"]
        results[case] = {
            "values": table["value"].tolist(),
            "lower": table["lower_confidence_boundary"].tolist(),
            "upper": table["upper_confidence_boundary"].tolist(),
            "alarms": table["alert"].astype(bool).tolist(),
            "seconds": time.process_time() - begun,
        }
    print(json.dumps(results))


if __name__ == "__main__":
    main(sys.argv[1])

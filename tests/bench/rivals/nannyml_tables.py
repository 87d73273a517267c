"""NannyML's CBPE on the tables of `bench_rivals_tables`: the accuracy and the alert of each window."""

from __future__ import annotations

import json
import sys
import warnings

import numpy as np


def main(path: str) -> None:
    warnings.simplefilter("ignore")
    import nannyml
    import pandas as pd

    arrays = np.load(path)
    results = {}
    for case in sorted({name.rpartition(":")[0] for name in arrays.files}):
        scores = arrays[f"{case}:reference"]
        classes = range(scores.shape[1])
        is_binary = len(classes) == 2
        columns = {k: f"p{k}" for k in classes}

        def frame(part: str, case: str = case, columns: dict[int, str] = columns) -> pd.DataFrame:
            table = pd.DataFrame(arrays[f"{case}:{part}"], columns=list(columns.values()))
            return table.assign(hat=table.to_numpy().argmax(axis=1))

        cbpe = nannyml.CBPE(
            y_pred_proba="p1" if is_binary else columns,
            y_pred="hat",
            y_true="y",
            problem_type="classification_binary" if is_binary else "classification_multiclass",
            metrics=["accuracy"],
            chunk_size=int(arrays[f"{case}:window"]),
        )
        cbpe.fit(frame("reference").assign(y=arrays[f"{case}:labels"]))
        table = cbpe.estimate(frame("production")).filter(period="analysis").to_df()["accuracy"]
        results[case] = {"values": table["value"].tolist(), "alarms": table["alert"].astype(bool).tolist()}
    print(json.dumps(results))


if __name__ == "__main__":
    main(sys.argv[1])

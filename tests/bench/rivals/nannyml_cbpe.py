"""NannyML's CBPE: accuracy alone, and eight metrics."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import numpy as np

from tests.bench.rivals.stopwatch import measured, tell

SEVEN = ["accuracy", "precision", "recall", "specificity", "f1", "roc_auc", "average_precision"]
NAMES = {"roc_auc": "auroc"}


def main(path: str, rounds: int) -> None:
    warnings.simplefilter("ignore")
    import nannyml
    import pandas as pd

    arrays = np.load(path)
    frames = {
        part: pd.DataFrame({"p": arrays[f"{part}_scores"], "y": arrays[f"{part}_labels"]})
        for part in ("reference", "analysis")
    }
    for frame in frames.values():
        frame["hat"] = (frame["p"] >= 0.5).astype(int)

    def run(metrics: list[str]) -> Any:
        def fit() -> Any:
            cbpe = nannyml.CBPE(
                y_pred_proba="p",
                y_pred="hat",
                y_true="y",
                problem_type="classification_binary",
                metrics=metrics,
                chunk_size=int(arrays["window"]),
            )
            return cbpe.fit(frames["reference"])

        def intervals(results: Any) -> dict[str, list[list[float]]]:
            table = results.filter(period="analysis").to_df()
            return {
                NAMES.get(metric, metric): table[metric][
                    ["lower_confidence_boundary", "upper_confidence_boundary"]
                ]
                .to_numpy()
                .tolist()
                for metric in metrics
                if metric in SEVEN
            }

        return measured(fit, lambda cbpe: cbpe.estimate(frames["analysis"][["p", "hat"]]), intervals, rounds)

    tell({"accuracy": run(["accuracy"]), "eight": run([*SEVEN, "confusion_matrix"])})


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))

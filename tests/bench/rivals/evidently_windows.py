"""Evidently on labelled windows: a report each, of the accuracy and the AUROC. It gives no intervals."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import numpy as np

from tests.bench.rivals.stopwatch import measured, tell


def main(path: str, rounds: int) -> None:
    warnings.simplefilter("ignore")
    import pandas as pd
    from evidently import BinaryClassification, DataDefinition, Dataset, Report
    from evidently.metrics import Accuracy, RocAuc

    arrays = np.load(path)
    window = int(arrays["window"])
    scores, labels = (arrays[f"analysis_{name}"].reshape(-1, window) for name in ("scores", "labels"))
    frames = [
        pd.DataFrame({"p": p, "hat": (p >= 0.5).astype(int), "y": y})
        for p, y in zip(scores, labels, strict=True)
    ]
    columns = BinaryClassification(target="y", prediction_labels="hat", prediction_probas="p", pos_label=1)

    def run(fitted: Any) -> list[Any]:
        definition = DataDefinition(classification=[columns])
        report = Report([Accuracy(), RocAuc()])
        return [report.run(Dataset.from_pandas(frame, data_definition=definition)).dict() for frame in frames]

    tell({"labelled": measured(lambda: None, run, lambda results: {}, rounds)})


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))

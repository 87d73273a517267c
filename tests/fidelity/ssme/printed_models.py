"""The printed figures of Shanmugam et al. for each model of "Toxicity Detection": Tables S8 to S11, 20
labels.
"""

from __future__ import annotations

from collections.abc import Mapping

MODELS = ("CORAL", "ERM", "ERM_seed1", "ERM_seed2", "IRM", "IRM_seed1", "IRM_seed2")
"""Rows of the tables, by their names in the shared data."""

TABLES: Mapping[str, str] = {"accuracy": "S8", "class_ece": "S9", "auroc": "S10", "average_precision": "S11"}

_FIVE = ("labelled", "majority_vote", "pseudo_label", "dawid_skene", "bayesian_calibration")

COLUMNS: Mapping[str, tuple[str, ...]] = {
    "accuracy": (*_FIVE, "autoeval", "active_testing", "ssme_paper"),
    "class_ece": (*_FIVE, "ssme_paper"),
    "auroc": (*_FIVE, "ssme_paper"),
    "average_precision": (*_FIVE, "ssme_paper"),
}
"""Estimators in the order of each table's columns."""

_ROWS: Mapping[str, str] = {
    "accuracy": """
83.90 7.16  87.68 0.96  86.15 4.11  84.75 1.35  87.82 4.41  85.04 5.42  87.92 10.82  86.49 1.06  88.27 0.09
89.30 6.15  97.63 0.49  86.92 3.35  95.08 0.99  97.13 0.96  90.79 5.93  89.17 8.24  93.59 0.87  92.17 0.07
89.10 7.12  97.48 0.50  87.05 3.34  94.86 1.05  97.14 1.01  90.75 6.16  95.07 6.47  93.54 0.83  92.17 0.08
89.20 6.34  98.10 0.42  86.67 3.43  95.78 0.94  96.28 1.23  90.43 6.83  92.84 6.25  93.65 0.82  92.11 0.08
86.90 7.62  93.03 0.77  82.92 3.26  95.27 0.66  94.56 2.34  88.11 7.22  88.10 9.13  91.65 0.97  88.13 0.09
88.10 7.35  94.03 0.81  83.86 3.31  95.92 0.67  95.41 1.76  89.27 7.03  89.42 9.13  92.26 0.84  89.04 0.10
86.80 6.91  93.49 0.80  83.39 3.24  95.55 0.69  95.34 2.18  87.78 7.13  89.19 9.26  92.08 0.91  88.70 0.08
""",
    "class_ece": """
13.80 5.81  8.27 0.79  8.78 3.60  10.78 1.08  7.47 4.14  8.50 0.95  5.98 0.09
10.37 5.86  1.38 0.44  11.33 3.29  4.37 1.06  1.97 1.01  4.96 0.75  6.14 0.09
9.91 6.29  1.57 0.38  11.29 3.24  4.59 1.13  1.93 1.07  5.13 0.78  6.21 0.08
10.02 6.02  0.57 0.32  10.96 3.33  3.38 0.99  2.32 1.26  3.99 0.71  4.94 0.09
12.59 6.89  6.47 0.70  15.77 3.08  3.69 0.67  4.61 2.62  6.85 0.88  10.61 0.08
11.93 6.79  5.37 0.73  15.03 3.26  2.98 0.63  3.88 1.99  6.38 0.93  9.78 0.11
12.06 6.12  5.77 0.75  15.55 3.14  3.33 0.74  3.87 2.35  6.71 0.89  10.18 0.09
""",
    "auroc": """
85.19 14.15  95.09 1.01  72.20 6.89  94.89 1.18  84.22 3.49  91.38 1.60  86.23 0.17
91.80 7.11  99.29 0.25  74.90 7.69  98.64 0.33  98.52 0.94  95.97 0.77  93.77 0.11
92.18 7.46  99.22 0.26  74.92 7.68  98.58 0.30  98.30 0.95  95.96 0.71  93.75 0.10
93.32 5.93  99.47 0.23  75.03 7.74  98.89 0.32  98.07 1.12  96.16 0.68  94.08 0.10
91.46 8.74  98.41 0.48  74.69 7.49  98.28 0.60  98.05 0.96  95.38 1.13  91.57 0.13
90.75 10.48  98.20 0.81  74.58 7.58  97.97 0.81  98.07 1.02  95.18 1.12  91.00 0.16
91.89 8.13  98.40 0.44  74.68 7.60  98.39 0.52  98.33 0.94  95.59 0.91  91.86 0.11
""",
    "average_precision": """
60.78 24.13  64.21 5.46  31.91 10.19  76.38 5.00  50.86 10.73  60.27 5.50  40.00 0.36
77.25 19.52  96.37 1.09  42.28 13.73  94.59 1.22  92.51 4.32  79.63 3.68  72.19 0.37
79.38 18.74  96.06 1.18  42.27 13.65  94.37 1.15  91.54 4.94  79.78 3.46  72.30 0.35
79.11 18.05  97.10 1.01  42.47 13.79  95.49 1.19  90.15 4.94  80.06 3.34  73.33 0.35
77.74 19.47  90.10 2.39  40.79 13.20  92.89 1.47  88.23 7.39  76.90 4.22  65.86 0.40
79.21 19.99  91.23 2.66  41.23 13.47  93.64 1.62  89.58 5.67  77.84 3.91  66.50 0.44
77.63 20.39  89.37 2.40  40.65 13.36  92.67 1.77  90.34 6.36  77.16 3.67  65.46 0.40
""",
}
"""Mean and standard deviation over the runs of each column's estimate in points; last, the truth's."""


def printed(metric: str, model: str) -> Mapping[str, tuple[float, float]]:
    """Return mean and standard deviation in points by estimator, and the truth's under "truth".

    Parameters
    ----------
    metric : str
        A key of `TABLES`.
    model : str
        Of `MODELS`.
    """
    line = _ROWS[metric].split("\n")[1 + MODELS.index(model)].split()
    numbers = [float(cell) for cell in line]
    return dict(zip((*COLUMNS[metric], "truth"), zip(numbers[::2], numbers[1::2], strict=True), strict=True))

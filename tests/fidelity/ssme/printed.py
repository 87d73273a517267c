"""The printed figures of Shanmugam et al. for "Toxicity Detection": Tables 1, S3, S4 and S5."""

from __future__ import annotations

from collections.abc import Mapping

LABELS = (20, 50, 100)

MEAN_ERRORS: Mapping[str, Mapping[str, tuple[float, float, float]]] = {
    "accuracy": {
        "labelled": (5.95, 4.03, 2.43),
        "majority_vote": (4.62, 4.47, 4.26),
        "pseudo_label": (5.03, 2.88, 1.90),
        "dawid_skene": (4.82, 4.65, 4.46),
        "autoeval": (5.27, 3.37, 2.34),
        "active_testing": (7.19, 7.26, 7.50),
        "bayesian_calibration": (5.29, 4.57, 3.78),
        "ssme_paper": (2.34, 2.22, 2.14),
    },
    "class_ece": {
        "labelled": (5.85, 3.99, 2.37),
        "majority_vote": (4.15, 3.99, 3.86),
        "pseudo_label": (5.09, 3.04, 1.91),
        "dawid_skene": (4.40, 4.20, 4.10),
        "bayesian_calibration": (4.69, 3.97, 3.30),
        "ssme_paper": (2.35, 2.26, 2.19),
    },
    "auroc": {
        "labelled": (6.71, 4.76, 3.82),
        "majority_vote": (6.54, 6.30, 6.14),
        "pseudo_label": (17.32, 11.79, 7.54),
        "dawid_skene": (6.20, 5.97, 5.84),
        "bayesian_calibration": (5.22, 4.76, 4.25),
        "ssme_paper": (3.34, 3.15, 3.09),
    },
    "average_precision": {
        "labelled": (19.34, 13.78, 10.69),
        "majority_vote": (24.12, 23.11, 22.34),
        "pseudo_label": (25.12, 20.15, 14.06),
        "dawid_skene": (26.34, 25.24, 24.51),
        "bayesian_calibration": (19.94, 16.84, 14.15),
        "ssme_paper": (10.89, 9.91, 9.88),
    },
}
"""Mean absolute error in points at 20, 50 and 100 labels, by metric and estimator. Its SSME-KDE is
`ssme_paper`, its ECE `class_ece`."""


def printed_error(metric: str, tag: str, labels: int) -> float | None:
    """Return the paper's figure; None where it prints none."""
    row = MEAN_ERRORS[metric].get(tag)
    return None if row is None or labels not in LABELS else row[LABELS.index(labels)]

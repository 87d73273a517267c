"""The names of the refitted estimators, and what stands beside `ssme`; light enough for a configuration."""

from __future__ import annotations

from collections.abc import Iterable

REFITTED = (
    "ssme",
    "ssme_paper",
    "ensemble",
    "labelled",
    "pseudo_label",
    "majority_vote",
    "dawid_skene",
    "bayesian_calibration",
    "rectified",
    "autoeval",
    "active_testing",
    "ssme_flow",
    "spe",
)
"""The tags of `monitor.stats.labelled.ESTIMATORS`, which imports too much for a configuration."""

BY_LABELS = ("autoeval", "rectified", "labelled")
"""Those whose error is that of labels alone, whatever else they use: they rank models, and weigh labels."""

_JOINT = frozenset({"ssme", "ssme_paper"})  # which put models and labels together
_COMPANIONS = ("ensemble", "labelled")
_REALISED_COMPANIONS = ("realised_cohort",)


def companions(tags: Iterable[str]) -> tuple[str, ...]:
    """What is refitted beside `ssme` and `ssme_paper` always: believing the classifiers, and the labels.

    Examples
    --------
    >>> companions(["average_confidence", "ssme"]), companions(["labelled"])
    (('ensemble', 'labelled'), ())
    """
    return () if _JOINT.isdisjoint(tags) else _COMPANIONS


def realised_companions(tags: Iterable[str]) -> tuple[str, ...]:
    """What counts labels beside `ssme` and `ssme_paper` always: the newest labelled cohort.

    Examples
    --------
    >>> realised_companions(["ssme"])
    ('realised_cohort',)
    """
    return () if _JOINT.isdisjoint(tags) else _REALISED_COMPANIONS

"""The sentences that `check` prints about features."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from monitor.cli.check.calibrations import References
from monitor.config.root import Task


def untested_features(tasks: Mapping[str, Task], references: References) -> Iterator[str]:
    """Yield a sentence for each feature whose faults can be detected only in part, with the reason.

    If a feature often has new values within the reference, a value that does not occur in the reference is
    not a sign of a fault.

    Examples
    --------
    >>> import numpy as np
    >>> from monitor.engine.reference import Reference
    >>> second, half, days = np.arange(1000.0), np.full((1000, 2), 0.5), np.arange(1000.0)[:, None]
    >>> answers = np.zeros(1000, dtype=np.int64)
    >>> rows = Reference(half, answers, answers, second, "", {}, features=days)
    >>> tasks = {"spam": Task(features={"day": "number"})}
    >>> print(*untested_features(tasks, {"spam": {"m1": rows}}))
    tasks.spam.features.day, model m1: it rises or falls all along the reference, so only missing values...
    """
    for name, task in tasks.items():
        for model, reference in references.get(name, {}).items() if task.features else ():
            norms = reference.feature_baseline(task.features, task.window.size).norms
            for feature, norm in zip(task.features, norms, strict=True):
                if norm.outside is not None or not norm.rows:
                    continue
                why = (
                    "it rises or falls all along the reference"
                    if norm.drifts
                    else "most values of the reference's later half are not among those of its earlier half"
                )
                what = "missing values" if norm.drifts else "missing values and a constant"
                yield f"tasks.{name}.features.{feature}, model {model}: {why}, so only {what} break it"

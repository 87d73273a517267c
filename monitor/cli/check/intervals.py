"""Warnings of `check` about predictive intervals whose reference is too short or missing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from monitor.cli.check.calibrations import References
from monitor.config.root import Task
from monitor.reports.window_view import PREDICTIVE


def interval_sentences(tasks: Mapping[str, Task], references: References) -> Iterator[str]:
    """Where predictive intervals are asked for and cannot be learnt, or not all of them; one a task or model.

    Parameters
    ----------
    tasks : mapping of str to Task
    references : mapping of str to mapping of str to Reference
        By task and model.

    Examples
    --------
    >>> list(interval_sentences({"spam": Task()}, {}))
    ['tasks.spam.interval: predictive intervals need a labelled reference, and there is none; ...
    """
    for name, task in tasks.items():
        if task.interval != PREDICTIVE:
            continue
        known = references.get(name, {})
        if not known:
            yield (
                f"tasks.{name}.interval: predictive intervals need a labelled reference, and there is "
                "none; intervals include chance alone, and are right only if the confidences are; give "
                "reference.path"
            )
        for model, reference in known.items():
            found = reference.predictive(task.calibration.reference_method)
            if found.components is None:
                from monitor.stats.estimate.predictive_fit import short_sentence

                yield f"tasks.{name}.interval, model {model}: {short_sentence(found.rows)}"

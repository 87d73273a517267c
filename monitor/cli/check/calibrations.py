"""The lines that `check` prints about references, calibrations and predictive intervals."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from monitor.base.errors import ConfigError
from monitor.base.names import RATIO
from monitor.base.records import certain_rows
from monitor.base.registry import metric_words
from monitor.base.results import Estimate
from monitor.cli.check.warnings import figure
from monitor.config.root import Task
from monitor.reports.statements import three_digits
from monitor.reports.window_view import PREDICTIVE

if TYPE_CHECKING:
    from monitor.engine.reference import Reference

FEW_ROWS = 1000
"""The smallest number of labelled rows without a warning.

With fewer rows, chance alone makes the mean confidence uncertain by two points or more.
"""

SATURATED_SHARE = 0.5
"""`check` warns if at least this share of a reference's rows have a score of exactly 0 or 1."""

References = Mapping[str, "Mapping[str, Reference]"]
"""The labelled references, by task and model."""


def choice_lines(tasks: Mapping[str, Task], references: References) -> list[str]:
    """Return a sentence for each model with the calibration method `auto` or `covariates`.

    For `auto`, the sentence names the chosen method and the log loss of every candidate. For `covariates`, it
    has the number of reference rows with all covariates.

    Raises
    ------
    ValueError
        `monitor.stats.calibration.choose` cannot choose a method for a reference.

    Examples
    --------
    >>> import numpy as np
    >>> from monitor.engine.reference import Reference
    >>> score = np.tile([0.01, 0.99], 500)
    >>> labels = np.tile([0, 1] * 9 + [1, 0], 50)
    >>> scores = np.column_stack((1 - score, score))
    >>> rows = Reference(scores, labels, labels, np.arange(1000.0), "", {})
    >>> tasks = {"spam": Task(calibration={"method": "auto"})}
    >>> choice_lines(tasks, {"spam": {"m1": rows}})
    ['spam, m1: calibration temperature; log loss none 0.4696, temperature 0.3251, platt 0.3251, ...
    """
    lines = []
    for name, task in tasks.items():
        for model, reference in references.get(name, {}).items():
            if task.calibration.method == "auto":
                choice = reference.choice()
                losses = ", ".join(f"{method} {loss:.4f}" for method, loss in choice.losses.items())
                lines.append(f"{name}, {model}: calibration {choice.method}; log loss {losses}")
            elif task.adapts:
                rows = len(reference.labels)
                complete = rows - reference.covariates(task.covariates).left_out
                lines.append(
                    f"{name}, {model}: calibration for each window by {', '.join(task.covariates)}; "
                    f"{complete:,} of {rows:,} rows of the reference have all of them"
                )
    return lines


def refuse_one_class(name: str, task: Task, model: str, reference: Reference) -> None:
    """Raise `ConfigError` if a calibration is to be fitted on a reference with labels of one class only.

    A task without classes is not checked here, because its calibration itself refuses a reference with equal
    labels.

    Parameters
    ----------
    name : str
        Name of the task in the configuration.
    task : Task
    model : str
    reference : Reference

    Raises
    ------
    ConfigError
        All labels are of one class, and a calibration is to be fitted on them.
    """
    method, labels = task.calibration.reference_method, reference.labels
    if method == "none" or not task.classes or not len(labels) or (labels != labels[0]).any():
        return
    raise ConfigError(
        f"tasks.{name}.reference, model {model}: {method} calibration needs at least two different outcomes, "
        f"got {len(labels):,} rows with only the label {task.classes[int(labels[0])]}; give a longer "
        "reference, or set calibration.method to none"
    )


def refuse_absent_features(name: str, task: Task, model: str, reference: Reference) -> None:
    """Raise `ConfigError` if a feature of the task is absent from all rows of a reference.

    A task with the calibration method `covariates` is not checked here.
    """
    lacking = (reference.features != reference.features).all(axis=0).tolist()  # NaN
    absent = [feature for feature, none in zip(task.features, lacking, strict=True) if none]
    if absent and not task.adapts:
        rows = len(reference.labels)
        raise ConfigError(
            f"tasks.{name}.features, model {model}: none of the {rows:,} rows of the reference has "
            f"{', '.join(absent)}, so that windows have nothing to be compared with; add the columns "
            f"features.{absent[0]} and so on to the reference, or leave them out of features"
        )


def calibration_warnings(tasks: Mapping[str, Task], references: References) -> list[str]:
    """Return a warning for each problem of the references on which calibrations are fitted.

    Examples
    --------
    >>> import numpy as np
    >>> from monitor.engine.reference import Reference
    >>> labels = np.tile([0, 1], 500)
    >>> rows = Reference(np.full((1000, 2), 0.5), labels, labels, np.arange(1000.0), "", {})
    >>> calibration_warnings({"spam": Task(classes=["a", "b"])}, {"spam": {"m1": rows}})
    ['tasks.spam.reference, model m1: its scores are all equal, so each answer gets the same confidence, ...
    """
    return [
        f"tasks.{name}.reference, model {model}: {weakness}"
        for name, task in tasks.items()
        if task.calibration.method != "none"
        for model, reference in references.get(name, {}).items()
        for weakness in _weaknesses(task, reference)
    ]


def _weaknesses(task: Task, reference: Reference) -> Iterator[str]:
    n = len(reference.labels)
    if n < FEW_ROWS:
        right = float((reference.predicted == reference.labels).mean())
        points = 200 * math.sqrt(max(right * (1 - right), 1 / n) / n)
        known = "is in every interval" if task.interval == PREDICTIVE else "the exact interval does not know"
        yield (
            f"{n} labelled rows are few for a calibration: chance alone makes every estimate uncertain by "
            f"{points:.0f} points (two standard errors), which {known}; "
            f"give {FEW_ROWS:,} or more"
        )
    if (reference.scores == reference.scores[0]).all():
        yield (
            "its scores are all equal, so each answer gets the same confidence, and no drift is visible; "
            "does the model give probabilities?"
        )
    elif (share := float(certain_rows(reference.scores).mean())) >= SATURATED_SHARE:
        yield (
            f"{share:.0%} of its rows have a score of exactly 0 or 1, so all of them get the same "
            "confidence; give probabilities before rounding"
        )
    absent = [name for k, name in enumerate(task.classes) if not (reference.labels == k).any()]
    if absent:
        yield (
            f"no row has the label {' or '.join(absent)}: {'it gets' if len(absent) == 1 else 'they get'} "
            "next to no probability, whatever the scores say (temperature leaves it what the scores "
            "give); give rows of every class"
        )


def surprise_warnings(tasks: Mapping[str, Task], references: References) -> list[str]:
    """Return a warning for each objective and each group that cannot work according to the references.

    An objective cannot work if the reference does not meet it. A group cannot work if it has so few answers
    that a window takes more than a week.

    Examples
    --------
    >>> import numpy as np
    >>> from monitor.engine.reference import Reference
    >>> labels = np.tile([0, 0, 0, 1], 250)
    >>> rows = Reference(np.full((1000, 2), 0.5), 0 * labels, labels, np.arange(1000.0), "", {})
    >>> surprise_warnings({"spam": Task(objective={"accuracy": {"min": 0.9}})}, {"spam": {"m1": rows}})
    ['tasks.spam.objective.accuracy: the accuracy of m1 in the reference is 0.750, outside the ...
    """
    return [
        f"tasks.{name}.{warning}"
        for name, task in tasks.items()
        for model, reference in references.get(name, {}).items()
        for warning in (*_missed_bound(task, model, reference), *_rare_groups(task, model, reference))
    ]


def _missed_bound(task: Task, model: str, reference: Reference) -> Iterator[str]:
    for metric, bound in task.objective.bounds().items():
        value = _in_reference(task, metric, reference)
        if value is None:
            continue
        if value < bound.min if bound.min is not None else bound.max is not None and value > bound.max:
            unit = task.error_units.get(metric, RATIO)
            words = f"{value:.3f}" if unit == RATIO else f"{three_digits(value)[0]} {unit}".rstrip()
            yield (
                f"objective.{metric}: the {metric_words(metric)} of {model} in the reference is {words}, "
                "outside the bound, so that the objective is breached or at risk from the first windows on; "
                "move the bound, or give a reference from a better time"
            )


def _in_reference(task: Task, metric: str, reference: Reference) -> float | None:
    """Return the share of right answers or a metric of errors in a reference; None for other metrics."""
    if metric == task.share and len(reference.labels):
        return float((reference.predicted == reference.labels).mean())
    if metric not in task.error_units or not len(reference.labels):
        return None
    result = reference.error_metric(metric, task.level)
    return result.value if isinstance(result, Estimate) else None


def _rare_groups(task: Task, model: str, reference: Reference) -> Iterator[str]:
    """Warn of groups that have too few answers for one window in a week."""
    known = task.models.get(model)
    if known is None or known.answers_per_day is None or not len(reference.labels):
        return
    rate = known.answers_per_day / len(reference.labels)  # answers a day for each row of the reference
    rare = {
        group: task.window.size / (rate * len(rows))
        for group, rows in reference.groups.items()
        if len(rows) * rate * 7 < task.window.size
    }
    if rare:
        slowest = max(rare, key=lambda group: rare[group])
        yield (
            f"groups: of {model} {len(rare)} {'value has' if len(rare) == 1 else 'values have'} too few "
            f"answers for a window of {task.window.size} a week; one of {slowest} would take "
            f"{figure(rare[slowest])} days, and closes by age with fewer rows and a wide interval; group "
            "more coarsely, or lower window.size"
        )


def interval_sentences(tasks: Mapping[str, Task], references: References) -> Iterator[str]:
    """Yield a sentence for each task or model whose predictive intervals cannot be learned.

    Parameters
    ----------
    tasks : mapping of str to Task
    references : mapping of str to mapping of str to Reference
        The references by task and model.

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
            fit = reference.predictive(task.calibration.reference_method)
            if fit.components is None:
                from monitor.stats.estimate.predictive_fit import short_sentence

                yield f"tasks.{name}.interval, model {model}: {short_sentence(fit.rows)}"

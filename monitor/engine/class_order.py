"""Whether the classes of a task are written the wrong way round, as its labelled reference tells."""

from __future__ import annotations

import numpy as np

from monitor.base.errors import ConfigError
from monitor.base.results import Estimate
from monitor.engine.reference import Reference
from monitor.stats.estimate.proportion import wilson

FEWEST_ROWS = 50
"""Fewer say too little: a good model is wrong in most of a handful now and then."""

_LEVEL = 0.998  # its upper end is passed by chance once in a thousand models
_HARDLY_RIGHT = 0.4  # a bad model, 45 % right on a hard task, is no reason to refuse to look at it


def refuse_reversed_classes(
    task: str, classes: tuple[str, ...], model: str, reference: Reference, where: str = "the reference"
) -> None:
    """Refuse a task of two classes whose scores stand in the other order than its classes.

    A list of scores follows the order of `classes`; where that is wrong, a good model looks as bad as it is
    good, its predicted class is always the other one, and a calibration fitted on this turns every score
    around, so that the estimates look fine. It is taken for so where the class with the larger score
    is right in surely less than 40 % of the labelled rows, and the score of a class is surely not larger
    where that class is right: a model that only leans to one class (a threshold to be chosen, rare events)
    ranks its answers rightly, and passes. Rows whose two scores are equal say nothing and are left out.

    It misses the mistake where the model is so weak that it is wrong by either order in 40 % or more, and it
    cannot tell a list in the wrong order from scores that are wrong by name; the message names both.

    Parameters
    ----------
    task : str
    classes : tuple of str
        Of the task. Others than two are passed over: a confidence has no order, and of three or more
        classes there is no one other order.
    model : str
    reference : Reference
    where : str
        What holds these rows, for the message: the reference, or a source that was looked into.

    Raises
    ------
    ConfigError
        It is so; the sentence gives the accuracy by both orders.

    References
    ----------
    The bound on the share of right rows is `monitor.stats.estimate.proportion.wilson`.

    Examples
    --------
    >>> second = np.tile([0.9, 0.8, 0.1, 0.6], 50)
    >>> labels = np.tile([0, 0, 1, 1], 50)
    >>> scores = np.column_stack((1 - second, second))
    >>> rows = Reference(scores, scores.argmax(axis=1), labels, np.arange(200.0), "", {})
    >>> refuse_reversed_classes("spam", ("ham", "spam"), "m1", rows)
    Traceback (most recent call last):
    monitor.base.errors.ConfigError: tasks.spam.classes: [ham, spam] seems to be the wrong way round: of the
    ...
    """
    if len(classes) != 2:
        return
    second = reference.scores[:, 1] - reference.scores[:, 0]
    told = second != 0
    second, labels = second[told], reference.labels[told]
    right = int(((second > 0) == (labels == 1)).sum())
    bound = wilson(right, len(labels), _LEVEL)
    if (
        len(labels) < FEWEST_ROWS
        or not isinstance(bound, Estimate)
        or bound.upper >= _HARDLY_RIGHT
        or not _ranks_backwards(second, labels)
    ):
        return
    one, other = classes
    raise ConfigError(
        f"tasks.{task}.classes: [{one}, {other}] seems to be the wrong way round: of the {len(labels):,} "
        f"labelled answers of {model} in {where}, the class with the larger score is right in "
        f"{bound.value:.1%}, and with [{other}, {one}] it would be in {1 - bound.value:.1%}; "
        "reverse `classes`, in whose order lists of scores stand, or, where scores name their classes, "
        "correct the scores or the labels"
    )


def _ranks_backwards(second: np.ndarray, labels: np.ndarray) -> bool:
    """Whether the second class's score is smaller, by three standard errors, where that class is right."""
    where, elsewhere = second[labels == 1], second[labels == 0]
    if min(len(where), len(elsewhere)) < 2:
        return False
    error = np.sqrt(where.var(ddof=1) / len(where) + elsewhere.var(ddof=1) / len(elsewhere))
    return bool(elsewhere.mean() - where.mean() > 3 * error)

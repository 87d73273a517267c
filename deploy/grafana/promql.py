"""Expressions of the dashboards: what every query selects by, and those that several panels share."""

from __future__ import annotations

AGENT = 'job=~"$job",instance=~"$instance"'
"""Of an agent's own series."""
MODELS = f'{AGENT},task=~"$task",model=~"$model"'
"""Of series that belong to a model."""
TASKS = f'{AGENT},task=~"$task"'
"""Of series that belong to a task."""

STATES = (
    (6, "objective breached", "dark-red"),
    (5, "not to be trusted", "red"),
    (4, "out of control", "orange"),
    (3, "objective at risk", "yellow"),
    (2, "silent", "purple"),
    (1, "warming up", "blue"),
    (0, "in control", "green"),
)
"""Severity, name and colour, worst first: what `severity` gives."""


def series(name: str, where: str = MODELS, **equal: str) -> str:
    """``blindsight_NAME{where, label="value", …}``; a value that begins with ``~`` is a regular expression.

    Examples
    --------
    >>> series("labels_total", 'job="a"', outcome="matched")
    'blindsight_labels_total{job="a",outcome="matched"}'
    >>> series("state", 'job="a"', state="~in.*")
    'blindsight_state{job="a",state=~"in.*"}'
    """
    more = "".join(
        f',{label}=~"{value[1:]}"' if value.startswith("~") else f',{label}="{value}"'
        for label, value in equal.items()
    )
    return f"blindsight_{name}{{{where}{more}}}"


def hull(part: str, by: str = "task, model, metric", prefix: str = "", **equal: str) -> str:
    """An estimate over replicas: the mean of their values, the outermost ends of their intervals.

    Parameters
    ----------
    part : {"", "lower_", "upper_"}
    by : str
        Labels to keep.
    prefix : {"", "group_", "class_"}
    **equal : str
        As `series` takes them.
    """
    kind = {"": "avg", "lower_": "min", "upper_": "max"}[part]
    return f"{kind} by ({by}) ({series(f'{prefix}estimate_{part}ratio', **equal)})"


def error(part: str, estimator: str = "doubly_robust", **equal: str) -> str:
    """Return the expression of a metric of errors of predicted numbers over replicas, as `hull` does."""
    kind = {"": "avg", "_lower": "min", "_upper": "max"}[part]
    by = "task, model, metric, unit"
    return over(f"value{part}", kind, by, estimator=estimator, **equal)


def over(name: str, kind: str = "max", by: str = "task, model", **equal: str) -> str:
    """A gauge of models over replicas: their `kind`, ``max``, ``min``, ``avg`` or ``sum``."""
    return f"{kind} by ({by}) ({series(name, **equal)})"


def severity(where: str = MODELS) -> str:
    """The worst state of each model, as the numbers of `STATES`."""
    # The operands differ in their labels, so that `or` keeps all of them.
    states = {5: "untrusted", 4: "out_of_control", 2: "silent", 1: "warming_up", 0: "in_control"}
    parts = [
        f"{number} * ({series('objective_state', where, state=state)} == 1)"
        for number, state in ((6, "breached"), (3, "at_risk"))
    ] + [f"{number} * ({series('state', where, state=state)} == 1)" for number, state in states.items()]
    return "max by (task, model) (" + " or ".join(parts) + ")"


def severity_of_metrics(by: str) -> str:
    """The worst state of each metric that is charted, as the numbers of `STATES`."""
    # Of one metric `or` takes the first that is there: the worst.
    parts = (
        f"6 * ({series('objective_state', state='breached')} == 1)",
        f"5 + ({series('estimate_trusted')} == 0)",
        f"4 * ({series('out_of_control')} == 1)",
        f"3 * ({series('objective_state', state='at_risk')} == 1)",
        f"0 * {series('out_of_control')}",
    )
    return " or ".join(f"max by ({by}) ({part})" for part in parts)


def rate(name: str, by: str, where: str = MODELS, **equal: str) -> str:
    """A counter's increase a second, summed over replicas."""
    return f"sum by ({by}) (rate({series(name, where, **equal)}[$__rate_interval]))"


def curve() -> dict[str, str]:
    """The calibration curve over the dashboard's time range, by bin of confidence and by what it says.

    Replicas are summed. Bins without a labelled answer in that time are left out.
    """
    labelled, correct, confidence = (
        f"sum by (bin) (increase({series(f'calibration_curve_{part}_total')}[$__range]))"
        for part in ("labelled", "correct", "confidence")
    )
    return {
        "confidence": f"{confidence} / ({labelled} > 0)",
        "right": f"{correct} / ({labelled} > 0)",
        "labelled answers": f"{labelled} > 0",
    }


def confusion() -> dict[str, str]:
    """The confusion matrix of two classes, as shares of all answers, by its cells' names.

    From precision p, recall r and specificity s: the share of positives is
    pi = p(1 - s) / (r(1 - p) + p(1 - s)), and the cells follow. Averages over three classes or more obey no
    such law, so a matrix whose diagonal is not the estimated accuracy, within two points, is left out.
    """
    p, r, s, a = (
        hull("", "task, model", metric=metric, estimator="~$estimator")
        for metric in ("precision", "recall", "specificity", "accuracy")
    )
    share = f"(({p}) * (1 - ({s})) / (({r}) * (1 - ({p})) + ({p}) * (1 - ({s}))))"
    right = f"({share} * ({r}) + (1 - {share}) * ({s}))"
    cells = {
        "true positive": f"{share} * ({r})",
        "false negative": f"{share} * (1 - ({r}))",
        "false positive": f"(1 - {share}) * (1 - ({s}))",
        "true negative": f"(1 - {share}) * ({s})",
    }
    return {name: f"({cell}) and abs(({a}) - {right}) < 0.02" for name, cell in cells.items()}

"""The fits of the contract tests over all of `ESTIMATORS`, and the comparison of their answers."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from monitor import ESTIMATORS, METRICS, Estimate, LabelEstimator, Unknown
from monitor.base.records import Floats, Ints

ROWS = 160
TAGS = sorted(ESTIMATORS)
KNOW_THEIR_ERRORS = {"autoeval", "rectified", "labelled"}
"""Whose error is that of labels alone: how the errors of several models go together is known."""
QUICK: dict[str, dict[str, Any]] = {
    "ssme_flow": {"couplings": 2, "width": 8, "epochs": 2},
    "spe": {"families": ("truncated_normal", "gumbel_left")},
}
"""Settings under which the contract, not the estimate, is the same; `spe` is held to it with its own too."""
EXACT = 1e-9
"""Sums over rows in another order differ by rounding, and iterations carry that along."""


def problem(classes: int = 2, models: int = 3, labelled: int = 40, rows: int = ROWS) -> tuple[Floats, Ints]:
    """Return scores of models that see the truth through noise, some of it shared, and partial labels."""
    rng = np.random.default_rng([classes, models])
    truth = rng.integers(0, classes, rows)
    noise = rng.normal(size=(rows, 1, classes)) + rng.normal(size=(rows, models, classes))
    logits = 2.0 * np.eye(classes)[truth][:, None] + noise
    scores = np.exp(logits) / np.exp(logits).sum(axis=2, keepdims=True)
    return scores, np.where(np.arange(rows) < labelled, truth, -1)


def new(tag: str) -> LabelEstimator:
    return ESTIMATORS[tag](**QUICK.get(tag, {}))


def fitted(fresh: LabelEstimator, scores: Floats, labels: Ints, **more: Ints) -> LabelEstimator:
    """Fit, with the draws numbered where the estimator needs that: as if all were equally likely."""
    rows = np.arange(len(labels), dtype=float)
    order = np.where(labels < 0, -1, np.cumsum(labels >= 0) - 1)
    inputs = {"acquisition": order, "weights": len(rows) - np.maximum(order, 0.0)}
    return fresh.fit(scores, labels, **{key: inputs[key] for key in sorted(fresh.needs)}, **more)


def rich(classes: int) -> tuple[Floats, Ints, dict[str, NDArray[Any]]]:
    """Return `problem` with all that may come along: models missing, other classes acted on, weights,
    draws.
    """
    scores, labels = problem(classes)
    rng = np.random.default_rng([3, classes])
    scores[1:][rng.random((ROWS - 1, 3)) < 0.2] = np.nan
    there = ~np.isnan(scores[:, :, 0])
    argmax = np.nan_to_num(scores).argmax(axis=2)
    acted = np.where(rng.random((ROWS, 3)) < 0.1, (argmax + 1) % classes, argmax)
    labelled = np.flatnonzero(labels >= 0)
    order = np.full(ROWS, -1)
    order[rng.permutation(labelled)] = np.arange(len(labelled))
    return (
        scores,
        labels,
        {
            "predicted": np.where(there, acted, -1),
            "weights": np.where(labels >= 0, rng.uniform(1.0, 5.0, ROWS), 1.0),
            "acquisition": order,
        },
    )


@cache
def rich_fit(tag: str, classes: int) -> LabelEstimator:
    """Return the fit to `rich`, shared as `usual` is."""
    scores, labels, more = rich(classes)
    return new(tag).fit(scores, labels, **more)


@cache
def usual(tag: str, classes: int = 2) -> LabelEstimator:
    """Return the fit to `problem`, for all tests that only ask it something: nothing that is asked changes
    a fit.
    """
    return fitted(new(tag), *problem(classes))


def answers(fit: LabelEstimator, models: int) -> Iterator[tuple[str, int, object]]:
    for metric in METRICS:
        for model in range(models):
            yield metric, model, fit.estimate(metric, model)


def ends_of(fit: LabelEstimator) -> dict[str, tuple[float, float, float]]:
    """Return, by metric that is known, the second model's value and interval: fit to be written as JSON."""
    results = {metric: fit.estimate(metric, 1) for metric in METRICS}
    return {
        metric: (one.value, one.lower, one.upper)
        for metric, one in results.items()
        if isinstance(one, Estimate)
    }


def assert_sound(result: object) -> None:
    """Check that an answer is a reason, or a value inside an interval inside [0, 1]."""
    if isinstance(result, Unknown):
        assert result.reason
        return
    assert isinstance(result, Estimate)
    assert 0.0 <= result.lower <= result.value <= result.upper <= 1.0
    assert result.level == 0.95
    assert result.n > 0


def same(left: object, right: object) -> bool:
    if isinstance(left, Estimate) and isinstance(right, Estimate):
        ends = [(e.value, e.lower, e.upper) for e in (left, right)]
        return ends[0] == pytest.approx(ends[1], abs=EXACT) and left.n == right.n
    return left == right


def odd(kind: str) -> tuple[Floats, Ints]:
    """Input that no estimator may crash on, or answer nonsense to."""
    scores, labels = problem()
    rng = np.random.default_rng(9)
    if kind == "equal scores":
        scores = np.full_like(scores, 0.5)
    elif kind == "scores of 0 and 1":
        scores = np.eye(2)[scores.argmax(axis=2)]
    elif kind == "duplicated models":
        scores = np.repeat(scores[:, :1], 3, axis=1)
    elif kind == "a class without labels":
        labels = np.where(labels == 1, -1, labels)
    elif kind == "labels of one class, all rows":
        labels = np.zeros(ROWS, dtype=int)
    elif kind == "no labels":
        labels = np.full(ROWS, -1)
    elif kind == "all labels":
        labels = problem(labelled=ROWS)[1]
    elif kind == "one model":
        scores = scores[:, :1].repeat(1, axis=1)
    elif kind == "missing models":
        scores[rng.random((ROWS, 3)) < 0.4] = np.nan  # some rows lose all three
    elif kind == "a model that never answers":
        scores[:, 2] = np.nan
    elif kind == "fewer rows than dimensions":
        scores, labels = problem(classes=4, models=5, labelled=3, rows=6)
    elif kind == "one row":
        scores, labels = scores[:1], labels[:1]
    elif kind == "one row without a label":
        scores, labels = scores[-1:], labels[-1:]
    elif kind == "nine classes":
        scores, labels = problem(classes=9, models=2)
    else:
        raise AssertionError(kind)
    return scores, labels


@cache
def odd_fit(tag: str, kind: str) -> LabelEstimator:
    """Return the fit to `odd`, shared as `usual` is."""
    return fitted(new(tag), *odd(kind))


KINDS = [
    "equal scores",
    "scores of 0 and 1",
    "duplicated models",
    "a class without labels",
    "labels of one class, all rows",
    "no labels",
    "all labels",
    "one model",
    "missing models",
    "a model that never answers",
    "fewer rows than dimensions",
    "one row",
    "one row without a label",
    "nine classes",
]

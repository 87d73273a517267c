"""A test for reversed scores, which are larger where the event is less probable."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from monitor.base.records import Floats, Ints

STANDARD_ERRORS = 4.0
"""The rejection bound, in standard errors. Scores without information exceed it by chance in 3 of 100,000
fits. The bound is this high because a cross-fitted reference needs several fits."""


def refuse_reversed_scores(method: str, scores: Floats, labels: Ints) -> None:
    """Raise a ValueError if larger scores go with less frequent events.

    The error names the calibration `method`.

    For each class, the test compares the scores of rows of that class with the scores of other rows (for a
    confidence: right rows with wrong rows). Its statistic is the probability that a row of the class has the
    larger score. A class is reversed if this probability is more than four standard errors below one half.
    The standard error is that of scores without information, √((n₁ + n₀ + 1) / 12 n₁ n₀), for n₁ rows of the
    class and n₀ other rows. If only one of three or more classes is reversed, the model may have learnt this
    class badly. Then no error is raised, and the class gets a flat curve. If two or more classes are
    reversed, their order must be wrong.

    With fewer than 22 rows, no error is ever raised. With dependent rows, an error by chance is more frequent
    than four standard errors suggest.

    References
    ----------
    H. B. Mann, D. R. Whitney, *On a test of whether one of two random variables is stochastically larger than
    the other*, Annals of Mathematical Statistics 18 (1947).

    Examples
    --------
    >>> confidence = np.linspace(0.5, 1.0, 60)[:, None]
    >>> refuse_reversed_scores("platt", confidence, (np.arange(60) > 30).astype(int))
    Traceback (most recent call last):
    ValueError: platt calibration would reverse the order of the scores: among the 60 labelled rows ...
    """
    _refuse_reversed(
        method, len(labels), [partial(_rank_area, scores[:, k], labels == k) for k in range(scores.shape[1])]
    )


def refuse_reversed_ranks(
    method: str, places: Callable[[int], Ints], classes: Sequence[Floats], kept: NDArray[np.bool_]
) -> None:
    """Raise the errors of `refuse_reversed_scores` for rows whose scores have been ranked already.

    Parameters
    ----------
    method : str
    places : callable
        A function from a class index to the (n,) int64 ranks of the rows' scores among the distinct scores,
        from 0. It is called only for classes that the test needs.
    classes : sequence of (n,) float64
        For each class, 1 where a row belongs to it, else 0.
    kept : (n,) bool
        The rows to use.
    """
    counted = kept.astype(np.float64)

    def area(k: int) -> float | None:
        return _ranked_area(places(k), classes[k] * counted, counted)

    _refuse_reversed(method, int(counted.sum()), [partial(area, k) for k in range(len(classes))])


def _refuse_reversed(method: str, rows: int, ranking: Sequence[Callable[[], float | None]]) -> None:
    """Raise a ValueError if too many classes are reversed.

    `ranking` has a function for each class that returns its area, or None if it is not reversed.
    """
    width, last = len(ranking), ranking[-1]()
    if last is None and width <= 2:  # the second area of two classes would cost as much as the first
        return
    areas = [*(rank() for rank in ranking[:-1]), last]
    wrong = [k for k, area in enumerate(areas) if area is not None]
    if len(wrong) < min(width, 2):
        return
    if width == 1:
        finding = (
            f"a right answer has the larger confidence than a wrong one with a chance of {areas[0]:.1%} only"
        )
        advice = "is it the probability of being wrong, or is `correct` reversed?"
    else:
        chances = " and ".join(f"{areas[k]:.1%} for class {k}" for k in wrong)
        finding = f"the score of a class is larger where that class is right with a chance of only {chances}"
        advice = f"are these classes (0 to {width - 1}, in the order of `classes`) the wrong way round?"
    raise ValueError(
        f"{method} calibration would reverse the order of the scores: among the {rows:,} labelled "
        f"rows {finding}; {advice} Correct `classes`, the scores or the labels, or set calibration.method "
        "to none"
    )


def _rank_area(score: Floats, right: NDArray[np.bool_]) -> float | None:
    """Return the probability that a right row has a larger score than a wrong row; None if not reversed.

    A tie counts as one half.
    """
    hits = int(right.sum())
    others = len(right) - hits
    if not hits or not others:
        return None
    # Searching one sorted list in the other takes a quarter of the time of ranking all scores.
    larger, smaller = np.sort(score[right]), np.sort(score[~right])
    below = sum(int(smaller.searchsorted(larger, side).sum()) for side in ("left", "right"))  # a tie adds 1
    return _if_reversed(below, hits, others)


def _ranked_area(place: Ints, right: Floats, counted: Floats) -> float | None:
    """Return the area of `_rank_area` from counts at each rank.

    The counts are integers far below 2⁵³, so the order of the additions does not change the result.
    """
    hits = np.bincount(place, right)
    others = np.bincount(place, counted) - hits
    up_to = others.cumsum()
    right_rows, wrong_rows = int(hits.sum()), int(up_to[-1])
    if not right_rows or not wrong_rows:
        return None
    below = int(hits @ (2 * up_to - others))  # a tie adds 1
    return _if_reversed(below, right_rows, wrong_rows)


def _if_reversed(below: int, hits: int, others: int) -> float | None:
    """Return the area if it is below one half by too much, else None; `below` is twice the ordered pairs."""
    area = below / 2 / (hits * others)
    error = np.sqrt((hits + others + 1) / (12.0 * hits * others))
    return area if area < 0.5 - STANDARD_ERRORS * error else None

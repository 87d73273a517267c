"""The test for reversed scores, which a calibration would have to turn around."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from monitor.base.records import Floats, Ints

STANDARD_ERRORS = 4.0
"""Scores without information exceed this by chance in 3 of 100,000 fits; a reference has several,
cross-fitted."""


def refuse_reversed_scores(method: str, scores: Floats, labels: Ints) -> None:
    """Raise a ValueError if the scores rank the wrong way round; the message names the `method`.

    For each class it compares the scores of rows of that class with those of the others (for a confidence:
    right rows with wrong rows), by the probability that a row of the first kind has the larger score. A score
    is reversed if this is below a half by more than four standard errors of unrelated scores, √((n₁ + n₀ + 1)
    / 12 n₁ n₀). One class of three or more may be learnt that badly, and gets a flat curve; two or more are a
    mistake in their order.

    It needs at least 22 rows. Dependent rows pass the bound more often than stated.

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


def refuse_reversed_places(
    method: str, places: Callable[[int], Ints], classes: Sequence[Floats], kept: NDArray[np.bool_]
) -> None:
    """`refuse_reversed_scores` of some rows whose scores are sorted already.

    Parameters
    ----------
    method : str
    places : callable
        By class, the (n,) int64 place of each row's score among the different scores, from 0. It is asked
        for a class only where it matters.
    classes : sequence of (n,) float64
        By class, 1 where a row is of it, else 0.
    kept : (n,) bool
        The rows that are compared.
    """
    counted = kept.astype(np.float64)

    def area(k: int) -> float | None:
        return _placed_area(places(k), classes[k] * counted, counted)

    _refuse_reversed(method, int(counted.sum()), [partial(area, k) for k in range(len(classes))])


def _refuse_reversed(method: str, rows: int, ranking: Sequence[Callable[[], float | None]]) -> None:
    """By class, `ranking` gives the area; None if not reversed."""
    width, last = len(ranking), ranking[-1]()
    if last is None and width <= 2:  # ranking is what takes the time
        return
    areas = [*(rank() for rank in ranking[:-1]), last]
    wrong = [k for k, area in enumerate(areas) if area is not None]
    if len(wrong) < min(width, 2):
        return
    if width == 1:
        found = (
            f"a right answer has the larger confidence than a wrong one with a chance of {areas[0]:.1%} only"
        )
        advice = "is it the probability of being wrong, or is `correct` reversed?"
    else:
        told = " and ".join(f"{areas[k]:.1%} for class {k}" for k in wrong)
        found = f"the score of a class is larger where that class is right with a chance of only {told}"
        advice = f"are these classes (0 to {width - 1}, in the order of `classes`) the wrong way round?"
    raise ValueError(
        f"{method} calibration would reverse the order of the scores: among the {rows:,} labelled "
        f"rows {found}; {advice} Correct `classes`, the scores or the labels, or set calibration.method "
        "to none"
    )


def _rank_area(score: Floats, right: NDArray[np.bool_]) -> float | None:
    """The probability that a right row's score is larger than a wrong row's, ties a half; None if not
    reversed.
    """
    hits = int(right.sum())
    others = len(right) - hits
    if not hits or not others:
        return None
    # Searching one sorted list in the other takes a quarter of the time of ranking all.
    larger, smaller = np.sort(score[right]), np.sort(score[~right])
    below = sum(int(smaller.searchsorted(larger, side).sum()) for side in ("left", "right"))  # of ties, one
    return _if_reversed(below, hits, others)


def _placed_area(place: Ints, right: Floats, counted: Floats) -> float | None:
    """`_rank_area` by counts at each place, which are whole and far below 2⁵³: their order does not show."""
    hits = np.bincount(place, right)
    others = np.bincount(place, counted) - hits
    up_to = others.cumsum()
    right_rows, wrong_rows = int(hits.sum()), int(up_to[-1])
    if not right_rows or not wrong_rows:
        return None
    below = int(hits @ (2 * up_to - others))  # of ties, one
    return _if_reversed(below, right_rows, wrong_rows)


def _if_reversed(below: int, hits: int, others: int) -> float | None:
    """The area by twice the pairs in order, where it is below a half by too much."""
    area = below / 2 / (hits * others)
    error = np.sqrt((hits + others + 1) / (12.0 * hits * others))
    return area if area < 0.5 - STANDARD_ERRORS * error else None

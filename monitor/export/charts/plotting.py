"""Helpers of every chart: ticks, and lines thinned to the available pixels."""

from __future__ import annotations

import math
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from monitor.base.records import Floats, Ints

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_DAY = 86_400
_TIME_STEPS = (
    *(1, 2, 5, 10, 15, 30),
    *(60 * minutes for minutes in (1, 2, 5, 10, 15, 30)),
    *(3600 * hours for hours in (1, 2, 3, 6, 12)),
    *(_DAY * days for days in (1, 2, 7, 14)),
)
# Longer steps are counted in months, which have no fixed length.
_MONTH_STEPS = (1, 2, 3, 6, 12, 24, 60, 120, 1200)

_SLACK = 1e-9  # a fraction of a step: 0.3 / 0.1 is below 3 in binary, yet the tick at 0.3 belongs to [0, 0.3]

Ticks = list[tuple[float, str]]


def number_ticks(low: float, high: float, most: int, integers: bool = False) -> list[float]:
    """Return multiples of 1, 2 or 5 times a power of ten within [low, high], at most `most` of them.

    Examples
    --------
    >>> number_ticks(0.83, 0.97, 5)
    [0.85, 0.9, 0.95]
    >>> number_ticks(0, 3, 10, integers=True)
    [0.0, 1.0, 2.0, 3.0]
    """
    step = 10.0 ** math.floor(math.log10(max(high - low, 1e-12) / most))
    if integers:
        step = max(step, 1.0)
    steps = (step * factor for factor in (1, 2, 5, 10, 20, 50))
    step = next(one for one in steps if _count(low, high, one) <= most)
    first = math.ceil(low / step - _SLACK)
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    return [round((first + k) * step, digits) for k in range(_count(low, high, step))]


def _count(low: float, high: float, step: float) -> int:
    return math.floor(high / step + _SLACK) - math.ceil(low / step - _SLACK) + 1


def percent_labels(values: list[float]) -> list[str]:
    """Format ratios as percentages, with as many decimals as needed to distinguish the closest two.

    Examples
    --------
    >>> percent_labels([0.85, 0.9, 0.95]), percent_labels([0.885, 0.89])
    (['85 %', '90 %', '95 %'], ['88.5 %', '89.0 %'])
    """
    digits = next((d for d in range(4) if all(abs(round(100 * v, d) - 100 * v) < 1e-6 for v in values)), 4)
    return [f"{100 * value:.{digits}f} %" for value in values]


def number_labels(values: list[float]) -> list[str]:
    """Format numbers with as many decimals as needed to distinguish the closest two.

    Examples
    --------
    >>> number_labels([9.5, 10.0, 10.5]), number_labels([-2000.0, 0.0])
    (['9.5', '10.0', '10.5'], ['-2,000', '0'])
    """
    largest = max(map(abs, values), default=0.0)
    digits = next((d for d in range(9) if all(abs(round(v, d) - v) <= 1e-9 * largest for v in values)), None)
    form = ".3g" if digits is None or largest >= 1e9 else f",.{digits}f"
    return [format(value, form) for value in values]


def time_ticks(low: float, high: float, most: int) -> Ticks:
    """Return at most `most` round times in UTC within [low, high], with their labels.

    All times are seconds since the epoch.

    Examples
    --------
    >>> [label for _, label in time_ticks(1364774400, 1388534400, 10)]
    ['Apr 2013', 'May', 'Jun', 'Jul', 'Aug', 'Sep', 'Oct', 'Nov', 'Dec', 'Jan 2014']
    >>> [label for _, label in time_ticks(1364810000, 1364824000, 5)]
    ['10:00, 1 Apr 2013', '11:00', '12:00', '13:00']
    """
    for step in _TIME_STEPS:
        if _count(low, high, step) <= most:
            first = math.ceil(low / step - _SLACK) * step
            return _label_times([first + k * step for k in range(_count(low, high, step))], step)
    for months in _MONTH_STEPS:
        starts = _month_starts(low, high, months)
        if len(starts) <= most:
            break
    return _label_months(starts)


def _label_times(times: list[float], step: float) -> Ticks:
    """Label days by their date and other times by the clock. The first label is complete, with the year."""
    form = "%H:%M:%S" if step < 60 else "%H:%M"
    ticks = []
    for place, time in enumerate(times):
        moment = datetime.fromtimestamp(time, UTC)
        day = f"{moment.day} {_MONTHS[moment.month - 1]}" + (f" {moment.year}" if place == 0 else "")
        clock = moment.strftime(form)
        full = f"{clock}, {day}" if place == 0 else clock
        ticks.append((float(time), day if time % _DAY == 0 else full))
    return ticks


def _month_starts(low: float, high: float, months: int) -> list[datetime]:
    first = datetime.fromtimestamp(low, UTC)
    last = datetime.fromtimestamp(high, UTC)
    numbers = range(
        (first.year * 12 + first.month - 1) // months * months, last.year * 12 + last.month, months
    )
    starts = (datetime(number // 12, number % 12 + 1, 1, tzinfo=UTC) for number in numbers)
    return [start for start in starts if low <= start.timestamp() <= high]


def _label_months(starts: list[datetime]) -> Ticks:
    ticks = []
    for place, start in enumerate(starts):
        name = _MONTHS[start.month - 1]
        new_year = place == 0 or starts[place - 1].year != start.year
        ticks.append((start.timestamp(), f"{name} {start.year}" if new_year else name))
    return ticks


def edges(x: Floats) -> Floats:
    """Return the borders around n points, (n + 1,).

    A border is half way between two points. An outer border is as far from its point as the inner one.

    Examples
    --------
    >>> edges(np.array([0.0, 1.0, 3.0]))
    array([-0.5,  0.5,  2. ,  4. ])
    >>> edges(np.array([7.0]))
    array([6.5, 7.5])
    """
    if len(x) < 2:
        return np.array([x[0] - 0.5, x[0] + 0.5]) if len(x) else np.zeros(0)
    middle = (x[1:] + x[:-1]) / 2
    return np.concatenate([[2 * x[0] - middle[0]], middle, [2 * x[-1] - middle[-1]]])


def runs(mask: NDArray[np.bool_]) -> Ints:
    """Return the start and the end (exclusive) of each run of successive True values, (runs, 2).

    Examples
    --------
    >>> runs(np.array([True, True, False, True])).tolist()
    [[0, 2], [3, 4]]
    """
    padded = np.concatenate([[False], mask, [False]])
    return np.flatnonzero(padded[1:] != padded[:-1]).reshape(-1, 2)


def thin(x: Floats, y: Floats, most: int) -> Ints:
    """Return the indices of the points that are needed to draw a line.

    They are the first, the last, the lowest and the highest point of each pixel column.

    Parameters
    ----------
    x : (n,) float64
        Pixels, in ascending order.
    y : (n,) float64
        Finite heights.
    most : int
        A line with at most this number of points keeps all of them.

    Returns
    -------
    (m,) int64
        The indices, in ascending order.

    Examples
    --------
    >>> x = np.array([0.0, 0.2, 0.4, 0.6, 0.8, 1.0])
    >>> thin(x, np.array([5.0, 9.0, 6.0, 1.0, 5.0, 5.0]), 4).tolist()
    [0, 1, 3, 4, 5]
    """
    if len(x) <= most:
        return np.arange(len(x))
    column = np.floor(x).astype(np.int64)
    first = np.flatnonzero(np.concatenate([[True], column[1:] != column[:-1]]))
    last = np.concatenate([first[1:], [len(x)]]) - 1
    by_height = np.lexsort((y, column))  # the lowest of each column first, the highest last
    return np.unique(np.concatenate([first, last, by_height[first], by_height[last]]))

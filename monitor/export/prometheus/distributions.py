"""Builds metric rows: of classic histograms, of a model's confidences, and of its calibration curve.

A metric row is a key in `FAMILIES`, the labels, and the value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from prometheus_client.utils import floatToGoString

from monitor.export.prometheus.rows import Row, SharedLabels, shared
from monitor.reports.views import SeriesView
from monitor.stats.histograms import BIN_ENDS, BIN_NAMES


def histogram_rows(
    key: str, who: dict[str, str], ends: Iterable[float], cumulative: Sequence[int], total: float
) -> Iterator[Row]:
    """Yield the rows of a classic histogram.

    Parameters
    ----------
    key : str
        Key in `FAMILIES`.
    who : dict
        Labels of the rows.
    ends : iterable of float
        Upper ends of all buckets except the last bucket, which has no end.
    cumulative : sequence of int
        The number of values up to each end, followed by the number of all values.
    total : float
        Sum of the values.

    Examples
    --------
    >>> for row in histogram_rows("duration", {"task": "t"}, [0.5], [3, 4], 2.5):
    ...     print(row)
    ('duration:bucket', {'task': 't', 'le': '0.5'}, 3)
    ('duration:bucket', {'task': 't', 'le': '+Inf'}, 4)
    ('duration:sum', {'task': 't'}, 2.5)
    ('duration:count', {'task': 't'}, 4)
    """
    for end, count in zip((*map(floatToGoString, ends), "+Inf"), cumulative, strict=True):
        yield f"{key}:bucket", {**who, "le": end}, count
    yield f"{key}:sum", who, total
    yield f"{key}:count", who, cumulative[-1]


def confidence_rows(one: SeriesView) -> list[Row]:
    """Return the rows of a model's histogram of confidences.

    A model always has 12 rows, even before its first answer. A group has no rows.
    """
    if one.distributions is None:
        return []
    spread = one.distributions.confidence
    up_to = spread.cumulative()
    return _rows(_SPREAD, (*up_to, spread.total, up_to[-1]))


def curve_rows(one: SeriesView) -> list[Row]:
    """Return the rows of a model's calibration curve.

    A model always has 30 rows, even before its first label. A group has no rows.
    """
    if one.distributions is None:
        return []
    curve = one.distributions.curve
    return _rows(_CURVE, (*curve.labelled, *curve.correct, *curve.confidence))


_Named = tuple[tuple[str, SharedLabels], ...]


def _rows(names: _Named, values: Iterable[float]) -> list[Row]:
    return [(key, labels, value) for (key, labels), value in zip(names, values, strict=True)]


_SPREAD: _Named = tuple(
    (key, shared(*labels.items()))
    for key, labels, _ in histogram_rows("confidence_ratio", {}, BIN_ENDS, (0,) * len(BIN_NAMES), 0.0)
)
_CURVE: _Named = tuple(
    (f"calibration_curve_{part}", shared(("bin", of_bin)))
    for part in ("labelled", "correct", "confidence")
    for of_bin in BIN_NAMES
)

"""Rows of classic histograms, and of a model's confidences: how they are spread, and how right they are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from prometheus_client.utils import floatToGoString

from monitor.export.prometheus.rows import Row
from monitor.stats.histograms import BIN_ENDS, BIN_NAMES, Distributions


def histogram_rows(
    key: str, who: dict[str, str], ends: Iterable[float], cumulative: Sequence[int], total: float
) -> Iterator[Row]:
    """A classic histogram.

    Parameters
    ----------
    key : str
        In `FAMILIES`.
    who : dict
        Its labels.
    ends : iterable of float
        Upper ends of the buckets but the last, which has none.
    cumulative : sequence of int
        How many values are at most each end, and last how many there are.
    total : float
        Sum of the values.

    Examples
    --------
    >>> for row in histogram_rows("took", {"task": "t"}, [0.5], [3, 4], 2.5):
    ...     print(row)
    ('took:bucket', {'task': 't', 'le': '0.5'}, 3)
    ('took:bucket', {'task': 't', 'le': '+Inf'}, 4)
    ('took:sum', {'task': 't'}, 2.5)
    ('took:count', {'task': 't'}, 4)
    """
    for end, count in zip((*map(floatToGoString, ends), "+Inf"), cumulative, strict=True):
        yield f"{key}:bucket", {**who, "le": end}, count
    yield f"{key}:sum", who, total
    yield f"{key}:count", who, cumulative[-1]


def distribution_rows(found: Distributions, who: dict[str, str]) -> Iterator[Row]:
    """Histogram of a model's confidences and its calibration curve: 42 series, from the start.

    Parameters
    ----------
    found : Distributions
    who : dict
        Labels of the model.
    """
    for (key, label), value in zip(DISTRIBUTION_ROWS, distribution_values(found), strict=True):
        yield key, {**who, **dict(label)}, value


def distribution_values(found: Distributions) -> tuple[float, ...]:
    """The values of `distribution_rows`, in the order of `DISTRIBUTION_ROWS`."""
    spread, curve = found.confidence, found.curve
    up_to = spread.cumulative()
    return *up_to, spread.total, up_to[-1], *curve.labelled, *curve.correct, *curve.confidence


def _distribution_rows() -> Iterator[tuple[str, tuple[tuple[str, str], ...]]]:
    for key, labels, _ in histogram_rows("confidence_ratio", {}, BIN_ENDS, (0,) * (len(BIN_ENDS) + 1), 0.0):
        yield key, tuple(labels.items())
    for part in ("labelled", "correct", "confidence"):
        for of_bin in BIN_NAMES:
            yield f"calibration_curve_{part}", (("bin", of_bin),)


DISTRIBUTION_ROWS = tuple(_distribution_rows())
"""Key and label, if any, of each of the rows that a model's distributions are, beside those of the model."""

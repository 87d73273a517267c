"""Counts of a feature's values, in bins that are chosen on the reference.

Windows are compared by their counts in the same bins, so no values are stored. The counts of the parts of a
window add up to the counts of the window.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from monitor.base.records import FeatureKind, Floats, Ints

WIDTH = 34
"""The number of counts of each feature."""

OUTSIDE, MISSING = WIDTH - 2, WIDTH - 1
"""The columns of values beyond the reference, and of rows without the feature."""

MOST_KNOWN = 256
"""The largest number of texts that a table knows. It knows the most frequent texts of the reference."""

BEYOND = 0.1
"""The share of a number's range by which a value may exceed the range."""

_FEWEST_DIGITS = 3  # significant digits of the edges in the names of bins, more if edges would look alike
_REST = OUTSIDE - 1  # the column of all known texts that are too rare for a column of their own
_CLEARLY_MORE = 3.0  # between roots of counts, each of which has a standard deviation of a half
_QUANTILES = np.array([0.01, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.99])


class FeatureBin(NamedTuple):
    """A bin of a feature.

    `column` is the index of the bin's count. The bin of a number has the ends `lower` (excluded) and `upper`
    (included). Both are None for other bins.
    """

    name: str
    column: int
    lower: float | None = None
    upper: float | None = None


@dataclass(frozen=True, eq=False)
class FeatureTable:
    """The bins of one feature, and the reference's counts in them.

    A number has bins between its deciles, and separate bins for the lowest and the highest hundredth. A text
    has a bin for each of its 31 most frequent values, and one for all other known values. Each row is counted
    in one bin, or as beyond the reference (`OUTSIDE`), or as missing (`MISSING`).

    Parameters
    ----------
    kind : {"number", "text"}
    values : float64 array
        For a number, the edges of the bins in ascending order; the first and last edge are the ends of the
        range. For a text, the codes of its known values, the most frequent first.
    counts : (WIDTH,) int64
        The counts of the reference.

    Examples
    --------
    >>> table = FeatureTable.from_values("text", np.array([7.0, 7.0, 3.0, np.nan]))
    >>> counts = table.count(np.array([3.0, 7.0, 7.0, 99.0, np.nan]))
    >>> counts[:2].tolist(), int(counts[OUTSIDE]), int(counts[MISSING])
    ([2, 1], 1, 1)
    """

    kind: FeatureKind
    values: Floats
    counts: Ints

    @classmethod
    def from_values(cls, kind: FeatureKind, values: Floats) -> FeatureTable:
        """Return the table of a feature from its values in the reference, (N,) float64; NaN means missing.

        Texts are encoded as integers from 0 to 2⁵², equal texts as equal integers (`text_codes`).
        """
        usable = values[np.isfinite(values)]
        bins = _edges(usable) if kind == "number" else _by_frequency(usable)
        empty = cls(kind, bins, np.zeros(WIDTH, dtype=np.int64))
        return cls(kind, bins, empty.count(values))

    def places(self, values: Floats) -> Ints:
        """Return the index of the bin, or of `OUTSIDE` or `MISSING`, of each value, (n,) int64."""
        edges, columns = self._lookup
        places: Ints = columns[edges.searchsorted(values)]
        return places

    def count(self, values: Floats) -> Ints:
        """Return the number of values in each bin and in `OUTSIDE` and `MISSING`, (WIDTH,) int64."""
        return np.bincount(self.places(values), minlength=WIDTH)

    def unbiased(self, counts: Ints) -> Ints:
        """Return counts, (WIDTH,) int64, in which rare texts count as beyond the reference.

        Chance decides which rare texts occur in the reference, and which of them get a separate bin. Such
        texts are more frequent in the reference than in later windows, so the counts would differ without
        drift. Therefore the bin of all rare texts counts as beyond the reference. So does the bin of a text
        that is hardly more frequent than the least frequent text with a bin. If all known texts have bins,
        the bins of texts that hardly occur in the reference count as beyond it. The counts of a number are
        returned unchanged.
        """
        if self.kind == "number":
            return counts
        own = self.counts[:_REST]
        least = own[-1] if self.counts[_REST] else 0
        by_chance = np.sqrt(own) - math.sqrt(least) < _CLEARLY_MORE
        joined = counts.copy()
        joined[:_REST][by_chance] = 0
        joined[_REST] = 0
        joined[OUTSIDE] = counts.sum() - joined.sum() + counts[OUTSIDE]
        return joined

    def bins(self) -> list[FeatureBin]:
        """Return the bins in order, including the two bins for values beyond the reference and missing ones.

        Texts have numbers instead of names, beginning with the most frequent text, because only their hashes
        are known.

        Examples
        --------
        >>> hours = FeatureTable.from_values("number", np.array([0.0, 6.0, 12.0, 18.0]))
        >>> [each.name for each in hours.bins()]
        ['-1.8 to 0', '0 to 6', '6 to 12', '12 to 19.8', 'not in the reference', 'missing']
        """
        if self.kind == "number":
            ends = self.values.tolist()
            words = _edge_names(ends)
            known = [
                FeatureBin(f"{words[k]} to {words[k + 1]}", k, ends[k], ends[k + 1])
                for k in range(len(ends) - 1)
            ]
        else:
            known = [FeatureBin(f"value {k + 1}", k) for k in range(min(len(self.values), _REST))]
            known += [FeatureBin("other known values", _REST)] * (len(self.values) > _REST)
        return [*known, FeatureBin("not in the reference", OUTSIDE), FeatureBin("missing", MISSING)]

    @cached_property
    def _lookup(self) -> tuple[Floats, Ints]:
        """Edges, and the column of the values up to each edge; the last column is that of NaN."""
        known = len(self.values)
        if self.kind == "number":
            inside = np.arange(max(known - 1, 0))
            columns = np.concatenate([[OUTSIDE] * (known > 0), inside, [OUTSIDE, MISSING]])
            return np.append(self.values, np.inf), columns.astype(np.int64)
        order = np.argsort(self.values)
        codes = self.values[order]
        edges = np.stack([codes - 0.5, codes], axis=1).ravel()  # a whole number between codes is in no bin
        columns = np.full(2 * known + 2, OUTSIDE, dtype=np.int64)
        columns[1:-1:2] = np.minimum(order, _REST)
        columns[-1] = MISSING
        return np.append(edges, np.inf), columns


def _edges(values: Floats) -> Floats:
    if not len(values):
        return np.zeros(0)
    low, high = float(values.min()), float(values.max())
    room = BEYOND * (high - low)
    inner = np.unique(np.quantile(values, _QUANTILES, method="inverted_cdf"))
    # The first bin includes its lower edge too.
    return np.concatenate([[np.nextafter(low - room, -np.inf)], inner[inner < high], [high + room]])


def _edge_names(edges: Sequence[float]) -> list[str]:
    """Return the edges in as few digits as distinguish them."""
    for digits in range(_FEWEST_DIGITS, 18):  # 17 digits distinguish all floats
        shown = [float(f"{edge:.{digits}g}") for edge in edges]
        if len(set(shown)) == len(edges):
            break
    return [f"{edge:,.15g}" for edge in shown]


def _by_frequency(codes: Floats) -> Floats:
    levels, count = np.unique(codes, return_counts=True)
    frequent: Floats = levels[np.argsort(-count, kind="stable")[:MOST_KNOWN]]
    return frequent


def count_features(tables: Sequence[FeatureTable], features: Floats) -> Ints:
    """Return the counts of several features over the same rows.

    Parameters
    ----------
    tables : sequence of FeatureTable
        The table of each of the F features.
    features : (n, F) float64
        The rows, NaN if a feature is missing.

    Returns
    -------
    (F, WIDTH) int64

    Examples
    --------
    >>> rows = np.array([[1.0, 5.0], [2.0, np.nan]])
    >>> tables = [FeatureTable.from_values("number", column) for column in rows.T]
    >>> count_features(tables, rows)[:, [OUTSIDE, MISSING]].tolist()
    [[0, 0], [0, 1]]
    """
    columns = np.ascontiguousarray(features.T)
    places = np.empty(columns.shape, dtype=np.int64)
    for j, table in enumerate(tables):
        np.add(table.places(columns[j]), j * WIDTH, out=places[j])
    return np.bincount(places.ravel(), minlength=len(tables) * WIDTH).reshape(len(tables), WIDTH)

"""Recognises the format of records and tables by marks. A mark is a set of names of fields or columns."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import cache

from connectors.formats.decode.structs import KIND_FIELDS
from monitor.base.registry import FORMATS

OURS = ("scores", "models", "confidence", "label", "correct", *KIND_FIELDS)
"""The fields of answers and labels of every kind. A record in Blindsight's own format has at least one of
them."""

ONE_IS_OURS = frozenset(OURS)


@cache
def _marks(inner: bool) -> tuple[tuple[frozenset[str], str], ...]:
    return tuple(
        (frozenset(mark), tag)
        for tag, entry in FORMATS.items()
        for mark in entry.marks
        if not (inner and entry.holds_records)
    )


def formats_of(names: Collection[str], inner: bool = False) -> list[str]:
    """Return the formats that a record with these fields may have, by their marks (sets of field names).

    Parameters
    ----------
    inner : bool
        True to exclude formats that wrap records of other formats.

    Examples
    --------
    >>> formats_of({"databricks_request_id", "response"}), formats_of({"id", "scores"})
    (['inference_table'], [])
    """
    own = frozenset(names)
    return list(dict.fromkeys([tag for mark, tag in _marks(inner) if mark <= own]))


def may_have_a_mark(data: bytes, inner: bool = False) -> bool:
    """Return False if no record in these lines of JSON has a mark, so that all are in our own format.

    The lines are not decoded. If they name all fields of a mark, or escape characters, the result is True.

    Examples
    --------
    >>> may_have_a_mark(b'{"id": "r", "prediction": 3.5}'), may_have_a_mark(b'{"predictions": [[0.1, 0.9]]}')
    (False, True)
    """
    if b"\\" in data and b"\\u" in data:  # the first search is much faster
        return True
    return any(all(b'"%s"' % name.encode() in data for name in sorted(mark)) for mark, _ in _marks(inner))


def formats_of_table(names: Iterable[str]) -> list[str]:
    """Return the possible formats of a table with these columns; [] if the columns are Blindsight's own.

    Examples
    --------
    >>> formats_of_table(["captureData", "eventMetadata"]), formats_of_table(["outputs", "scores.ok"])
    (['sagemaker'], [])
    """
    own = frozenset(names)
    ours = not ONE_IS_OURS.isdisjoint(own) or any(name.startswith("scores.") for name in own)
    return [] if ours else formats_of(own)

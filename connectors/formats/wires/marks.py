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

"""Suggests names that probably mean a missing field. The message about the field ends with the suggestion."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from connectors.formats.decode.structs import KIND_FIELDS, Record
from connectors.formats.files.table_rows import is_column
from connectors.formats.messages.wording import as_json, listing, nearest
from monitor.base.records import RejectReason
from monitor.base.source import Raw, RawBlock, RawTable

MISSING_FIELD = frozenset(
    {
        RejectReason.NO_SCORES,
        RejectReason.NO_LABEL,
        RejectReason.NO_MODEL,
        RejectReason.NO_TASK,
        RejectReason.NO_ID,
    }
)
"""The reject reasons that a missing field causes. The record may have the field under another name."""

_FIELDS = frozenset(Record.__struct_fields__)
# No message asks for these fields, and their names are too close to other names of scores and rows.
_SUGGESTED = tuple(sorted(_FIELDS - {"probability", "draw", *KIND_FIELDS}))
_CLOSE = 0.65  # "object" is not "correct"
MOST_NAMES = 30
"""The largest number of a record's names that are compared. The limit bounds the cost if very many records
are rejected."""


def keys_of(raw: bytes) -> tuple[str, ...]:
    """Return the names of the first fields of a JSON record, at most `MOST_NAMES`; () if it is no object.

    Examples
    --------
    >>> keys_of(b'{"id": 1, "score": [0.5, 0.5]}')
    ('id', 'score')
    """
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ()
    return tuple(value)[:MOST_NAMES] if isinstance(value, dict) else ()


def names_of(raw: Raw) -> tuple[str, ...]:
    """Return the names of the columns of a table, or of the fields in the first line of a block.

    Return () for other raw input.
    """
    if isinstance(raw, RawTable):
        return tuple(raw.columns)
    return keys_of(raw.data.partition(b"\n")[0]) if isinstance(raw, RawBlock) else ()


def misspelt(names: Iterable[str], wanted: Sequence[str] = _SUGGESTED) -> str:
    """Return a clause that names the field that an unknown name probably means, or "" if none is similar.

    Parameters
    ----------
    names : iterable of str
        The names of the fields of a record or of the columns of a table.
    wanted : sequence of str
        The fields that may be suggested. A field that is among `names` is not suggested.

    Examples
    --------
    >>> misspelt(["id", "model", "score"]), misspelt(["id", "colour"])
    ('; "score" is no field: did you mean scores?', '')
    """
    present = frozenset(names)
    absent = tuple(field for field in wanted if field not in present)
    for name in names:
        if not is_column(name) and name not in _FIELDS:
            hint = nearest(name.lower(), absent, cutoff=_CLOSE)
            if hint:
                return f"; {as_json(name)} is no field: {hint.removeprefix('; ')}"
    return ""


def bare_classes(names: Iterable[str], classes: Sequence[str]) -> str:
    """Return a clause about columns whose names are class names, or "" if the table has no such columns.

    Examples
    --------
    >>> bare_classes(["id", "ok", "toxic"], ["ok", "toxic"])
    '; name the columns scores.ok, scores.toxic instead of ok, toxic'
    """
    present = frozenset(names)
    bare = [name for name in classes if name in present and not is_column(name)]
    if not bare:
        return ""
    return f"; name the columns {listing([f'scores.{name}' for name in bare])} instead of {listing(bare)}"

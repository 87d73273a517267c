"""What a record or a table calls otherwise than we do: the end of a message about a field that is missing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from connectors.formats.decode.structs import ARENA_FIELDS, Record
from connectors.formats.files.table_rows import is_column
from connectors.formats.messages.wording import as_json, listing, nearest
from monitor.base.records import RejectReason
from monitor.base.source import Raw, RawBlock, RawTable

MISSING = frozenset(
    {
        RejectReason.NO_SCORES,
        RejectReason.NO_LABEL,
        RejectReason.NO_MODEL,
        RejectReason.NO_TASK,
        RejectReason.NO_ID,
    }
)
"""Reasons that say that something is not there: perhaps it is, under another name."""

_FIELDS = frozenset(Record.__struct_fields__)
# How a row was picked for labelling is asked for nowhere, and too near to what others call scores, or a row.
_SUGGESTED = tuple(sorted(_FIELDS - {"probability", "draw", *ARENA_FIELDS}))
_CLOSE = 0.65  # "object" is not "correct"
MOST_NAMES = 30
"""So many are looked at in a record: a flood of odd ones must stay cheap."""


def keys_of(raw: bytes) -> tuple[str, ...]:
    """Names of the fields of a JSON record, none where it is no object.

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
    """Names of a table's columns, or of the fields in the first line of a file."""
    if isinstance(raw, RawTable):
        return tuple(raw.columns)
    return keys_of(raw.data.partition(b"\n")[0]) if isinstance(raw, RawBlock) else ()


def misspelt(names: Iterable[str], wanted: Sequence[str] = _SUGGESTED) -> str:
    """The clause that names a field which is probably meant by an unknown one, or nothing.

    Parameters
    ----------
    names : iterable of str
        Of a record's fields, or of a table's columns.
    wanted : sequence of str
        Fields that may be meant; those among `names` are not.

    Examples
    --------
    >>> misspelt(["id", "model", "score"]), misspelt(["id", "colour"])
    ('; "score" is no field: did you mean scores?', '')
    """
    given = frozenset(names)
    absent = tuple(field for field in wanted if field not in given)
    for name in names:
        if not is_column(name) and name not in _FIELDS:
            found = nearest(name.lower(), absent, cutoff=_CLOSE)
            if found:
                return f"; {as_json(name)} is no field: {found.removeprefix('; ')}"
    return ""


def bare_classes(names: Iterable[str], classes: Sequence[str]) -> str:
    """The clause about columns of a table that bear the name of a class alone, or nothing.

    Examples
    --------
    >>> bare_classes(["id", "ok", "toxic"], ["ok", "toxic"])
    '; name the columns scores.ok, scores.toxic instead of ok, toxic'
    """
    given = frozenset(names)
    bare = [name for name in classes if name in given and not is_column(name)]
    if not bare:
        return ""
    return f"; name the columns {listing([f'scores.{name}' for name in bare])} instead of {listing(bare)}"

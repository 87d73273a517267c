"""The ids of single records as text: columns keep only their keys."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from connectors.formats.decode.structs import Record
from connectors.formats.wires.wire import PLAIN, Wire
from monitor.base.records import id_keys
from monitor.base.source import Raw, RawBlock, RawTable


def id_at(raw: Raw, position: int, key: int, wire: Wire = PLAIN) -> str | None:
    """The id of the record at a position of what was read, under whatever name it stands there.

    Parameters
    ----------
    raw : Raw
        A block of lines or a table that holds the position.
    position : int
        As in `Batch.position`: a byte's of a block, a row's of a table.
    key : int
        `id_keys` of the id.
    wire : Wire
        How a line is read: an event holds several records, whose ids are made of its own.

    Returns
    -------
    str or None
        None where no text and no whole number of the record has that key.

    Examples
    --------
    >>> block = RawBlock(b'{"request": {"id": 82}, "p": 0.5}', "p.ndjson", 0)
    >>> id_at(block, 0, int(id_keys(["82"])[0]))
    '82'
    """
    for text in (*_texts(_record(raw, position)), *_read(raw, position, wire)):
        if int(id_keys([text])[0]) == key:
            return text
    return None


def holds(raw: Raw, position: int) -> bool:
    """Whether a position is in what was read."""
    if isinstance(raw, RawBlock):
        return raw.start <= position < raw.start + len(raw.data)
    if isinstance(raw, RawTable):
        return raw.start <= position < raw.start + max(map(len, raw.columns.values()), default=0)
    return False


def _read(raw: Raw, position: int, wire: Wire) -> Iterator[str]:
    """The ids of the records that a line is read as."""
    if isinstance(raw, RawBlock):
        for _, outcome in wire.one(_line(raw, position)):
            if isinstance(outcome, Record) and outcome.id is not None:
                yield str(outcome.id)


def _line(raw: RawBlock, position: int) -> bytes:
    at = position - raw.start
    end = raw.data.find(b"\n", at)
    return raw.data[at : end if end >= 0 else len(raw.data)]


def _record(raw: Raw, position: int) -> object:
    if isinstance(raw, RawBlock):
        return msgspec.json.decode(_line(raw, position))
    if isinstance(raw, RawTable):
        return {name: column[position - raw.start] for name, column in raw.columns.items()}
    return None


def _texts(value: object) -> Iterator[str]:
    """Texts and whole numbers of a record, from the outside in."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, int) and not isinstance(value, bool):
        yield str(value)
    elif isinstance(value, dict):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)

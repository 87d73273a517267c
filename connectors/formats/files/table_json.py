"""Rows of tables as JSON, for formats whose records are objects and for the inspection of tables."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec

from connectors.formats.files.table_rows import plain_cell
from monitor.base.source import RawTable


def json_cell(cell: object) -> Any:
    """Return a cell of a table as a JSON value.

    A text that is valid JSON and begins with [ or { is parsed, and an empty text becomes None. A list of
    tuples of two (a map in Arrow) becomes an object. Bytes become text, and dates become ISO 8601 text.

    Examples
    --------
    >>> json_cell([("ok", 0.25), ("toxic", 0.75)]), json_cell('{"p": [1, 2]}'), json_cell("erm")
    ({'ok': 0.25, 'toxic': 0.75}, {'p': [1, 2]}, 'erm')
    """
    if isinstance(cell, str) and cell[:1] in ("[", "{"):
        try:
            return msgspec.json.decode(cell)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return cell
    return _plain(cell)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        pairs = bool(value) and all(isinstance(each, tuple) and len(each) == 2 for each in value)
        return _plain(dict(value)) if pairs else [_plain(each) for each in value]
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "surrogateescape")
    return plain_cell(value)


def json_rows(raw: RawTable) -> Iterator[bytes]:
    """Yield each row as a JSON object without its empty cells."""
    columns = {name: map(json_cell, column) for name, column in raw.columns.items() if column}
    for row in zip(*columns.values(), strict=True):
        value = {name: cell for name, cell in zip(columns, row, strict=True) if cell is not None}
        try:
            yield msgspec.json.encode(value)
        except (TypeError, ValueError, OverflowError, RecursionError):  # such as lone surrogates
            yield _encode_leniently(value)


def _encode_leniently(value: object) -> bytes:
    """Return a value as JSON: a surrogate that stands for a byte as this byte, another one as its escape."""
    try:
        return json.dumps(value, default=repr, ensure_ascii=False).encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return json.dumps(value, default=repr).encode()

"""Reads records from blocks of NDJSON, and from messages that hold one record, an array or NDJSON.

One call decodes a whole block. If the call fails, the block is halved until the bad lines are alone. One bad
line among thousands therefore costs a few more calls, and no other record is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import repeat

import msgspec
import numpy as np

from connectors.formats.decode.reread import lenient_elements
from connectors.formats.decode.structs import BoundedRejects, Fault, Reading, Record
from connectors.formats.files.table_json import json_rows
from connectors.formats.wires.wire import ERRORS, PLAIN, Mixed, Outcome, Wire
from monitor.base.records import Ints, Reject, RejectReason
from monitor.base.source import RawBlock, RawMessages, RawTable

_ONE_VALUE = msgspec.json.Decoder(msgspec.Raw)
_ELEMENTS = msgspec.json.Decoder(list[msgspec.Raw])

_SPACE = b" \t\r\n"
_NEWLINE, _RETURN, _OPEN, _CLOSE = b"\n\r{}"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_LEAF = 4  # pieces that are decoded one by one, because halving them costs more calls than it saves


def read_block(block: RawBlock, max_line_bytes: int, wire: Wire = PLAIN) -> Reading:
    """Return the records of a block of lines, without blank lines.

    Parameters
    ----------
    block : RawBlock
    max_line_bytes : int
        The limit of a line; a longer line is rejected without being read.
    wire : Wire
        The format of a line.
    """
    data = block.data
    skipped = len(_BYTE_ORDER_MARK) if block.start == 0 and data.startswith(_BYTE_ORDER_MARK) else 0
    data = data[skipped:]
    view = np.frombuffer(data, dtype=np.uint8)
    ends = np.flatnonzero(view == _NEWLINE)
    if len(data) and not data.endswith(b"\n"):
        ends = np.append(ends, len(data))
    starts = np.concatenate((np.zeros(1, dtype=np.int64), ends[:-1] + 1))[: len(ends)]
    positions = starts + (block.start + skipped)
    known: Mixed | None = None
    if _one_object_a_line(view, starts, ends, max_line_bytes):
        records = wire.read_lines(data)
        if records is not None and len(records) == len(starts):
            if not isinstance(records, Mixed):
                return Reading(records, positions, lambda i: data[starts[i] : ends[i]].strip(_SPACE), [])
            known = records
    lines = [data[a:b].strip(_SPACE) for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]
    return _collect(lines, positions, block.partition, max_line_bytes, wire, _from_line, known)


def read_messages(raw: RawMessages, max_line_bytes: int, wire: Wire = PLAIN) -> Reading:
    """Return the records of messages.

    An empty message (Kafka's tombstone) holds no record.
    """
    positions = np.array(raw.offsets, dtype=np.int64)
    if raw.headers is None or not wire.lines_need_headers:
        values = [value.strip(_SPACE) for value in raw.values]
        if (reading := _at_once(values, positions, max_line_bytes, wire)) is not None:
            return reading
    converted = map(wire.convert_message, raw.values, raw.headers or repeat(()))
    values = [value.strip(_SPACE) for value in converted]
    if raw.headers is not None and (reading := _at_once(values, positions, max_line_bytes, wire)) is not None:
        return reading
    return _collect(values, positions, raw.partition, max_line_bytes, wire, _from_message)


def read_rows(raw: RawTable, max_line_bytes: int, wire: Wire) -> Reading:
    """Return the records of the rows of a table, each written as JSON."""
    rows = list(json_rows(raw))
    good = [i for i in range(len(rows)) if i not in raw.broken]
    positions = np.array(good, dtype=np.int64) + raw.start
    pieces = [rows[i] for i in good]
    reading = _collect(pieces, positions, raw.partition, max_line_bytes, wire, _from_line)
    for i, why in raw.broken.items():
        before = int(np.searchsorted(reading.positions, raw.start + i))
        reject = Reject(RejectReason.MALFORMED, f"$: {why}", rows[i], raw.partition, raw.start + i)
        reading.rejects.append((before, reject))
    return reading


def _at_once(values: list[bytes], positions: Ints, max_line_bytes: int, wire: Wire) -> Reading | None:
    """Return the records of messages that hold one record each, or None for other messages."""
    if max(map(len, values), default=0) > max_line_bytes or b"" in values:
        return None
    records = _try_pieces(values, wire)
    if records is None or isinstance(records, Mixed):
        return None
    return Reading(records, positions, values.__getitem__, [])


def _one_object_a_line(view: np.ndarray, starts: Ints, ends: Ints, max_line_bytes: int) -> bool:
    """Return whether each line starts and ends with a brace, and none is too long.

    `decode_lines` accepts any white space between records, so that two records on one line, or one record on
    two lines, would shift all later positions. But valid JSON has a line end between a closing and an opening
    brace only between records; so with as many records as lines, each line is one record.
    """
    if not len(starts) or int((ends - starts).max()) > max_line_bytes:
        return False
    last = view[ends - 1]
    closed = last == _CLOSE
    if not closed.all():
        closed |= (last == _RETURN) & (view[np.maximum(ends - 2, 0)] == _CLOSE)
    return bool(closed.all() and (view[starts] == _OPEN).all())


def _try_pieces(pieces: Sequence[bytes], wire: Wire) -> list[Record] | Mixed | None:
    """Return one record for each piece from a single call of the decoder, with the gaps of `Mixed`.

    Return None if the pieces are not one object each, or the decoder fails.
    """
    joined = b"\n".join(pieces)
    if not (joined.startswith(b"{") and joined.endswith(b"}")):
        return None
    view = np.frombuffer(joined, dtype=np.uint8)
    cuts = np.flatnonzero(view == _NEWLINE)  # counting "}\n{" in the bytes takes several times as long
    if len(cuts) != len(pieces) - 1 or not ((view[cuts - 1] == _CLOSE) & (view[cuts + 1] == _OPEN)).all():
        return None
    records = wire.read_lines(joined)
    return records if records is not None and len(records) == len(pieces) else None


def _collect(
    pieces: list[bytes],
    positions: Ints,
    partition: str,
    max_line_bytes: int,
    wire: Wire,
    decode_one: Callable[[bytes, int, Wire], list[Outcome]],
    known: Mixed | None = None,
) -> Reading:
    records: list[Record] = []
    places: list[int] = []
    raws: list[bytes] = []
    rejects, ignored = BoundedRejects(), 0
    for number, raw, outcome in _outcomes(pieces, max_line_bytes, wire, decode_one, known):
        if isinstance(outcome, Record):
            records.append(outcome)
            places.append(int(positions[number]))
            raws.append(raw)
        elif outcome is None:
            ignored += 1
        else:
            reject = partial(Reject, *outcome, raw, partition, int(positions[number]))
            rejects.add(len(records), (outcome[0], partition, "", True, False), 1, reject)
    return Reading(records, np.array(places, dtype=np.int64), raws.__getitem__, rejects.items(), ignored)


def _outcomes(
    pieces: list[bytes],
    max_line_bytes: int,
    wire: Wire,
    decode_one: Callable[[bytes, int, Wire], list[Outcome]],
    known: Mixed | None,
) -> Iterator[tuple[int, bytes, Record | Fault | None]]:
    """Yield the index of a piece, the bytes of a record and its outcome: a record, a fault or None.

    Only the gaps of `known` are decoded.
    """
    numbers = [i for i, piece in enumerate(pieces) if piece]
    pending = [numbers]
    while pending:
        some = pending.pop()
        if len(some) <= _LEAF and known is None:
            for i in some:
                yield from ((i, *each) for each in decode_one(pieces[i], max_line_bytes, wire))
            continue
        here = [pieces[i] for i in some]
        # A piece that is too long is rejected alone; decoding it with others would accept it.
        records: list[Record] | Mixed | None = known
        if known is None:
            records = _try_pieces(here, wire) if max(map(len, here)) <= max_line_bytes else None
        if records is not None:
            for i, record in zip(some, records, strict=True):
                if record is not None:
                    yield i, pieces[i], record
                else:
                    yield from ((i, *each) for each in decode_one(pieces[i], max_line_bytes, wire))
        else:
            half = len(some) // 2
            pending += [some[half:], some[:half]]


def _from_line(line: bytes, max_line_bytes: int, wire: Wire) -> list[Outcome]:
    if len(line) > max_line_bytes:
        return [(line, too_large(len(line), max_line_bytes))]
    return wire.read(line)


def _from_message(value: bytes, max_line_bytes: int, wire: Wire) -> list[Outcome]:
    """Return the outcomes of a message: an array, one record on one or more lines, or NDJSON."""
    if not _is_one_value(value):
        if value.startswith(b"[") and (parts := lenient_elements(value)) is not None:
            return [outcome for element in parts for outcome in _from_line(element, max_line_bytes, wire)]
        lines = [line for line in (x.strip(_SPACE) for x in value.split(b"\n")) if line]
        if len(lines) > 1:
            return [outcome for line in lines for outcome in _from_line(line, max_line_bytes, wire)]
        return _from_line(value, max_line_bytes, wire)
    if not value.startswith(b"["):
        return _from_line(value, max_line_bytes, wire)
    return _from_array(value, max_line_bytes, wire)


def _from_array(value: bytes, max_line_bytes: int, wire: Wire) -> list[Outcome]:
    """Return the outcomes of the elements of an array, which are read at once as lines if possible."""
    elements = [bytes(element) for element in _ELEMENTS.decode(value)]
    records: list[Record] | Mixed | None = None
    if len(value) <= max_line_bytes or max(map(len, elements), default=0) <= max_line_bytes:
        # In valid JSON a newline occurs only between tokens, where a space is equivalent.
        lines = [each.replace(b"\n", b" ") for each in elements] if b"\n" in value else elements
        records = wire.read_lines(b"\n".join(lines))
    if records is None or len(records) != len(elements):
        records = Mixed([None] * len(elements))
    if not isinstance(records, Mixed):
        return list(zip(elements, records, strict=True))
    outcomes: list[Outcome] = []
    for element, record in zip(elements, records, strict=True):
        outcomes += _from_line(element, max_line_bytes, wire) if record is None else [(element, record)]
    return outcomes


def _is_one_value(value: bytes) -> bool:
    try:
        _ONE_VALUE.decode(value)
    except ERRORS:
        return False
    return True


def too_large(size: int, max_line_bytes: int) -> Fault:
    """Return the fault of a record that is too long to be read."""
    return (
        RejectReason.TOO_LARGE,
        f"$: a record of {size} bytes; at most {max_line_bytes} are read; send one record a line",
    )

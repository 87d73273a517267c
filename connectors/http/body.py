"""From the body of a post to lines: unpacked within a bound; an array, object, CloudEvent or NDJSON."""

from __future__ import annotations

import zlib
from collections.abc import Mapping

import msgspec

from connectors.formats.decode.reread import lenient_elements
from connectors.formats.wires.kserve import TENSORS_HEADER
from connectors.formats.wires.observed import ObservedWire, observed_line
from connectors.formats.wires.wire import Wire

MOST_ROWS = 50_000
"""Rows of one post: validating more would keep the others waiting."""

_ONE_VALUE = msgspec.json.Decoder(msgspec.Raw)
_ELEMENTS = msgspec.json.Decoder(list[msgspec.Raw])
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_SPACE = b" \t\r\n"
_GZIP = zlib.MAX_WBITS | 16


class TooLargeError(Exception):
    """The body is larger than allowed, packed or unpacked, or has too many rows."""


class BadBodyError(Exception):
    """The body is not what its headers say; the text says why."""


class Unpacker:
    """Takes a body in parts, holds at most `most_bytes` of it, packed or unpacked.

    Examples
    --------
    >>> import gzip
    >>> unpacker = Unpacker(gzipped=True, most_bytes=1000)
    >>> unpacker.feed(gzip.compress(b"one") + gzip.compress(b"two"))
    >>> unpacker.finish()
    b'onetwo'
    """

    def __init__(self, gzipped: bool, most_bytes: int) -> None:
        self._most = most_bytes
        self._gzip = zlib.decompressobj(_GZIP) if gzipped else None
        self._body = bytearray()  # a list of tiny parts would take many times as much
        self._taken = 0

    def feed(self, data: bytes) -> None:
        """Take the next part.

        Raises
        ------
        TooLargeError
        BadBodyError
            It is not gzip.
        """
        self._taken += len(data)
        if self._taken > self._most:
            raise TooLargeError(f"more than {self._most} bytes")
        if self._gzip is None:
            self._hold(data)
            return
        try:
            while data:
                if self._gzip.eof:  # gzip allows members one after another
                    self._gzip = zlib.decompressobj(_GZIP)
                # One byte more than there is room for: so a bomb is seen without being unpacked.
                self._hold(self._gzip.decompress(data, self._most - len(self._body) + 1))
                data = self._gzip.unconsumed_tail or self._gzip.unused_data
        except zlib.error as error:
            raise BadBodyError(f"the body is not gzip: {error}") from error

    @property
    def size(self) -> int:
        """Bytes held, unpacked."""
        return len(self._body)

    def finish(self) -> bytes:
        """The whole body, unpacked.

        Raises
        ------
        BadBodyError
            The last gzip member is cut off.
        """
        if self._gzip is not None and not self._gzip.eof:
            raise BadBodyError("the gzip body is incomplete: its end is missing")
        return bytes(self._body)

    def _hold(self, data: bytes) -> None:
        if len(self._body) + len(data) > self._most:
            raise TooLargeError(f"more than {self._most} bytes once unpacked")
        self._body += data


def lines_of(body: bytes) -> list[bytes]:
    """The records of a body, a line each, without newlines; blank lines are passed over.

    An array holds a record an element; any other single JSON value is one record, over several lines or
    not; all else is taken for a record a line, also where it is broken.

    Raises
    ------
    TooLargeError
        There are more than `MOST_ROWS`.

    Examples
    --------
    >>> lines_of(b'[{"id":\\n1}, {"id": 2}]'), lines_of(b'{"id": 1}\\n\\n{"id": 2}\\n')
    ([b'{"id": 1}', b'{"id": 2}'], [b'{"id": 1}', b'{"id": 2}'])
    """
    body = body.strip(_SPACE)
    while body.startswith(_BYTE_ORDER_MARK):  # a decoder drops one at the start of a feed, and only there
        body = body[len(_BYTE_ORDER_MARK) :].strip(_SPACE)
    if not body:
        return []
    found: list[bytes] | None
    if _is_one_value(body):
        # Between the tokens of valid JSON a newline means no more than a space, and inside them it cannot be.
        found = [bytes(each) for each in _ELEMENTS.decode(body)] if body.startswith(b"[") else [body]
    else:
        found = lenient_elements(body) if body.startswith(b"[") else None
    if found is not None:
        lines = [line.replace(b"\n", b" ") if b"\n" in line else line for line in found]
    else:
        lines = [line for line in (part.strip(_SPACE) for part in body.split(b"\n")) if line]
    if len(lines) > MOST_ROWS:
        raise TooLargeError(f"{len(lines)} rows; at most {MOST_ROWS} are allowed in one post")
    return lines


def _is_one_value(body: bytes) -> bool:
    try:
        _ONE_VALUE.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    return True


def is_binary(headers: Mapping[str, str]) -> bool:
    """Whether the body of a post is one value as its headers say, whatever its content type.

    KServe's logger gives a response the content type of the request, which curl calls a form. No page of
    another site can send these headers: its browser would ask first, by an OPTIONS that is answered 405.
    """
    return "ce-specversion" in headers or TENSORS_HEADER in headers


TYPES = frozenset({"application/cloudevents+json", "application/cloudevents-batch+json"})
"""Content types of events in structured mode, beside those of records."""


def event_lines(headers: Mapping[str, str], body: bytes, wire: Wire, name: str | None = None) -> list[bytes]:
    """The events and records of a post, a line each.

    Parameters
    ----------
    headers : mapping of str to str
        Names in lower case. With `ce-specversion` the body is the data of one event, whose attributes are
        the headers that begin with `ce-`; else it holds events or records, as `lines_of` cuts them.
    body : bytes
    wire : Wire
        How they are written.
    name : str, optional
        What they were posted to, among those that the wire observes.

    Raises
    ------
    TooLargeError
        There are more than `MOST_ROWS`.

    Examples
    --------
    >>> from connectors.formats.wires.kserve import KserveWire
    >>> from monitor.config.mapping import FieldMapping
    >>> wire = KserveWire(FieldMapping(format="kserve"))
    >>> kind = "org.kubeflow.serving.inference."
    >>> head = {"ce-specversion": "1.0", "ce-id": "a"}
    >>> event_lines(head | {"ce-type": kind + "response"}, b'{"predictions":\\n[0.5]}', wire)[0][-31:]
    b',"data":{"predictions": [0.5]}}'
    """
    if name is not None and isinstance(wire, ObservedWire):
        return [observed_line(name, line) for line in event_lines(headers, body, wire.sources[name])]
    whole = wire.posted(headers, body)
    return lines_of(body) if whole is None else [whole]

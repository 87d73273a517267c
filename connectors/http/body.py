"""The body of a post: its decompression with a limit, and its division into lines.

A body is a JSON object, an array of objects, NDJSON or a CloudEvent.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping

import msgspec

from connectors.formats.decode.reread import lenient_elements
from connectors.formats.wires.kserve import TENSORS_HEADER
from connectors.formats.wires.observed import ObservedWire, observed_line
from connectors.formats.wires.wire import Wire

MOST_ROWS = 50_000
"""The largest number of rows of one post. The validation of more rows would delay other posts too long."""

_ONE_VALUE = msgspec.json.Decoder(msgspec.Raw)
_ELEMENTS = msgspec.json.Decoder(list[msgspec.Raw])
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_SPACE = b" \t\r\n"
_GZIP = zlib.MAX_WBITS | 16


class TooLargeError(Exception):
    """The error of a body that is larger than allowed, compressed or not, or has too many rows."""


class BadBodyError(Exception):
    """The error of a body that is not valid gzip although the headers declare gzip.

    The text is the reason.
    """


class Unpacker:
    """A buffer that receives the parts of a body and decompresses them.

    Parameters
    ----------
    gzipped : bool
        Whether the body is compressed with gzip.
    most_bytes : int
        The largest allowed size of the body, before and after decompression.

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
        self._body = bytearray()  # a list of tiny parts would need many times the memory
        self._received = 0

    def feed(self, data: bytes) -> None:
        """Add the next part of the body.

        Raises
        ------
        TooLargeError
            The body exceeds `most_bytes`, compressed or not.
        BadBodyError
            The part is not valid gzip.
        """
        self._received += len(data)
        if self._received > self._most:
            raise TooLargeError(f"more than {self._most} bytes")
        if self._gzip is None:
            self._hold(data)
            return
        try:
            while data:
                if self._gzip.eof:  # a gzip file may have several members in a row
                    self._gzip = zlib.decompressobj(_GZIP)
                # One byte more than fits reveals a decompression bomb without decompressing it.
                self._hold(self._gzip.decompress(data, self._most - len(self._body) + 1))
                data = self._gzip.unconsumed_tail or self._gzip.unused_data
        except zlib.error as error:
            raise BadBodyError(f"the body is not gzip: {error}") from error

    @property
    def size(self) -> int:
        """The number of decompressed bytes so far."""
        return len(self._body)

    def finish(self) -> bytes:
        """Return the whole body, decompressed.

        Raises
        ------
        BadBodyError
            The last gzip member is incomplete.
        """
        if self._gzip is not None and not self._gzip.eof:
            raise BadBodyError("the gzip body is incomplete: its end is missing")
        return bytes(self._body)

    def _hold(self, data: bytes) -> None:
        if len(self._body) + len(data) > self._most:
            raise TooLargeError(f"more than {self._most} bytes once unpacked")
        self._body += data


def lines_of(body: bytes) -> list[bytes]:
    """Return the records of a body as lines without newlines.

    If the body is a JSON array, each element is a record. Any other single JSON value is one record, even if
    it spans several lines. Any other text is NDJSON: each line that is not blank is a record, valid or not.

    Raises
    ------
    TooLargeError
        The body has more than `MOST_ROWS` records.

    Examples
    --------
    >>> lines_of(b'[{"id":\\n1}, {"id": 2}]'), lines_of(b'{"id": 1}\\n\\n{"id": 2}\\n')
    ([b'{"id": 1}', b'{"id": 2}'], [b'{"id": 1}', b'{"id": 2}'])
    """
    body = body.strip(_SPACE)
    while body.startswith(_BYTE_ORDER_MARK):  # a decoder drops it only at the start of a feed
        body = body[len(_BYTE_ORDER_MARK) :].strip(_SPACE)
    if not body:
        return []
    records: list[bytes] | None
    if _is_one_value(body):
        # In valid JSON a newline can only stand between tokens, where it means the same as a space.
        records = [bytes(each) for each in _ELEMENTS.decode(body)] if body.startswith(b"[") else [body]
    else:
        records = lenient_elements(body) if body.startswith(b"[") else None
    if records is not None:
        lines = [line.replace(b"\n", b" ") if b"\n" in line else line for line in records]
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
    """Return whether headers other than the content type define the format of the body.

    A CloudEvent in binary mode and a response with binary tensors have such headers. For them the content
    type does not matter. KServe's logger sends a response with the content type of the request, and curl's
    default content type is that of a form. Accepting any content type is safe here: before a page of another
    site can send these headers, its browser sends an OPTIONS request, which gets status 405.
    """
    return "ce-specversion" in headers or TENSORS_HEADER in headers


TYPES = frozenset({"application/cloudevents+json", "application/cloudevents-batch+json"})
"""The content types of CloudEvents in structured mode. They are accepted in addition to the content types of
records."""


def event_lines(headers: Mapping[str, str], body: bytes, wire: Wire, name: str | None = None) -> list[bytes]:
    """Return the events and records of a post as lines.

    Parameters
    ----------
    headers : mapping of str to str
        The headers, with names in lower case. With the header `ce-specversion`, the body is the data of one
        event, and the headers that begin with `ce-` are the event's attributes. Otherwise `lines_of` divides
        the body into events or records.
    body : bytes
    wire : Wire
        The reader of the records' format.
    name : str, optional
        The name in the path ``/v1/observe/<name>``; `wire` must then be an `ObservedWire` that has this name.

    Raises
    ------
    TooLargeError
        The body has more than `MOST_ROWS` records.

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
    whole = wire.convert_post(headers, body)
    return lines_of(body) if whole is None else [whole]

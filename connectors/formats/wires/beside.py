"""Adds the key, time and headers of a Kafka message to its records, as `$key`, `$timestamp`, `$headers`.

These fields are added to the JSON after the record's own fields, so that mappings read them like other fields
and rejected records show them.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from connectors.formats.wires.cloudevents import KEY, TIMESTAMP, Headers, is_json
from monitor.config.mapping import FieldPath

_ELEMENTS = msgspec.json.Decoder(list[msgspec.Raw])
_NO_TEXT = b'"\xff"'  # invalid UTF-8, which rejects the record for its encoding


def beside(headers: Headers, key: bytes | None, milliseconds: int) -> Headers:
    """Return the headers of a Kafka message, followed by its key and its time as two further headers.

    Examples
    --------
    >>> beside([("trace", b"t")], None, 1782907200500)
    [('trace', b't'), ('$key', None), ('$timestamp', b'1782907200500')]
    """
    return [*headers, (KEY, key), (TIMESTAMP, b"%d" % milliseconds)]


def with_fields(value: bytes, headers: Headers, wanted: Collection[FieldPath]) -> bytes:
    """Return the value of a message, with parts of its key, time and headers added to each record in it.

    A value without records stays unchanged.

    Parameters
    ----------
    value : bytes
        One record, an array of records, or a record on each line.
    headers : Headers
        The result of `beside`.
    wanted : collection of FieldPath
        The parsed paths of the fields to add.

    Examples
    --------
    >>> beside = [("trace", b"t"), ("$key", b"k"), ("$timestamp", b"1782907200500")]
    >>> with_fields(b'{"p": 0.5}', beside, [("$key",), ("$timestamp",)])
    b'{"p": 0.5,"$key":"k","$timestamp":1782907200.5}'
    >>> with_fields(b'[{}, {}]', beside, [("$headers", "trace")])
    b'[{"$headers":{"trace":"t"}},{"$headers":{"trace":"t"}}]'
    """
    held = dict(headers)  # the last of several headers with the same name counts
    named = [str(path[1]) for path in wanted if path[0] == "$headers"]
    fields = []
    if (KEY,) in wanted and (key := held.get(KEY)) is not None:
        fields.append(b'"$key":' + _text(key))
    if (TIMESTAMP,) in wanted and (milliseconds := int(held.get(TIMESTAMP) or b"-1")) >= 0:
        fields.append(b'"$timestamp":' + msgspec.json.encode(milliseconds / 1000))
    texts = [(name, text) for name in named if (text := held.get(name)) is not None]
    if texts:
        inner = b",".join(msgspec.json.encode(name) + b":" + _text(text) for name, text in texts)
        fields.append(b'"$headers":{' + inner + b"}")
    return _spliced(value.strip(), b",".join(fields) + b"}") if fields else value


def _text(data: bytes) -> bytes:
    try:
        return msgspec.json.encode(data.decode())
    except UnicodeDecodeError:
        return _NO_TEXT


def _spliced(value: bytes, fields: bytes) -> bytes:
    if value.startswith(b"["):
        try:
            return b"[" + b",".join(_spliced(bytes(each), fields) for each in _ELEMENTS.decode(value)) + b"]"
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return value
    if b"\n" in value and not is_json(value):
        return b"\n".join(_spliced(line.strip(), fields) for line in value.split(b"\n"))
    if not (value.startswith(b"{") and value.endswith(b"}")):
        return value
    own = value[:-1].rstrip()
    return own + (b"" if own == b"{" else b",") + fields

"""Converts CloudEvents in the binary mode of HTTP and Kafka to structured JSON.

In binary mode, the attributes of an event are headers, and its data is the body or the value. The conversion
follows the JSON event format and the protocol bindings of CloudEvents 1.0. The headers of attributes have the
prefix ``ce-`` in HTTP and ``ce_`` in Kafka.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from urllib.parse import unquote

import msgspec

Headers = Sequence[tuple[str, bytes | None]]
"""The headers of a Kafka message in their order, followed by its key and time."""

KEY, TIMESTAMP = "$key", "$timestamp"
"""The names of the headers that hold the message's key and its time in milliseconds. The time is -1 if the
message has none."""

_HTTP, _KAFKA = "ce-", "ce_"
_CONTENT_TYPE = "content-type"
_SELDON = "io.seldon."
_ONE_VALUE = msgspec.json.Decoder(msgspec.Raw)


def event(attributes: Mapping[str, str], data: bytes, empty: bool = False) -> bytes:
    """Return an event as structured JSON on one line.

    Parameters
    ----------
    attributes : mapping of str to str
        The attributes by name, without a prefix.
    data : bytes
        The data of the event. JSON becomes the field `data`, and other bytes become `data_base64`.
    empty : bool
        True to omit the data.

    Examples
    --------
    >>> event({"id": "a"}, b'{"p":\\n0.5}'), event({"id": "a"}, b"\\x00")
    (b'{"id":"a","data":{"p": 0.5}}', b'{"id":"a","data_base64":"AA=="}')
    """
    head = msgspec.json.encode(attributes)
    if empty or not data:
        return head
    comma = b"," if attributes else b""
    if is_json(data):
        # In valid JSON a newline occurs only between tokens, where a space is equivalent.
        return head[:-1] + comma + b'"data":' + data.strip().replace(b"\n", b" ") + b"}"
    return head[:-1] + comma + b'"data_base64":"' + base64.b64encode(data) + b'"}'


def http_attributes(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the attributes of an event in HTTP's binary mode, or {} if the headers belong to no event.

    Parameters
    ----------
    headers : mapping of str to str
        The values by name in lower case.

    Examples
    --------
    >>> http_attributes({"ce-specversion": "1.0", "ce-id": "%C3%BC", "host": "b"})
    {'specversion': '1.0', 'id': 'ü'}
    """
    if f"{_HTTP}specversion" not in headers:
        return {}
    # The HTTP binding percent-encodes characters other than ASCII.
    return {
        name.removeprefix(_HTTP): unquote(value)
        for name, value in headers.items()
        if name.startswith(_HTTP) and name not in (f"{_HTTP}data", f"{_HTTP}data_base64")
    }


def kafka_attributes(headers: Headers) -> dict[str, str]:
    """Return the attributes of an event in Kafka's binary mode, or {} if the headers belong to no event.

    Seldon Core's logger omits the prefix and the attribute `specversion`. Its events are recognised by a
    header `type` that begins with ``io.seldon.``.

    Examples
    --------
    >>> kafka_attributes([("ce_specversion", b"1.0"), ("ce_id", b"a"), ("content-type", b"text/plain")])
    {'specversion': '1.0', 'id': 'a', 'datacontenttype': 'text/plain'}
    >>> kafka_attributes([("content-type", b"application/cloudevents+json; charset=UTF-8")])
    {}
    """
    pairs = ((name, value) for name, value in headers if value is not None and name not in (KEY, TIMESTAMP))
    named = {name.lower(): value.decode("utf-8", "replace") for name, value in pairs}
    content_type = named.get(_CONTENT_TYPE, "")
    if content_type.lower().startswith("application/cloudevents"):
        return {}  # structured mode may repeat the attributes in headers
    if f"{_KAFKA}specversion" in named:
        attributes = {
            name.removeprefix(_KAFKA): value for name, value in named.items() if name.startswith(_KAFKA)
        }
    elif named.get("type", "").startswith(_SELDON):
        attributes = {"specversion": "1.0", **named}
        attributes.pop(_CONTENT_TYPE, None)
    else:
        return {}
    attributes.pop("data", None)
    attributes.pop("data_base64", None)
    return {**attributes, "datacontenttype": content_type} if content_type else attributes


def is_json(data: bytes) -> bool:
    """Return whether these bytes are one JSON value."""
    try:
        _ONE_VALUE.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    return True

"""CloudEvents in binary mode, of HTTP or of Kafka, made structured JSON: one way to read both modes.

CloudEvents 1.0: the JSON event format, and the bindings of HTTP (attributes are headers that begin with
``ce-``) and of Kafka (``ce_``).
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from urllib.parse import unquote

import msgspec

Headers = Sequence[tuple[str, bytes | None]]
"""The headers of a Kafka message, in their order; behind them its key and its time."""

KEY, TIMESTAMP = "$key", "$timestamp"
"""The names of these two, the second in milliseconds; -1 where the message has none."""

_HTTP, _KAFKA = "ce-", "ce_"
_CONTENT_TYPE = "content-type"
_SELDON = "io.seldon."
_ONE_VALUE = msgspec.json.Decoder(msgspec.Raw)


def event(attributes: Mapping[str, str], data: bytes, empty: bool = False) -> bytes:
    """An event as structured JSON on one line.

    Parameters
    ----------
    attributes : mapping of str to str
        Without a prefix.
    data : bytes
        JSON becomes `data`, anything else `data_base64`.
    empty : bool
        Leave the data out.

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
        # Between the tokens of valid JSON a newline means no more than a space, and inside it cannot be.
        return head[:-1] + comma + b'"data":' + data.strip().replace(b"\n", b" ") + b"}"
    return head[:-1] + comma + b'"data_base64":"' + base64.b64encode(data) + b'"}'


def http_attributes(headers: Mapping[str, str]) -> dict[str, str]:
    """The attributes of an event in HTTP binary mode; empty where the headers are of none.

    Parameters
    ----------
    headers : mapping of str to str
        Names in lower case.

    Examples
    --------
    >>> http_attributes({"ce-specversion": "1.0", "ce-id": "%C3%BC", "host": "b"})
    {'specversion': '1.0', 'id': 'ü'}
    """
    if f"{_HTTP}specversion" not in headers:
        return {}
    # Of the HTTP binding: what is not plain ASCII is percent-encoded in a header.
    return {
        name.removeprefix(_HTTP): unquote(value)
        for name, value in headers.items()
        if name.startswith(_HTTP) and name not in (f"{_HTTP}data", f"{_HTTP}data_base64")
    }


def kafka_attributes(headers: Headers) -> dict[str, str]:
    """The attributes of an event in Kafka's binary mode; empty where the headers are of none.

    Seldon Core's logger writes the attributes of its events without the prefix, and without a version of
    the specification: a header `type` that begins with ``io.seldon.`` tells them.

    Examples
    --------
    >>> kafka_attributes([("ce_specversion", b"1.0"), ("ce_id", b"a"), ("content-type", b"text/plain")])
    {'specversion': '1.0', 'id': 'a', 'datacontenttype': 'text/plain'}
    >>> kafka_attributes([("content-type", b"application/cloudevents+json; charset=UTF-8")])
    {}
    """
    given = ((name, value) for name, value in headers if value is not None and name not in (KEY, TIMESTAMP))
    named = {name.lower(): value.decode("utf-8", "replace") for name, value in given}
    content_type = named.get(_CONTENT_TYPE, "")
    if content_type.lower().startswith("application/cloudevents"):
        return {}  # structured mode may repeat the attributes in headers
    if f"{_KAFKA}specversion" in named:
        found = {name.removeprefix(_KAFKA): value for name, value in named.items() if name.startswith(_KAFKA)}
    elif named.get("type", "").startswith(_SELDON):
        found = {"specversion": "1.0", **named}
        found.pop(_CONTENT_TYPE, None)
    else:
        return {}
    found.pop("data", None)
    found.pop("data_base64", None)
    return {**found, "datacontenttype": content_type} if content_type else found


def is_json(data: bytes) -> bool:
    """Whether these bytes are one JSON value."""
    try:
        _ONE_VALUE.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    return True

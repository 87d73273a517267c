"""CloudEvents in posts: HTTP binary mode made structured JSON, and events without answers left out."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import unquote

import msgspec

from connectors.formats.kserve import passed_over
from connectors.http.body import BadBodyError, lines_of

_PREFIX = "ce-"
_ONE_VALUE = msgspec.json.Decoder(msgspec.Raw)


def is_binary(headers: Mapping[str, str]) -> bool:
    """Whether the body of a post is the data of one event, whatever its content type.

    KServe's logger gives a response the content type of the request, which curl calls a form.
    """
    return f"{_PREFIX}specversion" in headers


TYPES = frozenset({"application/cloudevents+json", "application/cloudevents-batch+json"})
"""Content types of events in structured mode, beside those of records."""


def event_lines(headers: Mapping[str, str], body: bytes) -> tuple[list[bytes], int]:
    """The events of a post, a line each, and how many others were passed over.

    Parameters
    ----------
    headers : mapping of str to str
        Names in lower case. With `ce-specversion` the body is the data of one event, whose attributes are
        the headers that begin with `ce-`; else it holds events or records, as `lines_of` cuts them.
    body : bytes

    Raises
    ------
    BadBodyError
        The data of a response is no JSON.
    TooLargeError
        There are more than `MOST_ROWS`.

    Examples
    --------
    >>> kind = "org.kubeflow.serving.inference."
    >>> head = {"ce-specversion": "1.0", "ce-id": "a"}
    >>> event_lines(head | {"ce-type": kind + "response"}, b'{"predictions":\\n[0.5]}')[0][0][-31:]
    b',"data":{"predictions": [0.5]}}'
    >>> event_lines(head | {"ce-type": kind + "request"}, b'{"instances": [[1, 2]]}')
    ([], 1)
    """
    lines = [_structured(headers, body)] if is_binary(headers) else lines_of(body)
    kept = [line for line in lines if not passed_over(line)]
    return kept, len(lines) - len(kept)


def _structured(headers: Mapping[str, str], body: bytes) -> bytes:
    # Of the CloudEvents' HTTP binding: what is not plain ASCII is percent-encoded in a header.
    attributes = {
        name.removeprefix(_PREFIX): unquote(value)
        for name, value in headers.items()
        if name.startswith(_PREFIX) and name != f"{_PREFIX}data"
    }
    head = msgspec.json.encode(attributes)
    if passed_over(head):  # its data may be anything
        return head
    try:
        _ONE_VALUE.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        message = (
            "the data of an inference response is not JSON, and binary tensors and protobuf are not read"
        )
        raise BadBodyError(message) from None
    # Between the tokens of valid JSON a newline means no more than a space, and inside them it cannot be.
    return head[:-1] + b',"data":' + body.replace(b"\n", b" ") + b"}"

"""CloudEvents in posts: HTTP binary mode made structured JSON, and events without answers left out."""

from __future__ import annotations

from collections.abc import Mapping

from connectors.formats.wires.kserve import TENSORS_HEADER
from connectors.formats.wires.wire import Wire
from connectors.http.body import lines_of


def is_binary(headers: Mapping[str, str]) -> bool:
    """Whether the body of a post is one value as its headers say, whatever its content type.

    KServe's logger gives a response the content type of the request, which curl calls a form.
    """
    return "ce-specversion" in headers or TENSORS_HEADER in headers


TYPES = frozenset({"application/cloudevents+json", "application/cloudevents-batch+json"})
"""Content types of events in structured mode, beside those of records."""


def event_lines(headers: Mapping[str, str], body: bytes, wire: Wire) -> tuple[list[bytes], int]:
    """The events of a post, a line each, and how many others were passed over.

    Parameters
    ----------
    headers : mapping of str to str
        Names in lower case. With `ce-specversion` the body is the data of one event, whose attributes are
        the headers that begin with `ce-`; else it holds events or records, as `lines_of` cuts them.
    body : bytes
    wire : Wire
        How they are written.

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
    >>> event_lines(head | {"ce-type": kind + "response"}, b'{"predictions":\\n[0.5]}', wire)[0][0][-31:]
    b',"data":{"predictions": [0.5]}}'
    >>> event_lines(head | {"ce-type": kind + "request"}, b'{"instances": [[1, 2]]}', wire)
    ([], 1)
    """
    whole = wire.posted(headers, body)
    lines = lines_of(body) if whole is None else [whole]
    kept = [line for line in lines if not wire.passes_over(line)]
    return kept, len(lines) - len(kept)

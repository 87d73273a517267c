"""Reads the logs of the serving stacks KServe and Seldon Core.

Their loggers send a CloudEvent for each request and for each response. A response has a batch of rows. An
event is structured JSON, or it is in binary mode, with its attributes in headers
(`connectors.formats.wires.cloudevents`). A response may also be sent without an event. The formats are
CloudEvents 1.0 (cloudevents.io), KServe's protocol v1, the Open Inference Protocol and Seldon's protocol.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from connectors.formats.decode.structs import Fault, Record
from connectors.formats.messages.wording import shown
from connectors.formats.wires.cloudevents import Headers, event, http_attributes, is_json, kafka_attributes
from connectors.formats.wires.responses import ResponseWire, row_values
from connectors.formats.wires.tensors import read_body
from connectors.formats.wires.wire import ERRORS, Outcome
from monitor.base.records import RejectReason
from monitor.config.mapping import FieldMapping

RESPONSE = "org.kubeflow.serving.inference.response"
"""The type of KServe's events with answers."""

SELDON_RESPONSE = "io.seldon.serving.inference.response"
"""The type of the events of Seldon Core and MLServer with answers."""

RESPONSES = frozenset({RESPONSE, SELDON_RESPONSE})

TENSORS_HEADER = "inference-header-content-length"
"""The header of a post with binary tensors after its JSON."""

_BARE = ("predictions", "outputs")  # fields of a response without an event
_OF_LOGGERS = ("org.kubeflow.serving.", "io.seldon.serving.")
_ANSWERS_ALONE = frozenset({"requestPath", "metrics"})  # keys that Seldon's `meta` has in responses only
_SAY = "if they are answers, say so with mapping.format: kserve, or post them to /v1/observe/kserve"


class _Head(msgspec.Struct, gc=False):
    """The fields that distinguish an event from a record, and a response from other events."""

    specversion: str | None = None
    type: str | None = None


_HEAD = msgspec.json.Decoder(_Head)


def passed_over(data: bytes) -> bool:
    """Return whether these bytes are an event without answers, such as the event of a request.

    Examples
    --------
    >>> passed_over(b'{"specversion": "1.0", "type": "org.kubeflow.serving.inference.request"}')
    True
    >>> passed_over(b'{"id": "a:0", "label": "toxic"}')
    False
    """
    try:
        head = _HEAD.decode(data)
    except ERRORS:
        return False
    return head.specversion is not None and head.type is not None and head.type not in RESPONSES


class KserveWire(ResponseWire):
    """A reader of the events of KServe's and Seldon's loggers. Each row of a response becomes an answer.

    The id of an answer is the id of the event (for Seldon: of the request), a colon, and the row number,
    which starts at 0. The model is the mapping's constant `model`, if it is set. Otherwise it is the event's
    `inferenceservicename` (for Seldon: `modelid`), or else the body's `model_name`.

    A value without `specversion` is not an event. If such a value has `outputs` or `predictions`, it is a
    response with its own `id`. Otherwise it is a record in Blindsight's own format, such as a label.

    Parameters
    ----------
    mapping : FieldMapping
        A mapping whose `constants` override values of events. With `id: body`, the ids of answers are made
        from the id in the response instead of the id of the event. A client may choose the id in the
        response. The rows of a response without an id then have no ids.

    Examples
    --------
    >>> wire = KserveWire(FieldMapping(format="kserve"))
    >>> event = {"specversion": "1.0", "type": RESPONSE, "id": "e", "inferenceservicename": "erm"}
    >>> outcomes = wire.read(msgspec.json.encode(event | {"data": {"predictions": [[0.1, 0.9], [0.8, 0.2]]}}))
    >>> [(record.id, record.model, record.scores) for _, record in outcomes]
    [('e:0', 'erm', [0.1, 0.9]), ('e:1', 'erm', [0.8, 0.2])]
    """

    def __init__(self, mapping: FieldMapping) -> None:
        super().__init__(mapping)
        self._by_body = mapping.id == "body"

    def read(self, data: bytes) -> list[Outcome]:
        """Return an outcome for each row of a response. The outcome of any other event is None."""
        return [(data, None)] if passed_over(data) else super().read(data)

    def _rows_of(self, value: Mapping[str, Any]) -> Sequence[Record | Fault | None] | None:
        """Return an outcome for each row of a response."""
        if "specversion" in value:
            return self._rows_of_event(value)
        if any(isinstance(value.get(name), list) for name in _BARE):
            return self._rows(value, "$", value.get("id"), {})
        is_seldon = isinstance(value.get("data"), dict) and "meta" in value
        return self._rows_of_seldon(value) if is_seldon else None

    def doubt(self, fields: Mapping[str, msgspec.Raw]) -> str:
        """Return a message if a record that looks like this format may have another format, otherwise "".

        Parameters
        ----------
        fields : mapping of str to Raw
            The undecoded fields of the record.
        """
        marks = [name for name in ("specversion", *_BARE, "data") if name in fields]
        if marks[:1] == ["specversion"]:
            kind = _text(fields.get("type"))
            if kind.startswith(_OF_LOGGERS):
                return ""
            return (
                f"$.type: an event of the type {shown(kind)} is of no logger known here: read it with "
                "mapping.format: cloudevents, and paths to its fields"
            )
        if len(marks) > 1 and marks != ["outputs", "data"][-len(marks) :]:
            return f"$: {' and '.join(marks)} stand beside each other, and each may be the answers: {_SAY}"
        if marks == ["data"] and not _is_answer(fields["meta"]):
            return (
                "$.meta: a request of Seldon has data too, and only the answer's meta has requestPath or "
                f"metrics: {_SAY}"
            )
        return ""

    def convert_message(self, value: bytes, headers: Headers) -> bytes:
        """Return a Kafka message as one JSON value that `read` accepts.

        For an event in binary mode, the attributes in the headers are added to the value. Binary tensors and
        protobuf are converted. All other messages are returned unchanged.

        Parameters
        ----------
        value : bytes
            The value of the message.
        headers : Headers
            The headers of the message.
        """
        attributes = kafka_attributes(headers)
        return _line(attributes, value) if attributes else _unpacked(value)

    def convert_post(self, headers: Mapping[str, str], body: bytes) -> bytes | None:
        """Return the body of an HTTP request as one line of JSON, or None if the body needs no conversion.

        Two kinds of body are converted: an event in binary mode, with its attributes in the headers, and a
        response of the Open Inference Protocol with binary tensors.

        Parameters
        ----------
        headers : mapping of str to str
            The headers of the request.
        body : bytes
        """
        attributes = http_attributes(headers)
        if attributes:
            return _line(attributes, body)
        return _unpacked(body).replace(b"\n", b" ") if TENSORS_HEADER in headers else None

    def hint(self, fault: Fault, data: bytes | None) -> str:
        """Return a clause that explains where an event names the model, or "" for another fault.

        Examples
        --------
        >>> fault = (RejectReason.NO_MODEL, "$.model: missing")
        >>> KserveWire(FieldMapping(format="kserve")).hint(fault, b"{}")
        '; an event gives it as inferenceservicename: let it, or name it in mapping.constants.model'
        """
        if fault[0] is not RejectReason.NO_MODEL:
            return ""
        return "; an event gives it as inferenceservicename: let it, or name it in mapping.constants.model"

    def _rows_of_event(self, event: Mapping[str, Any]) -> list[Record | Fault]:
        kind = event.get("type")
        if not isinstance(kind, str) or kind not in RESPONSES:
            message = f"$.type: expected the type of an event, such as {RESPONSE}; KServe's logger gives it"
            return [(RejectReason.WRONG_TYPE, message)]
        body = _body(event)
        # Each event of Seldon has its own id, and also names its request.
        id_ = event.get("requestid") or event.get("id")
        if self._by_body:
            id_ = body.get("id") if isinstance(body, dict) else None
        elif not isinstance(id_, str) or not id_:
            message = (
                "$.id: expected the text of an event's id, by which labels are joined; give every event one"
            )
            return [(RejectReason.BAD_ID, message)]
        if isinstance(body, tuple):
            return [body]
        model = event.get("inferenceservicename")
        if kind == SELDON_RESPONSE:  # inferenceservicename is the deployment, which may have several models
            model = event.get("modelid") or model
        return self._rows(body, "$.data", id_, {"time": event.get("time"), "model": model or None})

    def _rows_of_seldon(self, body: Mapping[str, Any]) -> list[Record | Fault]:
        """Return the rows of a response of Seldon without an event.

        Its `meta` has the id of the request, and the nodes that the request passed.
        """
        meta = body["meta"] if isinstance(body["meta"], dict) else {}
        nodes = meta.get("requestPath")
        model = next(iter(nodes)) if isinstance(nodes, dict) and len(nodes) == 1 else None
        return self._rows(body, "$", meta.get("puid"), {"model": model})

    def _rows(
        self, body: Mapping[str, Any], place: str, id_: object, of_event: Mapping[str, object]
    ) -> list[Record | Fault]:
        """Return an answer for each row of a response; values of the event replace those of the body."""
        shared = {
            "model": body.get("model_name"),
            "version": body.get("model_version"),
            **{name: value for name, value in of_event.items() if value is not None},
            **self._constants,
        }
        return self._answers(lambda numeric: row_values(body, place, numeric), id_, shared)


def _line(attributes: Mapping[str, str], data: bytes) -> bytes:
    """Return an event in binary mode as JSON, without data if it holds no answer."""
    return event(attributes, data, empty=attributes.get("type") not in RESPONSES)


def _body(event: Mapping[str, Any]) -> dict[str, Any] | Fault:
    body = event.get("data")
    if isinstance(body, dict):
        return body
    place = "$.data_base64" if "data_base64" in event else "$.data"
    try:
        if isinstance(body, str):  # some brokers store a body of an unknown content type as text
            return read_body(body.encode("utf-8", "replace"))
        return read_body(base64.b64decode(event.get("data_base64") or "", validate=True))
    except (ValueError, TypeError, RecursionError) as error:
        return RejectReason.WRONG_TYPE, (
            f"{place}: expected a response as JSON, as JSON with binary tensors behind it, or as protobuf's "
            f"ModelInferResponse, but it {error}"
        )


def _unpacked(value: bytes) -> bytes:
    """Return a response with binary tensors or in protobuf as JSON, and other bytes unchanged."""
    if not value or is_json(value):
        return value
    try:
        return msgspec.json.encode(read_body(value))
    except (ValueError, RecursionError):
        return value


def _text(field: msgspec.Raw | None) -> str:
    value = None if field is None else _decoded(field)
    return value if isinstance(value, str) else ""


def _is_answer(meta: msgspec.Raw) -> bool:
    value = _decoded(meta)
    return isinstance(value, dict) and not _ANSWERS_ALONE.isdisjoint(value)


def _decoded(field: msgspec.Raw) -> object:
    try:
        return msgspec.json.decode(field)
    except ERRORS:
        return None

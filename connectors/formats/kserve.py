"""What KServe's logger writes: a CloudEvent a request and one a response, each a batch of rows.

An event in structured JSON is read as it is; one in HTTP binary mode is made one first
(`connectors.http.events`). CloudEvents 1.0 (cloudevents.io), the protocols v1 and Open Inference Protocol.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import msgspec

from connectors.formats.explain import explain_text, explain_value
from connectors.formats.structs import Fault, Record
from connectors.formats.wire import ERRORS, PLAIN, Outcome
from connectors.formats.wording import listing
from monitor.config_mapping import FieldMapping
from monitor.records import RejectReason

RESPONSE = "org.kubeflow.serving.inference.response"
"""The type of the one event that holds answers."""

_PROBABILITIES = ("FP32", "FP64")


class _Head(msgspec.Struct, gc=False):
    """What tells an event from a record, and a response from all else."""

    specversion: str | None = None
    type: str | None = None


_HEAD = msgspec.json.Decoder(_Head)


def passed_over(data: bytes) -> bool:
    """Whether these bytes are an event of another type than a response: it holds no answer.

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
    return head.specversion is not None and head.type is not None and head.type != RESPONSE


class KserveWire:
    """Reads the events of KServe's logger: of a response one record a row, of any other event none.

    A row's id is that of the event, a colon, and its number from 0. The model is the event's
    `inferenceservicename`, or else the body's `model_name`; constants come before both. What has no
    `specversion` is no event, and a record under our names: so labels can come the same way.

    Parameters
    ----------
    mapping : FieldMapping
        Its `constants` say what stands in no event.

    Examples
    --------
    >>> wire = KserveWire(FieldMapping(format="kserve"))
    >>> event = {"specversion": "1.0", "type": RESPONSE, "id": "e", "inferenceservicename": "erm"}
    >>> found = wire.one(msgspec.json.encode(event | {"data": {"predictions": [[0.1, 0.9], [0.8, 0.2]]}}))
    >>> [(record.id, record.model, record.scores) for _, record in found]
    [('e:0', 'erm', [0.1, 0.9]), ('e:1', 'erm', [0.8, 0.2])]
    """

    def __init__(self, mapping: FieldMapping) -> None:
        constants = mapping.constants.model_dump()
        self._constants = {name: value for name, value in constants.items() if value is not None}

    def lines(self, data: bytes) -> list[Record] | None:
        """None: an event is as many records as it has rows."""
        return None

    def array(self, data: bytes) -> list[Record] | None:
        """None, as of `lines`."""
        return None

    def one(self, data: bytes) -> list[Outcome]:
        """A record a row of a response, the fault of what cannot be read; nothing of other events."""
        if passed_over(data):
            return []
        try:
            event = json.loads(data)
        except (ValueError, RecursionError) as error:
            return [(data, explain_text(data, error))]
        if not isinstance(event, dict) or "specversion" not in event:
            return PLAIN.one(data)
        return [(data, outcome) for outcome in self._rows(event)]

    def missing(self, fault: Fault) -> str:
        """The clause about where a missing name is looked for.

        Examples
        --------
        >>> KserveWire(FieldMapping(format="kserve")).missing((RejectReason.NO_MODEL, "$.model: missing"))
        '; an event gives it as inferenceservicename: let it, or name it in mapping.constants.model'
        """
        if fault[0] is not RejectReason.NO_MODEL:
            return ""
        return "; an event gives it as inferenceservicename: let it, or name it in mapping.constants.model"

    def _rows(self, event: Mapping[str, Any]) -> list[Record | Fault]:
        if event.get("type") != RESPONSE:
            message = f"$.type: expected the type of an event, such as {RESPONSE}; KServe's logger gives it"
            return [(RejectReason.WRONG_TYPE, message)]
        if not isinstance(event.get("id"), str) or not event["id"]:
            message = (
                "$.id: expected the text of an event's id, by which labels are joined; give every event one"
            )
            return [(RejectReason.BAD_ID, message)]
        body = _body(event)
        scores = body if isinstance(body, tuple) else _scores(body)
        if isinstance(scores, tuple):
            return [scores]
        shared = {
            "time": event.get("time"),
            "model": event.get("inferenceservicename") or _named(body, "model_name"),
            "version": _named(body, "model_version"),
            **self._constants,
        }
        return [_record(shared, f"{event['id']}:{row}", each) for row, each in enumerate(scores)]


def _body(event: Mapping[str, Any]) -> dict[str, Any] | Fault:
    body = event.get("data")
    if isinstance(body, str):  # what a broker makes of a body whose content type it does not know as JSON
        try:
            body = json.loads(body)
        except (ValueError, RecursionError):
            body = None
    if isinstance(body, dict):
        return body
    place = "$.data_base64" if "data_base64" in event else "$.data"
    return (
        RejectReason.WRONG_TYPE,
        f"{place}: expected a JSON object with predictions or outputs; binary tensors and protobuf are not "
        "read: let clients ask for JSON",
    )


def _named(body: object, name: str) -> object:
    return body.get(name) if isinstance(body, dict) else None


def _scores(body: Mapping[str, Any]) -> list[Any] | Fault:
    """The scores of each row, or why there are none."""
    predictions, outputs = body.get("predictions"), body.get("outputs")
    if isinstance(predictions, list):
        return _whole(predictions, "$.data.predictions")
    if isinstance(outputs, list):
        return _of_outputs(outputs)
    return (
        RejectReason.NO_SCORES,
        "$.data: expected an array of predictions (protocol v1) or of outputs (Open Inference Protocol), got "
        f"{'only ' + listing(tuple(body)) if body else 'an empty object'}",
    )


def _whole(rows: list[Any], place: str) -> list[Any] | Fault:
    """Rows as the decoder takes them; a list of one is the second class's probability."""
    if rows and all(isinstance(row, int) for row in rows):
        message = f"{place}: expected probabilities, got whole numbers only, which are classes"
        return RejectReason.NO_SCORES, f"{message}: let the server answer predict_proba"
    return [row[0] if isinstance(row, list) and len(row) == 1 else row for row in rows]


def _of_outputs(outputs: Sequence[Any]) -> list[Any] | Fault:
    place = "$.data.outputs"
    named = [each for each in outputs if isinstance(each, dict)]
    found = [each for each in named if each.get("datatype") in _PROBABILITIES]
    if len(found) != 1:
        names = listing([str(each.get("name")) for each in found])
        return (
            RejectReason.NO_SCORES,
            f"{place}: expected one output of FP32 or FP64, the probabilities, got "
            f"{f'{len(found)}: {names}' if found else 'none'}; have the client ask for that output as JSON",
        )
    return _cut(found[0].get("data"), found[0].get("shape"), place)


def _cut(data: Any, shape: Any, place: str) -> list[Any] | Fault:
    """Data as the shape says: nested, or flat row-major."""
    known = isinstance(shape, list) and all(isinstance(size, int) and size >= 0 for size in shape)
    if not known or len(shape) not in (1, 2) or 0 in shape[1:]:
        message = "expected the shape [rows] or [rows, classes] of the probabilities, got another"
        return RejectReason.WRONG_LENGTH, f"{place}: {message}"
    if not isinstance(data, list):
        message = "expected the data of the probabilities as an array; binary tensors are not read"
        return RejectReason.NO_SCORES, f"{place}: {message}: let clients ask for JSON"
    flat = (
        [each for row in data for each in row]
        if data and isinstance(data[0], list) and _lists(data)
        else data
    )
    if len(flat) != prod(shape):
        message = f"expected {prod(shape)} numbers, as the shape says, got {len(flat)}"
        return RejectReason.WRONG_LENGTH, f"{place}: {message}"
    if len(shape) == 1 or shape[1] == 1:
        return flat
    return [flat[start : start + shape[1]] for start in range(0, len(flat), shape[1])]


def _lists(data: list[Any]) -> bool:
    return all(isinstance(row, list) for row in data)


def _record(shared: Mapping[str, Any], id_: str, scores: object) -> Record | Fault:
    value = {name: each for name, each in shared.items() if each is not None} | {"id": id_, "scores": scores}
    try:
        return msgspec.convert(value, Record)
    except (msgspec.ValidationError, RecursionError) as error:
        return explain_value(value) or (RejectReason.WRONG_TYPE, f"$: {error}")

"""Reads SageMaker's data capture files and ground truth labels.

A data capture file has a line for each request, with its input and output as text or base64
(model-monitor-data-capture-endpoint.html). SageMaker's model quality monitor merges ground truth labels with
these files (model-monitor-model-quality-merge.html).
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from typing import Any

from connectors.formats.decode.structs import Fault, Record
from connectors.formats.messages.explain import text_fault
from connectors.formats.messages.wording import shown
from connectors.formats.wires.responses import ResponseWire, row_values
from connectors.formats.wires.tensors import read_body
from monitor.base.records import RejectReason

_OUTPUT = "$.captureData.endpointOutput.data"
_SUM_TOLERANCE = 1e-3


class SagemakerWire(ResponseWire):
    """A reader of SageMaker's data capture and of ground truth labels.

    Each row of a request becomes an answer.

    A line of data capture has the input and the output of a request. A line without an output holds no
    answer. The id of an answer is the id of the request, a colon, and the row number, which starts at 0. The
    id of the request is the `inferenceId`, if the client has set it, or else the `eventId`. Other lines are
    records in Blindsight's own format.

    Parameters
    ----------
    mapping : FieldMapping
        A mapping whose `constants` name the model, because data capture does not name it.

    Examples
    --------
    >>> from monitor.config.mapping import FieldMapping
    >>> wire = SagemakerWire(FieldMapping(format="sagemaker", constants={"model": "erm"}))
    >>> output = {"observedContentType": "text/csv", "mode": "OUTPUT", "data": "0.12,0.88", "encoding": "CSV"}
    >>> line = {"captureData": {"endpointOutput": output}, "eventMetadata": {"eventId": "e"}}
    >>> [(record.id, record.scores) for _, record in wire.read(json.dumps(line).encode())]
    [('e:0', [0.12, 0.88])]
    """

    def _rows_of(self, value: Mapping[str, Any]) -> Sequence[Record | Fault | None] | None:
        """Return an outcome for each row of an output or for a label; None for a capture without output."""
        about = value.get("eventMetadata")
        about = about if isinstance(about, dict) else {}
        if isinstance(truth := value.get("groundTruthData"), dict):
            return [self._label(truth, about)]
        if not isinstance(captured := value.get("captureData"), dict):
            return None
        output = captured.get("endpointOutput")
        return [None] if output is None else self._rows(output, captured.get("endpointInput"), about)

    def hint(self, fault: Fault, data: bytes | None) -> str:
        """Return a clause that explains a missing model, or "" for another fault."""
        if fault[0] is not RejectReason.NO_MODEL:
            return ""
        return "; a capture does not name the model: name it in mapping.constants.model"

    def _label(self, truth: Mapping[str, Any], about: Mapping[str, Any]) -> Record | Fault:
        label, id_ = truth.get("data"), about.get("eventId")
        if not isinstance(label, str) or not isinstance(id_, str):
            message = "$: expected groundTruthData.data and eventMetadata.eventId as text, of ground truth"
            return RejectReason.WRONG_TYPE, message
        task = self._constants.get("task")
        fault = text_fault({"id": id_, "label": label})
        return fault or Record(id=id_, label=label.strip(), task=task)

    def _rows(self, output: Any, captured_input: Any, about: Mapping[str, Any]) -> list[Record | Fault]:
        def read(numeric: bool) -> list[Any] | Fault:
            if not isinstance(output, dict):
                return _not_read("no object", numeric)
            return _values(output, captured_input, numeric)

        shared = {"time": about.get("inferenceTime"), **self._constants}
        return self._answers(read, about.get("inferenceId") or about.get("eventId"), shared)


def _values(output: Mapping[str, Any], captured_input: Any, numeric: bool) -> list[Any] | Fault:
    """Return the scores or the number of each row of the output of an endpoint, or the fault."""
    data, encoding = output.get("data"), output.get("encoding")
    kind = str(output.get("observedContentType", "")).partition(";")[0].strip().lower()
    if not isinstance(data, str):
        return _not_read(shown(data), numeric)
    if encoding == "BASE64":
        try:
            content = base64.b64decode(data, validate=True)
            if kind not in ("text/csv", "application/json"):
                return row_values(read_body(content), _OUTPUT, numeric)
            data = content.decode()
        except (ValueError, RecursionError, binascii.Error):
            return _not_read("base64 of something else", numeric)
    if encoding == "CSV" or (encoding == "BASE64" and kind == "text/csv"):
        return _read_csv(data, _inputs(captured_input), numeric)
    return _read_json(data, _inputs(captured_input), numeric)


def _read_json(data: str, inputs: int | None, numeric: bool) -> list[Any] | Fault:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return _not_read("text that is no JSON", numeric)
    if isinstance(value, list):
        numbers = all(isinstance(each, int | float) for each in value)
        return _one_or_many(value, inputs, numeric) if numbers else [_alone(each) for each in value]
    if not isinstance(value, dict):
        return _not_read(shown(value), numeric)
    if isinstance(rows := value.get("predictions"), list):
        # The built-in algorithms return {"score": …, "predicted_label": …}.
        scores = [each["score"] if isinstance(each, dict) and "score" in each else each for each in rows]
        value = {**value, "predictions": scores}
    return row_values(value, _OUTPUT, numeric)


def _read_csv(data: str, inputs: int | None, numeric: bool) -> list[Any] | Fault:
    try:
        rows = [[float(cell) for cell in line.split(",")] for line in data.split("\n") if line.strip()]
    except ValueError:
        return _not_read("CSV with a cell that is no number", numeric)
    if len(rows) == 1:
        return _one_or_many(rows[0], inputs, numeric)
    return list(map(_alone, rows))


def _alone(row: Any) -> Any:
    """Return the number in a list of one number, and any other value unchanged."""
    return row[0] if isinstance(row, list) and len(row) == 1 else row


def _one_or_many(numbers: list[Any], inputs: int | None, numeric: bool) -> list[Any] | Fault:
    """Return the values in a line of numbers: the classes of one row, or one number for each input row."""
    if len(numbers) == 1 or (numeric and inputs is None):
        return numbers
    if numeric and inputs != len(numbers):
        got = f"got {len(numbers)} numbers for {inputs} row{'' if inputs == 1 else 's'} of input"
        message = f"{_OUTPUT}: expected one number a row, the prediction, {got}: let the endpoint answer so"
        return RejectReason.WRONG_LENGTH, message
    if inputs == 1 or (inputs is None and abs(sum(numbers) - 1) <= _SUM_TOLERANCE):
        return [numbers]
    if inputs == len(numbers):
        return numbers
    rows = "an input that was not captured as CSV" if inputs is None else f"{inputs} rows of input"
    return (
        RejectReason.WRONG_LENGTH,
        f"{_OUTPUT}: {len(numbers)} numbers for {rows}: whether they are classes of a row or rows is not "
        "known; capture the input too, or answer a line for each row",
    )


def _inputs(captured_input: Any) -> int | None:
    """Return the number of rows of an input that was captured as CSV, or None."""
    if not isinstance(captured_input, dict) or captured_input.get("encoding") != "CSV":
        return None
    text = captured_input.get("data")
    return sum(1 for line in text.split("\n") if line.strip()) if isinstance(text, str) else None


def _not_read(got: str, numeric: bool) -> Fault:
    content = "a predicted number a row" if numeric else "probabilities"
    return (
        RejectReason.NO_SCORES,
        f"{_OUTPUT}: expected {content} as CSV, JSON or base64 of these or of tensors, got {got}",
    )

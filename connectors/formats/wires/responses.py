"""The base class of wires whose events have a model server's response, and the reader of a response's rows.

The body of a response follows KServe's protocol v1, the Open Inference Protocol, or Seldon's protocol.
"""

from __future__ import annotations

import json
import re
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from math import prod
from typing import Any, Self

import msgspec

from connectors.formats.decode.reread import CONVERSION, record_of
from connectors.formats.decode.structs import Fault, Record, RowRecord
from connectors.formats.messages.explain import explain_text, text_fault
from connectors.formats.messages.wording import listing, shown
from connectors.formats.wires.wire import PLAIN, Outcome, Wire
from monitor.base.records import RejectReason, TaskLayout
from monitor.config.mapping import FieldMapping

_FLOATS = ("FP16", "FP32", "FP64")
_INTEGERS = ("INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64")
_CLASSIFICATION = re.compile(r"([-+0-9.eE]+):(\d+)(?::(.*))?")


class ResponseWire(Wire):
    """The base class of wires whose events have a response. Each row of a response becomes a record.

    If there is one task and it lists one model, answers that name no model belong to this model. A value that
    is no such event is read as a record in Blindsight's own format. A subclass defines `_rows_of`.

    Parameters
    ----------
    mapping : FieldMapping
        A mapping whose `constants` override the fields of the format.
    """

    _layouts: Sequence[TaskLayout] = ()

    def __init__(self, mapping: FieldMapping) -> None:
        self._constants = constants_of(mapping)

    def for_tasks(self, layouts: Sequence[TaskLayout]) -> Self:
        """Return a reader with the same settings for these tasks."""
        wire = copy(self)
        wire._layouts = layouts
        return wire

    def read(self, data: bytes) -> list[Outcome]:
        """Read one value, and return an outcome for each of its rows."""
        try:
            value = json.loads(data)
        except (ValueError, RecursionError) as error:
            return [(data, explain_text(data, error))]
        rows = self._rows_of(value) if isinstance(value, dict) else None
        if rows is None:
            return PLAIN.read(data)
        models = self._layouts[0].models if len(self._layouts) == 1 else ()
        if len(models) == 1:
            for row in rows:
                if isinstance(row, RowRecord) and row.model is None:
                    row.model = models[0]
        return [(data, row) for row in rows]

    def _answers(
        self, read: Callable[[bool], list[Any] | Fault], id_: object, shared: Mapping[str, Any]
    ) -> list[Record | Fault]:
        """Return an answer for each row of a request, or the fault of the response.

        Parameters
        ----------
        read : callable
            A function that returns the values of the rows, or a fault. Its argument is whether the values are
            predicted numbers; otherwise they are scores.
        id_, shared
            As in `row_records`.
        """
        task = self._numeric_task(shared)
        values = read(task is not None)
        if isinstance(values, tuple):
            return [values]
        if task is None:
            return row_records(values, id_, shared)
        numbers = [None if isinstance(value, list | dict) else value for value in values]
        rows = row_records(numbers, id_, {**shared, "task": task.name}, "prediction")
        if len(rows) != len(values):  # the fault of the shared fields
            return rows
        return [
            _no_number(value, row) if isinstance(value, list | dict) else record
            for row, (value, record) in enumerate(zip(values, rows, strict=True))
        ]

    def _numeric_task(self, shared: Mapping[str, Any]) -> TaskLayout | None:
        """Return the layout of the task of an answer with these fields if its models predict numbers."""
        task, model = shared.get("task"), shared.get("model")
        layouts = self._layouts
        if task is not None:
            layouts = [layout for layout in layouts if layout.name == task]
        elif len(layouts) > 1:
            layouts = [layout for layout in layouts if model in layout.models]
        return layouts[0] if len(layouts) == 1 and layouts[0].numeric else None

    @abstractmethod
    def _rows_of(self, value: Mapping[str, Any]) -> Sequence[Record | Fault | None] | None:
        """Return the outcome of each row of an object, or None for an object of another form."""


def row_values(body: Mapping[str, Any], place: str, numeric: bool = False) -> list[Any] | Fault:
    """Return the scores or the predicted number of each row of a response, or the response's fault.

    The scores have one of the forms of `Record.scores`.

    Parameters
    ----------
    body : mapping
        The decoded body, with tensors as lists.
    place : str
        The JSON path of the body, for messages.
    numeric : bool
        Whether the model predicts numbers.

    Examples
    --------
    >>> row_values({"outputs": [{"datatype": "FP32", "shape": [2, 1], "data": [12.5, 3.0]}]}, "$", True)
    [12.5, 3.0]
    >>> row_values({"predictions": [[0.25, 0.75], [0.5, 0.5]]}, "$")
    [[0.25, 0.75], [0.5, 0.5]]
    >>> row_values({"outputs": [{"datatype": "FP32", "shape": [1, 2], "data": [0.25, 0.75]}]}, "$")
    [[0.25, 0.75]]
    >>> row_values({"data": {"tensor": {"shape": [2, 1], "values": [0.75, 0.5]}}, "meta": {}}, "$")
    [0.75, 0.5]
    """
    predictions, outputs, seldon = body.get("predictions"), body.get("outputs"), body.get("data")
    if isinstance(predictions, list):
        return _whole(predictions, f"{place}.predictions", numeric)
    if isinstance(outputs, list):
        return _read_outputs(outputs, f"{place}.outputs", numeric)
    if isinstance(seldon, dict) and isinstance(seldon.get("ndarray"), list):
        return _whole(seldon["ndarray"], f"{place}.data.ndarray", numeric)
    if isinstance(seldon, dict) and isinstance(tensor := seldon.get("tensor"), dict):
        return _cut(tensor.get("values"), tensor.get("shape"), f"{place}.data.tensor", numeric)
    got = f"only {listing(tuple(body))}" if body else "an empty object"
    return (
        RejectReason.NO_SCORES,
        f"{place}: expected an array of predictions (protocol v1) or of outputs (Open Inference Protocol), "
        f"or data with ndarray or tensor (Seldon), got {got}",
    )


def constants_of(mapping: FieldMapping) -> dict[str, str]:
    """Return the constants that a mapping sets, by the name of the field."""
    return {name: value for name, value in mapping.constants.model_dump().items() if value is not None}


def row_records(
    rows: Sequence[Any], id_: object, shared: Mapping[str, Any], field: str = "scores"
) -> list[Record | Fault]:
    """Return an answer for each row of a request, or a fault in its place.

    The id of an answer is the id of the request, a colon, and the row number, which starts at 0.

    Parameters
    ----------
    rows : sequence
        The scores of each row, or its predicted number.
    id_ : object
        The id of the request. If the id is not a text, the rows have no ids.
    shared : mapping of str to object
        The values of the other fields, which are the same for all rows; None for an absent field.
    field : {"scores", "prediction"}
        The field of the records that gets the values of the rows.

    Examples
    --------
    >>> [(record.id, record.model) for record in row_records([[0.25, 0.75], [1, 0]], "r", {"model": "erm"})]
    [('r:0', 'erm'), ('r:1', 'erm')]
    """
    fault = text_fault({**shared, "id": id_})
    if fault is not None:
        return [fault]
    common = {name: each for name, each in shared.items() if each is not None}
    if isinstance(id_, str) and id_:
        common["rows"] = len(rows)
        values = [{**common, "id": f"{id_}:{row}", field: each} for row, each in enumerate(rows)]
    else:
        values = [{**common, field: each} for each in rows]
    try:
        return [*msgspec.convert(values, list[RowRecord])]
    except CONVERSION:
        return [record_of(value, RowRecord) for value in values]


def _whole(rows: list[Any], place: str, numeric: bool) -> list[Any] | Fault:
    """Return the values of rows; a list of one number stands for this number."""
    if not numeric and rows and all(isinstance(row, int) for row in rows):
        message = f"{place}: expected probabilities, got whole numbers only, which are classes"
        return RejectReason.NO_SCORES, f"{message}: let the server answer predict_proba"
    return [row[0] if isinstance(row, list) and len(row) == 1 else row for row in rows]


def _read_outputs(outputs: Sequence[Any], place: str, numeric: bool) -> list[Any] | Fault:
    named = [each for each in outputs if isinstance(each, dict)]
    fitting = [each for each in named if each.get("datatype") in _FLOATS]
    classified = [] if fitting or numeric else [each for each in named if _is_classification(each)]
    if len(classified) == 1:
        return _classified(classified[0], place)
    if numeric and not fitting:  # a model may predict whole numbers
        fitting = [each for each in named if each.get("datatype") in _INTEGERS]
    if len(fitting) != 1:
        names = listing([str(each.get("name")) for each in fitting])
        types = "FP16, FP32, FP64 or of integers" if numeric else "FP16, FP32 or FP64"
        return (
            RejectReason.NO_SCORES,
            f"{place}: expected one output of {types}, the {_content(numeric)}, got "
            f"{f'{len(fitting)}: {names}' if fitting else 'none'}; have the client ask for that output",
        )
    return _cut(fitting[0].get("data"), fitting[0].get("shape"), place, numeric)


def _no_number(value: object, row: int) -> Fault:
    """Return the fault of a row of a response that should be one predicted number."""
    message = f"$: expected one number a row, the prediction, got {shown(value)} in row {row}"
    return RejectReason.WRONG_LENGTH, f"{message}: let the server answer predict"


def _content(numeric: bool) -> str:
    """Return what the values of a response are, for messages."""
    return "predicted numbers" if numeric else "probabilities"


def _is_classification(output: Mapping[str, Any]) -> bool:
    """Return whether an output has Triton's classification form, ``value:index`` or ``value:index:label``."""
    data = output.get("data")
    return (
        output.get("datatype") == "BYTES"
        and isinstance(data, list)
        and bool(data)
        and all(isinstance(each, str) and _CLASSIFICATION.fullmatch(each) for each in data)
    )


def _classified(output: Mapping[str, Any], place: str) -> list[Any] | Fault:
    rows = _cut(output.get("data"), output.get("shape"), place, numeric=False)
    if isinstance(rows, tuple):
        return rows
    if len(output["shape"]) == 1:  # a model without batches
        rows = [rows]
    return [_class_scores(row if isinstance(row, list) else [row]) for row in rows]


def _class_scores(row: Sequence[str]) -> dict[str, float] | list[float]:
    """Return scores by class if the server names the classes, else in class order."""
    matches = [match for each in row if (match := _CLASSIFICATION.fullmatch(each))]
    try:
        if all(match[3] for match in matches):
            return {match[3]: float(match[1]) for match in matches}
        return [float(match[1]) for match in sorted(matches, key=lambda match: int(match[2]))]
    except ValueError:  # such as "1.2.3:0"; the decoder rejects the empty list
        return []


def _cut(data: Any, shape: Any, place: str, numeric: bool) -> list[Any] | Fault:
    """Return data, nested or flat in row-major order, in rows of the shape, or the fault."""
    known = isinstance(shape, list) and all(isinstance(size, int) and size >= 0 for size in shape)
    if not known or len(shape) not in (1, 2) or 0 in shape[1:] or (numeric and shape[1:] not in ([], [1])):
        columns = "1" if numeric else "classes"
        message = f"expected the shape [rows] or [rows, {columns}] of the {_content(numeric)}, got another"
        return RejectReason.WRONG_LENGTH, f"{place}: {message}"
    if not isinstance(data, list):
        message = f"expected the data of the {_content(numeric)}, as an array or as binary data, got neither"
        return RejectReason.NO_SCORES, f"{place}: {message}"
    nested = bool(data) and all(isinstance(row, list) for row in data)
    flat = [each for row in data for each in row] if nested else data
    if len(flat) != prod(shape):
        message = f"expected {prod(shape)} numbers, as the shape says, got {len(flat)}"
        return RejectReason.WRONG_LENGTH, f"{place}: {message}"
    if len(shape) == 1 or shape[1] == 1:
        return flat
    return [flat[start : start + shape[1]] for start in range(0, len(flat), shape[1])]

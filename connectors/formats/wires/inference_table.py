"""Reads rows of inference tables. Such a row has a response of MLflow's serving as JSON text.

Both generations of Databricks' tables are supported. The older tables have the columns `timestamp_ms` and
`request_metadata`. The tables of the AI gateway have `request_time` (docs.databricks.com, inference tables).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from connectors.formats.decode.structs import Fault, Record
from connectors.formats.wires.responses import ResponseWire, row_values
from monitor.base.records import RejectReason

_FINE = 200.0
_NO_OFFSET = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?")
_LAST = 1e17  # milliseconds; later times become this one, because huge integers cannot be divided


class InferenceTableWire(ResponseWire):
    """A reader of the logged responses in inference tables. Each row of a response becomes an answer.

    The id of an answer is the id of the request, a colon, and the row number, which starts at 0. The id of
    the request is the `client_request_id`, if the client has set it, or else the `databricks_request_id`. The
    model and its version are in `request_metadata`. A failed request (`status_code` other than 200) holds no
    answer. A record without `response` is read as a record in Blindsight's own format.

    Parameters
    ----------
    mapping : FieldMapping
        A mapping whose `constants` override the model, version and time of the table.

    Examples
    --------
    >>> from monitor.config.mapping import FieldMapping
    >>> wire = InferenceTableWire(FieldMapping(format="inference_table"))
    >>> row = {"databricks_request_id": "d", "response": '{"predictions": [[0.25, 0.75]]}'}
    >>> row["request_metadata"] = {"model_name": "erm", "model_version": "3"}
    >>> [(record.id, record.model, record.scores) for _, record in wire.read(json.dumps(row).encode())]
    [('d:0', 'erm', [0.25, 0.75])]
    """

    def _rows_of(self, value: Mapping[str, Any]) -> Sequence[Record | Fault | None] | None:
        """Return an outcome for each row of a response, None for a failed request."""
        if "response" not in value:
            return None
        failed = _number(value.get("status_code")) not in (None, _FINE)
        return [None] if failed else self._rows(value)

    def hint(self, fault: Fault, data: bytes | None) -> str:
        """Return a clause that explains a missing model, or "" for another fault."""
        if fault[0] is not RejectReason.NO_MODEL:
            return ""
        return "; request_metadata.model_name gives it: have it logged, or name it in mapping.constants.model"

    def _rows(self, row: Mapping[str, Any]) -> list[Record | Fault]:
        body = _object(row["response"])
        if body is None:
            message = "$.response: expected the JSON text of an object, as MLflow's serving answers"
            return [(RejectReason.WRONG_TYPE, message)]
        about = _object(row.get("request_metadata")) or {}
        shared = {
            "model": about.get("model_name"),
            "version": about.get("model_version"),
            "time": _time(row),
            **self._constants,
        }
        id_ = row.get("client_request_id") or row.get("databricks_request_id")
        return self._answers(lambda numeric: row_values(body, "$.response", numeric), id_, shared)


def _time(row: Mapping[str, Any]) -> object:
    at = _number(row.get("timestamp_ms"))
    if isinstance(at, float):
        return at / 1000 if abs(at) < _LAST else _LAST
    at = row.get("request_time")
    # A TIMESTAMP of Spark is in UTC, which Parquet's INT96 does not say.
    return f"{at}Z" if isinstance(at, str) and _NO_OFFSET.fullmatch(at) else at


def _number(value: object) -> object:
    """Return a number, which is text in CSV, as a float, and another value unchanged."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return value
    try:
        return float(value)
    except ValueError:
        return value
    except OverflowError:  # an integer with hundreds of digits
        return math.inf


def _object(value: Any) -> dict[str, Any] | None:
    """Return an object, also from JSON text, or None."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return None
    return value if isinstance(value, dict) else None

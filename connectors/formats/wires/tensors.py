"""Reads bodies of inference responses: JSON, JSON followed by binary tensors, or protobuf.

The Open Inference Protocol (Triton, KServe) has an extension for binary tensors. With this extension, an
output with a parameter `binary_data_size` has its data after the JSON, row-major and little-endian. The data
of several outputs is in the order of the outputs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from connectors.formats.wires.protobuf import infer_response

_NUMBERS: Mapping[str, str] = {"FP16": "<f2", "FP32": "<f4", "FP64": "<f8", "INT32": "<i4", "INT64": "<i8"}
_LENGTH_BYTES = 4
_JSON = json.JSONDecoder()


def read_body(data: bytes) -> dict[str, Any]:
    """Return the body of a response, with the tensors as flat lists under `data`.

    The parser finds the end of the JSON, and checks that the tensors have the sizes that the JSON declares.
    Therefore the function does not need the header `Inference-Header-Content-Length`, which loggers do not
    keep. A tensor of a type other than FP16, FP32, FP64, INT32, INT64 and BYTES gets no `data`.

    Raises
    ------
    ValueError
        The bytes are not JSON, not JSON followed by the tensors that it declares, and not protobuf. The text
        of the error is the end of a sentence that begins with "it".

    Examples
    --------
    >>> head = b'{"outputs": [{"name": "p", "shape": [1, 2], "datatype": "FP32", '
    >>> tensor = np.array([0.25, 0.75], dtype="<f4").tobytes()
    >>> read_body(head + b'"parameters": {"binary_data_size": 8}}]}' + tensor)["outputs"][0]["data"]
    [0.25, 0.75]
    """
    if not data.lstrip().startswith(b"{"):
        return _read_protobuf(data)
    try:
        body, rest = _split(data)
    except (ValueError, RecursionError) as error:
        try:
            return _read_protobuf(data)  # the length byte of a name of 123 letters equals a brace
        except ValueError:
            raise ValueError(f"is not JSON: {error}") from None
    _attach(body, rest)
    return body


def _split(data: bytes) -> tuple[dict[str, Any], bytes]:
    """Return the JSON object at the start of some bytes, and the bytes after it."""
    # Bytes that are not UTF-8 survive the round trip as surrogates.
    text = data.lstrip().decode("utf-8", "surrogateescape")
    body, end = _JSON.raw_decode(text)
    return body, text[end:].encode("utf-8", "surrogateescape")


def _attach(body: dict[str, Any], rest: bytes) -> None:
    """Fill the data of each output whose tensor is after the JSON."""
    outputs = body.get("outputs")
    apart = [each for each in outputs if _size(each) is not None] if isinstance(outputs, list) else []
    sizes = [_size(each) or 0 for each in apart]
    if not apart and not rest.strip():
        return
    if sum(sizes) != len(rest):
        raise ValueError(f"has {len(rest)} bytes after its JSON, where binary_data_size says {sum(sizes)}")
    place = 0
    for output, size in zip(apart, sizes, strict=True):
        _fill(output, rest[place : place + size])
        place += size


def _size(output: object) -> int | None:
    parameters = output.get("parameters") if isinstance(output, dict) else None
    size = parameters.get("binary_data_size") if isinstance(parameters, dict) else None
    return size if isinstance(size, int) and not isinstance(size, bool) and size >= 0 else None


def _read_protobuf(data: bytes) -> dict[str, Any]:
    body, raw = infer_response(data)
    if raw and len(raw) != len(body["outputs"]):
        raise ValueError(f"has {len(raw)} raw tensors for {len(body['outputs'])} outputs")
    for output, tensor in zip(body["outputs"], raw, strict=False):
        _fill(output, tensor)
    return body


def _fill(output: dict[str, Any], tensor: bytes) -> None:
    datatype = output.get("datatype")
    if datatype == "BYTES":
        output["data"] = _texts(tensor)
    elif isinstance(datatype, str) and datatype in _NUMBERS:
        kind = np.dtype(_NUMBERS[datatype])
        if len(tensor) % kind.itemsize:
            raise ValueError(f"has {len(tensor)} bytes of {datatype}, which is not a whole number of values")
        output["data"] = np.frombuffer(tensor, dtype=kind).tolist()


def _texts(tensor: bytes) -> Sequence[str]:
    """Return the texts of a tensor, each of which follows its length."""
    texts, place = [], 0
    while place < len(tensor):
        start = place + _LENGTH_BYTES
        length = int.from_bytes(tensor[place:start], "little")
        if start + length > len(tensor):
            raise ValueError("has a BYTES tensor that is cut off")
        texts.append(tensor[start : start + length].decode("utf-8", "replace"))
        place = start + length
    return texts

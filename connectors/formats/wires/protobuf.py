"""Decodes gRPC responses of the Open Inference Protocol. Only the needed part of protobuf is implemented.

The protocol's file `open_inference_grpc.proto` defines the message `ModelInferResponse`. The encoding is
described at protobuf.dev/programming-guides/encoding. Seldon Core 2 writes such messages to its topics.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5
_MODEL_NAME, _MODEL_VERSION, _ID, _OUTPUTS, _RAW_OUTPUTS = 1, 2, 3, 5, 6
_NAME, _DATATYPE, _SHAPE, _CONTENTS = 1, 2, 3, 5
_FP32, _FP64, _TEXTS = 6, 7, 8

MAX_FIELDS = 100_000
"""The largest number of fields of a message. With this limit, decoding takes at most some tenths of a
second."""

_FIRST = frozenset(number << 3 | _BYTES for number in range(1, 7))
"""The first bytes that a message can have: its fields are texts or messages with the numbers 1 to 6."""


def infer_response(data: bytes) -> tuple[dict[str, Any], list[bytes]]:
    """Return the JSON form of a `ModelInferResponse`, and its raw tensors.

    Returns
    -------
    body : dict
        A dict with `model_name`, `model_version`, `id` and `outputs`. Each output has `name`, `datatype` and
        `shape`. An output also has `data`, unless its tensor is raw or has a type other than FP32, FP64 and
        BYTES. An empty name, version or id is left out.
    raw : list of bytes
        The raw tensor of each output; empty if the message has no raw tensors.

    Raises
    ------
    ValueError
        The bytes are no `ModelInferResponse`, or have no outputs. The text of the error is the end of a
        sentence that begins with "it".

    Examples
    --------
    >>> contents = b"\\x3a\\x10" + struct.pack("<2d", 0.25, 0.75)
    >>> output = b"\\x0a\\x01p\\x12\\x04FP64\\x1a\\x02\\x01\\x02\\x2a\\x12" + contents
    >>> body, raw = infer_response(b"\\x0a\\x03erm\\x2a" + bytes([len(output)]) + output)
    >>> body["model_name"], body["outputs"][0]["shape"], body["outputs"][0]["data"], raw
    ('erm', [1, 2], [0.25, 0.75], [])
    """
    names = {_MODEL_NAME: "model_name", _MODEL_VERSION: "model_version", _ID: "id"}
    body: dict[str, Any] = {"outputs": []}
    raw: list[bytes] = []
    if data and data[0] not in _FIRST:
        raise ValueError("is not a protobuf message")
    left = iter(range(MAX_FIELDS))
    for number, value in _fields(data, left):
        if number in names:
            body[names[number]] = _text(value)
        elif number == _OUTPUTS:
            body["outputs"].append(_output(_whole(value), left))
        elif number == _RAW_OUTPUTS:
            raw.append(_whole(value))
    if not body["outputs"]:
        raise ValueError("is not a ModelInferResponse: it has no outputs")
    return {name: value for name, value in body.items() if value != ""}, raw


def _output(data: bytes, left: Iterator[int]) -> dict[str, Any]:
    output: dict[str, Any] = {"shape": []}
    for number, value in _fields(data, left):
        if number == _NAME:
            output["name"] = _text(value)
        elif number == _DATATYPE:
            output["datatype"] = _text(value)
        elif number == _SHAPE:
            output["shape"] += [value] if isinstance(value, int) else _varints(value, left)
        elif number == _CONTENTS:
            output["data"] = _contents(_whole(value), left)
    return output


def _contents(data: bytes, left: Iterator[int]) -> list[Any]:
    values: list[Any] = []
    for number, value in _fields(data, left):
        if number == _TEXTS:
            values.append(_text(value))
        elif number in (_FP32, _FP64):
            kind, size = ("f", 4) if number == _FP32 else ("d", 8)
            packed = _whole(value)
            if len(packed) % size:
                raise ValueError("has numbers that are cut off")
            values += struct.unpack(f"<{len(packed) // size}{kind}", packed)
    return values


def _fields(data: bytes, left: Iterator[int]) -> Iterator[tuple[int, int | bytes]]:
    """Yield the number and value of each field: an integer for a varint, else bytes.

    `left` has an element for each further field that the whole message may have.
    """
    place = 0
    while place < len(data):
        _count(left)
        key, place = _varint(data, place)
        number, kind = key >> 3, key & 7
        if number == 0 or kind not in (_VARINT, _EIGHT, _BYTES, _FOUR):
            raise ValueError("is not a protobuf message")
        if kind == _VARINT:
            value, place = _varint(data, place)
            yield number, value
            continue
        length = {_EIGHT: 8, _FOUR: 4}.get(kind, 0)
        if kind == _BYTES:
            length, place = _varint(data, place)
        if length > len(data) - place:
            raise ValueError("is not a protobuf message, or is incomplete")
        yield number, data[place : place + length]
        place += length


def _varint(data: bytes, place: int) -> tuple[int, int]:
    """Return an integer of seven bits a byte, lowest bits first, and the index after it."""
    if place < len(data) and (first := data[place]) < 0x80:
        return first, place + 1
    value = 0
    for i, byte in enumerate(data[place : place + 10]):
        value |= (byte & 0x7F) << (7 * i)
        if byte < 0x80:
            return value, place + i + 1
    raise ValueError("is not a protobuf message, or is incomplete")


def _count(left: Iterator[int]) -> None:
    if next(left, None) is None:
        raise ValueError(f"has more than {MAX_FIELDS:,} fields")


def _varints(data: bytes, left: Iterator[int]) -> list[int]:
    numbers, place = [], 0
    while place < len(data):
        _count(left)
        value, place = _varint(data, place)
        numbers.append(value)
    return numbers


def _whole(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise ValueError("is no ModelInferResponse")
    return value


def _text(value: int | bytes) -> str:
    return _whole(value).decode()  # a UnicodeDecodeError is a ValueError

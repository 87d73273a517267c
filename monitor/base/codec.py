"""Encoding of state as bytes: plain values and numpy arrays in MessagePack.

Equal states have equal bytes. The bytes contain a checksum, because SQLite has none. Without a checksum, a
flipped bit in an array would make counts wrong without an error. States of old versions have no checksum, and
can still be read.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, get_args

import msgspec
import numpy as np
from numpy.typing import NDArray

_ARRAY = 1  # (dtype, shape, bytes in C order)
_CHECKED = 2  # (CRC-32 of the encoded state, encoded state)
_CRC_BYTES = 4

_header = msgspec.msgpack.Encoder()

S = TypeVar("S")


def _pack_array(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            raise TypeError("state holds an array of Python objects; only numbers can be stored")
        plain = np.ascontiguousarray(value)
        head = (plain.dtype.str, list(plain.shape), plain.tobytes())
        return msgspec.msgpack.Ext(_ARRAY, _header.encode(head))
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"state holds a {type(value).__name__}; plain values and numpy arrays can be stored")


def _unpack_array(code: int, data: memoryview) -> Any:
    if code == _CHECKED:
        content = data[_CRC_BYTES:]
        if zlib.crc32(content).to_bytes(_CRC_BYTES, "big") != data[:_CRC_BYTES]:
            raise ValueError("its checksum is wrong")
        return _decoder.decode(content)
    if code != _ARRAY:
        raise ValueError(f"unknown extension {code} in a stored state")
    dtype, shape, values = msgspec.msgpack.decode(data, type=tuple[str, list[int], bytes])
    return np.frombuffer(values, dtype=np.dtype(dtype)).reshape(shape).copy()


def _array(kind: Any, value: Any) -> Any:
    """Return a list as an array if `kind` is an array type. Older versions stored lists."""
    if isinstance(value, list) and getattr(kind, "__origin__", None) is np.ndarray:
        dtype = get_args(get_args(kind)[1])[0]
        return np.array(value, dtype=None if dtype is Any else dtype)
    return value


def _as_list(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    return _pack_array(value)


_lists = msgspec.msgpack.Encoder(enc_hook=_as_list)
_encoder = msgspec.msgpack.Encoder(enc_hook=_pack_array)
_decoder = msgspec.msgpack.Decoder(ext_hook=_unpack_array)


def pack(state: Any) -> bytes:
    """Encode structs, dictionaries, lists, text, numbers, None and numeric numpy arrays as bytes.

    Raises
    ------
    TypeError
        The state contains a value of another type.

    Examples
    --------
    >>> state = {"window": np.arange(3.0), "name": "erm", "limit": float("-inf")}
    >>> back = unpack(pack(state))
    >>> back["window"].tolist(), back["name"], back["limit"]
    ([0.0, 1.0, 2.0], 'erm', -inf)
    """
    content = _encoder.encode(state)
    crc = zlib.crc32(content).to_bytes(_CRC_BYTES, "big")
    return _header.encode(msgspec.msgpack.Ext(_CHECKED, crc + content))


def unpack(data: bytes) -> Any:
    """Decode the bytes that `pack` wrote. Tuples become lists.

    Raises
    ------
    ValueError
        The bytes were not written by `pack`, or are damaged.
    """
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, ValueError, TypeError) as error:
        raise ValueError(f"a stored state cannot be read: {error}") from error


def restored(state: Any, kind: type[S]) -> S:
    """Return the state of the type `kind` from the plain values that `unpack` returned.

    A missing field gets its default, so that states of older versions can be read. An unknown field is
    ignored. A state that already has this type is returned unchanged.

    Raises
    ------
    ValueError
        A field without a default is missing, or a field has a wrong type; the message names the field.

    Examples
    --------
    >>> class Kept(msgspec.Struct):
    ...     values: NDArray[np.float64]
    ...     name: str = ""
    >>> restored(unpack(pack(Kept(np.arange(2.0)))), Kept), restored({"values": [3]}, Kept)
    (Kept(values=array([0., 1.]), name=''), Kept(values=array([3.]), name=''))
    >>> restored({"name": 3}, Kept)
    Traceback (most recent call last):
    ...
    msgspec.ValidationError: Expected `str`, got `int` - at `$.name`
    """
    return msgspec.convert(state, kind, dec_hook=_array)


def plain(state: Any) -> Any:
    """Convert a state to dictionaries, lists, text and numbers. Arrays become lists.

    Examples
    --------
    >>> plain({"values": np.arange(2.0), "pair": (1, None)})
    {'values': [0.0, 1.0], 'pair': [1, None]}
    """
    return msgspec.msgpack.decode(_lists.encode(state))


def concatenate_columns(
    pieces: Sequence[Mapping[str, NDArray[Any]]], lengths: Sequence[int]
) -> dict[str, NDArray[Any]]:
    """Concatenate the columns of several tables, in the order of the tables.

    The tables may have different columns, because the columns depend on the configuration. If a table lacks a
    column, its rows get the value 0 in this column.

    Parameters
    ----------
    pieces : sequence of mapping of str to array
    lengths : sequence of int
        The number of rows of each table.

    Examples
    --------
    >>> concatenate_columns([{"a": np.array([1, 2])}, {"a": np.array([3]), "b": np.array([7])}], [2, 1])
    {'a': array([1, 2, 3]), 'b': array([0, 0, 7])}
    """
    like = {name: column[:0] for piece in pieces for name, column in piece.items()}
    return {
        name: np.concatenate(
            [
                piece[name] if name in piece else np.zeros((rows, *empty.shape[1:]), dtype=empty.dtype)
                for piece, rows in zip(pieces, lengths, strict=True)
            ]
        )
        for name, empty in like.items()
    }

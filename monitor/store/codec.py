"""State as bytes: plain values and numpy arrays, in MessagePack. The same state, the same bytes."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

_ARRAY = 1  # our one extension type: (dtype, shape, bytes in C order)

_header = msgspec.msgpack.Encoder()


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
    if code != _ARRAY:
        raise ValueError(f"unknown extension {code} in a stored state")
    dtype, shape, content = msgspec.msgpack.decode(data, type=tuple[str, list[int], bytes])
    return np.frombuffer(content, dtype=np.dtype(dtype)).reshape(shape).copy()


_encoder = msgspec.msgpack.Encoder(enc_hook=_pack_array)
_decoder = msgspec.msgpack.Decoder(ext_hook=_unpack_array)


def pack(state: Any) -> bytes:
    """Encode dictionaries, lists, text, numbers, None and numpy arrays of numbers.

    Raises
    ------
    TypeError
        The state holds something else.

    Examples
    --------
    >>> state = {"window": np.arange(3.0), "name": "erm", "limit": float("-inf")}
    >>> back = unpack(pack(state))
    >>> back["window"].tolist(), back["name"], back["limit"]
    ([0.0, 1.0, 2.0], 'erm', -inf)
    """
    return _encoder.encode(state)


def unpack(data: bytes) -> Any:
    """What `pack` encoded; tuples come back as lists.

    Raises
    ------
    ValueError
        The bytes are none of `pack`'s.
    """
    try:
        return _decoder.decode(data)
    except msgspec.DecodeError as error:
        raise ValueError(f"a stored state cannot be read: {error}") from error

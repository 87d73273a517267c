"""Whether a Zstandard file is whole, from the lengths that its frames and blocks begin with (RFC 8878).

The packages that unpack it take the end of a file for the end of its text, wherever that is.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import BinaryIO

_FRAME, _SKIPPABLE = 0xFD2FB528, 0x184D2A50  # the last four bits of the second are anything
_DICTIONARY_BYTES = (0, 1, 2, 4)
_CONTENT_SIZE_BYTES = (0, 2, 4, 8)
_REPEATED_BYTE = 1


def missing_bytes(path: Path) -> int:
    """How many bytes a Zstandard file lacks at least, at its end; 0 where it ends with a frame.

    It reads some bytes a block of 128 KiB and unpacks nothing. What is no Zstandard counts as whole: that is
    for whoever unpacks it to say.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "p.zst"
    >>> frame = bytes.fromhex("28b52ffd20011100000a") + b"a"  # one block of two raw bytes
    >>> [(path.write_bytes(frame[:size]), missing_bytes(path)) for size in (11, 10, 7, 0)]
    [(11, 0), (10, 1), (7, 1), (0, 0)]
    """
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        try:
            while file.tell() < size:
                if not _pass_frame(file):
                    return 0
        except struct.error:
            return 1
        return max(file.tell() - size, 0)


def _pass_frame(file: BinaryIO) -> bool:
    """Go to the end of a frame, wherever the file ends; False where none begins here."""
    (magic,) = struct.unpack("<I", file.read(4))
    if magic & ~0xF == _SKIPPABLE:
        (length,) = struct.unpack("<I", file.read(4))
        file.seek(length, os.SEEK_CUR)
        return True
    if magic != _FRAME:
        return False
    (flags,) = struct.unpack("B", file.read(1))
    single = flags >> 5 & 1
    content_size = _CONTENT_SIZE_BYTES[flags >> 6] or single
    file.seek(1 - single + _DICTIONARY_BYTES[flags & 3] + content_size, os.SEEK_CUR)
    last = False
    while not last:
        low, high = struct.unpack("<HB", file.read(3))
        header = low | high << 16
        last = bool(header & 1)
        file.seek(_REPEATED_BYTE if header >> 1 & 3 == 1 else header >> 3, os.SEEK_CUR)
    if flags >> 2 & 1:
        file.seek(4, os.SEEK_CUR)
    return True

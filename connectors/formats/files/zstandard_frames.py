"""Checks whether a Zstandard file is complete, by the lengths in its frames and blocks (RFC 8878).

The decompression packages accept a truncated file as complete, wherever it ends.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import BinaryIO

_FRAME, _SKIPPABLE = 0xFD2FB528, 0x184D2A50  # the last four bits of the second may have any value
_DICTIONARY_BYTES = (0, 1, 2, 4)
_CONTENT_SIZE_BYTES = (0, 2, 4, 8)
_REPEATED_BYTE = 1


def missing_bytes(path: Path) -> int:
    """Return the smallest number of bytes that a Zstandard file lacks at its end; 0 if the file is complete.

    A complete file ends at the end of a frame. The function reads a few bytes for each block of 128 KiB, and
    does not decompress. A file that is not Zstandard counts as complete, because decompression will reject
    it.

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
    """Seek to the end of a frame, even beyond the end of the file; return False if no frame begins here."""
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

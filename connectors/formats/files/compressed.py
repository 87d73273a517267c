"""Reads compressed files; from a damaged file it returns the readable part before it raises an error."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from connectors.formats.files.line_cutter import BLOCK_BYTES, HEAD_BYTES, LineCutter
from connectors.formats.files.zstandard_frames import missing_bytes
from monitor.base.errors import MissingExtraError, SourceError
from monitor.base.source import EndOfSource, Raw

DAMAGED = (OSError, EOFError, zlib.error)
"""The exceptions of the streams of `DECOMPRESSORS` for a damaged file."""


class DamagedFileError(SourceError):
    """The error that a reader raises for a damaged file, after the whole records before the damage.

    Parameters
    ----------
    message : str
    start : int
        The position in the file of the first incomplete record.
    head : bytes
        The readable part of the first incomplete record, at most 2,000 bytes.
    """

    def __init__(self, message: str, start: int, head: bytes = b"") -> None:
        super().__init__(message)
        self.start, self.head = start, head


_STEP_BYTES = 1 << 16  # bytes of one call of a stream; a fault loses the readable bytes of its call


class Compressed:
    """A reader of a compressed file from a position up to its end.

    Parameters
    ----------
    path : Path
    stream : object
        A stream of uncompressed bytes with the method `read(size)`. If the stream has `read1(size)`, this
        method is used, because it does not wait.
    cutter : LineCutter
        Cuts the uncompressed bytes into lines.
    start : int
        The number of uncompressed bytes to skip.
    """

    def __init__(self, path: Path, stream: Any, cutter: LineCutter, start: int) -> None:
        self._path, self._stream, self._cutter = path, stream, cutter
        self._step: Callable[[int], bytes] = getattr(stream, "read1", stream.read)
        self._to_pass_over = start
        self._ended = False
        self._fault: Exception | None = None

    @property
    def up(self) -> bool:
        """True until the end of the file has been read."""
        return not self._ended

    def read(self, timeout_seconds: float) -> list[Raw]:
        """Return about 1 MiB of lines.

        Raises
        ------
        DamagedFileError
            The file is damaged. Earlier calls have returned every whole line before the damage.
        EndOfSource
            The file has ended.
        """
        while not self._ended:
            data = self._next()
            if not data and self._fault is not None:
                cutter = self._cutter
                message = f"{self._path} is damaged after byte {cutter.fed} of its uncompressed text: "
                raise DamagedFileError(
                    message + str(self._fault), cutter.position, cutter.head
                ) from self._fault
            self._ended = not data
            raws = self._cutter.feed(data) if data else self._cutter.finish()
            if raws:
                return raws
        raise EndOfSource

    def _next(self) -> bytes:
        """Return about a block of bytes after the skipped ones; b"" at the end and at a fault."""
        parts: list[bytes] = []
        size = 0
        while size < BLOCK_BYTES and self._fault is None:
            try:
                data = self._step(_STEP_BYTES)
            except DAMAGED as error:
                self._fault = error
                break
            if not data:
                break
            rest = data[self._to_pass_over :]
            self._to_pass_over -= len(data) - len(rest)
            parts.append(rest)
            size += len(rest)
        return b"".join(parts)

    def lag(self) -> None:
        """Return None: the length of the remaining text is unknown."""
        return

    def close(self) -> None:
        """Close the file."""
        self._stream.close()


def open_gzip(path: Path) -> Any:
    """Return a stream of the uncompressed bytes of all members of a ``.gz`` file."""
    return gzip.open(path, "rb")


def open_zstandard(path: Path) -> Any:
    """Return a stream of the uncompressed bytes of all frames of a ``.zst`` file.

    Raises
    ------
    MissingExtraError
        Neither zstandard nor pyarrow is installed.
    """
    try:
        import zstandard
    except ImportError:
        return _open_with_pyarrow(path)
    reader = zstandard.ZstdDecompressor().stream_reader(path.open("rb"), read_across_frames=True)
    return io.BufferedReader(_WholeFrames(reader, reader.read1, zstandard.ZstdError, path))


DECOMPRESSORS: Mapping[str, Callable[[Path], Any]] = {".gz": open_gzip, ".zst": open_zstandard}
"""The function that opens a compressed file, by the extension of its name."""


def head_of(path: Path) -> bytes:
    """Return the first bytes of a file's uncompressed content; b"" if the beginning is damaged.

    Raises
    ------
    MissingExtraError
        The package that decompresses the file is not installed.
    """
    opened = DECOMPRESSORS.get(path.suffix.lower())
    try:
        with path.open("rb") if opened is None else opened(path) as stream:
            head: bytes = stream.read(HEAD_BYTES)
            return head
    except DAMAGED:  # the reader of the file reports it
        return b""


def _open_with_pyarrow(path: Path) -> Any:
    try:
        import pyarrow
    except ImportError as error:
        raise MissingExtraError("Reading .zst files", "files") from error
    stream = pyarrow.input_stream(str(path), compression="zstd")
    return io.BufferedReader(_WholeFrames(stream, stream.read, pyarrow.ArrowException, path))


class _WholeFrames(io.RawIOBase):
    """A stream that raises an `OSError` for errors of the package and for an end within a frame.

    The other decompressors raise `OSError`, and the packages ignore an end within a frame.
    """

    def __init__(self, stream: Any, read: Callable[[int], bytes], error: type[Exception], path: Path) -> None:
        self._stream, self._read, self._error, self._path = stream, read, error, path

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read bytes into a buffer, and return their number."""
        try:
            data = self._read(len(buffer))
        except self._error as error:
            raise OSError(str(error)) from error
        if not data and len(buffer) and (missing := missing_bytes(self._path)):
            size = self._path.stat().st_size
            raise OSError(
                f"it ends within a frame, at byte {size}, where at least {missing} more must follow; copy "
                "it again"
            )
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        """Close both streams."""
        self._stream.close()
        super().close()

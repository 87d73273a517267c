"""Reads compressed files, and takes what is good of a damaged one before it says so."""

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
"""What the streams of `DECOMPRESSORS` raise where the file is damaged."""


class DamagedFileError(SourceError):
    """A file cannot be read on; all that comes before has been given.

    Parameters
    ----------
    message : str
    start : int
        Where the first record that is not whole begins, as a position of the file.
    head : bytes
        What came of that record, at most 2,000 bytes.
    """

    def __init__(self, message: str, start: int, head: bytes = b"") -> None:
        super().__init__(message)
        self.start, self.head = start, head


_STEP_BYTES = 1 << 16  # asked of a stream at once: what came before a fault within a step is lost with it


class Compressed:
    """A compressed file, read to its end.

    Parameters
    ----------
    path : Path
    stream : object
        Gives uncompressed bytes by `read(size)`, and at best by `read1(size)` what it has at hand.
    cutter : LineCutter
    start : int
        So many uncompressed bytes are read and passed over.
    """

    def __init__(self, path: Path, stream: Any, cutter: LineCutter, start: int) -> None:
        self._path, self._stream, self._cutter = path, stream, cutter
        self._step: Callable[[int], bytes] = getattr(stream, "read1", stream.read)
        self._to_pass_over = start
        self._ended = False
        self._fault: Exception | None = None

    @property
    def up(self) -> bool:
        """Whether the end has not been met."""
        return not self._ended

    def read(self, timeout_seconds: float) -> list[Raw]:
        """About 1 MiB of lines.

        Raises
        ------
        DamagedFileError
            Every whole line before the fault has been given.
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
            found = self._cutter.feed(data) if data else self._cutter.finish()
            if found:
                return found
        raise EndOfSource

    def _next(self) -> bytes:
        """About a block of bytes, after those to be passed over; b"" at the end and at a fault."""
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
        """Unknown: how much text is left is not to be seen from outside."""
        return

    def close(self) -> None:
        """Let go of the file."""
        self._stream.close()


def open_gzip(path: Path) -> Any:
    """A stream of the uncompressed bytes of a ``.gz`` file, over all its members."""
    return gzip.open(path, "rb")


def open_zstandard(path: Path) -> Any:
    """A stream of the uncompressed bytes of a ``.zst`` file, over all its frames.

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
"""How a file is opened, by the end of its name."""


def head_of(path: Path) -> bytes:
    """Return the first bytes of a file, after unpacking: b"" of one that is damaged there.

    Raises
    ------
    MissingExtraError
        The package that unpacks it is not installed.
    """
    opened = DECOMPRESSORS.get(path.suffix.lower())
    try:
        with path.open("rb") if opened is None else opened(path) as stream:
            head: bytes = stream.read(HEAD_BYTES)
            return head
    except DAMAGED:  # whoever reads it says so
        return b""


def _open_with_pyarrow(path: Path) -> Any:
    try:
        import pyarrow
    except ImportError as error:
        raise MissingExtraError("Reading .zst files", "files") from error
    stream = pyarrow.input_stream(str(path), compression="zstd")
    return io.BufferedReader(_WholeFrames(stream, stream.read, pyarrow.ArrowException, path))


class _WholeFrames(io.RawIOBase):
    """Turns a package's own error into an `OSError`, which the other decompressors raise.

    So it does with an end within a frame, which the packages pass over in silence.
    """

    def __init__(self, stream: Any, read: Callable[[int], bytes], error: type[Exception], path: Path) -> None:
        self._stream, self._read, self._error, self._path = stream, read, error, path

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
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
        self._stream.close()
        super().close()

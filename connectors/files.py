"""Records from a file: NDJSON (plain, gzip, Zstandard), CSV or Parquet, once or as it grows.

What a file is, its name says: ``.csv``, ``.parquet``, anything else is NDJSON, with ``.gz`` or ``.zst``
at the end if it is compressed. The position is a byte offset, in the uncompressed text where the file is
compressed, and a row number in a table.
"""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from pathlib import Path

from connectors.base import EndOfSource, Raw, Source
from connectors.formats.file_readers import Compressed, FileReader, Following, Plain, Table, open_zstandard
from connectors.formats.line_cutter import LineCutter
from connectors.formats.structs import MAX_LINE_BYTES
from connectors.formats.table_files import read_csv, read_parquet
from monitor.errors import SourceError

_FOLLOWED_NOT = frozenset({".gz", ".zst", ".csv", ".parquet"})


class FileSource(Source):
    """A file of records.

    With `follow` the source goes on as a plain NDJSON file grows, and through both ways of rotating it.
    Renamed and created anew: the old file is read to its end before the new one is begun. Copied and
    truncated: it is begun again once it is shorter than what was read. A last line is left until its
    newline comes. Without `follow` it is taken as it is, and then there is nothing more.

    A file that was rotated while nobody was reading is taken for a new one if it is shorter than the
    position, or if no line ends there. Its predecessor's unread end is then not looked for; and a file
    cut and grown past the position between two reads cannot be told from one that only grew.

    Parameters
    ----------
    path : str or Path
        It is also the partition.
    follow : bool, default False
    name : str, optional
        The file's name if absent.
    max_line_bytes : int, default 1 MiB
        A longer line is passed over in bounded memory, and counted.
    settle_seconds : float, default 1.0
        A file that was renamed is left for the new one once nothing has been added for so long: its
        writer may hold it open for a moment.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "p.ndjson"
    >>> _ = path.write_bytes(b'{"id": 1}\\n{"id": 2}')
    >>> source = FileSource(path)
    >>> source.open({str(path): 10})
    >>> [(raw.data, raw.start) for raw in source.read(0.0)]
    [(b'{"id": 2}', 10)]
    >>> source.close()
    """

    def __init__(
        self,
        path: str | Path,
        follow: bool = False,
        name: str | None = None,
        max_line_bytes: int = MAX_LINE_BYTES,
        settle_seconds: float = 1.0,
    ) -> None:
        self.path = Path(path)
        self.partition = str(path)
        self.follow = follow
        self.name = name or self.path.name
        self.max_line_bytes = max_line_bytes
        self.settle_seconds = settle_seconds
        self._reader: FileReader | None = None

    def open(self, positions: Mapping[str, int]) -> None:
        """Get ready to read from the position of this file, or from its start.

        Raises
        ------
        SourceError
            There is no such file, it cannot be read, or it cannot be followed.
        MissingExtraError
            The format needs an optional package.
        """
        start = positions.get(self.partition, 0)
        kind = self.path.suffix.lower()
        if self.follow and kind in _FOLLOWED_NOT:
            raise SourceError(f"{self.path}: only plain NDJSON can be followed; leave follow out")
        if not self.follow and not self.path.is_file():
            raise SourceError(f"There is no file {self.path}; correct the path, or set follow to wait for it")
        try:
            self._reader = self._reader_of(kind, start)
        except OSError as error:
            raise SourceError(f"{self.path} cannot be read: {error.strerror or error}") from error

    def _cutter(self, start: int) -> LineCutter:
        return LineCutter(self.partition, start, self.max_line_bytes)

    def _reader_of(self, kind: str, start: int) -> FileReader:
        if self.follow:
            return Following(self.path, self._cutter, start, self.settle_seconds)
        if kind == ".csv":
            return Table(read_csv(self.path, self.partition, start, self.max_line_bytes))
        if kind == ".parquet":
            return Table(read_parquet(self.path, self.partition, start))
        if kind == ".gz":
            return Compressed(self.path, gzip.open(self.path, "rb"), self._cutter(start), start)
        if kind == ".zst":
            return Compressed(self.path, open_zstandard(self.path), self._cutter(start), start)
        return Plain(self.path.open("rb", buffering=0), self._cutter, start)

    def read(self, timeout_seconds: float) -> list[Raw]:
        """Read about 1 MiB of whole lines, or one table; waits only at the end of a followed file.

        Raises
        ------
        EndOfSource
            Everything was read, and the file is not followed.
        SourceError
            The file is damaged.
        """
        if self._reader is None:
            raise EndOfSource
        return self._reader.read(timeout_seconds)

    def close(self) -> None:
        """Let go of the file."""
        # The name first: whoever asks for `up` or `lag` from another thread must not meet a closed file.
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    @property
    def up(self) -> bool:
        """Whether there is a file open. May be asked from any thread."""
        reader = self._reader
        return reader is not None and reader.up

    @property
    def lag(self) -> int | None:
        """About how many records wait, for plain NDJSON: the bytes left over the mean length of a line.

        None for tables, for compressed files, before the first line was read, and while the file is being
        changed or closed. May be asked from any thread.
        """
        reader = self._reader
        try:
            return None if reader is None else reader.lag()
        except (OSError, ValueError):  # closed between two looks: it is no longer the file to ask about
            return None

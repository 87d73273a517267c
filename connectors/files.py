"""Records from a file: NDJSON (plain, gzip, Zstandard), CSV or Parquet, once or as it grows.

The end of a file's name says what it is: ``.csv``, ``.parquet``, anything else is NDJSON, or one JSON array
of records if it begins like one. All but Parquet have ``.gz`` or ``.zst`` at the end if they are compressed.
The position is a byte offset, in the uncompressed text of a compressed file, and a row number in a table.
"""

from __future__ import annotations

import glob
import os
import stat
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote_from_bytes, unquote_to_bytes

from connectors.formats.decode.structs import MAX_LINE_BYTES
from connectors.formats.files.compressed import DECOMPRESSORS, Compressed, DamagedFileError, head_of
from connectors.formats.files.folder import Folder, LocalFiles, is_folder
from connectors.formats.files.following import LATE_SECONDS, Following, FollowingPattern, matching
from connectors.formats.files.line_cutter import BLOCK_BYTES, LineCutter
from connectors.formats.files.readers import FileReader, Piped, Plain, Table, open_pipe
from connectors.formats.files.remote import ANSWER_SECONDS, RemoteFiles, is_address
from connectors.formats.files.tables import EVERY_COLUMN, TABLE_BYTES, read_csv, read_parquet
from connectors.formats.wires.choice import columns_of, wire_of
from connectors.stdin import PIPE_NOT_LOOKED_AT
from monitor.base.errors import BlindsightError, SourceError
from monitor.base.records import TaskLayout
from monitor.base.source import (
    EndOfSource,
    Raw,
    RawBlock,
    RawDamaged,
    RawPosition,
    RawTable,
    Source,
    SourceCounts,
    records_in,
)
from monitor.base.spool import Spools

_SAMPLE_SECONDS = 1.0
_COMPLETE_SECONDS = 5.0
"""So long a file of a folder of tables must not have changed before it is read."""
_ENCODED = "file:"
_TABLES = frozenset({".csv", ".parquet"})
_FOLLOWED_NOT = _TABLES.union(DECOMPRESSORS)


def why_not_a_file(path: Path) -> str | None:
    """Why nothing can be read from a path, as a sentence that says what to do; None where it may be.

    A named pipe or a device may: see `is_pipe`.

    Examples
    --------
    >>> why_not_a_file(Path("none.ndjson"))
    'There is no file none.ndjson; correct the path'
    >>> why_not_a_file(Path("/"))
    '/ is a folder; name a file in it'
    """
    return _looked_at(path)[0]


def _looked_at(path: Path) -> tuple[str | None, bool]:
    """`why_not_a_file`, and whether nothing is there: by one look, as a file is renamed at any moment."""
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return f"There is no file {path}; correct the path", True
    except OSError as error:
        return f"{path} cannot be read: {error.strerror or error}", True
    if stat.S_ISDIR(mode):
        return f"{path} is a folder; name a file in it", False
    is_file = stat.S_ISREG(mode) or stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)
    return None if is_file else f"{path} is no file; name a file or a pipe", False


def is_pipe(path: Path) -> bool:
    """Whether a path is read once, from its writer to us: a named pipe, ``/dev/stdin``, a terminal."""
    return path.is_fifo() or path.is_char_device()


def partition_of(name: str) -> str:
    """Return a file's name as text that a store can hold: ``file:`` and percent-encoded if it is not UTF-8.

    Examples
    --------
    >>> partition_of("/logs/a.log"), partition_of("/logs/\\udcff%.log")
    ('/logs/a.log', 'file:/logs/%FF%25.log')
    """
    try:
        name.encode()
    except UnicodeEncodeError:
        return _ENCODED + quote_from_bytes(os.fsencode(name))
    return name


def name_of(partition: str) -> str:
    """Return the name of the file that `partition_of` encoded.

    Examples
    --------
    >>> name_of("/logs/a.log"), name_of("file:/logs/%FF%25.log")
    ('/logs/a.log', '/logs/\\udcff%.log')
    """
    name = os.fsdecode(unquote_to_bytes(partition.removeprefix(_ENCODED)))
    return name if partition_of(name) == partition else partition


def is_pattern(path: str | Path) -> bool:
    """Whether a path names files by a pattern; a file that has such a name is only itself."""
    return glob.has_magic(str(path)) and not os.path.lexists(path)


def _first(raws: Iterable[Raw], left: int) -> Iterator[Raw]:
    """The first records of what was read."""
    for raw in raws:
        if left <= 0:
            return
        if isinstance(raw, RawBlock):
            lines = raw.data.splitlines(keepends=True)[:left]
            left -= len(lines)
            yield replace(raw, data=b"".join(lines))
        elif isinstance(raw, RawTable):
            columns = {name: column[:left] for name, column in raw.columns.items()}
            yield replace(raw, columns=columns, broken={k: v for k, v in raw.broken.items() if k < left})
            left = 0
        else:
            left -= 1
            yield raw


def _with_partition(raw: Raw) -> Raw:
    """Return what was read, with a partition that a store can hold."""
    partition = partition_of(raw.partition)
    return raw if partition == raw.partition else replace(raw, partition=partition)


class FileSource(Source[Any]):
    """A file of records, or with `follow` all files of a pattern, each a partition.

    With `follow` the source goes on as a plain NDJSON file grows, and through both ways of rotating it,
    renaming and copying, also where the agent was down or busy meanwhile. Its position keeps what the
    file is known by: device and inode, and digests of the first KiB and of the last bytes before the
    position. At the start, and at each look, the place is found again in the file or in a rotated file
    beside it (``p.log.1``, ``p.log-20260131``, ``p-20260131.log``, each with ``.gz``). That is read to its
    end, then the rotated ones after it in the order of their last change, then the new file. What cannot be
    found counts in `counts.gap_records`, 1 for each gap, as its length is not known. A last line is left
    until its newline comes. Without `follow` a file is taken as it is, and then there is nothing more.

    Of a pattern, new files are taken up within a second; one that has gone for `late_seconds` is let go,
    with its position. Names of rotated files are none of their own if the file that they were is known.

    A pattern that ends in ``.csv`` or ``.parquet`` is a folder that fills: each file is read once it has not
    changed for `complete_seconds`. It may be an address of fsspec, such as ``s3://bucket/labels/*.parquet``.

    A named pipe is read as plain NDJSON, from whoever writes first until the last writer has closed it.
    What went through it cannot be read again: positions mean nothing there.

    Parameters
    ----------
    path : str or Path
        It is also the partition. With `follow` a pattern as the shell's may stand for several files.
    follow : bool, default False
    name : str, optional
        The file's name if absent.
    max_line_bytes : int, default 1 MiB
        A longer line is passed over in bounded memory, and counted.
    settle_seconds : float, default 1.0
        A file that was renamed is left for the new one once nothing has been added for so long: its
        writer may hold it open for a moment.
    missing_seconds : float, default 3.0
        A followed file that has been away for so long, without a new one under its name, is an error of
        `read`, again and again until it is there; what is still added to the old one is read all the same.
    late_seconds : float, default 300.0
        A file that was left is looked at for so long: its writer may not have noticed.
    mapped : collection of str
        The columns of a table that a mapping reads; those under our names where empty.
    options : mapping of str to object, optional
        Of fsspec's file system, for an address.
    complete_seconds : float, default 5.0
        A table of a pattern is read once it has not changed for so long.
    batch_bytes : int, default 4 MiB
        About so much of tables is unpacked at once.

    Attributes
    ----------
    block_bytes : int
        Of lines that are read at once, of a plain file that is not followed.

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

    @classmethod
    def from_settings(cls, settings: Any, tasks: Sequence[TaskLayout], spools: Spools | None = None) -> Self:
        """The file of a section, which reads the columns that its mapping names."""
        mapped = columns_of(wire_of(settings))
        return cls(
            settings.path,
            follow=settings.follow,
            name=settings.label,
            mapped=mapped,
            options=settings.options,
            batch_bytes=settings.batch_bytes,
        )

    @classmethod
    def sample(cls, settings: Any, records: int) -> list[Raw] | str:
        """The first records of the file, read beside whoever follows it; nothing of a pipe."""
        path = Path(settings.path)
        if is_folder(settings.path) or is_address(settings.path):
            return cls._sample_of_folder(settings, records)
        if is_pipe(path):
            return PIPE_NOT_LOOKED_AT
        several = matching(str(path), _FOLLOWED_NOT) if settings.follow and is_pattern(path) else []
        if several:
            files = [settings.model_copy(update={"path": each}) for each in several[:records]]
            found = [cls.sample(each, max(1, records // len(files))) for each in files]
            return [raw for raws in found if isinstance(raws, list) for raw in raws]
        if settings.follow and why_not_a_file(path):
            return "not there yet; it is waited for"
        try:
            return cls(path, mapped=columns_of(wire_of(settings)))._first_records(records)
        except SourceError as error:
            # The columns that a mapping misses are the very thing that is asked for here.
            raise SourceError(f"{error}; see docs/serving/mapping.md") from error

    @classmethod
    def sample_every_column(cls, settings: Any, records: int) -> list[Raw]:
        """Return the first rows of a table with all their columns; none of any other file."""
        is_table = Path(settings.path.lower().removesuffix(".gz").removesuffix(".zst")).suffix in _TABLES
        if not is_table or is_folder(settings.path) or is_address(settings.path):
            return []
        return cls(settings.path, mapped=EVERY_COLUMN)._first_records(records)

    def _first_records(self, records: int) -> list[Raw]:
        raws: list[Raw] = []
        try:
            self.open({})
            with suppress(EndOfSource):  # the last record may come by itself, where no newline ends it
                while sum(map(records_in, raws)) < records:
                    raws += self.read(_SAMPLE_SECONDS)
            return list(_first(raws, records))
        finally:
            self.close()

    @classmethod
    def _sample_of_folder(cls, settings: Any, records: int) -> list[Raw]:
        """The first rows of the first file."""
        mapped = columns_of(wire_of(settings))
        folder = cls(settings.path, True, mapped=mapped, options=settings.options, complete_seconds=0.0)
        folder.missing_seconds = _SAMPLE_SECONDS * 10
        folder.open({})
        try:
            # A store far away may take longer than a read waits.
            deadline = time.monotonic() + (ANSWER_SECONDS if is_address(settings.path) else _SAMPLE_SECONDS)
            found: list[Raw] = []
            while not found and time.monotonic() < deadline:
                raws = folder.read(_SAMPLE_SECONDS)
                found = [raw for raw in raws if not isinstance(raw, RawPosition)]
            return list(_first(found, records))
        finally:
            folder.close()

    def __init__(
        self,
        path: str | Path,
        follow: bool = False,
        name: str | None = None,
        max_line_bytes: int = MAX_LINE_BYTES,
        settle_seconds: float = 1.0,
        missing_seconds: float = 3.0,
        late_seconds: float = LATE_SECONDS,
        mapped: Collection[str] = (),
        options: Mapping[str, Any] | None = None,
        complete_seconds: float = _COMPLETE_SECONDS,
        batch_bytes: int = TABLE_BYTES,
    ) -> None:
        self.path = Path(path)
        self.partition = str(path)
        self.follow = follow
        self.name = name or self.path.name
        self.max_line_bytes = max_line_bytes
        self.settle_seconds = settle_seconds
        self.missing_seconds = missing_seconds
        self.late_seconds = late_seconds
        self.mapped = mapped
        self.options = options or {}
        self.complete_seconds = complete_seconds
        self.batch_bytes = batch_bytes
        self.block_bytes = BLOCK_BYTES
        self._reader: FileReader | None = None
        self._damage: DamagedFileError | None = None
        self._gaps = self._former_gaps = 0
        self._places: dict[str, Any] = {}  # where reading goes on if a reader fails
        self._has_failed = False

    def open(self, positions: Mapping[str, Any]) -> None:
        """Get ready to read from the position of each file, or from its start.

        Raises
        ------
        SourceError
            There is no such file, it cannot be read, or it cannot be followed.
        MissingExtraError
            The format needs an optional package.
        """
        self._damage = None
        self._places = dict(positions)
        positions = {name_of(partition): position for partition, position in positions.items()}
        if is_address(self.partition) or (self.follow and is_folder(self.partition)):
            self._reader = self._folder(positions)
            return
        kind = self.path.suffix.lower()
        if self.follow and kind in _FOLLOWED_NOT:
            raise SourceError(f"{self.path}: only plain NDJSON can be followed; leave follow out")
        self._check_place(kind)
        try:
            self._reader = self._followed(positions) if self.follow else self._reader_of(kind, positions)
        except OSError as error:
            raise SourceError(f"{self.path} cannot be read: {error.strerror or error}") from error
        except BlindsightError:
            raise
        except Exception as error:
            raise SourceError(f"{self.path} cannot be read: {type(error).__name__}: {error}") from error

    def _folder(self, positions: Mapping[str, Any]) -> Folder:
        pattern = self.partition
        if not self.follow:
            raise SourceError(f"{pattern}: files at an address are read as they come; set follow")
        if not is_folder(pattern):
            raise SourceError(
                f"{pattern}: of an address only .parquet and .csv can be read, perhaps .csv.gz or .csv.zst; "
                "write them so, or copy the file here"
            )
        files = RemoteFiles(pattern, self.options) if is_address(pattern) else LocalFiles(pattern)

        seconds = self.complete_seconds, self.missing_seconds, self.late_seconds
        return Folder(pattern, files, self._tables, positions, *seconds, self.batch_bytes)

    def _tables(self, path: Path, partition: str, start: int) -> Iterator[RawTable]:
        read = read_parquet if path.suffix.lower() == ".parquet" else read_csv
        return read(path, partition, start, self.mapped, self.max_line_bytes, self.batch_bytes)

    def _check_place(self, kind: str) -> None:
        problem, absent = _looked_at(self.path)
        if absent and self.follow:
            return
        if problem and is_pattern(self.path):
            raise SourceError(
                f"{self.path}: a pattern stands for files only where they are followed; set follow"
            )
        if problem:
            raise SourceError(f"{problem}, or set follow to wait for it" if absent else problem)
        if is_pipe(self.path) and self.follow:
            raise SourceError(f"{self.path} is a pipe, which is read until it is closed; leave follow out")
        if is_pipe(self.path) and kind in _FOLLOWED_NOT:
            raise SourceError(
                f"{self.path} is a pipe, of which only plain NDJSON can be read; make it a file"
            )

    def _cutter(self, start: int) -> LineCutter:
        head = head_of(self.path) if start else b""
        return LineCutter(self.partition, start, self.max_line_bytes, head)

    def _followed(self, positions: Mapping[str, Any]) -> Following | FollowingPattern:
        def following(path: Path, position: Any) -> Following:
            partition = str(path)
            seconds = self.settle_seconds, self.missing_seconds, self.late_seconds

            def cutter(start: int, head: bytes) -> LineCutter:
                return LineCutter(partition, start, self.max_line_bytes, head)

            return Following(path, partition, cutter, position, *seconds)

        if is_pattern(self.path):
            return FollowingPattern(self.path, following, positions, self.missing_seconds, _FOLLOWED_NOT)
        one = following(self.path, positions.get(self.partition))
        one.begin()
        return one

    def _reader_of(self, kind: str, positions: Mapping[str, Any]) -> FileReader:
        start = positions.get(self.partition, 0)
        if isinstance(start, Mapping):  # it was followed before
            start = start["at"]
        if is_pipe(self.path):
            return Piped(open_pipe(self.path), self._cutter(0))
        inner = Path(self.path.stem).suffix.lower() if kind in DECOMPRESSORS else kind
        if inner == ".parquet" and kind != inner:
            raise SourceError(f"{self.path}: Parquet is compressed within; unpack the {kind} around it")
        if inner in _TABLES:
            return Table(self._tables(self.path, self.partition, start))
        if kind in DECOMPRESSORS:
            return Compressed(self.path, DECOMPRESSORS[kind](self.path), self._cutter(start), start)
        return Plain(self.path.open("rb", buffering=0), self._cutter, start, self.block_bytes)

    def read(self, timeout_seconds: float) -> list[Raw]:
        """Read about 1 MiB of whole lines, or one table; waits only at the end of a followed file.

        What follows a fault is handed on as one `RawDamaged`, to be counted; then it is an error.

        Raises
        ------
        EndOfSource
            Everything was read, and the file is not followed.
        SourceError
            The file is damaged, or one that is followed has been away for `missing_seconds`; or a reader
            fails in another way: the next call reads on after what was handed out last.
        """
        if self._has_failed:
            self.open(self._places)
            self._has_failed = False
        if self._reader is None:
            raise EndOfSource
        if self._damage is not None:
            raise self._damage
        try:
            found = self._reader.read(timeout_seconds)
        except DamagedFileError as error:
            self._damage = error
            return [RawDamaged(str(error), error.head, self.partition, error.start)]
        except (EndOfSource, BlindsightError):
            raise
        except Exception as error:
            self._leave()
            raise SourceError(
                f"{self.path}: reading fails, and is tried again from where it was: "
                f"{type(error).__name__}: {error}"
            ) from error
        found = [_with_partition(raw) for raw in found]
        for raw in found:
            if raw.after is None:
                self._places.pop(raw.partition, None)
            else:
                self._places[raw.partition] = raw.after
        return found

    def _leave(self) -> None:
        """Close a reader that has failed, as nobody knows which rows it has read and not handed out."""
        gaps = self.counts
        self._has_failed, self._former_gaps = True, gaps.gap_records if gaps else 0
        with suppress(Exception):
            self.close()

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
    def trouble(self) -> str | None:
        """Return why a file of the folder is not read."""
        reader = self._reader
        return reader.trouble if isinstance(reader, Folder) else None

    @property
    def counts(self) -> SourceCounts | None:
        """The gaps of followed files; None where the file is not followed."""
        reader = self._reader
        if isinstance(reader, Following | FollowingPattern | Folder):
            self._gaps = self._former_gaps + reader.gaps
        return SourceCounts(gap_records=self._gaps) if self.follow else None

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

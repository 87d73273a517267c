"""The source of files of records: NDJSON, CSV or Parquet, read once or followed as they grow.

The end of a file's name defines its format: ``.csv`` or ``.parquet``. With any other name the file is NDJSON,
or one JSON array of records if its text begins like an array. NDJSON and CSV may be compressed with gzip or
Zstandard; the name then ends in ``.gz`` or ``.zst``. The position is a byte offset in the uncompressed text,
or the number of a row in a table.
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
from connectors.formats.wires.choice import wire_of
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
"""The time without a change after which a file in a folder of tables counts as complete and is read."""
_ENCODED = "file:"
_TABLES = frozenset({".csv", ".parquet"})
_NOT_FOLLOWED = _TABLES.union(DECOMPRESSORS)


def why_not_a_file(path: Path) -> str | None:
    """Return why a path cannot be read, with a remedy, or None if the path can be read.

    The reason is a sentence without a full stop. Named pipes and devices count as readable: see `is_pipe`.

    Examples
    --------
    >>> why_not_a_file(Path("none.ndjson"))
    'There is no file none.ndjson; correct the path'
    >>> why_not_a_file(Path("/"))
    '/ is a folder; name a file in it'
    """
    return _inspect(path)[0]


def _inspect(path: Path) -> tuple[str | None, bool]:
    """Return the result of `why_not_a_file`, and whether the path is missing or cannot be examined.

    Both come from a single call of `stat`, because the file may be renamed at any moment.
    """
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


def is_table_name(name: str) -> bool:
    """Return whether a file of this name is a table, which may be compressed.

    Examples
    --------
    >>> is_table_name("labels.CSV.gz"), is_table_name("labels.ndjson.gz")
    (True, False)
    """
    return Path(name.lower().removesuffix(".gz").removesuffix(".zst")).suffix in _TABLES


def is_pipe(path: Path) -> bool:
    """Return whether a path can be read only once: a named pipe, ``/dev/stdin`` or a terminal."""
    return path.is_fifo() or path.is_char_device()


def partition_of(name: str) -> str:
    """Return the name of a file's partition, which is the file's name as valid Unicode text.

    A name that is not UTF-8 is percent-encoded, with the prefix ``file:``, because a store holds only valid
    text.

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
    """Return the file's name for a partition, the inverse of `partition_of`.

    Examples
    --------
    >>> name_of("/logs/a.log"), name_of("file:/logs/%FF%25.log")
    ('/logs/a.log', '/logs/\\udcff%.log')
    """
    name = os.fsdecode(unquote_to_bytes(partition.removeprefix(_ENCODED)))
    return name if partition_of(name) == partition else partition


def is_pattern(path: str | Path) -> bool:
    """Return whether a path is a shell pattern.

    The name of an existing file is no pattern, even if it holds a ``*``.
    """
    return glob.has_magic(str(path)) and not os.path.lexists(path)


def _first(raws: Iterable[Raw], left: int) -> Iterator[Raw]:
    """Yield the first `left` records of these."""
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
    """Return raw records with a partition that a store can hold."""
    partition = partition_of(raw.partition)
    return raw if partition == raw.partition else replace(raw, partition=partition)


class FileSource(Source[Any]):
    """A source of one file of records, or with `follow` of all files that match a pattern.

    Each file is a partition, whose name is the path.

    **Without `follow`** the file is read to its end, and then the source ends.

    **With `follow`** a plain NDJSON file is read as it grows. A last line without a newline is read once its
    newline has been written. The source continues after the file was rotated, by renaming or by copying and
    truncating, even if the agent was down at that time. A position identifies its file by the device and
    inode, and by digests of the file's first KiB and of the last bytes before the position. The source looks
    for this file under its own name and among the rotated files in the same folder (``p.log.1``,
    ``p.log-20260131``, ``p-20260131.log``, each perhaps with ``.gz``). It reads the rest of this file, then
    the later rotated files, then the new file. If text was lost, `counts.gap_records` increases by 1, because
    the number of lost records is not known.

    **With a pattern** new files are read within a second. The position of a file is dropped once the file has
    been missing for `late_seconds`. If the source knows the original of a rotated file, it does not read the
    rotated file as a new file.

    **A pattern that ends in .csv or .parquet** names tables that are added to a folder. Each table is read
    when it has not changed for `complete_seconds`. The pattern may be an address of fsspec, such as
    ``s3://bucket/labels/*.parquet``.

    **A named pipe** is read as plain NDJSON until its last writer closes it. Positions are ignored, because a
    pipe can be read only once.

    Parameters
    ----------
    path : str or Path
        The path of the file. With `follow`, the path may be a shell pattern for several files.
    follow : bool, default False
    name : str, optional
        The name of the source, by default the name of the file.
    max_line_bytes : int, default 1 MiB
        The largest length of a line. A longer line is skipped in bounded memory and counted as rejected.
    settle_seconds : float, default 1.0
        After a rotation, the source starts to read the new file when nothing has been added to the renamed
        file for this time. A writer may hold the renamed file open for a moment.
    missing_seconds : float, default 3.0
        `read` raises an error when no file has had this name for this time, until there is one again. Text
        that is added to the renamed file in this time is still read.
    late_seconds : float, default 300.0
        The source reads additions to a rotated file for this time, because a writer may not have noticed the
        rotation.
    mapped : collection of str
        The columns of a table that the mapping names. If empty, the columns with the names of Blindsight's
        fields are read.
    options : mapping of str to object, optional
        The options of fsspec's file system, if the path is an address.
    complete_seconds : float, default 5.0
        A table of a pattern is read when it has not changed for this time.
    batch_bytes : int, default 4 MiB
        The approximate number of bytes of a table that are decompressed at once.

    Attributes
    ----------
    block_bytes : int
        The number of bytes to read at once from a plain file that is not followed.

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
        """Return the source that a section describes.

        The source reads the columns that the section's mapping names.
        """
        mapped = wire_of(settings).columns
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
        """Return the first records of the configured files, or the reason why there is no sample, as a text.

        There is no sample if the file is a pipe, or if it is followed and does not exist yet. Sampling does
        not move the position of an agent that reads the files.

        Raises
        ------
        SourceError
            The file cannot be read, or its mapping names columns that it does not have.
        """
        path = Path(settings.path)
        if is_folder(settings.path) or is_address(settings.path):
            return cls._sample_of_folder(settings, records)
        if is_pipe(path):
            return PIPE_NOT_LOOKED_AT
        several = matching(str(path), _NOT_FOLLOWED) if settings.follow and is_pattern(path) else []
        if several:
            files = [settings.model_copy(update={"path": each}) for each in several[:records]]
            samples = [cls.sample(each, max(1, records // len(files))) for each in files]
            return [raw for raws in samples if isinstance(raws, list) for raw in raws]
        if settings.follow and why_not_a_file(path):
            return "not there yet; it is waited for"
        try:
            return cls(path, mapped=wire_of(settings).columns)._first_records(records)
        except SourceError as error:
            # A sample often serves to write the mapping, so the error names the page about it.
            raise SourceError(f"{error}; see docs/serving/mapping.md") from error

    @classmethod
    def sample_every_column(cls, settings: Any, records: int) -> list[Raw]:
        """Return the first rows of a table with all its columns; an empty list if the file is no table."""
        is_table = is_table_name(settings.path)
        if not is_table or is_folder(settings.path) or is_address(settings.path):
            return []
        return cls(settings.path, mapped=EVERY_COLUMN)._first_records(records)

    def _first_records(self, records: int) -> list[Raw]:
        raws: list[Raw] = []
        try:
            self.open({})
            with suppress(EndOfSource):  # the file may have fewer records
                while sum(map(records_in, raws)) < records:
                    raws += self.read(_SAMPLE_SECONDS)
            return list(_first(raws, records))
        finally:
            self.close()

    @classmethod
    def _sample_of_folder(cls, settings: Any, records: int) -> list[Raw]:
        """Return the first rows of the first file."""
        mapped = wire_of(settings).columns
        folder = cls(settings.path, True, mapped=mapped, options=settings.options, complete_seconds=0.0)
        folder.missing_seconds = _SAMPLE_SECONDS * 10
        folder.open({})
        try:
            # An object store may take longer than one read waits.
            deadline = time.monotonic() + (ANSWER_SECONDS if is_address(settings.path) else _SAMPLE_SECONDS)
            sample: list[Raw] = []
            while not sample and time.monotonic() < deadline:
                raws = folder.read(_SAMPLE_SECONDS)
                sample = [raw for raw in raws if not isinstance(raw, RawPosition)]
            return list(_first(sample, records))
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
        self._places: dict[str, Any] = {}  # positions after the last results, to continue after a failure
        self._has_failed = False

    def open(self, positions: Mapping[str, Any]) -> None:
        """Prepare to read each file from its position, or from its start if it has none.

        Raises
        ------
        SourceError
            The file does not exist, cannot be read, or cannot be followed.
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
        if self.follow and kind in _NOT_FOLLOWED:
            raise SourceError(f"{self.path}: only plain NDJSON can be followed; leave follow out")
        self._check_path(kind)
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

    def _check_path(self, kind: str) -> None:
        """Raise SourceError if nothing can be read from the path with these settings."""
        problem, absent = _inspect(self.path)
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
        if is_pipe(self.path) and kind in _NOT_FOLLOWED:
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
            return FollowingPattern(self.path, following, positions, self.missing_seconds, _NOT_FOLLOWED)
        one = following(self.path, positions.get(self.partition))
        one.begin()
        return one

    def _reader_of(self, kind: str, positions: Mapping[str, Any]) -> FileReader:
        """Return the reader of a file that is not followed and whose name ends in `kind`."""
        start = positions.get(self.partition, 0)
        if isinstance(start, Mapping):  # the file was followed in an earlier run
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
        """Return about 1 MiB of whole lines, or some thousand rows of tables.

        The call waits only if the file is followed, is a pipe or has an address of fsspec. If the file is
        damaged, the result has one `RawDamaged` for the unreadable rest, and the next call raises an error.

        Raises
        ------
        EndOfSource
            Everything was read, and the file is not followed.
        SourceError
            The file is damaged, a followed file has been missing for `missing_seconds`, or reading failed for
            another reason. After a failure, the next call continues after the last result.
        """
        if self._has_failed:
            self.open(self._places)
            self._has_failed = False
        if self._reader is None:
            raise EndOfSource
        if self._damage is not None:
            raise self._damage
        try:
            raws = self._reader.read(timeout_seconds)
        except DamagedFileError as error:
            self._damage = error
            return [RawDamaged(str(error), error.head, self.partition, error.start)]
        except (EndOfSource, BlindsightError):
            raise
        except Exception as error:
            self._close_failed()
            raise SourceError(
                f"{self.path}: reading fails, and is tried again from where it was: "
                f"{type(error).__name__}: {error}"
            ) from error
        raws = [_with_partition(raw) for raw in raws]
        for raw in raws:
            if raw.after is None:
                self._places.pop(raw.partition, None)
            else:
                self._places[raw.partition] = raw.after
        return raws

    def _close_failed(self) -> None:
        """Close a reader that has failed: it may have read rows that it did not return."""
        gaps = self.counts
        self._has_failed, self._former_gaps = True, gaps.gap_records if gaps else 0
        with suppress(Exception):
            self.close()

    def close(self) -> None:
        """Close the file."""
        # Unset the reader before closing it, because other threads may read `up` and `lag` at this moment.
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    @property
    def up(self) -> bool:
        """True while a file is open. For a pattern, see `FollowingPattern.up` and `Folder.up`."""
        reader = self._reader
        return reader is not None and reader.up

    @property
    def trouble(self) -> str | None:
        """The reason why a table of a pattern cannot be read, without a full stop; otherwise None."""
        reader = self._reader
        return reader.trouble if isinstance(reader, Folder) else None

    @property
    def counts(self) -> SourceCounts | None:
        """The number of gaps; None without `follow`.

        A gap is a place of lost text in a followed file, or a table of a pattern that was removed or replaced
        before its last row was read.
        """
        reader = self._reader
        if isinstance(reader, Following | FollowingPattern | Folder):
            self._gaps = self._former_gaps + reader.gaps
        return SourceCounts(gap_records=self._gaps) if self.follow else None

    @property
    def lag(self) -> int | None:
        """The approximate number of waiting records of plain NDJSON.

        The lag is the number of remaining bytes, divided by the mean length of a line. The lag is None for
        tables, compressed files and pipes, before the first line was read, and while no file is open.
        """
        reader = self._reader
        try:
            return None if reader is None else reader.lag()
        except (OSError, ValueError):  # another thread has just closed the file
            return None

"""Keeps posted records on a disk from the moment they are acknowledged until they are used.

Many requests' lines are written and synced together (group commit) by one thread, in files of bounded
size; what is asked for by the reader, another thread, is only what a sync has covered. Files whose lines
are all used are deleted. The last file stays, so that offsets go on rising whatever was deleted. A
small file remembers how far the spool is used, for a start without a position.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from connectors.http.segment import FRAME_BYTES, SpoolSegment, measure, name_of, pack, segments_in
from connectors.http.spool_reader import SpoolReader
from monitor.base.errors import InUseError, SourceError
from monitor.base.files import sync_folder
from monitor.base.spool import PostSpool, SpoolLines, SpoolPost, SpoolWriteError, make_frames

_EVERY_SECONDS = 1.0


class SpoolPosition:
    """A position in a file. It is not synced: an older one only has more read again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written_at = 0.0

    def read(self) -> int:
        """The position, 0 where none is written."""
        try:
            return int(self._path.read_text())
        except (FileNotFoundError, ValueError):
            return 0

    def write(self, position: int, at_once: bool = False) -> None:
        """Note a position, at most once a second unless `at_once`. A disk that does not take it is logged."""
        now = time.monotonic()
        if not at_once and now - self._written_at < _EVERY_SECONDS:
            return
        self._written_at = now
        draft = self._path.with_suffix(".new")
        try:
            draft.write_text(f"{position}\n")
            os.replace(draft, self._path)
        except Exception as error:  # noqa: BLE001 - whoever is told what is used must not fail by it
            log.warning("%s cannot be written: %s.", self._path, _reason(error))


log = logging.getLogger("blindsight")

_GROUP_BYTES = 4 << 20  # written at once: a sync of more would make the first of the group wait for long
_SEGMENTS = 8  # room is given back in such parts of the bound
_LARGEST_SEGMENT = 64 << 20
_SEGMENT_SECONDS = 10.0  # so long at most lines stay that are used: what rests here may be a person's data
_PROBE_BYTES = 1 << 16  # more than a full disk may still have in a block that is in use
_sync = getattr(os, "fdatasync", os.fsync)  # size and data, but not the times: half the work


class Spool(PostSpool):
    """A spool in a folder.

    Parameters
    ----------
    folder : Path
        Made if absent. Used by one process at a time.
    max_bytes : int
        Of all files in it.

    Examples
    --------
    >>> import tempfile
    >>> spool = Spool(Path(tempfile.mkdtemp()) / "spool", 1_000_000)
    >>> spool.open(None)
    >>> spool.append(b'{"id": 1}\\n', rows=1).result(), spool.append(b'{"id": 2}\\n', rows=1).result()
    (10, 20)
    >>> spool.read(0.0), spool.lag
    ([SpoolLines(lines=b'{"id": 1}\\n{"id": 2}\\n', start=0, labels=False)], 0)
    >>> spool.close()
    """

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self.folder = folder
        self._segment_bytes = min(max_bytes // _SEGMENTS, _LARGEST_SEGMENT)
        # Not more than one file's worth, or one group could fill what can only be given back file by file.
        super().__init__(max_bytes, min(_GROUP_BYTES, self._segment_bytes), FRAME_BYTES)
        self._segments: list[SpoolSegment] = []
        self._rows_deleted = 0
        self._said = False  # that nothing can be written, since the last post that was
        self._began = 0.0  # when the last file was, monotonic; one of an earlier run is old
        self._replace_from = 0.0  # when the last file may be replaced again, monotonic
        self._file: int | None = None
        self._lock_file: int | None = None
        self._reader = SpoolReader(0)
        self._absorbed = 0
        self._mark = SpoolPosition(folder / "absorbed")

    def open(self, position: int | None) -> None:
        """Take the folder, cut off what a crash left torn, and go on reading at `position`.

        Without one, reading goes on after what was last said to be `absorbed`, or at the beginning.

        Raises
        ------
        SourceError
            The folder cannot be had, another process has it, or what is in it is damaged or older than
            the position.
        """
        try:
            self._take_folder()
            self._recover(position)
        except OSError as error:
            self.close()
            raise SourceError(
                f"The spool {self.folder} cannot be used: {error.strerror or error}; give a folder that "
                "this user may write"
            ) from error
        except SourceError:
            self.close()
            raise
        self._begin_writing()

    def read(self, timeout_seconds: float) -> list[SpoolLines]:
        """The next whole lines, about 1 MiB, in stretches of one kind; [] where none came in time.

        Raises
        ------
        SourceError
            A file is damaged.
        """
        with self._lock:
            if not self._to_read.wait_for(lambda: self._readable() or self._closing, timeout_seconds):
                return []
            if not self._readable():
                return []
            segment = next(segment for segment in self._segments if segment.end > self._reader.position)
            size = segment.size
        # Outside the lock: a slow disk must not keep posts waiting.
        return self._reader.read(segment, size)

    def absorbed(self, position: int) -> None:
        """Hear that all before this offset is used: files that end before it are deleted."""
        with self._lock:
            self._absorbed = max(self._absorbed, position)
            done = [segment for segment in self._segments[:-1] if segment.end <= self._absorbed]
            self._segments = self._segments[len(done) :]
            self._bytes -= sum(segment.size for segment in done)
            self._rows_deleted += sum(segment.rows for segment in done)
            if self._is_used_up():
                self._to_write.notify()
        for segment in done:
            _delete(segment.path)
        self._mark.write(self._absorbed)

    def close(self) -> None:
        """Write what waits, and let go of the folder."""
        if self._end_writing():
            self._mark.write(self._absorbed, at_once=True)
        self._close_file()
        self._reader.close()
        if self._lock_file is not None:
            os.close(self._lock_file)
            self._lock_file = None

    @property
    def lag(self) -> int:
        """Lines on the disk that were not read yet."""
        with self._lock:
            rows = sum(segment.rows for segment in self._segments) + self._rows_deleted
            return max(rows - self._reader.rows_before, 0)

    def _is_used_up(self) -> bool:
        """Whether there are lines in the last file, and all of them are used."""
        last = self._segments[-1]
        return last.size > 0 and last.end <= self._absorbed

    def _untidy(self) -> bool:
        """Whether the last file must go; not at once again where no other could be begun."""
        return self._is_used_up() and self._is_large_or_old() and time.monotonic() >= self._replace_from

    def _untidy_seconds(self) -> float | None:
        """The last file grows old while nothing comes."""
        return _SEGMENT_SECONDS if self._is_used_up() else None

    def _is_large_or_old(self) -> bool:
        old = time.monotonic() - self._began >= _SEGMENT_SECONDS
        return self._segments[-1].size >= self._segment_bytes or old

    def _readable(self) -> bool:
        return bool(self._segments) and self._segments[-1].end > self._reader.position

    def _take_folder(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock_file = os.open(self.folder / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InUseError(
                f"The spool {self.folder} is used by another process; stop it, or give each its own folder"
            ) from None

    def _recover(self, position: int | None) -> None:
        segments = segments_in(self.folder)
        for i, segment in enumerate(segments):
            measure(segment, segments[i + 1].start if i + 1 < len(segments) else None)
        if position is None:
            position = self._mark.read()
        end = segments[-1].end if segments else position
        if position > end:
            if any(segment.size for segment in segments):
                raise SourceError(
                    f"The spool {self.folder} ends at {end}, and {position} bytes of it are used already: "
                    "it is an older copy; restore the newer one, or move it away"
                )
            for segment in segments:
                segment.path.unlink()
            segments = []
        self._absorbed = position
        if segments and position < segments[0].start:
            log.warning(
                "The spool %s begins at %d, past the position %d: the records between were deleted as "
                "used, and the present state is older.",
                self.folder,
                segments[0].start,
                position,
            )
            position = segments[0].start
        self._segments, self._rows_deleted = segments, 0
        self._bytes = sum(segment.size for segment in segments)
        self._reader = SpoolReader(position)
        if segments:
            self._file = os.open(segments[-1].path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
            _sync(self._file)  # the torn end is cut off for good before anything follows it
            self._reader.skip(segments)
        else:
            self._begin_segment(position)
        self.absorbed(position)

    def _begin_segment(self, start: int) -> None:
        path = self.folder / name_of(start)
        # A file of this name holds nothing that was acknowledged: its first write failed.
        flags = os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC
        file = os.open(path, flags, 0o600)
        try:
            os.fsync(file)
            sync_folder(self.folder)
        except BaseException:
            os.close(file)
            raise
        self._close_file()
        self._file, self._began = file, time.monotonic()
        with self._lock:
            self._segments = [segment for segment in self._segments if segment.path != path]
            self._segments.append(SpoolSegment(path, start, start))

    def _close_file(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _kept(self, group: Sequence[SpoolPost], reserved: int) -> int:
        try:
            return self._commit(group, reserved)
        except Exception as error:
            self._abandon(error, reserved)
            raise SpoolWriteError(f"the spool could not be written: {_reason(error)}") from error

    def _tidy(self) -> None:
        """All of the last file is used: begin another, so that it can be deleted."""
        try:
            self._begin_segment(self._segments[-1].end)
        except Exception as error:  # noqa: BLE001 - what is used stays until the next try
            self._replace_from = time.monotonic() + _SEGMENT_SECONDS
            self._abandon(error, 0)
        self.absorbed(self._absorbed)

    def _look(self) -> None:
        """Test the disk by writing a file that nobody reads."""
        probe = self.folder / "probe"
        try:
            with probe.open("wb") as file:
                file.write(bytes(_PROBE_BYTES))
                file.flush()
                _sync(file.fileno())
        except Exception as error:
            raise SpoolWriteError(f"the spool could not be written: {_reason(error)}") from error
        finally:
            with suppress(OSError):
                probe.unlink(missing_ok=True)

    def _commit(self, group: Sequence[SpoolPost], reserved: int) -> int:
        """Write and sync a frame for each stretch of one kind; only then are they there for the reader."""
        with self._lock:
            last = self._segments[-1]
        if self._file is None or (last.size and self._is_large_or_old()):
            self._begin_segment(last.end)
            last = self._segments[-1]
        assert self._file is not None
        found = list(make_frames(group, last.end))
        frames = memoryview(b"".join(pack(each.start, each.rows, each.lines, each.labels) for each in found))
        written = 0
        while written < len(frames):
            written += os.write(self._file, frames[written:])
        _sync(self._file)
        self._said = False
        with self._lock:
            last.end, last.size = found[-1].end, last.size + len(frames)
            last.rows += sum(each.rows for each in found)
            self._bytes += len(frames) - reserved
            self._to_read.notify_all()
            return last.end

    def _abandon(self, error: Exception, reserved: int) -> None:
        """After a failed write or sync nobody knows what the file holds: cut it back, begin another."""
        full = getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT)
        level = logging.WARNING if full else logging.ERROR
        level, self._said = logging.DEBUG if self._said else level, True
        log.log(level, "The spool %s cannot be written: %s.", self.folder, _reason(error))
        with self._lock:
            last = self._segments[-1]
            self._bytes -= reserved
        self._close_file()
        try:
            os.truncate(last.path, last.size)
        except Exception:  # noqa: BLE001 - the disk is away: what is torn there lies behind the frames that count
            log.warning("The end of %s could not be cut off.", last.path)


def _reason(error: Exception) -> object:
    """Return the cause that an error names."""
    return getattr(error, "strerror", None) or error


def _delete(path: Path) -> None:
    """Delete a file that is used; where the disk refuses, it stays, and goes at a later start."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        log.warning("%s is used and cannot be deleted: %s.", path, error.strerror or error)

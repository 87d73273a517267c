"""A spool in a folder, which stores posted records on a disk until the agent has used them.

One thread writes and syncs the lines of several posts together (group commit), into files of limited size.
Another thread reads only lines that are synced. A file is deleted when all its lines are used. The last file
is kept, so that offsets continue to increase. The small file `absorbed` has the offset after the last used
line. A start without a position uses this offset.
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
    """A file that holds one position.

    The file is not synced. After a crash the file may have an older position. Then some records are read
    twice.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written_at = 0.0

    def read(self) -> int:
        """Return the position, or 0 if the file does not exist or has no number."""
        try:
            return int(self._path.read_text())
        except (FileNotFoundError, ValueError):
            return 0

    def write(self, position: int, at_once: bool = False) -> None:
        """Write a position, at most once a second unless `at_once` is True.

        An error of the disk is logged and not raised.
        """
        now = time.monotonic()
        if not at_once and now - self._written_at < _EVERY_SECONDS:
            return
        self._written_at = now
        draft = self._path.with_suffix(".new")
        try:
            draft.write_text(f"{position}\n")
            os.replace(draft, self._path)
        except Exception as error:  # noqa: BLE001 - a lost position must not make the caller fail
            log.warning("%s cannot be written: %s.", self._path, _reason(error))


log = logging.getLogger("blindsight")

_GROUP_BYTES = 4 << 20  # of a write; with more, the first post of the group would wait long for the sync
_SEGMENTS = 8  # the number of files that fill the spool; room is freed one whole file at a time
_LARGEST_SEGMENT = 64 << 20
_SEGMENT_SECONDS = 10.0  # how long used lines may stay on the disk: they may be personal data
_PROBE_BYTES = 1 << 16  # more than a full disk may have left in a partly used block
_sync = getattr(os, "fdatasync", os.fsync)  # syncs size and data but not the times, which halves the work


class Spool(PostSpool):
    """A spool in a folder.

    Parameters
    ----------
    folder : Path
        The folder, which is created if necessary. Only one process can use it at a time.
    max_bytes : int
        The largest size of all files together.

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
        # A group is at most as large as a file, because room is freed only by deleting whole files.
        super().__init__(max_bytes, min(_GROUP_BYTES, self._segment_bytes), FRAME_BYTES)
        self._segments: list[SpoolSegment] = []
        self._rows_deleted = 0
        self._failure_logged = False  # whether a failure was logged since the last successful write
        self._began = 0.0  # when the last file was created, monotonic; 0.0 makes a file of an earlier run old
        self._replace_from = 0.0  # when the last file may be replaced again, monotonic
        self._file: int | None = None
        self._lock_file: int | None = None
        self._reader = SpoolReader(0)
        self._absorbed = 0
        self._mark = SpoolPosition(folder / "absorbed")

    def open(self, position: int | None) -> None:
        """Lock the folder, remove an incomplete frame that a crash left, and prepare to read from `position`.

        If `position` is None, reading starts at the last offset passed to `absorbed`, or at offset 0.

        Raises
        ------
        SourceError
            The folder cannot be used, another process uses the folder, or its files are damaged or end before
            the position.
        """
        try:
            self._lock_folder()
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
        """Return about 1 MiB of whole lines; an empty list if there were none within the time limit.

        In each element of the list, either all lines were posted as labels, or none.

        Raises
        ------
        SourceError
            A file is damaged or cannot be read.
        """
        with self._lock:
            if not self._to_read.wait_for(lambda: self._has_unread() or self._closing, timeout_seconds):
                return []
            if not self._has_unread():
                return []
            segment = next(segment for segment in self._segments if segment.end > self._reader.position)
            size = segment.size
        # Read without the lock, so that posts do not wait for a slow disk.
        return self._reader.read(segment, size)

    def absorbed(self, position: int) -> None:
        """Record that all lines before this offset are used, and delete the files without unused lines.

        The last file is kept.
        """
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
        """Write the waiting posts, close the files and unlock the folder."""
        if self._end_writing():
            self._mark.write(self._absorbed, at_once=True)
        self._close_file()
        self._reader.close()
        if self._lock_file is not None:
            os.close(self._lock_file)
            self._lock_file = None

    @property
    def lag(self) -> int:
        """The number of stored lines that were not read yet."""
        with self._lock:
            rows = sum(segment.rows for segment in self._segments) + self._rows_deleted
            return max(rows - self._reader.rows_before, 0)

    def _is_used_up(self) -> bool:
        """Return whether the last file has lines and all of them are used."""
        last = self._segments[-1]
        return last.size > 0 and last.end <= self._absorbed

    def _untidy(self) -> bool:
        """Return whether the last file should be replaced: it is used up, and large or old.

        After a failed replacement the answer is False for some seconds.
        """
        return self._is_used_up() and self._is_large_or_old() and time.monotonic() >= self._replace_from

    def _untidy_seconds(self) -> float | None:
        """Return the age at which a used-up last file should be replaced; None if it has unused lines."""
        return _SEGMENT_SECONDS if self._is_used_up() else None

    def _is_large_or_old(self) -> bool:
        old = time.monotonic() - self._began >= _SEGMENT_SECONDS
        return self._segments[-1].size >= self._segment_bytes or old

    def _has_unread(self) -> bool:
        return bool(self._segments) and self._segments[-1].end > self._reader.position

    def _lock_folder(self) -> None:
        """Create the folder if necessary and lock it; raise InUseError if another process has the lock."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock_file = os.open(self.folder / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InUseError(
                f"The spool {self.folder} is used by another process; stop it, or give each its own folder"
            ) from None

    def _recover(self, position: int | None) -> None:
        """Examine the files, and prepare to read from `position` and to write after the last line."""
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
            _sync(self._file)  # the removal of an incomplete frame must be on the disk before a new frame
            self._reader.skip(segments)
        else:
            self._begin_segment(position)
        self.absorbed(position)

    def _begin_segment(self, start: int) -> None:
        """Create the file whose first line has the offset `start`, and make it the last file."""
        path = self.folder / name_of(start)
        # If a file of this name exists, its first write has failed, and no line in it was acknowledged.
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
        """Begin another file, so that the last one, which is used up, can be deleted."""
        try:
            self._begin_segment(self._segments[-1].end)
        except Exception as error:  # noqa: BLE001 - the used lines stay until the next try
            self._replace_from = time.monotonic() + _SEGMENT_SECONDS
            self._abandon(error, 0)
        self.absorbed(self._absorbed)

    def _look(self) -> None:
        """Test the disk by writing a temporary file."""
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
        """Write and sync a frame for each stretch of lines of one kind, and return the offset after the last.

        The reader sees the lines only after the sync.
        """
        with self._lock:
            last = self._segments[-1]
        if self._file is None or (last.size and self._is_large_or_old()):
            self._begin_segment(last.end)
            last = self._segments[-1]
        assert self._file is not None
        frames = list(make_frames(group, last.end))
        data = memoryview(b"".join(pack(each.start, each.rows, each.lines, each.labels) for each in frames))
        written = 0
        while written < len(data):
            written += os.write(self._file, data[written:])
        _sync(self._file)
        if not os.path.samestat(os.stat(last.path), os.fstat(self._file)):
            raise FileNotFoundError(errno.ENOENT, "its file was replaced")
        self._failure_logged = False
        with self._lock:
            last.end, last.size = frames[-1].end, last.size + len(data)
            last.rows += sum(each.rows for each in frames)
            self._bytes += len(data) - reserved
            self._to_read.notify_all()
            return last.end

    def _abandon(self, error: Exception, reserved: int) -> None:
        """Log a failed write or sync, and cut the last file back to its synced frames.

        The content of the file after these frames is unknown, so the next write begins another file.
        """
        full = getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT)
        level = logging.WARNING if full else logging.ERROR
        level, self._failure_logged = logging.DEBUG if self._failure_logged else level, True
        log.log(level, "The spool %s cannot be written: %s.", self.folder, _reason(error))
        with self._lock:
            last = self._segments[-1]
            self._bytes -= reserved
        self._close_file()
        try:
            os.truncate(last.path, last.size)
        except Exception:  # noqa: BLE001 - the disk is away; the rest is after the frames that count
            log.warning("The end of %s could not be cut off.", last.path)


def _reason(error: Exception) -> object:
    """Return the reason of an error: the text of the operating system, or else the error itself."""
    return getattr(error, "strerror", None) or error


def _delete(path: Path) -> None:
    """Delete a used-up file, or log that the disk refuses; a later start then deletes the file."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        log.warning("%s is used and cannot be deleted: %s.", path, error.strerror or error)

"""Reads tables at addresses of fsspec, which are downloaded into a temporary folder."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Generic, TypeVar

from monitor.base.errors import MissingExtraError, SourceError
from monitor.base.registry import Extra

log = logging.getLogger(__name__)

Answer = TypeVar("Answer")

ANSWER_SECONDS = 20.0
"""A store that has not answered for this number of seconds counts as down. The reader still waits for the
answer."""
LOST_SECONDS, LOST_LONGEST = 300.0, 3600.0
"""The first call is abandoned after `LOST_SECONDS` without an answer or a byte.

Each further call in a row waits twice as long, at most `LOST_LONGEST`.
"""
_OPEN_SECONDS, _PROGRESS_SECONDS = 2.0, 1.0
FILES_AT_ONCE, _BYTES_AT_ONCE = 64, 64 << 20
_EXTRAS = {
    **dict.fromkeys(("s3", "s3a"), Extra("s3", ("fsspec", "s3fs"))),
    **dict.fromkeys(("gs", "gcs"), Extra("gs", ("fsspec", "gcsfs"))),
}


def is_address(path: str) -> bool:
    """Return whether a path is an address on another file system, such as ``s3://bucket/*.parquet``."""
    return "://" in path


class _Call(Generic[Answer]):
    """A call of a library in a thread of its own, so that a call that hangs delays nothing else.

    Parameters
    ----------
    function : callable
    progress : callable, optional
        Returns a value that changes while the call moves on.
    """

    def __init__(self, function: Callable[[], Answer], progress: Callable[[], object] = int) -> None:
        self._function = function
        self._progress = progress
        self._state = (progress(), time.monotonic())
        self._answer: Answer | None = None
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="fetches files", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._answer = self._function()
        except Exception as error:  # noqa: BLE001 - `answer` raises it
            self._error = error

    @property
    def silent_seconds(self) -> float:
        """Return for how long the call has not moved on."""
        value, since = self._state
        if time.monotonic() - since >= _PROGRESS_SECONDS and (now := self._progress()) != value:
            self._state = now, time.monotonic()
        return time.monotonic() - self._state[1]

    def ended(self, timeout_seconds: float) -> bool:
        """Wait for the end of the call, and return whether it ended in time."""
        self._thread.join(timeout_seconds)
        return not self._thread.is_alive()

    def answer(self) -> Answer:
        """Return the result of the call, or raise its exception."""
        if self._error is not None:
            raise self._error
        return self._answer  # type: ignore[return-value]


class _Store:
    """A file system of fsspec, connected by the first call. Its calls run in any thread.

    No other source shares it: a call that hangs may hold its connection.
    """

    def __init__(self, pattern: str, options: Mapping[str, Any]) -> None:
        self._pattern, self._options = pattern, options
        self._lock = threading.Lock()
        self._system: tuple[Any, str] | None = None

    @contextmanager
    def connected(self) -> Iterator[tuple[Any, str]]:
        """Use the file system and the path of the pattern, alone unless it allows several calls at once.

        Raises
        ------
        SourceError
            fsspec knows no such address, or not these options.
        """
        with ExitStack() as stack:
            stack.enter_context(self._lock)
            self._system = self._system or self._connect()
            if self._system[0].async_impl:
                stack.close()
            yield self._system

    def _connect(self) -> tuple[Any, str]:
        from fsspec.core import url_to_fs

        try:
            system, root = url_to_fs(self._pattern, skip_instance_cache=True, **self._options)
        except (ImportError, ValueError, TypeError) as error:
            raise SourceError(f"{self._pattern}: {error}; correct path or options") from error
        if getattr(system, "session", system) is None:
            system.session = _make_session(system.kwargs)
        return system, root


def _make_session(settings: Mapping[str, Any]) -> Any:
    """Return a session of S3 that parses the time of each file quickly: botocore takes most of a listing."""
    from aiobotocore.session import AioSession
    from botocore.utils import parse_timestamp

    def parse(text: Any) -> Any:
        try:
            return datetime.fromisoformat(text)
        except (TypeError, ValueError):
            return parse_timestamp(text)

    session = AioSession(**settings)
    session.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=parse)
    return session


class RemoteFiles:
    """The files of a pattern on an fsspec file system, which are downloaded into a temporary folder.

    The class implements `connectors.formats.files.folder.Files`. Several files are downloaded at once.

    Parameters
    ----------
    pattern : str
        An address with a shell pattern, such as ``s3://bucket/*.parquet``.
    options : mapping of str to object
        Arguments of the file system of fsspec.

    Raises
    ------
    MissingExtraError
        The package of this kind of address is not installed.
    SourceError
        fsspec does not know this kind of address or these options.
    """

    look_seconds = 10.0
    looks_again = False

    def __init__(self, pattern: str, options: Mapping[str, Any]) -> None:
        protocol = pattern.partition("://")[0]
        if protocol in _EXTRAS:
            _EXTRAS[protocol].require(f"Reading {protocol}://")
        if find_spec("fsspec") is None:
            raise MissingExtraError(f"Reading {protocol}://", "s3")
        self._pattern, self._options = pattern, options
        self._store = _Store(pattern, options)
        self._open()
        self._fetched = tempfile.TemporaryDirectory(prefix="blindsight-", ignore_cleanup_errors=True)
        self._known: dict[str, tuple[str, int]] = {}  # the mark of each file, and its size
        self._listing: _Call[dict[str, tuple[str, int]]] | None = None
        self._fetching: _Call[dict[str, Path]] | None = None
        self._here: dict[str, Path] = {}
        self._at_once = FILES_AT_ONCE
        self._folder = Path(self._fetched.name) / "0"
        self._count = self._lost = 0

    def _open(self) -> None:
        """Connect, and leave a store that is away, or does not answer at once, to the first listing."""

        def connect() -> None:
            with self._store.connected():
                pass

        call = _Call(connect)
        if call.ended(_OPEN_SECONDS):
            try:
                call.answer()
            except SourceError:
                raise
            except Exception as error:  # noqa: BLE001 - whatever the library raises, the store may come back
                message = _message_of(error)
                log.warning("%s cannot be connected, and is tried again: %s", self._pattern, message)

    @property
    def trouble(self) -> str | None:
        """The reason why no file can be read, if the store does not answer; otherwise None."""
        seconds = max(
            (call.silent_seconds for call in (self._listing, self._fetching) if call is not None), default=0.0
        )
        return self._silent(seconds) if seconds >= ANSWER_SECONDS else None

    def _silent(self, seconds: float) -> str:
        return f"{self._pattern} has not answered for {seconds:.0f} seconds; it is waited for"

    def _has_ended(self, call: _Call[Any], timeout_seconds: float) -> bool:
        """Return whether a call ends within the time limit.

        Raises
        ------
        SourceError
            It is given up, with the connection, because it has been silent for too long.
        """
        if call.ended(timeout_seconds):
            self._lost = 0
            return True
        seconds = call.silent_seconds
        if seconds < min(LOST_SECONDS * 2.0 ** min(self._lost, 20), LOST_LONGEST):
            return False
        self._lost += 1
        self._store = _Store(self._pattern, self._options)
        self._listing = self._fetching = None
        raise SourceError(f"{self._pattern} has not answered for {seconds:.0f} seconds; it is asked again")

    def marks(self, timeout_seconds: float) -> dict[str, str] | None:
        """List the files, and return the mark of each file by its name.

        A mark is a text that changes when the file changes. Return None if the listing has not ended in time;
        the listing continues, and the next call waits for its end.

        Parameters
        ----------
        timeout_seconds : float

        Raises
        ------
        SourceError
            The files cannot be listed.
        """
        if self._listing is None:
            store = self._store
            self._listing = _Call(lambda: self._list(store))
        if not self._has_ended(self._listing, timeout_seconds):
            return None
        listing, self._listing = self._listing, None
        try:
            self._known = listing.answer()
        except Exception as error:
            raise SourceError(f"{self._pattern} cannot be listed: {_message_of(error)}") from error
        return {name: mark for name, (mark, _) in self._known.items()}

    @staticmethod
    def _list(store: _Store) -> dict[str, tuple[str, int]]:
        with store.connected() as (system, root):
            system.invalidate_cache()
            files = system.glob(root, detail=True)
            system.invalidate_cache()  # else all that the store said of each file stays in memory
            return {
                system.unstrip_protocol(name): (_mark(info), int(info.get("size") or 0))
                for name, info in files.items()
                if info.get("type") == "file"
            }

    def mark(self, name: str) -> str | None:
        """Return the mark of a file from the last listing, or None if the file is not in the listing."""
        return self._known[name][0] if name in self._known else None

    def get(self, names: Sequence[str], timeout_seconds: float) -> Path | None:
        """Return the path of a downloaded copy of the first file, or None if the download needs more time.

        One download fetches the first file and some of the next files, up to 64 files or 64 MiB. A download
        that has not ended continues, and the next call waits for its end.

        Parameters
        ----------
        names : sequence of str
            Names of files, in the order in which they are wanted.
        timeout_seconds : float

        Raises
        ------
        SourceError
            The first file cannot be downloaded.
        """
        name = names[0]
        if name not in self._here:
            if self._fetching is None:
                self._fetching = self._fetch(self._some(names))
            if not self._has_ended(self._fetching, timeout_seconds):
                return None
            fetching, self._fetching = self._fetching, None
            try:
                self._here = fetching.answer()
                self._at_once = FILES_AT_ONCE
            except Exception as error:
                if self._at_once > 1:  # another file of this download may have failed
                    self._at_once = 1
                    return None
                raise SourceError(f"{name} cannot be fetched: {_message_of(error)}") from error
        return self._here.get(name)

    def _some(self, names: Sequence[str]) -> list[str]:
        """Return the files to download at once: the first, and others while their sum is small."""
        several, size = [names[0]], self._known.get(names[0], ("", 0))[1]
        for name in names[1 : self._at_once]:
            size += self._known.get(name, ("", _BYTES_AT_ONCE))[1]
            if size > _BYTES_AT_ONCE:
                break
            several.append(name)
        return several

    def _fetch(self, names: Sequence[str]) -> _Call[dict[str, Path]]:
        """Begin to fetch files into a new folder, in place of all that was fetched before."""
        self._here = {}
        shutil.rmtree(self._folder, ignore_errors=True)
        self._count += 1
        self._folder = folder = Path(self._fetched.name) / str(self._count)
        folder.mkdir()
        # Numbered, because several folders may hold the same name; the extension shows the kind of a file.
        here = {name: folder / f"{i}{_end(name)}" for i, name in enumerate(names)}
        store, sizes = self._store, {name: self._known.get(name, ("", 0))[1] for name in names}

        def fetch() -> dict[str, Path]:
            with store.connected() as (system, _):
                system.get([system._strip_protocol(name) for name in here], [*map(str, here.values())])
            for name, path in here.items():
                if (size := path.stat().st_size) < sizes[name]:  # some stores do not notice
                    raise SourceError(f"only {size} of its {sizes[name]} bytes came")
            return here

        return _Call(fetch, lambda: _bytes_in(folder))

    def release(self, name: str) -> None:
        """Remove the downloaded copy of a file that has been read."""
        path = self._here.pop(name, None)
        if path is not None:
            path.unlink(missing_ok=True)

    def close(self) -> None:
        """Remove the temporary folder with the downloaded files."""
        self._fetched.cleanup()


def _bytes_in(folder: Path) -> int:
    """Return the size of what has come so far."""
    try:
        with os.scandir(folder) as entries:
            return sum(entry.stat().st_size for entry in entries)
    except OSError:
        return 0


def _end(name: str) -> str:
    """Return the last two suffixes of a file name, such as ``.csv.gz``."""
    return "".join(Path(name).suffixes[-2:])


def _message_of(error: Exception) -> str:
    return str(error).rstrip(".") or type(error).__name__


def _mark(info: Mapping[str, Any]) -> str:
    """Return the size of a file with its tag or the time of its last change."""
    known = (info.get(key) for key in ("ETag", "etag", "mtime", "LastModified", "updated", "created"))
    return f"{info.get('size')} {next((each for each in known if each), '')}"

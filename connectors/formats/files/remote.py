"""Tables at addresses of fsspec, which are downloaded into a temporary folder and read from there."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

from monitor.base.errors import MissingExtraError, SourceError
from monitor.base.registry import Extra

Answer = TypeVar("Answer")

ANSWER_SECONDS = 20.0
"""The time without an answer after which a store counts as down; the agent keeps waiting."""
FILES_AT_ONCE, _BYTES_AT_ONCE = 64, 64 << 20
_EXTRAS = {
    **dict.fromkeys(("s3", "s3a"), Extra("s3", ("fsspec", "s3fs"))),
    **dict.fromkeys(("gs", "gcs"), Extra("gs", ("fsspec", "gcsfs"))),
}


def is_address(path: str) -> bool:
    """Return whether a path is an address on another file system, such as ``s3://bucket/*.parquet``."""
    return "://" in path


class _Call(Generic[Answer]):
    """A call of a library in a thread of its own, so that a call that hangs delays nothing else."""

    def __init__(self, function: Callable[[], Answer]) -> None:
        self._function = function
        self._answer: Answer | None = None
        self._error: Exception | None = None
        self._began = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="fetches files", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._answer = self._function()
        except Exception as error:  # noqa: BLE001 - `answer` raises it
            self._error = error

    @property
    def seconds(self) -> float:
        """The time since the start of the call."""
        return time.monotonic() - self._began

    def ended(self, timeout_seconds: float) -> bool:
        """Wait for the end of the call, and return whether it ended in time."""
        self._thread.join(timeout_seconds)
        return not self._thread.is_alive()

    def answer(self) -> Answer:
        """Return the result of the call, or raise its exception."""
        if self._error is not None:
            raise self._error
        return self._answer  # type: ignore[return-value]


class RemoteFiles:
    """The files of a pattern on an fsspec file system; several files are downloaded at once.

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
        try:
            from fsspec.core import url_to_fs
        except ImportError as error:
            raise MissingExtraError(f"Reading {protocol}://", "s3") from error
        try:
            self._fs, self._root = url_to_fs(pattern, **options)
        except (ImportError, ValueError, TypeError) as error:
            raise SourceError(f"{pattern}: {error}; correct path or options") from error
        self._pattern, self._fetched = (
            pattern,
            tempfile.TemporaryDirectory(prefix="blindsight-", ignore_cleanup_errors=True),
        )
        self._known: dict[str, tuple[str, int]] = {}  # mark and size of each file
        self._listing: _Call[dict[str, tuple[str, int]]] | None = None
        self._fetching: _Call[dict[str, Path]] | None = None
        self._here: dict[str, Path] = {}
        self._at_once = FILES_AT_ONCE
        self._count = 0

    @property
    def trouble(self) -> str | None:
        """The reason for which no file comes, if the store does not answer."""
        seconds = max(
            (call.seconds for call in (self._listing, self._fetching) if call is not None), default=0.0
        )
        if seconds < ANSWER_SECONDS:
            return None
        return f"{self._pattern} has not answered for {seconds:.0f} seconds; it is waited for"

    def marks(self, timeout_seconds: float) -> dict[str, str] | None:
        """Return the mark of each file from a new listing, or None if the listing has not ended in time."""
        if self._listing is None:
            self._listing = _Call(self._list)
        if not self._listing.ended(timeout_seconds):
            return None
        listing, self._listing = self._listing, None
        try:
            self._known = listing.answer()
        except Exception as error:
            raise SourceError(f"{self._pattern} cannot be listed: {_message_of(error)}") from error
        return {name: mark for name, (mark, _) in self._known.items()}

    def _list(self) -> dict[str, tuple[str, int]]:
        self._fs.invalidate_cache()
        entries = self._fs.glob(self._root, detail=True)
        files = {name: info for name, info in entries.items() if info.get("type") == "file"}
        return {
            self._fs.unstrip_protocol(name): (_mark(info), int(info.get("size") or 0))
            for name, info in files.items()
        }

    def mark(self, name: str) -> str | None:
        """Return the mark of a file in the last listing, or None."""
        return self._known[name][0] if name in self._known else None

    def get(self, names: Sequence[str], timeout_seconds: float) -> Path | None:
        """Return the first file, or None if its download has not ended in time; download others with it."""
        name = names[0]
        if name not in self._here:
            if self._fetching is None:
                self._remove_all()
                several = self._some(names)
                self._fetching = _Call(lambda: self._fetch(several))
            if not self._fetching.ended(timeout_seconds):
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

    def _fetch(self, names: Sequence[str]) -> dict[str, Path]:
        self._count += 1
        folder = Path(self._fetched.name) / str(self._count)
        folder.mkdir()
        # Numbered, because several folders may hold the same name; the extension shows the kind of a file.
        here = {name: folder / f"{i}{_end(name)}" for i, name in enumerate(names)}
        self._fs.get([self._fs._strip_protocol(name) for name in here], [str(path) for path in here.values()])
        return here

    def release(self, name: str) -> None:
        """Remove a downloaded file."""
        path = self._here.pop(name, None)
        if path is not None:
            path.unlink(missing_ok=True)

    def _remove_all(self) -> None:
        for name in [*self._here]:
            self.release(name)

    def close(self) -> None:
        """Remove the temporary folder."""
        self._fetched.cleanup()


def _end(name: str) -> str:
    """Return the last two suffixes of a file name, such as ``.csv.gz``."""
    return "".join(Path(name).suffixes[-2:])


def _message_of(error: Exception) -> str:
    return str(error).rstrip(".") or type(error).__name__


def _mark(info: Mapping[str, Any]) -> str:
    """Return the size of a file with its tag or the time of its last change."""
    known = (info.get(key) for key in ("ETag", "etag", "mtime", "LastModified", "updated", "created"))
    return f"{info.get('size')} {next((each for each in known if each), '')}"

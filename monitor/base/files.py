"""Atomic writes of files, and reads of files that contain a secret."""

from __future__ import annotations

import os
from pathlib import Path

from monitor.base.errors import SourceError

_MOST_SECRET_BYTES = 16 << 10


def put(path: Path, data: bytes) -> None:
    """Write or replace a file atomically. Only its owner can read it.

    The data is first written to a temporary file in the same folder. This file always has the same name, so
    two processes must not write one file at the same time.

    Raises
    ------
    OSError
        The file cannot be written. If it existed before, it is unchanged.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "mark"
    >>> put(path, b"7")
    >>> path.read_bytes(), [each.name for each in path.parent.iterdir()]
    (b'7', ['mark'])
    """
    aside = path.with_name(f".{path.name}.unfinished")
    try:
        number = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(number, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(number)
        place(aside, path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise


def place(aside: Path, path: Path) -> None:
    """Rename a synced file to `path`, and sync the folder. Both paths must be in the same folder."""
    aside.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Wait until the changes of a folder's entries are written to the disk (fsync)."""
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def read_secret(key: str, path: str) -> str:
    """Return the text of a file with a single line, such as a password, without the newline.

    Parameters
    ----------
    key : str
        The key of the configuration that names the file, for error messages.
    path : str

    Raises
    ------
    SourceError
        The file cannot be read, or does not contain exactly one line of text.
    """
    problem = f"{key}: {path} cannot be used"
    try:
        with Path(path).open("rb") as file:
            text = file.read(_MOST_SECRET_BYTES + 1).decode().rstrip("\r\n")
    except OSError as error:
        raise SourceError(f"{problem}: {error.strerror or error}; give a file that holds it") from error
    except UnicodeDecodeError:  # the text of this error would quote bytes of the secret
        raise SourceError(f"{problem}: it is no text; give a file that holds it in UTF-8") from None
    if not text or len(text) > _MOST_SECRET_BYTES or "\n" in text:
        raise SourceError(f"{problem}: it is empty, or more than one line; give a file that holds it alone")
    return text

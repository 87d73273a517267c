"""Files that are whole or not there, whatever is killed and when; and those that hold a secret."""

from __future__ import annotations

import os
from pathlib import Path

from monitor.base.errors import SourceError

_MOST_SECRET_BYTES = 16 << 10


def put(path: Path, data: bytes) -> None:
    """Write a file that only its owner may read, in place of any of that name.

    It is written aside, under one name, so that two must not write the same file at once.

    Raises
    ------
    OSError
        It cannot be written; what was there before is still there.

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
    """Give a file that is on the disk its name, for good; both are in one folder."""
    aside.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Wait until a folder's names are on the disk."""
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def read_secret(key: str, path: str) -> str:
    """The one line of text that a file holds, such as a password, without the newline at its end.

    Parameters
    ----------
    key : str
        The configuration's, to name it by.
    path : str

    Raises
    ------
    SourceError
        The file cannot be read, or holds no single line of text; the sentence names key and file.
    """
    told = f"{key}: {path} cannot be used"
    try:
        with Path(path).open("rb") as file:
            text = file.read(_MOST_SECRET_BYTES + 1).decode().rstrip("\r\n")
    except OSError as error:
        raise SourceError(f"{told}: {error.strerror or error}; give a file that holds it") from error
    except UnicodeDecodeError:  # it quotes bytes of a secret
        raise SourceError(f"{told}: it is no text; give a file that holds it in UTF-8") from None
    if not text or len(text) > _MOST_SECRET_BYTES or "\n" in text:
        raise SourceError(f"{told}: it is empty, or more than one line; give a file that holds it alone")
    return text

"""Passwords for Kafka that lie in files: read for each client that is made, so that renewed ones count."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from monitor.base.errors import SourceError

SECRET_FILES: Mapping[str, str] = {
    "sasl_plain_password_file": "sasl_plain_password",
    "ssl_password_file": "ssl_password",
}
"""Options of ours, and the option of the client that the file's content becomes."""

_MOST_BYTES = 16 << 10


def with_secrets(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options with the contents of files in place of their paths.

    A newline at the end of a file is none of the password.

    Parameters
    ----------
    options : mapping of str to object

    Raises
    ------
    SourceError
        A file cannot be read, or holds no single line of text; the sentence names option and file.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "password"
    >>> _ = path.write_text("secret\\n")
    >>> with_secrets({"sasl_plain_username": "agent", "sasl_plain_password_file": str(path)})
    {'sasl_plain_username': 'agent', 'sasl_plain_password': 'secret'}
    """
    found = {key: value for key, value in options.items() if key not in SECRET_FILES}
    for key, becomes in SECRET_FILES.items():
        if options.get(key) is not None:
            found[becomes] = _read(key, str(options[key]))
    return found


def _read(key: str, path: str) -> str:
    told = f"options.{key}: {path} cannot be used"
    try:
        with Path(path).open("rb") as file:
            text = file.read(_MOST_BYTES + 1).decode().rstrip("\r\n")
    except OSError as error:
        raise SourceError(f"{told}: {error.strerror or error}; give a file that holds it") from error
    except UnicodeDecodeError:  # it quotes bytes of a secret
        raise SourceError(f"{told}: it is no text; give a file that holds it in UTF-8") from None
    if not text or len(text) > _MOST_BYTES or "\n" in text:
        raise SourceError(f"{told}: it is empty, or more than one line; give a file that holds it alone")
    return text

"""Passwords for Kafka that lie in files: read for each client that is made, so that renewed ones count."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from monitor.base.files import read_secret

SECRET_FILES: Mapping[str, str] = {
    "sasl_plain_password_file": "sasl_plain_password",
    "ssl_password_file": "ssl_password",
}
"""Options of ours, and the option of the client that the file's content becomes."""


def with_secrets(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options with the contents of files in place of their paths.

    A newline at the end of a file is none of the password.

    Raises
    ------
    SourceError
        A file cannot be read, or holds no single line of text; the sentence names option and file.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "password"
    >>> _ = path.write_text("secret\\n")
    >>> with_secrets({"sasl_plain_username": "agent", "sasl_plain_password_file": str(path)})
    {'sasl_plain_username': 'agent', 'sasl_plain_password': 'secret'}
    """
    found = {key: value for key, value in options.items() if key not in SECRET_FILES}
    for key, becomes in SECRET_FILES.items():
        if options.get(key) is not None:
            found[becomes] = read_secret(f"options.{key}", str(options[key]))
    return found

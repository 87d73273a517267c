"""Requests of the agent to other servers: login, certificates, and messages for failures."""

from __future__ import annotations

import base64
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from types import MappingProxyType
from typing import Any

from monitor.base.errors import SinkError
from monitor.config.access import ClientTls, HttpAccess

_MOST_SECRET_BYTES = 16 << 10
_MOST_ANSWER_BYTES = 64 << 10
_SHOWN_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The words with which error messages describe requests to a server and the settings of the requests.

    Parameters
    ----------
    section : str
        The section of the configuration with the settings of the requests.
    key : str
        The key of the address in that section.
    items : str
        The name of the sent items.
    remedy : str
        The advice to the user if the server refuses a request.
    """

    section: str
    key: str
    items: str
    remedy: str


class Access:
    """An HTTP client that posts with the login and the certificates of the configuration.

    The files of secrets and certificates are read for each request, so a renewed file takes effect at once.
    Data and secrets are sent only to the configured address: redirections are not followed, and proxies of
    the environment are not used.

    Parameters
    ----------
    settings : HttpAccess
    endpoint : Endpoint
    """

    def __init__(self, settings: HttpAccess, endpoint: Endpoint) -> None:
        self._settings, self._endpoint = settings, endpoint

    def check(self) -> None:
        """Check that every file can be used now.

        Raises
        ------
        SinkError
            A file cannot be used; the message names the file and its key.
        """
        self._headers()
        if self._settings.tls is not None:
            self._context()

    def post(
        self,
        url: str,
        body: bytes,
        timeout_seconds: float,
        *,
        path: str = "",
        headers: Mapping[str, str] = MappingProxyType({"Content-Type": "application/json"}),
    ) -> bytes:
        """Post `body` to the address `url` followed by `path`, and return the beginning of the answer.

        Raises
        ------
        SinkError
            A file cannot be used; or the server does not answer, is not trusted, or refuses the request.
        """
        request = urllib.request.Request(url + path, data=body, headers={**self._headers(), **headers})
        handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({}), _NoRedirection()]
        if url.startswith("https:"):
            handlers.append(urllib.request.HTTPSHandler(context=self._context()))
        try:
            with urllib.request.build_opener(*handlers).open(request, timeout=timeout_seconds) as answer:
                return bytes(answer.read(_MOST_ANSWER_BYTES))
        except urllib.error.HTTPError as error:
            raise SinkError(self._refused(url, error.code, _reason_of(error))) from error
        except (OSError, HTTPException) as error:
            raise SinkError(self._unanswered(url, error)) from error

    def _headers(self) -> dict[str, str]:
        settings = self._settings
        headers = dict(settings.headers)
        if settings.token_file is not None:
            token = self._secret("token_file", settings.token_file)
            if not token.isascii():
                why = ValueError("it holds more than ASCII")
                raise self._unusable("token_file", settings.token_file, why, "a file with the token alone")
            headers["Authorization"] = f"Bearer {token}"
        if settings.basic_auth is not None:
            password = self._secret("basic_auth.password_file", settings.basic_auth.password_file)
            login = f"{settings.basic_auth.username}:{password}".encode()
            headers["Authorization"] = f"Basic {base64.b64encode(login).decode('ascii')}"
        return headers

    def _context(self) -> ssl.SSLContext:
        tls = self._settings.tls or ClientTls.model_construct()
        try:
            context = ssl.create_default_context(cafile=tls.ca)
        except (OSError, ValueError) as error:
            raise self._unusable("tls.ca", str(tls.ca), error, "a PEM file of certificates") from error
        if tls.cert is None:
            return context
        try:
            # Without this, a key with a passphrase would ask for it at the terminal, and wait.
            context.load_cert_chain(tls.cert, tls.key, password=lambda: "")
        except (OSError, ValueError) as error:
            wanted = "PEM files that belong together, the key without a passphrase"
            raise self._unusable("tls.cert", f"{tls.cert} with the key {tls.key}", error, wanted) from error
        return context

    def _secret(self, key: str, path: str) -> str:
        """Return the content of a file, without the white space around it."""
        try:
            with Path(path).open("rb") as file:
                text = file.read(_MOST_SECRET_BYTES + 1).decode().strip()
        except (OSError, ValueError) as error:
            raise self._unusable(key, path, error, "a file with one line of text") from error
        if not text or len(text) > _MOST_SECRET_BYTES or not text.isprintable():
            why = ValueError("it is empty, or more than one line")
            raise self._unusable(key, path, why, "a file with one line")
        return text

    def _unusable(self, key: str, what: str, error: Exception, wanted: str) -> SinkError:
        if isinstance(error, UnicodeError):  # its text quotes the bytes of the secret
            why = "it is no text"
        else:
            why = str(getattr(error, "reason", None) or getattr(error, "strerror", None) or error)
        return SinkError(f"{self._endpoint.section}.{key}: {what} cannot be used: {why}; give {wanted}")

    def _refused(self, address: str, status: int, reason: str) -> str:
        setting = f"{self._endpoint.section}.{self._endpoint.key}: {address}"
        if status in (401, 403):
            return (
                f"{setting} refuses the login ({status}: {reason}); correct token_file, basic_auth or headers"
            )
        if 300 <= status < 400:
            return f"{setting} sends us elsewhere ({status}), which is not followed; give the address itself"
        return (
            f"{setting} refuses {self._endpoint.items} ({status}: {reason}); correct {self._endpoint.remedy}"
        )

    def _unanswered(self, address: str, error: OSError | HTTPException) -> str:
        why: Any = error.reason if isinstance(error, urllib.error.URLError) else error
        setting = f"{self._endpoint.section}.{self._endpoint.key}: {address}"
        if isinstance(why, ssl.SSLCertVerificationError):
            return (
                f"{setting} is not trusted ({why.verify_message}); give who signs its certificate as tls.ca"
            )
        if isinstance(why, ssl.SSLError):
            return (
                f"{setting} and we do not agree on TLS ({why.reason or why}); see tls.cert, and http or https"
            )
        return f"{setting} does not answer ({why}); start it, or correct the address"


def _reason_of(error: urllib.error.HTTPError) -> str:
    """Return the beginning of an error's body in one line, or the reason phrase if there is no body.

    A server that closes the connection before it has read the whole request may reset it, so the body may
    not arrive.
    """
    with error:
        try:
            body = error.read(_SHOWN_CHARACTERS).decode("utf-8", "replace")
        except (OSError, HTTPException):
            body = ""
    text = "".join(c if c.isprintable() else " " for c in body or error.reason)
    return " ".join(text.split())


class _NoRedirection(urllib.request.HTTPRedirectHandler):
    """A handler that turns redirections into errors."""

    def redirect_request(self, *_: object) -> None:
        """Return None, so that the response remains an error."""
        return

"""Makes the server's TLS context from files: its certificate, and authorities for clients' certificates."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable

from monitor.base.errors import SourceError
from monitor.config.http import HttpTls
from monitor.export.http.reloaded_file import ReloadedFile


def watched_context(
    settings: HttpTls, clock: Callable[[], float] = time.monotonic
) -> ReloadedFile[ssl.SSLContext]:
    """Return the TLS context for new connections, reloaded when its files change.

    Existing connections keep their certificate.

    Raises
    ------
    SourceError
        A file cannot be used; the message names it.
    """
    paths = [path for path in (settings.cert, settings.key, settings.client_ca) if path]
    return ReloadedFile(paths, lambda: _context(settings), clock)


def _context(settings: HttpTls) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # Without this, a key with a passphrase would ask for it at the terminal, and wait.
        context.load_cert_chain(settings.cert, settings.key, password=lambda: "")
    except (OSError, ValueError) as error:
        raise SourceError(
            f"tls: the certificate {settings.cert} and the key {settings.key} cannot be used: "
            f"{_reason(error)}; give PEM files that belong together, the key without a passphrase."
        ) from error
    if settings.client_ca is None:
        return context
    try:
        context.load_verify_locations(cafile=settings.client_ca)
    except (OSError, ValueError) as error:
        raise SourceError(
            f"tls.client_ca: {settings.client_ca} cannot be used: {_reason(error)}; give a PEM file of "
            "certificates."
        ) from error
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def _reason(error: Exception) -> str:
    return str(getattr(error, "reason", None) or getattr(error, "strerror", None) or error)

"""Functions that open a socket to listen on an address, and messages for an address that cannot be used."""

from __future__ import annotations

import errno
import socket

from monitor.base.errors import ConfigError
from monitor.config.section import listen_address

_QUEUE = 1024  # connections that wait to be accepted; beyond that, clients retry only after a second


def bind(host: str, port: int) -> socket.socket:
    """Return a socket that listens on an address.

    Raises
    ------
    OSError
        The address cannot be used. `cannot_listen` returns the reason.
    """
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    bound = socket.socket(family, kind, protocol)
    try:
        # A restart must not wait for TIME_WAIT of old connections; a port in use is still refused.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(_QUEUE)
    except OSError:
        bound.close()
        raise
    return bound


def cannot_listen(listen: str, error: OSError, key: str = "export.listen") -> str:
    """Return a sentence with the reason why an address cannot be used, and a remedy.

    `key` is the key of the address in the configuration.

    Examples
    --------
    >>> cannot_listen("127.0.0.1:80", PermissionError(13, "Permission denied"))
    'export.listen: cannot listen on 127.0.0.1:80: this user may not use the port; take one from 1024 on'
    """
    if isinstance(error, socket.gaierror):
        why = "the host name is not known; give an address of this machine, such as 127.0.0.1 or 0.0.0.0"
    elif error.errno == errno.EADDRINUSE:
        why = "the port is in use; stop the program that has it, or take another port (0 takes a free one)"
    elif error.errno in (errno.EACCES, errno.EPERM):
        why = "this user may not use the port; take one from 1024 on"
    elif error.errno == errno.EADDRNOTAVAIL:
        why = "this machine has no such address; give one of its own, such as 127.0.0.1 or 0.0.0.0"
    else:
        why = f"{error.strerror or error}; give another address or port"
    return f"{key}: cannot listen on {listen}: {why}"


def parse_listen(listen: str, key: str = "export.listen") -> tuple[str, int]:
    """Return host and port of an address to listen on.

    Raises
    ------
    ConfigError
        The address does not have the form ``host:port``.

    Examples
    --------
    >>> parse_listen("127.0.0.1:9109"), parse_listen("[::1]:0")
    (('127.0.0.1', 9109), ('::1', 0))
    """
    try:
        return listen_address(listen)
    except ValueError as error:
        raise ConfigError(
            f"{key}: expected host:port, such as 127.0.0.1:9109, 0.0.0.0:9109 or [::1]:9109, "
            f"with a port from 0 to 65535, got {listen!r}"
        ) from error

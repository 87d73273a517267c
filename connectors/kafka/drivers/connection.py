"""Construction of a consumer of kafka-python, even if no broker is reachable at first.

The constructor of kafka-python's consumer blocks until a broker answers, and raises an error after some time.
A `BrokerConnection` therefore calls the constructor in a thread of its own until it succeeds. A source can
open at once, and begins to read as soon as a broker is reachable.
"""

from __future__ import annotations

import logging
import re
import socket
import ssl
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from kafka import KafkaConsumer
from kafka.errors import KafkaError, SaslAuthenticationFailedError
from kafka.net.compat import KafkaNetClient

from connectors.kafka.drivers.errors import is_transient
from monitor.base.files import read_secret

log = logging.getLogger(__name__)

PROBE_SECONDS = 1.0
"""The time limit for each test connection of `why_away`, in seconds."""
_ALERT_SECONDS = 0.3

Receive = Callable[[], tuple[bytes, Exception | None]]
"""A function that returns the bytes that a socket has received, and the error that ended its connection."""

_HOST_PORT = re.compile(r"(\[.+\]|[^:]+)(?::(\d+))?")


class BrokerConnection:
    """A consumer of kafka-python and its network client. A background thread constructs the consumer.

    Parameters
    ----------
    options : mapping of str to object
        Keyword arguments of `KafkaConsumer`.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = dict(options)
        self._finished = threading.Event()
        self._stopped = threading.Event()
        self._consumer: KafkaConsumer | None = None
        self._error: Exception | None = None
        self._client: KafkaNetClient | None = None
        self._thread = threading.Thread(target=self._run, name="kafka-connect", daemon=True)
        self._thread.start()

    @property
    def client(self) -> KafkaNetClient:
        """The network client of the consumer, which knows the connected brokers and the topics."""
        assert self._client is not None, "there is no client before the consumer"
        return self._client

    def consumer(self, timeout_seconds: float) -> KafkaConsumer | None:
        """Wait for the consumer and return it, or return None if no broker has answered in time.

        Raises
        ------
        Exception
            The error of kafka-python, if another attempt to connect would fail too.
        """
        if not self._finished.wait(timeout_seconds):
            return None
        if self._error is not None:
            raise self._error
        return self._consumer

    def close(self, timeout_seconds: float) -> None:
        """Stop the attempts to connect, or close the consumer if it exists.

        The consumer leaves its group without a commit.
        """
        self._stopped.set()
        if self._consumer is not None:
            try:
                self._consumer.close(autocommit=False, timeout_ms=int(1000 * timeout_seconds))
            except KafkaError as error:
                log.warning("The consumer could not leave its group in order: %s", error)
        self._close_client()  # kafka-python leaves it open if the consumer could not leave its group
        self._thread.join(timeout_seconds)

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self._consumer = self._build()
            except Exception as error:  # noqa: BLE001 - passed to the reading thread
                if is_transient(error) or self._stopped.is_set():
                    self._stopped.wait(0.1)
                    continue
                self._error = error
            self._finished.set()
            return

    def _build(self) -> KafkaConsumer:
        try:
            return KafkaConsumer(kafka_client=self._keep_client, **self._options)
        except BaseException:
            # A consumer whose constructor failed leaves its thread and sockets open.
            self._close_client()
            raise

    def _close_client(self) -> None:
        if self._client is not None:
            with suppress(RuntimeError):  # the other thread has closed it: "NetworkSelector closed!"
                self._client.close()

    def _keep_client(self, **config: Any) -> KafkaNetClient:
        self._client = new_client(config, self._on_refused)
        return self._client

    def _on_refused(self, error: Exception) -> None:
        """Pass a refused login to the reading thread; kafka-python would only try to log in again."""
        self._error = error
        self._stopped.set()
        self._finished.set()


def new_client(config: Mapping[str, Any], on_refused: Callable[[Exception], None]) -> KafkaNetClient:
    """Return a network client for a consumer or a producer that is being constructed.

    Parameters
    ----------
    config : mapping of str to object
    on_refused : callable
        Called with the error if a broker refuses the login. kafka-python itself only logs the error and
        connects again.
    """
    client = KafkaNetClient(**config)
    # kafka-python 3.0 does not pass this option on to its metadata requests, so that the brokers would create
    # a topic with a misspelt name.
    client.cluster.config["allow_auto_create_topics"] = False
    manager = client._manager
    make_connection = manager.get_connection

    def get_connection(*args: Any, **keywords: Any) -> Any:
        connection = make_connection(*args, **keywords)
        if not connection.init_future.is_done:
            connection.init_future.add_errback(report_refusal)
        return connection

    def report_refusal(error: Exception) -> None:
        if isinstance(error, SaslAuthenticationFailedError):
            on_refused(error)

    manager.get_connection = get_connection
    build = manager._build_transport

    async def build_transport(*args: Any, **keywords: Any) -> Any:
        transport = await build(*args, **keywords)
        transport._sock_recv = _keep_last_bytes(transport._sock_recv)
        return transport

    manager._build_transport = build_transport
    return client


def _keep_last_bytes(receive: Receive) -> Receive:
    """Return a version of `receive` that reports the end of a connection after the last bytes.

    kafka-python drops the bytes that it receives together with the end of a connection. Brokers answer a
    wrong password and close the connection at once, so the refusal would be lost.
    """

    def receive_and_keep() -> tuple[bytes, Exception | None]:
        data, error = receive()
        return data, None if data else error

    return receive_and_keep


def why_away(brokers: Sequence[str], options: Mapping[str, Any]) -> str:
    """Return the reasons why no broker answers, as a text for an error message.

    The function connects to each broker, and makes a TLS handshake if the options ask for TLS.

    Parameters
    ----------
    brokers : sequence of str
        Addresses as ``host:port``. Each attempt takes a few seconds at most.
    options : mapping of str to object
        The configured options, such as `security_protocol` and the certificates.
    """
    return "; ".join(_why_away(broker, options) for broker in brokers)


def _why_away(broker: str, options: Mapping[str, Any]) -> str:
    match = _HOST_PORT.fullmatch(broker)
    host, port = (match[1].strip("[]"), int(match[2] or 9092)) if match else (broker, 9092)
    protocol = str(options.get("security_protocol", "PLAINTEXT"))
    message = f"{broker} takes connections, but not as Kafka with security_protocol {protocol}"
    if "SASL" in protocol:
        message += ", or refuses the login"  # a broker may hang up before its refusal is read
    try:
        bare = socket.create_connection((host, port), timeout=PROBE_SECONDS)
    except OSError as error:
        return f"{broker}: {error.strerror or error}"
    with bare:
        try:
            if "SSL" in protocol:
                _shake_hands(bare, host, options)
        except ssl.SSLCertVerificationError as error:
            return f"{broker} is not trusted: {error.verify_message}; see options.ssl_cafile"
        except OSError as error:
            return f"{message}: {getattr(error, 'reason', None) or error.strerror or error}"
    return message


def _shake_hands(bare: socket.socket, host: str, options: Mapping[str, Any]) -> None:
    """Make a TLS handshake with the same settings as the clients; raise OSError if it fails."""
    context = ssl.create_default_context(cafile=options.get("ssl_cafile"))
    context.check_hostname = bool(options.get("ssl_check_hostname", True))
    if options.get("ssl_certfile"):
        password = with_secrets(options).get("ssl_password")
        context.load_cert_chain(options["ssl_certfile"], options.get("ssl_keyfile"), lambda: password or "")
    with context.wrap_socket(bare, server_hostname=host) as secure:
        secure.settimeout(_ALERT_SECONDS)
        with suppress(TimeoutError):
            secure.recv(1)  # a server asks for a client's certificate only after the handshake


SECRET_FILES: Mapping[str, str] = {
    "sasl_plain_password_file": "sasl_plain_password",
    "ssl_password_file": "ssl_password",
}
"""The options that name a password file, each with the client's option that gets the content of the file."""


def with_secrets(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options, with the path of each password file replaced by the file's content.

    A newline at the end of a file is not a part of the password.

    Raises
    ------
    SourceError
        A file cannot be read, or does not hold a single line of text; the message names the option and the
        file.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "password"
    >>> _ = path.write_text("secret\\n")
    >>> with_secrets({"sasl_plain_username": "agent", "sasl_plain_password_file": str(path)})
    {'sasl_plain_username': 'agent', 'sasl_plain_password': 'secret'}
    """
    result = {key: value for key, value in options.items() if key not in SECRET_FILES}
    for key, plain in SECRET_FILES.items():
        if options.get(key) is not None:
            result[plain] = read_secret(f"options.{key}", str(options[key]))
    return result

"""Building a consumer while the brokers may be away.

kafka-python's consumer blocks in its constructor until a broker has answered, and gives up after a
time. Here that happens in a thread of its own, over and over, so that a source opens at once and is
up as soon as a broker is.
"""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from kafka import KafkaConsumer
from kafka.net.compat import KafkaNetClient

from connectors.kafka.errors import passes

PROBE_SECONDS = 1.0

_HOST_PORT = re.compile(r"(\[.+\]|[^:]+)(?::(\d+))?")


class Connection:
    """A consumer in the making, and the network client below it.

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
        """The network client of the consumer: what is connected, and what the brokers said of topics."""
        assert self._client is not None, "there is no client before the consumer"
        return self._client

    def consumer(self, timeout_seconds: float) -> KafkaConsumer | None:
        """The consumer once a broker has answered; None where none has within the time.

        Raises
        ------
        Exception
            What kafka-python raised, where trying again would not help.
        """
        if not self._finished.wait(timeout_seconds):
            return None
        if self._error is not None:
            raise self._error
        return self._consumer

    def close(self, timeout_seconds: float) -> None:
        """Stop trying, or close the consumer; leaves the group without committing."""
        self._stopped.set()
        if self._consumer is not None:
            self._consumer.close(autocommit=False, timeout_ms=int(1000 * timeout_seconds))
        elif self._client is not None:
            self._client.close()
        self._thread.join(timeout_seconds)

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self._consumer = self._build()
            except Exception as error:  # noqa: BLE001 - handed to the thread that reads
                if passes(error) or self._stopped.is_set():
                    self._stopped.wait(0.1)
                    continue
                self._error = error
            self._finished.set()
            return

    def _build(self) -> KafkaConsumer:
        try:
            return KafkaConsumer(kafka_client=self._keep_client, **self._options)
        except BaseException:
            # A consumer that could not be built leaves its thread and sockets behind.
            if self._client is not None:
                self._client.close()
            raise

    def _keep_client(self, **config: Any) -> KafkaNetClient:
        self._client = KafkaNetClient(**config)
        # kafka-python 3.0 does not hand the option of this name on to where it counts, and a
        # misspelt topic would come into being on the brokers.
        self._client.cluster.config["allow_auto_create_topics"] = False
        return self._client


def why_away(brokers: Sequence[str], protocol: str) -> str:
    """Why no broker answers, as far as a bare connection can tell, for a message.

    Parameters
    ----------
    brokers : sequence of str
        ``host:port``; each is tried for at most a second.
    protocol : str
        The `security_protocol` in use.
    """
    reasons = []
    for broker in brokers:
        found = _HOST_PORT.fullmatch(broker)
        host, port = (found[1].strip("[]"), int(found[2] or 9092)) if found else (broker, 9092)
        try:
            with socket.create_connection((host, port), timeout=PROBE_SECONDS):
                reasons.append(
                    f"{broker} takes connections, but not as Kafka with security_protocol {protocol}"
                )
        except OSError as error:
            reasons.append(f"{broker}: {error.strerror or error}")
    return "; ".join(reasons)

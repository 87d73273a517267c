"""Sending to a topic, each message once."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from kafka import KafkaProducer
from kafka.errors import KafkaTimeoutError, MessageSizeTooLargeError

from connectors.kafka.drivers.options import check_files
from connectors.kafka.sink.clients import close_producer, explain_sink, make, place_of
from connectors.kafka.sink.producer_options import producer_options
from monitor.base.errors import SinkError, SourceError
from monitor.config.root import KafkaSink

_WAIT_SECONDS = 3.0  # for the brokers to acknowledge what was sent; then it is told, and waited for on
_LOOK_SECONDS = 0.01


@dataclass(frozen=True, slots=True)
class Message:
    """A message to be sent."""

    key: bytes
    value: bytes
    headers: list[tuple[str, bytes]] = field(default_factory=list)


@dataclass(slots=True)
class _Sent:
    """A message on its way; `future` is None before it is sent, or where it must be sent again."""

    message: Message
    future: Any = None
    done: bool = False
    refused: bool = False


class Topic:
    """Sends messages to a topic, each once: idempotent, acknowledged by all replicas, in the key's order.

    Messages are held and tried for ever, under the numbers by which brokers drop repetitions; the next ones
    are only sent after these. Used by one thread, `interrupt` by another.

    Parameters
    ----------
    settings : KafkaSink
    setting : str
        The section's path in the configuration, for messages.

    Raises
    ------
    ConfigError
        The options cannot be used.
    """

    def __init__(self, settings: KafkaSink, setting: str) -> None:
        self.settings = settings
        self.setting = setting
        self.interrupted = threading.Event()
        self.refused = 0
        self._options = producer_options(settings, setting)
        self._producer: KafkaProducer | None = None
        self._sent: list[_Sent] = []
        self._singly = False

    def check(self) -> None:
        """See that the certificates are there; raises `SinkError`."""
        try:
            check_files(self._options)
        except SourceError as error:
            raise SinkError(f"{self.setting}.{error}") from error

    @property
    def busy(self) -> bool:
        """Whether messages are on their way."""
        return bool(self._sent)

    @property
    def uncertain(self) -> bool:
        """Whether something went wrong of which only the topic itself can tell what has arrived."""
        return self._producer is None and self.busy

    def forget(self) -> None:
        """Let go of what was to be sent."""
        self._sent = []

    def send(self, messages: Sequence[Message]) -> None:
        """Take messages to be sent; only while not `busy`."""
        self._sent = [_Sent(message) for message in messages]

    def settle(self) -> dict[int, int]:
        """Send what was taken and wait until it has arrived; by partition, the offset after it.

        Raises
        ------
        SinkError
            Not all of it is acknowledged yet; to be called again.
        """
        ends: dict[int, int] = {}
        if self._singly:
            for each in self._sent:
                self._exchange([each], ends)
        else:
            self._exchange(self._sent, ends)
        self.refused += sum(each.refused for each in self._sent)
        self._sent, self._singly = [], False
        return ends

    def close(self, timeout_seconds: float) -> None:
        """Close the producer."""
        if self._producer is not None:
            close_producer(self._producer, timeout_seconds)
            self._producer = None

    def _exchange(self, some: Sequence[_Sent], ends: dict[int, int]) -> None:
        """Send some, and wait for their acknowledgement."""
        self._produce(some)
        deadline = time.monotonic() + _WAIT_SECONDS
        while not all(each.done or each.future.is_done for each in some):
            if time.monotonic() > deadline or self.interrupted.wait(_LOOK_SECONDS):
                raise SinkError(
                    f"{place_of(self.settings)}: no acknowledgement came within {_WAIT_SECONDS:g} s"
                )
        for each in some:
            if not each.done:
                self._judge(each, ends, alone=len(some) == 1)

    def _produce(self, some: Sequence[_Sent]) -> None:
        if self._producer is None:
            self._producer = make(KafkaProducer, self._options, self.settings)
        for each in some:
            if each.done or each.future is not None:
                continue
            message = each.message
            try:
                each.future = self._producer.send(
                    self.settings.topic, message.value, key=message.key, headers=message.headers
                )
            except MessageSizeTooLargeError:
                self._refuse(each)
            except KafkaTimeoutError as error:
                raise SinkError(
                    f"{place_of(self.settings)}: the brokers have no such topic, or do not answer; create "
                    "it, or correct the name"
                ) from error
            except Exception as error:
                raise explain_sink(error, self.settings) from error

    def _judge(self, each: _Sent, ends: dict[int, int], alone: bool) -> None:
        if each.future.succeeded():
            each.done = True
            found = each.future.value
            ends[found.partition] = max(ends.get(found.partition, 0), found.offset + 1)
            return
        error = each.future.exception
        if isinstance(error, MessageSizeTooLargeError) and alone:
            self._refuse(each)
            self.close(0.0)  # kafka-python's producer takes nothing more after this
            return
        self._begin_again()
        if not isinstance(error, MessageSizeTooLargeError):
            raise explain_sink(error, self.settings) from error
        # It fails all that was under way, with the same words: which one it is shows when each goes alone.
        self._singly = True
        raise SinkError(
            f"{place_of(self.settings)}: a message is larger than the topic's max.message.bytes; now each is "
            "sent by itself"
        ) from error

    def _refuse(self, each: _Sent) -> None:
        """No broker will ever take it: what comes behind it must not wait for that."""
        each.done = each.refused = True

    def _begin_again(self) -> None:
        """With a new producer: those that failed, and what the old one had not got acknowledged."""
        for each in self._sent:
            each.done = each.done or (each.future.is_done and each.future.succeeded())
            each.future = None
        self.close(0.0)

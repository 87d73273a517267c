"""A sender of messages to a Kafka topic, which delivers each message exactly once."""

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

_WAIT_SECONDS = 3.0  # for acknowledgements; after that, an error is raised and the next call waits again
_LOOK_SECONDS = 0.01


@dataclass(frozen=True, slots=True)
class Message:
    """A message to send: its key, its value and its headers."""

    key: bytes
    value: bytes
    headers: list[tuple[str, bytes]] = field(default_factory=list)


@dataclass(slots=True)
class _Sent:
    """A message that is being sent; `future` is None before it is sent, or if it must be sent again."""

    message: Message
    future: Any = None
    done: bool = False
    refused: bool = False


class Topic:
    """A sender of messages to a topic, which delivers each message exactly once.

    Messages with the same key arrive in order. The producer is idempotent: it numbers the messages, so that
    brokers drop repetitions, and all replicas must acknowledge each message. The sender repeats messages
    until they arrive, and accepts further messages only when they have arrived. A message that is too large
    for the topic is dropped and counted. One thread uses the sender. Another thread may set `interrupted` to
    end a wait.

    Parameters
    ----------
    settings : KafkaSink
        The configuration of the sink.
    setting : str
        The path of the section in the configuration, for messages.

    Attributes
    ----------
    refused : int
        The number of messages that were too large for the topic.

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
        self._one_by_one = False

    def check(self) -> None:
        """Raise SinkError if the file of a certificate or a password is missing."""
        try:
            check_files(self._options)
        except SourceError as error:
            raise SinkError(f"{self.setting}.{error}") from error

    @property
    def is_busy(self) -> bool:
        """True if messages wait to be sent or to be acknowledged."""
        return bool(self._sent)

    @property
    def is_uncertain(self) -> bool:
        """True if an error has left it unknown which messages have reached the topic."""
        return self._producer is None and self.is_busy

    def forget(self) -> None:
        """Drop the messages that brokers have not acknowledged yet, so that they are not sent again."""
        self._sent = []

    def send(self, messages: Sequence[Message]) -> None:
        """Set the messages that `settle` sends. Call this method only while `is_busy` is False."""
        self._sent = [_Sent(message) for message in messages]

    def settle(self) -> dict[int, int]:
        """Send the messages that `send` has set, and wait until the brokers have acknowledged them.

        Returns
        -------
        dict of int to int
            The offset after the last of these messages, by the number of the partition.

        Raises
        ------
        SinkError
            Some messages are not acknowledged yet; the next call continues.
        """
        ends: dict[int, int] = {}
        if self._one_by_one:
            for sent in self._sent:
                self._exchange([sent], ends)
        else:
            self._exchange(self._sent, ends)
        self.refused += sum(sent.refused for sent in self._sent)
        self._sent, self._one_by_one = [], False
        return ends

    def close(self, timeout_seconds: float) -> None:
        """Close the producer."""
        if self._producer is not None:
            close_producer(self._producer, timeout_seconds)
            self._producer = None

    def _exchange(self, batch: Sequence[_Sent], ends: dict[int, int]) -> None:
        """Send messages, and wait until the brokers have acknowledged them."""
        self._produce(batch)
        deadline = time.monotonic() + _WAIT_SECONDS
        while not all(sent.done or sent.future.is_done for sent in batch):
            if time.monotonic() > deadline or self.interrupted.wait(_LOOK_SECONDS):
                raise SinkError(
                    f"{place_of(self.settings)}: no acknowledgement came within {_WAIT_SECONDS:g} s"
                )
        for sent in batch:
            if not sent.done:
                self._process_outcome(sent, ends, alone=len(batch) == 1)

    def _produce(self, batch: Sequence[_Sent]) -> None:
        if self._producer is None:
            self._producer = make(KafkaProducer, self._options, self.settings)
        for sent in batch:
            if sent.done or sent.future is not None:
                continue
            message = sent.message
            try:
                sent.future = self._producer.send(
                    self.settings.topic, message.value, key=message.key, headers=message.headers
                )
            except MessageSizeTooLargeError:
                self._refuse(sent)
            except KafkaTimeoutError as error:
                raise SinkError(
                    f"{place_of(self.settings)}: the brokers have no such topic, or do not answer; create "
                    "it, or correct the name"
                ) from error
            except Exception as error:
                raise explain_sink(error, self.settings) from error

    def _process_outcome(self, sent: _Sent, ends: dict[int, int], alone: bool) -> None:
        if sent.future.succeeded():
            sent.done = True
            metadata = sent.future.value
            ends[metadata.partition] = max(ends.get(metadata.partition, 0), metadata.offset + 1)
            return
        error = sent.future.exception
        if isinstance(error, MessageSizeTooLargeError) and alone:
            self._refuse(sent)
            self.close(0.0)  # kafka-python's producer accepts no message after this error
            return
        self._prepare_resend()
        if not isinstance(error, MessageSizeTooLargeError):
            raise explain_sink(error, self.settings) from error
        # All messages on their way fail with the same error. If each message is sent alone, the error
        # shows which one is too large.
        self._one_by_one = True
        raise SinkError(
            f"{place_of(self.settings)}: a message is larger than the topic's max.message.bytes; now each is "
            "sent by itself"
        ) from error

    def _refuse(self, sent: _Sent) -> None:
        """Give up a message that no broker will accept, so that later messages can be sent."""
        sent.done = sent.refused = True

    def _prepare_resend(self) -> None:
        """Prepare to send the messages that failed or were not acknowledged, with a new producer."""
        for sent in self._sent:
            sent.done = sent.done or (sent.future.is_done and sent.future.succeeded())
            sent.future = None
        self.close(0.0)

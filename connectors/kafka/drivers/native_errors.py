"""librdkafka's errors as kafka-python's, so that `errors` has one list of what passes and what to say."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import KafkaError as NativeError
from confluent_kafka import KafkaException
from kafka import errors as kafka_errors

_LOCAL: dict[int, type[kafka_errors.KafkaError]] = {
    NativeError._TRANSPORT: kafka_errors.KafkaConnectionError,
    NativeError._ALL_BROKERS_DOWN: kafka_errors.KafkaConnectionError,
    NativeError._RESOLVE: kafka_errors.KafkaConnectionError,
    NativeError._SSL: kafka_errors.KafkaConnectionError,
    NativeError._DESTROY: kafka_errors.KafkaConnectionError,
    NativeError._TIMED_OUT: kafka_errors.KafkaTimeoutError,
    NativeError._TIMED_OUT_QUEUE: kafka_errors.KafkaTimeoutError,
    NativeError._WAIT_COORD: kafka_errors.KafkaTimeoutError,
    NativeError._WAIT_CACHE: kafka_errors.KafkaTimeoutError,
    NativeError._UNKNOWN_TOPIC: kafka_errors.UnknownTopicOrPartitionError,
    NativeError._UNKNOWN_PARTITION: kafka_errors.UnknownTopicOrPartitionError,
    NativeError._MAX_POLL_EXCEEDED: kafka_errors.RebalanceInProgressError,
    NativeError._ASSIGNMENT_LOST: kafka_errors.RebalanceInProgressError,
    NativeError._STATE: kafka_errors.IllegalGenerationError,
    NativeError._AUTHENTICATION: kafka_errors.SaslAuthenticationFailedError,
    NativeError._AUTO_OFFSET_RESET: kafka_errors.OffsetOutOfRangeError,
    NativeError._LOG_TRUNCATION: kafka_errors.OffsetOutOfRangeError,
    NativeError._BAD_COMPRESSION: kafka_errors.CorruptRecordError,
    NativeError._BAD_MSG: kafka_errors.CorruptRecordError,
    NativeError._INVALID_ARG: kafka_errors.KafkaConfigurationError,
}

GONE = frozenset(
    {NativeError._AUTO_OFFSET_RESET, NativeError._LOG_TRUNCATION, NativeError.OFFSET_OUT_OF_RANGE}
)
"""Codes of a position at which there are no records."""

SPOILT = frozenset({NativeError._BAD_MSG, NativeError.INVALID_MSG})
"""Codes of a batch that fails its checksum."""


def translated(error: NativeError) -> Exception:
    """The error of kafka-python that says the same.

    Examples
    --------
    >>> translated(NativeError(NativeError._TIMED_OUT))
    KafkaTimeoutError('Local: Timed out')
    >>> translated(NativeError(NativeError.TOPIC_AUTHORIZATION_FAILED))
    TopicAuthorizationFailedError('Broker: Topic authorization failed')
    """
    code = error.code()
    kind = kafka_errors.for_code(code) if code > 0 else _LOCAL.get(code, kafka_errors.KafkaError)
    found: Exception = kind(error.str())
    return found


@contextmanager
def raised() -> Iterator[None]:
    """Raise what confluent-kafka raises in the block as kafka-python's."""
    try:
        yield
    except KafkaException as error:
        raise translated(error.args[0]) from error

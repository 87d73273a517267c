"""Creation and closing of kafka-python's clients for a sink.

A client that cannot be created leaves no thread and no socket open.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from kafka import KafkaConsumer, KafkaProducer
from kafka import errors as kafka_errors
from kafka.net.compat import KafkaNetClient

from connectors.kafka.drivers.connection import new_client, why_away, with_secrets
from connectors.kafka.drivers.errors import is_transient
from monitor.base.errors import SinkError, SourceError
from monitor.config.root import KafkaSink

Client = TypeVar("Client", KafkaConsumer, KafkaProducer)


def make(kind: Callable[..., Client], options: Mapping[str, Any], settings: KafkaSink) -> Client:
    """Return a new consumer or producer after a broker has answered.

    The function waits at most for `bootstrap_timeout_ms`, an option of the client.

    Parameters
    ----------
    kind : callable
        `KafkaConsumer` or `KafkaProducer`.
    options : mapping of str to object
        Keyword arguments of the client.
    settings : KafkaSink
        The configuration of the sink, for messages.

    Raises
    ------
    SinkError
        No broker answers, the brokers refuse access, or the file of a password cannot be read.
    """
    try:
        options = with_secrets(options)
    except SourceError as error:
        raise SinkError(f"{place_of(settings)}: {error}") from error
    network_clients: list[KafkaNetClient] = []
    refusals: list[Exception] = []

    def create_client(**config: Any) -> KafkaNetClient:
        network_clients.append(new_client(config, refusals.append))
        return network_clients[-1]

    try:
        return kind(kafka_client=create_client, **options)
    except Exception as error:
        for client in network_clients:
            client.close()
        raise explain_sink(refusals[-1] if refusals else error, settings) from error


def close_producer(producer: KafkaProducer, timeout_seconds: float) -> None:
    """Close a producer, and drop the messages that it has not sent within `timeout_seconds`.

    The caller keeps these messages, and sends them again with another producer.
    """
    try:
        producer.close(timeout=timeout_seconds)
    except kafka_errors.KafkaTimeoutError:
        # kafka-python stops halfway, and would try again when Python collects the producer as garbage.
        producer._sender.force_close()
        producer._sender.join(1.0)
        producer.close(timeout=0)


def explain_sink(error: BaseException, settings: KafkaSink) -> SinkError:
    """Return a `SinkError` that explains an error of kafka-python in one sentence, with the remedy.

    Examples
    --------
    >>> settings = KafkaSink(brokers=("one:9092",), topic="windows")
    >>> print(explain_sink(kafka_errors.TopicAuthorizationFailedError("windows"), settings))
    topic windows of Kafka at one:9092: the brokers do not let this user write it; allow it to WRITE, READ \
    and DESCRIBE the topic (windows)
    """
    where = place_of(settings)
    detail = " ".join(str(arg) for arg in error.args) or type(error).__name__
    if isinstance(error, kafka_errors.TopicAuthorizationFailedError):
        why = (
            "the brokers do not let this user write it; allow it to WRITE, READ and DESCRIBE the topic "
            f"({detail})"
        )
    elif isinstance(error, kafka_errors.ClusterAuthorizationFailedError):
        why = (
            "the brokers do not let this user write without repetition; allow it IDEMPOTENT_WRITE on the "
            f"cluster ({detail})"
        )
    elif isinstance(error, kafka_errors.SaslAuthenticationFailedError):
        why = (
            "the brokers refused the login; check options.sasl_mechanism, options.sasl_plain_username "
            f"and options.sasl_plain_password ({detail})"
        )
    elif isinstance(error, (kafka_errors.UnknownTopicOrPartitionError, kafka_errors.InvalidTopicError)):
        why = "there is no such topic; create it, or correct the name"
    elif is_transient(error):
        why = f"no Kafka broker answers ({why_away(settings.brokers, settings.options)})"
    else:
        why = f"it cannot be written: {type(error).__name__}: {detail}"
    return SinkError(f"{where}: {why}")


def place_of(settings: KafkaSink) -> str:
    """Return the topic and the brokers of a sink, for messages: ``topic windows of Kafka at one:9092``."""
    return f"topic {settings.topic} of Kafka at {', '.join(settings.brokers)}"

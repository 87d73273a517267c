"""kafka-python's errors: each either passes, or becomes one sentence of ours with its cause kept."""

from __future__ import annotations

import inspect

import pytest
from kafka import errors as kafka_errors

from connectors.kafka.drivers.errors import explain, is_transient
from monitor.base.errors import SourceError

EVERY = [
    kind
    for _, kind in inspect.getmembers(kafka_errors, inspect.isclass)
    if issubclass(kind, kafka_errors.KafkaError) and kind.__module__ == kafka_errors.__name__
]


def test_each_error_has_a_sentence() -> None:
    assert len(EVERY) > 100
    for kind in EVERY:
        error = kind({}) if kind is kafka_errors.LogTruncationError else kind()
        ours = explain(error, ["one:9092"])
        assert isinstance(ours, SourceError), kind
        assert ours.__cause__ is error, kind
        assert str(ours).startswith("Kafka at one:9092: "), kind
        assert len(str(ours).splitlines()) == 1, kind


def test_what_ends_by_itself_passes_and_what_a_person_must_mend_does_not() -> None:
    for kind in EVERY:
        if kind.retriable:
            assert is_transient(kind()), kind
    assert is_transient(kafka_errors.CommitFailedError())
    assert is_transient(ConnectionResetError())
    for fatal in (
        kafka_errors.SaslAuthenticationFailedError,
        kafka_errors.TopicAuthorizationFailedError,
        kafka_errors.GroupAuthorizationFailedError,
        kafka_errors.InvalidTopicError,
        kafka_errors.UnsupportedCodecError,
        kafka_errors.FencedInstanceIdError,
    ):
        assert not is_transient(fatal()), fatal


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (
            kafka_errors.SaslAuthenticationFailedError("bad password"),
            "Kafka at one:9092: the brokers refused the login; check options.sasl_mechanism, "
            "options.sasl_plain_username and options.sasl_plain_password (bad password)",
        ),
        (
            kafka_errors.TopicAuthorizationFailedError({"clicks"}),
            "Kafka at one:9092: the brokers do not let this user read the topic; "
            "allow it to READ and DESCRIBE ({'clicks'})",
        ),
        (
            kafka_errors.InvalidTopicError("x/y"),
            "Kafka at one:9092: the brokers hold this for no valid name of a topic; check `topics` (x/y)",
        ),
        (
            kafka_errors.OffsetOutOfRangeError("clicks-0"),
            "Kafka at one:9092: the position to read from does not exist (any more), and "
            "options.auto_offset_reset is none; set it to earliest or latest (clicks-0)",
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_sentence_says_what_to_do(error: kafka_errors.KafkaError, sentence: str) -> None:
    assert str(explain(error, ["one:9092"])) == sentence

"""Classification of the errors of kafka-python, and explanations of the errors that are not transient."""

from __future__ import annotations

from collections.abc import Sequence

from kafka import errors as kafka_errors

from monitor.base.errors import MissingExtraError, SourceError

_REJOINS = (
    kafka_errors.CommitFailedError,
    kafka_errors.IllegalGenerationError,
    kafka_errors.RebalanceInProgressError,
    kafka_errors.UnknownMemberIdError,
)
_MOVES = (
    kafka_errors.BrokerNotAvailableError,
    kafka_errors.UnknownBrokerIdError,
    kafka_errors.UnknownError,
)


def is_transient(error: BaseException) -> bool:
    """Return whether reading can continue after an error without an action of the operator.

    Such errors occur while a broker is unreachable, while a partition moves to another broker, and while the
    group assigns its partitions again.
    """
    return isinstance(error, (kafka_errors.RetriableError, OSError, *_REJOINS, *_MOVES))


def explain(error: BaseException, brokers: Sequence[str]) -> SourceError:
    """Return a `SourceError` that explains an error of kafka-python in one sentence.

    The cause of the returned error is the error of kafka-python.

    Parameters
    ----------
    error : BaseException
    brokers : sequence of str
        The configured brokers, which the message names.

    Examples
    --------
    >>> print(explain(kafka_errors.UnsupportedCodecError("no lz4"), ["one:9092"]))
    Kafka at one:9092: Reading messages compressed with lz4, snappy or zstd needs an optional package: \
    pip install 'blindsight[kafka-codecs]' (from a checkout: pip install '.[kafka-codecs]')
    """
    ours = SourceError(f"Kafka at {', '.join(brokers)}: {_sentence(error)}")
    ours.__cause__ = error
    return ours


def _sentence(error: BaseException) -> str:
    detail = " ".join(str(arg) for arg in error.args) or type(error).__name__
    if isinstance(error, kafka_errors.UnsupportedCodecError):
        return str(MissingExtraError("Reading messages compressed with lz4, snappy or zstd", "kafka-codecs"))
    if isinstance(error, kafka_errors.SaslAuthenticationFailedError):
        return (
            "the brokers refused the login; check options.sasl_mechanism, options.sasl_plain_username "
            f"and options.sasl_plain_password ({detail})"
        )
    if isinstance(error, kafka_errors.UnsupportedSaslMechanismError):
        return f"the brokers do not offer this options.sasl_mechanism ({detail})"
    if isinstance(error, kafka_errors.TopicAuthorizationFailedError):
        return f"the brokers do not let this user read the topic; allow it to READ and DESCRIBE ({detail})"
    if isinstance(error, kafka_errors.GroupAuthorizationFailedError):
        return f"the brokers do not let this user into the group; allow it to READ the group ({detail})"
    if isinstance(error, kafka_errors.InvalidTopicError):
        return f"the brokers hold this for no valid name of a topic; check `topics` ({detail})"
    if isinstance(error, (kafka_errors.NoOffsetForPartitionError, kafka_errors.OffsetOutOfRangeError)):
        return (
            "the position to read from does not exist (any more), and options.auto_offset_reset is none; "
            f"set it to earliest or latest ({detail})"
        )
    if isinstance(error, (kafka_errors.UnsupportedVersionError, kafka_errors.UnrecognizedBrokerVersion)):
        return f"these brokers are too old for kafka-python, or are controllers only ({detail})"
    if isinstance(error, kafka_errors.FencedInstanceIdError):
        return f"another consumer runs with the same options.group_instance_id; give each its own ({detail})"
    return f"it cannot be read: {type(error).__name__}: {detail}"

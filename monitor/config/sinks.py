"""The sections of the outputs, `reports` and `rejects`."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from monitor.config.section import Section, demand, sane

_OPTION_TYPES = (str, int, float, bool, type(None))
_TOPIC = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}")


def _option(value: Any) -> Any:
    if not isinstance(value, _OPTION_TYPES):
        raise ValueError(f"expected text, a number, true, false or null, got a {type(value).__name__}")
    return value


OptionValue = Annotated[
    Any,
    BeforeValidator(_option),
    WithJsonSchema({"type": ["string", "number", "boolean", "null"]}),
]
"""The type of an option that is passed to a client library unchanged."""


_OPTIONS_WITH_FILES = (
    *("ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_crlfile"),
    *("ssl_password_file", "sasl_plain_password_file"),
)


def resolve_options(options: Mapping[str, Any], folder: str) -> dict[str, Any]:
    """Return the options of a Kafka client with relative paths resolved from `folder`."""
    files = {
        key: os.path.normpath(os.path.join(folder, value))
        for key, value in options.items()
        if key in _OPTIONS_WITH_FILES and isinstance(value, str)
    }
    return {**options, **files}


class KafkaSink(Section):
    """A topic of an Apache Kafka cluster to write to."""

    brokers: tuple[str, ...] = Field(
        min_length=1,
        description="Addresses of the first brokers to contact: host:port.",
        examples=[["kafka.example:9092"]],
    )
    topic: str = Field(
        min_length=1,
        description="The topic, which must exist: Blindsight creates none.",
        examples=["windows"],
    )
    # Options may hold passwords, so a printed configuration must not contain them.
    options: dict[str, OptionValue] = Field(
        default={},
        repr=False,
        description="Passed to kafka-python's KafkaProducer: compression_type, security_protocol, "
        "ssl_cafile, sasl_mechanism, …",
        examples=[{"compression_type": "gzip"}],
    )

    def resolve(self, folder: str) -> Self:
        """Return the section with the relative paths in `options` resolved from `folder`."""
        return self.model_copy(update={"options": resolve_options(self.options, folder)})

    @model_validator(mode="after")
    def _fits(self) -> KafkaSink:
        named = (
            None
            if _TOPIC.fullmatch(self.topic)
            else (
                "topic",
                f"expected 1 to 249 letters, digits, dots, underscores or hyphens, got {self.topic!r}",
            )
        )
        demand([named, sane("brokers", self.brokers)])
        return self


class Reports(Section):
    """The sinks of closed windows: a file, a topic, or both."""

    files = ("path",)

    path: str | None = Field(
        default=None,
        min_length=1,
        description="NDJSON, one window a line, appended.",
        examples=["windows.ndjson"],
    )
    max_bytes: int | None = Field(
        default=500_000_000,
        ge=1000,
        description="Beyond this size the agent renames the file to `.1` and begins a new one; null: "
        "never, rotate it yourself.",
        examples=[100_000_000],
    )
    keep: int = Field(
        default=1,
        ge=1,
        le=1000,
        description="Number of renamed files to keep; `.1` is the newest.",
        examples=[5],
    )
    kafka: KafkaSink | None = Field(
        default=None, description="A topic, one window a message; none if absent."
    )

    @model_validator(mode="after")
    def _somewhere(self) -> Reports:
        demand([_nowhere(self.path, self.kafka)])
        return self


class Rejects(Section):
    """The sinks of unusable records: a file, a topic, or both."""

    files = ("path",)

    path: str | None = Field(
        default=None,
        min_length=1,
        description="NDJSON, one rejected record a line, appended.",
        examples=["rejects.ndjson"],
    )
    max_bytes: int = Field(
        default=100_000_000,
        ge=1000,
        description="Beyond this size the agent renames the file to `.1` and begins a new one.",
        examples=[10_000_000],
    )
    record: Literal["whole", "redacted", "none"] = Field(
        default="whole",
        description="The part of a record that is kept. whole: the record, cut at 2,000 bytes. redacted: "
        "its structure, with every value replaced by its kind. none: nothing. With the last "
        "two, no message and no line of the log quotes a value.",
        examples=["redacted"],
    )
    retention_days: float | None = Field(
        default=None,
        ge=0.01,
        le=3650,
        description="The agent removes older lines from the file. If absent, only the size of the file is "
        "limited.",
        examples=[30],
    )
    kafka: KafkaSink | None = Field(
        default=None, description="A topic, one rejected record a message; none if absent."
    )

    @model_validator(mode="after")
    def _somewhere(self) -> Rejects:
        demand([_nowhere(self.path, self.kafka)])
        return self


def _nowhere(path: str | None, kafka: KafkaSink | None) -> tuple[str, str] | None:
    if path is None and kafka is None:
        return "path", "expected a file here, or a topic under `kafka` beside it; got neither"
    return None

"""The sections of the configuration that say where output goes: `reports`, `rejects`, `alertmanager`."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from monitor.section import Section, demand, sane, unique

_OPTION_TYPES = (str, int, float, bool, type(None))
_URL = re.compile(r"https?://[^\s/@?#]+(?:/(?!api/v2/alerts)[^\s?#]*)?")
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_OWN_LABELS = ("alertname", "severity", "task", "model", "group", "metric")
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
"""An option that is passed through to a client library."""


class KafkaSink(Section):
    """A topic of an Apache Kafka cluster to write to."""

    brokers: tuple[str, ...] = Field(min_length=1, description="Addresses to start from: host:port.")
    topic: str = Field(min_length=1, description="It must exist: Blindsight makes none.")
    # Options may hold passwords, which must not reach a log through a printed configuration.
    options: dict[str, OptionValue] = Field(
        default={},
        repr=False,
        description="Passed to kafka-python's KafkaProducer: compression_type, security_protocol, "
        "ssl_cafile, sasl_mechanism, …",
    )

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
    """Where closed windows go: a file, a topic, or both."""

    path: str | None = Field(default=None, min_length=1, description="NDJSON, one window a line, appended.")
    kafka: KafkaSink | None = Field(
        default=None, description="A topic, one window a message; none if absent."
    )

    @model_validator(mode="after")
    def _somewhere(self) -> Reports:
        demand([_nowhere(self.path, self.kafka)])
        return self


class Rejects(Section):
    """Where records go that could not be used: a file, a topic, or both."""

    path: str | None = Field(
        default=None, min_length=1, description="NDJSON, one rejected record a line, appended."
    )
    max_bytes: int = Field(
        default=100_000_000, ge=1000, description="Past this the file is renamed to `.1` and begun anew."
    )
    record: Literal["whole", "redacted", "none"] = Field(
        default="whole",
        description="What is kept of a record: all of it, cut at 2,000 bytes; its structure, with every "
        "value replaced by its kind; nothing. In the last two no message quotes a value, in the log neither.",
    )
    retention_days: float | None = Field(
        default=None,
        ge=0.01,
        le=3650,
        description="Lines of the file that are older are removed; by its size alone if absent.",
    )
    kafka: KafkaSink | None = Field(
        default=None, description="A topic, one rejected record a message; none if absent."
    )

    @model_validator(mode="after")
    def _somewhere(self) -> Rejects:
        demand([_nowhere(self.path, self.kafka)])
        return self


class Alertmanager(Section):
    """Alertmanagers that are told of alerts directly, where no Prometheus evaluates rules."""

    urls: tuple[str, ...] = Field(
        min_length=1, description="http://host:port of each Alertmanager of the cluster: all are told."
    )
    resend_seconds: float = Field(
        default=60.0,
        ge=1,
        le=600,
        description="Between two times that the same alert is told; untold, it ends after four of them.",
    )
    labels: dict[str, str] = Field(
        default={"job": "blindsight"}, description="Further labels of every alert."
    )
    runbooks: str = Field(
        default="deploy/runbooks", min_length=1, description="What stands before /NAME.md in runbook_url."
    )
    external_url: str | None = Field(
        default=None,
        min_length=1,
        description="Where people see the page, for generatorURL; http:// and export.listen if absent.",
    )

    @model_validator(mode="after")
    def _fits(self) -> Alertmanager:
        demand([unique("urls", self.urls), *map(_an_alertmanager, self.urls), *map(_a_label, self.labels)])
        return self


def _an_alertmanager(url: str) -> tuple[str, str] | None:
    if _URL.fullmatch(url):
        return None
    return "urls", (
        "expected addresses such as 'http://127.0.0.1:9093', without a user, a query and /api/v2/alerts, "
        f"got {url!r}"
    )


def _a_label(name: str) -> tuple[str, str] | None:
    if _LABEL.fullmatch(name) and name not in _OWN_LABELS:
        return None
    own = ", ".join(_OWN_LABELS)
    return "labels", (
        f"expected names of letters, digits and underscores other than {own}, which the alerts have "
        f"themselves, got {name!r}"
    )


def _nowhere(path: str | None, kafka: KafkaSink | None) -> tuple[str, str] | None:
    if path is None and kafka is None:
        return "path", "expected a file here, or a topic under `kafka` beside it; got neither"
    return None

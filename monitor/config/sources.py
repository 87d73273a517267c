"""The base class of the sections of sources, and the sections of the kinds `file`, `stdin` and `kafka`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from monitor.base.registry import SOURCES
from monitor.config.mapping import MAPPING, FieldMapping
from monitor.config.section import AnyKind, Section, demand, sane, unique
from monitor.config.sinks import OptionValue, resolve_options


class SourceSection(Section):
    """Base class of the sections of sources, which all have `kind`, `name` and `mapping`."""

    if TYPE_CHECKING:  # each section declares these fields in the order of the docs
        kind: str
        name: str | None
        mapping: FieldMapping | None

    keyed: ClassVar[bool] = False
    """True if the records are messages with a key, a time and headers, such as messages of Kafka."""

    @model_validator(mode="after")
    def _has_what_is_mapped(self) -> Self:
        problem = "expected a path into the records, got {}: only messages of kind: kafka have it"
        paths = {} if self.keyed or self.mapping is None else self.mapping.beside
        demand((f"mapping.{name}", problem.format(path)) for name, path in paths.items())
        return self

    @property
    def label(self) -> str:
        """The source's name in metrics."""
        return self.name or self.kind

    @property
    def reads_events(self) -> bool:
        """True if records may be events of serving stacks: without a mapping, or with `mapping.format`."""
        return self.mapping is None or self.mapping.format is not None

    @property
    def origins(self) -> Sequence[str]:
        """The names of files and topics with records of this source.

        `wire_for` compares file names with them.
        """
        return (self.label,)


class FileSourceConfig(SourceSection):
    """Records from a file, which is read once or followed while it grows."""

    files = ("path",)

    kind: Literal["file"] = Field(description="A file.")
    path: str = Field(
        min_length=1,
        description="NDJSON (plain, .gz, .zst), CSV or Parquet. With follow, a pattern may match several "
        "files: growing files such as data.*.log, or the tables in a folder such as "
        "labels/*.parquet, also at an address such as s3://bucket/labels/*.parquet.",
        examples=["predictions.ndjson"],
    )
    follow: bool = Field(
        default=False,
        description="Wait for more records at the end, and continue after a rotation, even if it happens "
        "while the agent is down.",
        examples=[True],
    )
    # Options may hold passwords, so a printed configuration must not contain them.
    options: dict[str, OptionValue] = Field(
        default={},
        repr=False,
        description="Options of fsspec's file system, where path is an address: endpoint_url, anon, …",
        examples=[{"anon": True}],
    )
    batch_bytes: int = Field(
        default=4 << 20,
        ge=1 << 16,
        le=1 << 28,
        description="The approximate number of bytes of a table that are decompressed at once. A single "
        "row may be longer.",
        examples=[1048576],
    )
    name: str | None = Field(
        default=None,
        min_length=1,
        max_length=200,
        description="Name of the source in metrics; the file's name if absent.",
        examples=["answers"],
    )
    mapping: FieldMapping | None = MAPPING

    @property
    def label(self) -> str:
        """The source's name in metrics."""
        return self.name or PurePath(self.path).name

    @property
    def origins(self) -> Sequence[str]:
        """The name of the source, and its path with and without folders."""
        return (self.label, self.path, PurePath(self.path).name)

    def resolve(self, folder: str) -> Self:
        """Return the section with `path` resolved from `folder` unless it is an address."""
        return self if "://" in self.path else super().resolve(folder)


class StdinSourceConfig(SourceSection):
    """NDJSON from standard input."""

    kind: Literal["stdin"] = Field(description="Standard input.")
    name: str | None = Field(
        default=None,
        min_length=1,
        max_length=200,
        description="Name of the source in metrics; stdin if absent.",
        examples=["pipe"],
    )
    mapping: FieldMapping | None = MAPPING


class KafkaSourceConfig(SourceSection):
    """Topics of an Apache Kafka cluster."""

    keyed = True

    kind: Literal["kafka"] = Field(description="Apache Kafka.")
    brokers: tuple[str, ...] = Field(
        min_length=1,
        description="Addresses of the first brokers to contact: host:port.",
        examples=[["kafka.example:9092"]],
    )
    topics: tuple[str, ...] = Field(
        min_length=1,
        description="Topics with predictions and labels, in any mixture.",
        examples=[["predictions", "labels"]],
    )
    group: str = Field(
        default="blindsight", min_length=1, description="The consumer group.", examples=["monitoring"]
    )
    driver: Literal["kafka-python", "confluent"] = Field(
        default="kafka-python",
        description="The client library. confluent is confluent-kafka, which needs the extra kafka-native "
        "and is about two to three times as fast.",
        examples=["confluent"],
    )
    # Options may hold passwords, so a printed configuration must not contain them.
    options: dict[str, OptionValue] = Field(
        default={},
        repr=False,
        description="Options of kafka-python's KafkaConsumer, such as security_protocol, ssl_cafile and "
        "sasl_mechanism, for both drivers. With driver: confluent also librdkafka's own options, "
        "which have dots. Unless isolation_level says otherwise, only what is committed is read.",
        examples=[{"security_protocol": "SSL", "ssl_cafile": "ca.pem"}],
    )
    stall_seconds: float = Field(
        default=60.0,
        ge=1,
        le=86_400,
        description="A partition is stuck if it delivers nothing for this time while its lag grows. Then the "
        "source is down, and the agent replaces its client.",
        examples=[120],
    )
    name: str | None = Field(
        default=None,
        min_length=1,
        max_length=200,
        description="Name of the source in metrics; kafka if absent.",
        examples=["kafka-eu"],
    )
    mapping: FieldMapping | None = MAPPING

    @property
    def origins(self) -> Sequence[str]:
        """The topics of the source."""
        return self.topics

    def resolve(self, folder: str) -> Self:
        """Return the section with the relative paths in `options` resolved from `folder`."""
        return self.model_copy(update={"options": resolve_options(self.options, folder)})

    @model_validator(mode="after")
    def _fits(self) -> KafkaSourceConfig:
        demand([unique("topics", self.topics), sane("topics", self.topics), sane("brokers", self.brokers)])
        return self


SourceConfig = Annotated[SourceSection, AnyKind(SOURCES)]

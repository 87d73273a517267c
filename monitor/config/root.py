"""The schema of the configuration: a frozen model for each section, in which each range is declared once.

The models can also be built in Python: `Task(classes=["ok", "toxic"])`. This module defines the whole
configuration and the sections `store` and `export`. It re-exports the other sections: tasks (`task`,
`arena`), sources (`sources`, `http`, `redis`, `sql`) and outputs (`sinks`, `alertmanager`).
`monitor.config.file` reads a file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from monitor.base.records import DEFAULT_TASK
from monitor.base.registry import FORMATS, TASK_KINDS
from monitor.config.alertmanager import Alertmanager
from monitor.config.arena import Arena
from monitor.config.chart import RULES, ChartConfig, FalseAlarmBudget, Rule
from monitor.config.http import BearerToken, HttpSourceConfig, HttpSpool, HttpTls, HttpToken
from monitor.config.labels import LabelsConfig
from monitor.config.mapping import Constants, FieldMapping
from monitor.config.otlp import Otlp
from monitor.config.regression import Regression
from monitor.config.section import (
    AnyKind,
    CrossCheckError,
    Problem,
    Section,
    demand,
    holds_password,
    listen_address,
    sane,
    web_address,
)
from monitor.config.sinks import KafkaSink, Rejects, Reports
from monitor.config.sources import FileSourceConfig, KafkaSourceConfig, SourceConfig, StdinSourceConfig
from monitor.config.task import (
    Bound,
    CalibrationConfig,
    EstimatorTag,
    Metric,
    ModelConfig,
    ObjectiveConfig,
    ReferenceConfig,
    Task,
    TaskSection,
    Window,
    scored,
)

__all__ = [
    "RULES",
    "Alertmanager",
    "Arena",
    "Bound",
    "CalibrationConfig",
    "ChartConfig",
    "Config",
    "Constants",
    "CrossCheckError",
    "EstimatorTag",
    "Export",
    "FalseAlarmBudget",
    "FieldMapping",
    "FileSourceConfig",
    "HttpSourceConfig",
    "HttpSpool",
    "HttpTls",
    "HttpToken",
    "KafkaSink",
    "KafkaSourceConfig",
    "LabelsConfig",
    "Metric",
    "ModelConfig",
    "ObjectiveConfig",
    "ReferenceConfig",
    "Regression",
    "Rejects",
    "Reports",
    "Rule",
    "Section",
    "SourceConfig",
    "StdinSourceConfig",
    "StoreConfig",
    "Task",
    "TaskConfig",
    "TaskSection",
    "Window",
    "listen_address",
]


TaskConfig = Annotated[TaskSection, AnyKind(TASK_KINDS, DEFAULT_TASK)]

_PREFIX = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_LONGEST_OF_PARTITIONS = 56  # 63 characters, less "_" and the six digits of a number


class StoreConfig(Section):
    """The durable state of the agent. With it, a restart neither loses a record nor counts one twice."""

    files = ("path", "password_file")

    path: str | None = Field(
        default=None,
        min_length=1,
        description="A separate folder; created if absent. Or give postgres.",
        examples=["state"],
    )
    # The address may hold a password. Validation refuses it; until then it must not be printed.
    postgres: str | None = Field(
        default=None,
        min_length=1,
        repr=False,
        description="Instead of path, a PostgreSQL database (the extra postgres): libpq's connection string "
        "or URI, without a password.",
        examples=["postgresql://agent@db/monitoring"],
    )
    prefix: str = Field(
        default="blindsight",
        description="The schema of the database that has the tables; created if absent. Agents that work "
        "at the same time need different schemas. A second agent with the same schema waits "
        "as a stand-by.",
        examples=["blindsight_eu"],
    )
    password_file: str | None = Field(
        default=None,
        min_length=1,
        description="A file with the password for postgres; read for each connection. If absent, the agent "
        "uses the environment variable PGPASSWORD.",
        examples=["/run/secrets/postgres"],
    )
    lease_seconds: float = Field(
        default=6.0,
        ge=1,
        le=600,
        description="With postgres: a stand-by takes over after it has seen no sign of the agent for this "
        "time.",
        examples=[10],
    )
    by_partition: bool = Field(
        default=False,
        description="If true, each partition has a separate state, which moves with the partition between "
        "agents. Requires a single source of kind kafka, postgres, and the model or the task "
        "as the key of each message.",
        examples=[False],
    )
    every_seconds: float = Field(
        default=1.0,
        gt=0,
        le=600,
        description="Time between two checkpoints. A change of an alarm is saved immediately.",
        examples=[5],
    )
    keep_reports: int = Field(
        default=100_000,
        ge=1000,
        le=100_000_000,
        description="The number of reports of closed windows that are kept, about 2 kB each. The oldest "
        "are removed first. After a restart, labels revise only windows whose newest report "
        "is kept.",
        examples=[500_000],
    )

    @model_validator(mode="after")
    def _fits(self) -> StoreConfig:
        demand(self._problems())
        return self

    def for_partition(self, number: int) -> StoreConfig:
        """Return the section for the store of one partition. The section must have `by_partition`."""
        return self.model_copy(update={"prefix": f"{self.prefix}_{number}", "by_partition": False})

    def _problems(self) -> Iterable[Problem | None]:
        if (self.path is None) == (self.postgres is None):
            yield "path", "expected one of path and postgres: name a folder, or a database"
        if not _PREFIX.fullmatch(self.prefix):
            yield (
                "prefix",
                "expected at most 63 lower-case letters, digits and _, not a digit first, "
                f"got {self.prefix[:80]!r}",
            )
        if self.by_partition and self.postgres is None:
            yield "by_partition", "expected postgres with it: agents on one database hand their state on"
        if self.by_partition and len(self.prefix) > _LONGEST_OF_PARTITIONS:
            yield (
                "prefix",
                f"expected at most {_LONGEST_OF_PARTITIONS} characters with by_partition, which adds the "
                "partition's number",
            )
        if self.postgres is not None and holds_password(self.postgres):  # the message leaves out the address
            yield "postgres", "expected no password in it, got one; give it as password_file"


class Export(Section):
    """The agent's HTTP server: /, /metrics, /-/healthy, /-/ready."""

    listen: str = Field(
        default="127.0.0.1:9109",
        description="Address and port; port 0 takes a free one.",
        examples=["0.0.0.0:9109"],
    )
    external_url: str | None = Field(
        default=None,
        description="The public address of the page. Alerts, dashboards and reports link to it. If "
        "absent, they have no links.",
        examples=["https://models.example/blindsight"],
    )
    max_series: int = Field(
        default=50_000,
        ge=100,
        description="Maximum number of exported series. The agent counts the series that are left out.",
        examples=[100_000],
    )
    max_bytes: int = Field(
        default=50_000_000,
        ge=100_000,
        le=1_000_000_000,
        description="Maximum size of /metrics before compression. If it is exceeded, whole families are "
        "left out and counted, those of groups first.",
        examples=[100_000_000],
    )
    distributions: bool = Field(
        default=True,
        description="If true, export the histogram of confidences and the calibration curve of each "
        "model, 42 series for each.",
        examples=[False],
    )
    tokens: tuple[BearerToken, ...] = Field(
        default=(),
        repr=False,
        description="The tokens of readers. A client sends one as a bearer token, a browser as its "
        "password. If absent, everyone may read. /-/healthy and /-/ready need no token.",
    )
    tls: HttpTls | None = Field(
        default=None, description="The certificates for HTTPS on all paths. If absent, plain HTTP."
    )
    otlp: Otlp | None = Field(
        default=None,
        description="The collector to which metrics are posted over OTLP, in addition to /metrics. If "
        "absent, only /metrics.",
    )

    @field_validator("external_url", mode="after")
    @classmethod
    def _an_external_url(cls, value: str | None) -> str | None:
        return value if value is None else web_address(value)

    @field_validator("listen", mode="after")
    @classmethod
    def _an_address(cls, value: str) -> str:
        listen_address(value)
        return value


class Config(Section):
    """A complete configuration.

    Examples
    --------
    >>> config = Config(tasks={"toxicity": {"classes": ["ok", "toxic"], "window": {"size": 200}}})
    >>> config.tasks["toxicity"].window.size, config.export.listen
    (200, '127.0.0.1:9109')
    """

    tasks: dict[str, TaskConfig] = Field(min_length=1, description="The tasks of the models, by name.")
    sources: tuple[SourceConfig, ...] = Field(
        default=(), description="The sources of predictions and labels; `blindsight replay` needs none."
    )
    decoders: int = Field(
        default=0,
        ge=0,
        le=8,
        description="Number of processes that decode records for `run`. With 0, the agent decodes in its "
        "own process.",
        examples=[2],
    )
    reports: Reports | None = Field(
        default=None,
        description="The sinks of closed windows: a file, a topic, or both. If absent, there is none.",
    )
    rejects: Rejects | None = Field(
        default=None,
        description="The sinks of unusable records: a file, a topic, or both. If absent, they are only "
        "counted.",
    )
    store: StoreConfig | None = Field(
        default=None,
        description="The durable state. Without it, the agent starts with an empty state after a restart.",
    )
    alertmanager: Alertmanager | None = Field(
        default=None,
        description="The Alertmanagers to which alerts are sent directly. If absent, there are none.",
    )
    export: Export = Field(default=Export(), description="The HTTP server of the page and of /metrics.")

    @model_validator(mode="after")
    def _fits(self) -> Config:
        demand(
            [
                sane("tasks", self.tasks),
                *self._source_problems(),
                *self._partition_problems(),
                *self._http_problems(),
                *self._path_problems(),
            ]
        )
        return self

    @property
    def scored_tasks(self) -> dict[str, Task]:
        """The tasks whose models give scores."""
        return scored(self.tasks)

    @property
    def numbers_rows(self) -> bool:
        """True if the records of a source may be numbered rows of requests; see `TaskLayout.numbered`."""
        # The path of a post to an http source may name a format.
        if any(source.mapping is None or source.kind == "http" for source in self.sources):
            return True
        formats = [source.mapping.format for source in self.sources if source.mapping is not None]
        return any(FORMATS[name].numbers_rows for name in formats if name is not None)

    @property
    def keep_of_rejects(self) -> Literal["whole", "redacted", "none"]:
        """The part of a rejected record that decoders keep; by default the whole record."""
        return self.rejects.record if self.rejects else "whole"

    def _source_problems(self) -> Iterable[Problem | None]:
        seen: dict[str, int] = {}
        for i, source in enumerate(self.sources):
            yield sane(f"sources[{i}].name", [source.label])
            first = seen.setdefault(source.label, i)
            if first != i:
                yield (
                    f"sources[{i}].name",
                    f"expected another name than sources[{first}], got {source.label!r} for both: set name",
                )
        stdins = [i for i, source in enumerate(self.sources) if isinstance(source, StdinSourceConfig)]
        if len(stdins) > 1:
            yield (
                f"sources[{stdins[1]}].kind",
                "expected one stdin source, got two: only one source can read it",
            )

    def _partition_problems(self) -> Iterable[Problem | None]:
        """Yield a problem if `by_partition` is set and there is not exactly one source, of kind kafka."""
        kinds = [source.kind for source in self.sources]
        if self.store is not None and self.store.by_partition and self.sources and kinds != ["kafka"]:
            yield (
                "store.by_partition",
                f"expected one source, of kind kafka, got {', '.join(kinds)}: list all topics in one source, "
                "and run other sources in a separate agent",
            )

    def _http_problems(self) -> Iterable[Problem | None]:
        """Yield the problems of http sources: their addresses, spools and the tasks of tokens."""
        listening, spools = {self.export.listen: "export.listen"}, dict[str, str]()
        for i, source in enumerate(self.sources):
            if not isinstance(source, HttpSourceConfig):
                continue
            if source.spool.path is None:
                if self.store is None or self.store.postgres is None:
                    yield (
                        f"sources[{i}].spool",
                        "missing: a record is acknowledged only once it rests on a disk; give the folder for "
                        "it, spool: {path: ./spool}, or a store.postgres, which keeps it too",
                    )
                first = f"sources[{i}].spool.path"
            else:
                first = spools.setdefault(source.spool.path, f"sources[{i}].spool.path")
            if first != f"sources[{i}].spool.path":
                yield (
                    f"sources[{i}].spool.path",
                    f"expected another folder than {first}, got {source.spool.path!r} for both",
                )
            other = listening.setdefault(source.listen, f"sources[{i}].listen")
            if other != f"sources[{i}].listen" and listen_address(source.listen)[1]:
                yield (
                    f"sources[{i}].listen",
                    f"expected another address than {other}, got {source.listen!r} for both: "
                    "take another port",
                )
            for j, token in enumerate(source.tokens):
                for task in token.tasks or ():
                    if task not in self.tasks:
                        known = ", ".join(self.tasks)
                        yield f"sources[{i}].tokens[{j}].tasks", f"expected tasks among {known}, got {task!r}"

    def _path_problems(self) -> Iterable[Problem | None]:
        """Yield the problems of files that are read and also written, or written twice."""
        users = [
            (f"sources[{i}].path", s.path)
            for i, s in enumerate(self.sources)
            if isinstance(s, FileSourceConfig)
        ]
        users += [
            (f"tasks.{name}.reference.path", task.reference.path)
            for name, task in self.scored_tasks.items()
            if task.reference.path is not None
        ]
        for key, section in (("reports.path", self.reports), ("rejects.path", self.rejects)):
            if section is None or section.path is None:
                continue
            other = next((user for user, path in users if path == section.path), None)
            if other:
                yield key, f"expected another file than {other}, got {section.path!r} for both"
            users.append((key, section.path))

"""The section `export.otlp`: the collector to which the agent sends metrics."""

from __future__ import annotations

import re
from collections.abc import Iterable

from pydantic import Field, model_validator

from monitor.config.access import HttpAccess
from monitor.config.section import Problem, demand

_URL = re.compile(r"https?://[^\s/@?#]+/[^\s?#]+")


class Otlp(HttpAccess):
    """An OpenTelemetry collector, or another receiver of OTLP over HTTP, to which metrics are posted."""

    url: str = Field(
        description="The address with its path, such as http://127.0.0.1:4318/v1/metrics; OTLP over HTTP, "
        "not over gRPC.",
        examples=["https://collector.example:4318/v1/metrics"],
    )
    interval_seconds: float = Field(
        default=60.0, ge=1, le=3600, description="Time between two posts of all metrics.", examples=[30]
    )
    resource: dict[str, str] = Field(
        default={},
        description="Resource attributes that are added to the agent's own or replace them. The agent's "
        "own are service.name, service.version and service.instance.id (HOST:PORT of "
        "export.listen).",
        examples=[{"deployment.environment.name": "production"}],
    )

    @model_validator(mode="after")
    def _fits(self) -> Otlp:
        demand(self._problems())
        return self

    def _problems(self) -> Iterable[Problem | None]:
        if not _URL.fullmatch(self.url):  # the message leaves out the address: it may hold a password
            yield (
                "url",
                "expected an address with its path, such as 'http://127.0.0.1:4318/v1/metrics', got another; "
                "give a login as basic_auth or token_file",
            )
        if "" in self.resource:
            yield "resource", "expected names such as deployment.environment.name, got an empty one"
        yield from self._access_problems("as url", [self.url])

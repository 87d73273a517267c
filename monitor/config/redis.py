"""The section of a `redis` source: the server, the stream and the login."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

from pydantic import Field, model_validator

from monitor.base.errors import SourceError
from monitor.config.access import ClientTls
from monitor.config.mapping import MAPPING, FieldMapping
from monitor.config.section import Problem, demand, sane
from monitor.config.sources import SourceSection

_URL = re.compile(r"(rediss?://[^\s/@?#]+(/\d+)?|unix:///[^\s@?#]+)")
_HINTS = {
    "AuthenticationError": "check username and password_file",
    "NoPermissionError": "allow the user +@stream, +@transaction, +@connection and the key of the stream",
    "WRONGTYPE": "name the key of a stream",
    "CERTIFICATE_VERIFY_FAILED": "see tls.ca",
    "No such file": "see the files of tls, or the path of the socket",
    "Timeout connecting": "see that it can be reached; without TLS its address begins with redis://",
    "closed by server": "with TLS its address begins with rediss://",
    "reset by peer": "with TLS its address begins with rediss://",
}
"""The remedy for an error, by a text that the client's message contains."""


class RedisSourceConfig(SourceSection):
    """A stream of a Redis server, version 7 or later."""

    files = ("password_file",)

    kind: Literal["redis"] = Field(description="A Redis stream.")
    # The address may hold a password. Validation refuses it; until then it must not be printed.
    url: str = Field(
        repr=False,
        description="redis://host:port/database, rediss:// for TLS, or unix:///path; without a login.",
        examples=["rediss://redis.example:6379/0"],
    )
    stream: str = Field(
        description="The key of the stream: predictions and labels, in any mixture.", examples=["answers"]
    )
    group: str = Field(
        default="blindsight",
        min_length=1,
        description="The consumer group; created if absent.",
        examples=["monitoring"],
    )
    field: str = Field(
        default="value",
        min_length=1,
        description="The field of an entry that contains the record.",
        examples=["record"],
    )
    start: Literal["earliest", "latest"] = Field(
        default="earliest",
        description="The place to begin in a stream that no group of this name has read.",
        examples=["latest"],
    )
    claim_seconds: float = Field(
        default=60.0,
        ge=1,
        le=86_400,
        description="A consumer of the group that is silent for this time counts as dead. Another "
        "consumer then claims its entries.",
        examples=[120],
    )
    batch_bytes: int = Field(
        default=4 << 20,
        ge=1 << 16,
        le=1 << 28,
        description="The approximate number of bytes of entries in one read. A single entry may be longer.",
        examples=[1048576],
    )
    username: str | None = Field(
        default=None,
        min_length=1,
        description="User name of the login. If absent, the default user.",
        examples=["agent"],
    )
    password_file: str | None = Field(
        default=None,
        min_length=1,
        description="A file with the password; read for each connection.",
        examples=["/run/secrets/redis"],
    )
    tls: ClientTls | None = Field(
        default=None, description="TLS for rediss. If absent, the system's trusted authorities are used."
    )
    name: str | None = Field(
        default=None,
        min_length=1,
        max_length=200,
        description="Name of the source in metrics; the stream's name if absent.",
        examples=["redis-eu"],
    )
    mapping: FieldMapping | None = MAPPING

    @property
    def label(self) -> str:
        """The source's name in metrics."""
        return self.name or self.stream

    @property
    def client_options(self) -> dict[str, str | None]:
        """The options for redis-py's client, without the password."""
        tls = (
            {}
            if self.tls is None
            else {"ca_certs": self.tls.ca, "certfile": self.tls.cert, "keyfile": self.tls.key}
        )
        return {"username": self.username, **{f"ssl_{key}": value for key, value in tls.items()}}

    def to_source_error(self, error: Exception) -> SourceError:
        """Return a SourceError with the text of Redis' error and a remedy."""
        hint = next((f"; {hint}" for sign, hint in _HINTS.items() if sign in f"{type(error)} {error}"), "")
        return SourceError(f"Redis at {self.url}, stream {self.stream}: {str(error).rstrip('.')}{hint}")

    @model_validator(mode="after")
    def _fits(self) -> RedisSourceConfig:
        demand(self._problems())
        return self

    def _problems(self) -> Iterable[Problem | None]:
        yield sane("stream", [self.stream])
        if not _URL.fullmatch(self.url):  # the message leaves out the address: it may hold a password
            yield (
                "url",
                "expected an address such as 'redis://127.0.0.1:6379/0', 'rediss://…' or 'unix:///path', got "
                "another; give a login as username and password_file",
            )
        if self.username is not None and self.password_file is None:
            yield "password_file", "missing: a username needs the file of its password"
        if self.tls is not None and not self.url.startswith("rediss:"):
            yield "tls", "expected a rediss:// address with tls: write rediss://, or leave tls out"

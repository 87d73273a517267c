"""The sections of an `http` source: its address, its clients and its limits."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from ipaddress import ip_address
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from monitor.config.mapping import MAPPING, FieldMapping
from monitor.config.section import Problem, Section, demand, listen_address, unique
from monitor.config.sources import SourceSection

FEWEST_TOKEN_CHARACTERS = 16
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
"""The characters of a bearer token by RFC 6750, section 2.1."""

_HOST = re.compile(r"[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]")
_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")  # the name of a mapping in `observe`
_BODIES_IN_SPOOL = 4  # with less room, a spool could refuse a large body for ever


def token_fault(token: str) -> str | None:
    """Return the problem of a bearer token, or None. The text does not contain the token.

    Examples
    --------
    >>> token_fault("0123456789abcdef"), token_fault("short")
    (None, 'expected at least 16 characters, got 5: take the output of `openssl rand -hex 32`')
    """
    if len(token) < FEWEST_TOKEN_CHARACTERS:
        return (
            f"expected at least {FEWEST_TOKEN_CHARACTERS} characters, got {len(token)}: take the output of "
            "`openssl rand -hex 32`"
        )
    if not _TOKEN.fullmatch(token):
        return (
            "expected letters, digits and the signs -._~+/= only, got others: take the output of "
            "`openssl rand -hex 32`"
        )
    return None


class HttpSpool(Section):
    """The durable queue of posted records that the agent has acknowledged but not used yet."""

    files = ("path",)

    path: str | None = Field(
        default=None,
        min_length=1,
        description="A separate folder on a local disk, created if absent. With store.postgres, leave it "
        "out to keep the records in the database, where a stand-by can read them.",
        examples=["spool"],
    )
    max_bytes: int = Field(
        default=1_000_000_000,
        ge=1_000_000,
        le=1_000_000_000_000,
        description="Maximum size of the waiting records. If it is exceeded, posts get status 429 and "
        "count as shed.",
        examples=[2_000_000_000],
    )


class BearerToken(Section):
    """A bearer token, in the configuration or in a file."""

    files = ("token_file",)

    token: str | None = Field(
        default=None, repr=False, description="The token itself.", examples=["replace-by-openssl-rand-hex-32"]
    )
    token_file: str | None = Field(
        default=None,
        min_length=1,
        description="A file with the token. The file is read again when it changes.",
        examples=["/run/secrets/token"],
    )

    @model_validator(mode="after")
    def _fits(self) -> Self:
        demand(self._problems())
        return self

    def _problems(self) -> Iterable[Problem | None]:
        if (self.token is None) == (self.token_file is None):
            got = "neither" if self.token is None else "both"
            yield "", f"expected token or token_file, got {got}: give one of them"
        if self.token is not None and (fault := token_fault(self.token)):
            yield "token", fault


class HttpToken(BearerToken):
    """A bearer token, with the tasks to which its holder may write."""

    name: str | None = Field(
        default=None,
        min_length=1,
        max_length=200,
        description="Name of its holder in metrics; its number in the list, from 1, if absent.",
        examples=["annotators"],
    )
    tasks: tuple[str, ...] | None = Field(
        default=None,
        min_length=1,
        description="The tasks that its holder may write to. If absent, all tasks.",
        examples=[["toxicity"]],
    )
    labels_per_day: int | None = Field(
        default=None,
        ge=1,
        le=1_000_000_000,
        description="Average limit for the labels of its holder. Further posts with labels get status "
        "429. A single post with more labels than the limit gets status 413. If absent, there "
        "is no limit.",
        examples=[5000],
    )

    def _problems(self) -> Iterable[Problem | None]:
        yield from super()._problems()
        if self.tasks is not None:
            yield unique("tasks", self.tasks)


def token_names(tokens: Sequence[BearerToken]) -> list[str]:
    """Return the name of the holder of each token.

    Examples
    --------
    >>> token_names([HttpToken(token=16 * "a", name="annotators"), HttpToken(token=16 * "b")])
    ['annotators', '2']
    """
    named = [token.name if isinstance(token, HttpToken) else None for token in tokens]
    return [name or str(number) for number, name in enumerate(named, start=1)]


class HttpTls(Section):
    """Files with certificates, which are read again when they change."""

    files = ("cert", "key", "client_ca")

    cert: str = Field(
        min_length=1, description="The server's certificate and its chain, PEM.", examples=["server.pem"]
    )
    key: str = Field(
        min_length=1,
        description="The private key of this certificate, PEM, without a passphrase.",
        examples=["server.key"],
    )
    client_ca: str | None = Field(
        default=None,
        min_length=1,
        description="Certificates of the authorities for clients, PEM. If set, each client must have a "
        "certificate (mutual TLS).",
        examples=["clients.pem"],
    )


class HttpSourceConfig(SourceSection):
    """Records that clients post to this agent: POST /v1/predictions and /v1/labels."""

    kind: Literal["http"] = Field(description="Posts over HTTP.")
    listen: str = Field(
        description="Address and port. Port 0 selects a free port.", examples=["0.0.0.0:9108"]
    )
    spool: HttpSpool = Field(
        default=HttpSpool(),
        description="The durable queue of acknowledged records: a folder, or the store's database.",
    )
    # A printed configuration must not contain tokens.
    tokens: tuple[HttpToken, ...] = Field(
        default=(),
        repr=False,
        description="The tokens of the clients that may write. If absent, every client that can connect "
        "may write.",
    )
    tls: HttpTls | None = Field(
        default=None, description="The certificates for HTTPS. If absent, plain HTTP."
    )
    allowed_hosts: tuple[str, ...] = Field(
        default=(),
        description="Names by which clients may address this source (the `Host` of a post), with any port; "
        "others get status 403. On a loopback address localhost, 127.0.0.1 and [::1] are always allowed, and "
        "nothing else if absent; on other addresses every name is, if absent.",
        examples=[["intake.example"]],
    )
    max_body_bytes: int = Field(
        default=4_194_304,
        ge=1024,
        le=268_435_456,
        description="Maximum size of a post, before and after decompression. A larger post gets status 413.",
        examples=[1_048_576],
    )
    max_requests: int = Field(
        default=32,
        ge=1,
        le=10_000,
        description="Maximum number of posts in memory. Further posts get status 503.",
        examples=[64],
    )
    read_seconds: float = Field(
        default=10.0,
        ge=0.1,
        le=600,
        description="Time limit for a request's head, and then for its body. A slower request gets status "
        "408.",
        examples=[5],
    )
    rows_per_second: int | None = Field(
        default=None,
        ge=1,
        le=100_000_000,
        description="Average limit for one task. Further posts get status 429. If absent, there is no limit.",
        examples=[20_000],
    )
    name: str | None = Field(
        default=None,
        min_length=1,
        max_length=200,
        description="Name of the source in metrics; http if absent.",
        examples=["scoring"],
    )
    mapping: FieldMapping | None = MAPPING
    observe: dict[str, FieldMapping] = Field(
        default={},
        description="Mappings by name. POST /v1/observe/NAME uses the mapping NAME. A format that needs no "
        "paths can be used by its name without a mapping here.",
    )

    @field_validator("listen", mode="after")
    @classmethod
    def _an_address(cls, value: str) -> str:
        listen_address(value)
        return value

    @model_validator(mode="after")
    def _fits(self) -> HttpSourceConfig:
        demand(self._problems())
        return self

    @property
    def is_loopback(self) -> bool:
        """True if only this machine can connect to the address; False if other machines can."""
        return _is_loopback(self.listen)

    def _problems(self) -> Iterable[Problem | None]:
        yield unique("allowed_hosts", self.allowed_hosts)
        yield from _observed_problems(self.observe)
        yield unique("tokens", token_names(self.tokens))
        for host in self.allowed_hosts:
            if not _HOST.fullmatch(host):
                yield (
                    "allowed_hosts",
                    "expected names of hosts without scheme and port, such as intake.example or "
                    f"[2001:db8::1], got {host[:60]!r}",
                )
        if self.spool.max_bytes < _BODIES_IN_SPOOL * self.max_body_bytes:
            yield (
                "spool.max_bytes",
                f"expected room for {_BODIES_IN_SPOOL} posts of max_body_bytes, "
                f"{_BODIES_IN_SPOOL * self.max_body_bytes}, got {self.spool.max_bytes}: raise it, or lower "
                "max_body_bytes",
            )
        if not (self.tokens or (self.tls and self.tls.client_ca) or self.is_loopback):
            yield (
                "listen",
                f"expected an address of this machine only, such as 127.0.0.1, where anyone may write, got "
                f"{self.listen!r}: give tokens, or tls with client_ca",
            )


def _observed_problems(observe: Mapping[str, FieldMapping]) -> Iterable[Problem]:
    for name, mapping in observe.items():
        if not _NAME.fullmatch(name):
            yield (
                "observe",
                "expected names of at most 100 letters, digits, dots, hyphens and underscores, as they stand "
                f"in the path of a post, got {name[:60]!r}",
            )
        for field, path in mapping.beside.items():
            problem = f"expected a path into the records, got {path}: only messages of kind: kafka have it"
            yield f"observe.{name}.{field}", problem


def _is_loopback(listen: str) -> bool:
    host, _ = listen_address(listen)
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"

"""The sections for the agent's HTTP requests: login, certificates and trusted authorities."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from pydantic import Field, model_validator

from monitor.config.section import Problem, Section, demand

_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_OWN_HEADERS = frozenset(
    {"authorization", "content-type", "content-encoding", "content-length", "host", "connection"}
)
_HEADER_VALUE = re.compile(r"[\x20-\x7e\x80-\xff\t]+")


class BasicAuth(Section):
    """A name and a password (RFC 7617)."""

    files = ("password_file",)

    username: str = Field(min_length=1, description="The user name, without a colon.", examples=["agent"])
    password_file: str = Field(
        min_length=1,
        description="A file with the password; read for each request.",
        examples=["/run/secrets/password"],
    )

    @model_validator(mode="after")
    def _fits(self) -> BasicAuth:
        problem = f"expected a name without a colon (the header's separator), got {self.username!r}"
        demand([("username", problem) if ":" in self.username else None])
        return self


class ClientTls(Section):
    """Files with certificates, which are read for each request."""

    files = ("ca", "cert", "key")

    ca: str | None = Field(
        default=None,
        min_length=1,
        description="Certificates of the trusted authorities, PEM. If absent, the system's.",
        examples=["ca.pem"],
    )
    cert: str | None = Field(
        default=None,
        min_length=1,
        description="The agent's own certificate, PEM, for mutual TLS.",
        examples=["agent.pem"],
    )
    key: str | None = Field(
        default=None,
        min_length=1,
        description="The private key of this certificate, PEM, without a passphrase.",
        examples=["agent.key"],
    )

    @model_validator(mode="after")
    def _fits(self) -> ClientTls:
        demand(self._problems())
        return self

    def _problems(self) -> Iterable[Problem]:
        if (self.cert is None) != (self.key is None):
            absent = "cert" if self.cert is None else "key"
            yield absent, "missing: a certificate and its key are given together"
        if self.ca is None and self.cert is None and self.key is None:
            yield "ca", "expected ca, or cert with key, or both, got neither: leave tls out"


class HttpAccess(Section):
    """The login, the certificates and the headers of requests to an HTTP server."""

    files = ("token_file",)

    token_file: str | None = Field(
        default=None,
        min_length=1,
        description="A file with a bearer token; read for each request. If absent, no token is sent.",
        examples=["/run/secrets/token"],
    )
    basic_auth: BasicAuth | None = Field(
        default=None,
        description="Login by name and password, instead of a token. If both are absent, there is no login.",
    )
    tls: ClientTls | None = Field(
        default=None, description="TLS for https. If absent, the system's trusted authorities are used."
    )
    # The value of a header may be a secret, so a printed configuration must not contain it.
    headers: dict[str, str] = Field(
        default={},
        repr=False,
        description="Additional headers of each request, such as X-Scope-OrgID.",
        examples=[{"X-Scope-OrgID": "team"}],
    )

    def _access_problems(self, where: str, urls: Sequence[str]) -> Iterable[Problem | None]:
        """Yield the problems of the keys of this class.

        Parameters
        ----------
        where : str
            The key of the addresses, as the end of a phrase, for the message.
        urls : sequence of str
            The addresses to which the agent sends requests.
        """
        yield from (_a_header(name, value) for name, value in self.headers.items())
        if self.token_file is not None and self.basic_auth is not None:
            yield "basic_auth", "expected token_file or basic_auth, got both: leave one out"
        if self.tls is not None and not any(url.startswith("https:") for url in urls):
            yield "tls", f"expected an https address {where}, got none: write https://, or leave tls out"


def _a_header(name: str, value: str) -> Problem | None:
    """Return a problem if a header is not valid, or is one that the agent sets."""
    if not _HEADER.fullmatch(name) or name.lower() in _OWN_HEADERS:
        return "headers", (
            "expected names of HTTP headers other than Authorization (see token_file and basic_auth), "
            f"Content-Type, Content-Encoding, Content-Length, Host, Connection, got {name!r}"
        )
    if _HEADER_VALUE.fullmatch(value):
        return None
    return "headers", f"expected one line of Latin-1 as the value of {name}, got something else"

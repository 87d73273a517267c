"""The section `alertmanager`: who is told of alerts directly, and how we show who we are."""

from __future__ import annotations

import re
from collections.abc import Iterable

from pydantic import Field, model_validator

from monitor.config.section import Problem, Section, demand, unique, without_login

_URL = re.compile(r"https?://[^\s/@?#]+(?:/(?!api/v2/alerts)[^\s?#]*)?")
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_OWN_LABELS = ("alertname", "severity", "task", "model", "group", "metric")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_OWN_HEADERS = frozenset({"authorization", "content-type", "content-length", "host", "connection"})
_HEADER_VALUE = re.compile(r"[\x20-\x7e\x80-\xff\t]+")


class BasicAuth(Section):
    """A name and a password (RFC 7617)."""

    files = ("password_file",)

    username: str = Field(min_length=1, description="The user name, without a colon.")
    password_file: str = Field(min_length=1, description="A file with the password; read for each request.")

    @model_validator(mode="after")
    def _fits(self) -> BasicAuth:
        told = f"expected a name without a colon (the header's separator), got {self.username!r}"
        demand([("username", told) if ":" in self.username else None])
        return self


class ClientTls(Section):
    """Certificates, as files; read for each request."""

    files = ("ca", "cert", "key")

    ca: str | None = Field(
        default=None,
        min_length=1,
        description="Certificates of the trusted authorities, PEM; the system's if absent.",
    )
    cert: str | None = Field(
        default=None, min_length=1, description="The agent's own certificate, PEM, for mutual TLS."
    )
    key: str | None = Field(
        default=None,
        min_length=1,
        description="The private key of this certificate, PEM, without a passphrase.",
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


class Alertmanager(Section):
    """Alertmanagers that are told of alerts directly, where no Prometheus evaluates rules."""

    files = ("token_file",)

    urls: tuple[str, ...] = Field(
        min_length=1,
        description="http://host:port of each Alertmanager of the cluster; the agent sends to all.",
    )
    resend_seconds: float = Field(
        default=60.0,
        ge=1,
        le=600,
        description="Time after which the agent repeats an alert; Alertmanager ends an alert after four "
        "such times without a repetition.",
    )
    labels: dict[str, str] = Field(
        default={"job": "blindsight"}, description="Additional labels of every alert."
    )
    runbooks: str = Field(
        default="deploy/runbooks", min_length=1, description="The part before /NAME.md in runbook_url."
    )
    token_file: str | None = Field(
        default=None,
        min_length=1,
        description="A file with a bearer token; read for each request. No token if absent.",
    )
    basic_auth: BasicAuth | None = Field(
        default=None,
        description="Login by name and password, instead of a token; no login if both are absent.",
    )
    tls: ClientTls | None = Field(
        default=None, description="TLS for https; the system's trusted authorities if absent."
    )
    # What a header holds may be a secret, which must not reach a log through a printed configuration.
    headers: dict[str, str] = Field(
        default={}, repr=False, description="Additional headers of each request, such as X-Scope-OrgID."
    )
    external_url: str | None = Field(
        default=None,
        min_length=1,
        description="The address of the page for people, for generatorURL; http:// (https:// with "
        "export.tls) and export.listen if absent.",
    )

    @model_validator(mode="after")
    def _fits(self) -> Alertmanager:
        demand(self._problems())
        return self

    def _problems(self) -> Iterable[Problem | None]:
        yield unique("urls", [without_login(url) for url in self.urls])
        yield from map(_an_alertmanager, self.urls)
        yield from map(_a_label, self.labels)
        yield from (_a_header(name, value) for name, value in self.headers.items())
        if self.token_file is not None and self.basic_auth is not None:
            yield "basic_auth", "expected token_file or basic_auth, got both: leave one out"
        if self.tls is not None and not any(url.startswith("https:") for url in self.urls):
            yield "tls", "expected an https address among urls, got none: write https://, or leave tls out"


def _an_alertmanager(url: str) -> Problem | None:
    if _URL.fullmatch(url):
        return None
    return "urls", (
        "expected addresses such as 'http://127.0.0.1:9093', without a user, a query and /api/v2/alerts, "
        f"got {without_login(url)!r}"
    )


def _a_label(name: str) -> Problem | None:
    if _LABEL.fullmatch(name) and name not in _OWN_LABELS:
        return None
    own = ", ".join(_OWN_LABELS)
    return "labels", (
        f"expected names of letters, digits and underscores other than {own}, which the alerts have "
        f"themselves, got {name!r}"
    )


def _a_header(name: str, value: str) -> Problem | None:
    if not _HEADER.fullmatch(name) or name.lower() in _OWN_HEADERS:
        own = "Authorization (see token_file and basic_auth), Content-Type, Content-Length, Host, Connection"
        return "headers", f"expected names of HTTP headers other than {own}, got {name!r}"
    if _HEADER_VALUE.fullmatch(value):
        return None
    return "headers", f"expected one line of Latin-1 as the value of {name}, got something else"

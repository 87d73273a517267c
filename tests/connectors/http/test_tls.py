"""TLS and mutual TLS over real sockets, with certificates that the openssl command makes for each run."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from connectors.http.source import HttpSource
from monitor.base.errors import SourceError
from monitor.config.root import HttpTls
from monitor.export.http.reloaded_file import LOOK_SECONDS
from monitor.export.http.tls import watched_context
from monitor.testing import HandClock
from tests.posting import SPAM, Posted, posting, row
from tests.services.authority import OPENSSL, Authority
from tests.services.process import PATIENCE_SECONDS, wait_until

pytestmark = pytest.mark.skipif(
    OPENSSL is None, reason="the openssl command is missing: it makes certificates"
)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls") / "ca")


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls") / "other")


def trusting(authority: Authority, client: tuple[Path, Path] | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority.cert))
    if client:
        context.load_cert_chain(*map(str, client))
    return context


def post(posted: Posted, context: ssl.SSLContext) -> int:
    with httpx.Client(verify=context) as client:
        return client.post(f"https://127.0.0.1:{posted.source.port}/v1/predictions", json=row(1)).status_code


def name_shown(posted: Posted, context: ssl.SSLContext) -> str:
    """Return the common name of the certificate that the server shows."""
    with (
        socket.create_connection(("127.0.0.1", posted.source.port), timeout=PATIENCE_SECONDS) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as secure,
    ):
        shown = secure.getpeercert()
        assert shown is not None
        return str(dict(pair[0] for pair in shown["subject"])["commonName"])  # type: ignore[misc, index]


def test_posts_over_tls(tmp_path: Path, authority: Authority, other: Authority) -> None:
    cert, key = authority.sign("server")
    with posting(tmp_path / "spool", tls={"cert": str(cert), "key": str(key)}) as posted:
        assert post(posted, trusting(authority)) == 202
        with pytest.raises(httpx.ConnectError, match="certificate verify failed"):
            post(posted, trusting(other))
        with pytest.raises(httpx.RemoteProtocolError):
            httpx.post(f"http://127.0.0.1:{posted.source.port}/v1/predictions", json=row(1))
        old = trusting(authority)
        old.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        assert post(posted, old) == 202
        assert len(posted.read_rows()) == 2


def test_with_client_ca_only_clients_that_it_signed_are_served(
    tmp_path: Path, authority: Authority, other: Authority
) -> None:
    cert, key = authority.sign("server")
    tls = {"cert": str(cert), "key": str(key), "client_ca": str(authority.cert)}
    with posting(tmp_path / "spool", tls=tls) as posted:
        assert post(posted, trusting(authority, authority.sign("client"))) == 202
        for client in (None, other.sign("client")):
            with pytest.raises((httpx.ReadError, httpx.RemoteProtocolError, httpx.ConnectError)):
                post(posted, trusting(authority, client))
        assert post(posted, trusting(authority, authority.sign("client"))) == 202
        assert len(posted.read_rows()) == 2


def test_a_new_certificate_is_shown_without_a_restart(tmp_path: Path, authority: Authority) -> None:
    cert, key = authority.sign("before", tmp_path)
    tls = {"cert": str(cert), "key": str(key)}
    with posting(tmp_path / "spool", tls=tls) as posted:
        context = trusting(authority)
        assert name_shown(posted, context) == "before"
        new_cert, new_key = authority.sign("after")
        key.write_bytes(new_key.read_bytes())  # half of the pair: the old one holds
        assert name_shown(posted, context) == "before"
        cert.write_bytes(new_cert.read_bytes())
        wait_until(lambda: name_shown(posted, context) == "after", "the new certificate is shown", 0.2)
        assert post(posted, context) == 202


def test_a_new_authority_of_clients_holds_without_a_restart(
    tmp_path: Path, authority: Authority, other: Authority
) -> None:
    cert, key = authority.sign("server")
    trusted = tmp_path / "clients.pem"
    trusted.write_bytes(authority.cert.read_bytes())
    clock = HandClock()
    watched = watched_context(HttpTls(cert=str(cert), key=str(key), client_ca=str(trusted)), clock)
    first = watched.current()
    trusted.write_bytes(other.cert.read_bytes())
    clock.advance(LOOK_SECONDS)
    second = watched.current()
    assert second.verify_mode is ssl.CERT_REQUIRED
    assert [len(each.get_ca_certs()) for each in (first, second)] == [1, 1]
    assert first.get_ca_certs() != second.get_ca_certs(), "the old authority must no longer be trusted"


def test_a_handshake_must_come_in_time(tmp_path: Path, authority: Authority) -> None:
    cert, key = authority.sign("server")
    tls = {"cert": str(cert), "key": str(key)}
    with posting(tmp_path / "spool", tls=tls, read_seconds=0.3) as posted, posted.connect() as silent:
        assert silent.recv(10) == b""


Break = Callable[[Path, Path, Path], None]


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (
            lambda cert, key, ca: cert.unlink(),
            r"tls: the certificate .*server.pem and the key .* cannot be used",
        ),
        (
            lambda cert, key, ca: key.write_text("no key"),
            r"tls: the certificate .* give PEM files that belong together",
        ),
        (lambda cert, key, ca: ca.unlink(), r"tls.client_ca: .*: No such file or directory; give a PEM file"),
        (
            lambda cert, key, ca: ca.write_text("none"),
            r"tls.client_ca: .* cannot be used: .*; give a PEM file of",
        ),
    ],
)
def test_files_that_cannot_be_used_are_told_before_anything_is_opened(
    tmp_path: Path, authority: Authority, spoil: Break, why: str
) -> None:
    cert, key = authority.sign("server", tmp_path)
    ca = tmp_path / "clients.pem"
    ca.write_bytes(authority.cert.read_bytes())
    spoil(cert, key, ca)
    tls = {"cert": str(cert), "key": str(key), "client_ca": str(ca)}
    source = HttpSource(Posted(tmp_path / "spool", tls=tls).settings, [SPAM])
    with pytest.raises(SourceError, match=why):
        source.open({})
    assert not (tmp_path / "spool").exists()


def test_a_key_with_a_passphrase_is_refused_and_nobody_is_asked_for_it(
    tmp_path: Path, authority: Authority
) -> None:
    cert, key = authority.sign("server", tmp_path)
    locked = tmp_path / "locked.key"
    authority._run("ec", "-in", key, "-aes256", "-passout", "pass:secret", "-out", locked)
    with pytest.raises(SourceError, match="the key without a passphrase"):
        watched_context(HttpTls(cert=str(cert), key=str(locked)))

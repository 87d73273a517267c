"""Alerts told to a real Alertmanager that is guarded: TLS, mutual TLS, passwords, tokens, headers."""

from __future__ import annotations

import base64
import re
import ssl
import threading
import urllib.request
from collections.abc import Callable, Iterator
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from monitor.base.errors import ConfigError, SinkError
from monitor.config.alertmanager import Alertmanager
from monitor.config.file import config_from, resolve_paths
from monitor.export.alertmanager.holding import BREACHED
from monitor.export.alertmanager.pusher import ALERTMANAGER
from monitor.export.push.access import Access
from tests.daemon import DaemonProcess, configuration
from tests.export.alertmanager.test_pusher import LOW, Agent, pusher
from tests.services.alertmanager_server import AlertmanagerServer, example
from tests.services.authority import OPENSSL, Authority
from tests.services.process import end_of, free_ports, wait_until

NewAlertmanager = Callable[..., AlertmanagerServer]
PASSWORD = "a pässword"
# perl -e 'print crypt("a pässword", q($2b$05$blindsightblindsightbe))'
WEB = """
tls_server_config: {cert_file: CERT, key_file: KEYCLIENTS}
basic_auth_users: {agent: $2b$05$blindsightblindsightbePHM9WD5bjpI8ggPVjHkphh6Nuu8NNlu}
"""
ALERTS = b"[]"
PATH = "/api/v2/alerts"


def access(**settings: Any) -> Access:
    return Access(Alertmanager(**settings), ALERTMANAGER)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    if OPENSSL is None:
        pytest.skip("the openssl command is missing: it makes certificates")
    return Authority(tmp_path_factory.mktemp("push") / "ca")


@pytest.fixture
def guarded(alertmanager: NewAlertmanager, authority: Authority) -> Callable[[bool], AlertmanagerServer]:
    """Return a function that starts an Alertmanager with a password and TLS, with client certificates or
    not.
    """

    def new(clients: bool) -> AlertmanagerServer:
        cert, key = authority.sign("server")
        context = ssl.create_default_context(cafile=str(authority.cert))
        context.load_cert_chain(*map(str, authority.sign("test")))
        reached = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context))
        login = base64.b64encode(f"agent:{PASSWORD}".encode()).decode()
        reached.addheaders = [("Authorization", f"Basic {login}")]
        client_auth = f", client_ca_file: {authority.cert}, client_auth_type: RequireAndVerifyClientCert"
        web = WEB.replace("CERT", str(cert)).replace("KEY", str(key))
        web = web.replace("CLIENTS", client_auth if clients else "")
        return alertmanager(example("http://127.0.0.1:9"), web=web, reached=reached)

    return new


@pytest.fixture
def password_file(tmp_path: Path) -> Path:
    path = tmp_path / "password"
    path.write_text(PASSWORD + "\n", encoding="utf-8")
    return path


def login(path: Path) -> dict[str, Any]:
    return {"basic_auth": {"username": "agent", "password_file": str(path)}}


def refusal(url: str, **settings: Any) -> str:
    """Return the reason why an Alertmanager cannot be told."""
    with pytest.raises(SinkError) as caught:
        access(urls=[url], **settings).post(url, ALERTS, 5.0, path=PATH)
    return str(caught.value)


def test_alerts_reach_an_alertmanager_behind_a_password_and_mutual_tls(
    guarded: Callable[[bool], AlertmanagerServer], authority: Authority, password_file: Path
) -> None:
    receiver = guarded(True)
    cert, key = authority.sign("agent")
    tls = {"ca": str(authority.cert), "cert": str(cert), "key": str(key)}
    push = pusher(receiver.url, Agent(LOW), **login(password_file), tls=tls)
    push.start()
    try:
        wait_until(lambda: bool(receiver.alerts(alertname=BREACHED)), "it is told")
    finally:
        push.stop()
    assert push.view.trouble is None
    without = refusal(receiver.url, **login(password_file), tls={"ca": str(authority.cert)})
    # The server's alert, or the end of the connection: whichever is seen first.
    pattern = r"(and we do not agree on TLS|does not answer) \(.+\); "
    assert re.search(pattern, without)


def test_who_is_not_let_in_or_not_trusted_is_told_what_to_correct(
    guarded: Callable[[bool], AlertmanagerServer],
    authority: Authority,
    password_file: Path,
    tmp_path: Path,
) -> None:
    receiver = guarded(False)
    tls = {"tls": {"ca": str(authority.cert)}}
    wrong = tmp_path / "wrong"
    wrong.write_text("another", encoding="utf-8")
    expected = (
        f"alertmanager.urls: {receiver.url} refuses the login (401: Unauthorized); correct token_file, "
    )
    assert refusal(receiver.url, **tls).startswith(expected)
    assert refusal(receiver.url, **tls, **login(wrong)).startswith(expected)
    assert "is not trusted (unable to get local issuer certificate); give who signs its certificate" in (
        refusal(receiver.url, **login(password_file))
    )
    other = Authority(tmp_path / "other")
    assert "is not trusted" in refusal(receiver.url, **login(password_file), tls={"ca": str(other.cert)})
    plain = receiver.url.replace("https", "http")
    # The server resets the connection after its answer: the text, the status or neither arrives before that.
    pattern = r"refuses the alerts \(400: (Client sent an HTTP request to an HTTPS server|Bad Request)|reset"
    assert re.search(pattern, refusal(plain))
    guarded_by = access(urls=[receiver.url], **tls, **login(password_file))
    guarded_by.post(receiver.url, ALERTS, 5.0, path=PATH)


class Guard(ThreadingHTTPServer):
    """A proxy before many Alertmanagers: it keeps the headers of posts, and answers with a set status."""

    daemon_threads = True

    def __init__(self) -> None:
        self.seen: list[Message] = []
        self.answer: tuple[int, dict[str, str]] = (200, {})
        super().__init__(("127.0.0.1", free_ports(1)[0]), _Post)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Post(BaseHTTPRequestHandler):
    server: Guard

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.seen.append(self.headers)
        status, headers = self.server.answer
        self.send_response(status)
        for name, value in {**headers, "Content-Length": "0"}.items():
            self.send_header(name, value)
        self.end_headers()

    def do_GET(self) -> None:
        self.do_POST()

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def guard() -> Iterator[Guard]:
    with Guard() as made:
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield made
        finally:
            made.shutdown()
            thread.join()


def test_a_token_is_read_for_each_request_and_headers_go_along(guard: Guard, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first\n", encoding="utf-8")
    posts = access(urls=[guard.url], token_file=str(token), headers={"X-Scope-OrgID": "team a"})
    posts.post(guard.url, ALERTS, 5.0, path=PATH)
    token.write_text("second", encoding="utf-8")
    posts.post(guard.url, ALERTS, 5.0, path=PATH)
    assert [seen["Authorization"] for seen in guard.seen] == ["Bearer first", "Bearer second"]
    assert [seen["X-Scope-OrgID"] for seen in guard.seen] == ["team a"] * 2
    assert [seen["Content-Type"] for seen in guard.seen] == ["application/json"] * 2


def test_a_redirection_is_an_error_and_carries_no_secret_elsewhere(guard: Guard, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret", encoding="utf-8")
    guard.answer = (302, {"Location": f"{guard.url}/elsewhere"})
    expected = f"alertmanager.urls: {guard.url} sends us elsewhere (302), which is not followed; give the "
    assert refusal(guard.url, token_file=str(token)).startswith(expected)
    assert len(guard.seen) == 1


@pytest.mark.parametrize("headers", [{}, {"Transfer-Encoding": "chunked"}])
def test_an_error_is_named_by_its_reason_phrase_if_no_body_arrives(
    guard: Guard, headers: dict[str, str]
) -> None:
    guard.answer = (400, headers)  # chunked: the connection ends before the first chunk
    assert f"{guard.url} refuses the alerts (400: Bad Request); correct" in refusal(guard.url)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be used: No such file or directory; give a file with one line of text"),
        (b"", "cannot be used: it is empty, or more than one line; give a file with one line"),
        (b"one\ntwo", "cannot be used: it is empty, or more than one line; give a file with one line"),
        (b"\xff secret", "cannot be used: it is no text; give a file with one line of text"),
        ("ü".encode(), "cannot be used: it holds more than ASCII; give a file with the token alone"),
    ],
)
def test_a_token_file_that_cannot_be_used_is_named(
    tmp_path: Path, content: bytes | None, message: str
) -> None:
    path = tmp_path / "token"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SinkError) as caught:
        access(urls=["http://a"], token_file=str(path)).check()
    assert str(caught.value) == f"alertmanager.token_file: {path} {message}"


def test_certificates_that_cannot_be_used_are_named(authority: Authority, tmp_path: Path) -> None:
    _, key = authority.sign("one")
    cert, _ = authority.sign("two")
    no_certificate = tmp_path / "ca.pem"
    no_certificate.write_text("none", encoding="utf-8")

    def message_of(**tls: str) -> str:
        with pytest.raises(SinkError) as caught:
            access(urls=["https://a"], tls=tls).check()
        return str(caught.value)

    assert message_of(ca=str(no_certificate)).startswith(
        f"alertmanager.tls.ca: {no_certificate} cannot be used: "
    )
    message = message_of(cert=str(cert), key=str(key))
    assert f"alertmanager.tls.cert: {cert} with the key {key} cannot be used: KEY_VALUES_MISMATCH; give" in (
        message
    )


def test_a_missing_file_refuses_the_start(tmp_path: Path) -> None:
    section = {"urls": ["http://127.0.0.1:9"], "token_file": "no/token"}
    (tmp_path / "in.ndjson").touch()
    sources = [{"kind": "file", "path": "in.ndjson", "follow": True}]
    with DaemonProcess(tmp_path, configuration(alertmanager=section, sources=sources)) as daemon:
        assert end_of(daemon.process) == 2
        assert f"alertmanager.token_file: {tmp_path}/no/token cannot be used: No such file" in daemon.log


@pytest.mark.parametrize(
    ("section", "message"),
    [
        (
            {"token_file": "t", "basic_auth": {"username": "u", "password_file": "p"}},
            "alertmanager.basic_auth: expected token_file or basic_auth, got both: leave one out",
        ),
        (
            {"basic_auth": {"username": "u:v", "password_file": "p"}},
            "alertmanager.basic_auth.username: expected a name without a colon (the header's separator), "
            "got 'u:v'",
        ),
        ({"basic_auth": {"username": "u"}}, "alertmanager.basic_auth.password_file: missing"),
        (
            {"tls": {"ca": "ca.pem"}},
            "alertmanager.tls: expected an https address among urls, got none: write https://, or leave",
        ),
        (
            {"urls": ["https://a"], "tls": {}},
            "alertmanager.tls.ca: expected ca, or cert with key, or both, got neither: leave tls out",
        ),
        (
            {"urls": ["https://a"], "tls": {"key": "k"}},
            "alertmanager.tls.cert: missing: a certificate and its key are given together",
        ),
        (
            {"headers": {"authorization": "secret"}},
            "alertmanager.headers: expected names of HTTP headers other than Authorization (see token_file "
            "and basic_auth), Content-Type, Content-Encoding, Content-Length, Host, Connection, got "
            "'authorization'",
        ),
        (
            {"headers": {"X-Key": "secret\r\nmore"}},
            "alertmanager.headers: expected one line of Latin-1 as the value of X-Key, got something else",
        ),
    ],
)
def test_a_login_that_cannot_be_is_refused_without_its_secret(section: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)) as caught:
        config_from({"tasks": {"t": {}}, "alertmanager": {"urls": ["http://a"], **section}})
    assert "secret" not in str(caught.value)


def test_its_files_are_taken_from_the_folder_of_the_configuration_and_headers_are_not_printed() -> None:
    section = {
        "urls": ["https://a"],
        **login(Path("p")),
        "tls": {"ca": "ca.pem", "cert": "c", "key": "k"},
        "headers": {"X-Key": "secret"},
    }
    config = config_from({"tasks": {"t": {}}, "alertmanager": section})
    alertmanager = resolve_paths(config, "/etc").alertmanager
    assert alertmanager is not None
    assert alertmanager.basic_auth is not None
    assert alertmanager.tls is not None
    paths = (
        alertmanager.basic_auth.password_file,
        alertmanager.tls.ca,
        alertmanager.tls.cert,
        alertmanager.tls.key,
    )
    assert paths == ("/etc/p", "/etc/ca.pem", "/etc/c", "/etc/k")
    assert "secret" not in repr(config)

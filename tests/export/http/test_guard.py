"""The exporter behind tokens and TLS."""

from __future__ import annotations

import base64
import json
import re
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from monitor.base.errors import ConfigError
from monitor.cli.outputs import exporter
from monitor.config.root import BearerToken, Export, HttpTls
from monitor.export.http.app import text
from monitor.export.http.messages import HttpRequest, Response
from monitor.export.http.server import HttpServer
from monitor.export.prometheus.collector import registry
from monitor.reports.views import AgentView
from tests.daemon import DaemonProcess, configuration
from tests.services.authority import OPENSSL, Authority
from tests.services.process import PATIENCE_SECONDS, free_ports, wait_until
from tests.services.prometheus_server import PrometheusServer

TOKEN, OTHER = "scrape-0123456789abcdef", "scrape-fedcba9876543210"
ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs" / "deployment.md"
DOCKERFILE = ROOT / "deploy" / "docker" / "Dockerfile"


async def _api(request: HttpRequest) -> Response:
    return text(200, "data")


@contextmanager
def served(export: Export, metrics: CollectorRegistry | None = None) -> Iterator[HttpServer]:
    server = exporter(export, AgentView, metrics or CollectorRegistry(), {"/api/x": _api})
    server.start()
    try:
        yield server
    finally:
        server.stop()


def guarded(*tokens: BearerToken, tls: HttpTls | None = None) -> Export:
    return Export(listen="127.0.0.1:0", tokens=tokens or (BearerToken(token=TOKEN),), tls=tls)


def ask(
    server: HttpServer, path: str, authorization: str = "", context: ssl.SSLContext | None = None
) -> tuple[int, str, str]:
    """Return the status, the challenges and the text."""
    scheme = "https" if context else "http"
    request = urllib.request.Request(f"{scheme}://127.0.0.1:{server.port}{path}")
    if authorization:
        request.add_header("Authorization", authorization)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS, context=context) as answer:
            return answer.status, "", answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers.get("WWW-Authenticate", ""), error.read().decode()


def basic(password: str) -> str:
    return "Basic " + base64.b64encode(f"ann:{password}".encode()).decode()


@pytest.mark.parametrize("path", ["/", "/metrics", "/api/x", "/nothing"])
def test_a_reader_needs_a_token(path: str) -> None:
    with served(guarded()) as server:
        for wrong in ("", f"Bearer {OTHER}", basic(OTHER), "Basic ???", f"Digest {TOKEN}", "Bearer"):
            status, challenges, body = ask(server, path, wrong)
            assert (status, challenges) == (401, 'Basic realm="Blindsight", Bearer realm="Blindsight"')
            assert body == (
                "Give a token of export.tokens: Authorization: Bearer …, or as the password of a login.\n"
            )
        for right in (f"Bearer {TOKEN}", basic(TOKEN)):
            assert ask(server, path, right)[0] == (404 if path == "/nothing" else 200)


@pytest.mark.parametrize("path", ["/-/healthy", "/-/ready"])
def test_probes_need_no_token(path: str) -> None:
    with served(guarded()) as server:
        assert ask(server, path)[0] != 401
        assert ask(server, path + "/../../metrics")[0] == 401


def test_a_token_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "scrape.token"
    path.write_text(TOKEN + "\n")
    with served(guarded(BearerToken(token_file=str(path)))) as server:
        assert ask(server, "/metrics", f"Bearer {TOKEN}")[0] == 200
        path.write_text(OTHER + "-new\n")
        wait_until(lambda: ask(server, "/metrics", f"Bearer {OTHER}-new")[0] == 200, "the new token is known")
        assert ask(server, "/metrics", f"Bearer {TOKEN}")[0] == 401


def test_files_that_cannot_be_used_refuse_the_start(tmp_path: Path) -> None:
    gone = str(tmp_path / "gone")
    with pytest.raises(ConfigError) as error:
        exporter(guarded(BearerToken(token_file=gone)), AgentView, CollectorRegistry(), {})
    assert str(error.value) == (
        f"export: The token file {gone} cannot be read: No such file or directory; correct token_file, or "
        "create it"
    )
    with pytest.raises(ConfigError, match=r"export: tls: the certificate .*gone and the key .*gone cannot"):
        exporter(guarded(tls=HttpTls(cert=gone, key=gone)), AgentView, CollectorRegistry(), {})


@pytest.mark.skipif(OPENSSL is None, reason="the openssl command is missing: it makes certificates")
def test_the_images_health_check_asks_with_and_without_tls(tmp_path: Path) -> None:
    [words] = re.findall(r'^    CMD (\["python".*\])$', DOCKERFILE.read_text(encoding="utf-8"), re.MULTILINE)
    (tmp_path / "in.ndjson").touch()
    cert, key = Authority(tmp_path / "ca").sign("server")
    tokens = [{"token": TOKEN}]

    def is_well(port: int) -> bool:
        code = json.loads(words)[2].replace("9109", str(port))
        done = subprocess.run(
            [sys.executable, "-c", code], timeout=PATIENCE_SECONDS, check=False, capture_output=True
        )
        return done.returncode == 0

    for number, tls in enumerate((None, {"cert": str(cert), "key": str(key)})):
        folder = tmp_path / str(number)
        folder.mkdir()
        export = {"listen": "127.0.0.1:0", "tokens": tokens} | ({"tls": tls} if tls else {})
        sources = [{"kind": "file", "path": str(tmp_path / "in.ndjson"), "follow": True}]
        with DaemonProcess(folder, configuration(export=export, sources=sources)) as daemon:
            port = daemon.port
            assert is_well(port)
        assert not is_well(port)


@pytest.mark.skipif(OPENSSL is None, reason="the openssl command is missing: it makes certificates")
def test_prometheus_scrapes_by_the_snippet_of_the_docs(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    cert, key = authority.sign("server")
    token = tmp_path / "scrape.token"
    token.write_text(TOKEN)
    export = guarded(BearerToken(token_file=str(token)), tls=HttpTls(cert=str(cert), key=str(key)))
    match = re.search(r"```yaml\n(scrape_configs:.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    assert match
    with served(export, registry(AgentView, 1000)) as server:
        trusting = ssl.create_default_context(cafile=str(authority.cert))
        assert ask(server, "/-/healthy", context=trusting)[0] != 401
        assert ask(server, "/metrics", context=trusting)[0] == 401
        snippet = match[1]
        for written, here in (
            ("agent:9109", f"127.0.0.1:{server.port}"),
            ("/etc/prometheus/scrape.token", str(token)),
            ("/etc/prometheus/ca.pem", str(authority.cert)),
        ):
            assert written in snippet
            snippet = snippet.replace(written, here)
        with PrometheusServer([], config="global: {scrape_interval: 1s}\n" + snippet) as prometheus:
            prometheus.wait_for('up{job="blindsight"} == 1')


def test_no_secret_comes_out_of_a_running_agent(tmp_path: Path) -> None:
    """The agent is configured with secrets, and all goes wrong: servers that are away, and wrong requests."""
    secrets = {
        name: f"{name}-hunter2-0123456789" for name in ("redis", "sql", "login", "topic", "kafka", "intake")
    }
    for name, secret in secrets.items():
        (tmp_path / f"{name}.secret").write_text(secret)
    (nobody,) = free_ports(1)
    away = f"127.0.0.1:{nobody}"

    def sasl(name: str) -> dict[str, Any]:
        login = {"sasl_plain_username": "agent", "sasl_plain_password": secrets[name]}
        return {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", **login}

    database = {"kind": "sql", "table": "labels", "cursor": "at"}
    sql_login = {"dsn": f"host=127.0.0.1 port={nobody} user=agent", "password_file": "sql.secret"}
    redis_login = {"username": "agent", "password_file": "redis.secret"}
    config = configuration(
        sources=[
            {"kind": "kafka", "brokers": [away], "topics": ["a"], "group": "g", "options": sasl("kafka")},
            {"kind": "redis", "url": f"redis://{away}/0", "stream": "s", **redis_login},
            database | sql_login,
            {
                "kind": "http",
                "listen": "127.0.0.1:0",
                "spool": {"path": "spool"},
                "tokens": [{"token": secrets["intake"], "labels_per_day": 1}],
            },
        ],
        reports={"kafka": {"brokers": [away], "topic": "w", "options": sasl("topic")}},
        store={"path": "state"},
        alertmanager={
            "urls": [f"http://{away}"],
            "resend_seconds": 1,
            "basic_auth": {"username": "agent", "password_file": "login.secret"},
        },
        export={"listen": "127.0.0.1:0", "tokens": [{"token": TOKEN}, {"token_file": "intake.secret"}]},
    )
    with DaemonProcess(tmp_path, config) as daemon:
        outages = (
            "source kafka: no Kafka",
            "source s: Redis",
            "labels: Database by psycopg",
            "reports.kafka: ",
            "posts are taken on port",
        )
        daemon.until(lambda: all(each in daemon.log for each in outages), "all outages are told")
        [port] = re.findall(r"posts are taken on port (\d+)", daemon.log)
        for token in (secrets["intake"], OTHER):
            for body in (b'[{"id": "a", "label": "ok"}, {"id": "b", "label": "ok"}]', b"{", b"[{}]"):
                asked_of(f"http://127.0.0.1:{port}/v1/labels", token, body)
        pages = [
            asked_of(f"http://127.0.0.1:{daemon.port}{path}", token)
            for path in ("/", "/metrics", "/api/v1/models", "/models/t/m", "/nothing", "/-/ready")
            for token in (TOKEN, OTHER, "")
        ]
        wrong = daemon.reload(config | {"export": {"listen": f"http://ann:{OTHER}@x", "tokens": TOKEN}})
        assert "a value that is not shown, as it may be secret" in wrong
        login = f"ann:{OTHER}@{away}"
        for section in (
            {"alertmanager": {"urls": [f"http://{login}"]}},
            {"sources": [{"kind": "redis", "url": f"redis://{login}/0", "stream": "s"}]},
            {"sources": [database | {"dsn": f"postgresql://{login}/labels"}]},
            {"reports": {"kafka": {"brokers": [login], "topic": "w", "options": [OTHER]}}},
            {"rejects": {"kafka": {"brokers": [away], "topic": "r", "options": {"acks": [OTHER]}}}},
        ):
            assert "The configuration was not reloaded" in daemon.reload(config | section)
        assert daemon.end()[0] == 0
    for secret in (*secrets.values(), TOKEN, OTHER):
        assert not any(secret in text for text in (daemon.log, *pages)), secret
    assert any("blindsight_build_info" in text for text in pages)


def asked_of(address: str, token: str, body: bytes | None = None) -> str:
    """Return the text of an answer, whatever its status: to a POST where there is a body."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    headers |= {"Content-Type": "application/json"} if body else {}
    try:
        request = urllib.request.Request(address, body, headers)
        with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:
            return f"{answer.headers}{answer.read().decode()}"
    except urllib.error.HTTPError as error:
        with error:
            return f"{error.headers}{error.read().decode()}"

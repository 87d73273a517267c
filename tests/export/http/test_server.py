"""The HTTP side over real sockets: what each path answers, in which format, and that it starts and stops."""

from __future__ import annotations

import dataclasses
import errno
import gzip
import logging
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator

import httpx
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from monitor.base.errors import ConfigError, SinkError
from monitor.export.http.app import OPENMETRICS_TYPE, TEXT_TYPE, build_app
from monitor.export.http.listening import cannot_listen, parse_listen
from monitor.export.http.negotiation import accepts_gzip, prefers_openmetrics
from monitor.export.http.server import HttpServer
from monitor.export.prometheus.collector import BlindsightCollector
from monitor.reports.views import AgentView
from tests.services.process import PATIENCE_SECONDS

# PROMETHEUS_2 is what Prometheus 2.42 sent to a socket that printed it; PROMETHEUS_3 is put together in its
# manner, with the escaping parameter and text format 1.0.0 that version 3 brought.
PROMETHEUS_2 = (
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
PROMETHEUS_3 = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,"
    "application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,"
    "text/plain;version=0.0.4;q=0.2,*/*;q=0.1"
)
FINE = AgentView(ready=True, healthy=True, reload_time=1.0)


class Agent:
    """A view that a test can change while the server runs."""

    def __init__(self) -> None:
        self.view = FINE
        self.registry = CollectorRegistry()
        self.registry.register(BlindsightCollector(lambda: self.view, 1000))
        app = build_app(lambda: self.view, self.registry, self.page)
        self.server = HttpServer(app, "127.0.0.1:0")

    def page(self, view: AgentView, query: str) -> str:
        return f"<p>ready: {view.ready}, é \ud800</p>"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.port}"


@pytest.fixture
def agent() -> Iterator[Agent]:
    agent = Agent()
    agent.server.start()
    try:
        yield agent
    finally:
        agent.server.stop()


class Slow(Collector):
    """A scrape that lasts until it is let go."""

    def __init__(self) -> None:
        self.entered, self.leave = threading.Event(), threading.Event()

    def describe(self) -> list[GaugeMetricFamily]:
        return [GaugeMetricFamily("slow", "Slow.")]

    def collect(self) -> list[GaugeMetricFamily]:
        self.entered.set()
        self.leave.wait(PATIENCE_SECONDS)
        return [GaugeMetricFamily("slow", "Slow.", value=1)]


# --- what each path answers ----------------------------------------------------------------------------


def test_the_page_is_html_of_the_newest_view(agent: Agent) -> None:
    answer = httpx.get(agent.url + "/")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert answer.text == "<p>ready: True, é ?</p>"
    agent.view = dataclasses.replace(FINE, ready=False)
    assert "ready: False" in httpx.get(agent.url + "/").text


def test_metrics_are_text_for_who_asks_for_nothing(agent: Agent) -> None:
    answer = httpx.get(agent.url + "/metrics", headers={"accept-encoding": "identity"})
    assert (answer.status_code, answer.headers["content-type"]) == (200, TEXT_TYPE)
    assert answer.content == generate_latest(agent.registry)
    assert "content-encoding" not in answer.headers
    assert answer.headers["vary"] == "Accept, Accept-Encoding"


@pytest.mark.parametrize("accept", [PROMETHEUS_2, PROMETHEUS_3])
def test_prometheus_gets_openmetrics(agent: Agent, accept: str) -> None:
    answer = httpx.get(agent.url + "/metrics", headers={"accept": accept})
    assert answer.headers["content-type"] == OPENMETRICS_TYPE
    assert answer.text.endswith("# EOF\n")


def test_metrics_are_compressed_for_who_asks(agent: Agent) -> None:
    with httpx.stream("GET", agent.url + "/metrics", headers={"accept-encoding": "gzip"}) as answer:
        raw = b"".join(answer.iter_raw())
    assert answer.headers["content-encoding"] == "gzip"
    assert gzip.decompress(raw) == generate_latest(agent.registry)


@pytest.mark.parametrize("word", ["healthy", "ready"])
def test_health_and_readiness_follow_the_view_and_say_why(agent: Agent, word: str) -> None:
    answer = httpx.get(f"{agent.url}/-/{word}")
    assert (answer.status_code, answer.text) == (200, f"Blindsight is {word}.\n")
    reasons = ("Source predictions is not connected.", "The engine has not moved for 60 s.")
    agent.view = dataclasses.replace(FINE, **{word: False}, reasons=reasons)
    answer = httpx.get(f"{agent.url}/-/{word}")
    assert answer.status_code == 503
    assert answer.text == f"Blindsight is not {word}.\n{reasons[0]}\n{reasons[1]}\n"
    other = {"healthy": "ready", "ready": "healthy"}[word]
    assert httpx.get(f"{agent.url}/-/{other}").status_code == 200


@pytest.mark.parametrize("path", ["/metrics/", "/-/reload", "/favicon.ico", "/../etc/x", "/-/", "/%2e%2e/x"])
def test_anything_else_is_not_found(agent: Agent, path: str) -> None:
    answer = httpx.get(agent.url + path)
    assert (answer.status_code, answer.text) == (404, "Not Found")


@pytest.mark.parametrize("path", ["/", "/metrics", "/-/healthy", "/-/ready"])
def test_only_get_and_head_are_allowed(agent: Agent, path: str) -> None:
    answer = httpx.post(agent.url + path, content=b"x")
    assert answer.status_code == 405
    assert set(answer.headers["allow"].split(", ")) == {"GET", "HEAD"}
    full, head = httpx.get(agent.url + path), httpx.head(agent.url + path)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == full.headers["content-length"]
    assert head.headers["content-type"] == full.headers["content-type"]


@pytest.mark.parametrize("path", ["/", "/metrics", "/-/ready", "/nowhere"])
def test_every_answer_carries_the_security_headers_and_names_no_software(agent: Agent, path: str) -> None:
    headers = httpx.get(agent.url + path).headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["content-security-policy"].startswith("default-src 'none';")
    assert headers["cache-control"] == "no-store"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["x-frame-options"] == "DENY"
    assert "server" not in headers


def test_a_page_that_fails_is_an_error_without_inner_workings(
    agent: Agent, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(view: AgentView, query: str) -> str:
        raise RuntimeError("secret detail")

    registry = CollectorRegistry()
    server = HttpServer(build_app(lambda: FINE, registry, broken), "127.0.0.1:0")
    server.start()
    try:
        answer = httpx.get(f"http://127.0.0.1:{server.port}/")
        assert (answer.status_code, answer.text) == (500, "Internal Server Error")
        assert httpx.get(f"http://127.0.0.1:{server.port}/-/healthy").status_code == 200
    finally:
        server.stop()
    assert "secret detail" in caplog.text, "the cause belongs in the log"


def test_health_is_answered_while_scrapes_hang() -> None:
    agent, slow = Agent(), Slow()
    agent.registry.register(slow)
    agent.server.start()
    scrapes = [threading.Thread(target=httpx.get, args=(agent.url + "/metrics",)) for _ in range(6)]
    try:
        for scrape in scrapes:
            scrape.start()
        assert slow.entered.wait(PATIENCE_SECONDS)
        assert httpx.get(agent.url + "/-/healthy", timeout=60).status_code == 200
        assert httpx.get(agent.url + "/-/ready", timeout=60).status_code == 200
        assert all(scrape.is_alive() for scrape in scrapes), "the scrapes were still hanging meanwhile"
    finally:
        slow.leave.set()
        for scrape in scrapes:
            scrape.join(PATIENCE_SECONDS)
        agent.server.stop()


def test_rubbish_on_the_socket_does_not_stop_the_server(agent: Agent) -> None:
    for rubbish in (
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/9.9\r\n\r\n",
        b"A" * 100_000,
        b"",
    ):
        with socket.create_connection(("127.0.0.1", agent.server.port), timeout=60) as connection:
            connection.sendall(rubbish)
    assert httpx.get(agent.url + "/-/healthy").status_code == 200


# --- headers that choose the format ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("accept", "chosen"),
    [
        ("", False),
        ("*/*", False),
        ("text/html,application/xhtml+xml,*/*;q=0.8", False),
        ("application/openmetrics-text", True),
        ("Application/OpenMetrics-Text; Version=1.0.0", True),
        ("application/openmetrics-text;version=0.0.1", True),
        ("application/openmetrics-text;version=2.0.0", False),
        ("application/openmetrics-text;q=0", False),
        ("application/openmetrics-text;q=0.3,text/plain;q=0.8", False),
        ("application/openmetrics-text;q=0.8,text/plain;version=0.0.4;q=0.3", True),
        ("application/openmetrics-text;q=x,,;;=", False),
        (PROMETHEUS_2, True),
        (PROMETHEUS_3, True),
    ],
)
def test_the_accept_header_chooses_the_format(accept: str, chosen: bool) -> None:
    assert prefers_openmetrics(accept) is chosen


@pytest.mark.parametrize(
    ("encodings", "allowed"),
    [
        ("gzip", True),
        ("GZIP", True),
        ("br, *;q=0.1", True),
        ("gzip;q=0", False),
        ("identity", False),
        ("", False),
    ],
)
def test_the_accept_encoding_header_allows_gzip(encodings: str, allowed: bool) -> None:
    assert accepts_gzip(encodings) is allowed


# --- start and stop ----------------------------------------------------------------------------------------


def test_a_port_in_use_is_a_sentence(agent: Agent) -> None:
    listen = f"127.0.0.1:{agent.server.port}"
    second = HttpServer(build_app(lambda: FINE, CollectorRegistry(), lambda view, query: ""), listen)
    with pytest.raises(SinkError) as refused:
        second.start()
    assert str(refused.value) == (
        f"export.listen: cannot listen on {listen}: the port is in use; stop the program that has it, "
        "or take another port (0 takes a free one)"
    )
    assert isinstance(refused.value.__cause__, OSError)


def test_an_address_of_another_machine_is_a_sentence() -> None:
    server = HttpServer(build_app(lambda: FINE, CollectorRegistry(), lambda view, query: ""), "192.0.2.1:0")
    with pytest.raises(SinkError, match=r"cannot listen on 192\.0\.2\.1:0: this machine has no such address"):
        server.start()


def test_an_unknown_host_name_is_a_sentence() -> None:
    # RFC 6761 promises that `invalid` never resolves.
    server = HttpServer(
        build_app(lambda: FINE, CollectorRegistry(), lambda view, query: ""), "nowhere.invalid:9109"
    )
    with pytest.raises(SinkError, match=r"nowhere\.invalid:9109: the host name is not known; give"):
        server.start()


def test_a_port_that_is_not_allowed_is_a_sentence() -> None:
    message = cannot_listen("127.0.0.1:80", PermissionError(errno.EACCES, "Permission denied"))
    assert message.endswith(
        "cannot listen on 127.0.0.1:80: this user may not use the port; take one from 1024 on"
    )
    assert "Too many open files; give another" in cannot_listen(
        "x:1", OSError(errno.EMFILE, "Too many open files")
    )


@pytest.mark.parametrize(
    "listen",
    ["", ":", "9109", ":9109", "localhost", "localhost:", "a:b", "a:-1", "a:65536", "::1:80", "[]:1", "a:１"],
)
def test_a_wrong_address_is_refused_with_what_is_allowed(listen: str) -> None:
    with pytest.raises(ConfigError) as refused:
        HttpServer(build_app(lambda: FINE, CollectorRegistry(), lambda view, query: ""), listen)
    assert str(refused.value) == (
        "export.listen: expected host:port, such as 127.0.0.1:9109, 0.0.0.0:9109 or [::1]:9109, "
        f"with a port from 0 to 65535, got {listen!r}"
    )


def test_addresses_are_read() -> None:
    assert parse_listen("0.0.0.0:65535") == ("0.0.0.0", 65535)
    assert parse_listen("[fe80::1]:80") == ("fe80::1", 80)


def test_ipv6_is_served() -> None:
    server = HttpServer(build_app(lambda: FINE, CollectorRegistry(), lambda view, query: ""), "[::1]:0")
    try:
        server.start()
    except SinkError as error:
        pytest.skip(f"this machine has no IPv6 loopback: {error}")
    try:
        assert httpx.get(f"http://[::1]:{server.port}/-/healthy").status_code == 200
    finally:
        server.stop()


def test_after_stop_nothing_listens_and_the_port_is_free_at_once() -> None:
    agent = Agent()
    agent.server.start()
    port = agent.server.port
    assert httpx.get(agent.url + "/-/ready").status_code == 200
    agent.server.stop()
    with pytest.raises(httpx.ConnectError):
        httpx.get(agent.url + "/-/ready")
    again = HttpServer(
        build_app(lambda: FINE, CollectorRegistry(), lambda view, query: ""), f"127.0.0.1:{port}"
    )
    again.start()
    again.stop()
    assert not [t for t in threading.enumerate() if t.name == "blindsight-http"]


def test_stop_does_not_wait_for_a_hanging_scrape_or_an_idle_connection(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("monitor.export.http.server._GRACE_SECONDS", 0.2)
    agent, slow = Agent(), Slow()
    agent.registry.register(slow)
    agent.server.start()
    scrape = socket.create_connection(("127.0.0.1", agent.server.port), timeout=60)
    idle = socket.create_connection(("127.0.0.1", agent.server.port), timeout=60)
    try:
        scrape.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        assert slow.entered.wait(PATIENCE_SECONDS)
        stopped = threading.Thread(target=agent.server.stop)
        stopped.start()
        stopped.join(PATIENCE_SECONDS)
        assert not stopped.is_alive()
        assert not slow.leave.is_set(), "it stopped while the scrape still hung"
        assert scrape.recv(1000).startswith(b"HTTP/1.1 503 ")
    finally:
        slow.leave.set()
        scrape.close()
        idle.close()
    _wait_for(lambda: not [t for t in threading.enumerate() if t.name == "blindsight-http"])
    assert [r for r in caplog.records if r.levelno >= logging.WARNING] == []


def test_stopping_twice_or_unstarted_is_no_error() -> None:
    agent = Agent()
    agent.server.stop()
    agent.server.start()
    agent.server.stop()
    agent.server.stop()


def test_signals_stay_with_the_program() -> None:
    # Not held against the defaults: under nohup, and in a script's background, SIGINT is ignored.
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    agent = Agent()
    agent.server.start()
    try:
        assert httpx.get(agent.url + "/-/healthy").status_code == 200
        assert [signal.getsignal(number) for number in numbers] == before
    finally:
        agent.server.stop()
    assert [signal.getsignal(number) for number in numbers] == before


def test_requests_are_not_logged(agent: Agent, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        httpx.get(agent.url + "/nowhere")
    assert [r for r in caplog.records if not r.name.startswith("http")] == [], "httpx logs its own"


def _wait_for(condition: Callable[[], bool], seconds: float = PATIENCE_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert condition()

"""Scrapers that hang, crawl or come in crowds: cut in time, bounded in memory, and nobody else notices."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace

import httpx
import pytest
from prometheus_client import CollectorRegistry

from monitor.export.http.app import build_app
from monitor.export.http.bounds import Bounds
from monitor.export.http.messages import HttpRequest, Response, text
from monitor.export.http.server import HttpServer
from monitor.reports.views import AgentView
from tests.services.process import PATIENCE_SECONDS, wait_until

LARGE = 16 << 20
"""Far more than the system itself takes of an answer, a few MiB."""


BOUNDS = Bounds(
    connections=8, request_seconds=2.0, made_seconds=2.0, taken_seconds=2.0, unsent_bytes=40 << 20
)
"""Less patience than in earnest."""


@contextmanager
def serving(bounds: Bounds = BOUNDS) -> Iterator[HttpServer]:
    """Run a server with a page of 16 MiB."""
    app = build_app(
        lambda: AgentView(ready=True), CollectorRegistry(), lambda view, query: "x" * LARGE, {"/slow": slow}
    )
    server = HttpServer(app, "127.0.0.1:0", bounds)
    server.start()
    try:
        yield server
    finally:
        server.stop()


async def slow(request: HttpRequest) -> Response:
    await asyncio.sleep(PATIENCE_SECONDS)
    return text(200, "late")


@pytest.fixture
def server() -> Iterator[HttpServer]:
    with serving() as server:
        yield server


def connected(server: HttpServer) -> socket.socket:
    """Return a connection with a small buffer of its own, so that unread bytes stay with the server."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(PATIENCE_SECONDS)
    connection.connect(("127.0.0.1", server.port))
    return connection


def healthy(server: HttpServer) -> bool:
    return httpx.get(f"http://127.0.0.1:{server.port}/-/healthy", timeout=PATIENCE_SECONDS).status_code == 200


def is_cut(connection: socket.socket) -> bool:
    """Return whether the other side has let go; reads what there is."""
    try:
        while connection.recv(1 << 20):
            pass
    except ConnectionError:
        return True
    return True


def crawl(connection: socket.socket, until: float) -> None:
    while time.monotonic() < until:
        connection.sendall(b"G")
        time.sleep(0.1)


GET = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"


def test_one_that_connects_and_says_nothing_is_cut() -> None:
    with serving(replace(BOUNDS, request_seconds=0.2)) as server:
        with closing(connected(server)) as silent:
            assert is_cut(silent)
        wait_until(lambda: server.view.waiting == 0, "it is gone")
        assert (server.view.lost, server.view.delivered) == (1, 0)


def test_one_that_sends_a_byte_now_and_then_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("monitor.export.http.connection._LINGER_SECONDS", 0.1)
    began = time.monotonic()
    with serving(replace(BOUNDS, request_seconds=1.0)) as server:
        with closing(connected(server)) as crawling, pytest.raises(ConnectionError):
            crawl(crawling, until=began + PATIENCE_SECONDS)
        assert server.view.lost == 1
        assert healthy(server)


def test_one_that_never_reads_its_answer_is_cut() -> None:
    with serving(replace(BOUNDS, taken_seconds=1.0)) as server, closing(connected(server)) as hanging:
        hanging.sendall(GET)
        wait_until(lambda: server.view.delivered == 1, "it was answered")
        assert server.view.waiting == 1
        wait_until(lambda: server.view.waiting == 0, "it is gone")
        assert healthy(server)
    assert server.view.lost == 1


def test_one_that_reads_is_served_and_its_connection_may_be_used_again() -> None:
    bounds = replace(BOUNDS, request_seconds=1.0, made_seconds=60.0, taken_seconds=60.0)
    with serving(bounds) as server, httpx.Client(base_url=f"http://127.0.0.1:{server.port}") as client:
        for pause in (bounds.request_seconds + 0.2, 0.0):
            assert len(client.get("/", timeout=PATIENCE_SECONDS).content) == LARGE
            time.sleep(pause)
        wait_until(lambda: server.view.delivered == 2, "both were answered")
        assert (server.view.waiting, server.view.lost) == (1, 0), "over one connection"


def test_a_crowd_that_hangs_keeps_no_one_out(server: HttpServer) -> None:
    with ExitStack() as stack:
        for _ in range(30):
            stack.enter_context(closing(connected(server)))
            assert healthy(server)
            assert server.view.waiting <= 8
    assert server.view.lost >= 20


def test_one_more_cuts_who_waits_before_what_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("monitor.export.http.server._GRACE_SECONDS", 0.1)
    with ExitStack() as stack:
        server = stack.enter_context(serving(replace(BOUNDS, made_seconds=PATIENCE_SECONDS)))
        making = stack.enter_context(closing(connected(server)))
        making.sendall(b"GET /slow HTTP/1.1\r\nhost: x\r\n\r\n")
        wait_until(lambda: len(server._held._working) == 1, "it is asked")
        for _ in range(12):
            stack.enter_context(closing(connected(server)))
        wait_until(lambda: server.view.lost >= 5, "the silent ones are cut")
        assert len(server._held._working) == 1


def test_idle_connections_are_let_go_and_not_counted_as_lost() -> None:
    with serving(replace(BOUNDS, idle_seconds=0.2)) as server, closing(connected(server)) as idle:
        idle.sendall(b"GET /-/ready HTTP/1.1\r\nhost: x\r\n\r\n")
        assert is_cut(idle)
        assert (server.view.lost, server.view.delivered) == (0, 1)


def test_what_nobody_takes_is_bounded_all_together() -> None:
    with ExitStack() as stack:
        server = stack.enter_context(serving(replace(BOUNDS, taken_seconds=60.0)))
        for count in range(1, 7):
            stack.enter_context(closing(connected(server))).sendall(GET)
            wait_until(lambda count=count: server.view.delivered == count, "it was answered")
            assert server.view.waiting <= 4
        wait_until(lambda: 2 <= server.view.waiting <= 4, "the first are cut")
        assert server.view.lost == 6 - server.view.waiting


def test_an_answer_that_is_long_in_the_making_is_cut_too() -> None:
    with serving(replace(BOUNDS, made_seconds=0.2)) as server, closing(connected(server)) as waiting:
        waiting.sendall(b"GET /slow HTTP/1.1\r\nhost: x\r\n\r\n")
        assert is_cut(waiting)
        assert server.view.lost == 1

"""Scrapers that hang, crawl or come in crowds: cut in time, bounded in memory, and nobody else notices."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing

import anyio
import httpx
import pytest
from prometheus_client import CollectorRegistry
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from monitor.export.http import patience
from monitor.export.http.server import HttpServer, build_app
from monitor.reports.views import AgentView
from tests.services.process import wait_until

LARGE = 16 << 20
"""Far more than the system itself takes of an answer, a few MiB."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[HttpServer]:
    """With a page of 16 MiB, and less patience than in earnest."""
    monkeypatch.setattr(patience, "REQUEST_SECONDS", 0.5)
    monkeypatch.setattr(patience, "ANSWER_SECONDS", 1.0)
    monkeypatch.setattr(patience, "MOST_CONNECTIONS", 8)
    monkeypatch.setattr(patience, "MOST_UNSENT_BYTES", 40 << 20)
    app = build_app(lambda: AgentView(ready=True), CollectorRegistry(), lambda view: "x" * LARGE)
    found = HttpServer(app, "127.0.0.1:0")
    found.start()
    try:
        yield found
    finally:
        found.stop()


def connected(server: HttpServer) -> socket.socket:
    """With a small buffer of its own, so that what it does not read stays with the server."""
    found = socket.socket()
    found.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    found.settimeout(10)
    found.connect(("127.0.0.1", server.port))
    return found


def healthy(server: HttpServer) -> bool:
    return httpx.get(f"http://127.0.0.1:{server.port}/-/healthy", timeout=5).status_code == 200


def is_cut(connection: socket.socket) -> bool:
    """Whether the other side has let go; reads what there is."""
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


def test_one_that_connects_and_says_nothing_is_cut(server: HttpServer) -> None:
    with closing(connected(server)) as silent:
        assert is_cut(silent)
    wait_until(lambda: server.view.waiting == 0, 5, "it is gone")
    assert (server.view.lost, server.view.delivered) == (1, 0)


def test_one_that_sends_a_byte_now_and_then_is_cut(server: HttpServer) -> None:
    began = time.monotonic()
    with closing(connected(server)) as crawling, pytest.raises(ConnectionError):
        crawl(crawling, until=began + 10)
    assert server.view.lost == 1
    assert healthy(server)


def test_one_that_never_reads_its_answer_is_cut(server: HttpServer) -> None:
    with closing(connected(server)) as hanging:
        hanging.sendall(GET)
        wait_until(lambda: server.view.delivered == 1, 5, "it was answered")
        assert server.view.waiting == 1
        wait_until(lambda: server.view.waiting == 0, 5, "it is gone")
        assert healthy(server)
    assert server.view.lost == 1


def test_one_that_reads_is_served_and_its_connection_may_be_used_again(server: HttpServer) -> None:
    with httpx.Client(base_url=f"http://127.0.0.1:{server.port}", timeout=5) as client:
        for _ in range(4):
            assert len(client.get("/").content) == LARGE
            time.sleep(0.4)
    assert (server.view.lost, server.view.delivered) == (0, 4)


def test_a_crowd_that_hangs_keeps_no_one_out(server: HttpServer) -> None:
    with ExitStack() as stack:
        for _ in range(30):
            stack.enter_context(closing(connected(server)))
            assert healthy(server)
            assert server.view.waiting <= 8
    assert server.view.lost >= 20


def test_what_nobody_takes_is_bounded_all_together(
    server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "ANSWER_SECONDS", 60.0)
    with ExitStack() as stack:
        for count in range(1, 7):
            stack.enter_context(closing(connected(server))).sendall(GET)
            wait_until(lambda count=count: server.view.delivered == count, 5, "it was answered")
            assert server.view.waiting <= 4
        wait_until(lambda: 2 <= server.view.waiting <= 4, 5, "the first are cut")
        assert server.view.lost == 6 - server.view.waiting


def test_an_answer_that_is_long_in_the_making_is_cut_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "ANSWER_SECONDS", 0.5)

    async def slow(request: Request) -> Response:
        await anyio.sleep(30)
        return PlainTextResponse("late")

    server = HttpServer(Starlette(routes=[Route("/", slow)]), "127.0.0.1:0")
    server.start()
    try:
        with closing(connected(server)) as waiting:
            waiting.sendall(GET)
            assert is_cut(waiting)
        assert server.view.lost == 1
    finally:
        server.stop()

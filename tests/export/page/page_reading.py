"""The reading of a rendered page as text, and a server of the pages of a rig like an agent's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from html.parser import HTMLParser

import httpx
from prometheus_client import CollectorRegistry

from monitor.export.http.app import build_app
from monitor.export.http.server import HttpServer
from monitor.export.page import render_page
from monitor.export.page.document import shown_page
from monitor.export.page.routes import page_routes
from monitor.export.page.windows import Windows
from monitor.reports.views import AgentView
from tests.streams import Rig

VOID = {"meta", "link", "br", "img"}


class Reader(HTMLParser):
    """A parser of a page into its visible text, one line a block; it fails on a tag left open."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag in {"br", "tr", "p", "li", "h1", "h2", "h3", "h4", "section", "summary"}:
            self.text += "\n"
        elif tag in {"td", "th"}:
            self.text += "|"

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text += data


def read(view: AgentView) -> Reader:
    return reading(render_page(view))


def reading(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    reader.close()
    assert reader.open == []
    return reader


@contextmanager
def serving(rig: Rig, windows: Windows) -> Iterator[httpx.Client]:
    """Yield the agent's HTTP side over these windows."""
    view = AgentView(engine=rig.engine.view())
    app = build_app(lambda: view, CollectorRegistry(), shown_page, page_routes(lambda: view, windows))
    server = HttpServer(app, "127.0.0.1:0")
    server.start()
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{server.port}") as client:
            yield client
    finally:
        server.stop()

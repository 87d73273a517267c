"""Reads a rendered page as a person does."""

from __future__ import annotations

from html.parser import HTMLParser

from monitor.export.page import render_page
from monitor.reports.views import (
    AgentView,
)

VOID = {"meta", "link", "br", "img"}


class Reader(HTMLParser):
    """Reads a page into its visible text, one line a block, and fails on a tag left open."""

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
    reader = Reader()
    reader.feed(render_page(view))
    reader.close()
    assert reader.open == []
    return reader

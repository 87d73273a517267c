"""The pictures of the documentation: as their command takes them they hold the whole chart."""

from __future__ import annotations

import struct
from pathlib import Path

from tests.screenshots import CONFIDENCES, DOCS, MODEL, PICTURES, agent, take
from tests.services.browser import Browser
from tests.services.process import wait_until


def size(picture: Path) -> tuple[int, int]:
    """Width and height, from the head of a PNG."""
    data = picture.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", data[16:24])
    return width, height


def ends(browser: Browser, origin: str) -> dict[str, float]:
    """By picture, the pixel at which the words below the first chart end."""
    found = {}
    for name, settings in PICTURES.items():
        with browser.tab(origin, **settings) as tab:
            tab.page.goto(origin + "/")
            said = tab.page.locator("figure .readout").first
            tab.page.locator("figure").first.scroll_into_view_if_needed()
            said.wait_for()
            tab.page.evaluate("scrollTo(0, 0)")
            box = said.bounding_box()
        found[name] = box["y"] + box["height"]
    return found


def test_the_pictures_hold_the_whole_chart(browser: Browser, tmp_path: Path) -> None:
    with agent() as origin:

        def taken() -> bool:
            before = ends(browser, origin)
            take(browser, origin, tmp_path)
            return ends(browser, origin) == before

        wait_until(taken, "what the page shows stays in its place while the pictures are taken")
        for name, end in ends(browser, origin).items():
            width, height = size(tmp_path / name)
            assert width == PICTURES[name]["viewport"]["width"]
            assert height > end, "the words below the chart are its end"
    light, dark = ((tmp_path / f"page-{scheme}.png").read_bytes() for scheme in ("light", "dark"))
    assert light != dark
    assert size(tmp_path / CONFIDENCES)[1] > 300, "a table of ten rows beside a picture"
    assert size(tmp_path / MODEL)[1] > 1000, (
        "a chart begins some 500 pixels from the top, and a table follows"
    )


def test_those_in_the_documentation_are_of_these_widths_and_are_shown() -> None:
    shown = (DOCS / "page.md").read_text(encoding="utf-8")
    for name, settings in PICTURES.items():
        width, height = size(DOCS / name)
        assert width == settings["viewport"]["width"]
        assert height > 1000, "a chart begins some 750 pixels from the top"
    assert [name for name in (*PICTURES, CONFIDENCES, MODEL) if f"]({name})" not in shown] == []

"""Pictures of the page: those of the documentation hold the whole chart, and in no size is anything cut."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.screenshots import (
    CONFIDENCES,
    DOCS,
    MODEL,
    PICTURES,
    SCHEMES,
    WIDTHS,
    Running,
    agent,
    looks,
    take,
)
from tests.services.browser import Browser
from tests.services.process import wait_until

CUT = """() => {
  const found = [], small = innerWidth <= 960;
  const shown = (one) => one.checkVisibility() && !one.closest(".unseen, .skip");
  // On a small screen the tables that are no cards, and the pictures of a report, are there to be scrolled.
  const scrolled = (box) => small && box.querySelector("table.sheet, svg[width='1200']");
  if (document.documentElement.scrollWidth > innerWidth) found.push("the page is wider than the window");
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const [node, one] = [texts.currentNode, texts.currentNode.parentElement];
    if (!node.data.trim() || !shown(one) || one.closest("script, style, noscript")) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    const [own, box, picture] = [range.getBoundingClientRect(), one.closest(".scroll"), one.closest("svg")];
    const within = [document.documentElement, box, picture?.closest("figure, .beside > *")]
      .filter((each) => each && !(box && scrolled(box))).map((each) => each.getBoundingClientRect());
    if (picture) within.push(picture.getBoundingClientRect());
    if (within.some((each) => own.left < each.left - 1 || own.right > each.right + 1)) found.push(node.data);
  }
  return found;
}"""
"""The texts that do not lie wholly within the window, the table and the picture that they stand in."""

OVER_EACH_OTHER = """() => {
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), all = [];
  while (texts.nextNode()) {
    const [node, one] = [texts.currentNode, texts.currentNode.parentElement];
    if (!node.data.trim() || !one.checkVisibility() || one.closest("script, style, .unseen, .skip")) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    all.push([node.data.trim(), [...range.getClientRects()].filter((box) => box.width > 2)]);
  }
  const meet = (a, b) =>
    a.left < b.right - 2 && b.left < a.right - 2 && a.top < b.bottom - 5 && b.top < a.bottom - 5;
  return all.flatMap(([one, boxes], i) => all.slice(i + 1)
    .filter(([, others]) => boxes.some((a) => others.some((b) => meet(a, b))))
    .map(([other]) => [one, other]));
}"""
"""Pairs of texts that overlap."""


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with agent() as running_agent:
        yield running_agent


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the pictures: CI names one, and keeps its content."""
    folder = Path(os.environ.get("BLINDSIGHT_PICTURES") or tmp_path_factory.mktemp("pictures"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def size(picture: Path) -> tuple[int, int]:
    """Width and height, from the head of a PNG."""
    data = picture.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", data[16:24])
    return width, height


def ends(browser: Browser, origin: str) -> dict[str, float]:
    """Return, by picture, the pixel at which the words below the first chart end."""
    bottoms = {}
    for name, settings in PICTURES.items():
        with browser.tab(origin, **settings) as tab:
            tab.page.goto(origin + "/")
            readout = tab.page.locator("figure .readout").first
            tab.page.locator("figure").first.scroll_into_view_if_needed()
            readout.wait_for()
            tab.page.evaluate("scrollTo(0, 0)")
            box = readout.bounding_box()
        bottoms[name] = box["y"] + box["height"]
    return bottoms


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_is_cut_and_nothing_overlaps(
    browser: Browser, running: Running, kept: Path, width: int, scheme: str
) -> None:
    with looks(browser, *running, scheme, width) as pages:
        for name, page in pages.items():
            picture = kept / f"{name}-{scheme}-{width}.png"
            page.screenshot(path=picture, full_page=True)
            assert size(picture)[0] == width
            assert page.evaluate(CUT) == [], name
            assert page.evaluate(OVER_EACH_OTHER) == [], name


@pytest.mark.parametrize("width", [800, 1040])
def test_nothing_is_cut_between_these_widths(browser: Browser, running: Running, width: int) -> None:
    with looks(browser, *running, "light", width) as pages:
        for name, page in pages.items():
            assert page.evaluate(CUT) == [], name
            assert page.evaluate(OVER_EACH_OTHER) == [], name


def test_a_text_that_is_cut_and_one_over_another_are_found(browser: Browser) -> None:
    with browser.tab("file://", viewport={"width": 360, "height": 740}) as tab:
        tab.page.set_content(
            '<p>Right</p><div class="scroll" style="overflow: auto"><table><tr>'
            f'<td style="white-space: nowrap">{"Too long " * 20}</td></tr></table></div>'
            '<p style="margin-top: -22px">Over it</p>'
        )
        assert [text.strip()[:8] for text in tab.page.evaluate(CUT)] == ["Too long"]
        assert [pair[1] for pair in tab.page.evaluate(OVER_EACH_OTHER)] == ["Over it"]


def test_the_pictures_hold_the_whole_chart(browser: Browser, running: Running, tmp_path: Path) -> None:
    origin = running.origin

    def take_pictures() -> bool:
        before = ends(browser, origin)
        take(browser, origin, tmp_path)
        return ends(browser, origin) == before

    wait_until(take_pictures, "what the page shows stays in its place while the pictures are taken")
    for name, end in ends(browser, origin).items():
        width, height = size(tmp_path / name)
        assert width == PICTURES[name]["viewport"]["width"]
        assert height > end, "the words below the chart are its end"
    light, dark = ((tmp_path / f"page-{scheme}.png").read_bytes() for scheme in ("light", "dark"))
    assert light != dark
    assert size(tmp_path / CONFIDENCES)[1] > 300, "a table of ten rows beside a picture"
    assert size(tmp_path / MODEL)[1] > 900, "a chart begins some 400 pixels from the top, and a table follows"


def test_those_in_the_documentation_are_of_these_widths_and_are_shown() -> None:
    shown = (DOCS / "page.md").read_text(encoding="utf-8")
    for name, settings in PICTURES.items():
        width, height = size(DOCS / name)
        assert width == settings["viewport"]["width"]
        assert height > 900, "a chart begins some 600 pixels from the top"
    assert [name for name in (*PICTURES, CONFIDENCES, MODEL) if f"]({name})" not in shown] == []

"""Pictures of the page, taken in a real Chromium of a real agent.

    python -m tests.screenshots
    python -m tests.screenshots looks --folder FOLDER

The first command writes the pictures of the documentation again: `docs/page-light.png`, `page-dark.png` and
`page-narrow.png`, the page from its top to the end of its first chart, `page-confidences.png`, the part that
unfolds below that, and `page-model.png`, the page of a model down to its comparison with another one. The
second one writes the first page, the page of a model and a report, whole, in both themes at three widths, as
CI keeps them; they are not in git. The stream is seeded, and its times are those of its records.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from monitor.cli.reporting import report
from tests.daemon import DaemonProcess, configuration, ndjson
from tests.export.page.test_browser import PHONE, WORSE, records
from tests.services.browser import Browser
from tests.streams import ORIGINAL

DOCS = Path(__file__).parents[1] / "docs"
WIDE = {"width": 1040, "height": 960}
PICTURES: Mapping[str, Mapping[str, Any]] = {
    "page-light.png": {"color_scheme": "light", "viewport": WIDE},
    "page-dark.png": {"color_scheme": "dark", "viewport": WIDE},
    "page-narrow.png": {"color_scheme": "light", "viewport": PHONE},
}
_START = 1_795_161_600.0  # 2026-11-20 08:00 UTC
_GOOD, _BAD = 2500, 1000  # answers of each model: 25 windows, then ten in which one model is worse
_MARGIN = 16  # pixels below the chart
CONFIDENCES = "page-confidences.png"
MODEL = "page-model.png"
WIDTHS = (360, 1400, 2560)
SCHEMES = ("light", "dark")
COMPARED = "/models/toxicity/erm?compare=irm"


def stream(folder: Path) -> dict[str, Any]:
    """Write the records, and return the configuration of an agent that reads them."""
    rows = records(_GOOD, _START, ORIGINAL, 5) + records(_BAD, _START + _GOOD, WORSE, 6)
    (folder / "in.ndjson").write_bytes(ndjson(rows))
    task = {
        "reference": {"first_windows": 20},
        "objective": {"accuracy": {"min": 0.9}},
        "calibration": {"refit_labels": None},
        "groups": ["region"],
    }
    settings = configuration(
        sources=[{"kind": "file", "path": "in.ndjson", "follow": True}], store={"path": "state"}, task=task
    )
    settings["tasks"] = {"toxicity": settings["tasks"].pop("t")}
    return settings


def take(browser: Browser, origin: str, folder: Path) -> None:
    """Every one of `PICTURES`, and that of the confidences, into a folder.

    Parameters
    ----------
    browser : Browser
    origin : str
        Of an agent that has read the whole stream.
    folder : Path
    """
    for name, settings in PICTURES.items():
        with browser.tab(origin, **settings) as tab:
            tab.page.goto(origin + "/")
            figure = tab.page.locator("figure").first
            figure.scroll_into_view_if_needed()  # charts are drawn as they come into sight
            figure.locator(".plot canvas").wait_for()
            tab.page.evaluate("scrollTo(0, 0)")
            box = figure.bounding_box()
            clip = {"x": 0, "y": 0, "width": settings["viewport"]["width"]}
            clip["height"] = box["y"] + box["height"] + _MARGIN
            tab.page.screenshot(path=folder / name, clip=clip, full_page=True)
    with browser.tab(origin, **PICTURES["page-light.png"]) as tab:
        tab.page.goto(origin + "/")
        folded = tab.page.locator("details:has-text('Confidences of erm')")
        folded.locator("summary").click()
        folded.screenshot(path=folder / CONFIDENCES)
        tab.page.goto(origin + COMPARED)
        tab.page.locator("figure.large .plot canvas").wait_for()
        clip = {"x": 0, "y": 0, "width": WIDE["width"]}
        clip["height"] = tab.page.locator("#window").bounding_box()["y"]
        tab.page.screenshot(path=folder / MODEL, clip=clip, full_page=True)


@contextmanager
def looks(browser: Browser, origin: str, store: Path, scheme: str, width: int) -> Iterator[dict[str, Any]]:
    """Yield the first page, the page of a model and a report, open in tabs once their charts are drawn.

    Parameters
    ----------
    browser : Browser
    origin : str
        Of an agent that has read the whole stream.
    store : Path
        Of this agent; the report is written beside it.
    scheme : {"light", "dark"}
    width : int
        Of the window, in pixels.
    """
    out = store.parent / "report.html"
    if not out.exists():
        report(store, out, external_url=origin)
    addresses = {"page": f"{origin}/", "model": origin + COMPARED, "report": out.as_uri()}
    viewport = {"width": width, "height": 900 if width > PHONE["width"] else PHONE["height"]}
    with ExitStack() as tabs:
        pages = {}
        for name, address in addresses.items():
            of = "file://" if name == "report" else origin
            tab = tabs.enter_context(browser.tab(of, color_scheme=scheme, viewport=viewport))
            tab.page.goto(address)
            if name != "report":
                tab.page.locator("figure").first.scroll_into_view_if_needed()
                tab.page.locator("figure .plot canvas").first.wait_for()
                tab.page.evaluate("scrollTo(0, 0)")
            pages[name] = tab.page
        yield pages


def take_looks(browser: Browser, origin: str, store: Path, folder: Path) -> None:
    """Take the pictures of `looks`, both themes at every width, into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for scheme in SCHEMES:
        for width in WIDTHS:
            with looks(browser, origin, store, scheme, width) as pages:
                for name, page in pages.items():
                    page.screenshot(path=folder / f"{name}-{scheme}-{width}.png", full_page=True)


class Running(NamedTuple):
    """An agent that has read the whole stream: its address, and the folder of its store."""

    origin: str
    store: Path


@contextmanager
def agent() -> Iterator[Running]:
    """Yield one that has read the whole stream."""
    with (
        tempfile.TemporaryDirectory(prefix="blindsight-pictures-") as folder,
        DaemonProcess(Path(folder), stream(Path(folder))) as daemon,
    ):
        for model in ("erm", "irm"):
            daemon.until_value((_GOOD + _BAD) // 100, "windows_closed_total", model=model)
        address = "/chart.svg?task=toxicity&model=erm&metric=accuracy"
        daemon.until(lambda: "out of control" in daemon.get(address)[1], "its windows are saved")
        yield Running(f"http://127.0.0.1:{daemon.port}", Path(folder) / "state")


def main() -> None:
    """Take the pictures."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("which", nargs="?", choices=("docs", "looks"), default="docs")
    parser.add_argument("--folder", type=Path, default=DOCS)
    arguments = parser.parse_args()
    with agent() as (origin, store), Browser() as browser:
        if arguments.which == "looks":
            take_looks(browser, origin, store, arguments.folder)
        else:
            take(browser, origin, arguments.folder)


if __name__ == "__main__":
    main()

"""Pictures of the page for the documentation, taken in a real Chromium of a real agent.

    python -m tests.screenshots

writes `docs/page-light.png`, `page-dark.png` and `page-narrow.png` anew, the page from its top to the end of
its first chart, `page-confidences.png`, what can be unfolded below that, and `page-model.png`, the page of a
model down to its comparison with another one. The stream is seeded, and its
times are those of its records.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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


def stream(folder: Path) -> dict[str, Any]:
    """Writes the records, and gives the configuration of an agent that reads them."""
    rows = records(_GOOD, _START, ORIGINAL, 5) + records(_BAD, _START + _GOOD, WORSE, 6)
    (folder / "in.ndjson").write_bytes(ndjson(rows))
    task = {
        "reference": {"first_windows": 20},
        "objective": {"accuracy": {"min": 0.9}},
        "calibration": {"refit_labels": None},
        "groups": ["region"],
    }
    found = configuration(
        sources=[{"kind": "file", "path": "in.ndjson", "follow": True}], store={"path": "state"}, task=task
    )
    found["tasks"] = {"toxicity": found["tasks"].pop("t")}
    return found


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
        tab.page.goto(origin + "/models/toxicity/erm?compare=irm")
        tab.page.locator("figure.large .plot canvas").wait_for()
        clip = {"x": 0, "y": 0, "width": WIDE["width"]}
        clip["height"] = tab.page.locator("#window").bounding_box()["y"]
        tab.page.screenshot(path=folder / MODEL, clip=clip, full_page=True)


@contextmanager
def agent() -> Iterator[str]:
    """One that has read the whole stream; its address."""
    with (
        tempfile.TemporaryDirectory(prefix="blindsight-pictures-") as folder,
        DaemonProcess(Path(folder), stream(Path(folder))) as daemon,
    ):
        for model in ("erm", "irm"):
            daemon.until_value((_GOOD + _BAD) // 100, "windows_closed_total", model=model)
        asked = "/chart.svg?task=toxicity&model=erm&metric=accuracy"
        daemon.until(lambda: "out of control" in daemon.get(asked)[1], "its windows are saved")
        yield f"http://127.0.0.1:{daemon.port}"


def main(folder: Path = DOCS) -> None:
    """Take the pictures."""
    with agent() as origin, Browser() as browser:
        take(browser, origin, folder)


if __name__ == "__main__":
    main()

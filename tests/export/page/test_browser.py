"""The page in a real Chromium, served by a real agent: what it shows, asks for, and how it is reached."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe

from monitor.base.results import Estimate
from monitor.export.page import assets, render_page
from monitor.export.page.windows import RecentWindows
from monitor.reports.views import MetricEstimate
from tests.daemon import DaemonProcess, configuration, ndjson
from tests.export.page.page_reading import serving
from tests.export.page.test_page import MODEL, of
from tests.services.browser import Browser, Tab
from tests.streams import ORIGINAL, Rig, answers, newest_wrong, task

WORSE = (0.5, 0.4, 0.1)
PHONE = {"width": 360, "height": 740}

INKS = """() => {
  const canvas = document.querySelector("figure .plot canvas");
  const [pen, width, height] = [canvas.getContext("2d"), canvas.width, canvas.height];
  const [seen, pixels] = [{}, pen.getImageData(0, 0, width, height).data];
  for (let i = 0; i < pixels.length; i += 4)
    if (pixels[i + 3] === 255) {
      const key = [pixels[i], pixels[i + 1], pixels[i + 2]].join(",");
      seen[key] = (seen[key] || 0) + 1;
    }
  return seen;
}"""
"""How many pixels of the first chart have each colour."""


def records(n: int, start: float, weights: tuple[float, ...], seed: int) -> list[dict[str, Any]]:
    """Return answers of `erm` by these weights and of `irm` by the ordinary ones; every second one has its
    label.
    """
    rng = np.random.default_rng(seed)
    records = answers(rng, n, weights=weights, start=start, labelled=True)
    records += answers(rng, n, model="irm", start=start, labelled=True)
    for place, record in enumerate(records):
        record["groups"] = {"region": "eu" if place % 3 else "us"}
        if place % 2:
            del record["label"]
    return sorted(records, key=lambda record: record["time"])


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    """Yield 25 windows as in the baseline, then ten in which `erm` is worse: its alarm is latched."""
    folder = tmp_path_factory.mktemp("page")
    stream = records(2500, 1.79e9, (0.9, 0.08, 0.02), 5) + records(1000, 1.79e9 + 2500, WORSE, 6)
    (folder / "in.ndjson").write_bytes(ndjson([*stream, b"not JSON"]))
    task = {
        "groups": ["region"],
        "objective": {"accuracy": {"min": 0.9}},
        "reference": {"first_windows": 20},
        "metrics": ["accuracy", "ece"],
    }
    config = configuration(
        sources=[{"kind": "file", "path": "in.ndjson", "follow": True}], store={"path": "state"}, task=task
    )
    with DaemonProcess(folder, config) as started:
        for model in ("erm", "irm"):
            started.until_value(35, "windows_closed_total", task="t", model=model)
        started.until(
            lambda: "out of control" in started.get("/chart.svg?" + ERM)[1], "its windows are saved"
        )
        yield started


ERM = "task=t&model=erm&metric=accuracy"


@pytest.fixture(scope="module")
def origin(daemon: DaemonProcess) -> str:
    return f"http://127.0.0.1:{daemon.port}"


def open_page(tab: Tab, origin: str) -> Any:
    """Return the page once every figure in sight has its chart."""
    tab.page.goto(origin + "/")
    tab.page.locator("figure").first.scroll_into_view_if_needed()  # charts are drawn as they come into sight
    tab.page.wait_for_selector("figure .plot canvas")
    return tab.page


def test_states_alarms_and_charts_are_shown_with_no_error_and_no_request_to_anywhere_else(
    browser: Browser, origin: str
) -> None:
    with browser.tab(origin) as tab:
        page = open_page(tab, origin)
        assert page.locator("h3").all_inner_texts() == ["erm objective breached", "irm in control"]
        assert page.inner_text(".glance") == "1 model misses its objective. 1 in control."
        first = page.inner_text(".overview tbody tr >> nth=0")
        assert re.match(
            r"erm\s+objective breached, out of control since (\d+ (s|min|h)|2026-09-21 \d\d:\d\d UTC)\s",
            first,
        )
        page.wait_for_selector(".overview svg.trend path.value", state="attached")
        readout = page.inner_text("figure:has-text('erm: accuracy') .readout")
        assert readout.startswith("Window 34, 2026-")
        assert readout.endswith("out of control")
        assert "floor 90.0 %" in page.inner_text("figure:has-text('erm: accuracy') .keys")
        assert "unknown" in page.inner_text("table:has-text('ece')"), "and why, as nothing is calibrated"
        assert page.locator("#rejects td").all_inner_texts() == ["malformed", "1"]
        page.wait_for_load_state("networkidle")
        assert (tab.complaints, tab.elsewhere) == ([], [])


def test_a_time_is_an_age_for_48_hours_and_then_a_date(browser: Browser, origin: str) -> None:
    with browser.tab(origin) as tab:
        tab.page.goto(origin + "/")
        newest = tab.page.locator(".overview tbody tr >> nth=0").locator("td").last.locator("time")
        end = datetime.fromisoformat(newest.get_attribute("datetime") or "")
        for hours, words in ((47, "47 h ago"), (48, f"{end:%Y-%m-%d %H:%M} UTC")):
            tab.page.clock.set_fixed_time(end + timedelta(hours=hours))
            tab.page.reload()
            assert newest.inner_text() == words


def test_confidences_and_the_calibration_curve_are_unfolded_and_agree_with_the_metrics(
    browser: Browser, origin: str, daemon: DaemonProcess
) -> None:
    metrics = daemon.metrics()
    with browser.tab(origin, viewport=PHONE) as tab:
        page = open_page(tab, origin)
        folded = page.locator("details:has-text('Confidences of erm')")
        picture = folded.locator("svg.curve")
        assert not picture.is_visible()
        folded.locator("summary").press("Enter")
        assert picture.is_visible()
        assert picture.bounding_box()["width"] <= PHONE["width"]
        cells = folded.locator("tbody td:nth-child(2)").all_inner_texts()
        answers = [int(cell.replace(",", "")) for cell in cells]
        buckets = [metrics.value("confidence_ratio_bucket", model="erm", le=end) for end in ("0.9", "+Inf")]
        assert [sum(answers[:7]), sum(answers)] == buckets == [buckets[0], 3500]
        labelled = folded.locator("tbody td:nth-child(4)").all_inner_texts()
        counted = metrics.all("calibration_curve_labelled_total", model="erm").values()
        assert [int(cell.replace(",", "") or 0) for cell in labelled] == list(counted)
        assert sum(counted) == metrics.total("calibration_curve_labelled_total", model="irm") == 1750
        assert picture.locator("circle").count() == sum(count > 0 for count in counted)
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
        assert (tab.complaints, tab.elsewhere) == ([], [])


def test_the_chart_draws_the_alarm_the_estimate_and_the_floor(browser: Browser, origin: str) -> None:
    with browser.tab(origin, color_scheme="light") as tab:
        page = open_page(tab, origin)
        colours = page.evaluate(INKS)
        assert colours.get("230,159,0", 0) > 100, "the bar over the windows whose alarm stands"
        assert colours.get("0,114,178", 0) > 200, "the estimate"
        assert colours.get("0,121,90", 0) > 50, "the floor"


def test_everything_is_reached_by_the_keyboard_and_a_chart_is_walked_through(
    browser: Browser, origin: str
) -> None:
    with browser.tab(origin) as tab:
        page = open_page(tab, origin)
        reached = []
        for _ in range(24):
            page.keyboard.press("Tab")
            reached.append(
                page.evaluate("document.activeElement.className || document.activeElement.textContent")
            )
            outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
            assert outline == "solid", reached[-1]
        assert reached[:5] == ["skip", "Metrics", "Health", "Readiness", "API"]
        assert reached[5:8] == ["t/erm", "Runbook", "scroll"]
        assert "erm" in reached
        assert "plot" in reached
        plot = page.locator("figure .plot").first
        plot.focus()
        page.keyboard.press("Home")
        assert page.inner_text("figure .readout >> nth=0").startswith("Window 0, ")
        page.keyboard.press("ArrowRight")
        assert page.inner_text("figure .readout >> nth=0").startswith("Window 1, ")
        page.keyboard.press("End")
        page.keyboard.press("ArrowLeft")
        assert page.inner_text("figure .readout >> nth=0").startswith("Window 33, ")
        label = plot.get_attribute("aria-label")
        assert label.startswith(
            "Control chart of erm: accuracy, up to window 34. 35 windows; the newest: Window 34"
        )


def test_a_chart_is_zoomed_with_mouse_and_keyboard_and_stays_so(browser: Browser, origin: str) -> None:
    with browser.tab(origin) as tab:
        page = open_page(tab, origin)
        readout, whole = page.locator("figure .readout").first, page.locator("figure button").first
        plot = page.locator("figure .plot").first
        assert not whole.is_visible()
        plot.focus()
        for key in ("Home", "ArrowRight", "+", "+"):
            page.keyboard.press(key)
        assert readout.inner_text().startswith("Window 1, "), "the window stays selected"
        assert whole.is_visible()
        for _ in range(20):
            page.keyboard.press("ArrowRight")
        assert readout.inner_text().startswith("Window 21, "), "the part that is shown moves along"
        page.keyboard.press("Escape")
        assert not whole.is_visible()
        assert readout.inner_text().startswith("Window 21, ")
        page.keyboard.press("ArrowLeft")
        assert readout.inner_text().startswith("Window 20, ")
        box = page.locator("figure .u-over").first.bounding_box()
        assert box
        middle = box["y"] + box["height"] / 2
        page.mouse.move(box["x"] + box["width"] * 0.4, middle)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] * 0.6, middle, steps=5)
        page.mouse.up()
        assert whole.is_visible()
        page.evaluate("matchMedia('(prefers-color-scheme: dark)').dispatchEvent(new Event('change'))")
        assert page.locator("figure button").first.is_visible(), "drawn again, it shows the same part"
        page.locator("figure button").first.click()
        assert not page.locator("figure button").first.is_visible()
        assert "plot" in page.evaluate("document.activeElement.className")
        assert (tab.complaints, tab.elsewhere) == ([], [])


def test_a_window_is_described_with_its_labels(browser: Browser, origin: str) -> None:
    with browser.tab(origin) as tab:
        page = open_page(tab, origin)
        page.locator("figure .plot").first.focus()
        page.keyboard.press("Home")
        words = page.inner_text("figure .readout >> nth=0")
        pattern = r"Window 0, 2026-.* UTC: .* \d+\.\d % \(.* % to .* %\) · realised .* % of \d+ labels"
        assert re.match(pattern, words), words


def test_what_a_screen_reader_needs_is_there(browser: Browser, origin: str) -> None:
    with browser.tab(origin) as tab:
        page = open_page(tab, origin)
        assert page.get_attribute("html", "lang") == "en"
        assert page.locator("main").count() == page.locator("h1").count() == 1
        levels = page.evaluate("[...document.querySelectorAll('h1,h2,h3,h4')].map((h) => +h.tagName[1])")
        assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
        assert page.locator("table:not(:has(caption))").count() == 0
        assert page.locator("table th:not([scope])").count() == 0
        unnamed = "[role=region]:not([aria-label]), [role=img]:not([aria-label]), img:not([alt])"
        assert page.locator(unnamed).count() == 0
        ids = page.evaluate("[...document.querySelectorAll('[id]')].map((one) => one.id)")
        assert len(ids) == len(set(ids))


def test_the_table_of_models_is_sorted_and_filtered_and_stays_so(browser: Browser, origin: str) -> None:
    ends = (0.9, 0.5, 0.7, 0.95, 0.6, 0.8)
    models = [
        dataclasses.replace(
            MODEL,
            model=f"m{i}",
            objectives=(),
            estimates=(MetricEstimate("accuracy", "average_confidence", Estimate(end, end, end, 0.95, 500)),),
        )
        for i, end in enumerate(ends)
    ]
    realised = MetricEstimate("accuracy", "realised", Estimate(0.77, 0.75, 0.79, 0.95, 123))
    labelled = [dataclasses.replace(one, estimates=(*one.estimates, realised)) for one in models]
    views = iter([models, labelled])
    with browser.tab(origin) as tab:
        page = tab.page
        page.route(
            origin + "/",
            lambda route: route.fulfill(body=render_page(of(*next(views))), content_type="text/html"),
        )
        page.goto(origin + "/")
        names = page.locator(".overview tbody tr:visible th")
        assert names.all_inner_texts() == ["m0", "m1", "m2", "m3", "m4", "m5"], "as they came"
        estimate = page.locator(".overview thead button", has_text="Estimate")
        estimate.click()
        assert names.all_inner_texts() == ["m1", "m4", "m2", "m5", "m0", "m3"]
        estimate.click()
        assert page.get_attribute(".overview thead th:nth-child(4)", "aria-sort") == "descending"
        page.get_by_label("Filter by model, task, state or metric").fill("90.0")
        assert names.all_inner_texts() == ["m0"]
        page.get_by_label("Filter by model, task, state or metric").fill("m0")
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        page.wait_for_function("document.getElementById('overview').textContent.includes('of 123')")
        assert names.all_inner_texts() == ["m0"]
        page.get_by_label("Filter by model, task, state or metric").fill("out control")
        assert names.all_inner_texts() == ["m3", "m0", "m5", "m2", "m4", "m1"]


def test_the_table_of_models_is_sorted_by_the_keyboard(browser: Browser, origin: str) -> None:
    with browser.tab(origin) as tab:
        page = tab.page
        page.goto(origin + "/")
        page.wait_for_selector(".overview thead button")
        heads = page.locator(".overview thead button").all_inner_texts()
        reached: list[str] = []
        while "Newest window" not in reached:
            page.keyboard.press("Tab")
            reached.append(page.evaluate("document.activeElement.textContent"))
            assert len(reached) < 30, "the heads are among the first that are reached"
        assert reached[-len(heads) :] == heads, "from left to right, none left out"
        for _ in range(heads.index("Newest window") - heads.index("Estimate")):
            page.keyboard.press("Shift+Tab")
        names = page.locator(".overview tbody th")
        for key, order, names_then in (
            ("Enter", "ascending", ["erm", "irm"]),
            ("Space", "descending", ["irm", "erm"]),
        ):
            page.keyboard.press(key)
            assert page.get_attribute(".overview thead th:nth-child(4)", "aria-sort") == order
            assert names.all_inner_texts() == names_then
            assert page.evaluate("document.activeElement.textContent") == "Estimate", "the focus stays"
            assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Objective"


def test_a_row_leads_to_the_page_of_its_model_on_which_a_window_is_chosen_by_its_address(
    browser: Browser, origin: str
) -> None:
    with browser.tab(origin) as tab:
        page = tab.page
        page.goto(origin + "/")
        page.click(".overview tbody th a:has-text('erm')")
        page.wait_for_selector("figure.large .plot canvas")
        assert page.url == origin + "/models/t/erm"
        assert page.inner_text("#window h2") == "Window 34 objective breached"
        assert page.inner_text("#made").startswith("As of ")
        page.locator("figure.large .u-over").click()  # in its middle
        page.wait_for_selector("#window h2:not(:has-text('Window 34 '))")
        clicked = re.match(r"Window (\d+) ", page.inner_text("#window h2"))
        assert clicked
        assert 14 <= int(clicked[1]) <= 20
        assert page.url == f"{origin}/models/t/erm?window={clicked[1]}"
        plot = page.locator("figure.large .plot")
        plot.press("Home")
        plot.press("Enter")
        page.wait_for_selector("#window h2:has-text('Window 0 ')")
        assert page.url == f"{origin}/models/t/erm?window=0"
        box = page.locator("figure.large .u-over").bounding_box()
        assert box
        page.mouse.move(box["x"] + box["width"] * 0.4, box["y"] + 50)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + 50, steps=5)
        page.mouse.up()
        page.wait_for_selector("figure.large button:visible")
        assert page.url == f"{origin}/models/t/erm?window=0", "a drag zooms and selects nothing"
        page.click("#window a:has-text('Window after')")
        page.wait_for_selector("#window h2:has-text('Window 1 ')")
        page.click("#compared a:has-text('with irm')")
        page.wait_for_selector("figure.large .keys .key-other")
        assert page.inner_text("figure.large .keys .key-other") == "irm"
        page.wait_for_load_state("networkidle")
        assert (tab.complaints, tab.elsewhere) == ([], [])


@pytest.mark.parametrize("name", ["100 % <b>&é", "org/模型"])
def test_the_page_of_a_model_of_any_name_draws_its_chart_and_its_window(browser: Browser, name: str) -> None:
    rig, windows = Rig(task()), RecentWindows()
    windows.add(rig.feed(answers(np.random.default_rng(9), 300, name)))
    with serving(rig, windows) as client:
        origin = str(client.base_url).rstrip("/")
        with browser.tab(origin) as tab:
            page = tab.page
            page.goto(origin + "/")
            page.click(".overview tbody th a")
            page.wait_for_selector("figure.large .plot canvas")
            assert page.title() == f"{name} · Blindsight"
            page.locator("figure.large .plot").press("Home")
            page.locator("figure.large .plot").press("Enter")
            page.wait_for_selector("#window h2:has-text('Window 0 ')")
            page.wait_for_load_state("networkidle")
            assert (tab.complaints, tab.elsewhere) == ([], [])


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_background(browser: Browser, origin: str, scheme: Any) -> None:
    """WCAG 2.2, success criterion 1.4.3: 4.5 to 1 for every text, whatever its size."""
    with browser.tab(origin, color_scheme=scheme) as tab:
        page = open_page(tab, origin)
        pairs = page.evaluate(
            """() => {
              const back = getComputedStyle(document.body).backgroundColor;
              const shown = (one) => one.innerText && one.offsetParent;
              const all = [...document.querySelectorAll("body *")].filter(shown);
              return [...new Set(all.map((one) => getComputedStyle(one).color))].map((ink) => [ink, back]);
            }"""
        )
        assert len(pairs) >= 4
        assert {ink: contrast(ink, back) for ink, back in pairs if contrast(ink, back) < 4.5} == {}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("address", ["/", "/models/t/erm?window=1&compare=irm"])
@pytest.mark.parametrize("viewport", [{"width": 1400, "height": 900}, PHONE], ids=["wide", "phone"])
def test_axe_finds_nothing(browser: Browser, origin: str, viewport: Any, address: str, scheme: Any) -> None:
    """axe-core, with the rules of WCAG 2.2 and its own best practices."""
    with browser.tab(origin, color_scheme=scheme, viewport=viewport) as tab:
        tab.page.goto(origin + address)
        tab.page.wait_for_selector(".plot canvas")
        results = Axe().run(tab.page)
    assert results.violations_count == 0, results.generate_report()
    assert len(results.response["passes"]) > 20, "it looked"


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colours ``rgb(1, 2, 3)``, as WCAG defines it."""
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def luminance(color: str) -> float:
    parts = [int(part) / 255 for part in color.removeprefix("rgb(").removesuffix(")").split(",")]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_on_paper_charts_are_drawn_in_light_colours_and_fit_the_sheet(browser: Browser, origin: str) -> None:
    with browser.tab(origin, color_scheme="dark", viewport={"width": 1400, "height": 900}) as tab:
        page = open_page(tab, origin)
        height = page.evaluate("document.querySelector('figure[data-history]').clientHeight")
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        page.emulate_media(media="print")
        page.set_viewport_size({"width": 720, "height": 1000})
        for colour, of in (("rgb(255, 255, 255)", "backgroundColor"), ("rgb(27, 31, 36)", "color")):
            assert page.evaluate(f"getComputedStyle(document.body).{of}") == colour
        seen = page.evaluate(INKS)
        assert seen.get("0,114,178", 0) > 200, "the estimate, in the blue of the light theme"
        assert page.evaluate("document.documentElement.scrollWidth") <= 720
        shown = page.evaluate("document.querySelector('figure canvas').getBoundingClientRect().width")
        assert 300 < shown <= 720
        page.emulate_media(media="screen")
        page.set_viewport_size({"width": 1400, "height": 900})
        page.evaluate("dispatchEvent(new Event('afterprint'))")
        assert page.evaluate(INKS).get("86,180,233", 0) > 200, "dark again"
        assert page.evaluate("document.querySelector('figure[data-history]').clientHeight") == height


def test_the_whole_page_with_seven_models_weighs_less_than_200_kib(browser: Browser) -> None:
    """The weight is that over the wire: the page, its files, and the windows that its rows draw."""
    rig, windows = Rig(task()), RecentWindows()
    for seed in range(7):
        windows.add(rig.feed(answers(np.random.default_rng(seed), 6000, f"m{seed}")))
    with serving(rig, windows) as client:
        origin = str(client.base_url).rstrip("/")
        with browser.tab(origin) as tab:
            tab.page.goto(origin + "/")
            for row in range(1, 8):
                selector = f".overview tbody tr:nth-child({row}) .trend path.value"
                tab.page.wait_for_selector(selector, state="attached")
            came = tab.page.evaluate(
                """() => ["navigation", "resource"].flatMap((kind) => performance.getEntriesByType(kind))
                    .map((one) => [one.name, one.encodedBodySize, one.decodedBodySize])"""
            )
            assert tab.elsewhere == []
    assert len(came) >= 1 + len(assets.TYPES) + 7
    assert 30 * 1024 < sum(packed for _, packed, _ in came) < 200 * 1024, came


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_of_an_untrusted_model_is_green(browser: Browser, scheme: Any) -> None:
    rig, windows = Rig(task(objective={"accuracy": {"min": 0.5}})), RecentWindows()
    windows.add(rig.feed(newest_wrong(answers(np.random.default_rng(4), 2000, weights=ORIGINAL))))
    with serving(rig, windows) as client:
        origin = str(client.base_url).rstrip("/")
        for address in ("/", "/models/t/erm"):
            with browser.tab(origin, color_scheme=scheme) as tab:
                page = tab.page
                page.goto(origin + address)
                page.wait_for_selector("figure .plot canvas")
                assert "untrusted" in page.inner_text("main h2 >> nth=0" if "t/erm" in address else ".glance")
                assert "not meaningful until labels agree again" in page.inner_text("figcaption >> nth=0")
                green = {
                    page.evaluate(
                        """(name) => { const one = document.body.appendChild(document.createElement("i"));
                        one.style.color = `var(${name})`; const found = getComputedStyle(one).color;
                        one.remove(); return found; }""",
                        name,
                    )
                    for name in ("--good", "--floor")
                }
                assert len(green) == 2
                used = page.evaluate(
                    """() => [...document.querySelectorAll("main :is(h2, section, table, tr, svg, figure) *")]
                        .flatMap((one) => [getComputedStyle(one), getComputedStyle(one, "::before")])
                        .flatMap((style) => [style.color, style.stroke, style.fill])"""
                )
                assert set(used) & green == set()
                inks = page.evaluate(INKS)
                assert len(inks) > 2
                for one in green:
                    assert inks.get(",".join(re.findall(r"\d+", one)), 0) == 0


def test_a_phone_shows_it_without_scrolling_sideways(browser: Browser, origin: str) -> None:
    with browser.tab(origin, viewport=PHONE) as tab:
        page = open_page(tab, origin)
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
        card = page.locator(".overview tbody tr").first
        assert card.evaluate("(one) => getComputedStyle(one).display") == "block"
        heads = page.locator(".overview thead th").all_text_contents()
        cells = card.locator("td").evaluate_all(
            "(all) => all.map((one) => getComputedStyle(one, '::before').content)"
        )
        assert [cell.strip('"') for cell in cells] == ["none", *heads[2:]], (
            "each has its head; the state needs none"
        )
        assert page.evaluate("document.querySelector('figure canvas').clientWidth") <= PHONE["width"]


def test_without_a_script_the_charts_are_pictures(browser: Browser, origin: str) -> None:
    with browser.tab(origin, java_script_enabled=False) as tab:
        page = tab.page
        page.goto(origin + "/")
        picture = page.locator("figure img").first
        picture.scroll_into_view_if_needed()
        page.wait_for_load_state("networkidle")
        assert picture.bounding_box()["height"] > 100
        assert picture.get_attribute("src").startswith("chart.svg?task=t&model=erm")
        assert (tab.complaints, tab.elsewhere) == ([], [])


def test_it_brings_itself_up_to_date_and_says_when_the_agent_is_gone(
    browser: Browser, tmp_path: Path
) -> None:
    """Without a store, so that the newest windows come from memory; the page asks every second here."""
    (tmp_path / "in.ndjson").write_bytes(ndjson(records(500, 1.79e9, WORSE, 7)))
    source = {"kind": "file", "path": "in.ndjson", "follow": True}
    with DaemonProcess(tmp_path, configuration(sources=[source], task={"groups": ["region"]})) as daemon:
        daemon.until_value(5, "windows_closed_total", task="t", model="erm")
        with browser.tab(f"http://127.0.0.1:{daemon.port}") as tab:
            tab.page.route("**/", hurried)
            page = open_page(tab, f"http://127.0.0.1:{daemon.port}")
            page.click("summary")
            with (tmp_path / "in.ndjson").open("ab") as more:
                more.write(ndjson(records(300, 1.79e9 + 500, WORSE, 8)))
            page.mouse.click(1, 1)
            page.wait_for_selector("figcaption:has-text('erm: accuracy, up to window 7')")
            page.wait_for_selector(".readout:has-text('Window 7, ')")
            assert page.get_attribute("details", "open") is not None, "what was unfolded stays so"
            assert not page.is_visible("#stale")
            assert (tab.complaints, tab.elsewhere) == ([], [])
            daemon.end()
            page.wait_for_selector("#stale:visible")


def hurried(route: Any) -> None:
    """Serve the page as the agent does, but let it ask again after one second instead of fifteen."""
    try:
        answer = route.fetch()
    except Exception:  # noqa: BLE001 - the agent has ended
        route.abort()
        return
    route.fulfill(response=answer, body=answer.text().replace('data-refresh="15"', 'data-refresh="1"'))

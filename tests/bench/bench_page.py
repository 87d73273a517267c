"""Weight and time of the page, of its charts and of a scrape, for a fleet.

    python -m tests.bench.bench_page
    python -m tests.bench.bench_page chromium

One hundred models of five metrics in ten groups each, 1,100 models and groups with two estimators; in
Chromium also fewer and more models. Times are the best of several rounds, by the clock: other work on the
machine counts. Chromium (Debian's) opens pages and reports at 1400 × 900 pixels; KiB are all that came with a
page, packed with gzip, over a loopback socket, and a report's file as it is. The garbage collector is set as
the daemon sets it; the row about frozen objects says, in processor time, what it would bring to take those of
the engine out of its sight too.
"""

from __future__ import annotations

import gc
import gzip
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from axe_playwright_python.sync_playwright import Axe
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics

from monitor.base.collector import tune_collector
from monitor.base.results import Estimate
from monitor.base.state_changes import Changes
from monitor.export.http.app import build_app
from monitor.export.http.messages import HttpRequest
from monitor.export.http.server import HttpServer
from monitor.export.page import assets, render_page
from monitor.export.page.api import ENDPOINTS, ApiEndpoint, Data, answered
from monitor.export.page.document import shown_page
from monitor.export.page.model import NamedModelQuery, render_model
from monitor.export.page.period import Period
from monitor.export.page.routes import page_routes
from monitor.export.page.windows import MOST_WINDOWS, RecentWindows, StoredWindows, chart_columns
from monitor.export.prometheus import exposition
from monitor.export.prometheus.collector import registry
from monitor.reports.reader import from_json
from monitor.reports.views import AgentView, ChartView, EngineView, MetricEstimate, SeriesView
from monitor.reports.window_report import WindowReport
from monitor.stats.charts.base import Verdict
from monitor.store import Store
from monitor.store.store import FILE
from tests.export.page.test_confidences import model
from tests.export.page.test_page import MODEL
from tests.harness import best, run
from tests.services.browser import Browser
from tests.services.process import ServiceUnavailable

METRICS = ("accuracy", "ece", "precision", "recall", "f1")
FOUND = Estimate(0.913, 0.888, 0.936, 0.95, 500)
SERIES = ("toxicity", "model-0", "")
SCREEN = {"width": 1400, "height": 900}
NEW_SERIES = b"\nblindsight_"  # a line; those about families begin with #


def fleet(models: int = 100, groups_each: int = 10) -> AgentView:
    """Return models of five metrics, with groups."""
    estimates = tuple(
        MetricEstimate(metric, estimator, FOUND)
        for metric in METRICS
        for estimator in ("average_confidence", "realised")
    )
    charts = tuple(ChartView(metric, Verdict(0.94, 0.92, 0.96, (), False)) for metric in METRICS)
    sample = replace(MODEL, estimates=estimates, charts=charts, violations={})
    series: list[SeriesView] = []
    for number in range(models):
        groups = ["", *(f"region=r{group}" for group in range(groups_each))]
        own = [replace(sample, model=f"model-{number}", group=group) for group in groups]
        series += [replace(own[0], distributions=model().distributions), *own[1:]]
    return AgentView(engine=EngineView(series=tuple(series)), ready=True)


def store(folder: Path, view: AgentView) -> Path:
    """Return 1,000 windows of each of the first 20 models."""
    opened = Store(folder)
    for one in [one for one in view.engine.series if not one.group][:20]:
        windows = [_window_of(one, number, 60.0 * number, one.charts) for number in range(1000)]
        opened.commit(Changes({}, []), windows)
    opened.close()
    return folder / FILE


def _window_of(one: SeriesView, number: int, end: float, charts: tuple[ChartView, ...]) -> WindowReport:
    return WindowReport(
        task=one.task, model=one.model, group="", version="", window=number, size=500, closed_by="size",
        start_time=0.0, end_time=end, calibration=one.calibration, estimates=one.estimates,
        charts=charts, positions={"part-0": (0, 499)},
    )  # fmt: skip


class Loaded(NamedTuple):
    """The cost of a page: seconds until its first chart, KiB, height in pixels, and findings of axe-core."""

    seconds: float
    kib: float
    height: float
    findings: int

    def __str__(self) -> str:
        screens = f"{self.height:6,.0f} pixels, {self.height / SCREEN['height']:4.1f} screens"
        return f"{screens}, {self.kib:6,.0f} KiB, first chart after {1e3 * self.seconds:5,.0f} ms"


def page_in(browser: Browser, view: AgentView, windows: StoredWindows, axe: bool) -> Loaded:
    """Return the first page, served by the agent's own server; the best of three fresh tabs."""
    app = build_app(lambda: view, CollectorRegistry(), shown_page, page_routes(lambda: view, windows))
    server = HttpServer(app, "127.0.0.1:0")
    server.start()
    try:
        address = f"http://127.0.0.1:{server.port}"
        loads = [_load(browser, address, address + "/", ".overview svg.trend path", axe) for _ in range(3)]
    finally:
        server.stop()
    return min(loads)


def report_in(browser: Browser, models: int, folder: Path, axe: bool) -> Loaded:
    """Load a report of `models` models of 60 windows; charts of more than two models are folded away."""
    period = Period({})
    period.add(period_of(models))
    out = folder / "report.html"
    out.write_text(period.html({}), encoding="utf-8")
    selector = "figure svg" if models <= 2 else ".timeline"
    loaded = min(_load(browser, "file://", out.as_uri(), selector, axe) for _ in range(3))
    return loaded._replace(kib=out.stat().st_size / 1024)


def period_of(models: int) -> list[WindowReport]:
    """Return sixty windows of each model, one a day; of each tenth model, the last ten are out of control."""
    on = ChartView("accuracy", Verdict(0.94, 0.92, 0.96, ("we1",), True))
    reports = []
    for one in fleet(models, 0).engine.series:
        for window in range(60):
            charts = (on, *one.charts[1:]) if window >= 50 and int(one.model[6:]) % 10 == 0 else one.charts
            reports.append(_window_of(one, window, 86_400.0 * (window + 1), charts))
    return sorted(reports, key=lambda report: report.window)


def _load(browser: Browser, origin: str, address: str, selector: str, axe: bool) -> Loaded:
    with browser.tab(origin, viewport=SCREEN) as tab:
        tab.page.goto(address)
        tab.page.wait_for_selector(selector, state="attached")
        figures: dict[str, Any] = tab.page.evaluate(
            """() => {
              const all = ["navigation", "resource"].flatMap((kind) => performance.getEntriesByType(kind));
              const bytes = (one) => one.encodedBodySize;
              return { drawn: performance.now() / 1e3, bytes: all.map(bytes).reduce((a, b) => a + b, 0),
                       height: document.documentElement.scrollHeight };
            }"""
        )
        findings = Axe().run(tab.page).violations_count if axe else 0
    return Loaded(figures["drawn"], figures["bytes"] / 1024, figures["height"], findings)


def chromium() -> Iterator[str]:
    """Yield a row for each number of models, of page and report; a sentence where there is no Chromium."""
    yield "Page and report in Chromium at 1400 x 900 (python -m tests.bench.bench_page chromium)"
    findings = 0
    try:
        with Browser() as browser, tempfile.TemporaryDirectory(prefix="blindsight-bench-") as name:
            folder = Path(name)
            windows = StoredWindows(store(folder, fleet()))
            for models, groups in ((1, 1), (7, 1), (100, 10), (500, 0)):
                one = page_in(browser, fleet(models, groups), windows, axe=models < 100)
                yield f"{f'page, {models} models, {groups} groups each':34s} {one}"
                findings += one.findings
            for models in (1, 7, 500):
                one = report_in(browser, models, folder, axe=models < 100)
                yield f"{f'report, {models} models, 60 windows':34s} {one}"
                findings += one.findings
        yield f"{'axe-core, pages and reports of 1, 7':34s} {findings} findings"
    except ServiceUnavailable as error:
        yield f"not measured, {error}"


def fresh_view(view: AgentView) -> AgentView:
    """Return the same view, as if every series had changed."""
    return replace(view, engine=replace(view.engine, series=tuple(map(copy, view.engine.series))))


def costs() -> str:
    """Return the cost of the page, its charts and a scrape."""
    tune_collector()
    view = fleet()
    # New objects for each scrape: of what has not changed the text is kept.
    page, metrics = render_page(view).encode(), registry(lambda: fresh_view(view), 1_000_000)
    scraped, openmetrics_text = exposition.text(metrics), exposition.openmetrics(metrics)
    two = render_page(replace(view, engine=EngineView(series=view.engine.series[:2]))).encode()
    files = sum(len(assets.content(name)) for name in assets.TYPES)
    writers = (exposition.text, exposition.openmetrics, generate_latest, generate_openmetrics)
    times = [best(lambda write=write: write(metrics), 3) for write in writers]  # type: ignore[misc]
    with tempfile.TemporaryDirectory(prefix="blindsight-bench-") as folder:
        windows = StoredWindows(store(Path(folder), view))
        read = best(lambda: windows.newest(SERIES, MOST_WINDOWS), 5)
        kept = windows.newest(SERIES, MOST_WINDOWS)
        charted = best(
            lambda: chart_columns([from_json(line) for line in kept], "accuracy", "average_confidence"), 5
        )
        own = [_model_line(view, windows, compare) for compare in ("", "model-1")]
    slower = [times[2] / times[0], times[3] / times[1]]
    lines = [
        "Page and scrape of 100 models x 5 metrics x 10 groups (python -m tests.bench.bench_page costs)",
        _row("page, 100 models, 1,000 groups", best(lambda: render_page(view), 5), page),
        f"{'page, one model with one group':34s} {'':>9s} {len(two) / 1024:9,.0f} KiB",
        *own,
        *many_lines(),
        f"{'its files, once':34s} {'':>9s} {files / 1024:9,.0f} KiB",
        _row("scrape, " + f"{scraped.count(NEW_SERIES):,} series", times[0], scraped),
        _row("the same in OpenMetrics", times[1], openmetrics_text),
        f"{'both, the writer of the client':34s} {slower[0]:6.1f} and {slower[1]:.1f} times that",
        f"{'scrape, all objects frozen':34s} {_frozen(metrics):7.2f} times the processor time",
        f"{'a chart: 500 of 20,000 windows read':34s} {1e3 * read:6.0f} ms",
        f"{'a chart: its columns':34s} {1e3 * charted:6.0f} ms",
    ]
    return "\n".join(lines)


def _model_line(view: AgentView, windows: StoredWindows, compare: str) -> str:
    """Return the page of a model with 500 windows, alone or beside another model: its processor time and
    size.
    """
    query = NamedModelQuery(task=SERIES[0], model=SERIES[1], compare=compare)
    times = []
    for _ in range(5):
        start = time.process_time()
        body = render_model(Data(lambda: view, windows), query, "")
        times.append(time.process_time() - start)
    what = f"page of a model, {'compared' if compare else '500 windows'}"
    return f"{_row(what, min(times), body)}, of processor time"


async def _no_body() -> AsyncIterator[bytes]:
    return
    yield b""


def many_lines() -> Iterator[str]:
    """Yield the first page of many models, and the list of models of the API: their processor time and
    size.
    """
    request = HttpRequest("GET", "/api/v1/models", {}, _no_body)
    [models] = [endpoint for endpoint in ENDPOINTS if endpoint.name == "models"]
    for many in (500, 10_000):
        yield from _lines_of(fleet(many, 0), f"{many:,} models", models, request)


def _lines_of(view: AgentView, name: str, models: ApiEndpoint, request: HttpRequest) -> Iterator[str]:
    data = Data(lambda: view, RecentWindows())
    makers = {
        "page": lambda: render_page(view).encode(),
        "/api/v1/models": lambda: answered(models, data, request).body,
    }
    for what, make in makers.items():
        times = []
        for _ in range(3):
            start = time.process_time()
            body = make()
            times.append(time.process_time() - start)
        yield f"{_row(f'{what}, {name}', min(times), body)}, of processor time"


def _frozen(metrics: CollectorRegistry) -> float:
    """Return processor time of a scrape while the collector sees no older object, beside that of one as it
    is.
    """
    times: list[list[float]] = [[], []]
    for place in (0, 1) * 5:
        if place:
            gc.freeze()
        start = time.process_time()
        exposition.text(metrics)
        times[place].append(time.process_time() - start)
        gc.unfreeze()
    return min(times[1]) / min(times[0])


def _row(what: str, seconds: float, body: bytes) -> str:
    packed = len(gzip.compress(body, 4)) / 1024
    return f"{what:34s} {1e3 * seconds:6.0f} ms {len(body) / 1024:9,.0f} KiB, {packed:,.0f} with gzip"


if __name__ == "__main__":
    run({"costs": costs, "chromium": chromium}, keep=False)

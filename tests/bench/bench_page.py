"""Weight and time of the page, of its charts and of a scrape, for a fleet.

    python -m tests.bench.bench_page

One hundred models of five metrics in ten groups each, 1,100 models and groups with two estimators; in
Chromium also fewer and more models. Times are the best of several rounds, by the clock: other work on the
machine counts. The garbage collector is set as the daemon sets it; the row about frozen objects says, in
processor time, what it would bring to take those of the engine out of its sight too. A real Chromium
(Debian's) loads the page over a loopback socket, packed with gzip.
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
from typing import Any

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
    """Models of five metrics, with groups."""
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
    """1,000 windows of each of the first 20 models."""
    opened = Store(folder)
    for one in [one for one in view.engine.series if not one.group][:20]:
        first = WindowReport(
            task=one.task, model=one.model, group="", version="", window=0, size=500, closed_by="size",
            start_time=0.0, end_time=60.0, calibration=one.calibration, estimates=one.estimates,
            charts=one.charts, positions={"part-0": (0, 499)},
        )  # fmt: skip
        windows = [replace(first, window=n, end_time=60.0 * n) for n in range(1000)]
        opened.commit(Changes({}, []), windows)
    opened.close()
    return folder / FILE


def loaded(view: AgentView, windows: StoredWindows, rounds: int = 3) -> list[dict[str, float]]:
    """What Chromium says of loading the page and drawing its first chart, each round in a fresh tab.

    Seconds since the request until the page was there (`DOMContentLoaded`) and its first chart was drawn, the
    bytes that came as the page, and its height in pixels.
    """
    routes = page_routes(lambda: view, windows)
    app = build_app(lambda: view, CollectorRegistry(), shown_page, routes)
    server = HttpServer(app, "127.0.0.1:0")
    server.start()
    try:
        with Browser() as browser:
            return [_load(browser, f"http://127.0.0.1:{server.port}") for _ in range(rounds)]
    finally:
        server.stop()


def _load(browser: Browser, origin: str) -> dict[str, float]:
    with browser.tab(origin, viewport=SCREEN) as tab:
        tab.page.goto(origin + "/")
        tab.page.wait_for_selector(".overview svg.trend path", state="attached")
        found: dict[str, Any] = tab.page.evaluate(
            """() => {
              const one = performance.getEntriesByType("navigation")[0];
              return { there: one.domContentLoadedEventEnd / 1e3, drawn: performance.now() / 1e3,
                       bytes: one.encodedBodySize, height: document.documentElement.scrollHeight };
            }"""
        )
        return found


def browser_lines(windows: StoredWindows) -> list[str]:
    """A row of the table for each number of models; a sentence where there is no Chromium."""
    found = []
    try:
        for models, groups in ((1, 1), (7, 1), (100, 10), (500, 0)):
            rounds = loaded(fleet(models, groups), windows)
            there, drawn = (1e3 * min(one[key] for one in rounds) for key in ("there", "drawn"))
            size, height = rounds[0]["bytes"] / 1024, rounds[0]["height"]
            name = f"Chromium, models and groups: {models}, {models * groups:,}"
            row = f"{name:40s} {there:6.0f} ms {size:3,.0f} KiB came, first chart after {drawn:,.0f} ms"
            found.append(f"{row}; {height:,.0f} pixels, {height / SCREEN['height']:.1f} screens")
    except ServiceUnavailable as error:
        found.append(f"Chromium: not measured, {error}")
    return found


def anew(view: AgentView) -> AgentView:
    """The same view, as if every series had changed."""
    return replace(view, engine=replace(view.engine, series=tuple(map(copy, view.engine.series))))


def table() -> str:
    """The table."""
    tune_collector()
    view = fleet()
    # New objects for each scrape: of what has not changed the text is kept.
    page, metrics = render_page(view).encode(), registry(lambda: anew(view), 1_000_000)
    scraped, asked = exposition.text(metrics), exposition.openmetrics(metrics)
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
        in_chromium = browser_lines(windows)
    slower = [times[2] / times[0], times[3] / times[1]]
    lines = [
        "Page and scrape of 100 models x 5 metrics x 10 groups (python -m tests.bench.bench_page)",
        _row("page, 100 models, 1,000 groups", best(lambda: render_page(view), 5), page),
        f"{'page, one model with one group':34s} {'':>9s} {len(two) / 1024:9,.0f} KiB",
        *own,
        *many_lines(),
        f"{'its files, once':34s} {'':>9s} {files / 1024:9,.0f} KiB",
        *in_chromium,
        _row("scrape, " + f"{scraped.count(NEW_SERIES):,} series", times[0], scraped),
        _row("the same in OpenMetrics", times[1], asked),
        f"{'both, the writer of the client':34s} {slower[0]:6.1f} and {slower[1]:.1f} times that",
        f"{'scrape, all objects frozen':34s} {_frozen(metrics):7.2f} times the processor time",
        f"{'a chart: 500 of 20,000 windows read':34s} {1e3 * read:6.0f} ms",
        f"{'a chart: its columns':34s} {1e3 * charted:6.0f} ms",
    ]
    return "\n".join(lines)


def _model_line(view: AgentView, windows: StoredWindows, compare: str) -> str:
    """The page of a model with 500 windows, alone or beside another model: its processor time and size."""
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
    """The first page of many models, and the list of models of the API: their processor time and size."""
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
    """Processor time of a scrape while the collector sees no older object, beside that of one as it is."""
    found: list[list[float]] = [[], []]
    for place in (0, 1) * 5:
        if place:
            gc.freeze()
        start = time.process_time()
        exposition.text(metrics)
        found[place].append(time.process_time() - start)
        gc.unfreeze()
    return min(found[1]) / min(found[0])


def _row(what: str, seconds: float, body: bytes) -> str:
    packed = len(gzip.compress(body, 4)) / 1024
    return f"{what:34s} {1e3 * seconds:6.0f} ms {len(body) / 1024:9,.0f} KiB, {packed:,.0f} with gzip"


if __name__ == "__main__":
    run(table, keep=False)

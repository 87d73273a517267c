"""The routes of the page: its files, and the history of each chart."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from urllib.parse import parse_qsl

import msgspec

from monitor.base.errors import StoreError
from monitor.base.names import AVERAGE_CONFIDENCE
from monitor.export.charts.svg import control_chart_svg
from monitor.export.http.app import Handler, Rendering
from monitor.export.http.messages import HttpRequest, Response, text
from monitor.export.http.negotiation import packed
from monitor.export.page import assets
from monitor.export.page.windows import MOST_WINDOWS, Windows, chart_of, history_json
from monitor.reports.reader import from_json
from monitor.reports.views import AgentView

_FOR_EVER = "public, max-age=31536000, immutable"


def page_routes(view: Callable[[], AgentView], windows: Windows) -> Mapping[str, Handler]:
    """Routes of the page beside itself: `/assets/…`, `/history` and `/chart.svg`.

    Parameters
    ----------
    view : callable
        Gives the newest view: says which estimator a chart judges.
    windows : Windows
    """
    charts = _Charts(view, windows)
    return {"/assets/*": _asset, "/history": charts.history, "/chart.svg": charts.picture}


async def _asset(request: HttpRequest) -> Response:
    name = request.path.rpartition("/")[2]
    if name not in assets.TYPES:
        return text(404, f"There is no file {name!r} here.\n")
    return packed(request, assets.content(name), assets.TYPES[name], cache_control=_FOR_EVER)


class _Charts:
    """One method a path; each names its chart by `task`, `model`, `group` and `metric`."""

    def __init__(self, view: Callable[[], AgentView], windows: Windows) -> None:
        self._view, self._windows = view, windows
        self._rendering = Rendering()

    async def history(self, request: HttpRequest) -> Response:
        return await self._rendered(request, self._json)

    async def picture(self, request: HttpRequest) -> Response:
        return await self._rendered(request, self._svg)

    async def _rendered(
        self, request: HttpRequest, render: Callable[[HttpRequest, list[bytes], str, str], Response]
    ) -> Response:
        query = dict(parse_qsl(request.query))
        asked = [query.get(name, "") for name in ("task", "model", "group", "metric")]
        estimator = self._estimator(asked)
        if estimator is None:
            return text(
                404, "No such chart; give task, model and metric (and group) as the metrics name them.\n"
            )
        task, model, group, metric = asked

        def rendered() -> Response:
            lines = self._windows.newest((task, model, group), MOST_WINDOWS)
            return render(request, lines, metric, estimator)

        try:
            return await self._rendering(rendered)
        except StoreError as error:
            return text(503, f"{error}\n")

    def _estimator(self, asked: list[str]) -> str | None:
        """Whose estimate the chart judges; None where there is none such."""
        for one in self._view().engine.series:
            if [one.task, one.model, one.group] == asked[:3]:
                by_chart = {chart.metric: chart.estimator for chart in one.charts}
                if asked[3] in by_chart or any(e.metric == asked[3] for e in one.estimates):
                    return by_chart.get(asked[3], AVERAGE_CONFIDENCE)
        return None

    @staticmethod
    def _json(request: HttpRequest, lines: list[bytes], metric: str, estimator: str) -> Response:
        body = msgspec.json.encode(history_json(lines, metric, estimator))
        return packed(request, body, "application/json")

    @staticmethod
    def _svg(request: HttpRequest, lines: list[bytes], metric: str, estimator: str) -> Response:
        if not lines:
            return text(404, "Its windows are no longer stored.\n")
        picture = control_chart_svg(chart_of([from_json(line) for line in lines], metric, estimator))
        return packed(request, picture.encode(), "image/svg+xml")

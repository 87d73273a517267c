"""What the page asks the agent for: its files, and the history behind each chart."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from monitor.base.errors import StoreError
from monitor.base.names import AVERAGE_CONFIDENCE
from monitor.export.charts.svg import control_chart_svg
from monitor.export.http.packing import encodings_of, packed
from monitor.export.page import assets
from monitor.export.page.windows import MOST_WINDOWS, Windows, chart_of, history_json
from monitor.reports.reader import from_json
from monitor.reports.views import AgentView

_AT_ONCE = 2
_FOR_EVER = "public, max-age=31536000, immutable"


def page_routes(view: Callable[[], AgentView], windows: Windows) -> list[Route]:
    """Routes of the page beside itself: `/assets/…`, `/history` and `/chart.svg`.

    Parameters
    ----------
    view : callable
        Gives the newest view: says which estimator a chart judges.
    windows : Windows
    """
    charts = _Charts(view, windows)
    return [
        Route("/assets/{name}", _asset),
        Route("/history", charts.history),
        Route("/chart.svg", charts.picture),
    ]


async def _asset(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in assets.TYPES:
        return PlainTextResponse(f"There is no file {name!r} here.\n", status_code=404)
    content, encodings = assets.content(name), encodings_of(request)
    return packed(content, assets.TYPES[name], encodings, cache_control=_FOR_EVER)


class _Charts:
    """One method a path; each names its chart by `task`, `model`, `group` and `metric`."""

    def __init__(self, view: Callable[[], AgentView], windows: Windows) -> None:
        self._view, self._windows = view, windows
        self._limiter = CapacityLimiter(_AT_ONCE)

    async def history(self, request: Request) -> Response:
        return await self._rendered(request, self._json)

    async def picture(self, request: Request) -> Response:
        return await self._rendered(request, self._svg)

    async def _rendered(
        self, request: Request, render: Callable[[list[bytes], str, str, str], Response]
    ) -> Response:
        asked = [request.query_params.get(name, "") for name in ("task", "model", "group", "metric")]
        estimator = self._estimator(asked)
        if estimator is None:
            return PlainTextResponse(
                "No such chart; give task, model and metric (and group) as the metrics name them.\n",
                status_code=404,
            )
        task, model, group, metric = asked
        encodings = encodings_of(request)
        try:
            return await run_sync(
                lambda: render(
                    self._windows.newest((task, model, group), MOST_WINDOWS), metric, estimator, encodings
                ),
                abandon_on_cancel=True,
                limiter=self._limiter,
            )
        except StoreError as error:
            return PlainTextResponse(f"{error}\n", status_code=503)
        except asyncio.CancelledError:
            # Only a server that is told to stop cancels a request; answered, it need not log an error.
            return PlainTextResponse("Blindsight is stopping.\n", status_code=503)

    def _estimator(self, asked: list[str]) -> str | None:
        """Whose estimate the chart judges; None where there is none such."""
        for one in self._view().engine.series:
            if [one.task, one.model, one.group] == asked[:3]:
                by_chart = {chart.metric: chart.estimator for chart in one.charts}
                if asked[3] in by_chart or any(e.metric == asked[3] for e in one.estimates):
                    return by_chart.get(asked[3], AVERAGE_CONFIDENCE)
        return None

    @staticmethod
    def _json(lines: list[bytes], metric: str, estimator: str, encodings: str) -> Response:
        body = msgspec.json.encode(history_json(lines, metric, estimator))
        return packed(body, "application/json", encodings)

    @staticmethod
    def _svg(lines: list[bytes], metric: str, estimator: str, encodings: str) -> Response:
        if not lines:
            return PlainTextResponse("No window of it is kept any more.\n", status_code=404)
        picture = control_chart_svg(chart_of([from_json(line) for line in lines], metric, estimator))
        return packed(picture.encode(), "image/svg+xml", encodings)

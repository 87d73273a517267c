"""The routes other than the landing page: the page's files, models' pages, runbooks, and the JSON API."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import msgspec

from monitor.export.charts.svg import control_chart_svg
from monitor.export.http.app import HTML, Handler, Rendering
from monitor.export.http.messages import HttpRequest, Response, text
from monitor.export.http.negotiation import packed
from monitor.export.http.query import parse_query, some
from monitor.export.page import assets, openapi
from monitor.export.page.api import API, ENDPOINTS, ApiEndpoint, ChartQuery, Data, answered
from monitor.export.page.model import ModelQuery, NamedModelQuery, render_model
from monitor.export.page.runbooks import RunbookQuery, render_runbook
from monitor.export.page.windows import Windows
from monitor.export.rules import runbook_names
from monitor.reports.views import AgentView

_FOR_EVER = "public, max-age=31536000, immutable"


def page_routes(view: Callable[[], AgentView], windows: Windows) -> Mapping[str, Handler]:
    """Return the routes `/models/{task}/{model}`, `/api/v1/…`, `/assets/…`, `/runbooks/…` and `/chart.svg`.

    The route `/models` has the task and the model in its query.

    Parameters
    ----------
    view : callable
        A function that returns the agent's newest state: the models, and the estimator of each chart.
    windows : Windows
    """
    data, rendering = Data(view, windows), Rendering()

    def made(respond: Callable[[Data, HttpRequest], Response]) -> Handler:
        return lambda request: rendering(lambda: respond(data, request))

    def api(endpoint: ApiEndpoint) -> Handler:
        return made(lambda data, request: answered(endpoint, data, request))

    return {
        "/assets/*": _asset,
        "/runbooks/*": made(_runbook),
        "/models": made(_model_by_query),
        "/models/*/*": made(_model_by_path),
        "/chart.svg": made(_picture),
        API: _api_page,
        f"{API}openapi.json": _openapi,
        **{API + endpoint.name: api(endpoint) for endpoint in ENDPOINTS},
    }


async def _asset(request: HttpRequest) -> Response:
    name = request.segments[-1]
    if name not in assets.TYPES:
        return text(404, f"There is no file {name!r} here.\n")
    return packed(request, assets.content(name), assets.TYPES[name], cache_control=_FOR_EVER)


def _runbook(data: Data, request: HttpRequest) -> Response:
    name = request.segments[-1].removesuffix(".md")  # rules of earlier versions link to NAME.md
    if name not in runbook_names():
        return text(404, f"There is no runbook {name!r}; runbooks: {some(runbook_names(), 30)}.\n")
    query = parse_query(request.query, RunbookQuery)
    return packed(request, render_runbook(name, data.view(), query, time.time()), HTML)


async def _api_page(request: HttpRequest) -> Response:
    return packed(request, openapi.page().encode(), HTML)


async def _openapi(request: HttpRequest) -> Response:
    return packed(request, msgspec.json.encode(openapi.document()), "application/json")


def _model_by_query(data: Data, request: HttpRequest) -> Response:
    query = parse_query(request.query, NamedModelQuery)
    return packed(request, render_model(data, query, "", time.time()), HTML)


def _model_by_path(data: Data, request: HttpRequest) -> Response:
    task, model = request.segments[-2:]
    query = parse_query(request.query, ModelQuery)
    named = NamedModelQuery(task=task, model=model, **msgspec.structs.asdict(query))
    return packed(request, render_model(data, named, "../../", time.time()), HTML)


def _picture(data: Data, request: HttpRequest) -> Response:
    picture = control_chart_svg(data.picture(parse_query(request.query, ChartQuery)))
    return packed(request, picture.encode(), "image/svg+xml")

"""The landing page, as plain HTML made on the server.

The page is complete without its script. The script draws interactive charts, and updates the page in place.
All requests of the page go to the agent.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace

from markupsafe import Markup

from monitor import __version__
from monitor.export.http.query import parse_query
from monitor.export.page import health, models, overview
from monitor.export.page.assets import address
from monitor.export.page.templates import render
from monitor.reports.views import AgentView

REFRESH_SECONDS = 15
"""The seconds between two updates of an open page, which is Prometheus' usual scrape interval."""


def render_page(view: AgentView, shown: overview.Shown = overview.ALL, now: float | None = None) -> str:
    """Return the landing page for a view as a complete HTML document.

    Every text from outside is escaped. Links are relative, so the page also works behind a proxy that serves
    it under another path.

    Parameters
    ----------
    view : AgentView
    shown : Shown
        The filter of the models.
    now : float, optional
        Time of the page, seconds since the epoch; the present time by default.

    Examples
    --------
    >>> "No answer has come yet." in render_page(AgentView())
    True
    """
    return html_document("Blindsight", _parts(view, shown), now=now)


def shown_page(view: AgentView, query: str) -> str:
    """Return the landing page with the models that the query of an address selects.

    Raises
    ------
    RefusedError
        A parameter cannot be used.
    """
    return render_page(view, parse_query(query, overview.Shown))


def html_document(
    title: str, parts: Mapping[str, Markup], root: str = "", back: str = "", now: float | None = None
) -> str:
    """Return a page of the agent as a complete HTML document.

    Parameters
    ----------
    title : str
    parts : mapping of str to Markup
        The HTML of each part of the page, by id. The script updates each part separately, so an unchanged
        part keeps its charts and the focus.
    root : str
        The relative address of the agent's page.
    back : str
        Words of a link to the agent's page; no link if empty.
    now : float, optional
        Time of the page, seconds since the epoch; the present time by default.
    """
    made = time.time() if now is None else now
    page = render("page.html", "page", title, parts, root, back, made, __version__, REFRESH_SECONDS, address)
    return str(page)


def _parts(view: AgentView, shown: overview.Shown) -> dict[str, Markup]:
    engine = view.engine
    filtered = engine
    if shown != overview.ALL:
        filtered = replace(engine, series=tuple(overview.selected(engine.series, shown)))
    of_models = [one for one in engine.series if not one.group]
    many = sum(not one.group for one in filtered.series) > overview.FEW_MODELS
    fits = bool(filtered.series) or not engine.series
    return {
        "condition": render("page.html", "condition", view),
        "headline": overview.glance(of_models, overview.own_page) if of_models else Markup(),
        "overview": overview.overview(engine, shown),
        "models": models.unwatched(engine) if many or not fits else models.tasks(filtered),
        **models.whole_tasks(engine.tasks),
        "sources": health.sources(view),
        "rejects": health.rejects(engine),
        "labels": health.labels(engine),
        "refits": health.refits(engine),
        "recalibrations": health.recalibrations(engine),
        "sinks": health.sinks(view),
    }

"""The landing page, as plain HTML made on the server.

The page is complete without a script. The script draws interactive charts, and updates the page in place. All
requests go to the agent.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from monitor import __version__
from monitor.export.http.query import parse_query
from monitor.export.page import health, models, overview
from monitor.export.page.assets import address
from monitor.export.page.words import text
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
    title: str, parts: Mapping[str, Iterable[str]], root: str = "", back: str = "", now: float | None = None
) -> str:
    """Return a page of the agent as a complete HTML document.

    Parameters
    ----------
    title : str
    parts : mapping of str to iterable of str
        The HTML of each part of the page, by id. The script updates each part separately, so an unchanged
        part keeps its charts and the focus.
    root : str
        The relative address of the agent's page.
    back : str
        Words of a link to the agent's page; no link if empty.
    now : float, optional
        Time of the page, seconds since the epoch; the present time by default.
    """
    leave = f'<a href="{root or "./"}">{text(back)}</a>' if back else ""
    made = overview.time_words(time.time() if now is None else now)
    return "".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            # In the page and not as a header, so that it stays in a copy of the page.
            f'<noscript><meta http-equiv="refresh" content="{REFRESH_SECONDS}"></noscript>',
            f'<title>{text(title)}</title><link rel="icon" href="data:,">',
            f'<link rel="stylesheet" href="{root}{address("uPlot.min.css")}">',
            f'<link rel="stylesheet" href="{root}{address("page.css")}">',
            f'<script defer src="{root}{address("uPlot.iife.min.js")}"></script>',
            f'<script defer src="{root}{address("page.js")}"></script></head>',
            f'<body data-refresh="{REFRESH_SECONDS}"><a class="skip" href="#main">Skip to the models</a>',
            f"<header><h1>Blindsight <small>{text(__version__)}</small></h1>",
            '<p class="tagline">How good deployed models are now, without waiting for labels</p>',
            f'<nav aria-label="Agent">{leave}<a href="{root}metrics">Metrics</a>',
            f'<a href="{root}-/healthy">Health</a><a href="{root}-/ready">Readiness</a>',
            f'<a href="{root}api/v1/">API</a></nav></header>',
            '<p id="stale" role="alert" hidden>The agent does not answer; this is what it said last.</p>',
            '<main id="main">',
            f'<div id="made"><p class="soft">As of {made}.</p></div>',
            *(f'<div id="{name}">{"".join(content)}</div>' for name, content in parts.items()),
            "</main></body></html>\n",
        ]
    )


def _parts(view: AgentView, shown: overview.Shown) -> dict[str, Iterable[str]]:
    engine = view.engine
    filtered = engine
    if shown != overview.ALL:
        filtered = replace(engine, series=tuple(overview.selected(engine.series, shown)))
    of_models = [one for one in engine.series if not one.group]
    many = sum(not one.group for one in filtered.series) > overview.FEW_MODELS
    fits = bool(filtered.series) or not engine.series
    return {
        "condition": _condition(view),
        "headline": [overview.glance(of_models)] if of_models else [],
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


def _condition(view: AgentView) -> Iterator[str]:
    words = [
        "healthy" if view.healthy else '<span class="bad">not healthy</span>',
        "ready" if view.ready else '<span class="warn">not ready</span>',
    ]
    if not view.reload_successful:
        words.append('<span class="warn">the new configuration could not be read; the old one is kept</span>')
    if view.reports_lost:
        words.append(f'<span class="warn">windows missing in a sink of reports: {view.reports_lost:,}</span>')
    yield f'<p class="soft">The agent is {", ".join(words)}.</p>'
    failing = [f"{sink.name}: {sink.trouble}." for sink in view.sinks if sink.trouble]
    if view.reasons or failing:
        yield f"<ul>{''.join(f'<li>{text(reason)}</li>' for reason in (*view.reasons, *failing))}</ul>"

"""The landing page: what the agent sees, as plain HTML made on the server.

It is whole without a script: that only draws the charts so that they can be read off point by point, and
brings the page up to date in place. No request goes anywhere but to the agent.
"""

from __future__ import annotations

from collections.abc import Iterator

from monitor import __version__
from monitor.export.page import arenas, health, models, overview
from monitor.export.page.assets import address
from monitor.export.page.words import text
from monitor.reports.views import AgentView

REFRESH_SECONDS = 15
"""Between two loads of an open page: Prometheus' usual scrape interval, so both show the same windows."""


def render_page(view: AgentView) -> str:
    """The landing page of one view, a whole HTML document.

    Every text that came from outside is escaped. Links are relative, so the page also works behind a
    proxy that serves it under a path of its own.

    Examples
    --------
    >>> "No answer has come yet." in render_page(AgentView())
    True
    """
    return "".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            # In the page and not as a header: it stays with a page that a proxy or a saved file hands on.
            f'<noscript><meta http-equiv="refresh" content="{REFRESH_SECONDS}"></noscript>',
            '<title>Blindsight</title><link rel="icon" href="data:,">',
            f'<link rel="stylesheet" href="{address("uPlot.min.css")}">',
            f'<link rel="stylesheet" href="{address("page.css")}">',
            f'<script defer src="{address("uPlot.iife.min.js")}"></script>',
            f'<script defer src="{address("page.js")}"></script></head>',
            f'<body data-refresh="{REFRESH_SECONDS}"><a class="skip" href="#main">Skip to the models</a>',
            f"<header><h1>Blindsight <small>{text(__version__)}</small></h1>",
            "<p>How good the deployed models are now, estimated without waiting for labels.</p>",
            '<nav aria-label="Agent"><a href="metrics">Metrics</a><a href="-/healthy">Health</a>',
            '<a href="-/ready">Readiness</a></nav></header>',
            '<p id="stale" role="alert" hidden>The agent does not answer; this is what it said last.</p>',
            '<main id="main">',
            *_parts(view),
            "</main></body></html>\n",
        ]
    )


def _parts(view: AgentView) -> Iterator[str]:
    """What is brought up to date, part by part: one that has not changed keeps its charts and the focus."""
    parts = {
        "condition": _condition(view),
        "overview": overview.overview(view.engine, overview.live_trend),
        "models": models.tasks(view.engine),
        "arenas": arenas.arenas(view.engine.arenas),
        "sources": health.sources(view),
        "rejects": health.rejects(view.engine),
        "labels": health.labels(view.engine),
        "refits": health.refits(view.engine),
        "recalibrations": health.recalibrations(view.engine),
        "sinks": health.sinks(view),
    }
    for name, content in parts.items():
        yield f'<div id="{name}">{"".join(content)}</div>'


def _condition(view: AgentView) -> Iterator[str]:
    words = [
        '<span class="good">healthy</span>' if view.healthy else '<span class="bad">not healthy</span>',
        '<span class="good">ready</span>' if view.ready else '<span class="warn">not ready</span>',
    ]
    if not view.reload_successful:
        words.append('<span class="warn">the new configuration could not be read; the old one is kept</span>')
    if view.reports_lost:
        words.append(f'<span class="warn">windows missing in a sink of reports: {view.reports_lost:,}</span>')
    yield f"<p>The agent is {', '.join(words)}.</p>"
    failing = [f"{sink.name}: {sink.trouble}." for sink in view.sinks if sink.trouble]
    if view.reasons or failing:
        yield f"<ul>{''.join(f'<li>{text(reason)}</li>' for reason in (*view.reasons, *failing))}</ul>"

"""The landing page: what the agent sees, as plain HTML made on the server.

No script, no request to anywhere else, no image: it opens where nothing but the agent can be reached.
The browser asks for it anew by itself, so that it can be left open on a wall.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape

from monitor import __version__
from monitor.intervalcheck import short_sentence
from monitor.labels.tally import REALISED, REALISED_COHORT, REALISED_HORIZON
from monitor.report import finite, rfc3339
from monitor.result import Estimate, Result, TooFew, Unknown
from monitor.trustview import sentence
from monitor.view import (
    AgentView,
    EngineView,
    LabelOutcome,
    MetricEstimate,
    ObjectiveView,
    RefitView,
    SeriesView,
)

REFRESH_SECONDS = 15
"""Between two loads of an open page: Prometheus' usual scrape interval, so both show the same windows."""

MOST_SERIES = 500
"""Models and groups shown; a browser on a phone stumbles over more, and the metrics have them all."""

_STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #59636e; --line: #d1d9e0; --back: #fff;
  --band: #f3f5f7; --good: #116329; --warn: #845306; --bad: #b3191f; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --soft: #9aa4af; --line: #3a424b;
  --back: #14181d; --band: #1f252c; --good: #57c26e; --warn: #e0a72e; --bad: #ff8078; } }
body { margin: 0 auto; padding: 1rem; max-width: 64rem; background: var(--back); color: var(--ink);
  font: 1rem/1.45 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0; } h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
h1 small, .soft { color: var(--soft); font-weight: normal; } h1 small { font-size: 1rem; }
a { color: inherit; } nav a { margin-right: 1rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: left; vertical-align: top; padding: .3rem .6rem; border-top: 1px solid var(--line); }
thead th { border-top: 0; color: var(--soft); font-weight: normal; }
tbody th { font-weight: normal; } .series th[colspan] { background: var(--band); }
.series b { margin-right: .5rem; }
.number { text-align: right; white-space: nowrap; } .nowrap { white-space: nowrap; }
.good { color: var(--good); } .warn { color: var(--warn); } .bad { color: var(--bad); font-weight: 600; }
@media (max-width: 40rem) { th, td { padding: .25rem .35rem; font-size: .875rem; } }
"""

_RESTS_ON = {
    REALISED: " of the newest labelled window",
    REALISED_COHORT: " of the newest windows",
    REALISED_HORIZON: " of all windows within the horizon",
}
_TONES = {
    "in_control": "good",
    "warming_up": "soft",
    "out_of_control": "bad",
    "untrusted": "bad",
    "silent": "warn",
    "met": "good",
    "at_risk": "warn",
    "breached": "bad",
}


def render_page(view: AgentView) -> str:
    """The landing page of one view, a whole HTML document.

    Every text that came from outside is escaped. Links are relative, so the page also works behind a
    proxy that serves it under a path of its own.

    Parameters
    ----------
    view : AgentView

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
            f'<meta http-equiv="refresh" content="{REFRESH_SECONDS}">',
            f'<title>Blindsight</title><link rel="icon" href="data:,"><style>{_STYLE}</style></head><body>',
            f"<h1>Blindsight <small>{_text(__version__)}</small></h1>",
            "<p>How good the deployed models are now, estimated without waiting for labels.</p>",
            '<nav><a href="metrics">Metrics</a><a href="-/healthy">Health</a>',
            '<a href="-/ready">Readiness</a></nav>',
            *_condition(view),
            *_tasks(view.engine),
            *_sources(view),
            *_rejects(view.engine),
            *_labels(view.engine),
            *_refits(view.engine),
            "</body></html>\n",
        ]
    )


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
        yield f"<ul>{''.join(f'<li>{_text(reason)}</li>' for reason in (*view.reasons, *failing))}</ul>"


def _tasks(engine: EngineView) -> Iterator[str]:
    if not engine.series:
        yield "<h2>Models</h2><p>No answer has come yet.</p>"
    shown = engine.series[:MOST_SERIES]
    for task in dict.fromkeys(one.task for one in shown):
        yield f"<h2>Task {_text(task)}</h2>"
        bodies = (body for one in _in_order(shown, task) for body in _series(one))
        yield from _table(("Metric", "Estimate", "Control limits", "Objective"), bodies)
    missing = len(engine.series) - len(shown)
    if missing:
        yield f'<p class="soft">{missing:,} more models and groups: see <a href="metrics">metrics</a>.</p>'
    if engine.series_dropped:
        yield f'<p class="warn">Models and groups beyond the cap, not watched: {engine.series_dropped:,}.</p>'


def _in_order(series: Iterable[SeriesView], task: str) -> list[SeriesView]:
    """A model, then its groups; models in order of first appearance."""
    own = [one for one in series if one.task == task]
    place = {model: n for n, model in enumerate(dict.fromkeys(one.model for one in own))}
    return sorted(own, key=lambda one: (place[one.model], one.group))


def _series(one: SeriesView) -> Iterator[str]:
    name = " ".join(_text(part) for part in (one.model, one.group) if part)
    version = f" version {_text(one.version)}" if one.version else ""
    yield (
        f'<tbody class="series"><tr><th colspan="4" scope="rowgroup"><b>{name}</b>{_word(one.state.value)}'
        f'<span class="soft">{version} · {_progress(one)} · {_calibration(one)}{_audit(one)}</span>'
        f"{_trust(one)}</th></tr>"
    )
    metrics = (
        [e.metric for e in one.estimates]
        + [c.metric for c in one.charts]
        + [o.metric for o in one.objectives]
    )
    for metric in dict.fromkeys(metrics):
        yield (
            f'<tr><th scope="row">{_text(metric)}</th><td>{_estimates(one, metric)}</td>'
            f"<td>{_limits(one, metric)}</td><td>{_objective(one.objectives, metric)}</td></tr>"
        )
    yield "</tbody>"


def _progress(one: SeriesView) -> str:
    pending = f"{one.pending:,} of {one.window_size:,} in the open window"
    if not one.windows_closed:
        return f"no window closed yet · {pending}"
    end = "" if one.window_end_time is None else f" to {_time(one.window_end_time)}"
    return f"window {one.windows_closed - 1:,}{end} · {pending}"


def _calibration(one: SeriesView) -> str:
    foreign = ", of another version" if one.calibration.foreign else ""
    rows = one.calibration.short_reference
    short = "" if rows is None else f" · the interval {short_sentence(rows)}"
    return f"calibration {_text(one.calibration.method)}{foreign}{short}"


def _audit(one: SeriesView) -> str:
    """Labels show how often the accuracy's interval held; it says little while there are few batches."""
    if one.coverage is None:
        return ""
    ratio, level = _percent(one.coverage.ratio), _percent(one.coverage.level)
    return f" · intervals held {ratio} % (of {level} %) by {one.coverage.rows:,} labels"


def _trust(one: SeriesView) -> str:
    if one.trust is None or one.trust.trusted:
        return ""
    return f'<br><span class="bad">{_text(sentence(one.trust))}</span>'


def _estimates(one: SeriesView, metric: str) -> str:
    lines = [
        f'<span class="soft">{_text(e.estimator.replace("_", " "))}:</span> {_said(e.result)}{_rests_on(e)}'
        for e in one.estimates
        if e.metric == metric
    ]
    lines += [
        f'<span class="soft">of {_text(e.of_class)}:</span> {_said(e.result)}'
        for e in one.classes
        if e.metric == metric
    ]
    return "<br>".join(lines)


def _said(found: Result) -> str:
    result = finite(found)
    if isinstance(result, Unknown):
        count = f" ({result.n:,})" if isinstance(result, TooFew) else ""
        return f"unknown, {_text(result.reason)}{count}"
    interval = f"{_percent(result.lower)} to {_percent(result.upper)}"
    return f'<b>{_percent(result.value)} %</b> <span class="nowrap">({interval})</span>'


def _rests_on(e: MetricEstimate) -> str:
    """Labels come late: what they say is of older windows than the estimate beside it, and of few rows."""
    if e.estimator not in _RESTS_ON or not isinstance(e.result, Estimate):
        return ""
    return f' <span class="soft">by {e.result.n:,} labels{_RESTS_ON[e.estimator]}</span>'


def _limits(one: SeriesView, metric: str) -> str:
    for chart in one.charts:
        if chart.metric == metric:
            verdict = chart.verdict
            limits = f"{_percent(verdict.lower)} to {_percent(verdict.upper)} %"
            broken = f", breaks {_text(', '.join(verdict.rules))}" if verdict.rules else ""
            if verdict.out_of_control:
                since = one.alarmed_since.get(metric)
                when = "" if since is None else f" since {_time(since)}"
                broken = f", latched{when}{broken or ', this window breaks no rule'}"
            tone = "bad" if verdict.out_of_control else "good"
            word = "out of control" if verdict.out_of_control else "in control"
            return f'<span class="nowrap">{limits}</span><br><span class="{tone}">{word}</span>{broken}'
    return ""


def _objective(objectives: Iterable[ObjectiveView], metric: str) -> str:
    for objective in objectives:
        if objective.metric == metric:
            side = "at least" if objective.is_floor else "at most"
            state = (
                '<span class="soft">unknown</span>'
                if objective.state is None
                else _word(objective.state.value)
            )
            return f'<span class="nowrap">{side} {_percent(objective.bound)} %</span><br>{state}'
    return ""


def _sources(view: AgentView) -> Iterator[str]:
    engine = view.engine
    if not view.sources:
        return
    yield "<h2>Sources</h2>"
    rows = []
    for feed in view.sources:
        state = '<span class="good">connected</span>' if feed.up else '<span class="bad">not connected</span>'
        rejected = sum(count for (source, _), count in engine.rejected.items() if source == feed.name)
        counts = (engine.received.get(feed.name, 0), rejected, engine.shed.get(feed.name, 0))
        waiting = "not known" if feed.lag is None else f"{feed.lag:,}"
        numbers = _numbers([waiting, *(f"{count:,}" for count in counts)])
        rows.append(f'<tr><th scope="row">{_text(feed.name)}</th><td>{state}</td>{numbers}</tr>')
    yield from _table(("Source", "State", "#Waiting", "#Answers received", "#Rejected", "#Shed"), rows)


def _rejects(engine: EngineView) -> Iterator[str]:
    found = [(source, reason, count) for (source, reason), count in engine.rejected.items() if count]
    if not found:
        return
    yield "<h2>Rejected answers</h2>"
    rows = (
        f'<tr><th scope="row">{_text(source)}</th><td>{_text(reason.replace("_", " "))}</td>'
        f"{_numbers([f'{count:,}'])}</tr>"
        for source, reason, count in sorted(found, key=lambda row: -row[2])
    )
    yield from _table(("Source", "Reason", "#Answers"), rows)


def _labels(engine: EngineView) -> Iterator[str]:
    tasks = dict.fromkeys([task for task, _ in engine.labels] + list(engine.labels_waiting))
    if not tasks:
        return
    yield "<h2>Labels</h2>"
    rows = []
    for task in tasks:
        counts = [engine.labels.get((task, outcome), 0) for outcome in LabelOutcome]
        counts.append(engine.labels_waiting.get(task, 0))
        lag = engine.label_lag_seconds.get(task)
        delay = "not known" if lag is None else _duration(lag)
        numbers = _numbers([*(f"{count:,}" for count in counts), delay])
        rows.append(f'<tr><th scope="row">{_text(task)}</th>{numbers}</tr>')
    outcomes = (f"#{outcome.value.capitalize()}" for outcome in LabelOutcome)
    yield from _table(("Task", *outcomes, "#Waiting", "#Median delay"), rows)


def _refits(engine: EngineView) -> Iterator[str]:
    if not engine.refits:
        return
    yield "<h2>Refits by labels</h2>"
    rows = []
    for task, refits in engine.refits.items():
        good = "none yet" if refits.success_time is None else f"published {_time(refits.success_time)}"
        numbers = _numbers([f"{refits.rows:,}", f"{refits.labelled:,}", f"{refits.failures:,}"])
        rows.append(f'<tr><th scope="row">{_text(task)}</th><td>{good}{_newest(refits)}</td>{numbers}</tr>')
    yield from _table(("Task", "Last good one", "#Rows", "#With labels", "#Refused"), rows)


def _newest(refits: RefitView) -> str:
    """What has become of the refits since the last good one."""
    refused = (
        f'; <span class="warn">the newest was refused: {_text(refits.refused)}</span>'
        if refits.refused
        else ""
    )
    return refused + ("; another is under way" if refits.under_way else "")


def _table(heads: Iterable[str], rows: Iterable[str]) -> Iterator[str]:
    """A table; a head that begins with # stands over numbers."""
    yield '<div class="scroll"><table><thead><tr>'
    for head in heads:
        number = ' class="number"' if head.startswith("#") else ""
        yield f'<th scope="col"{number}>{_text(head.removeprefix("#"))}</th>'
    yield "</tr></thead>"
    yield from rows
    yield "</table></div>"


def _numbers(cells: Iterable[str]) -> str:
    return "".join(f'<td class="number">{_text(cell)}</td>' for cell in cells)


def _word(state: str) -> str:
    return f'<span class="{_TONES[state]}">{state.replace("_", " ")}</span>'


def _percent(ratio: float) -> str:
    return f"{100 * ratio:.1f}"


def _time(seconds: float) -> str:
    return rfc3339(seconds)[:19].replace("T", " ") + " UTC"


def _duration(seconds: float) -> str:
    for unit, length in (("days", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.1f} s"


def _text(text: str) -> str:
    return escape(text, quote=True)

"""The sections of models: their state, metrics and control charts, and their groups."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from monitor.base.names import BATCH_ROWS, CORRECTED, REALISED, REALISED_COHORT, REALISED_HORIZON
from monitor.base.registry import WHOLE_TASKS, load
from monitor.base.results import Estimate
from monitor.export.charts.frame import FAINT, ORANGE
from monitor.export.charts.marks import number
from monitor.export.page.confidences import confidences
from monitor.export.page.overview import (
    MOST_SERIES,
    chart_query,
    not_meaningful,
    own_page,
    untrusted,
    worst_metric,
    worst_word,
)
from monitor.export.page.words import (
    anchor,
    broken_rules,
    count,
    format_result,
    moment,
    percent,
    rank_words,
    table,
    text,
    word,
)
from monitor.reports import features
from monitor.reports.attribution import sentence as change_sentence
from monitor.reports.trust import bias_sentence, sentence
from monitor.reports.views import (
    ChartView,
    EngineView,
    MetricEstimate,
    SeriesState,
    SeriesView,
    TaskView,
)
from monitor.stats.estimate.predictive_fit import short_sentence

_RESTS_ON = {
    REALISED: " of the newest labelled window",
    REALISED_COHORT: " of the newest windows",
    REALISED_HORIZON: " of all windows within the horizon",
}


@dataclass(frozen=True, slots=True)
class Form:
    """The differences between the page of a running agent and the report of a period.

    Parameters
    ----------
    progress : callable
        A function that returns HTML on the newest window of a series, and how full the open window is.
    figures : callable
        A function that returns the control charts of a series as HTML.
    rest : str
        HTML that says where omitted models and groups can be found.
    page : callable
        A function that returns the address of a model's page; ``""`` if the model has no page.
    """

    progress: Callable[[SeriesView], str]
    figures: Callable[[SeriesView], Iterable[str]]
    rest: str
    page: Callable[[SeriesView], str]


_TIMELINE_WIDTH, _TIMELINE_HEIGHT = 600, 16
_HEADS = ("Metric", "Estimate", "Control limits", "Objective")


def tasks(engine: EngineView, form: Form | None = None) -> Iterator[str]:
    """Yield the HTML section of every task: its models, each followed by its groups.

    Without `form`, the sections are those of the agent's page.
    """
    form = form or Form(progress, figures, 'see <a href="metrics">metrics</a>', own_page)
    if not engine.series and not engine.tasks:
        yield "<h2>Models</h2><p>No answer has come yet.</p>"
    shown = engine.series[:MOST_SERIES]
    for task in dict.fromkeys(one.task for one in shown):
        yield f'<h2>Task {text(task)}</h2><div class="models">'
        own = [one for one in shown if one.task == task]
        for model in dict.fromkeys(one.model for one in own):
            yield "<div>"
            yield from _model([one for one in own if one.model == model], form)
            yield "</div>"
        yield "</div>"
    missing = len(engine.series) - len(shown)
    if missing:
        yield f'<p class="soft">{missing:,} more models and groups: {form.rest}.</p>'
    yield from unwatched(engine)


def whole_tasks(views: Sequence[TaskView]) -> dict[str, list[str]]:
    """Return the HTML of tasks that have one section for all of their models.

    The keys are ids of the page's parts, one for each kind of these tasks.
    """
    parts: dict[str, list[str]] = {f"{kind}s": [] for kind in WHOLE_TASKS}
    for one in views:
        parts[f"{one.kind}s"] += load(WHOLE_TASKS[one.kind].page)(one)
    return parts


def unwatched(engine: EngineView) -> Iterator[str]:
    """Yield a sentence with the number of models and groups beyond `max_series`, which are not monitored."""
    if engine.series_dropped:
        yield f'<p class="warn">Models and groups beyond the cap, not watched: {engine.series_dropped:,}.</p>'


def _model(series: Sequence[SeriesView], form: Form) -> Iterator[str]:
    """Yield a model and its groups; the model itself may be missing if the list was cut."""
    groups = sorted((one for one in series if one.group), key=lambda one: one.group)
    for one in series:
        if not one.group:
            yield from _series(one, form)
    if not groups:
        return
    alarmed = sum(one.state in (SeriesState.OUT_OF_CONTROL, SeriesState.UNTRUSTED) for one in groups)
    alarm_words = f', <span class="bad">{alarmed:,} out of control</span>' if alarmed else ""
    name = text(f"Groups of {groups[0].model}")
    key = anchor(groups[0].task, groups[0].model, "groups of")
    yield f'<details id="{key}"><summary>{name}: {len(groups):,}{alarm_words}</summary>'
    for one in groups:
        yield from _series(one, form)
    yield "</details>"


def _series(one: SeriesView, form: Form) -> Iterator[str]:
    yield f'<section id="{anchor(one.task, one.model, one.group)}"{untrusted(one, "series")}>'
    yield introduction(one, "h4" if one.group else "h3", form.progress(one), form.page(one))
    yield from metrics_table(one)
    if one.windows_closed:
        yield from form.figures(one)
    if one.distributions is not None:
        yield from confidences(one.model, anchor(one.task, one.model, "confidences of"), one.distributions)
    yield "</section>"


def introduction(one: SeriesView, level: str, progress: str, page: str = "", name: str = "") -> str:
    """Return, as HTML, a heading with name and state, and paragraphs on calibration and trust.

    Parameters
    ----------
    one : SeriesView
    level : str
        Tag of the heading.
    progress : str
        HTML about the newest window of the series, and how full the open window is.
    page : str
        Address to which the heading links; no link if empty.
    name : str
        Words of the heading; the name of the model or group by default.
    """
    shown = text(name or " ".join(filter(None, (one.model, one.group))))
    linked = f'<a href="{text(page)}">{shown}</a>' if page else shown
    version = f"version {text(one.version)} · " if one.version else ""
    return (
        f"<{level}>{linked} {worst_word(one)}</{level}>"
        f'<p class="soft">{version}{progress} · {_calibration(one)}{_audit(one)}</p>'
        f"{_trust(one)}{_certain(one)}"
    )


def metrics_table(one: SeriesView, caption: str = "") -> Iterator[str]:
    """Yield an HTML table with a row for each metric: its estimates, control limits and objective."""
    rows = [
        f'<tr><th scope="row">{text(metric)}</th><td>{_estimates(one, metric)}</td>'
        f"<td>{_limits(one, metric)}</td><td>{_objective(one, metric)}</td></tr>"
        for metric in _metrics(one)
    ]
    if rows:
        yield from table(caption or f"Metrics of {one.model} {one.group}".strip(), _HEADS, rows)


def charted_metrics(one: SeriesView) -> list[str]:
    """Return the names of the metrics that have a control chart on the page."""
    return [metric for metric in _metrics(one) if _is_charted(one, metric)]


def _metrics(one: SeriesView) -> Iterable[str]:
    metrics = [e.metric for e in one.estimates]
    metrics += [c.metric for c in one.charts] + [o.metric for o in one.objectives]
    return dict.fromkeys(metrics)


def _is_charted(one: SeriesView, metric: str) -> bool:
    return any(e.metric == metric and isinstance(e.result, Estimate) for e in one.estimates) or any(
        c.metric == metric for c in one.charts
    )


def figure(one: SeriesView, metric: str, root: str = "", kind: str = "", **more: str | int) -> str:
    """Return an HTML figure in which the script draws a control chart; without scripts, a picture.

    Parameters
    ----------
    one : SeriesView
    metric : str
    root : str
        The relative address of the agent's page.
    kind : str
        The CSS class of the figure's size: `large`, `small` or empty.
    **more : str or int
        Further parameters of the API: `limit`, `compare` and `former`.
    """
    name = " ".join(filter(None, (one.model, one.group)))
    words = text(f"Control chart of {name}: {metric}, up to window {one.windows_closed - 1:,}")
    words += doubt(one, metric)
    picture = f"{root}chart.svg?{text(chart_query(one, metric, **more))}"
    attributes = untrusted(one, kind) + (" data-select" if kind == "large" else "")
    return (
        f'<figure{attributes} data-history="{root}api/v1/chart?{text(chart_query(one, metric, **more))}" '
        f'data-windows="{one.windows_closed}"><figcaption>{words}</figcaption>'
        f'<noscript><div class="scroll"><img loading="lazy" width="1200" height="420" alt="{words}. '
        f'The table above has its newest figures." src="{picture}"></div></noscript></figure>'
    )


def figures(one: SeriesView) -> Iterator[str]:
    """Yield the control chart of the worst metric, and small charts of the others, as HTML."""
    metrics = charted_metrics(one)
    worst = worst_metric(one)
    if worst in metrics:
        yield figure(one, worst)
    others = [metric for metric in metrics if metric != worst]
    if others:
        yield '<div class="multiples">'
        yield from (f"<div>{figure(one, metric, kind='small')}</div>" for metric in others)
        yield "</div>"


def timeline(label: str, spans: Iterable[tuple[float, float]]) -> str:
    """Return an SVG timeline with a bar for each span of time in which an alarm was on.

    A span is its start and its end, as fractions of the whole time, 0 to 1.
    """
    bars = "".join(
        f'<rect x="{number(start * _TIMELINE_WIDTH)}" fill="{ORANGE}" height="{_TIMELINE_HEIGHT}" '
        f'width="{number(max((end - start) * _TIMELINE_WIDTH, 2.0))}"/>'
        for start, end in spans
    )
    back = f'<rect width="{_TIMELINE_WIDTH}" height="{_TIMELINE_HEIGHT}" fill="{FAINT}"/>'
    return (
        f'<svg class="timeline" viewBox="0 0 {_TIMELINE_WIDTH} {_TIMELINE_HEIGHT}" '
        f'preserveAspectRatio="none" role="img" aria-label="{text(label)}">{back}{bars}</svg>'
    )


def progress(one: SeriesView) -> str:
    """Return a text about the newest closed window of a series, and how full the open window is."""
    pending = f"{one.pending:,} of {one.window_size:,} in the open window"
    if not one.windows_closed:
        return f"no window closed yet · {pending}"
    end = "" if one.window_end_time is None else f" to {moment(one.window_end_time)}"
    return f"window {one.windows_closed - 1:,}{end} · {pending}"


def _calibration(one: SeriesView) -> str:
    foreign = ", of another version" if one.calibration.foreign else ""
    rows = one.calibration.short_reference
    short = "" if rows is None else f" · the interval {short_sentence(rows)}"
    own = one.calibration.covariates
    rests = "" if own is None else f", rests on {own.effective_rows:,.0f} effective rows of the reference"
    return f"calibration {text(one.calibration.method)}{rests}{foreign}{short}"


def _audit(one: SeriesView) -> str:
    """Describe how often the intervals by confidences alone covered labels; the shown interval is wider."""
    if one.coverage is None:
        return ""
    ratio, level = percent(one.coverage.ratio), percent(one.coverage.level)
    return (
        f" · intervals by confidences alone covered {ratio} % (target {level} %) of batches of {BATCH_ROWS}, "
        f"{one.coverage.rows:,} labels"
    )


def _trust(one: SeriesView) -> str:
    lines = []
    if one.broken_features:
        lines.append(f'<p class="bad">{text(features.sentence(one.broken_features))}</p>')
    if one.trust is None:
        return "".join(lines)
    bias = one.trust.confidences
    if not one.trust.trusted:
        lines.append(f'<p class="bad">{text(sentence(one.trust))}</p>')
    if bias is not None:
        lines.append(f'<p class="soft">{text(bias_sentence(bias))}</p>')
    return "".join(lines)


def _certain(one: SeriesView) -> str:
    if not one.certain:
        return ""
    return (
        f'<p class="warn">Each score of {one.certain:,} answers is exactly 0 or 1, so every answer gets the '
        "same confidence; send probabilities before rounding.</p>"
    )


def _untrusted(one: SeriesView, metric: str) -> bool:
    """Return whether a metric is not trusted; the test by labels is about the accuracy alone."""
    untrusted_metric = metric == "accuracy" or bool(one.broken_features)
    return untrusted_metric and one.state is SeriesState.UNTRUSTED


def doubt(one: SeriesView, metric: str) -> str:
    """Return a note for the caption of a chart whose estimate is not trusted; empty if it is trusted."""
    return f"; {not_meaningful(one)}" if _untrusted(one, metric) else ""


def _estimates(one: SeriesView, metric: str) -> str:
    """Return the estimates, one a line; contradicted ones are struck and follow those by labels."""
    of_metric = [e for e in one.estimates if e.metric == metric]
    lines = [_line(e) for e in of_metric]
    if _untrusted(one, metric):
        by_labels = [e for e in of_metric if e.estimator in (CORRECTED, *_RESTS_ON)]
        others = [e for e in of_metric if e not in by_labels]
        lines = [*map(_line, by_labels), *(f'<s class="soft">{_line(e)}</s>' for e in others)]
    lines += [
        f'<span class="soft">of {text(e.of_class)}:</span> {format_result(e.result)}'
        for e in one.classes
        if e.metric == metric
    ]
    return "<br>".join(lines)


def _line(e: MetricEstimate) -> str:
    estimator = text(e.estimator.replace("_", " "))
    return f'<span class="soft">{estimator}:</span> {format_result(e.result)}{_rank(e)}{_rests_on(e)}'


def _rank(e: MetricEstimate) -> str:
    words = rank_words(e.rank, e.rank_chi_square)
    return f', <span class="nowrap">rank {words}</span>' if words else ""


def _rests_on(e: MetricEstimate) -> str:
    """Describe the labels behind an estimate: few rows, of windows older than the estimates beside it."""
    if e.estimator == CORRECTED and isinstance(e.result, Estimate):
        closed = "" if e.at_close is None else f"; at the close {format_result(e.at_close)}"
        return f' <span class="soft">by {count(e.labels, "label")}{closed}</span>'
    if e.estimator not in _RESTS_ON or not isinstance(e.result, Estimate):
        return ""
    return f' <span class="soft">by {e.result.n:,} labels{_RESTS_ON[e.estimator]}</span>'


def _limits(one: SeriesView, metric: str) -> str:
    for chart in one.charts:
        if chart.metric == metric:
            verdict = chart.verdict
            limits = f'<span class="nowrap">{percent(verdict.lower)} to {percent(verdict.upper)} %</span>'
            if _untrusted(one, metric):
                return f'{limits}<br><span class="soft">{not_meaningful(one)}</span>'
            broken = broken_rules(verdict.rules)
            where = "".join(f"<br>{text(change_sentence(a))}" for a in one.attributions if a.metric == metric)
            if chart.by_labels is not None:
                where = f'<br><span class="soft">{text(str(chart.by_labels))}</span>{_moved(chart)}{where}'
            if not verdict.out_of_control:
                state = word("improved" if verdict.improved else "in_control")
                return f"{limits}<br>{state}{broken and f'; {broken}'}{where}"
            since = one.alarmed_since.get(metric)
            when = "" if since is None else f" since {moment(since)}"
            newest = broken or ("" if chart.by_labels else "this window is calm")
            newest = f"; {newest}" if newest else ""
            return f'{limits}<br><span class="bad">out of control</span>{when}{newest}{where}'
    return ""


def _moved(chart: ChartView) -> str:
    """Describe a change of the confidences that raises no alarm because labels decide."""
    raises_none = chart.confidences_moved and not chart.verdict.out_of_control
    return f"<br>{word('confidences_moved')}" if raises_none else ""


def _objective(one: SeriesView, metric: str) -> str:
    for objective in one.objectives:
        if objective.metric == metric:
            side = "at least" if objective.is_floor else "at most"
            state = '<span class="soft">unknown</span>'
            if objective.state is not None:
                state = word(objective.state.value)
            if _untrusted(one, metric):
                state = '<span class="soft">not judged by an untrusted estimate</span>'
            return f'<span class="nowrap">{side} {percent(objective.bound)} %</span><br>{state}'
    return ""

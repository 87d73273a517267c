"""The page's sections for models: their state, metrics and control charts, and their groups."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from monitor.base.names import BATCH_ROWS, CORRECTED, REALISED, REALISED_COHORT, REALISED_HORIZON
from monitor.base.registry import SHARES, WHOLE_TASKS, load
from monitor.base.results import Estimate
from monitor.export.charts.marks import number
from monitor.export.page.confidences import confidences
from monitor.export.page.overview import MOST_SERIES, chart_query, own_page
from monitor.export.page.states import not_meaningful, worst_metric
from monitor.export.page.templates import render
from monitor.export.page.words import anchor, moment, percent
from monitor.reports import features
from monitor.reports.attribution import sentence as change_sentence
from monitor.reports.statements import error_sentence, is_unchecked
from monitor.reports.trust import bias_sentence, sentence
from monitor.reports.views import (
    ClassEstimate,
    EngineView,
    MetricEstimate,
    SeriesState,
    SeriesView,
    TaskView,
)
from monitor.stats.estimate.predictive_fit import short_sentence

_BY_LABELS = (CORRECTED, REALISED, REALISED_COHORT, REALISED_HORIZON)


@dataclass(frozen=True, slots=True)
class Form:
    """The differences between the page of a running agent and the report of a period.

    Parameters
    ----------
    progress : callable
        A function from a series to a text about its newest window and the number of answers in the open
        window.
    figures : callable
        A function that returns the control charts of a series as HTML.
    rest : str
        HTML that says where omitted models and groups are shown, or why they are omitted.
    page : callable
        A function that returns the address of a model's page; ``""`` if the model has no page.
    """

    progress: Callable[[SeriesView], str]
    figures: Callable[[SeriesView], Markup]
    rest: Markup
    page: Callable[[SeriesView], str]


_TIMELINE_WIDTH, _TIMELINE_HEIGHT = 600, 16


def tasks(engine: EngineView, form: Form | None = None) -> Markup:
    """Return the HTML section of every task: its models, each followed by its groups.

    Without `form`, the sections are those of the agent's page.
    """
    form = form or Form(progress, figures, Markup('see <a href="metrics">metrics</a>'), own_page)
    shown: dict[str, dict[str, list[SeriesView]]] = {}
    for one in engine.series[:MOST_SERIES]:
        shown.setdefault(one.task, {}).setdefault(one.model, []).append(one)
    sections = [(task, [_model(series, form) for series in own.values()]) for task, own in shown.items()]
    return render(
        "models.html",
        "tasks",
        sections,
        is_empty=not engine.series and not engine.tasks,
        missing=max(len(engine.series) - MOST_SERIES, 0),
        rest=form.rest,
        dropped=engine.series_dropped,
    )


def whole_tasks(views: Sequence[TaskView]) -> dict[str, Markup]:
    """Return the HTML of the tasks whose models share one section, such as a ranking.

    The result has the HTML by the id of a part of the page. There is one part for each kind of such tasks.
    """
    parts = {f"{kind}s": Markup() for kind in WHOLE_TASKS}
    for one in views:
        parts[f"{one.kind}s"] += load(WHOLE_TASKS[one.kind].page)(one)
    return parts


def unwatched(engine: EngineView) -> Markup:
    """Return a sentence with the number of models and groups beyond `max_series`, which are not monitored."""
    return render("models.html", "unwatched", engine.series_dropped)


def _model(series: Sequence[SeriesView], form: Form) -> Markup:
    """Return the HTML of a model and its groups. The model itself may be missing if the list was cut."""
    groups = sorted((one for one in series if one.group), key=lambda one: one.group)
    return render(
        "models.html",
        "model",
        [_series(one, form) for one in series if not one.group],
        [_series(one, form) for one in groups],
        name=series[0].model,
        key=anchor(series[0].task, series[0].model, "groups of"),
        alarmed=sum(one.state in (SeriesState.OUT_OF_CONTROL, SeriesState.UNTRUSTED) for one in groups),
    )


def _series(one: SeriesView, form: Form) -> Markup:
    spread = one.distributions
    key = anchor(one.task, one.model, "confidences of")
    return render(
        "models.html",
        "series",
        one,
        anchor(one.task, one.model, one.group),
        introduction(one, "h4" if one.group else "h3", form.progress(one), form.page(one)),
        metrics_table(one),
        form.figures(one) if one.windows_closed else Markup(),
        Markup() if spread is None else confidences(one.model, key, spread),
    )


def introduction(one: SeriesView, level: str, progress: str, page: str = "", name: str = "") -> Markup:
    """Return, as HTML, a heading with name and state, and paragraphs on calibration and trust.

    Parameters
    ----------
    one : SeriesView
    level : str
        Tag of the heading.
    progress : str
        A text about the newest window of the series and the number of answers in the open window.
    page : str
        Address to which the heading links; no link if empty.
    name : str
        The text of the heading, by default the name of the model or group.
    """
    name = name or " ".join(filter(None, (one.model, one.group)))
    version = (f"version {one.version}",) if one.version else ()
    facts = " · ".join((*version, progress, _calibration(one), *_audit(one)))
    return render("models.html", "introduction", one, level, name, page, facts, list(_sentences(one)))


def metrics_table(one: SeriesView, caption: str = "") -> Markup:
    """Return an HTML table with a row for each metric: its estimates, control limits and objective."""
    caption = caption or f"Metrics of {one.model} {one.group}".strip()
    rows = [
        (
            metric,
            list(_estimates(one, metric)),
            next((chart for chart in one.charts if chart.metric == metric), None),
            next((objective for objective in one.objectives if objective.metric == metric), None),
            [change_sentence(each) for each in one.attributions if each.metric == metric],
            not _untrusted(one, metric),
            next((each for each in one.rebaselining if each.metric == metric), None),
            is_unchecked(one, metric),
            next((each for each in one.seasons if each.metric == metric), None),
        )
        for metric in _metrics(one)
    ]
    return render("models.html", "metrics", one, caption, rows)


def charted_metrics(one: SeriesView) -> list[str]:
    """Return the names of the metrics that have a control chart on the page."""
    return [metric for metric in _metrics(one) if _is_charted(one, metric)]


def _metrics(one: SeriesView) -> Iterable[str]:
    metrics = [e.metric for e in one.estimates]
    metrics += [c.metric for c in one.charts] + [o.metric for o in one.objectives]
    metrics += [e.metric for e in one.values]
    return dict.fromkeys(metrics)


def _is_charted(one: SeriesView, metric: str) -> bool:
    known = (e.metric for e in (*one.estimates, *one.values) if isinstance(e.result, Estimate))
    return metric in known or any(c.metric == metric for c in one.charts)


def figure(one: SeriesView, metric: str, root: str = "", kind: str = "", **more: str | int) -> Markup:
    """Return an HTML figure with a picture of a control chart.

    The page's script replaces the picture by an interactive chart.

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
    words = f"Control chart of {name}: {metric}, up to window {one.windows_closed - 1:,}{doubt(one, metric)}"
    return render("models.html", "figure", one, words, root, kind, chart_query(one, metric, **more))


def figures(one: SeriesView) -> Markup:
    """Return the control chart of the worst metric, and small charts of the others, as HTML."""
    metrics = charted_metrics(one)
    worst = worst_metric(one)
    largest = figure(one, worst) if worst in metrics else Markup()
    others = [figure(one, metric, kind="small") for metric in metrics if metric != worst]
    return render("models.html", "figures", largest, others)


def timeline(label: str, spans: Iterable[tuple[float, float]]) -> Markup:
    """Return an SVG timeline with a bar for each span of time in which an alarm was on.

    A span is its start and its end, as fractions of the whole time, 0 to 1.
    """
    bars = [
        (number(start * _TIMELINE_WIDTH), number(max((end - start) * _TIMELINE_WIDTH, 2.0)))
        for start, end in spans
    ]
    return render("models.html", "timeline", label, bars, _TIMELINE_WIDTH, _TIMELINE_HEIGHT)


def progress(one: SeriesView) -> str:
    """Return a text about the newest closed window of a series and the answers in the open window."""
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
    return f"calibration {one.calibration.method}{rests}{foreign}{short}"


def _audit(one: SeriesView) -> Iterator[str]:
    """Describe how often the intervals from confidences alone contained the labels' value.

    The shown interval is wider.
    """
    if one.coverage is not None:
        ratio, level = percent(one.coverage.ratio), percent(one.coverage.level)
        yield (
            f"intervals by confidences alone covered {ratio} % (target {level} %) of batches of {BATCH_ROWS}"
            f", {one.coverage.rows:,} labels"
        )


def _sentences(one: SeriesView) -> Iterator[tuple[str, str]]:
    """Yield sentences on the trust in a series, each with the CSS class of its colour."""
    if one.broken_features:
        yield "bad", features.sentence(one.broken_features)
    if one.trust is not None and one.contradicted:
        yield "bad", sentence(one.trust, one.share)
    if (lost := one.lost_trust_in_errors) is not None:
        yield from (("bad", error_sentence(one, each)) for each in lost.lost)
    if one.trust is not None and one.trust.confidences is not None:
        yield "soft", bias_sentence(one.trust.confidences)
    if one.certain:
        yield (
            "warn",
            f"Each score of {one.certain:,} answers is exactly 0 or 1, so every answer gets the same "
            "confidence; send probabilities before rounding.",
        )


def _untrusted(one: SeriesView, metric: str) -> bool:
    """Return whether a metric is not trusted; one test by labels is about the share of right answers.

    Another one is about the metrics of errors. They are not trusted either if the share is not, because they
    have the same reference and the same features.
    """
    of_errors = any(each.metric == metric for each in one.values)
    if of_errors and one.lost_trust_in_errors is not None:
        return True
    untrusted_metric = metric in SHARES or of_errors or bool(one.broken_features)
    return untrusted_metric and one.state is SeriesState.UNTRUSTED


def doubt(one: SeriesView, metric: str) -> str:
    """Return a note for the caption of a chart whose estimate is not trusted; empty if it is trusted."""
    return f"; {not_meaningful(one)}" if _untrusted(one, metric) else ""


def _estimates(one: SeriesView, metric: str) -> Iterator[tuple[str, str, MetricEstimate | ClassEstimate]]:
    """Yield the estimates with their kinds and names.

    Contradicted estimates are struck through and come last.
    """
    own = [e for e in (*one.estimates, *one.values) if e.metric == metric]
    struck = [e for e in own if e.estimator not in _BY_LABELS] if _untrusted(one, metric) else []
    yield from (("plain", e.estimator.replace("_", " "), e) for e in own if e not in struck)
    yield from (("struck", e.estimator.replace("_", " "), e) for e in struck)
    yield from (("class", e.of_class, e) for e in one.classes if e.metric == metric)

"""The first screen: a headline in the colour of the worst state, and a row for each model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Annotated, Literal, NamedTuple
from urllib.parse import urlencode

import msgspec
from msgspec import UNSET, Meta, UnsetType

from monitor.base.names import AVERAGE_CONFIDENCE, CORRECTED, REALISED, REALISED_COHORT, REALISED_HORIZON
from monitor.base.results import Estimate, Result
from monitor.export.page.addresses import model_address
from monitor.export.page.words import anchor, count, moment, percent, table, text
from monitor.reports.views import (
    EngineView,
    MetricEstimate,
    ObjectiveState,
    ObjectiveView,
    SeriesState,
    SeriesView,
)
from monitor.reports.window_report import finite, rfc3339
from monitor.reports.window_view import leading_estimate

MOST_SERIES = 500
"""The largest number of models and groups shown: phones are slow with more, and the metrics have all."""
FEW_MODELS = 5
"""The largest number of models that the first page shows in full; with more it shows rows and filters."""

"""The words for the chart of an estimate that labels contradict."""

# In descending order of the number of labels behind them.
_LABELS = (REALISED_HORIZON, REALISED_COHORT, REALISED)
_GROUPS_SHOWN = 10
_TASKS_SHOWN = 20
_TREND_WINDOWS = 60


class WorstState(IntEnum):
    """The states of a model on the page, from the worst to the best; the worst that applies is shown."""

    UNTRUSTED = 0
    BREACHED = 1
    OUT_OF_CONTROL = 2
    SILENT = 3
    AT_RISK = 4
    WARMING_UP = 5
    IN_CONTROL = 6

    @property
    def tone(self) -> str:
        """The CSS class that gives the state's words their colour."""
        if self <= WorstState.OUT_OF_CONTROL:
            return "bad"
        return {WorstState.WARMING_UP: "soft", WorstState.IN_CONTROL: "good"}.get(self, "warn")


_WORDS: Mapping[WorstState, str] = {
    WorstState.UNTRUSTED: "untrusted",
    WorstState.BREACHED: "objective breached",
    WorstState.OUT_OF_CONTROL: "out of control",
    WorstState.SILENT: "silent",
    WorstState.AT_RISK: "objective at risk",
    WorstState.WARMING_UP: "warming up",
    WorstState.IN_CONTROL: "in control",
}
_BROKEN = ("is untrusted: a feature is broken", "are untrusted: features are broken")
_HEADLINES: Mapping[WorstState, tuple[str, str]] = {
    WorstState.UNTRUSTED: (
        "is untrusted: labels contradict its estimate",
        "are untrusted: labels contradict them",
    ),
    WorstState.BREACHED: ("misses its objective", "miss their objectives"),
    WorstState.OUT_OF_CONTROL: ("is out of control", "are out of control"),
    WorstState.SILENT: ("is silent", "are silent"),
    WorstState.AT_RISK: ("may miss its objective", "may miss their objectives"),
    WorstState.WARMING_UP: ("is warming up", "are warming up"),
    WorstState.IN_CONTROL: ("is in control", "are in control"),
}

Trend = Callable[[SeriesView, str], str]
Link = Callable[[SeriesView], str]
"""A function that returns the address of a model or group."""


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """A filter for the models on the page. A model must match every field that is set."""

    task: Annotated[str, Meta(description="Only models of this task.")] = ""
    state: (
        Annotated[
            Literal[
                "untrusted", "breached", "out_of_control", "silent", "at_risk", "warming_up", "in_control"
            ],
            Meta(description="Only models whose worst state is this one."),
        ]
        | UnsetType
    ) = UNSET
    name: Annotated[str, Meta(description="Only models whose name holds this text.")] = ""


ALL = Shown()
"""The filter that matches every model."""


def selected(series: Iterable[SeriesView], shown: Shown) -> list[SeriesView]:
    """Return the models that match a filter, with all of their groups, in the original order."""
    every = list(series)
    fits = {
        (one.task, one.model)
        for one in every
        if not one.group
        and shown.task in ("", one.task)
        and shown.name.lower() in one.model.lower()
        and shown.state in (UNSET, worst_state(one).name.lower())
    }
    return [one for one in every if (one.task, one.model) in fits]


def in_place(one: SeriesView) -> str:
    """Return a link to the section of a model or group on the same page: ``#`` and its HTML id."""
    return f"#{anchor(one.task, one.model, one.group)}"


def own_page(one: SeriesView) -> str:
    """Return the relative address of the separate page of a model or group."""
    return model_address(one.task, one.model, group=one.group)


def worst_state(one: SeriesView) -> WorstState:
    """Return the worst state of a model or group, by its trust, objectives, charts and missing answers."""
    states = {objective.state for objective in one.objectives}
    if one.state is SeriesState.UNTRUSTED:
        return WorstState.UNTRUSTED
    if ObjectiveState.BREACHED in states:
        return WorstState.BREACHED
    if one.state in (SeriesState.OUT_OF_CONTROL, SeriesState.SILENT):
        return WorstState[one.state.name]
    return WorstState.AT_RISK if ObjectiveState.AT_RISK in states else WorstState[one.state.name]


def worst_word(one: SeriesView) -> str:
    """Return the worst state of a model or group as coloured HTML text."""
    now = worst_state(one)
    return f'<span class="{now.tone}">{_WORDS[now]}</span>'


def overview(engine: EngineView, shown: Shown = ALL) -> Iterator[str]:
    """Yield, as HTML, links that filter the models, and a table of the models that match `shown`."""
    models = [one for one in engine.series if not one.group]
    if not models:
        return
    yield from _filters(models, shown)
    matching = selected(engine.series, shown)
    if matching:
        yield from models_table(matching, own_page, live_trend)
        if (missing := sum(not one.group for one in matching) - MOST_SERIES) > 0:
            yield f'<p class="soft">{missing:,} more models: filter them, or see '
            yield '<a href="metrics">metrics</a>.</p>'
    else:
        yield '<p>No model fits. <a href="?">Show all</a></p>'


def models_table(
    series: Sequence[SeriesView],
    link: Link,
    trend: Trend | None = None,
    rank: int = 0,
    most: int = MOST_SERIES,
) -> Iterator[str]:
    """Yield an HTML table with a row for each model, the worst first.

    The table has at most `most` models, from the one with index `rank` on. `trend` is a function that draws
    the newest windows of a metric in a cell.
    """
    groups: dict[tuple[str, str], list[SeriesView]] = {}
    for one in series:
        if one.group:
            groups.setdefault((one.task, one.model), []).append(one)
    models = sorted((one for one in series if not one.group), key=worst_state)
    several = len({one.task for one in models}) > 1
    rows = (
        row(
            one,
            f"{one.task} {one.model}" if several else one.model,
            link,
            trend,
            _of_groups(one, groups.get((one.task, one.model), ()), link),
        )
        for one in models[rank : rank + most]
    )
    caption = f"Models from the {rank + 1:,}th worst on" if rank else "Models, the worst first"
    yield from rows_table(caption, "Model", rows, trend is not None)


def rows_table(caption: str, head: str, rows: Iterable[str], has_trend: bool) -> Iterator[str]:
    """Yield an HTML table with a caption and headings around rows that `row` made."""
    trend = ("Last windows",) if has_trend else ()
    heads = (head, "State", "Metric", "#Estimate", "Objective", "By labels", *trend, "Newest window")
    yield from table(caption, heads, rows, "overview")


def _filters(models: Sequence[SeriesView], shown: Shown) -> Iterator[str]:
    """Yield links to the models of one task or in one state, unless the models are few."""
    if len(models) <= FEW_MODELS and shown == ALL:
        return
    tasks = list(dict.fromkeys(one.task for one in models))
    often = Counter(map(worst_state, models))
    if len(tasks) > 1:
        state = "" if shown.state is UNSET else str(shown.state)
        links = [("all tasks", "", shown.task == "")]
        links += [(task, task, shown.task == task) for task in tasks[:_TASKS_SHOWN]]
        yield from _choices(
            "Tasks", [(words, {"task": task, "state": state}, on) for words, task, on in links]
        )
    if len(often) > 1:
        chosen = [("all states", {"task": shown.task}, shown.state is UNSET)]
        chosen += [
            (
                f"{_WORDS[state]} ({number:,})",
                {"task": shown.task, "state": state.name.lower()},
                shown.state == state.name.lower(),
            )
            for state, number in sorted(often.items())
        ]
        yield from _choices("States", chosen)


def _choices(label: str, links: Iterable[tuple[str, dict[str, str], bool]]) -> Iterator[str]:
    yield f'<nav class="choices" aria-label="{label}">'
    for words, query, on in links:
        query_text = urlencode({name: value for name, value in query.items() if value}, errors="replace")
        here = ' aria-current="true"' if on else ""
        yield f'<a href="?{text(query_text)}"{here}>{text(words)}</a>'
    yield "</nav>"


def glance(models: Sequence[SeriesView]) -> str:
    """Return the headline of one or more models as HTML, in the colour of the worst state."""
    summary = headline(models)
    rest = f" {summary.rest}" if summary.rest else ""
    return (
        f'<p class="glance" role="status"><span class="{summary.worst.tone}">{summary.words}</span>{rest}</p>'
    )


class Headline(NamedTuple):
    """A summary of models: the worst state, a sentence on it, and the counts of the other states in words."""

    worst: WorstState
    words: str
    rest: str


def headline(models: Sequence[SeriesView]) -> Headline:
    """Return the headline of one or more models."""
    often = Counter(map(worst_state, models))
    worst = min(often)
    many = often[worst]
    words = f"{count(many, 'model')} {_predicate(worst, models)[many > 1]}"
    stable = all(one.state is SeriesState.IN_CONTROL for one in models if worst_state(one) is worst)
    if worst is WorstState.BREACHED and stable:
        words += "; its chart is stable" if many == 1 else "; their charts are stable"
    rest = ", ".join(f"{number:,} {_WORDS[state]}" for state, number in sorted(often.items())[1:])
    return Headline(worst, f"{words}.", f"{rest}." if rest else "")


def _predicate(worst: WorstState, models: Iterable[SeriesView]) -> tuple[str, str]:
    """Return what the headline says of one model in the worst state, and of several."""
    untrusted_models = [one for one in models if one.state is SeriesState.UNTRUSTED]
    by_features = worst is WorstState.UNTRUSTED and all(one.broken_features for one in untrusted_models)
    return _BROKEN if by_features else _HEADLINES[worst]


def row(one: SeriesView, name: str, link: Link, trend: Trend | None, beside: str = "") -> str:
    """Return the HTML table row of a model or a group.

    The row shows the state and the worst metric, with its estimate, its distance from the objective and its
    value computed from labels. `beside` is HTML that follows the state.
    """
    now, metric = worst_state(one), worst_metric(one)
    objective = next((each for each in one.objectives if each.metric == metric), None)
    first, result = shown_estimate(one, metric), judged(one, metric)
    known = now is not WorstState.UNTRUSTED or (first is not None and first.estimator == CORRECTED)
    value = f"{result.value:.6f}" if isinstance(result, Estimate) else ""
    cells = [
        f'<th scope="row"><a href="{text(link(one))}">{text(name)}</a></th>',
        f'<td data-sort="{now.value}">{worst_word(one)}{_alarm(one, now)}{beside}</td>',
        f"<td>{text(metric)}</td>",
        f'<td class="number" data-sort="{value}">{_estimate(result, known)}</td>',
        f"<td>{_gap(objective, result if known else None)}</td>",
        f"<td>{_by_labels(one, metric)}</td>",
    ]
    if trend is not None:
        cells.append(f"<td>{trend(one, metric) if one.windows_closed else ''}</td>")
    end = one.window_end_time
    when = "" if end is None else time_words(end)
    cells.append(f'<td data-sort="{"" if end is None else end}">{when}</td>')
    return f"<tr{untrusted(one)}>{''.join(cells)}</tr>"


def untrusted(one: SeriesView, more: str = "") -> str:
    """Return the HTML attribute ``class`` for the element of a model, or "" without a class.

    A model whose estimate is not trusted gets the class `untrusted`, which removes the colours of good news.
    `more` holds further classes.
    """
    names = " ".join(filter(None, (more, "untrusted" if one.state is SeriesState.UNTRUSTED else "")))
    return f' class="{names}"' if names else ""


def not_meaningful(one: SeriesView) -> str:
    """Return a warning for the chart of a model whose estimate is not trusted; it says until when."""
    until = "while a feature is broken" if one.broken_features else "until labels agree again"
    return f"not meaningful {until}"


def worst_metric(one: SeriesView) -> str:
    """Return the name of the metric that needs attention most, or of the first metric if none does.

    The order is: a breached objective, an alarm, an objective at risk.
    """
    alarmed = [chart.metric for chart in one.charts if chart.verdict.out_of_control]
    first = [each.metric for each in one.estimates] + [each.metric for each in one.charts]
    by_state = [
        [each.metric for each in one.objectives if each.state is state]
        for state in (ObjectiveState.BREACHED, ObjectiveState.AT_RISK)
    ]
    ranked = [*by_state[0], *alarmed, *by_state[1], *first]
    return next(iter(ranked), "")


def shown_estimate(one: SeriesView, metric: str) -> MetricEstimate | None:
    """Return the estimate of a metric that the page shows first.

    It is the estimate corrected by labels, if there is one, or else the estimate that the chart judges.
    """
    by = next((chart.estimator for chart in one.charts if chart.metric == metric), AVERAGE_CONFIDENCE)
    return leading_estimate(one.estimates, metric, by)


def judged(one: SeriesView, metric: str) -> Result | None:
    """Return the result of the estimate that the page shows first, or None if there is no estimate."""
    estimate = shown_estimate(one, metric)
    return None if estimate is None else finite(estimate.result)


def _estimate(result: Result | None, trusted: bool) -> str:
    if not isinstance(result, Estimate):
        return '<span class="soft">unknown</span>' if result is not None else ""
    words = f"<b>{percent(result.value)} %</b><br>{_interval(result)}"
    return words if trusted else f'<s class="soft">{words}</s>'


def _interval(result: Estimate) -> str:
    return f'<span class="nowrap">({percent(result.lower)} to {percent(result.upper)})</span>'


def _gap(objective: ObjectiveView | None, result: Result | None) -> str:
    """Return the bound of the objective, and the distance of the estimate from it."""
    if objective is None:
        return ""
    side = "at least" if objective.is_floor else "at most"
    words = f'<span class="nowrap">{side} {percent(objective.bound)} %</span>'
    if not isinstance(result, Estimate):
        return words
    gap = round(100 * (result.value - objective.bound), 1)
    side = "above" if gap > 0 else "below" if gap < 0 else "on it"
    wrong = gap < 0 if objective.is_floor else gap > 0
    points = f"{abs(gap):.1f} {side}" if gap else side
    return f'{words}<br><span class="{"bad" if wrong else "soft"} nowrap">{points}</span>'


def _by_labels(one: SeriesView, metric: str) -> str:
    for estimator in _LABELS:
        for each in one.estimates:
            result = finite(each.result)
            if (each.metric, each.estimator) == (metric, estimator) and isinstance(result, Estimate):
                value = f"{percent(result.value)} %"
                value = f"<b>{value}</b>" if one.state is SeriesState.UNTRUSTED else value
                return f'<span class="nowrap">{value} of {result.n:,}</span><br>{_interval(result)}'
    return '<span class="soft">none yet</span>'


def _alarm(one: SeriesView, now: WorstState) -> str:
    """Return since when the oldest alarm is on, even if another state is worse."""
    if one.state is SeriesState.UNTRUSTED:
        return f'<span class="soft">, chart {not_meaningful(one)}</span>'
    moved = any(chart.confidences_moved and not chart.verdict.out_of_control for chart in one.charts)
    beside = '<span class="soft">, confidences moved</span>' if moved else ""
    if not any(chart.verdict.out_of_control for chart in one.charts):
        better = ", ".join(text(chart.metric) for chart in one.charts if chart.verdict.improved)
        return (f'<span class="soft">, {better} improved</span>' if better else "") + beside
    known = [since for since in one.alarmed_since.values() if since is not None]
    since = f" since {time_words(min(known))}" if known else ""
    words = "" if now is WorstState.OUT_OF_CONTROL else ", out of control"
    return f'<span class="soft since">{words}{since}</span>{beside}'


def time_words(seconds: float) -> str:
    """Return a time as an HTML element; the script adds how long ago it was."""
    return f'<time datetime="{rfc3339(seconds)}">{moment(seconds)}</time>'


def _of_groups(one: SeriesView, groups: Sequence[SeriesView], link: Link) -> str:
    """Return a folded list of the groups that need attention, the worst first."""
    wrong = sorted((each for each in groups if worst_state(each) <= WorstState.AT_RISK), key=worst_state)
    shown = [
        f'<a href="{text(link(each))}">{text(each.group)}</a> {worst_word(each)}'
        for each in wrong[:_GROUPS_SHOWN]
    ]
    more = len(wrong) - len(shown)
    shown += [f"{more:,} more"] if more else []
    if not shown:
        return ""
    summary = f"{len(wrong):,} of {count(len(groups), 'group')}: {worst_word(wrong[0])}"
    key = anchor(one.task, one.model, "groups in a row of")
    return f'<details id="{key}"><summary>{summary}</summary><div>{", ".join(shown)}</div></details>'


def live_trend(one: SeriesView, metric: str, root: str = "") -> str:
    """Return an SVG element in which the script draws the newest 60 windows of a metric."""
    parameters = chart_query(one, metric, limit=_TREND_WINDOWS)
    return (
        f'<svg class="trend" viewBox="0 0 150 35" role="img" aria-label="Last windows of {text(one.model)}" '
        f'data-history="{root}api/v1/chart?{text(parameters)}" data-windows="{one.windows_closed}"></svg>'
    )


def chart_query(one: SeriesView, metric: str, **more: str | int) -> str:
    """Return the query that selects a metric's chart, for the addresses of the API and `/chart.svg`."""
    names = {"task": one.task, "model": one.model, "group": one.group, "metric": metric}
    return urlencode({**names, **more}, errors="replace")

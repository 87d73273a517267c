"""The first screen of the page: a headline in the colour of the worst state, and a row for each model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Annotated, Literal, NamedTuple
from urllib.parse import urlencode

import msgspec
from markupsafe import Markup
from msgspec import UNSET, Meta, UnsetType

from monitor.base.names import CORRECTED
from monitor.base.results import Estimate, Result
from monitor.export.alertmanager.holding import SHARED
from monitor.export.page.addresses import model_address
from monitor.export.page.states import (
    WorstState,
    headline,
    judged,
    runbook_of,
    urgency,
    worst_metric,
    worst_state,
)
from monitor.export.page.templates import render
from monitor.export.page.words import anchor
from monitor.reports.shared import SharedView, shared_views
from monitor.reports.statements import (
    RATIOS,
    Statement,
    describe,
    describe_shared,
    shown_estimate,
    value_by_labels,
)
from monitor.reports.views import EngineView, ObjectiveView, SeriesState, SeriesView

MOST_SERIES = 500
"""The largest number of models and groups on the page. With more, phones are slow; the metrics have all of
them."""
FEW_MODELS = 5
"""The largest number of models that the first page shows in full. With more models, it shows rows and
filters."""

_TASKS_SHOWN = 20
_SENTENCES_SHOWN = 5
_TREND_WINDOWS = 60


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


def overview(engine: EngineView, shown: Shown = ALL) -> Markup:
    """Return the HTML of links that filter the models, and of a table of the models that match `shown`."""
    models = [one for one in engine.series if not one.group]
    if not models:
        return Markup()
    matching = selected(engine.series, shown)
    missing = sum(not one.group for one in matching) - MOST_SERIES
    rows = models_table(matching, own_page, has_trend=True) if matching else Markup()
    return render("overview.html", "overview", list(_filters(models, shown)), rows, missing)


def models_table(
    series: Sequence[SeriesView],
    link: Link,
    has_trend: bool = False,
    rank: int = 0,
    most: int = MOST_SERIES,
) -> Markup:
    """Return an HTML table with a row for each model, the worst first.

    The table has at most `most` models, beginning with the model with the index `rank`. With `has_trend`, one
    cell of each row has a picture of the newest windows, which the script draws.
    """
    groups: dict[tuple[str, str], list[SeriesView]] = {}
    for one in series:
        if one.group:
            groups.setdefault((one.task, one.model), []).append(one)
    models = sorted((one for one in series if not one.group), key=urgency)
    several = len({one.task for one in models}) > 1
    rows = [
        row(
            one,
            f"{one.task} {one.model}" if several else one.model,
            link,
            has_trend,
            groups.get((one.task, one.model), ()),
        )
        for one in models[rank : rank + most]
    ]
    caption = f"Models from the {rank + 1:,}th worst on" if rank else "Models, the worst first"
    return rows_table(caption, "Model", rows)


def rows_table(caption: str, head: str, rows: Sequence[Row], root: str = "") -> Markup:
    """Return an HTML table of rows, with a caption and a heading for the column of names.

    `root` is the relative address of the agent's page.
    """
    return render("overview.html", "rows_table", caption, head, rows, root)


def _filters(models: Sequence[SeriesView], shown: Shown) -> Iterator[tuple[str, list[tuple[str, str, bool]]]]:
    """Yield links to the models of one task or in one state, unless the models are few."""
    if len(models) <= FEW_MODELS and shown == ALL:
        return
    tasks = list(dict.fromkeys(one.task for one in models))
    often = Counter(map(worst_state, models))
    state = "" if shown.state is UNSET else str(shown.state)
    if len(tasks) > 1:
        links = [("all tasks", _query(state=state), shown.task == "")]
        links += [(task, _query(task=task, state=state), shown.task == task) for task in tasks[:_TASKS_SHOWN]]
        yield "Tasks", links
    if len(often) > 1:
        links = [("all states", _query(task=shown.task), not state)]
        for each, number in sorted(often.items()):
            name = each.name.lower()
            links.append((f"{each.words} ({number:,})", _query(task=shown.task, state=name), state == name))
        yield "States", links


def _query(**parameters: str) -> str:
    filters = {name: value for name, value in parameters.items() if value}
    return f"?{urlencode(filters, errors='replace')}"


def glance(models: Sequence[SeriesView], link: Link, root: str | None = "") -> Markup:
    """Return the headline of one or more models as HTML, with a sentence about each model in a red state.

    Only the worst of these models have a sentence; the other ones are counted. If models share a change, one
    sentence about their task comes first and stands for the sentences about this change.

    Parameters
    ----------
    models : sequence of SeriesView
    link : callable
        Returns the address of a model.
    root : str, optional
        The relative address of the agent's page, which has the runbooks; None without an agent.
    """
    shared = [each for each in shared_views(models) if each.alarm]
    covered = {(each.task, model, each.metric) for each in shared for model, _ in each.changes}
    lines = [_shared_line(each, root) for each in shared]
    red = sorted((one for one in models if worst_state(one) <= WorstState.OUT_OF_CONTROL), key=urgency)
    own = [
        one
        for one in red
        if worst_state(one) is WorstState.UNTRUSTED or (one.task, one.model, worst_metric(one)) not in covered
    ]
    lines += [
        (link(one), describe(one), "" if root is None else runbook_address(one, root))
        for one in own[:_SENTENCES_SHOWN]
    ]
    more = len(own[_SENTENCES_SHOWN:])
    return render("overview.html", "glance", headline(models), lines, more)


def _shared_line(shared: SharedView, root: str | None) -> tuple[str, Statement, str]:
    """Return the address of the models that share a change, the sentence about it, and its runbook.

    Without an agent, both addresses are empty.
    """
    query, statement = _query(task=shared.task), describe_shared(shared)
    if root is None:
        return "", statement, ""
    return f"{root}{query}", statement, f"{root}runbooks/{SHARED}{query}"


def runbook_address(one: SeriesView, root: str = "") -> str:
    """Return the address of the runbook for a model's worst state, with the names of task and model."""
    names = {"task": one.task, "model": one.model, "group": one.group}
    query = urlencode({key: name for key, name in names.items() if name}, errors="replace")
    return f"{root}runbooks/{runbook_of(one)}?{query}"


class Row(NamedTuple):
    """A model or a group in a table: its worst metric, with its estimate and its value by labels.

    Parameters
    ----------
    one : SeriesView
    name, address : str
    metric : str
    result : Result or None
        The estimate that is shown first; None if there is no estimate.
    trusted : bool
        True if labels do not contradict this estimate.
    objective : ObjectiveView or None
    by_labels : Estimate or None
    trend : str or None
        The query of the chart of the newest windows; None if the table has no pictures.
    wrong : list of (str, SeriesView)
        The groups that need attention, the worst first, with their addresses.
    groups : int
        The number of groups.
    """

    one: SeriesView
    name: str
    address: str
    metric: str
    result: Result | None
    trusted: bool
    objective: ObjectiveView | None
    by_labels: Estimate | None
    trend: str | None
    wrong: list[tuple[str, SeriesView]]
    groups: int

    @property
    def key(self) -> str:
        """The HTML id of the list of the model's groups."""
        return anchor(self.one.task, self.one.model, "groups in a row of")

    @property
    def sort(self) -> str:
        """The estimate as a number. The script sorts rows by this number."""
        return f"{self.result.value:.6f}" if isinstance(self.result, Estimate) else ""

    @property
    def unit(self) -> str | None:
        """The unit of a metric of errors; None for a ratio."""
        return next((each.unit for each in self.one.values if each.metric == self.metric), None)

    @property
    def gap(self) -> float | None:
        """The estimate minus the bound of its objective, in percentage points.

        None if there is no objective, if its unit is no ratio, or if the estimate is unknown or not trusted.
        """
        if self.objective is None or self.objective.unit not in RATIOS:
            return None
        if not self.trusted or not isinstance(self.result, Estimate):
            return None
        return round(100 * (self.result.value - self.objective.bound), 1)

    @property
    def alarmed(self) -> bool:
        """True if any chart is out of control, even if another state is worse."""
        return any(chart.verdict.out_of_control for chart in self.one.charts)

    @property
    def since(self) -> float | None:
        """The time at which the oldest alarm was raised."""
        return min((time for time in self.one.alarmed_since.values() if time is not None), default=None)

    @property
    def moved(self) -> bool:
        """True if the distribution of the confidences moved and no alarm is on."""
        return any(chart.confidences_moved and not chart.verdict.out_of_control for chart in self.one.charts)

    @property
    def improved(self) -> str:
        """The metrics whose chart signals an improvement."""
        return ", ".join(chart.metric for chart in self.one.charts if chart.verdict.improved)


def row(one: SeriesView, name: str, link: Link, has_trend: bool, groups: Sequence[SeriesView] = ()) -> Row:
    """Return the row of a model with its groups, or the row of a group."""
    metric = worst_metric(one)
    first = shown_estimate(one, metric)
    corrected = first is not None and first.estimator == CORRECTED
    wrong = sorted((each for each in groups if worst_state(each) <= WorstState.AT_RISK), key=urgency)
    return Row(
        one=one,
        name=name,
        address=link(one),
        metric=metric,
        result=judged(one, metric),
        trusted=one.state is not SeriesState.UNTRUSTED or corrected,
        objective=next((each for each in one.objectives if each.metric == metric), None),
        by_labels=value_by_labels(one, metric),
        trend=chart_query(one, metric, limit=_TREND_WINDOWS) if has_trend else None,
        wrong=[(link(each), each) for each in wrong],
        groups=len(groups),
    )


def chart_query(one: SeriesView, metric: str, **more: str | int) -> str:
    """Return the query that selects a metric's chart, for the addresses of the API and `/chart.svg`."""
    names = {"task": one.task, "model": one.model, "group": one.group, "metric": metric}
    return urlencode({**names, **more}, errors="replace")

"""The metrics for Prometheus: a custom collector that reads one immutable view for each scrape.

The table `families.FAMILIES` has the names, units and help texts, and the sources of simple values. Functions
of this module compute the values of related families together. An unknown value is left out; it is never 0 or
NaN. No sample has a timestamp, so that a series that ends becomes stale at once. The class
`BlindsightCollector` cites the rules of exporters.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import Any

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from monitor import __version__
from monitor.base.durations import BUCKETS_SECONDS, RefitDurations
from monitor.base.names import AVERAGE_CONFIDENCE
from monitor.base.records import RejectReason
from monitor.base.registry import WHOLE_TASKS, load
from monitor.base.results import Result, Unknown
from monitor.export.prometheus.distributions import confidence_rows, curve_rows, histogram_rows
from monitor.export.prometheus.families import FAMILIES, GROUP_PREFIX, PREFIX
from monitor.export.prometheus.lines import SUFFIX, Lines, SeriesLines, family_of
from monitor.export.prometheus.rows import Row, SharedLabels, known, rank_rows, shared, text
from monitor.reports.views import AgentView, LabelOutcome, ObjectiveState, SeriesState, SeriesView
from monitor.reports.window_report import finite

log = logging.getLogger("blindsight")

_CUT_SHOWN = 5
_NO_MORE = shared()
_STATES = [(state, shared(("state", state.value))) for state in SeriesState]
_OBJECTIVE_STATES = [(state, state.value) for state in ObjectiveState]

OwnFamily = tuple[
    str,
    Callable[[Any], float | None],
    Callable[[Any], Iterable[tuple[dict[str, str], float]]] | None,
]
"""A family that the table defines alone: its key in `FAMILIES`, and a getter of its value or its rows."""


class BlindsightCollector(Collector):
    """A collector that makes the metric families from the newest view; safe for concurrent scrapes.

    The accounting identity, as a query::

        sum(blindsight_answers_received_total)
          == sum(blindsight_predictions_total) + sum(blindsight_answers_pending)
           + sum(blindsight_duplicates_total) + sum(blindsight_rejected_total) + sum(blindsight_shed_total)
           + sum(blindsight_comparisons_total) + sum(blindsight_comparisons_pending)
           + sum(blindsight_comparison_duplicates_total)

    If models are left out because of `max_series`, they are missing from the sums, and the identity does not
    hold. A second identity, for labels, is always true. It includes labels that arrive with rejected
    predictions::

        sum(blindsight_labels_received_total) == sum(blindsight_labels_total) + sum(blindsight_labels_waiting)

    The `blindsight_group_` families count the same answers again, so neither identity includes them.

    Parameters
    ----------
    view : callable
        A function that returns the newest view; called once for each scrape.
    max_series : int
        Largest number of exported Prometheus series, not counting the series of the process. Whole models are
        exported first, in order of first appearance, and then groups. The first model or group that does not
        fit is left out with all its families, and so are all models or groups after it. So a flood of group
        values never displaces a model.
    distributions : bool
        True to export the histogram of confidences and the calibration curve of each model.

    Notes
    -----
    Custom collector, absent instead of NaN, no timestamps, zeros for known counters: prometheus/docs,
    *Writing exporters* and *Instrumentation*; OpenMetrics 1.0.

    Examples
    --------
    >>> collector = BlindsightCollector(lambda: AgentView(reload_time=1.0), max_series=100)
    >>> [family.name for family in collector.collect()][:2]
    ['blindsight_series_dropped', 'blindsight_families_left_out']
    """

    def __init__(self, view: Callable[[], AgentView], max_series: int, *, distributions: bool = True) -> None:
        self._view = view
        self._max_series = max_series
        self._distributions = distributions
        self._cut: set[tuple[str, str, str]] = set()  # as large as the engine's own cap on series at most
        self._cut_logged = 0
        self._lock = threading.Lock()
        self._exported: dict[tuple[str, str, str], Exported] = {}  # as of the last scrape

    def describe(self) -> Iterable[Metric]:
        """Return every family without samples, so that the registry finds clashing names without a scrape."""
        return [
            _metric(prefix, key)
            for prefix in (PREFIX, GROUP_PREFIX)
            for key, family in FAMILIES.items()
            if family.per_series or prefix == PREFIX
        ]

    def collect(self) -> Iterator[Metric]:
        """Yield the families that have samples: of models, then of groups, then of the agent."""
        view = self._view()
        agent = [*_agent_rows(view), *_own_rows(view, {}, _rows_by_table(""))]
        for each, views in (("sources", view.sources), ("sinks", view.sinks)):
            own = _rows_by_table(each)
            for one in views:
                agent += _own_rows(one, {each.removesuffix("s"): text(one.name)}, own)
        room = self._max_series - len(agent) - 2  # 2: the counts of what is left out
        models, groups, cut = self._fit(view.engine.series, room)
        with self._lock:
            self._cut.update(cut)
            self._log_cut(cut)
            dropped = view.engine.series_dropped + len(self._cut)
        agent += [("series_dropped", {}, dropped), ("families_left_out", {}, 0)]
        for part in (Part(PREFIX, models, agent), Part(GROUP_PREFIX, groups, [])):
            yield from part.families()

    def _fit(
        self, series: Iterable[SeriesView], room: int
    ) -> tuple[list[Exported], list[Exported], set[tuple[str, str, str]]]:
        """Return the models and groups that fit in this number of samples, and the names of the others."""
        kept: tuple[list[Exported], list[Exported]] = ([], [])
        pieces = _pieces(self._distributions)
        lines = SeriesLines(PREFIX), SeriesLines(GROUP_PREFIX)
        cut: set[tuple[str, str, str]] = set()
        before, self._exported = self._exported, {}
        for view in sorted(series, key=lambda s: s.group != ""):  # stable: each part keeps its order
            name = view.task, view.model, view.group
            if cut:
                cut.add(name)
                continue
            one = before.get(name)
            if one is None or one.view is not view:
                one = Exported(view, pieces, lines[view.group != ""], one)
            if one.count > room:
                cut.add(name)
                continue
            room -= one.count
            self._exported[name] = one
            kept[view.group != ""].append(one)
        return *kept, cut

    def _log_cut(self, cut: set[tuple[str, str, str]]) -> None:
        """Log the series that are left out, at first and whenever their number has doubled."""
        if len(self._cut) < max(2 * self._cut_logged, 1):
            return
        self._cut_logged = len(self._cut)
        names = [" ".join(filter(None, who)) for who in sorted(cut)[:_CUT_SHOWN]]
        more = f" and {len(cut) - len(names)} more" if len(cut) > len(names) else ""
        log.warning(
            "export.max_series: %d series are too few for every model and group; left out of /metrics: %s%s. "
            "Raise it, or watch fewer groups.",
            self._max_series,
            ", ".join(names),
            more,
        )


def registry(
    view: Callable[[], AgentView], max_series: int, *, distributions: bool = True
) -> CollectorRegistry:
    """Return a new registry with the families of Blindsight and of the process (`process_…`, `python_info`).

    Parameters
    ----------
    view, max_series, distributions
        See `BlindsightCollector`.
    """
    collectors = CollectorRegistry()
    collectors.register(BlindsightCollector(view, max_series, distributions=distributions))
    ProcessCollector(registry=collectors)
    PlatformCollector(registry=collectors)
    return collectors


def left_out(families: int) -> Metric:
    """Return the metric family with the number of families that were left out to limit the scrape's size."""
    return _metric(PREFIX, "families_left_out", [("families_left_out", {}, families)])


def _metric(prefix: str, key: str, rows: Iterable[Row] = ()) -> Metric:
    family = FAMILIES[key]
    metric = Metric(prefix + key, family.help, family.kind, family.unit)
    metric.samples = _samples(prefix, key, rows)
    return metric


def _samples(prefix: str, key: str, rows: Iterable[Row]) -> list[Sample]:
    name = prefix + key + SUFFIX[FAMILIES[key].kind]
    # The text after the key names the part of the family, which only histograms have.
    part = slice(len(key) + 1, None)
    return [Sample(name + row[part], labels, value) for row, labels, value in rows]


def _by_family(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Group rows by family."""
    by_family: dict[str, list[Row]] = {}
    for row in rows:
        by_family.setdefault(family_of(row[0]), []).append(row)
    return by_family


Piece = tuple[Callable[[SeriesView], object], Callable[[SeriesView], Iterable[Row]]]
"""A getter of data of a series, and a function that makes rows from the data.

If the data are equal, the rows are equal.
"""


class Exported:
    """The exported text of one model or group.

    The text consists of pieces. A piece is written again only if its data have changed since the last scrape.

    Parameters
    ----------
    view : SeriesView
    pieces : sequence of Piece
        For each piece, a getter of its data and a function that makes its rows. No two pieces have rows of
        the same metric family.
    writer : SeriesLines
    before : Exported, optional
        The same series at the previous scrape.

    Attributes
    ----------
    lines : list of Lines
        The lines of each piece.
    count : int
        The number of samples.
    """

    __slots__ = ("_pieces", "count", "lines", "view")

    def __init__(
        self,
        view: SeriesView,
        pieces: Sequence[Piece],
        writer: SeriesLines,
        before: Exported | None = None,
    ) -> None:
        self.view, self._pieces = view, pieces
        who = self.who
        self.lines: list[Lines] = [
            before.lines[i]
            if before is not None and get_data(before.view) == get_data(view)
            else writer.written(who, [*rows_of(view)])
            for i, (get_data, rows_of) in enumerate(pieces)
        ]
        self.count = sum([count for _, _, count in self.lines])

    @property
    def who(self) -> dict[str, str]:
        """The labels that all samples of this model or group have."""
        who = {"task": text(self.view.task), "model": text(self.view.model)}
        return who | ({"group": text(self.view.group)} if self.view.group else {})

    def rows(self) -> Iterator[Row]:
        """Yield all rows, with the labels of `who`."""
        who = self.who
        for _, rows_of in self._pieces:
            for key, labels, value in rows_of(self.view):
                yield key, {**who, **labels}, value


class Part:
    """All models, or all groups, in one scrape. `more` has the rows that belong to no model or group."""

    def __init__(self, prefix: str, series: Sequence[Exported], more: Sequence[Row]) -> None:
        self.prefix, self.series = prefix, series
        self._more = _by_family(more)
        self._every: dict[str, list[Row]] | None = None
        self._lines: dict[str, list[bytes]] = {}
        for piece in zip(*[one.lines for one in series], strict=True):
            for families, alike in groupby(piece, itemgetter(0)):
                texts = zip(*[each for _, each, _ in alike], strict=True)
                for family, each in zip(families, texts, strict=True):
                    self._lines.setdefault(family, []).extend(each)

    def families(self) -> Iterator[SeriesFamily]:
        """Yield the metric families that have samples, in the order of `FAMILIES`."""
        return (SeriesFamily(self, key) for key in FAMILIES if key in self._more or key in self._lines)

    def lines(self, key: str) -> list[bytes]:
        """Return the text lines of a family for all models or groups that have any."""
        return self._lines.get(key, [])

    def more(self, key: str) -> list[Sample]:
        """Return the samples of a family that belong to no model or group."""
        return _samples(self.prefix, key, self._more.get(key, []))

    def samples(self, key: str) -> list[Sample]:
        """Return the samples of a family for all models or groups."""
        if self._every is None:
            self._every = _by_family(row for one in self.series for row in one.rows())
        return _samples(self.prefix, key, self._every.get(key, [])) + self.more(key)


class SeriesFamily(Metric):
    """A metric family of models or groups.

    The samples are made only on request, because a scrape uses the text lines of the family instead.
    """

    def __init__(self, part: Part, key: str) -> None:
        family = FAMILIES[key]
        self.part, self.key = part, key
        super().__init__(part.prefix + key, family.help, family.kind, family.unit)

    @property
    def samples(self) -> list[Sample]:
        """All samples of the family, made when they are read."""
        return self.part.samples(self.key)

    @samples.setter
    def samples(self, samples: list[Sample]) -> None:
        """Ignore the empty list that the constructor of the base class assigns."""


def _pieces(distributions: bool) -> list[Piece]:
    """Return the pieces of a series; those with rows from the table come last and are never reused."""
    own = _rows_by_table("series")
    values = [each for each in own if each[2] is None]
    labelled = [each for each in own if each[2] is not None]
    return [
        *_PIECES,
        *(_SPREAD if distributions else ()),
        (lambda _: math.nan, lambda one: _own_rows(one, _NO_MORE, values)),
        (lambda _: math.nan, lambda one: _labelled_rows(one, labelled)),
    ]


def _labelled_rows(one: SeriesView, own: Sequence[OwnFamily]) -> Iterator[Row]:
    for key, labels, value in _own_rows(one, _NO_MORE, own):
        yield key, shared(*labels.items()), value


def _state_rows(one: SeriesView) -> Iterator[Row]:
    for state, labels in _STATES:
        yield "state", labels, float(state is one.state)


def _audit_rows(one: SeriesView) -> Iterator[Row]:
    if one.coverage is not None:
        audited = shared(("metric", one.share), ("estimator", AVERAGE_CONFIDENCE))
        yield "interval_coverage_ratio", audited, one.coverage.ratio
        yield "interval_audited_rows", audited, one.coverage.rows


def _recalibration_rows(one: SeriesView) -> Iterator[Row]:
    if one.recalibrations is not None:
        for outcome, count in one.recalibrations.outcomes.items():
            yield "recalibrations", shared(("outcome", outcome)), count
        yield "recalibration_held", shared(), float(one.recalibrations.held)


def _rows_by_table(owner: str) -> list[OwnFamily]:
    """Return the families whose rows come from the table alone: of the series, the agent ("") or each item.

    This is looked up once for each scrape, not for each series.
    """
    return [
        (key, _getter(family.value), load(family.rows) if family.rows else None)
        for key, family in FAMILIES.items()
        if (family.rows or family.value) and ("series" if family.per_series else family.each) == owner
    ]


def _getter(path: str) -> Callable[[Any], float | None]:
    if "." not in path:
        return attrgetter(path)
    # The path ends in None if any step of it is None.
    return lambda view: reduce(lambda value, name: getattr(value, name, None), path.split("."), view)


def _own_rows(view: Any, who: dict[str, str], own: Sequence[OwnFamily]) -> list[Row]:
    own_rows: list[Row] = []
    for key, get, rows in own:
        if rows is not None:
            own_rows += [(key, {**who, **labels}, value) for labels, value in rows(view)]
        elif (value := get(view)) is not None and math.isfinite(value):
            own_rows.append((key, who, value))
    return own_rows


def _trust_rows(one: SeriesView) -> Iterator[Row]:
    """Yield no rows before the first label, because an untested estimate has not passed a test."""
    for each in one.trust_in_errors.both if one.trust_in_errors is not None else ():
        of_errors = shared(("metric", each.metric))
        yield "estimate_trusted", of_errors, float(each.trusted)
        yield "estimate_evidence", of_errors, each.evidence
    if one.trust is None:
        return
    labels = shared(("metric", one.share))
    yield "estimate_trusted", labels, float(one.trust.trusted)
    yield "estimate_evidence", labels, one.trust.evidence
    if one.trust.confidences is not None:
        yield "estimate_bias_ratio", labels, one.trust.confidences.value
        yield "estimate_bias_lower_ratio", labels, one.trust.confidences.lower
        yield "estimate_bias_upper_ratio", labels, one.trust.confidences.upper


def _model_rows(one: SeriesView) -> Iterator[Row]:
    info = shared(
        ("version", text(one.version)),
        ("window_size", str(one.window_size)),
        ("calibration", text(one.calibration.method)),
        ("calibration_foreign", str(one.calibration.foreign).lower()),
        ("chart_estimator", text(next((c.estimator for c in one.charts if c.metric == one.share), ""))),
    )
    yield "model", info, 1


def _estimate_rows(one: SeriesView) -> Iterator[Row]:
    for e in one.estimates:
        labels = shared(("metric", e.metric), ("estimator", e.estimator))
        yield from _result_rows("", labels, e.result)
        yield from rank_rows(labels, e.rank, e.rank_chi_square)


def _value_rows(one: SeriesView) -> Iterator[Row]:
    """Yield the metrics of errors, which are no ratios."""
    for e in one.values:
        labels = shared(("metric", e.metric), ("estimator", e.estimator))
        estimate = finite(e.result)
        if isinstance(estimate, Unknown):
            yield from _result_rows("", labels, estimate)
        else:
            labels = shared(*labels.items(), ("unit", text(e.unit or "")))
            yield "value", labels, estimate.value
            yield "value_lower", labels, estimate.lower
            yield "value_upper", labels, estimate.upper


def _class_rows(one: SeriesView) -> Iterator[Row]:
    """Yield the estimates by class in separate families, so that sums and means over metrics stay valid."""
    for estimate in one.classes:
        labels = shared(
            ("metric", estimate.metric), ("estimator", estimate.estimator), ("class", text(estimate.of_class))
        )
        yield from _result_rows("class_", labels, estimate.result)


def _result_rows(prefix: str, labels: SharedLabels, result: Result) -> Iterator[Row]:
    estimate = finite(result)
    if isinstance(estimate, Unknown):
        yield f"{prefix}unknown", shared(*labels.items(), ("reason", text(estimate.reason))), 1
    else:
        yield f"{prefix}estimate_ratio", labels, estimate.value
        yield f"{prefix}estimate_lower_ratio", labels, estimate.lower
        yield f"{prefix}estimate_upper_ratio", labels, estimate.upper


def _chart_rows(one: SeriesView) -> Iterator[Row]:
    for chart in one.charts:
        labels = shared(("metric", chart.metric))
        family, of_limits = "control_{}_ratio", labels
        if chart.unit is not None:
            family, of_limits = "value_control_{}", shared(*labels.items(), ("unit", text(chart.unit)))
        yield from known(family.format("center"), of_limits, chart.verdict.center)
        yield from known(family.format("lower"), of_limits, chart.verdict.lower)
        yield from known(family.format("upper"), of_limits, chart.verdict.upper)
        yield "out_of_control", labels, float(chart.verdict.out_of_control)
        yield "improved", labels, float(chart.verdict.improved)


def _violation_rows(one: SeriesView) -> Iterator[Row]:
    for (metric, rule), count in one.violations.items():
        yield "control_violations", shared(("metric", metric), ("rule", rule)), count


def _objective_rows(one: SeriesView) -> Iterator[Row]:
    for objective in one.objectives:
        labels = shared(("metric", objective.metric))
        if objective.unit is None:
            yield "objective_ratio", labels, objective.bound
        else:
            of_bound = shared(*labels.items(), ("unit", text(objective.unit)))
            yield "value_objective", of_bound, objective.bound
        for state, name in _OBJECTIVE_STATES:
            of_state = shared(("metric", objective.metric), ("state", name))
            yield "objective_state", of_state, float(state is objective.state)


def _window_rows(one: SeriesView) -> Iterator[Row]:
    yield from _estimate_rows(one)
    yield from _value_rows(one)
    yield from _chart_rows(one)
    yield from _violation_rows(one)


def _standing_rows(one: SeriesView) -> Iterator[Row]:
    yield from _class_rows(one)
    yield from _objective_rows(one)
    yield from _state_rows(one)


def _label_rows_of(one: SeriesView) -> Iterator[Row]:
    yield from _audit_rows(one)
    yield from _recalibration_rows(one)
    yield from _trust_rows(one)


_PIECES: tuple[Piece, ...] = (
    # Grouped by what changes together: with every window, sometimes, by model, with labels.
    (attrgetter("estimates", "values", "charts", "violations"), _window_rows),
    (attrgetter("classes", "objectives", "state"), _standing_rows),
    (attrgetter("version", "window_size", "calibration"), _model_rows),
    (attrgetter("coverage", "recalibrations", "trust", "trust_in_errors"), _label_rows_of),
)
_SPREAD: tuple[Piece, ...] = (
    (lambda one: one.distributions and one.distributions.confidence, confidence_rows),
    (lambda one: one.distributions and one.distributions.curve, curve_rows),
)


def _agent_rows(view: AgentView) -> Iterator[Row]:
    yield from _label_rows(view)
    yield from _refit_rows(view)
    for one in view.engine.tasks:
        yield from load(WHOLE_TASKS[one.kind].rows)(one)
    yield from _source_rows(view)
    yield from _sink_rows(view)
    # 0.0 means "not read yet" in the view; as a time it would trigger every "too old" alert.
    yield from known("config_last_reload_success_timestamp_seconds", {}, view.reload_time or None)
    yield "build", {"version": __version__}, 1
    if view.external_url:
        yield "page", {"url": text(view.external_url)}, 1


def _label_rows(view: AgentView) -> Iterator[Row]:
    engine = view.engine
    tasks = dict.fromkeys(
        [s.task for s in engine.series] + [task for task, _ in engine.labels] + [*engine.labels_waiting]
    )
    for task in tasks:
        who = {"task": text(task)}
        waiting = engine.labels_waiting.get(task)  # unknown on Spark if models are computed in parallel
        for outcome in LabelOutcome:
            count = engine.labels.get((task, outcome), None if waiting is None else 0)
            yield from known("labels", {**who, "outcome": outcome.value}, count)
        yield from known("labels_waiting", who, waiting)
        yield "labels_unrevised", who, engine.labels_unrevised.get(task, 0)
        yield "answers_forgotten", who, engine.answers_forgotten.get(task, 0)
        yield from known("label_lag_seconds", who, engine.label_lag_seconds.get(task))


def _refit_rows(view: AgentView) -> Iterator[Row]:
    """Yield the rows of tasks that refit; rows about a fit are left out until a fit has been published."""
    recalibrating = [one.task for one in view.engine.series if one.recalibrations is not None]
    for task in dict.fromkeys([*view.engine.refits, *recalibrating]):
        durations = view.refit_durations.get(task, RefitDurations())
        yield from histogram_rows(
            "refit_duration_seconds",
            {"task": text(task)},
            BUCKETS_SECONDS,
            durations.cumulative(),
            durations.seconds,
        )
    for task, refits in view.engine.refits.items():
        who = {"task": text(task)}
        yield "refit_failures", who, refits.failures
        yield "refit_held", who, float(refits.held)
        yield "refit_answers_without_id", who, refits.without_id
        if refits.success_time is not None:
            yield "refit_last_success_timestamp_seconds", who, refits.success_time
            yield "refit_rows", who, refits.rows
            yield "refit_labelled_rows", who, refits.labelled
            yield "refit_pool_rows", who, max(refits.pool_rows, refits.rows)
            yield "refit_sampling_widening_ratio", who, refits.widening
            if refits.labelled_draws is not None:
                yield "refit_drawn_rows", who, refits.labelled_draws
                yield "refit_missing_draws", who, refits.missing_draws or 0
            yield from known("effective_labels", who, refits.effective_labels)
            for name, share in refits.prevalence.items():
                yield from known("prevalence_ratio", {**who, "class": text(name)}, share)


def _source_rows(view: AgentView) -> Iterator[Row]:
    """Yield the rows of sources.

    Counters start with 0, because `increase` would otherwise miss first events.
    """
    engine = view.engine
    rejecting = [source for source, _ in engine.rejected]
    reading_events = {feed.name for feed in view.sources if feed.reads_events}
    for source in dict.fromkeys(
        [s.name for s in view.sources] + [*engine.received, *engine.shed, *rejecting]
    ):
        who = {"source": text(source)}
        yield "labels_received", who, engine.labels_received.get(source, 0)
        yield "answers_received", who, engine.received.get(source, 0)
        yield "shed", who, engine.shed.get(source, 0)
        yield "rows_left", who, engine.rows_left.get(source, 0)
        if (ignored := engine.ignored.get(source, 0)) or source in reading_events:
            yield "events_ignored", who, ignored
        own = {reason: count for (name, reason), count in engine.rejected.items() if name == source}
        for reason, count in ({r.value: 0 for r in RejectReason} | own).items():
            yield "rejected", {**who, "reason": text(reason)}, count
    for feed in view.sources:
        who = {"source": text(feed.name)}
        for code, count in feed.refused.items():
            yield "posts_refused", {**who, "code": code}, count
        for token, count in feed.labels_by_token.items():
            yield "token_labels", {**who, "token": text(token)}, count


def _sink_rows(view: AgentView) -> Iterator[Row]:
    for sink in view.sinks:
        yield "sink_up", {"sink": text(sink.name)}, float(sink.trouble is None)

"""The lower part of the page: sources, labels, refits, outputs."""

from __future__ import annotations

from collections.abc import Iterator

from markupsafe import Markup

from monitor.base.names import OUTCOMES
from monitor.export.page.overview import MOST_SERIES
from monitor.export.page.templates import section
from monitor.export.page.words import duration, moment, thousands, tone
from monitor.reports.views import AgentView, EngineView, LabelOutcome, RefitView, SourceView


def sources(view: AgentView) -> Markup:
    """Return the HTML table of sources: connection, waiting records, counts of answers."""
    engine = view.engine
    rows = []
    for feed in view.sources:
        state = _connection(feed)
        rejected = sum(count for (source, _), count in engine.rejected.items() if source == feed.name)
        counts = (engine.received.get(feed.name, 0), rejected, engine.shed.get(feed.name, 0))
        waiting = "not known" if feed.lag is None else thousands(feed.lag)
        rows.append((feed.name, state, waiting, *map(thousands, counts)))
    heads = ("Source", "State", "#Waiting", "#Answers received", "#Rejected", "#Shed")
    return section("Sources", heads, rows)


def _connection(feed: SourceView) -> Markup:
    if feed.ended_time is not None:
        return tone("read to its end" if feed.lag == 0 else "closed", "soft")
    return tone("connected", "good") if feed.up else tone("not connected", "bad")


def rejects(engine: EngineView) -> Markup:
    """Return the HTML table of rejected answers, by source and reason."""
    counts = [(source, reason, count) for (source, reason), count in engine.rejected.items() if count]
    counts.sort(key=lambda row: -row[2])
    rows = [(source, reason.replace("_", " "), thousands(count)) for source, reason, count in counts]
    return section("Rejected answers", ("Source", "Reason", "#Answers"), rows)


def labels(engine: EngineView, title: str = "Labels") -> Markup:
    """Return the HTML table of labels: for each task, the number with each outcome, and their delay."""
    rows = []
    for task in dict.fromkeys([task for task, _ in engine.labels] + list(engine.labels_waiting)):
        counts = [engine.labels.get((task, outcome), 0) for outcome in LabelOutcome]
        counts.append(engine.labels_waiting.get(task, 0))
        lag = engine.label_lag_seconds.get(task)
        rows.append((task, *map(thousands, counts), "not known" if lag is None else duration(lag)))
    outcomes = (f"#{outcome.value.capitalize()}" for outcome in LabelOutcome)
    return section(title, ("Task", *outcomes, "#Waiting", "#Median delay"), rows)


def refits(engine: EngineView) -> Markup:
    """Return the HTML table of refits: for each task, the last successful refit and the later attempts."""
    rows = []
    for task, refit in engine.refits.items():
        pool = f" of {refit.pool_rows:,}" if refit.pool_rows > refit.rows else ""
        counts = (f"{refit.rows:,}{pool}", thousands(refit.labelled), thousands(refit.failures))
        rows.append((task, Markup("; ").join(_attempts(refit)), *counts))
    heads = ("Task", "Last good refit", "#Rows", "#With labels", "#Refused")
    return section("Refits on labels", heads, rows)


def _attempts(refit: RefitView) -> Iterator[str]:
    """Describe the last successful refit, and the attempts since then."""
    yield "none yet" if refit.success_time is None else f"published {moment(refit.success_time)}"
    if refit.refused:
        yield _refusal(refit.refused)
    if refit.under_way:
        yield "another is running"


def _refusal(reason: str) -> Markup:
    return tone(f"the newest refit was refused: {reason}", "warn")


def recalibrations(engine: EngineView) -> Markup:
    """Return the HTML table of the models whose calibrations are fitted again on labels."""
    recalibrated = [(one, one.recalibrations) for one in engine.series if one.recalibrations is not None]
    rows = []
    for one, fits in recalibrated[:MOST_SERIES]:
        notes = [_refusal(fits.refused)] if fits.refused else []
        notes += [Markup("one is running")] if fits.under_way else []
        counts = (thousands(fits.outcomes[outcome]) for outcome in OUTCOMES)
        rows.append((f"{one.task} {one.model}", Markup("; ").join(notes), *counts))
    heads = ("Model", "Newest", *(f"#{outcome.capitalize()}" for outcome in OUTCOMES))
    return section("Calibrations refitted on labels", heads, rows)


def sinks(view: AgentView) -> Markup:
    """Return the HTML table of outputs: state, and numbers of waiting, delivered and lost items."""
    rows = []
    for sink in view.sinks:
        since = "" if sink.failing_since is None else f" since {moment(sink.failing_since)}"
        state = tone(f"failing{since}", "warn") if sink.trouble else tone("fine", "good")
        rows.append((sink.name, state, *map(thousands, (sink.waiting, sink.delivered, sink.lost))))
    return section("Outputs", ("Output", "State", "#Waiting", "#Delivered", "#Lost"), rows)

"""The lower part of the page: sources, labels, refits, outputs."""

from __future__ import annotations

from collections.abc import Iterator

from monitor.base.names import OUTCOMES
from monitor.export.page.overview import MOST_SERIES
from monitor.export.page.words import duration, moment, numbers, table, text
from monitor.reports.views import AgentView, EngineView, LabelOutcome, RefitView


def sources(view: AgentView) -> Iterator[str]:
    """Yield the HTML table of sources: connection, waiting records, counts of answers."""
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
        figures = numbers([waiting, *(f"{count:,}" for count in counts)])
        rows.append(f'<tr><th scope="row">{text(feed.name)}</th><td>{state}</td>{figures}</tr>')
    yield from table(
        "Sources", ("Source", "State", "#Waiting", "#Answers received", "#Rejected", "#Shed"), rows
    )


def rejects(engine: EngineView) -> Iterator[str]:
    """Yield the HTML table of rejected answers, by source and reason."""
    counts = [(source, reason, count) for (source, reason), count in engine.rejected.items() if count]
    if not counts:
        return
    yield "<h2>Rejected answers</h2>"
    rows = (
        f'<tr><th scope="row">{text(source)}</th><td>{text(reason.replace("_", " "))}</td>'
        f"{numbers([f'{count:,}'])}</tr>"
        for source, reason, count in sorted(counts, key=lambda row: -row[2])
    )
    yield from table("Rejected answers", ("Source", "Reason", "#Answers"), rows)


def labels(engine: EngineView, title: str = "Labels") -> Iterator[str]:
    """Yield the HTML table of labels: for each task, the number with each outcome, and their delay."""
    tasks = dict.fromkeys([task for task, _ in engine.labels] + list(engine.labels_waiting))
    if not tasks:
        return
    yield f"<h2>{title}</h2>"
    rows = []
    for task in tasks:
        counts = [engine.labels.get((task, outcome), 0) for outcome in LabelOutcome]
        counts.append(engine.labels_waiting.get(task, 0))
        lag = engine.label_lag_seconds.get(task)
        delay = "not known" if lag is None else duration(lag)
        figures = numbers([*(f"{count:,}" for count in counts), delay])
        rows.append(f'<tr><th scope="row">{text(task)}</th>{figures}</tr>')
    outcomes = (f"#{outcome.value.capitalize()}" for outcome in LabelOutcome)
    yield from table(title, ("Task", *outcomes, "#Waiting", "#Median delay"), rows)


def refits(engine: EngineView) -> Iterator[str]:
    """Yield the HTML table of refits: for each task, the last good refit and later attempts."""
    if not engine.refits:
        return
    yield "<h2>Refits on labels</h2>"
    rows = []
    for task, refit in engine.refits.items():
        good = "none yet" if refit.success_time is None else f"published {moment(refit.success_time)}"
        pool = f" of {refit.pool_rows:,}" if refit.pool_rows > refit.rows else ""
        counts = numbers([f"{refit.rows:,}{pool}", f"{refit.labelled:,}", f"{refit.failures:,}"])
        rows.append(f'<tr><th scope="row">{text(task)}</th><td>{good}{_newest(refit)}</td>{counts}</tr>')
    yield from table(
        "Refits on labels", ("Task", "Last good refit", "#Rows", "#With labels", "#Refused"), rows
    )


def _newest(refit: RefitView) -> str:
    """Describe the refits since the last good one."""
    refused = f"; {_refusal(refit.refused)}" if refit.refused else ""
    return refused + ("; another is running" if refit.under_way else "")


def _refusal(reason: str) -> str:
    return f'<span class="warn">the newest refit was refused: {text(reason)}</span>'


def recalibrations(engine: EngineView) -> Iterator[str]:
    """Yield the HTML table of the models whose calibrations are fitted again on labels."""
    recalibrated = [(one, one.recalibrations) for one in engine.series if one.recalibrations is not None]
    if not recalibrated:
        return
    yield "<h2>Calibrations refitted on labels</h2>"
    rows = []
    for one, fits in recalibrated[:MOST_SERIES]:
        notes = [_refusal(fits.refused)] if fits.refused else []
        notes += ["one is running"] if fits.under_way else []
        counts = numbers([f"{fits.outcomes[outcome]:,}" for outcome in OUTCOMES])
        who = f'<th scope="row">{text(one.task)} {text(one.model)}</th>'
        rows.append(f"<tr>{who}<td>{'; '.join(notes)}</td>{counts}</tr>")
    heads = ("Model", "Newest", *(f"#{outcome.capitalize()}" for outcome in OUTCOMES))
    yield from table("Calibrations refitted on labels", heads, rows)


def sinks(view: AgentView) -> Iterator[str]:
    """Yield the HTML table of outputs, with the numbers of items that wait or were lost."""
    if not view.sinks:
        return
    yield "<h2>Outputs</h2>"
    rows = []
    for sink in view.sinks:
        since = "" if sink.failing_since is None else f" since {moment(sink.failing_since)}"
        state = (
            f'<span class="warn">failing{since}</span>' if sink.trouble else '<span class="good">fine</span>'
        )
        figures = numbers(f"{count:,}" for count in (sink.waiting, sink.delivered, sink.lost))
        rows.append(f'<tr><th scope="row">{text(sink.name)}</th><td>{state}</td>{figures}</tr>')
    yield from table("Outputs", ("Output", "State", "#Waiting", "#Delivered", "#Lost"), rows)
